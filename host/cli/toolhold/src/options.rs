//! The options of all commands, such as the configuration file and the log format.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use toolhold_core::HostError;
use toolhold_core::config::{Folders, Inputs, PathAccess};
use tracing::level_filters::LevelFilter;

/// The options of every command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Options for every command")]
pub(crate) struct Options {
    /// Let the built-in tools use this directory too, read and write
    #[arg(long, value_name = "DIRECTORY", global = true)]
    pub(crate) allow: Vec<PathBuf>,
    /// Let the built-in tools read this directory too
    #[arg(long, value_name = "DIRECTORY", global = true)]
    pub(crate) allow_read: Vec<PathBuf>,
    /// Load this plugin without directories; to grant some, name the plugin in toolhold.toml
    /// instead
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) plugin: Vec<PathBuf>,
    /// Read this file instead of your toolhold.toml
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Set a key of the configuration, as in tools.call=60
    #[arg(long, value_name = "KEY=VALUE", global = true)]
    pub(crate) set: Vec<String>,
    /// The log level on stderr: off, error, warn, info, debug or trace [default: warn]
    #[arg(long, value_name = "LEVEL", global = true)]
    pub(crate) log: Option<LevelFilter>,
    /// The log's format
    #[arg(long, value_name = "FORMAT", global = true, value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
    /// The only tools that `toolhold serve` offers.
    #[arg(skip)]
    pub(crate) only_tools: Option<Vec<String>>,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

impl Options {
    pub(crate) fn config_file(&self, folders: &Folders) -> PathBuf {
        self.config.clone().unwrap_or_else(|| folders.config_file())
    }

    pub(crate) fn inputs(&self) -> Result<Inputs, HostError> {
        let mut inputs = Inputs::from_environment()?;
        inputs.file.clone_from(&self.config);
        inputs.settings.clone_from(&self.set);
        inputs.only_tools.clone_from(&self.only_tools);
        inputs.allow = Vec::new();
        for path in &self.allow {
            inputs.allow.push((path.clone(), PathAccess::ReadWrite));
        }
        for path in &self.allow_read {
            inputs.allow.push((path.clone(), PathAccess::Read));
        }
        Ok(inputs)
    }
}
