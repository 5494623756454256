//! Ranks tools by the words that they share with a task.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use berth_contract::Definition;
use berth_contract::text::cut;

use crate::stem::{alike, stems};
use crate::text::ToolTexts;

/// Bytes of a task that count. What follows is mostly a text to work on.
const MAX_TASK: usize = 8 * 1024;

/// Different words of a task that count.
const MAX_TASK_WORDS: usize = 256;

/// Words of a tool that count.
const MAX_TOOL_WORDS: usize = 600;

/// How soon more of a word counts no more.
const SATURATION: f64 = 1.2;

/// How much a word counts that only often stands for a word of the task.
const ALIKE: f64 = 0.35;

/// How much a word of a field counts, and how much a long field takes from its words.
const NAME: Field = Field { weight: 3.0, length: 0.4 };
const SERVER: Field = Field { weight: 2.0, length: 0.0 };
const DESCRIPTION: Field = Field { weight: 1.0, length: 0.75 };
const PARAMETER: Field = Field { weight: 0.4, length: 0.75 };
const PARAMETER_TEXT: Field = Field { weight: 0.2, length: 0.75 };

#[derive(Clone, Copy)]
struct Field {
    weight: f64,
    length: f64,
}

/// The words of some tools, ready to be compared with a task (BM25F).
#[derive(Clone, Debug)]
pub(crate) struct WordIndex {
    /// Of each word, the tools that have it, each with how much it counts there.
    postings: HashMap<String, Vec<(usize, f64)>>,
    tools: usize,
}

impl WordIndex {
    /// The index of these tools.
    pub(crate) fn new<'a>(tools: impl IntoIterator<Item = &'a Definition>) -> Self {
        let fields: Vec<[(Field, Vec<String>); 5]> = tools.into_iter().map(fields).collect();
        let mut means = [0.0; 5];
        for tool in &fields {
            for (mean, (_, words)) in means.iter_mut().zip(tool) {
                *mean += words.len() as f64 / fields.len() as f64;
            }
        }
        let mut postings: HashMap<String, Vec<(usize, f64)>> = HashMap::new();
        for (number, tool) in fields.iter().enumerate() {
            let mut counts: HashMap<&str, f64> = HashMap::new();
            for ((field, words), mean) in tool.iter().zip(means) {
                let length = words.len() as f64 / f64::max(mean, 1.0);
                let each = field.weight / (1.0 - field.length + field.length * length);
                words.iter().for_each(|word| *counts.entry(word).or_default() += each);
            }
            for (word, count) in counts {
                postings.entry(word.to_owned()).or_default().push((number, count));
            }
        }
        Self { postings, tools: fields.len() }
    }

    /// How well each tool fits a task: 0 for no common word. Of a long task, the first 8 KiB count.
    pub(crate) fn scores(&self, task: &str) -> Vec<f64> {
        // In order: sums of the same numbers in another order differ, and with them the ranks.
        let mut wanted: BTreeMap<String, f64> = BTreeMap::new();
        let words: BTreeSet<String> =
            stems(cut(task, MAX_TASK), 4 * MAX_TASK_WORDS).into_iter().collect();
        for word in words.iter().take(MAX_TASK_WORDS) {
            for other in alike(word) {
                wanted.entry(other.clone()).or_insert(ALIKE);
            }
        }
        for word in words.into_iter().take(MAX_TASK_WORDS) {
            wanted.insert(word, 1.0);
        }
        let mut scores = vec![0.0; self.tools];
        for (word, weight) in &wanted {
            let Some(found) = self.postings.get(word) else { continue };
            let (with, without) = (found.len() as f64, (self.tools - found.len()) as f64);
            let rareness = ((without + 0.5) / (with + 0.5)).ln_1p();
            for (tool, count) in found {
                scores[*tool] += weight * rareness * count / (count + SATURATION);
            }
        }
        scores
    }
}

fn fields(tool: &Definition) -> [(Field, Vec<String>); 5] {
    let texts = ToolTexts::new(tool);
    let mut left = MAX_TOOL_WORDS;
    let mut words = |text: &str| {
        let found = stems(text, left);
        left -= found.len();
        found
    };
    let mut names = words(texts.name);
    let server = words(texts.server);
    // The server's name often stands in the tool's too.
    names.retain(|word| !server.contains(word) || texts.server.is_empty());
    names.extend(words(texts.title));
    let description = words(texts.description);
    let (mut parameters, mut parameter_texts) = (Vec::new(), Vec::new());
    for (name, text) in texts.parameters {
        parameters.extend(words(name));
        parameter_texts.extend(words(text));
    }
    [
        (NAME, names),
        (SERVER, server),
        (DESCRIPTION, description),
        (PARAMETER, parameters),
        (PARAMETER_TEXT, parameter_texts),
    ]
}
