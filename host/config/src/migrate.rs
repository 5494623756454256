//! Rewrites a configuration of another agent as a `toolhold.toml`.

use std::path::Path;

use toolhold_contract::text::cut;
use toolhold_migration::{KnownKeys, Migration, WrongValue, rewrite};
use toolhold_redaction::{self as redaction, Keys};

use super::file::{self, MAX_VALUES};
use super::inline;
use super::keys::{advice, dotted, rule};
use super::leaf::Leaf;
use super::load::load_with;
use super::renamed::new_name;
use super::{Folders, Inputs, Problem, Problems, Source};
use toolhold_settings::Narrowing;

/// Bytes of an element that are shown.
const MAX_SHOWN: usize = 120;

/// Rewrites the configuration in `path`. Nothing is written. Blocks.
///
/// # Errors
///
/// It can't be read, it isn't TOML, or the result wouldn't be valid.
pub fn migrate(folders: &Folders, path: &Path) -> Result<Migration, Problems> {
    let problem = |message: String| Problem::new(Source::Path(path.to_owned()), message);
    let read = file::read(path)?.ok_or_else(|| problem("there is no such file".to_owned()))?;
    let known =
        KnownKeys { is_key: &is_key, new_name: &new_name, advice: &advice, dotted: &dotted };
    let mut migration = rewrite(&read.text, &known).map_err(problem)?;
    // A value of a known key can be wrong in itself: it is left out.
    let (leaves, problems) = file::parse(path, &migration.after, MAX_VALUES);
    if !problems.is_empty() && !migration.leave_out(leaves.iter().flat_map(wrong).collect()) {
        return Err(Problems(problems));
    }
    let text = file::Text { text: migration.after.clone(), identity: read.identity };
    load_with(folders, &Inputs::default(), path.to_owned(), Some(text))?;
    Ok(migration)
}

/// Whether a path is a key; below some tables, any name is.
fn is_key(path: &[String]) -> bool {
    let above = path.split_last().map(|(_, above)| above).unwrap_or_default();
    rule(path).is_some() || matches!(rule(above), Some(Narrowing::Each(_)))
}

/// What is wrong with a value, the last element first.
fn wrong(leaf: &Leaf) -> Vec<WrongValue> {
    let mut problems = leaf.numbered_problems();
    problems.dedup_by_key(|(at, _)| *at);
    let each = problems.into_iter().rev().map(|(at, problem)| {
        let element = at.and_then(|at| serde_json::to_value(leaf.value.get(at)?).ok());
        let mut shown = dotted(&leaf.path);
        if let Some(value) = element {
            let text = redaction::owned(inline(&value), Keys::Settings);
            shown = format!("{shown}, {}", cut(&text, MAX_SHOWN));
        }
        WrongValue { path: leaf.path.clone(), element: at, shown, why: problem.message }
    });
    each.collect()
}
