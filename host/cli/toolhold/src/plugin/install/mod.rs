//! Installs other people's plugins. First, a downloaded component is examined and shown. Then a
//! person decides. Writing the lock file installs the component in one step.
//!
//! This module doesn't ask or print. A front end does this between [`Offer::examine`] and
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
