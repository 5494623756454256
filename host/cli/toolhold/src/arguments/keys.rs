//! The arguments and help of `toolhold plugin key`, `toolhold plugin sign` and
//! `toolhold config ceiling`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use toolhold_signing::PasswordSource;

const NEW_AFTER: &str = "\
Examples:
  toolhold plugin key new
  toolhold plugin key new release --password-from fd:3 3< password.txt
  toolhold plugin key new ci --no-password

The files have minisign's format and are in `keys` in your configuration's folder. NAME.key is \
secret, and only you can read it; give NAME.pub to people who will trust the key. An existing key \
is never overwritten.";

const SIGN_AFTER: &str = "\
Examples:
  toolhold plugin sign notes.wasm
  toolhold plugin sign notes.wasm --key release
  toolhold plugin sign notes.wasm --key ~/.minisign/minisign.key
  minisign -Vm notes.wasm -p release.pub

The signature is notes.wasm.minisig, next to the component. The signature names the plugin, its \
version and the digest of its manifest.";

/// `toolhold plugin key`.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key that signs plugins and bundles
    #[command(after_help = NEW_AFTER)]
    New {
        /// The key's name
        #[arg(default_value = "default")]
        name: String,
        /// Don't encrypt the secret key: whoever reads its file can sign
        #[arg(long, conflicts_with = "password_from")]
        no_password: bool,
        #[command(flatten)]
        password: Password,
        /// Print one JSON object: name, id, the public key, the files
        #[arg(long)]
        json: bool,
    },
    /// Show your public keys, in the form for other people's configuration
    #[command(
        after_help = "Examples:\n  toolhold plugin key show\n  toolhold plugin key show release --json"
    )]
    Show {
        /// Only this key
        name: Option<String>,
        /// Print a JSON array: name, id, the public key
        #[arg(long)]
        json: bool,
    },
}

/// Where a password comes from.
#[derive(Args, Clone, Debug)]
pub(crate) struct Password {
    /// Read the password from a variable (env:NAME) or an open file (fd:NUMBER) [default: ask]
    #[arg(long, value_name = "PLACE")]
    pub(crate) password_from: Option<PasswordSource>,
}

/// `toolhold plugin sign`.
#[derive(Args, Debug)]
#[command(after_help = SIGN_AFTER)]
pub(crate) struct SignArguments {
    /// The component
    pub(crate) file: PathBuf,
    /// The secret key: the name of one of your keys, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "default")]
    pub(crate) key: String,
    /// The plugin's name, for a component without a manifest
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) password: Password,
    /// Print one JSON object: the signature's file, the key's id, what is signed
    #[arg(long)]
    pub(crate) json: bool,
}

/// `toolhold config ceiling`.
#[derive(Debug, Subcommand)]
pub(crate) enum CeilingCommand {
    /// Show the ceilings, their signers, and what they remove from your configuration
    #[command(
        after_help = "Examples:\n  toolhold config ceiling show\n  toolhold config ceiling show --json"
    )]
    Show {
        /// Print a JSON array: the file, the key's id, the removed values
        #[arg(long)]
        json: bool,
    },
    /// Check a ceiling and write its signature into its first lines, for machines that have the
    /// public key in /etc/toolhold/ceiling.pub
    #[command(after_help = CEILING_SIGN_AFTER)]
    Sign {
        /// The ceiling
        file: PathBuf,
        /// The secret key: the name of one of your keys, or a file
        #[arg(long, value_name = "NAME|FILE", default_value = "default")]
        key: String,
        #[command(flatten)]
        password: Password,
    },
}

const CEILING_SIGN_AFTER: &str = "\
Examples:
  toolhold config ceiling sign ceiling.toml --key fleet
  toolhold config ceiling sign ceiling.toml --key ~/.minisign/minisign.key

Signing again replaces the signature. To put the ceiling in force, copy it next to \
/etc/toolhold/ceiling.toml, and rename the copy to that name: no call is then without a ceiling.";
