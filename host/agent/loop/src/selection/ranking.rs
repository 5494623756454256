//! Ranks tools by the words that they share with a task.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use toolhold_contract::Definition;
use toolhold_contract::text::cut;

use crate::selection::stem::{alike, stems, words};
use crate::selection::text::ToolTexts;

/// The most bytes of a task that are compared. Longer tasks mostly end with material, such as a
/// file.
const MAX_TASK: usize = 8 * 1024;

const MAX_TASK_WORDS: usize = 256;

const MAX_TOOL_WORDS: usize = 600;

/// The saturation of repeated words in BM25. A smaller number makes repetitions count less.
const SATURATION: f64 = 1.2;

/// The weight of a word that may mean the same as a word of the task.
const ALIKE_WEIGHT: f64 = 0.35;

/// The weight of a field's words.
struct Field {
    weight: f64,
    /// How strongly the length of the field reduces the weight, from 0 to 1.
    length_effect: f64,
}

/// In this order: the tool's name, the server's name, the description, the names of the parameters,
/// and the descriptions of the parameters.
const FIELDS: [Field; 5] = [
    Field { weight: 3.0, length_effect: 0.4 },
    Field { weight: 2.0, length_effect: 0.0 },
    Field { weight: 1.0, length_effect: 0.75 },
    Field { weight: 0.4, length_effect: 0.75 },
    Field { weight: 0.2, length_effect: 0.75 },
];

/// The words of tools, prepared for BM25F.
#[derive(Clone, Debug)]
pub(crate) struct WordIndex {
    stems: HashMap<String, usize>,
    /// For each stem, the tools that contain the stem, with the stem's weight in each tool.
    postings: Vec<Vec<(usize, f64)>>,
    tools: usize,
}

impl WordIndex {
    /// Weighs the words of the tools by BM25F. Words in a longer field weigh less.
    pub(crate) fn new<'a>(tools: impl IntoIterator<Item = &'a Definition>) -> Self {
        let texts: Vec<ToolTexts<'_>> = tools.into_iter().map(ToolTexts::new).collect();
        let mut known = KnownWords::default();
        let tool_fields: Vec<_> = texts.iter().map(|texts| fields(texts, &mut known)).collect();
        let means = mean_lengths(&tool_fields);

        let mut postings = vec![Vec::new(); known.stems.len()];
        // The weight of each stem in the current tool. After each tool, only the stems in
        // `tool_stems` are reset.
        let mut weights = vec![0.0; known.stems.len()];
        let mut tool_stems = Vec::new();
        for (tool, field_stems) in tool_fields.iter().enumerate() {
            for ((field, stems), mean) in FIELDS.iter().zip(field_stems).zip(means) {
                let relative_length = stems.len() as f64 / f64::max(mean, 1.0);
                let length_factor =
                    1.0 - field.length_effect + field.length_effect * relative_length;
                for stem in stems {
                    if weights[*stem] == 0.0 {
                        tool_stems.push(*stem);
                    }
                    weights[*stem] += field.weight / length_factor;
                }
            }
            for stem in tool_stems.drain(..) {
                postings[stem].push((tool, std::mem::take(&mut weights[stem])));
            }
        }
        Self { stems: known.stems, postings, tools: tool_fields.len() }
    }

    /// Returns the BM25F score of each tool for a task, or 0 if no word matches. Only the first
    /// [`MAX_TASK`] bytes of the task are compared.
    pub(crate) fn scores(&self, task: &str) -> Vec<f64> {
        let distinct: BTreeSet<String> = words(cut(task, MAX_TASK)).flat_map(stems).collect();
        let task_stems: Vec<String> = distinct.into_iter().take(MAX_TASK_WORDS).collect();
        // The map is sorted, because another order of the sum could change the last digits of a
        // score and so the ranks.
        let mut weights: BTreeMap<&str, f64> = BTreeMap::new();
        for stem in task_stems.iter().flat_map(|stem| alike(stem)) {
            weights.insert(stem, ALIKE_WEIGHT);
        }
        // Words of the task itself have the full weight, even if they resemble another word of it.
        for stem in &task_stems {
            weights.insert(stem, 1.0);
        }

        let mut scores = vec![0.0; self.tools];
        for (stem, weight) in weights {
            let Some(number) = self.stems.get(stem) else { continue };
            let postings = &self.postings[*number];
            let tools_with = postings.len() as f64;
            let tools_without = (self.tools - postings.len()) as f64;
            // The inverse document frequency in the usual form of BM25, with its constant 0.5.
            let rareness = ((tools_without + 0.5) / (tools_with + 0.5)).ln_1p();
            for (tool, tool_weight) in postings {
                scores[*tool] += weight * rareness * tool_weight / (tool_weight + SATURATION);
            }
        }
        scores
    }
}

/// The stems of all words so far, with their numbers. Words often repeat in a catalogue.
#[derive(Default)]
struct KnownWords<'t> {
    words: HashMap<&'t str, Vec<usize>>,
    stems: HashMap<String, usize>,
}

impl<'t> KnownWords<'t> {
    /// Returns the numbers of a word's stems. New stems get the next numbers.
    fn stems(&mut self, word: &'t str) -> &[usize] {
        self.words.entry(word).or_insert_with(|| {
            let mut numbers = Vec::new();
            for stem in stems(word) {
                let next_number = self.stems.len();
                numbers.push(*self.stems.entry(stem).or_insert(next_number));
            }
            numbers
        })
    }
}

/// Returns the mean number of stems in each field of the tools.
fn mean_lengths(tool_fields: &[[Vec<usize>; FIELDS.len()]]) -> [f64; FIELDS.len()] {
    let mut means = [0.0; FIELDS.len()];
    for field_stems in tool_fields {
        for (mean, stems) in means.iter_mut().zip(field_stems) {
            *mean += stems.len() as f64 / tool_fields.len() as f64;
        }
    }
    means
}

/// Returns the numbers of the stems in each field of a tool, in the order of [`FIELDS`].
fn fields<'t>(texts: &ToolTexts<'t>, known: &mut KnownWords<'t>) -> [Vec<usize>; FIELDS.len()] {
    let mut words_left = MAX_TOOL_WORDS;
    let mut name = Vec::new();
    add_stems(&mut name, texts.name, known, &mut words_left);
    let mut server = Vec::new();
    add_stems(&mut server, texts.server, known, &mut words_left);
    // Remove the server's name, which is often repeated in the name of its tool.
    name.retain(|stem| !server.contains(stem));
    add_stems(&mut name, texts.title, known, &mut words_left);
    let mut description = Vec::new();
    add_stems(&mut description, texts.description, known, &mut words_left);
    let mut parameters = Vec::new();
    let mut parameter_texts = Vec::new();
    for (parameter, text) in &texts.parameters {
        add_stems(&mut parameters, parameter, known, &mut words_left);
        add_stems(&mut parameter_texts, text, known, &mut words_left);
    }
    [name, server, description, parameters, parameter_texts]
}

/// Adds the number of each stem in `text` to `stems`. Stops when no words are left of the limit.
fn add_stems<'t>(
    stems: &mut Vec<usize>,
    text: &'t str,
    known: &mut KnownWords<'t>,
    words_left: &mut usize,
) {
    for word in words(text) {
        if *words_left == 0 {
            return;
        }
        *words_left -= 1;
        stems.extend_from_slice(known.stems(word));
    }
}
