//! Ranks tools by the words that they share with a task.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use toolhold_contract::Definition;
use toolhold_contract::text::cut;

use crate::selection::stem::{alike, stems, words};
use crate::selection::text::ToolTexts;

/// The most bytes of a task that are compared. The rest is mostly a text to work on.
const MAX_TASK: usize = 8 * 1024;

/// The most different words of a task that are compared.
const MAX_TASK_WORDS: usize = 256;

/// The most words of a tool that are compared.
const MAX_TOOL_WORDS: usize = 600;

/// The saturation of repeated words. With a smaller number, repetitions add less.
const SATURATION: f64 = 1.2;

/// The weight of a word that often has the meaning of a word of the task.
const ALIKE: f64 = 0.35;

/// A field of a tool. The field has a weight for its words, and a factor by which the length of the
/// field reduces the weight.
struct Field {
    weight: f64,
    length: f64,
}

/// The name, the server's name, the description, and the names and descriptions of parameters.
const FIELDS: [Field; 5] = [
    Field { weight: 3.0, length: 0.4 },
    Field { weight: 2.0, length: 0.0 },
    Field { weight: 1.0, length: 0.75 },
    Field { weight: 0.4, length: 0.75 },
    Field { weight: 0.2, length: 0.75 },
];

/// The words of some tools, ready to be compared with a task (BM25F).
#[derive(Clone, Debug)]
pub(crate) struct WordIndex {
    /// The number of each stem.
    stems: HashMap<String, usize>,
    /// The tools that have each stem, each with the weight of the stem there.
    postings: Vec<Vec<(usize, f64)>>,
    tools: usize,
}

impl WordIndex {
    /// Makes the index of these tools.
    pub(crate) fn new<'a>(tools: impl IntoIterator<Item = &'a Definition>) -> Self {
        let texts: Vec<ToolTexts<'_>> = tools.into_iter().map(ToolTexts::new).collect();
        let mut known = KnownWords::default();
        let tool_fields: Vec<_> = texts.iter().map(|texts| fields(texts, &mut known)).collect();
        let mut mean_lengths = [0.0; FIELDS.len()];
        for tool in &tool_fields {
            for (mean, words) in mean_lengths.iter_mut().zip(tool) {
                *mean += words.len() as f64 / tool_fields.len() as f64;
            }
        }

        let mut postings = vec![Vec::new(); known.stems.len()];
        // The weight of each stem in a tool, and the stems that have a weight.
        let mut counts = vec![0.0; known.stems.len()];
        let mut counted = Vec::new();
        for (number, tool) in tool_fields.iter().enumerate() {
            for ((field, words), mean) in FIELDS.iter().zip(tool).zip(mean_lengths) {
                let length = words.len() as f64 / f64::max(mean, 1.0);
                let word_weight = field.weight / (1.0 - field.length + field.length * length);
                for word in words {
                    if counts[*word] == 0.0 {
                        counted.push(*word);
                    }
                    counts[*word] += word_weight;
                }
            }
            for word in counted.drain(..) {
                postings[word].push((number, std::mem::take(&mut counts[word])));
            }
        }
        Self { stems: known.stems, postings, tools: tool_fields.len() }
    }

    /// Returns the score of each tool for a task. The score is 0 if no word matches. Only the first
    /// 8 KiB of a task are compared.
    pub(crate) fn scores(&self, task: &str) -> Vec<f64> {
        let distinct: BTreeSet<String> = words(cut(task, MAX_TASK)).flat_map(stems).collect();
        let task_stems: Vec<String> = distinct.into_iter().take(MAX_TASK_WORDS).collect();
        // The map is sorted, because the order of a sum changes its last digits, and so the ranks.
        let mut weights: BTreeMap<&str, f64> = BTreeMap::new();
        for stem in task_stems.iter().flat_map(|stem| alike(stem)) {
            weights.insert(stem, ALIKE);
        }
        for stem in &task_stems {
            weights.insert(stem, 1.0);
        }

        let mut scores = vec![0.0; self.tools];
        for (stem, weight) in weights {
            let Some(number) = self.stems.get(stem) else { continue };
            let postings = &self.postings[*number];
            let tools_with = postings.len() as f64;
            let tools_without = (self.tools - postings.len()) as f64;
            let rareness = ((tools_without + 0.5) / (tools_with + 0.5)).ln_1p();
            for (tool, count) in postings {
                scores[*tool] += weight * rareness * count / (count + SATURATION);
            }
        }
        scores
    }
}

/// The stems of all words so far, each with its number. Most words occur more than once in a
/// catalogue.
#[derive(Default)]
struct KnownWords<'t> {
    words: HashMap<&'t str, Vec<usize>>,
    stems: HashMap<String, usize>,
}

impl<'t> KnownWords<'t> {
    fn stems(&mut self, word: &'t str) -> &[usize] {
        self.words.entry(word).or_insert_with(|| {
            let stems = stems(word).into_iter();
            let numbers = stems.map(|stem| {
                let next = self.stems.len();
                *self.stems.entry(stem).or_insert(next)
            });
            numbers.collect()
        })
    }
}

/// Returns the stems in each field of a tool, in the order of [`FIELDS`].
fn fields<'t>(texts: &ToolTexts<'t>, known: &mut KnownWords<'t>) -> [Vec<usize>; FIELDS.len()] {
    let mut left = MAX_TOOL_WORDS;
    let [mut name, mut server, mut description, mut parameters, mut parameter_texts] =
        [const { Vec::new() }; FIELDS.len()];
    add_stems(&mut name, texts.name, known, &mut left);
    add_stems(&mut server, texts.server, known, &mut left);
    // The tool's name often repeats the server's name.
    name.retain(|word| !server.contains(word));
    add_stems(&mut name, texts.title, known, &mut left);
    add_stems(&mut description, texts.description, known, &mut left);
    for (name, text) in &texts.parameters {
        add_stems(&mut parameters, name, known, &mut left);
        add_stems(&mut parameter_texts, text, known, &mut left);
    }
    [name, server, description, parameters, parameter_texts]
}

/// Adds the stems of a text. `left`: the number of words that may still be added.
fn add_stems<'t>(
    into: &mut Vec<usize>,
    text: &'t str,
    known: &mut KnownWords<'t>,
    left: &mut usize,
) {
    for word in words(text) {
        if *left == 0 {
            return;
        }
        *left -= 1;
        into.extend_from_slice(known.stems(word));
    }
}
