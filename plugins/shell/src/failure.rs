//! Failures of commands.
//!
//! Every exit code other than 0 is a permanent failure: the same command, as things are, would end
//! in the same way. That goes for 127 (no such command), for 126 (it could not be executed) and for
//! what says `permission denied` or `no such file or directory` on its standard error as for
//! everything else. Only the host reports refusals by a rule. A program that prints `permission
//! denied`, or exits with 126, proves no refusal, since any program can do that.

use std::time::Duration;

use berth_sdk::process::{Ending, Finished};
use berth_sdk::{Category, Failure};

use crate::envelope::add_notice;

/// The failure, without the output.
pub(crate) fn from_finished(finished: &Finished, took: Duration) -> Failure {
    let (failure, advice) = match finished.ending {
        Ending::Exited => {
            let code = finished.exit_code.unwrap_or(-1);
            let failure = Failure::permanent("exit-status", format!("Exit code: {code}"));
            let advice = match code {
                126 => "The file exists and can't be executed: check its mode and its first line.",
                127 if finished.output.stderr.windows(9).any(|said| said == b"not found") => {
                    "A command was not found: check its name, and whether it is installed."
                }
                _ => "",
            };
            (failure, advice)
        }
        Ending::Timeout => {
            let message =
                format!("its time was up: the command was ended after {} s", took.as_secs());
            let failure = Failure::new(Category::Timeout, message);
            (failure, "Do less at once, or give it more time: `timeout` is in seconds.")
        }
        Ending::Cancelled => (
            Failure::permanent("ended", "the command was ended"),
            "Go on only if it is asked for again.",
        ),
        Ending::Memory => bound_failure(
            "memory",
            "took more memory than they may",
            "Do less at once; `memory_mib` in [tools.shell.limits] is the bound.",
        ),
        Ending::Processes => bound_failure(
            "processes",
            "were more processes than they may be",
            "Start fewer at once; `processes` in [tools.shell.limits] is the bound.",
        ),
        Ending::Processor => bound_failure(
            "processor-time",
            "took more processor time than they may",
            "Do less at once; `cpu_secs` in [tools.shell.limits] is the bound.",
        ),
        Ending::Output => bound_failure(
            "endless-output",
            "wrote more than anybody will read",
            "Write to a file, or have less of it written: no key of the configuration raises that bound.",
        ),
    };
    // The host's notices are more specific than general advice.
    let suggestion =
        if finished.notices.is_empty() { advice.to_owned() } else { finished.notices.join("\n") };
    if suggestion.is_empty() { failure } else { failure.with_suggestion(suggestion) }
}

fn bound_failure(code: &'static str, what: &str, advice: &'static str) -> (Failure, &'static str) {
    (
        Failure::permanent(code, format!("the command and what it started {what}, and were ended")),
        advice,
    )
}

/// Adds the host's notices about a command that succeeded.
pub(crate) fn add_notices(text: &mut String, notices: &[String]) {
    notices.iter().for_each(|notice| add_notice(text, notice));
}

#[cfg(test)]
mod tests {
    use berth_sdk::process::Output;

    use super::*;

    fn failure(ending: Ending, notices: &[&str]) -> Failure {
        let notices = notices.iter().map(|notice| (*notice).to_owned()).collect();
        from_finished(
            &Finished { exit_code: None, ending, notices, output: Output::default() },
            Duration::from_millis(30_400),
        )
    }

    #[test]
    fn every_bound_names_the_key_that_moves_it() {
        for (ending, key) in [
            (Ending::Memory, "memory_mib"),
            (Ending::Processes, "processes"),
            (Ending::Processor, "cpu_secs"),
        ] {
            let failure = failure(ending, &[]);
            assert_eq!(failure.category, Category::PermanentFailure);
            assert!(
                failure
                    .suggestion
                    .is_some_and(|told| told.contains(&format!("`{key}` in [tools.shell.limits]"))),
                "{key}"
            );
        }
    }

    #[test]
    fn a_time_that_was_up_is_a_timeout() {
        let failure = failure(Ending::Timeout, &[]);
        assert_eq!((failure.category, failure.code), (Category::Timeout, None));
        assert_eq!(failure.message, "its time was up: the command was ended after 30 s");
    }

    #[test]
    fn what_the_host_knows_is_what_to_try() {
        let failure = failure(Ending::Exited, &["To grant it: network = \"allow\"", "and more"]);
        assert_eq!(
            failure.suggestion.as_deref(),
            Some("To grant it: network = \"allow\"\nand more")
        );
    }
}
