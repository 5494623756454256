//! Installs plugins of others. What is fetched is examined and shown first; a person decides; then
//! one step of the lock file puts it in force.
//!
//! Nothing here asks or prints: a front end does that between [`Offer::examine`] and
//! [`Installer::install`].

mod abilities;
mod arguments;
mod bundle;
mod installer;
mod names;
mod offer;
mod signatures;

pub use abilities::{Ability, abilities};
pub use arguments::{AddArguments, InstallCommand};
pub use bundle::{
    BundleCommand, BundleContents, BundlePart, BundlePlan, BundledPlugin, CreateArguments,
    InstallBundleArguments, PlannedChange, PlannedFile, PlannedPlugin, create_bundle,
};
pub use installer::{Comparison, Installed, Installer};
pub use names::check_name;
pub use offer::{Offer, is_more};
pub use signatures::{SignedBy, check_source, file_signer};
