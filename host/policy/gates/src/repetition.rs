//! Detects agents that repeat a call or an output.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde_json::Value;

use crate::canonical;

/// Limits above which repetitions are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepetitionLimits {
    /// Number of calls that are remembered.
    pub window: usize,
    /// Number of consecutive equal outputs of the model that end the loop. 0 means never.
    pub outputs: usize,
    /// Limits for consecutive equal calls with equal results.
    pub calls: Levels,
    /// Limits for two alternating calls, each with equal results. The unit is a pair of calls.
    pub pairs: Levels,
    /// Limits for calls of one tool with different arguments but the same result, anywhere in the
    /// window. Calls that only read are ignored, because many searches find nothing.
    pub results: Levels,
    /// Whether calls that only read are ignored, such as calls that poll.
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

/// Numbers of repetitions at which each reaction starts. 0 means never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Warn the model.
    pub warn: usize,
    /// Block the call.
    pub block: usize,
    /// End the loop.
    pub end: usize,
}

impl Levels {
    /// Returns the most severe reaction whose level is reached. Returns `None` if no level is
    /// reached. A level of 0 turns its reaction off.
    fn reaction(self, times: usize) -> Option<Reaction> {
        let most_severe_first = [
            (self.end, Reaction::Break),
            (self.block, Reaction::Block),
            (self.warn, Reaction::Warn),
        ];
        for (level, reaction) in most_severe_first {
            if level > 0 && times >= level {
                return Some(reaction);
            }
        }
        None
    }
}

/// The reaction to a repetition. Later variants are more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reaction {
    /// Run the call, and warn the model.
    Warn,
    /// Don't run the call, and tell the model why.
    Block,
    /// End the loop, and tell the user.
    Break,
}

/// Kind of a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepetitionKind {
    /// Equal outputs of the model.
    Outputs,
    /// Equal calls.
    Calls,
    /// Two calls that alternate.
    Pairs,
    /// Equal results for different arguments.
    Results,
}

/// A repetition that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated {
    /// Kind of the repetition.
    pub kind: RepetitionKind,
    /// Number of times, including the current one.
    pub times: usize,
    /// The reaction to the repetition.
    pub reaction: Reaction,
}

impl fmt::Display for Repeated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.times;
        match self.kind {
            RepetitionKind::Outputs => {
                write!(f, "Your last {times} messages were the same.")
            }
            RepetitionKind::Calls => write!(
                f,
                "This call was made with the same arguments {times} times in a row. Do something else."
            ),
            RepetitionKind::Pairs => {
                write!(f, "The same two calls have alternated {times} times. Do something else.")
            }
            RepetitionKind::Results => write!(
                f,
                "This tool has given the same result {times} times, with different arguments. Do \
                 something else."
            ),
        }
    }
}

/// Records the last calls and outputs of one agent, and detects repetitions.
///
/// A call whose result differs from the result of the previous equal call makes progress. It ends
/// all repetitions. For example, an agent that follows a job repeats its call until the job ends.
///
/// The host doesn't use repetitions for its own decisions. The program that runs the agent calls
/// [`before`](Self::before) before each call to get the reaction. It calls [`after`](Self::after)
/// with the result of each call.
///
/// ```
/// use toolhold_policy::{Reaction, Repetition, RepetitionLimits};
/// use serde_json::json;
///
/// let mut repetition = Repetition::new(RepetitionLimits::default());
/// let mut reactions = Vec::new();
/// for _ in 0..5 {
///     let arguments = json!({ "path": "src/main.rs" });
///     let found = repetition.before("read", &arguments, true);
///     reactions.push(found.map(|found| found.reaction));
///     // A blocked call isn't run and has no result, but it counts. A model that repeats it ends
///     // the loop.
///     let is_blocked = found.is_some_and(|found| found.reaction != Reaction::Warn);
///     let result = if is_blocked { None } else { Some("fn main() {}") };
///     repetition.after("read", &arguments, true, result);
/// }
/// assert_eq!(
///     reactions,
///     [None, None, Some(Reaction::Warn), Some(Reaction::Block), Some(Reaction::Break)],
/// );
/// ```
#[derive(Clone, Debug)]
pub struct Repetition {
    limits: RepetitionLimits,
    calls: VecDeque<MadeCall>,
    last_output: Option<u64>,
    same_outputs: usize,
}

/// A call that was made, as digests. A digest collision affects only the agent's own loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MadeCall {
    tool: u64,
    call: u64,
    /// Digest of the result. `None` if the call was blocked.
    result: Option<u64>,
    read_only: bool,
}

impl MadeCall {
    /// Checks whether two calls have the same result. A blocked call has no result, so it matches
    /// any result.
    fn has_result_of(&self, other: &Self) -> bool {
        self.result.is_none() || other.result.is_none() || self.result == other.result
    }
}

impl Repetition {
    /// Starts without remembered calls.
    pub fn new(limits: RepetitionLimits) -> Self {
        Self { limits, calls: VecDeque::new(), last_output: None, same_outputs: 0 }
    }

    /// Returns the reaction to the next call. Returns `None` if the call isn't a repetition.
    pub fn before(&self, tool: &str, arguments: &Value, read_only: bool) -> Option<Repeated> {
        if self.is_exempt(read_only) {
            return None;
        }
        let call = digest((tool, canonical(arguments)));
        // Many searches find nothing, so equal results of calls that only read aren't counted.
        let results = if read_only { 0 } else { self.count_results(digest(tool), call) };
        let counts = [
            (RepetitionKind::Calls, self.limits.calls, self.count_in_a_row(call)),
            (RepetitionKind::Pairs, self.limits.pairs, self.count_pairs(call)),
            (RepetitionKind::Results, self.limits.results, results),
        ];
        // If several reactions are equally severe, the first kind applies, because it is the most
        // specific.
        let mut most_severe: Option<Repeated> = None;
        for (kind, levels, times) in counts {
            if let Some(reaction) = levels.reaction(times)
                && most_severe.is_none_or(|known| reaction > known.reaction)
            {
                most_severe = Some(Repeated { kind, times, reaction });
            }
        }
        most_severe
    }

    /// Records a call with the result for the model. `result` is `None` if the call was blocked.
    /// The caller first removes parts of the result that always differ, such as random keys.
    pub fn after(&mut self, tool: &str, arguments: &Value, read_only: bool, result: Option<&str>) {
        if self.is_exempt(read_only) || self.limits.window == 0 {
            return;
        }
        let made = MadeCall {
            tool: digest(tool),
            call: digest((tool, canonical(arguments))),
            result: result.map(digest),
            read_only,
        };
        // A call with a new result makes progress, so an equal output after it isn't a repetition.
        if let Some(earlier) = self.calls.iter().find(|earlier| earlier.call == made.call)
            && !earlier.has_result_of(&made)
        {
            self.last_output = None;
        }
        // Keep one place of the window for the new call.
        self.calls.truncate(self.limits.window - 1);
        self.calls.push_front(made);
    }

    /// Returns the reaction to an output of the model. Returns `None` for too few equal outputs.
    /// The caller first removes parts of the output that always differ, such as IDs.
    pub fn check_output(&mut self, output: &str) -> Option<Repeated> {
        let output_digest = digest(output);
        if self.last_output == Some(output_digest) {
            self.same_outputs += 1;
        } else {
            self.same_outputs = 1;
        }
        self.last_output = Some(output_digest);
        let times = self.same_outputs;
        let is_checked = self.limits.outputs > 0;
        if !is_checked || times < self.limits.outputs {
            return None;
        }
        Some(Repeated { kind: RepetitionKind::Outputs, times, reaction: Reaction::Break })
    }

    /// Forgets all calls and outputs. Use this for a new task.
    pub fn clear(&mut self) {
        *self = Self::new(self.limits);
    }

    fn is_exempt(&self, read_only: bool) -> bool {
        read_only && self.limits.exempt_read_only
    }

    fn count_in_a_row(&self, call: u64) -> usize {
        1 + count_unchanged(self.calls.iter().take_while(|made| made.call == call))
    }

    /// Returns the number of pairs of two alternating calls with unchanged results. The next call
    /// `call` ends the last pair.
    fn count_pairs(&self, call: u64) -> usize {
        let Some(last) = self.calls.front() else { return 0 };
        if last.call == call {
            return 0;
        }
        // The newest call comes first. If the calls alternate, the even indexes have the other
        // call, and the odd indexes have earlier calls like `call`.
        let mut other_calls = Vec::new();
        let mut same_calls = Vec::new();
        for (index, made) in self.calls.iter().enumerate() {
            if index % 2 == 0 && made.call == last.call {
                other_calls.push(made);
            } else if index % 2 == 1 && made.call == call {
                same_calls.push(made);
            } else {
                break;
            }
        }
        // Only the calls before both of these indexes have unchanged results.
        let first_changed_other = 2 * count_unchanged(other_calls.into_iter());
        let first_changed_same = 2 * count_unchanged(same_calls.into_iter()) + 1;
        let unchanged = first_changed_other.min(first_changed_same);
        // The next call completes a pair with the call before it.
        unchanged.div_ceil(2)
    }

    /// Counts the calls of a tool that had the same result as its last call. The next call `call`
    /// is counted too. Returns 0 if all these calls have the same arguments.
    fn count_results(&self, tool: u64, call: u64) -> usize {
        let mut last_result = None;
        let mut times = 1;
        let mut has_other_arguments = false;
        // The newest call comes first, so its result is the last result.
        for made in &self.calls {
            if made.tool != tool || made.read_only {
                continue;
            }
            let expected = *last_result.get_or_insert(made.result);
            if made.result != expected {
                continue;
            }
            times += 1;
            if made.call != call {
                has_other_arguments = true;
            }
        }
        if has_other_arguments { times } else { 0 }
    }
}

/// Counts the first calls that all have the same result. A blocked call has no result, and is
/// counted too.
fn count_unchanged<'a>(calls: impl Iterator<Item = &'a MadeCall>) -> usize {
    let mut last_with_result: Option<&MadeCall> = None;
    let mut count = 0;
    for made in calls {
        if let Some(last) = last_with_result
            && !last.has_result_of(made)
        {
            break;
        }
        if made.result.is_some() {
            last_with_result = Some(made);
        }
        count += 1;
    }
    count
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

    /// Checks the reactions before calls that are written as `tool argument result`.
    #[track_caller]
    fn check(
        limits: RepetitionLimits,
        calls: &[&str],
        expected: &[Option<(RepetitionKind, usize, Reaction)>],
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
                repetition.after(tool, &arguments, read_only, Some(result).filter(|r| *r != "-"));
                found.map(|found| (found.kind, found.times, found.reaction))
            })
            .collect();
        assert_eq!(reactions, expected, "{calls:?}");
    }

    const WARN: Reaction = Reaction::Warn;
    const BLOCK: Reaction = Reaction::Block;
    const BREAK: Reaction = Reaction::Break;

    #[test]
    fn equal_calls_in_a_row_are_found() {
        let limits = RepetitionLimits::default();
        let repeated = |times, reaction| Some((RepetitionKind::Calls, times, reaction));
        check(
            limits,
            &["w x 1", "w x 1", "w x 1", "w x -", "w x -"],
            &[None, None, repeated(3, WARN), repeated(4, BLOCK), repeated(5, BREAK)],
        );
        check(limits, &["w x 1", "w x 1", "w y 2", "w x 1", "w x 1"], &[None; 5]);
        // After a change, it begins again.
        check(
            limits,
            &["w x 1", "w x 1", "w x 2", "w x 2", "w x 2", "w x -"],
            &[None, None, repeated(3, WARN), None, repeated(3, WARN), repeated(4, BLOCK)],
        );
    }

    #[test]
    fn alternating_calls_are_found() {
        let calls = [
            "e x 1", "t x 2", "e x 1", "t x 2", "e x 1", "t x 2", "e x 1", "t x 2", "e x 1",
            "t x -", "e x -", "t x -",
        ];
        let mut expected = [None; 12];
        let repeated = |times, reaction| Some((RepetitionKind::Pairs, times, reaction));
        (expected[7], expected[8]) = (repeated(4, WARN), repeated(4, WARN));
        (expected[9], expected[10]) = (repeated(5, BLOCK), repeated(5, BLOCK));
        expected[11] = repeated(6, BREAK);
        check(RepetitionLimits::default(), &calls, &expected);
        // One of them always has the same result, and the other one has news.
        let poll = [
            "e x 1", "t x 2", "e x 3", "t x 2", "e x 4", "t x 2", "e x 5", "t x 2", "e x 6",
            "t x 2", "e x 7", "t x 2",
        ];
        check(RepetitionLimits::default(), &poll, &[None; 12]);
        // Each edit is different, so the agent makes progress.
        let work = [
            "e 1 a", "t x b", "e 2 c", "t x d", "e 3 e", "t x f", "e 4 g", "t x h", "e 5 i",
            "t x j",
        ];
        check(RepetitionLimits::default(), &work, &[None; 10]);
    }

    #[test]
    fn equal_results_for_different_arguments_are_found() {
        let calls = ["g 1 no", "g 2 no", "r x 5", "g 3 no", "g 4 no", "g 5 no", "g 6 no", "g 7 no"];
        let repeated = |times, reaction| Some((RepetitionKind::Results, times, reaction));
        check(
            RepetitionLimits::default(),
            &calls,
            &[
                None,
                None,
                None,
                None,
                None,
                repeated(5, WARN),
                repeated(6, BLOCK),
                repeated(7, BREAK),
            ],
        );
        check(
            RepetitionLimits::default(),
            &["g 1 a", "g 2 b", "g 3 c", "g 4 d", "g 5 e", "g 6 f"],
            &[None; 6],
        );
        let searches =
            ["read 1 no", "read 2 no", "read 3 no", "read 4 no", "read 5 no", "read 6 no"];
        check(RepetitionLimits::default(), &searches, &[None; 6]);
    }

    #[test]
    fn read_only_tools_can_be_exempt() {
        let exempt = RepetitionLimits { exempt_read_only: true, ..RepetitionLimits::default() };
        check(exempt, &["read x 1"; 8], &[None; 8]);
        check(
            exempt,
            &["w x 1", "read x 1", "w x 1", "read x 1", "w x 1"],
            &[None, None, None, None, Some((RepetitionKind::Calls, 3, WARN))],
        );
    }

    #[test]
    fn calls_before_the_window_are_forgotten() {
        let narrow = RepetitionLimits { window: 2, ..RepetitionLimits::default() };
        let warned = Some((RepetitionKind::Calls, 3, WARN));
        check(narrow, &["w x 1"; 6], &[None, None, warned, warned, warned, warned]);
        check(RepetitionLimits { window: 0, ..narrow }, &["w x 1"; 6], &[None; 6]);
    }

    #[test]
    fn level_of_zero_is_never_reached() {
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
        assert!((0..30).all(|_| repetition.check_output("again").is_none()));
    }

    #[test]
    fn equal_outputs_end_the_loop() {
        let mut repetition = Repetition::new(RepetitionLimits::default());
        let ends: Vec<bool> = ["a", "a", "b", "b", "b", "b", "a"]
            .iter()
            .map(|words| repetition.check_output(words).is_some())
            .collect();
        assert_eq!(ends, [false, false, false, false, true, true, false]);
        let mut repetition = Repetition::new(RepetitionLimits::default());
        assert!(repetition.check_output("a").or(repetition.check_output("a")).is_none());
        repetition.clear();
        assert!(repetition.check_output("a").or(repetition.check_output("a")).is_none());
    }

    #[test]
    fn call_with_a_new_result_each_time_is_no_repetition() {
        let follow = json!({ "id": "job", "wait": 1 });
        let mut repetition = Repetition::new(RepetitionLimits::default());
        for step in 0..30 {
            assert_eq!(repetition.check_output("waiting\njob_output"), None);
            assert_eq!(repetition.before("job_output", &follow, false), None);
            repetition.after("job_output", &follow, false, Some(&format!("step {step}")));
        }
        // Nothing new comes any more.
        let ended = (0..5).position(|_| {
            let ends = repetition.check_output("waiting\njob_output").is_some();
            repetition.after("job_output", &follow, false, Some("step 29"));
            ends
        });
        assert_eq!(ended, Some(2));
    }

    #[test]
    fn arguments_are_compared_by_their_canonical_form() {
        let mut repetition = Repetition::new(RepetitionLimits::default());
        for arguments in [r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#] {
            repetition.after(
                "w",
                &serde_json::from_str(arguments).expect("valid JSON"),
                false,
                Some("x"),
            );
        }
        let found =
            repetition.before("w", &json!({ "b": 2, "a": 1 }), false).expect("a repetition");
        assert_eq!(
            found.to_string(),
            "This call was made with the same arguments 3 times in a row. Do something else."
        );
        assert_eq!(repetition.before("w", &json!({ "b": "2", "a": 1 }), false), None);
        assert_eq!(repetition.before("v", &json!({ "b": 2, "a": 1 }), false), None);
    }
}
