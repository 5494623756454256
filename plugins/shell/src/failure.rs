//! Makes the failure of a command from how it ended, with the host's notices.
//!
//! Every exit code other than 0 is a permanent failure: the same command would end in the same way
//! again. This includes 127 (command not found), 126 (not executable), and commands that write
//! `permission denied` or `no such file or directory` to standard error. Only the host reports
//! refusals by a rule. A program that prints `permission denied`, or exits with 126, proves no
//! refusal, since any program can do that.

use std::time::Duration;

use toolhold_sdk::process::{Ending, Finished};
use toolhold_sdk::{Category, Failure, add_notice};

/// The failure, without the output.
pub(crate) fn from_finished(finished: &Finished, took: Duration) -> Failure {
    let (failure, advice) = match finished.ending {
        Ending::Exited => {
            let code = finished.exit_code.unwrap_or(-1);
            let failure = Failure::permanent("exit-status", format!("Exit code: {code}"));
            let advice = match code {
                126 => {
                    "The program exists but can't be executed: check its mode and its first line."
                }
                127 if finished.output.stderr.windows(9).any(|said| said == b"not found") => {
                    "A command was not found: check its name, and whether it is installed."
                }
                _ => "",
            };
            (failure, advice)
        }
        Ending::Timeout => {
            let message = format!(
                "the command reached its time limit and was stopped after {:.0} s",
                took.as_secs_f64()
            );
            let failure = Failure::new(Category::Timeout, message);
            (failure, "Do less at once, or set a higher `timeout`, in seconds.")
        }
        Ending::Cancelled => (
            Failure::permanent("ended", "the command was cancelled"),
            "Run it again only if the user asks for it.",
        ),
        Ending::Memory => bound_failure(
            "memory",
            "memory",
            "Do less at once. The limit is `memory_mib` in [tools.shell.limits].",
        ),
        Ending::Processes => bound_failure(
            "processes",
            "processes",
            "Start fewer at once. The limit is `processes` in [tools.shell.limits].",
        ),
        Ending::Processor => bound_failure(
            "processor-time",
            "processor time",
            "Do less at once. The limit is `cpu_secs` in [tools.shell.limits].",
        ),
        Ending::Output => bound_failure(
            "endless-output",
            "output",
            "Write to a file, or make the command write less. No key of the configuration raises this limit.",
        ),
        Ending::Other => (Failure::permanent("ended", "the host stopped the command"), ""),
    };
    // The host's notices are more specific than general advice.
    let suggestion =
        if finished.notices.is_empty() { advice.to_owned() } else { finished.notices.join("\n") };
    if suggestion.is_empty() { failure } else { failure.with_suggestion(suggestion) }
}

fn bound_failure(code: &'static str, what: &str, advice: &'static str) -> (Failure, &'static str) {
    (
        Failure::permanent(
            code,
            format!(
                "the command and the programs that it started reached the limit of {what} and were stopped"
            ),
        ),
        advice,
    )
}

/// Adds the host's notices about a command that succeeded.
pub(crate) fn add_notices(text: &mut String, notices: &[String]) {
    notices.iter().for_each(|notice| add_notice(text, notice));
}

#[cfg(test)]
mod tests {
    use toolhold_sdk::process::Output;

    use super::*;

    fn failure(ending: Ending, notices: &[&str]) -> Failure {
        let notices = notices.iter().map(|notice| (*notice).to_owned()).collect();
        from_finished(
            &Finished { exit_code: None, ending, notices, output: Output::default() },
            Duration::from_millis(30_400),
        )
    }

    #[test]
    fn every_limit_names_its_key() {
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
    fn reached_time_limit_is_a_timeout() {
        let failure = failure(Ending::Timeout, &[]);
        assert_eq!((failure.category, failure.code), (Category::Timeout, None));
        assert_eq!(
            failure.message,
            "the command reached its time limit and was stopped after 30 s"
        );
    }

    #[test]
    fn notices_of_the_host_replace_general_advice() {
        let failure = failure(Ending::Exited, &["To grant it: network = \"allow\"", "and more"]);
        assert_eq!(
            failure.suggestion.as_deref(),
            Some("To grant it: network = \"allow\"\nand more")
        );
    }
}
