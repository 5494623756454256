//! Finds agents that go in circles: the same call again, two calls in turn, other arguments with
//! the same result, the same answer again.
//!
//! A [`Detector`] looks at each call before it is made, and at each result. It warns first, then
//! blocks, then stops. Only hashes are kept, whose key is random for each detector: no model can
//! make two calls look the same, or one look like two.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};

use berth_contract::text::{counted, cut, neutral_line};
use serde_json::Value;

/// How many of the last calls count.
const WINDOW: usize = 20;

/// Equal answers of the model in a row after which it stops.
const EQUAL_ANSWERS: usize = 3;

/// From how many repetitions a rule warns, blocks and stops.
#[derive(Clone, Copy)]
struct Limits {
    warn: usize,
    block: usize,
    stop: usize,
}

const EXACT_REPEAT: Limits = Limits { warn: 3, block: 4, stop: 5 };
const PING_PONG: Limits = Limits { warn: 4, block: 5, stop: 6 };
const NO_PROGRESS: Limits = Limits { warn: 5, block: 6, stop: 7 };

/// What becomes of a call or a result. The texts are for the model; that of `Stop` for the person
/// too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RepeatVerdict {
    /// It goes on.
    Continue,
    /// It goes on, and the text stands at the end of the result.
    Warn(String),
    /// The call isn't made, or its result isn't given on: the text takes its place.
    Block(String),
    /// The turn ends.
    Stop(String),
}

/// Looks at the calls of one session.
#[derive(Debug, Default)]
pub struct Detector {
    calls: VecDeque<Entry>,
    /// Tools that wait for something: the same call again is progress if its result is another one.
    polling: BTreeSet<String>,
    last_answer: Option<(u64, usize)>,
    keys: RandomState,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    tool: u64,
    /// The hash of the tool and its arguments.
    call: u64,
    /// The hash of the result. `None` before it is there, and for a call that was blocked.
    result: Option<u64>,
    /// How severe the verdict about the result was.
    severity: u8,
}

impl Detector {
    /// A detector without calls. `polling` names the tools that wait for something, such as
    /// `job_output`.
    pub fn new<'a>(polling: impl IntoIterator<Item = &'a str>) -> Self {
        Self { polling: polling.into_iter().map(str::to_owned).collect(), ..Self::default() }
    }

    /// Looks at a call before it is made. Calls that are blocked count too.
    pub fn observe_call(&mut self, name: &str, arguments: &Value) -> RepeatVerdict {
        let entry = Entry {
            tool: self.hash_tool(name),
            call: self.hash_call(name, arguments),
            result: None,
            severity: 0,
        };
        if self.calls.len() == WINDOW {
            self.calls.pop_front();
        }
        self.calls.push_back(entry);
        self.judge_exact_repeat(name).max(self.judge_ping_pong())
    }

    /// Looks at the result of a call that was made. Leave out the result of a call that changed
    /// something: that is progress, whatever its text.
    pub fn observe_result(&mut self, name: &str, arguments: &Value, result: &str) -> RepeatVerdict {
        let (tool, call) = (self.hash_tool(name), self.hash_call(name, arguments));
        let result = self.hash(|hasher| hash_text(hasher, result));
        let is_open = |entry: &Entry| entry.call == call && entry.result.is_none();
        let Some(at) = self.calls.iter().position(is_open) else { return RepeatVerdict::Continue };
        self.calls[at].result = Some(result);
        let same = self.calls.iter().filter(|one| one.tool == tool && one.result == Some(result));
        if same.clone().all(|other| other.call == call) {
            return RepeatVerdict::Continue;
        }
        // Many results can become the same at once, by the first call with other arguments. The
        // model is warned first in any case.
        let severity = same.clone().map(|entry| entry.severity).max().unwrap_or(0);
        let count = same.count().min(NO_PROGRESS.warn + usize::from(severity));
        let verdict = NO_PROGRESS.judge(count, || {
            format!(
                "Rule no_progress: {} gave the same result with different arguments, {count} of \
                 the last {}. Other arguments won't help: use another tool, or say what is missing.",
                quote(name),
                counted(self.calls.len(), "call")
            )
        });
        self.calls[at].severity = verdict.severity();
        verdict
    }

    /// Looks at what the model wrote in one answer: its text and its calls, without ids.
    pub fn observe_answer(&mut self, answer: &str) -> RepeatVerdict {
        let answer = self.hash(|hasher| hash_text(hasher, answer.trim()));
        let count = match self.last_answer {
            Some((last, count)) if last == answer => count + 1,
            _ => 1,
        };
        self.last_answer = Some((answer, count));
        if count < EQUAL_ANSWERS {
            return RepeatVerdict::Continue;
        }
        RepeatVerdict::Stop(format!(
            "Rule equal_answers: the model gave the same answer {count} times in a row. Give it \
             another task, or more to go on."
        ))
    }

    fn judge_exact_repeat(&self, name: &str) -> RepeatVerdict {
        let Some(newest) = self.calls.back() else { return RepeatVerdict::Continue };
        let same = self.calls.iter().rev().take_while(|entry| entry.call == newest.call);
        let count = if self.polling.contains(name) {
            let mut before = same.skip(1);
            match before.next() {
                None => 1,
                Some(last) => 2 + before.take_while(|entry| entry.result == last.result).count(),
            }
        } else {
            same.count()
        };
        EXACT_REPEAT.judge(count, || {
            format!(
                "Rule exact_repeat: {} was called {count} times in a row with the same arguments. \
                 Use the result that is there, or do something else.",
                quote(name)
            )
        })
    }

    /// Two different calls in turn.
    fn judge_ping_pong(&self) -> RepeatVerdict {
        let calls: Vec<u64> = self.calls.iter().rev().map(|entry| entry.call).collect();
        let [newest, other, ..] = calls[..] else { return RepeatVerdict::Continue };
        if newest == other {
            return RepeatVerdict::Continue;
        }
        let pair = [newest, other];
        let length =
            calls.iter().zip(pair.iter().cycle()).take_while(|(call, one)| call == one).count();
        let cycles = length / 2;
        PING_PONG.judge(cycles, || {
            format!(
                "Rule ping_pong: the same two calls were made in turn {cycles} times. Nothing \
                 changes between them: do something else, or say what is missing."
            )
        })
    }

    fn hash_tool(&self, name: &str) -> u64 {
        self.hash(|hasher| hash_text(hasher, name))
    }

    fn hash_call(&self, name: &str, arguments: &Value) -> u64 {
        self.hash(|hasher| {
            hash_text(hasher, name);
            self.hash_value(hasher, arguments);
        })
    }

    fn hash(&self, write: impl FnOnce(&mut DefaultHasher)) -> u64 {
        let mut hasher = self.keys.build_hasher();
        write(&mut hasher);
        hasher.finish()
    }

    /// Hashes a value by what it means: the order of keys doesn't count, nor whether a whole number
    /// has a decimal point. Each value has a tag for its type, and its length before its content,
    /// so that no two values have the same bytes.
    fn hash_value(&self, hasher: &mut DefaultHasher, value: &Value) {
        match value {
            Value::Null => hasher.write_u8(0),
            Value::Bool(value) => hasher.write(&[1, u8::from(*value)]),
            Value::Number(number) => {
                let whole = number.as_i128().or_else(|| to_whole(number.as_f64()?));
                if let Some(whole) = whole {
                    hasher.write_u8(2);
                    hasher.write_i128(whole);
                } else {
                    hasher.write_u8(3);
                    hasher.write_u64(number.as_f64().unwrap_or(f64::NAN).to_bits());
                }
            }
            Value::String(text) => {
                hasher.write_u8(4);
                hash_text(hasher, text);
            }
            Value::Array(items) => {
                hasher.write_u8(5);
                hasher.write_usize(items.len());
                items.iter().for_each(|item| self.hash_value(hasher, item));
            }
            Value::Object(fields) => {
                hasher.write_u8(6);
                hasher.write_usize(fields.len());
                let mut fields: Vec<_> = fields.iter().collect();
                fields.sort_unstable_by_key(|(key, _)| *key);
                for (key, value) in fields {
                    hash_text(hasher, key);
                    self.hash_value(hasher, value);
                }
            }
        }
    }
}

impl RepeatVerdict {
    fn severity(&self) -> u8 {
        match self {
            Self::Continue => 0,
            Self::Warn(_) => 1,
            Self::Block(_) => 2,
            Self::Stop(_) => 3,
        }
    }
}

impl Limits {
    fn judge(self, count: usize, text: impl Fn() -> String) -> RepeatVerdict {
        match count {
            _ if count >= self.stop => RepeatVerdict::Stop(text()),
            _ if count >= self.block => {
                RepeatVerdict::Block(format!("{} This one was blocked.", text()))
            }
            _ if count >= self.warn => {
                RepeatVerdict::Warn(format!("{} The next one is blocked.", text()))
            }
            _ => RepeatVerdict::Continue,
        }
    }
}

/// A number without a fraction. Above 2^53, a floating-point number doesn't say which one it is.
fn to_whole(number: f64) -> Option<i128> {
    (number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0).then_some(number as i128)
}

fn hash_text(hasher: &mut DefaultHasher, text: &str) {
    hasher.write_usize(text.len());
    hasher.write(text.as_bytes());
}

/// The name of a tool as a model wrote it.
fn quote(name: &str) -> String {
    format!("`{}`", neutral_line(cut(name, 64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// The verdicts in short: `.` continue, `w` warn, `b` block, `s` stop.
    fn short(verdict: &RepeatVerdict) -> char {
        match verdict {
            RepeatVerdict::Continue => '.',
            RepeatVerdict::Warn(_) => 'w',
            RepeatVerdict::Block(_) => 'b',
            RepeatVerdict::Stop(_) => 's',
        }
    }

    fn calls(detector: &mut Detector, calls: &[(&str, Value)]) -> String {
        calls.iter().map(|(name, value)| short(&detector.observe_call(name, value))).collect()
    }

    #[test]
    fn same_call_in_a_row_is_warned_blocked_and_stopped() {
        let mut detector = Detector::default();
        let call = ("read", json!({ "path": "a" }));
        assert_eq!(calls(&mut detector, &vec![call.clone(); 6]), "..wbss");
        let other = ("read", json!({ "path": "b" }));
        assert_eq!(
            calls(&mut detector, &[other, call.clone(), call.clone(), call]),
            "...w",
            "another call begins a new row"
        );
    }

    #[test]
    fn texts_name_the_rule_and_what_to_do() {
        let mut detector = Detector::default();
        let call = |detector: &mut Detector| detector.observe_call("re`ad\n\u{1b}", &json!({}));
        call(&mut detector);
        call(&mut detector);
        let RepeatVerdict::Warn(text) = call(&mut detector) else { panic!("no warning") };
        assert_eq!(
            text,
            "Rule exact_repeat: `re`ad \u{fffd}` was called 3 times in a row with the same \
             arguments. Use the result that is there, or do something else. The next one is blocked."
        );
        let RepeatVerdict::Block(text) = call(&mut detector) else { panic!("not blocked") };
        assert!(text.ends_with("This one was blocked."), "{text}");
    }

    #[test]
    fn spelling_of_arguments_hides_no_repetition() {
        let mut detector = Detector::default();
        let spellings = [
            r#"{"a": 1, "b": {"x": [1, 2.0], "y": null}}"#,
            r#"{"b": {"y": null, "x": [1.0, 2]}, "a": 1.0}"#,
            r#"{"b":{"x":[1e0,2],"y":null},"a":10e-1}"#,
        ];
        let read = |text: &str| ("t", serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(calls(&mut detector, &spellings.map(read)), "..w");
        assert_eq!(
            calls(&mut detector, &[("t", json!(-0.0)), ("t", json!(0)), ("t", json!(0.0))]),
            "..w"
        );
    }

    #[test]
    fn different_values_are_different_calls() {
        let values = [
            json!(1),
            json!("1"),
            json!(true),
            json!(null),
            json!([]),
            json!({}),
            json!([1]),
            json!([[1]]),
            json!(["ab", "c"]),
            json!(["a", "bc"]),
            json!({ "a": "b" }),
            json!({ "ab": "" }),
            json!(1.5),
            json!(u64::MAX),
            json!(u64::MAX - 1),
            json!(i64::MIN),
            json!(1e300),
        ];
        let detector = Detector::default();
        let hashes: BTreeSet<u64> =
            values.iter().map(|value| detector.hash_call("t", value)).collect();
        assert_eq!(hashes.len(), values.len());
        assert_ne!(detector.hash_call("ab", &json!("c")), detector.hash_call("a", &json!("bc")));
    }

    #[test]
    fn two_calls_in_turn_are_found() {
        let mut detector = Detector::default();
        let pair = [("edit", json!({ "path": "a" })), ("bash", json!({ "command": "make" }))];
        let turns: Vec<_> = pair.iter().cycle().take(13).cloned().collect();
        assert_eq!(calls(&mut detector, &turns), ".......wwbbss");
    }

    #[test]
    fn work_that_goes_on_is_no_circle() {
        let mut detector = Detector::default();
        for step in 0..100 {
            let edit = json!({ "path": "a", "text": step });
            assert_eq!(detector.observe_call("edit", &edit), RepeatVerdict::Continue);
            let test = json!({ "command": "make" });
            assert_eq!(detector.observe_call("bash", &test), RepeatVerdict::Continue);
            let output = format!("failure {step}");
            assert_eq!(detector.observe_result("bash", &test, &output), RepeatVerdict::Continue);
        }
    }

    #[test]
    fn same_result_of_different_calls_is_no_progress() {
        let mut detector = Detector::default();
        let mut verdicts = String::new();
        for step in 0..8 {
            let arguments = json!({ "pattern": step });
            assert_eq!(detector.observe_call("grep", &arguments), RepeatVerdict::Continue);
            verdicts.push(short(&detector.observe_result("grep", &arguments, "no matches")));
        }
        assert_eq!(verdicts, "....wbss");
        let arguments = json!({ "pattern": 9 });
        detector.observe_call("find_path", &arguments);
        let other = detector.observe_result("find_path", &arguments, "no matches");
        assert_eq!(other, RepeatVerdict::Continue, "another tool is another way");
    }

    #[test]
    fn results_without_a_call_count_for_nothing() {
        let mut detector = Detector::default();
        for step in 0..50 {
            let verdict = detector.observe_result("grep", &json!(step), "same");
            assert_eq!(verdict, RepeatVerdict::Continue);
        }
    }

    #[test]
    fn polling_is_no_repetition_while_results_change() {
        let mut detector = Detector::new(["job_output"]);
        let arguments = json!({ "id": 1 });
        for step in 0..30 {
            assert_eq!(detector.observe_call("job_output", &arguments), RepeatVerdict::Continue);
            detector.observe_result("job_output", &arguments, &format!("line {step}"));
        }
        let mut verdicts = String::new();
        for _ in 0..5 {
            verdicts.push(short(&detector.observe_call("job_output", &arguments)));
            detector.observe_result("job_output", &arguments, "silent");
        }
        assert_eq!(verdicts, "..wbs");
    }

    #[test]
    fn three_equal_answers_stop() {
        let mut detector = Detector::default();
        let mut answers = |texts: &[&str]| -> String {
            texts.iter().map(|text| short(&detector.observe_answer(text))).collect()
        };
        assert_eq!(answers(&["a", "a", "b", "a", "a\n", " a", "a", "b"]), ".....ss.");
    }

    #[test]
    fn huge_arguments_leave_only_hashes() {
        let mut detector = Detector::default();
        let huge = json!({ "content": "x".repeat(5_000_000), "rows": vec![0; 100_000] });
        assert_eq!(calls(&mut detector, &vec![("write", huge); 4]), "..wb");
        for step in 0..10_000 {
            detector.observe_call("read", &json!(step));
        }
        assert_eq!(detector.calls.len(), WINDOW);
    }

    proptest! {
        #[test]
        fn no_call_is_stopped_that_was_not_warned_of(
            steps in prop::collection::vec((0..3_u8, 0..3_u8), 0..60),
        ) {
            let mut detector = Detector::default();
            let mut worst = 0;
            for (argument, result) in steps {
                let (arguments, result) = (json!(argument), result.to_string());
                let call = detector.observe_call("t", &arguments).severity();
                prop_assert!(call <= worst + 1);
                worst = worst.max(call);
                if call < 2 {
                    let result = detector.observe_result("t", &arguments, &result).severity();
                    prop_assert!(result <= worst + 1);
                    worst = worst.max(result);
                }
            }
        }
    }
}
