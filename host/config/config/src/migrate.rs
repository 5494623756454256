//! Plans `toolhold config migrate`: reads another agent's file, and reports the values that can't
//! be used.

use std::path::Path;

use toolhold_contract::text::cut;
use toolhold_redaction::{self as redaction, Keys};

use toolhold_config_keys::Narrowing;

use super::file::{self, MAX_VALUES};
use super::inline;
use super::keys::{advice, dotted, rule};
use super::leaf::Leaf;
use super::load::load_with;
use super::renamed::new_name;
use super::{Config, Folders, Inputs, Problem, Problems, Source};
use crate::migration::{KnownKeys, Migration, WrongValue, rewrite};

/// Most bytes of an element that are shown. A longer element is cut.
const MAX_SHOWN: usize = 120;

/// Rewrites the configuration in `path` without writing the file. Blocks.
///
/// # Errors
///
/// Fails if the file can't be read, if it isn't TOML, or if the result wouldn't be valid.
pub fn migrate(folders: &Folders, path: &Path) -> Result<Migration, Problems> {
    let source = Source::Path(path.to_owned());
    let Some(original) = file::read(path)? else {
        return Err(Problem::new(source, "the file doesn't exist").into());
    };
    let known =
        KnownKeys { is_key: &is_key, new_name: &new_name, advice: &advice, dotted: &dotted };
    let mut migration = rewrite(&original.text, &known)
        .map_err(|error| Problem::new(source, format!("is not TOML: {}", error.message())))?;
    // Each round leaves out at least one value. Without this value, other values may become
    // invalid, and the next round leaves them out.
    loop {
        let (leaves, problems) = file::parse(path, &migration.after, MAX_VALUES);
        if !problems.is_empty() {
            let wrong_values = leaves.iter().flat_map(find_faults).collect();
            if !migration.leave_out(wrong_values) {
                return Err(Problems(problems));
            }
            continue;
        }

        let text = file::Text { text: migration.after.clone(), identity: original.identity };
        match load_with(folders, &Inputs::default(), path.to_owned(), Some(text)) {
            Ok(config) => {
                let Some(switch) = switch_without_model(&config) else { return Ok(migration) };
                let problem = Problem::new(config.source(&switch.shown), switch.why.clone());
                if !migration.leave_out(vec![switch]) {
                    return Err(problem.into());
                }
            }
            Err(problems) => {
                if !migration.leave_out(find_misfits(&leaves, &problems)) {
                    return Err(problems);
                }
            }
        }
    }
}

/// Returns each value that a problem names. Such a value is valid alone, but not with the others.
fn find_misfits(leaves: &[Leaf], problems: &Problems) -> Vec<WrongValue> {
    let mut values: Vec<WrongValue> = Vec::new();
    for problem in &problems.0 {
        let Some(leaf) = leaves.iter().find(|leaf| leaf.sources.contains(&problem.source)) else {
            continue;
        };
        let is_listed = values.iter().any(|value| value.path == leaf.path);
        if !is_listed {
            let shown = dotted(&leaf.path);
            let why = problem.message.clone();
            values.push(WrongValue { path: leaf.path.clone(), element: None, shown, why });
        }
    }
    values
}

/// Returns a wrong value if `[tools.adversarial_policy]` is enabled without a model, because every
/// call would then be refused.
fn switch_without_model(config: &Config) -> Option<WrongValue> {
    let review = &config.values.tools.adversarial_policy;
    if !review.enabled || !review.provider.is_empty() {
        return None;
    }
    let path = ["tools", "adversarial_policy", "enabled"].map(str::to_owned).to_vec();
    let why = "without a model, every call would be denied: write a table of [providers], and its \
               name as `provider`";
    Some(WrongValue { shown: dotted(&path), path, element: None, why: why.to_owned() })
}

/// Checks whether Toolhold has the key `path`. In some tables, any name is a key.
fn is_key(path: &[String]) -> bool {
    if rule(path).is_some() {
        return true;
    }
    let Some((_, table)) = path.split_last() else { return false };
    matches!(rule(table), Some(Narrowing::Each(_)))
}

/// Finds the faults of a value. The faults of the last element come first, because removing an
/// element changes the indexes of the later elements.
fn find_faults(leaf: &Leaf) -> Vec<WrongValue> {
    let mut problems = leaf.numbered_problems();
    // One fault is enough to remove an element.
    problems.dedup_by_key(|(index, _)| *index);
    let mut faults = Vec::new();
    for (index, problem) in problems.into_iter().rev() {
        let mut shown = dotted(&leaf.path);
        if let Some(element) = index.and_then(|index| leaf.value.get(index))
            && let Ok(value) = serde_json::to_value(element)
        {
            let text = redaction::owned(inline(&value), Keys::Settings);
            shown = format!("{shown}, {}", cut(&text, MAX_SHOWN));
        }
        let path = leaf.path.clone();
        faults.push(WrongValue { path, element: index, shown, why: problem.message });
    }
    faults
}
