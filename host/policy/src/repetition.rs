//! Agents that go round in circles, for programs that run one.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde_json::Value;

use crate::canonical;

/// When a repetition is taken for a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepetitionLimits {
    /// How many calls are remembered.
    pub window: usize,
    /// So many outputs of the model in a row that are the same end it.
    pub outputs: usize,
    /// The same call, in a row.
    pub calls: Levels,
    /// Two calls in turn, counted in pairs.
    pub pairs: Levels,
    /// The same tool with the same result for different arguments, anywhere in the window.
    pub results: Levels,
    /// Whether calls that only read are left alone: tools that are asked again and again until
    /// something has happened.
    pub exempt_read_only: bool,
}

impl Default for RepetitionLimits {
    fn default() -> Self {
        Self {
            window: 20,
            outputs: 3,
            calls: Levels { warn: 3, block: 4, end: 5 },
            pairs: Levels { warn: 4, block: 5, end: 6 },
            results: Levels { warn: 5, block: 6, end: 7 },
            exempt_read_only: false,
        }
    }
}

/// From how many times on what is done. 0: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// The model is told.
    pub warn: usize,
    /// The call isn't run.
    pub block: usize,
    /// The loop ends.
    pub end: usize,
}

impl Levels {
    fn reaction(self, times: usize) -> Option<Reaction> {
        let reached = |level: usize| level > 0 && times >= level;
        let reactions = [
            (self.end, Reaction::Break),
            (self.block, Reaction::Block),
            (self.warn, Reaction::Warn),
        ];
        reactions.into_iter().find(|(level, _)| reached(*level)).map(|(_, reaction)| reaction)
    }
}

/// What to do about a repetition. The later, the more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reaction {
    /// Run the call, and tell the model that it repeats itself.
    Warn,
    /// Don't run the call, and tell the model why.
    Block,
    /// End the loop, and tell the person.
    Break,
}

/// What repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circle {
    /// What the model says.
    Outputs,
    /// One call.
    Calls,
    /// Two calls in turn.
    Pairs,
    /// The result, whatever the arguments are.
    Results,
}

/// A repetition that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// What repeats.
    pub circle: Circle,
    /// How many times it was there, this one included.
    pub times: usize,
    /// What to do about it.
    pub reaction: Reaction,
}

/// In words that a model understands.
impl fmt::Display for Repeated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.times;
        match self.circle {
            Circle::Outputs => write!(f, "You have said the same thing {times} times in a row."),
            Circle::Calls => write!(
                f,
                "This call was made with the same arguments {times} times in a row. Do something else."
            ),
            Circle::Pairs => {
                write!(f, "The same two calls take turns, {times} times now. Do something else.")
            }
            Circle::Results => write!(
                f,
                "This tool has given the same result {times} times, whatever the arguments. Do something else."
            ),
        }
    }
}

/// Remembers the last calls and outputs of one agent, to notice when it goes round in circles: the
/// same call again and again, two calls in turn, other arguments to the same end, the same words.
///
/// It decides on no call of the host: whoever runs the loop asks [`before`](Self::before) each call
/// what to do about it, and tells [`after`](Self::after) it what it came to.
///
/// ```
/// use berth_policy::{Reaction, Repetition, RepetitionLimits};
/// use serde_json::json;
///
/// let mut repetition = Repetition::new(RepetitionLimits::default());
/// let mut reactions = Vec::new();
/// for _ in 0..5 {
///     let arguments = json!({ "path": "src/main.rs" });
///     let found = repetition.before("read", &arguments, true);
///     reactions.push(found.map(|found| found.reaction));
///     // A call that is blocked isn't run, and counts all the same: a model that goes on with it comes to the end.
///     repetition.after("read", &arguments, true, "fn main() {}");
/// }
/// assert_eq!(reactions, [None, None, Some(Reaction::Warn), Some(Reaction::Block), Some(Reaction::Break)]);
/// ```
#[derive(Clone, Debug)]
pub struct Repetition {
    limits: RepetitionLimits,
    calls: VecDeque<MadeCall>,
    last_output: Option<u64>,
    same_outputs: usize,
}

/// A call that was made. Texts are remembered as digests: whoever makes two alike harms only their
/// own loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MadeCall {
    tool: u64,
    /// Tool and arguments.
    call: u64,
    result: u64,
}

impl Repetition {
    /// Begins with nothing remembered.
    pub fn new(limits: RepetitionLimits) -> Self {
        Self { limits, calls: VecDeque::new(), last_output: None, same_outputs: 0 }
    }

    /// What to do about a call that is about to be made, seen from those before it.
    pub fn before(&self, tool: &str, arguments: &Value, read_only: bool) -> Option<Repeated> {
        if self.is_exempt(read_only) {
            return None;
        }
        let (tool, call) = (digest(tool), digest((tool, canonical(arguments))));
        let found = [
            (Circle::Calls, self.limits.calls, self.in_a_row(call)),
            (Circle::Pairs, self.limits.pairs, self.pairs(call)),
            (Circle::Results, self.limits.results, self.same_results(tool, call)),
        ];
        let severe = |(circle, levels, times): (Circle, Levels, usize)| {
            Some(Repeated { circle, times, reaction: levels.reaction(times)? })
        };
        // Of those that are as severe the first, which says most.
        found.into_iter().filter_map(severe).rev().max_by_key(|found| found.reaction)
    }

    /// Remembers a call that was made or blocked, and what the model got to read of it.
    pub fn after(&mut self, tool: &str, arguments: &Value, read_only: bool, result: &str) {
        if self.is_exempt(read_only) || self.limits.window == 0 {
            return;
        }
        self.calls.truncate(self.limits.window - 1);
        self.calls.push_front(MadeCall {
            tool: digest(tool),
            call: digest((tool, canonical(arguments))),
            result: digest(result),
        });
    }

    /// What to do about what the model says. Ids that differ each time should be taken out of it.
    pub fn said(&mut self, output: &str) -> Option<Repeated> {
        let output = digest(output);
        self.same_outputs =
            if self.last_output == Some(output) { self.same_outputs + 1 } else { 1 };
        self.last_output = Some(output);
        let ends = self.limits.outputs > 0 && self.same_outputs >= self.limits.outputs;
        ends.then_some(Repeated {
            circle: Circle::Outputs,
            times: self.same_outputs,
            reaction: Reaction::Break,
        })
    }

    /// Forgets everything: something new was asked for.
    pub fn clear(&mut self) {
        *self = Self::new(self.limits);
    }

    fn is_exempt(&self, read_only: bool) -> bool {
        read_only && self.limits.exempt_read_only
    }

    /// How often the call was made in a row, this time included.
    fn in_a_row(&self, call: u64) -> usize {
        1 + self.calls.iter().take_while(|made| made.call == call).count()
    }

    /// How many pairs of two different calls in turn this one completes.
    fn pairs(&self, call: u64) -> usize {
        let Some(other) = self.calls.front().map(|made| made.call).filter(|other| *other != call)
        else {
            return 0;
        };
        let in_turn = self.calls.iter().zip([other, call].into_iter().cycle());
        in_turn.take_while(|(made, expected)| made.call == *expected).count().div_ceil(2)
    }

    /// How often the tool has come to the result that it came to last, this time included, with at
    /// least two different arguments.
    fn same_results(&self, tool: u64, call: u64) -> usize {
        let Some(last) = self.calls.iter().find(|made| made.tool == tool) else { return 0 };
        let alike =
            self.calls.iter().filter(|made| (made.tool, made.result) == (tool, last.result));
        let (count, differ) = alike
            .fold((0, false), |(count, differ), made| (count + 1, differ || made.call != call));
        if differ { 1 + count } else { 0 }
    }
}

fn digest(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Calls as `tool argument result`, and what is said before each.
    #[track_caller]
    fn check(
        limits: RepetitionLimits,
        calls: &[&str],
        expected: &[Option<(Circle, usize, Reaction)>],
    ) {
        let mut repetition = Repetition::new(limits);
        let reactions: Vec<_> = calls
            .iter()
            .map(|call| {
                let [tool, argument, result] = call.split(' ').collect::<Vec<_>>()[..] else {
                    panic!("{call}")
                };
                let arguments = json!({ "a": argument });
                let read_only = tool == "read";
                let found = repetition.before(tool, &arguments, read_only);
                repetition.after(tool, &arguments, read_only, result);
                found.map(|found| (found.circle, found.times, found.reaction))
            })
            .collect();
        assert_eq!(reactions, expected, "{calls:?}");
    }

    const WARN: Reaction = Reaction::Warn;
    const BLOCK: Reaction = Reaction::Block;
    const BREAK: Reaction = Reaction::Break;

    #[test]
    fn the_same_call_again_and_again() {
        let limits = RepetitionLimits::default();
        let of = |times, reaction| Some((Circle::Calls, times, reaction));
        check(
            limits,
            &["w x 1", "w x 2", "w x 3", "w x 4", "w x 5"],
            &[None, None, of(3, WARN), of(4, BLOCK), of(5, BREAK)],
        );
        check(limits, &["w x 1", "w x 2", "w y 3", "w x 4", "w x 5"], &[None; 5]);
    }

    #[test]
    fn two_calls_in_turn() {
        let calls = [
            "e x 1", "t x 2", "e x 3", "t x 4", "e x 5", "t x 6", "e x 7", "t x 8", "e x 9",
            "t x a", "e x b", "t x c",
        ];
        let mut expected = [None; 12];
        let of = |times, reaction| Some((Circle::Pairs, times, reaction));
        (expected[7], expected[8]) = (of(4, WARN), of(4, WARN));
        (expected[9], expected[10], expected[11]) = (of(5, BLOCK), of(5, BLOCK), of(6, BREAK));
        check(RepetitionLimits::default(), &calls, &expected);
        // Each edit is another one: that is work.
        let work = [
            "e 1 a", "t x b", "e 2 c", "t x d", "e 3 e", "t x f", "e 4 g", "t x h", "e 5 i",
            "t x j",
        ];
        check(RepetitionLimits::default(), &work, &[None; 10]);
    }

    #[test]
    fn the_same_result_whatever_the_arguments() {
        let calls = ["g 1 no", "g 2 no", "r x 5", "g 3 no", "g 4 no", "g 5 no", "g 6 no", "g 7 no"];
        let of = |times, reaction| Some((Circle::Results, times, reaction));
        check(
            RepetitionLimits::default(),
            &calls,
            &[None, None, None, None, None, of(5, WARN), of(6, BLOCK), of(7, BREAK)],
        );
        check(
            RepetitionLimits::default(),
            &["g 1 a", "g 2 b", "g 3 c", "g 4 d", "g 5 e", "g 6 f"],
            &[None; 6],
        );
    }

    #[test]
    fn tools_that_only_read_can_be_left_alone() {
        let exempt = RepetitionLimits { exempt_read_only: true, ..RepetitionLimits::default() };
        check(exempt, &["read x 1"; 8], &[None; 8]);
        check(
            exempt,
            &["w x 1", "read x 1", "w x 1", "read x 1", "w x 1"],
            &[None, None, None, None, Some((Circle::Calls, 3, WARN))],
        );
    }

    #[test]
    fn what_lies_behind_the_window_is_forgotten() {
        let narrow = RepetitionLimits { window: 2, ..RepetitionLimits::default() };
        let warned = Some((Circle::Calls, 3, WARN));
        check(narrow, &["w x 1"; 6], &[None, None, warned, warned, warned, warned]);
        check(RepetitionLimits { window: 0, ..narrow }, &["w x 1"; 6], &[None; 6]);
    }

    #[test]
    fn a_level_of_zero_is_never_reached() {
        let never = Levels { warn: 0, block: 0, end: 0 };
        let limits = RepetitionLimits {
            calls: never,
            pairs: never,
            results: never,
            outputs: 0,
            ..RepetitionLimits::default()
        };
        check(limits, &["w x 1"; 30], &[None; 30]);
        let mut repetition = Repetition::new(limits);
        assert!((0..30).all(|_| repetition.said("again").is_none()));
    }

    #[test]
    fn the_same_words_end_it() {
        let mut repetition = Repetition::new(RepetitionLimits::default());
        let said: Vec<bool> = ["a", "a", "b", "b", "b", "b", "a"]
            .iter()
            .map(|words| repetition.said(words).is_some())
            .collect();
        assert_eq!(said, [false, false, false, false, true, true, false]);
        let mut repetition = Repetition::new(RepetitionLimits::default());
        assert!(repetition.said("a").or(repetition.said("a")).is_none());
        repetition.clear();
        assert!(repetition.said("a").or(repetition.said("a")).is_none());
    }

    #[test]
    fn arguments_are_compared_by_what_they_mean() {
        let mut repetition = Repetition::new(RepetitionLimits::default());
        for arguments in [r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#] {
            repetition.after(
                "w",
                &serde_json::from_str(arguments).expect("it is JSON"),
                false,
                "x",
            );
        }
        let found =
            repetition.before("w", &json!({ "b": 2, "a": 1 }), false).expect("the third time");
        assert_eq!(
            found.to_string(),
            "This call was made with the same arguments 3 times in a row. Do something else."
        );
        assert_eq!(repetition.before("w", &json!({ "b": "2", "a": 1 }), false), None);
        assert_eq!(repetition.before("v", &json!({ "b": 2, "a": 1 }), false), None);
    }
}
