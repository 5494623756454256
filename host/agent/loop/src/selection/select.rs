//! Selects the tools for a task within a limit of number and tokens, each with its reason.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use toolhold_contract::Definition;
use toolhold_contract::text::cut;

use crate::selection::fuse::{add_ranks, cosine};
use crate::selection::ranking::WordIndex;
use crate::selection::text::{has_word, is_named, split};

/// Bytes of a task in which names of tools are looked for.
const MAX_NAMING: usize = 64 * 1024;

/// Words of a description that are counted.
const MAX_SHORT: usize = 64;

/// The tools of a catalogue, ready to be ranked for any task.
#[derive(Clone, Debug)]
pub struct ToolIndex {
    tools: Vec<IndexedTool>,
    words: WordIndex,
}

#[derive(Clone, Debug)]
struct IndexedTool {
    name: String,
    tokens: u64,
    /// Words of its description.
    described: usize,
    boost: f64,
    vector: Option<Vec<f32>>,
}

impl IndexedTool {
    fn new(tool: &Definition) -> Self {
        Self {
            name: tool.name.clone(),
            tokens: tokens_of(tool),
            described: tool.description.split_whitespace().take(MAX_SHORT).count(),
            boost: 0.0,
            vector: None,
        }
    }
}

impl ToolIndex {
    /// The index of these tools. Where ranks are equal, this order decides.
    pub fn new<'a>(tools: impl IntoIterator<Item = &'a Definition>) -> Self {
        let tools: Vec<&Definition> = tools.into_iter().collect();
        let words = WordIndex::new(tools.iter().copied());
        Self { tools: tools.into_iter().map(IndexedTool::new).collect(), words }
    }

    /// Sets how much each tool's preferred tools add to its rank, from 0 to 1, in the same order.
    #[must_use]
    pub fn with_boosts(mut self, boosts: impl IntoIterator<Item = f64>) -> Self {
        self.tools.iter_mut().zip(boosts).for_each(|(tool, boost)| tool.boost = boost);
        self
    }

    /// Sets the vectors of the tools, in the same order. A tool without a vector is ranked by words
    /// alone.
    #[must_use]
    pub fn with_vectors(mut self, vectors: impl IntoIterator<Item = Option<Vec<f32>>>) -> Self {
        self.tools.iter_mut().zip(vectors).for_each(|(tool, vector)| tool.vector = vector);
        self
    }

    /// Tokens of all definitions.
    pub fn tokens(&self) -> u64 {
        self.tools.iter().map(|tool| tool.tokens).sum()
    }

    /// The places of the tools that fit a text, the best first. `vector`: the vector of the text,
    /// by the model that made the tools' vectors.
    pub fn ranked(&self, text: &str, vector: Option<&[f32]>) -> Vec<usize> {
        let scores = self.scores(text, vector);
        in_order(&scores).into_iter().take_while(|at| scores[*at] > 0.0).collect()
    }

    /// The score of each tool. 0: the tool doesn't fit.
    fn scores(&self, text: &str, vector: Option<&[f32]>) -> Vec<f64> {
        let by_words = self.words.scores(text);
        let mut scores = match vector {
            None => by_words,
            Some(vector) => {
                let mut fused = vec![0.0; self.tools.len()];
                let worded: Vec<_> = by_words.iter().map(|it| (*it > 0.0).then_some(*it)).collect();
                add_ranks(&mut fused, &worded);
                let tools = self.tools.iter();
                let near: Vec<_> =
                    tools.map(|tool| cosine(tool.vector.as_deref()?, vector)).collect();
                add_ranks(&mut fused, &near);
                fused
            }
        };
        for (score, tool) in scores.iter_mut().zip(&self.tools) {
            *score *= 1.0 + tool.boost.clamp(0.0, 1.0);
        }
        scores
    }
}

/// The places of the scores, the highest first; of equal ones, the first.
fn in_order(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|one, other| scores[*other].total_cmp(&scores[*one]).then(one.cmp(other)));
    order
}

/// How many tools are chosen, and which ones always.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectionRules {
    /// Tools that are chosen by their rank. 0: as many as `max_tokens` has room for.
    pub top_k: usize,
    /// A tool whose description has fewer words can't be ranked well: it is chosen too, while there
    /// is room.
    pub min_description_words: usize,
    /// Tools that are chosen whatever the task is, also if there is no room, by their whole names.
    pub always_on: Vec<String>,
    /// Tokens of all definitions that are chosen.
    pub max_tokens: u64,
}

/// The reason why a tool was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InclusionReason {
    /// `always_on` has it.
    AlwaysOn,
    /// The task names it.
    NameMentioned,
    /// Its rank.
    SimilarityRank,
    /// Its rank, to which tools that it prefers added.
    PreferenceBoost,
    /// Its rank by words, because it has no vector.
    NoEmbedding,
    /// Its description is too short for a rank.
    ShortDescription,
}

impl InclusionReason {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AlwaysOn => "always on",
            Self::NameMentioned => "named in the task",
            Self::SimilarityRank => "fits the task",
            Self::PreferenceBoost => "fits the task, and a tool that it prefers has succeeded",
            Self::NoEmbedding => "fits the task by its words, since it has no vector",
            Self::ShortDescription => "its description is too short for a rank",
        }
    }
}

/// A tool that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncludedTool {
    /// Its name.
    pub name: String,
    /// The reason for the choice.
    pub reason: InclusionReason,
}

/// The result of a selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The chosen tools, in the order in which they were chosen.
    pub included: Vec<IncludedTool>,
    /// The names of the others, the one with the best rank first.
    pub excluded: Vec<String>,
    /// Tokens of the chosen definitions.
    pub tokens: u64,
    /// Tokens of all definitions.
    pub all_tokens: u64,
}

/// Tokens of a definition as a model reads it: a quarter of its bytes.
pub fn tokens_of(tool: &Definition) -> u64 {
    let bytes = tool.name.len() + tool.description.len() + tool.input_schema.to_string().len();
    (bytes as u64).div_ceil(4)
}

/// Chooses tools for a task. `vector`: the vector of the task, by the model that made the tools'
/// vectors.
///
/// One server gets at most half of the places, and half of the room, before every other server that
/// fits had its turn. The shares don't apply to a server that the task names.
pub fn select(
    index: &ToolIndex,
    task: &str,
    vector: Option<&[f32]>,
    rules: &SelectionRules,
) -> Selection {
    let tools = &index.tools;
    let scores = index.scores(task, vector);
    let order = in_order(&scores);
    let mut chosen = Chosen {
        reasons: vec![None; tools.len()],
        order: Vec::new(),
        tokens: 0,
        most: rules.max_tokens,
    };
    for (at, tool) in tools.iter().enumerate() {
        if rules.always_on.contains(&tool.name) {
            chosen.add(at, InclusionReason::AlwaysOn, tool.tokens);
        }
    }
    let naming = cut(task, MAX_NAMING).to_ascii_lowercase();
    for at in order.iter().copied().filter(|at| is_named(&naming, &tools[*at].name)) {
        if chosen.can_add(at, tools[at].tokens) {
            chosen.add(at, InclusionReason::NameMentioned, tools[at].tokens);
        }
    }
    let places = if rules.top_k == 0 { tools.len() } else { rules.top_k };
    let room = rules.max_tokens.saturating_sub(chosen.tokens);
    let mut shares = Shares { places: places.div_ceil(2), tokens: room / 2, of: HashMap::new() };
    let mut ranked = 0;
    for is_shared in [true, false] {
        for at in order.iter().copied() {
            let tool = &tools[at];
            // Without a word in common, a tool only takes room that is there anyway.
            let fits = scores[at] > 0.0 || rules.top_k == 0 && !is_shared;
            if ranked >= places
                || !fits
                || !chosen.can_add(at, tool.tokens)
                || is_shared && !shares.take(split(&tool.name).0, &naming, tool.tokens)
            {
                continue;
            }
            let reason = match tool {
                IndexedTool { boost, .. } if *boost > 0.0 => InclusionReason::PreferenceBoost,
                IndexedTool { vector: None, .. } if vector.is_some() => {
                    InclusionReason::NoEmbedding
                }
                _ => InclusionReason::SimilarityRank,
            };
            chosen.add(at, reason, tool.tokens);
            ranked += 1;
        }
    }
    let mut short = 0;
    for at in order.iter().copied() {
        let tool = &tools[at];
        if tool.described < rules.min_description_words
            && short < places
            && chosen.can_add(at, tool.tokens)
        {
            chosen.add(at, InclusionReason::ShortDescription, tool.tokens);
            short += 1;
        }
    }
    let included = chosen
        .order
        .iter()
        .map(|(at, reason)| IncludedTool { name: tools[*at].name.clone(), reason: *reason });
    let excluded = order.iter().filter(|at| chosen.reasons[**at].is_none());
    Selection {
        included: included.collect(),
        excluded: excluded.map(|at| tools[*at].name.clone()).collect(),
        tokens: chosen.tokens,
        all_tokens: index.tokens(),
    }
}

/// The tools that are chosen so far.
struct Chosen {
    reasons: Vec<Option<InclusionReason>>,
    order: Vec<(usize, InclusionReason)>,
    tokens: u64,
    most: u64,
}

impl Chosen {
    fn add(&mut self, at: usize, reason: InclusionReason, tokens: u64) {
        self.reasons[at] = Some(reason);
        self.order.push((at, reason));
        self.tokens += tokens;
    }

    /// Whether a tool isn't chosen yet, and there is room for it.
    fn can_add(&self, at: usize, tokens: u64) -> bool {
        self.reasons[at].is_none() && self.tokens.saturating_add(tokens) <= self.most
    }
}

/// The share of each server before the others had their turn.
struct Shares {
    places: usize,
    tokens: u64,
    /// The rest of each server's share.
    of: HashMap<String, (usize, u64)>,
}

impl Shares {
    /// Takes a place for a tool of a server. Returns `false` if the server has no place left.
    fn take(&mut self, server: &str, task: &str, tokens: u64) -> bool {
        let left = match self.of.get_mut(server) {
            Some(left) => left,
            None => {
                // Toolhold's own tools push nobody out.
                let is_free =
                    server.is_empty() || server.split('-').all(|word| has_word(task, word));
                let whole = (usize::MAX, u64::MAX);
                let share = if is_free { whole } else { (self.places, self.tokens) };
                self.of.entry(server.to_owned()).or_insert(share)
            }
        };
        if left.0 == 0 || left.1 < tokens {
            return false;
        }
        *left = (left.0 - 1, left.1 - tokens);
        true
    }
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
