//! Selects the tools for a task within limits of number and tokens, with a reason for each tool.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use toolhold_contract::Definition;
use toolhold_contract::text::cut;

use crate::selection::fuse::{add_ranks, cosine};
use crate::selection::ranking::WordIndex;
use crate::selection::text::{has_word, is_named, split};

const MAX_NAMING: usize = 64 * 1024;

const MAX_COUNTED_WORDS: usize = 64;

/// The tools of a catalogue, prepared for ranking.
#[derive(Clone, Debug)]
pub struct ToolIndex {
    tools: Vec<IndexedTool>,
    words: WordIndex,
}

#[derive(Clone, Debug)]
struct IndexedTool {
    name: String,
    tokens: u64,
    /// The number of words in the description, at most [`MAX_COUNTED_WORDS`].
    description_words: usize,
    boost: f64,
    vector: Option<Vec<f32>>,
}

impl IndexedTool {
    fn new(tool: &Definition) -> Self {
        Self {
            name: tool.name.clone(),
            tokens: tokens_of(tool),
            description_words: tool.description.split_whitespace().take(MAX_COUNTED_WORDS).count(),
            boost: 0.0,
            vector: None,
        }
    }
}

impl ToolIndex {
    /// Makes the index of these tools. Tools with equal scores keep this order.
    pub fn new<'a>(tools: impl IntoIterator<Item = &'a Definition>) -> Self {
        let tools: Vec<&Definition> = tools.into_iter().collect();
        let words = WordIndex::new(tools.iter().copied());
        Self { tools: tools.into_iter().map(IndexedTool::new).collect(), words }
    }

    /// Sets the boosts, from 0 to 1, in the order of the tools. A boost raises the score of a tool
    /// whose preferred predecessor has succeeded.
    #[must_use]
    pub fn with_boosts(mut self, boosts: impl IntoIterator<Item = f64>) -> Self {
        for (tool, boost) in self.tools.iter_mut().zip(boosts) {
            tool.boost = boost;
        }
        self
    }

    /// Sets the vectors, in the order of the tools. A tool without a vector is ranked only by
    /// words.
    #[must_use]
    pub fn with_vectors(mut self, vectors: impl IntoIterator<Item = Option<Vec<f32>>>) -> Self {
        for (tool, vector) in self.tools.iter_mut().zip(vectors) {
            tool.vector = vector;
        }
        self
    }

    /// Returns the number of tokens of all definitions.
    pub fn tokens(&self) -> u64 {
        self.tools.iter().map(|tool| tool.tokens).sum()
    }

    /// Returns the positions of the tools that match a text, the best first. The same model must
    /// have made `vector`, the vector of the text, and the vectors of the tools.
    pub fn ranked(&self, text: &str, vector: Option<&[f32]>) -> Vec<usize> {
        let scores = self.scores(text, vector);
        let mut order = in_order(&scores);
        order.retain(|position| scores[*position] > 0.0);
        order
    }

    /// Returns the score of each tool, or 0 if the tool doesn't match.
    fn scores(&self, text: &str, vector: Option<&[f32]>) -> Vec<f64> {
        let mut scores = self.words.scores(text);
        if let Some(vector) = vector {
            scores = self.fuse(&scores, vector);
        }
        for (score, tool) in scores.iter_mut().zip(&self.tools) {
            *score *= 1.0 + tool.boost.clamp(0.0, 1.0);
        }
        scores
    }

    fn fuse(&self, word_scores: &[f64], vector: &[f32]) -> Vec<f64> {
        let mut fused = vec![0.0; self.tools.len()];
        let mut matches = Vec::new();
        for score in word_scores {
            matches.push(if *score > 0.0 { Some(*score) } else { None });
        }
        add_ranks(&mut fused, &matches);
        let mut similarities = Vec::new();
        for tool in &self.tools {
            let tool_vector = tool.vector.as_deref();
            similarities.push(tool_vector.and_then(|tool_vector| cosine(tool_vector, vector)));
        }
        add_ranks(&mut fused, &similarities);
        fused
    }
}

/// Returns the positions of the scores in descending order. Equal scores keep their order.
fn in_order(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    order
}

/// The limits of a selection, and the tools that are always selected.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectionRules {
    /// The number of tools that are selected by rank. If it is 0, only `max_tokens` limits the
    /// selection.
    pub top_k: usize,
    /// Tools whose description has fewer words are also selected, up to `max_tokens`, because such
    /// a description can't be ranked well.
    pub min_description_words: usize,
    /// The full names of tools that are always selected, even above `max_tokens`.
    pub always_on: Vec<String>,
    /// The most tokens of the selected definitions.
    pub max_tokens: u64,
}

/// The reason why a tool was selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InclusionReason {
    /// The tool is in `always_on`.
    AlwaysOn,
    /// The task names the tool.
    NameMentioned,
    /// The tool has a high rank.
    SimilarityRank,
    /// The tool has a high rank because its preferred tools succeeded.
    PreferenceBoost,
    /// The tool has a high rank by words, and no vector.
    NoEmbedding,
    /// The tool's description is too short to be ranked.
    ShortDescription,
}

impl InclusionReason {
    /// Returns the reason in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AlwaysOn => "always on",
            Self::NameMentioned => "named in the task",
            Self::SimilarityRank => "fits the task",
            Self::PreferenceBoost => "fits the task, and a preferred earlier tool has succeeded",
            Self::NoEmbedding => "fits the task by words, because the tool has no vector",
            Self::ShortDescription => "the tool's description is too short for a rank",
        }
    }
}

/// A tool that was selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncludedTool {
    /// The tool's name.
    pub name: String,
    /// The reason for the selection.
    pub reason: InclusionReason,
}

/// The result of a selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The selected tools, in the order in which they were selected.
    pub included: Vec<IncludedTool>,
    /// The names of the other tools, the best rank first.
    pub excluded: Vec<String>,
    /// The number of tokens of the selected definitions.
    pub tokens: u64,
    /// The number of tokens of all definitions.
    pub all_tokens: u64,
}

/// Estimates the tokens of a definition: a quarter of its bytes.
pub fn tokens_of(tool: &Definition) -> u64 {
    let bytes = tool.name.len() + tool.description.len() + tool.input_schema.to_string().len();
    (bytes as u64).div_ceil(4)
}

/// Selects tools for a task. The same model must have made `vector`, the vector of the task, and
/// the vectors of the tools.
///
/// In the first round, each server gets at most half of the places and half of the tokens, unless
/// the task names the server. The second round fills the remaining places without this limit.
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
        max_tokens: rules.max_tokens,
    };
    for (position, tool) in tools.iter().enumerate() {
        if rules.always_on.contains(&tool.name) {
            chosen.add(position, InclusionReason::AlwaysOn, tool.tokens);
        }
    }
    let lower_task = cut(task, MAX_NAMING).to_ascii_lowercase();
    for position in order.iter().copied() {
        let tool = &tools[position];
        if is_named(&lower_task, &tool.name) && chosen.can_add(position, tool.tokens) {
            chosen.add(position, InclusionReason::NameMentioned, tool.tokens);
        }
    }

    let places = if rules.top_k == 0 { tools.len() } else { rules.top_k };
    let tokens_left = rules.max_tokens.saturating_sub(chosen.tokens);
    let mut shares =
        Shares { places: places.div_ceil(2), tokens: tokens_left / 2, by_server: HashMap::new() };
    let mut ranked_tools = 0;
    // Only the first round limits each server to its share.
    for is_shared in [true, false] {
        for position in order.iter().copied() {
            if ranked_tools >= places {
                break;
            }
            let tool = &tools[position];
            // If `top_k` is 0, the second round also takes tools that have no word in common with
            // the task.
            let takes_every_tool = rules.top_k == 0 && !is_shared;
            let fits = scores[position] > 0.0 || takes_every_tool;
            if !fits || !chosen.can_add(position, tool.tokens) {
                continue;
            }
            let (server, _) = split(&tool.name);
            if is_shared && !shares.reserve(server, &lower_task, tool.tokens) {
                continue;
            }
            let reason = if tool.boost > 0.0 {
                InclusionReason::PreferenceBoost
            } else if tool.vector.is_none() && vector.is_some() {
                InclusionReason::NoEmbedding
            } else {
                InclusionReason::SimilarityRank
            };
            chosen.add(position, reason, tool.tokens);
            ranked_tools += 1;
        }
    }

    let mut short_tools = 0;
    for position in order.iter().copied() {
        let tool = &tools[position];
        let is_short = tool.description_words < rules.min_description_words;
        if is_short && short_tools < places && chosen.can_add(position, tool.tokens) {
            chosen.add(position, InclusionReason::ShortDescription, tool.tokens);
            short_tools += 1;
        }
    }

    let included = chosen.order.iter().map(|(position, reason)| IncludedTool {
        name: tools[*position].name.clone(),
        reason: *reason,
    });
    let excluded = order.iter().filter(|position| chosen.reasons[**position].is_none());
    Selection {
        included: included.collect(),
        excluded: excluded.map(|position| tools[*position].name.clone()).collect(),
        tokens: chosen.tokens,
        all_tokens: index.tokens(),
    }
}

struct Chosen {
    reasons: Vec<Option<InclusionReason>>,
    order: Vec<(usize, InclusionReason)>,
    tokens: u64,
    max_tokens: u64,
}

impl Chosen {
    fn add(&mut self, position: usize, reason: InclusionReason, tokens: u64) {
        self.reasons[position] = Some(reason);
        self.order.push((position, reason));
        self.tokens += tokens;
    }

    fn can_add(&self, position: usize, tokens: u64) -> bool {
        self.reasons[position].is_none() && self.tokens.saturating_add(tokens) <= self.max_tokens
    }
}

/// The share of each server in the first round.
struct Shares {
    places: usize,
    tokens: u64,
    /// The remaining places and tokens of each server's share.
    by_server: HashMap<String, (usize, u64)>,
}

impl Shares {
    /// Reserves a place and `tokens` for a tool of a server. Returns `false` if the server's share
    /// is used up. Built-in tools and servers that the task names have no limit.
    fn reserve(&mut self, server: &str, task: &str, tokens: u64) -> bool {
        let (places_left, tokens_left) =
            self.by_server.entry(server.to_owned()).or_insert_with(|| {
                let is_built_in = server.is_empty();
                let names_server = server.split('-').all(|word| has_word(task, word));
                if is_built_in || names_server {
                    (usize::MAX, u64::MAX)
                } else {
                    (self.places, self.tokens)
                }
            });
        if *places_left == 0 || *tokens_left < tokens {
            return false;
        }
        *places_left -= 1;
        *tokens_left -= tokens;
        true
    }
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
