//! The commands for authors of plugins.

use std::path::PathBuf;

use clap::Subcommand;

/// The commands of authors.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthorCommand {
    /// Make a folder with a plugin that builds: one tool, a unit test, and the SDK of its language
    #[command(
        after_help = "Examples:\n  berth plugin new my-plugin --lang python\n  berth plugin new my-plugin --lang rust --dir plugins/mine"
    )]
    New {
        /// The plugin's name: at most 24 characters of [a-z0-9-], the first a letter
        name: String,
        /// rust, python, javascript, c or go
        #[arg(long, value_name = "LANGUAGE")]
        lang: String,
        /// The folder, which must be empty or missing; by default the name
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Build the plugin in a folder with its language's own tools, into NAME.wasm
    #[command(after_help = "Examples:\n  berth plugin build\n  berth plugin build my-plugin")]
    Build {
        /// The plugin's folder
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Write a manifest into a component of any language
    #[command(
        after_help = "Example:\n  berth plugin pack component.wasm --manifest plugin.toml -o my-plugin.wasm"
    )]
    Pack {
        /// The component, or a core module that describes its interfaces
        file: PathBuf,
        /// The manifest
        #[arg(long, value_name = "FILE", default_value = "plugin.toml")]
        manifest: PathBuf,
        /// The packed component; by default the plugin's name and .wasm
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Write the contract's WIT into a folder, for generators of bindings
    #[command(after_help = "Examples:\n  berth plugin wit\n  berth plugin wit contract --force")]
    Wit {
        /// The folder
        #[arg(default_value = "wit")]
        dir: PathBuf,
        /// Overwrite files with another content
        #[arg(long)]
        force: bool,
    },
}
