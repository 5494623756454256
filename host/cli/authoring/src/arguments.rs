//! The arguments and help of `toolhold plugin new`, `build`, `dev`, `test`, `pack` and `wit`.

use std::path::PathBuf;

use clap::Subcommand;

const DEV_AFTER: &str = "\
Examples:
  toolhold plugin dev
  toolhold plugin dev my-plugin --call my_tool path=notes.txt
  toolhold plugin dev my-plugin --http 8000

The plugin gets what its manifest asks for and your toolhold.toml grants to its name; changes of \
the grants apply at once. New builds of this folder need no approval. If a build fails, or a \
component doesn't load, the previous version stays in use. Ctrl-C ends the command.";

const TEST_AFTER: &str = "\
Examples:
  toolhold plugin test
  toolhold plugin test my-plugin.wasm --json
  toolhold plugin test my-plugin.wasm --seed 7

Tools are called with arguments made from their schemas, in a temporary directory, without a network \
and without programs. The report names the checks that could not run. The exit code is 1 if a \
check failed.";

/// The commands of authors.
#[derive(Debug, Subcommand)]
pub enum AuthorCommand {
    /// Create a folder with a plugin that builds: one tool, a unit test, and the SDK of its
    /// language
    #[command(
        after_help = "Examples:\n  toolhold plugin new my-plugin --lang python\n  toolhold plugin new my-plugin --lang rust --dir plugins/mine"
    )]
    New {
        /// The plugin's name: at most 24 characters of [a-z0-9-], the first a letter
        name: String,
        /// rust, python, javascript, c or go
        #[arg(long, value_name = "LANGUAGE")]
        lang: String,
        /// The folder, which must be empty or missing [default: the name]
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Build the plugin in a folder into NAME.wasm, with the usual tools of its language
    #[command(after_help = "Examples:\n  toolhold plugin build\n  toolhold plugin build my-plugin")]
    Build {
        /// The plugin's folder
        #[arg(default_value = ".")]
        dir: PathBuf,
    },
    /// Write a manifest into a component of any language
    #[command(
        after_help = "Example:\n  toolhold plugin pack component.wasm --manifest plugin.toml -o my-plugin.wasm"
    )]
    Pack {
        /// The component, or a core module that describes its interfaces
        file: PathBuf,
        /// The manifest
        #[arg(long, value_name = "FILE", default_value = "plugin.toml")]
        manifest: PathBuf,
        /// The packed component [default: the plugin's name and .wasm]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Build and serve the plugin in a folder, again after each change of a source
    #[command(after_help = DEV_AFTER)]
    Dev {
        /// The plugin's folder
        #[arg(default_value = ".")]
        dir: PathBuf,
        /// Make this call after each build: a tool, then KEY=VALUE or one JSON object
        #[arg(long, num_args = 1.., value_name = "TOOL ARGUMENTS", allow_hyphen_values = true)]
        call: Vec<String>,
        /// Make the call without asking
        #[arg(long, short, requires = "call")]
        yes: bool,
        /// Serve clients of MCP at this port, address and port, or Unix socket
        #[arg(long, value_name = "PORT|ADDRESS:PORT|SOCKET")]
        http: Option<String>,
        /// Print JSON lines
        #[arg(long)]
        json: bool,
    },
    /// Test whether a component keeps to the contract; its tools are called in a temporary
    /// directory
    #[command(after_help = TEST_AFTER)]
    Test {
        /// The component, or a plugin's folder, which is built first if a source is newer
        #[arg(value_name = "FILE|DIR", default_value = ".")]
        plugin: PathBuf,
        /// The seed for the combinations of arguments
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        seed: u64,
        /// Seconds that a call may take
        #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
        time: u64,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Write the contract's WIT into a folder, for generators of bindings
    #[command(
        after_help = "Examples:\n  toolhold plugin wit\n  toolhold plugin wit contract --force"
    )]
    Wit {
        /// The folder
        #[arg(default_value = "wit")]
        dir: PathBuf,
        /// Overwrite files that have another content
        #[arg(long)]
        force: bool,
    },
}
