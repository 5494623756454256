//! Pure computation in components that the plugin brings along: its parts. The plugin asks for
//! `parts` in its manifest, and names each one there with its SHA-256.
//!
//! ```no_run
//! # fn main() -> Result<(), toolhold_sdk::Failure> {
//! use toolhold_sdk::parts;
//!
//! let inputs = vec![b"one".to_vec(), b"two".to_vec()];
//! for answer in parts::run("count", inputs) {
//!     let bytes = answer?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A part is a component that exports `toolhold:tool/part`. It has no capabilities: what it answers
//! follows from its input. The host runs it on several inputs at a time, each with 2 s of processor
//! time and 256 MiB of memory; one that fails doesn't disturb the others.
//!
//! In unit tests, [`testing::set_part`](crate::testing::set_part) says what a part answers.

use crate::HostError;

/// Runs a part on each of the inputs, at most 4,096. The results have their order.
pub fn run(part: &str, inputs: Vec<Vec<u8>>) -> Vec<Result<Vec<u8>, HostError>> {
    host::run(part, inputs)
}

#[cfg(target_arch = "wasm32")]
mod host {
    use super::HostError;
    use crate::contract::bindings::toolhold::host::parts;

    pub(super) fn run(part: &str, inputs: Vec<Vec<u8>>) -> Vec<Result<Vec<u8>, HostError>> {
        let results = parts::run(part, &inputs).into_iter();
        results
            .map(|result| {
                result.map_err(|error| HostError::new("parts", error.code, error.message))
            })
            .collect()
    }
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod host {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::HostError;

    /// The stand-in for a part in unit tests.
    pub(crate) type Standin = fn(&[u8]) -> Result<Vec<u8>, String>;

    thread_local! {
        static PARTS: RefCell<BTreeMap<String, Standin>> = const { RefCell::new(BTreeMap::new()) };
    }

    pub(crate) fn set(part: &str, standin: Standin) {
        PARTS.with_borrow_mut(|parts| parts.insert(part.to_owned(), standin));
    }

    pub(super) fn run(part: &str, inputs: Vec<Vec<u8>>) -> Vec<Result<Vec<u8>, HostError>> {
        let standin = PARTS.with_borrow(|parts| parts.get(part).copied());
        inputs
            .into_iter()
            .map(|input| match standin {
                Some(standin) => {
                    standin(&input).map_err(|message| HostError::new("parts", "failed", message))
                }
                None => {
                    let message = format!("the part `{part}` is missing");
                    Err(HostError::new("parts", "unavailable", message))
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    #[test]
    fn standin_answers_each_input_by_itself() {
        crate::testing::set_part("upper", |input| match input {
            b"" => Err("it is empty".to_owned()),
            input => Ok(input.to_ascii_uppercase()),
        });
        let answers = run("upper", vec![b"a".to_vec(), Vec::new(), b"b".to_vec()]);
        assert_eq!((&answers[0], &answers[2]), (&Ok(b"A".to_vec()), &Ok(b"B".to_vec())));
        let failure = Failure::from(answers[1].clone().unwrap_err());
        assert_eq!(failure.code.as_deref(), Some("parts-failed"));
        assert_eq!(run("lower", vec![Vec::new()])[0].as_ref().unwrap_err().code, "unavailable");
    }
}
