//! Installs third-party plugins.
//!
//! [`Offer::examine`] examines a downloaded component. After the person has agreed,
//! [`Installer::install`] installs the component.

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
