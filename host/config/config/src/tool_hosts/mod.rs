//! Finds the hosts of registries and mirrors in the user's own settings of development tools.
//!
//! A preset grants these hosts to commands. Files of a project grant nothing, because a tool may
//! have written them: otherwise, a line in a project's `.npmrc` would open the network. No tool is
//! run, and a file is read only if no tool can write to it.

mod readers;
mod url;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use toolhold_data_dir::read_regular;
use toolhold_system::confine::TreeAccess;
use toolhold_system::files::real_or_given;

use super::leaf::Leaf;
use super::presets::{Roots, with_all};
use super::resolved::{Resolved, expand, resolve};
use super::{
    AllowedPath, Config, Folders, HostGrant, Inputs, PathAccess, PresetName, Problem, Source,
    variables,
};

/// Bytes of the largest file that is read. A larger file grants nothing.
const MAX_FILE: u64 = 256 * 1024;

/// Hosts that the presets of one configuration grant. Further hosts are left out.
const MAX_HOSTS: usize = 64;

/// The settings of a tool that name its hosts.
struct Tool {
    /// The name of the preset.
    preset: &'static str,
    /// The user's files, in the form of [`Roots::find`].
    files: &'static [&'static str],
    /// Returns the URLs in a file.
    urls: fn(&str) -> Vec<String>,
    /// Variables with URLs.
    variables: &'static [&'static str],
    /// Returns variables with the registries in a file. The tool needs them if its preset hides the
    /// file from it.
    registries: fn(&str) -> Vec<(&'static str, String)>,
}

const TOOLS: [Tool; 5] = [
    Tool {
        preset: "npm",
        files: &["~/.npmrc"],
        urls: readers::npm,
        variables: &["npm_config_registry"],
        registries: readers::npm_registries,
    },
    Tool {
        preset: "pip",
        files: &["$XDG_CONFIG_HOME/pip/pip.conf", "~/.pip/pip.conf"],
        urls: readers::pip,
        variables: &["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"],
        registries: readers::pip_registries,
    },
    Tool {
        preset: "cargo",
        files: &["$CARGO_HOME/config.toml", "$CARGO_HOME/config"],
        urls: readers::cargo,
        variables: &[],
        registries: none_hidden,
    },
    Tool {
        preset: "go",
        files: &["$XDG_CONFIG_HOME/go/env"],
        urls: readers::go,
        variables: &["GOPROXY", "GOSUMDB"],
        registries: none_hidden,
    },
    Tool {
        preset: "git",
        files: &["~/.gitconfig", "$XDG_CONFIG_HOME/git/config"],
        urls: readers::git,
        variables: &[],
        registries: none_hidden,
    },
];

/// Returns the list of the hosts of commands, with the hosts of `presets` at its end. Returns
/// `None` if the presets add no host. `config` has every grant before a ceiling limits it.
pub(super) fn with_hosts_of_presets(
    config: &Config,
    presets: &[PresetName],
    folders: &Folders,
    inputs: &Inputs,
    working_directory: &Path,
) -> Result<Option<Leaf>, Problem> {
    let Some(home) = folders.home.as_deref().map(real_or_given) else { return Ok(None) };
    let variables = variables::texts(inputs);
    let roots = Roots { home: &home, variables: &variables };
    let writable = writable_places(config, &roots, folders, working_directory);
    let mut found = Vec::new();
    for tool in TOOLS.iter().filter(|tool| is_used(tool, presets)) {
        for name in tool.variables {
            let Some(value) = variables.get(*name) else { continue };
            let source = Source::Variable((*name).to_owned());
            found.extend(entries(readers::variable(name, value), &source));
        }
        for path in tool.files.iter().filter_map(|file| roots.find(file)) {
            let Ok(text) = read(&path, &writable) else { continue };
            found.extend(entries((tool.urls)(&text), &Source::Path(path)));
        }
    }
    hosts_leaf(config, found)
}

/// Returns variables with the registries in files that the sandbox hides. Without them, npm and pip
/// would use their usual registries instead of the user's. A URL with a user name is left out.
pub(super) fn hidden_registries(
    config: &Config,
    presets: &[PresetName],
    roots: &Roots<'_>,
    folders: &Folders,
    working_directory: &Path,
) -> Vec<(&'static str, String)> {
    let used: Vec<&Tool> = TOOLS.iter().filter(|tool| is_used(tool, presets)).collect();
    if used.is_empty() {
        return Vec::new();
    }
    let writable = writable_places(config, roots, folders, working_directory);
    let mut registries = Vec::new();
    for tool in used {
        for path in tool.files.iter().filter_map(|file| roots.find(file)) {
            let Ok(text) = read(&path, &writable) else { continue };
            registries.extend((tool.registries)(&text));
        }
    }
    registries.retain(|(_, urls)| {
        !urls.contains('@') && urls.split(' ').all(|url| url::entry(url).is_some())
    });
    registries
}

impl Config {
    /// Returns a problem for each file of a tool that exists and isn't read, so that its hosts
    /// aren't granted.
    pub fn unread_settings(&self, folders: &Folders, working_directory: &Path) -> Vec<Problem> {
        let Some(home) = folders.home.as_deref().map(real_or_given) else { return Vec::new() };
        let variables = self.variables();
        let roots = Roots { home: &home, variables: &variables };
        let working_directory = real_or_given(working_directory);
        let writable = writable_places(self, &roots, folders, &working_directory);
        let presets = &self.values.tools.shell.presets;
        let mut problems = Vec::new();
        for tool in TOOLS.iter().filter(|tool| is_used(tool, presets)) {
            for path in tool.files.iter().filter_map(|file| roots.find(file)) {
                let Err(error) = read(&path, &writable) else { continue };
                if matches!(&error, UnreadFile::Io(error) if error.kind() == ErrorKind::NotFound) {
                    continue;
                }
                let message = format!("{}: its hosts aren't granted: {error}", path.display());
                problems.push(Problem::new(self.source("tools.shell.presets"), message));
            }
        }
        problems
    }
}

/// Returns no variables, for tools whose files the sandbox doesn't hide.
fn none_hidden(_: &str) -> Vec<(&'static str, String)> {
    Vec::new()
}

/// Checks whether one of the presets is for a tool, or includes its preset.
fn is_used(tool: &Tool, presets: &[PresetName]) -> bool {
    let used = presets.iter().filter_map(|name| name.preset()).flat_map(with_all);
    used.into_iter().any(|preset| preset.name == tool.preset)
}

/// Returns the entries for the hosts of URLs.
fn entries(urls: Vec<String>, source: &Source) -> Vec<(String, Source)> {
    urls.iter().filter_map(|url| Some((url::entry(url)?, source.clone()))).collect()
}

/// Returns the list `tools.shell.hosts` with the found entries.
fn hosts_leaf(config: &Config, found: Vec<(String, Source)>) -> Result<Option<Leaf>, Problem> {
    let list = "tools.shell.hosts";
    let mut hosts = config.values.tools.shell.hosts.clone();
    let own_count = hosts.len();
    let mut elements: Vec<Source> =
        (0..own_count).map(|index| config.source(&format!("{list}.{index}"))).collect();
    for (entry, source) in found {
        // An entry that isn't valid in the configuration grants nothing.
        let Ok(host) = HostGrant::deserialize(toml::Value::String(entry)) else { continue };
        if !hosts.contains(&host) && hosts.len() < own_count + MAX_HOSTS {
            hosts.push(host);
            elements.push(source);
        }
    }
    if hosts.len() == own_count {
        return Ok(None);
    }
    let source = config.source(list);
    let value = toml::Value::try_from(hosts)
        .map_err(|error| Problem::new(source.clone(), error.to_string()))?;
    let path: Vec<String> = list.split('.').map(str::to_owned).collect();
    // Only the new elements have other sources. The source of the list is still where the user has
    // set it.
    let sources = vec![source; path.len()];
    Ok(Some(Leaf { path, value, sources, elements, renamed: None }))
}

/// A file whose hosts aren't granted.
#[derive(Debug, thiserror::Error)]
enum UnreadFile {
    #[error("a tool can change the link {}", .0.display())]
    Link(PathBuf),
    #[error("tools may write to {}", .0.display())]
    Writable(PathBuf),
    #[error("it isn't UTF-8")]
    Encoding,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Returns the text of a file that no tool can write to.
fn read(path: &Path, writable: &[PathBuf]) -> Result<String, UnreadFile> {
    let Resolved { real, link } = resolve(path)?;
    if let Some(link) = link {
        return Err(UnreadFile::Link(link));
    }
    if let Some(place) = writable.iter().find(|place| real.starts_with(place)) {
        return Err(UnreadFile::Writable(place.clone()));
    }
    String::from_utf8(read_regular(&real, MAX_FILE)?).map_err(|_| UnreadFile::Encoding)
}

/// Returns the places that tools may write to, by their real paths: the working directory, and each
/// directory that a table or a preset grants.
fn writable_places(
    config: &Config,
    roots: &Roots<'_>,
    folders: &Folders,
    working_directory: &Path,
) -> Vec<PathBuf> {
    let values = &config.values;
    let mut granted: Vec<AllowedPath> = values.tools.file.granted_paths();
    granted.extend_from_slice(&values.tools.shell.allowed_paths);
    let mut presets = values.tools.shell.presets.clone();
    for plugin in values.plugins.values() {
        granted.extend_from_slice(&plugin.allowed_paths);
    }
    for server in values.mcp.servers.values() {
        granted.extend_from_slice(&server.allowed_paths);
        presets.extend_from_slice(&server.presets);
    }

    let mut places = vec![working_directory.to_owned()];
    for AllowedPath { path, access } in granted {
        if access == PathAccess::ReadWrite {
            places.push(expand(&path, working_directory, folders));
        }
    }
    for preset in presets.iter().filter_map(|name| name.preset()).flat_map(with_all) {
        for (place, access) in preset.places() {
            if access == TreeAccess::Write {
                places.extend(roots.find(place));
            }
        }
    }
    places.iter().map(|place| real_or_given(place)).collect()
}
