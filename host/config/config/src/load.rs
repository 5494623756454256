//! Loads the configuration: the organisation's file, the user's file, the working directory's file,
//! variables, flags, and the ceilings that bound them all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use toolhold_system::files::real_or_given;

use super::keys::dotted;
use super::leaf::Leaf;
use super::narrow::Bases;
use super::{
    AllowedPath, Ceiling, Config, Folders, Inputs, PathAccess, Problem, Problems, Source,
    working_directory,
};
use super::{bound, ceiling, file, project, variables};

/// Reads the user's file, or the file that `inputs` names instead. Then applies the working
/// directory's file, which narrows it, the values of `inputs`, and the ceilings.
///
/// # Errors
///
/// Everything that is wrong with any of them.
pub fn load(folders: &Folders, inputs: &Inputs) -> Result<Config, Problems> {
    let path = inputs.file.clone().unwrap_or_else(|| folders.config_file());
    let text = file::read(&path)?;
    load_with(folders, inputs, path, text)
}

/// As [`load`], with a given text of the user's file.
pub(super) fn load_with(
    folders: &Folders,
    inputs: &Inputs,
    path: PathBuf,
    text: Option<file::Text>,
) -> Result<Config, Problems> {
    let mut leaves = Vec::new();
    let mut operator = Vec::new();
    let mut problems = Vec::new();
    if let (Some(missing), None) = (&inputs.file, &text) {
        return Err(Problem::new(Source::Path(missing.clone()), "there is no such file").into());
    }
    let mut defaults = None;
    if let Some(path) = &inputs.defaults {
        match file::read_ceiling(path) {
            Ok(None) => {}
            Ok(Some(text)) => {
                let (found, wrong) = file::parse(path, &text.text, file::MAX_VALUES);
                leaves.extend(found);
                problems.extend(wrong);
                defaults = Some(path.clone());
            }
            Err(problem) => problems.push(problem),
        }
    }
    let below = leaves.len();
    if let Some(text) = &text {
        let (found, wrong) = file::parse(&path, &text.text, file::MAX_VALUES);
        leaves.extend(found);
        problems.extend(wrong);
    }
    let tables = tables(&leaves[below..]);

    let mut proposal = None;
    if let Some(directory) = &inputs.working_directory {
        let directory = directory.canonicalize().map_err(|error| {
            Problem::new(Source::Default, format!("{}: {error}", directory.display()))
        })?;
        match project::read(&directory, text.as_ref().map(|text| text.identity)) {
            Ok(found) => proposal = found,
            Err(wrong) => problems.extend(wrong),
        }
    }

    let (found, wrong) = variables::from_environment(&inputs.variables);
    operator.extend(found);
    problems.extend(wrong);
    for setting in &inputs.settings {
        match variables::from_setting(setting) {
            Ok(leaf) => operator.push(leaf),
            Err(wrong) => problems.extend(wrong),
        }
    }
    let ceilings =
        ceiling::read(inputs.ceiling.as_deref(), inputs.named_ceiling()).unwrap_or_else(|wrong| {
            problems.extend(wrong);
            Vec::new()
        });
    if !problems.is_empty() {
        return Err(Problems(problems));
    }

    let project = match proposal {
        None => None,
        Some(proposal) => {
            let base = Config::from_leaves(&[leaves.as_slice(), &operator].concat())?;
            let (project, narrower) = project::apply(proposal, &base, folders).map_err(Problems)?;
            leaves.extend(narrower);
            Some(project)
        }
    };
    leaves.extend(operator);
    for (path, access) in &inputs.allow {
        match allowed(&Config::from_leaves(&leaves)?, path, *access) {
            Ok(leaf) => leaves.push(leaf),
            Err(problem) => problems.push(problem),
        }
    }
    let all = Config::from_leaves(&leaves)?.with_authorization();
    problems.extend(all.problems());
    problems.extend(all.secret_problems());
    problems.extend(all.server_problems());
    problems.extend(all.provider_problems());
    problems.extend(all.skill_problems());
    if !problems.is_empty() {
        return Err(Problems(problems));
    }
    let ceilings = apply_ceilings(&mut leaves, ceilings, folders, inputs)?;
    let mut loaded = Config::from_leaves(&leaves)?.with_authorization();
    loaded.file = text.map(|_| path);
    loaded.defaults = defaults;
    loaded.project = project;
    loaded.ceilings = ceilings;
    loaded.read_from = Some((folders.clone(), inputs.clone()));
    loaded.tables = tables;
    Ok(loaded)
}

/// Applies the ceilings, and the bounds of a task.
fn apply_ceilings(
    leaves: &mut Vec<Leaf>,
    ceilings: Vec<ceiling::Unapplied>,
    folders: &Folders,
    inputs: &Inputs,
) -> Result<Vec<Ceiling>, Problems> {
    if ceilings.is_empty() && inputs.bounds.is_empty() {
        return Ok(Vec::new());
    }
    let directory = inputs
        .working_directory
        .clone()
        .map_or_else(working_directory, Ok)
        .map_err(|error| Problem::new(Source::Default, error.to_string()))?;
    let real = real_or_given(&directory);
    let bases = Bases { folders, working_directory: &real };
    let mut applied = ceiling::apply(leaves, ceilings, bases).map_err(Problems)?;
    let bounds = bound::apply(leaves, &inputs.bounds, folders, bases);
    applied.extend(bounds.map_err(Problems)?);
    Ok(applied)
}

/// The granted directories of `loaded`, and one more.
fn allowed(loaded: &Config, path: &Path, access: PathAccess) -> Result<Leaf, Problem> {
    let flag = if access == PathAccess::Read { "--allow-read" } else { "--allow" };
    let source = Source::Flag(format!("{flag} {}", path.display()));
    let text = path.to_str().filter(|text| !text.is_empty());
    let Some(text) = text else {
        return Err(Problem::new(source, "takes a path in UTF-8"));
    };
    // The shell has already expanded a `~`. A remaining `~` is part of a name.
    let path = if text.starts_with('~') { format!("./{text}") } else { text.to_owned() };
    let key = ["tools", "file", "allowed_paths"].map(str::to_owned).to_vec();
    let list = dotted(&key);
    let mut grants = loaded.values.tools.file.granted_paths();
    let mut elements: Vec<Source> =
        (0..grants.len()).map(|index| loaded.source(&format!("{list}.{index}"))).collect();
    elements.push(source.clone());
    grants.push(AllowedPath { path, access });
    let value =
        toml::Value::try_from(grants).map_err(|error| Problem::new(source, error.to_string()))?;
    // The list keeps its source. Only the new element comes from the flag.
    let sources = vec![loaded.source(&list); key.len()];
    Ok(Leaf { path: key, value, sources, elements, renamed: None })
}

fn tables(leaves: &[Leaf]) -> BTreeMap<String, usize> {
    let mut tables = BTreeMap::new();
    for leaf in leaves {
        if let ([first, second, ..], [_, Source::File { line, .. }, ..]) =
            (leaf.path.as_slice(), leaf.sources.as_slice())
        {
            tables
                .entry(format!("{first}.{second}"))
                .and_modify(|known: &mut usize| *known = (*known).min(*line))
                .or_insert(*line);
        }
    }
    tables
}
