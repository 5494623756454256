//! Selects the tools for a task within limits of number and tokens, each with a reason.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use toolhold_contract::Definition;
use toolhold_contract::text::cut;

use crate::selection::fuse::{add_ranks, cosine};
use crate::selection::ranking::WordIndex;
use crate::selection::text::{has_word, is_named, split};

/// Most bytes of a task that are searched for names of tools.
const MAX_NAMING: usize = 64 * 1024;

/// Most words of a description that are counted.
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
    /// The number of words in the tool's description, up to [`MAX_SHORT`].
    description_words: usize,
    boost: f64,
    vector: Option<Vec<f32>>,
}

impl IndexedTool {
    fn new(tool: &Definition) -> Self {
        Self {
            name: tool.name.clone(),
            tokens: tokens_of(tool),
            description_words: tool.description.split_whitespace().take(MAX_SHORT).count(),
            boost: 0.0,
            vector: None,
        }
    }
}

impl ToolIndex {
    /// Makes the index of these tools. Tools with equal ranks stay in this order.
    pub fn new<'a>(tools: impl IntoIterator<Item = &'a Definition>) -> Self {
        let tools: Vec<&Definition> = tools.into_iter().collect();
        let words = WordIndex::new(tools.iter().copied());
        Self { tools: tools.into_iter().map(IndexedTool::new).collect(), words }
    }

    /// Sets the boost of each tool, from 0 to 1, in the order of the tools. The boost of a tool is
    /// the part that its preferred tools add to its rank.
    #[must_use]
    pub fn with_boosts(mut self, boosts: impl IntoIterator<Item = f64>) -> Self {
        for (tool, boost) in self.tools.iter_mut().zip(boosts) {
            tool.boost = boost;
        }
        self
    }

    /// Sets the vectors of the tools, in the order of the tools. A tool without a vector is ranked
    /// only by words.
    #[must_use]
    pub fn with_vectors(mut self, vectors: impl IntoIterator<Item = Option<Vec<f32>>>) -> Self {
        for (tool, vector) in self.tools.iter_mut().zip(vectors) {
            tool.vector = vector;
        }
        self
    }

    /// Returns the tokens of all definitions.
    pub fn tokens(&self) -> u64 {
        self.tools.iter().map(|tool| tool.tokens).sum()
    }

    /// Returns the positions of the tools that match a text, the best first. `vector`: the vector
    /// of the text, from the model that made the tools' vectors.
    pub fn ranked(&self, text: &str, vector: Option<&[f32]>) -> Vec<usize> {
        let scores = self.scores(text, vector);
        let mut order = in_order(&scores);
        order.retain(|at| scores[*at] > 0.0);
        order
    }

    /// Returns the score of each tool. The score is 0 if the tool doesn't match.
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

    /// Joins the ranks by words with the ranks by a vector.
    fn fuse(&self, word_scores: &[f64], vector: &[f32]) -> Vec<f64> {
        let mut fused = vec![0.0; self.tools.len()];
        let by_words: Vec<Option<f64>> = word_scores
            .iter()
            .map(|score| if *score > 0.0 { Some(*score) } else { None })
            .collect();
        add_ranks(&mut fused, &by_words);
        let tools = self.tools.iter();
        let by_vector: Vec<Option<f64>> =
            tools.map(|tool| cosine(tool.vector.as_deref()?, vector)).collect();
        add_ranks(&mut fused, &by_vector);
        fused
    }
}

/// Returns the positions of the scores, with the highest first. Of equal scores, the first position
/// comes first.
fn in_order(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|one, other| scores[*other].total_cmp(&scores[*one]).then(one.cmp(other)));
    order
}

/// The limits of a choice, and the tools that are always chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectionRules {
    /// The number of tools that are chosen by rank. 0: as many tools as fit into `max_tokens`.
    pub top_k: usize,
    /// The least words of a description that can be ranked well. Tools with shorter descriptions
    /// are chosen too, while there is room.
    pub min_description_words: usize,
    /// The full names of tools that are chosen for every task, even if there is no room.
    pub always_on: Vec<String>,
    /// Tokens of all definitions that are chosen.
    pub max_tokens: u64,
}

/// The reason why a tool was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InclusionReason {
    /// The tool is in `always_on`.
    AlwaysOn,
    /// The task names the tool.
    NameMentioned,
    /// The tool has a high rank.
    SimilarityRank,
    /// The tool has a high rank, because tools that it prefers added to the rank.
    PreferenceBoost,
    /// The tool has a high rank by words, because it has no vector.
    NoEmbedding,
    /// The tool's description is too short for a rank.
    ShortDescription,
}

impl InclusionReason {
    /// Returns the reason in words.
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
    /// The tool's name.
    pub name: String,
    /// The reason for the choice.
    pub reason: InclusionReason,
}

/// The result of a selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The chosen tools, in the order in which they were chosen.
    pub included: Vec<IncludedTool>,
    /// The names of the other tools, the best rank first.
    pub excluded: Vec<String>,
    /// Tokens of the chosen definitions.
    pub tokens: u64,
    /// Tokens of all definitions.
    pub all_tokens: u64,
}

/// Returns the tokens of a definition for a model. The estimate is a quarter of the bytes.
pub fn tokens_of(tool: &Definition) -> u64 {
    let bytes = tool.name.len() + tool.description.len() + tool.input_schema.to_string().len();
    (bytes as u64).div_ceil(4)
}

/// Chooses tools for a task. `vector`: the vector of the task, from the model that made the tools'
/// vectors.
///
/// First, each server may use at most half of the places and half of the room. After every other
/// matching server has had its turn, a server may exceed these limits. They don't apply to a server
/// that the task names.
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
    let lower_task = cut(task, MAX_NAMING).to_ascii_lowercase();
    for at in order.iter().copied() {
        let tool = &tools[at];
        if is_named(&lower_task, &tool.name) && chosen.can_add(at, tool.tokens) {
            chosen.add(at, InclusionReason::NameMentioned, tool.tokens);
        }
    }

    let places = if rules.top_k == 0 { tools.len() } else { rules.top_k };
    let room = rules.max_tokens.saturating_sub(chosen.tokens);
    let mut shares = Shares { places: places.div_ceil(2), tokens: room / 2, of: HashMap::new() };
    let mut ranked = 0;
    // The second round gives the rest of the places without shares.
    for is_shared in [true, false] {
        for at in order.iter().copied() {
            if ranked >= places {
                break;
            }
            let tool = &tools[at];
            // Without a word in common, a tool only takes room that no other tool needs.
            let takes_spare_room = rules.top_k == 0 && !is_shared;
            let fits = scores[at] > 0.0 || takes_spare_room;
            if !fits || !chosen.can_add(at, tool.tokens) {
                continue;
            }
            let (server, _) = split(&tool.name);
            if is_shared && !shares.take(server, &lower_task, tool.tokens) {
                continue;
            }
            let reason = if tool.boost > 0.0 {
                InclusionReason::PreferenceBoost
            } else if tool.vector.is_none() && vector.is_some() {
                InclusionReason::NoEmbedding
            } else {
                InclusionReason::SimilarityRank
            };
            chosen.add(at, reason, tool.tokens);
            ranked += 1;
        }
    }

    let mut short = 0;
    for at in order.iter().copied() {
        let tool = &tools[at];
        let is_short = tool.description_words < rules.min_description_words;
        if is_short && short < places && chosen.can_add(at, tool.tokens) {
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

    /// Checks whether a tool can be added: it isn't chosen yet, and there is room.
    fn can_add(&self, at: usize, tokens: u64) -> bool {
        self.reasons[at].is_none() && self.tokens.saturating_add(tokens) <= self.most
    }
}

/// The share of each server until every other server has had its turn.
struct Shares {
    places: usize,
    tokens: u64,
    /// The places and tokens that remain of each server's share.
    of: HashMap<String, (usize, u64)>,
}

impl Shares {
    /// Takes a place for a tool of a server. Returns `false` if the server has no place left.
    fn take(&mut self, server: &str, task: &str, tokens: u64) -> bool {
        let (places_left, tokens_left) = self.of.entry(server.to_owned()).or_insert_with(|| {
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
