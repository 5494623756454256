//! The options of all commands, such as the configuration file and the log format.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use toolhold_core::HostError;
use toolhold_core::config::{Folders, Inputs, PathAccess};
use toolhold_core::text::{neutral_line, shell_word};
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

    /// Returns the options that change the configuration, quoted for a shell. Each option is
    /// preceded by a space.
    pub(crate) fn as_flags(&self) -> String {
        let mut flags = String::new();
        for (name, paths) in [
            ("--allow", self.allow.as_slice()),
            ("--allow-read", self.allow_read.as_slice()),
            ("--plugin", self.plugin.as_slice()),
            ("--config", self.config.as_slice()),
        ] {
            for path in paths {
                flags += &flag(name, &path.display().to_string());
            }
        }
        for setting in &self.set {
            flags += &flag("--set", setting);
        }
        flags
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

/// Returns an option with its value, quoted for a shell and preceded by a space.
fn flag(name: &str, value: &str) -> String {
    format!(" {}", shell_word(&neutral_line(&format!("{name}={value}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_give_the_same_configuration_again() {
        assert_eq!(Options::default().as_flags(), "");
        let options = Options {
            allow: vec![PathBuf::from("/a b")],
            config: Some(PathBuf::from("own.toml")),
            set: vec!["tools.autonomy=ask".to_owned(), "agent.model=\"it's\"".to_owned()],
            ..Options::default()
        };
        let flags = options.as_flags();
        let paths = " '--allow=/a b' --config=own.toml";
        let settings = r#" --set=tools.autonomy=ask '--set=agent.model="it'\''s"'"#;
        assert_eq!(flags, format!("{paths}{settings}"));
    }
}
