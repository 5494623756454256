//! `toolhold config migrate` without the writing: reads another agent's file and reports what
//! doesn't fit.

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

/// Bytes of an element that are shown.
const MAX_SHOWN: usize = 120;

/// Rewrites the configuration in `path`. Nothing is written. Blocks.
///
/// # Errors
///
/// The file can't be read, it isn't TOML, or the result wouldn't be valid.
pub fn migrate(folders: &Folders, path: &Path) -> Result<Migration, Problems> {
    let source = Source::Path(path.to_owned());
    let Some(read) = file::read(path)? else {
        return Err(Problem::new(source, "there is no such file").into());
    };
    let known =
        KnownKeys { is_key: &is_key, new_name: &new_name, advice: &advice, dotted: &dotted };
    let mut migration = rewrite(&read.text, &known)
        .map_err(|error| Problem::new(source, format!("is not TOML: {}", error.message())))?;
    // Each round leaves out at least one value, with those that don't fit to what is left.
    loop {
        let (leaves, problems) = file::parse(path, &migration.after, MAX_VALUES);
        let (problems, values) = if problems.is_empty() {
            let text = file::Text { text: migration.after.clone(), identity: read.identity };
            match load_with(folders, &Inputs::default(), path.to_owned(), Some(text)) {
                Ok(loaded) => match without_model(&loaded) {
                    Some(value) => (Problems(Vec::new()), vec![value]),
                    None => return Ok(migration),
                },
                Err(problems) => {
                    let values = misfits(&leaves, &problems);
                    (problems, values)
                }
            }
        } else {
            (Problems(problems), leaves.iter().flat_map(wrong).collect())
        };
        if !migration.leave_out(values) {
            return Err(problems);
        }
    }
}

/// The values that problems between keys are about.
fn misfits(leaves: &[Leaf], problems: &Problems) -> Vec<WrongValue> {
    let mut values: Vec<WrongValue> = Vec::new();
    for problem in &problems.0 {
        let Some(leaf) = leaves.iter().find(|leaf| leaf.sources.contains(&problem.source)) else {
            continue;
        };
        if values.iter().all(|value| value.path != leaf.path) {
            let shown = dotted(&leaf.path);
            let why = problem.message.clone();
            values.push(WrongValue { path: leaf.path.clone(), element: None, shown, why });
        }
    }
    values
}

/// The switch of the judgement by a model, if no model is named: each call would be refused.
fn without_model(loaded: &Config) -> Option<WrongValue> {
    let review = &loaded.values.tools.adversarial_policy;
    let path = ["tools", "adversarial_policy", "enabled"].map(str::to_owned).to_vec();
    let why =
        "each call would be refused: it needs a table of [providers], and its name as `provider`";
    (review.enabled && review.provider.is_empty()).then(|| WrongValue {
        shown: dotted(&path),
        path,
        element: None,
        why: why.to_owned(),
    })
}

/// Whether a path is a key; below some tables, any name is.
fn is_key(path: &[String]) -> bool {
    let above = path.split_last().map(|(_, above)| above).unwrap_or_default();
    rule(path).is_some() || matches!(rule(above), Some(Narrowing::Each(_)))
}

/// The faults of a value, the last element first.
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
