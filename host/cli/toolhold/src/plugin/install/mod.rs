//! Installs the plugins of other people. A fetched component is examined and shown first. A person
//! decides. Then one step of the lock file puts the component in force.
//!
//! Nothing here asks or prints: a front end does that between [`Offer::examine`] and
//! [`Installer::install`].

mod abilities;
mod bundle;
pub(crate) mod command;
pub(crate) mod grants;
mod installer;
mod names;
mod offer;
mod signatures;

pub(crate) use abilities::abilities;
pub(crate) use bundle::{BundleContents, BundlePlan, PlannedChange, PlannedPlugin, create_bundle};
pub(crate) use installer::{Comparison, Installed, Installer};
pub(crate) use offer::Offer;
pub(crate) use signatures::{check_source, file_signer, keys};
