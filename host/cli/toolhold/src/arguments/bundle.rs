//! The arguments and help of `toolhold plugin bundle`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use toolhold_signing::PasswordSource;

const CREATE_AFTER: &str = "\
Examples:
  toolhold plugin bundle create acme.tar
  toolhold plugin bundle create acme.tar --only acme-notes --only acme-search --key release
  toolhold plugin bundle create acme.tar --filters filters.toml --ceiling ceiling.toml

Without --only, the bundle has all installed plugins in their current versions, with the \
signatures that came with them.";

const SHOW_AFTER: &str = "\
Examples:
  toolhold plugin bundle show acme.tar
  toolhold plugin bundle show acme.tar --json

The whole bundle is verified first, with the keys of your configuration that have `bundles = \
true`. Nothing is installed.";

const INSTALL_AFTER: &str = "\
Examples:
  toolhold plugin bundle install acme.tar
  toolhold plugin bundle install acme.tar --yes --without ceiling
  sudo toolhold plugin bundle install acme.tar --without plugins --without filters

The command verifies the whole bundle, shows the changes, and asks. Then all of the bundle is \
installed, or nothing. A bundle grants nothing: grants are in [plugins.NAME] of your \
toolhold.toml.";

/// `toolhold plugin bundle`.
#[derive(Debug, Subcommand)]
pub(crate) enum BundleCommand {
    /// Make one signed file of the plugins that are installed here, for machines without a network
    #[command(after_help = CREATE_AFTER)]
    Create(CreateArguments),
    /// Show the content and the signer of a bundle
    #[command(after_help = SHOW_AFTER)]
    Show {
        /// The bundle
        file: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Install a bundle: its plugins, filters and ceiling
    #[command(after_help = INSTALL_AFTER)]
    Install(InstallBundleArguments),
}

/// `toolhold plugin bundle create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// The new file
    pub(crate) file: PathBuf,
    /// An installed plugin [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// A file with rules for filters
    #[arg(long, value_name = "FILE")]
    pub(crate) filters: Option<PathBuf>,
    /// A ceiling, with its signature if it has one
    #[arg(long, value_name = "FILE")]
    pub(crate) ceiling: Option<PathBuf>,
    /// The secret key: the name of one of your keys, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "default")]
    pub(crate) key: String,
    /// Read the password from a variable (env:NAME) or an open file (fd:NUMBER) [default: ask]
    #[arg(long, value_name = "PLACE")]
    pub(crate) password_from: Option<PasswordSource>,
}

/// `toolhold plugin bundle install`.
#[derive(Debug, Args)]
pub(crate) struct InstallBundleArguments {
    /// The bundle
    pub(crate) file: PathBuf,
    /// Leave out a part of the bundle
    #[arg(long, value_name = "PART")]
    pub(crate) without: Vec<BundlePart>,
    /// Don't ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Also install versions that are older than the current ones
    #[arg(long)]
    pub(crate) downgrade: bool,
}

/// A part of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BundlePart {
    /// The plugins.
    Plugins,
    /// The rules for filters.
    Filters,
    /// The ceiling.
    Ceiling,
}
