//! Loads the configuration from the organisation's file, the user's file, the working directory's
//! file, variables and flags, and applies the ceilings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toolhold_system::files::real_or_given;

use super::keys::dotted;
use super::leaf::Leaf;
use super::narrow::Bases;
use super::principal_tables::Tables;
use super::principals::{self, Operator, Restricted};
use super::{
    AllowedPath, Ceiling, Config, Folders, Inputs, McpServer, PathAccess, Problem, Problems,
    Source, working_directory,
};
use super::{bound, ceiling, file, project, tool_hosts, variables};

/// Loads the configuration.
///
/// Reads the user's file, or [`Inputs::file`] instead. Then applies the working directory's file,
/// the variables and flags of `inputs`, and the ceilings.
///
/// # Errors
///
/// Returns all problems of these sources.
pub fn load(folders: &Folders, inputs: &Inputs) -> Result<Config, Problems> {
    let path = inputs.file.clone().unwrap_or_else(|| folders.config_file());
    let text = file::read(&path)?;
    load_with(folders, inputs, path, text)
}

/// Loads the configuration like [`load`], with `text` as the content of the user's file.
pub(super) fn load_with(
    folders: &Folders,
    inputs: &Inputs,
    path: PathBuf,
    text: Option<file::Text>,
) -> Result<Config, Problems> {
    if let (Some(missing), None) = (&inputs.file, &text) {
        return Err(Problem::new(Source::Path(missing.clone()), "the file doesn't exist").into());
    }
    let sources = read_sources(inputs, &path, text.as_ref())?;
    let mut leaves = sources.defaults;
    let tables = table_lines(&sources.user);
    leaves.extend(sources.user);

    let project = match sources.proposal {
        None => None,
        Some(proposal) => {
            let base = Config::from_leaves(&[leaves.as_slice(), &sources.inputs].concat())?;
            let (project, narrower) =
                project::apply(&proposal, &base, folders).map_err(Problems)?;
            leaves.extend(narrower);
            Some(project)
        }
    };
    leaves.extend(sources.inputs);
    let mut problems = Vec::new();
    for (path, access) in &inputs.allow {
        match allowed_directory(&Config::from_leaves(&leaves)?, path, *access) {
            Ok(leaf) => leaves.push(leaf),
            Err(problem) => problems.push(problem),
        }
    }

    let mut config = Config::from_leaves(&leaves)?.with_authorization();
    let user_file = text.as_ref().map(|text| text.identity);
    let principal_tables = Tables::new(&leaves, &config.values.principals, &path);
    config.file = text.map(|_| path);
    config.read_from = Some((folders.clone(), inputs.clone()));
    problems.extend(config.problems());
    problems.extend(config.secret_problems());
    problems.extend(config.server_problems());
    problems.extend(config.provider_problems());
    problems.extend(config.skill_problems());
    problems.extend(principal_tables.problems(&config));
    if !problems.is_empty() {
        return Err(Problems(problems));
    }

    let restricted = match &inputs.who {
        None => {
            leaves.extend(hosts_of_presets(&config, &leaves, &sources.ceilings, folders, inputs)?);
            None
        }
        Some(who) => {
            let operator = Operator {
                config: &config,
                tables: &principal_tables,
                folders,
                inputs,
                directory: real_or_given(&directory_of(inputs)?),
                user_file,
                servers: servers_within_ceilings(&leaves, &sources.ceilings, folders, inputs)?,
            };
            Some(principals::apply(&mut leaves, who, &operator)?)
        }
    };
    let ceilings = apply_ceilings(&mut leaves, sources.ceilings, folders, inputs)?;
    let mut bounded = Config::from_leaves(&leaves)?.with_authorization();
    bounded.file = config.file;
    bounded.defaults = sources.defaults_file;
    bounded.project = project;
    bounded.ceilings = ceilings;
    bounded.read_from = config.read_from;
    bounded.tables = tables;
    bounded.principal_tables = principal_tables;
    if let Some(Restricted { principal, project, table, plugins }) = restricted {
        bounded.principal = Some(principal);
        bounded.project = project;
        bounded.ceilings.insert(0, table);
        // A ceiling adds a table for each plugin that it limits, which the caller may not have.
        bounded.values.plugins.retain(|name, _| plugins.contains(name));
        // A caller needs no table of another caller.
        bounded.values.principals.clear();
        bounded.principal_tables = Tables::default();
    }
    Ok(bounded)
}

#[derive(Default)]
struct SourceValues {
    /// The values of the organisation's file.
    defaults: Vec<Leaf>,
    defaults_file: Option<PathBuf>,
    user: Vec<Leaf>,
    /// The working directory's file.
    proposal: Option<project::Proposal>,
    /// The values of variables and settings.
    inputs: Vec<Leaf>,
    ceilings: Vec<ceiling::Unapplied>,
}

/// `path` and `text` are the path and the text of the user's file.
fn read_sources(
    inputs: &Inputs,
    path: &Path,
    text: Option<&file::Text>,
) -> Result<SourceValues, Problems> {
    let mut values = SourceValues::default();
    let mut problems = Vec::new();
    if let Some(path) = &inputs.defaults {
        match file::read_organisation_file(path, file::MAX_BYTES) {
            Ok(None) => {}
            Ok(Some(text)) => {
                let (leaves, faults) = file::parse(path, &text.text, file::MAX_VALUES);
                values.defaults = leaves;
                values.defaults_file = Some(path.clone());
                problems.extend(faults);
            }
            Err(problem) => problems.push(problem),
        }
    }
    if let Some(text) = text {
        let (leaves, faults) = file::parse(path, &text.text, file::MAX_VALUES);
        values.user = leaves;
        problems.extend(faults);
    }
    // For a principal, the file of the principal's directory is read later.
    if let (Some(directory), None) = (&inputs.working_directory, &inputs.who) {
        let directory = directory.canonicalize().map_err(|error| {
            Problem::new(Source::Default, format!("{}: {error}", directory.display()))
        })?;
        match project::read(&directory, text.map(|text| text.identity)) {
            Ok(proposal) => values.proposal = proposal,
            Err(faults) => problems.extend(faults),
        }
    }

    let (leaves, faults) = variables::from_environment(&inputs.variables);
    values.inputs = leaves;
    problems.extend(faults);
    for setting in &inputs.settings {
        match variables::from_setting(setting) {
            Ok(leaf) => values.inputs.push(leaf),
            Err(faults) => problems.extend(faults),
        }
    }
    match ceiling::read(inputs.ceiling.as_deref(), inputs.named_ceiling()) {
        Ok(ceilings) => values.ceilings = ceilings,
        Err(faults) => problems.extend(faults),
    }
    if problems.is_empty() { Ok(values) } else { Err(Problems(problems)) }
}

/// Returns the list `tools.shell.hosts` with the hosts of presets at its end, or `None` if the
/// presets add no host. A ceiling may remove a preset, so the ceilings are first applied to a copy
/// of `leaves`, to find the presets that remain. The caller applies them again to the new list.
/// `config` has the values of `leaves`.
fn hosts_of_presets(
    config: &Config,
    leaves: &[Leaf],
    ceilings: &[ceiling::Unapplied],
    folders: &Folders,
    inputs: &Inputs,
) -> Result<Option<Leaf>, Problems> {
    if config.values.tools.shell.presets.is_empty() {
        return Ok(None);
    }
    // Without a working directory, we don't know which files a tool may have written, so no file
    // can grant hosts.
    let Ok(directory) = directory_of(inputs) else { return Ok(None) };
    let mut limited = leaves.to_vec();
    apply_ceilings(&mut limited, ceilings.to_vec(), folders, inputs)?;
    let presets = Config::from_leaves(&limited)?.values.tools.shell.presets;
    let directory = real_or_given(&directory);
    Ok(tool_hosts::with_hosts_of_presets(config, &presets, folders, inputs, &directory)?)
}

/// Returns the servers of the operator's values in `leaves`, limited by the ceilings.
fn servers_within_ceilings(
    leaves: &[Leaf],
    ceilings: &[ceiling::Unapplied],
    folders: &Folders,
    inputs: &Inputs,
) -> Result<BTreeMap<String, McpServer>, Problems> {
    let mut limited = leaves.to_vec();
    // The limits of a token aren't the operator's.
    let inputs = Inputs { bounds: Vec::new(), ..inputs.clone() };
    apply_ceilings(&mut limited, ceilings.to_vec(), folders, &inputs)?;
    Ok(Config::from_leaves(&limited)?.values.mcp.servers)
}

/// Returns the working directory for which the configuration is read.
fn directory_of(inputs: &Inputs) -> Result<PathBuf, Problem> {
    match &inputs.working_directory {
        Some(directory) => Ok(directory.clone()),
        None => {
            working_directory().map_err(|error| Problem::new(Source::Default, error.to_string()))
        }
    }
}

/// Limits `leaves` by the ceilings and by the limits of a task.
fn apply_ceilings(
    leaves: &mut Vec<Leaf>,
    ceilings: Vec<ceiling::Unapplied>,
    folders: &Folders,
    inputs: &Inputs,
) -> Result<Vec<Ceiling>, Problems> {
    if ceilings.is_empty() && inputs.bounds.is_empty() {
        return Ok(Vec::new());
    }
    let real = real_or_given(&directory_of(inputs)?);
    let bases = Bases { folders, working_directory: &real };
    let mut applied = ceiling::apply(leaves, ceilings, bases).map_err(Problems)?;
    let bounds = bound::apply(leaves, &inputs.bounds, folders, bases).map_err(Problems)?;
    applied.extend(bounds);
    Ok(applied)
}

/// Returns the list of the granted directories of `config`, with the directory `path` of a flag.
fn allowed_directory(config: &Config, path: &Path, access: PathAccess) -> Result<Leaf, Problem> {
    let flag = if access == PathAccess::Read { "--allow-read" } else { "--allow" };
    let source = Source::Flag(format!("{flag} {}", path.display()));
    let Some(text) = path.to_str().filter(|text| !text.is_empty()) else {
        return Err(Problem::new(source, "takes a path in UTF-8"));
    };
    // The shell has already expanded a `~`. A remaining `~` is part of a name, so it must not be
    // expanded again.
    let path = if text.starts_with('~') { format!("./{text}") } else { text.to_owned() };

    let key = ["tools", "file", "allowed_paths"].map(str::to_owned).to_vec();
    let list = dotted(&key);
    let mut grants = config.values.tools.file.granted_paths();
    let mut elements: Vec<Source> =
        (0..grants.len()).map(|index| config.source(&format!("{list}.{index}"))).collect();
    elements.push(source.clone());
    grants.push(AllowedPath { path, access });
    let value =
        toml::Value::try_from(grants).map_err(|error| Problem::new(source, error.to_string()))?;
    // Only the new element has the flag as its source.
    let sources = vec![config.source(&list); key.len()];
    Ok(Leaf { path: key, value, sources, elements, renamed: None })
}

/// Returns the first line of each table on the second level, such as `tools.file`.
fn table_lines(leaves: &[Leaf]) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for leaf in leaves {
        let [first, second, ..] = leaf.path.as_slice() else { continue };
        let [_, Source::File { line, .. }, ..] = leaf.sources.as_slice() else { continue };
        let first_line = lines.entry(format!("{first}.{second}")).or_insert(*line);
        *first_line = (*first_line).min(*line);
    }
    lines
}
