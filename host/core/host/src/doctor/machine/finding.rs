//! A finding of `toolhold doctor` with its state, and the report of all findings. Each check has a
//! time limit.

use std::time::Duration;

use serde::Serialize;
use toolhold_contract::text::neutral_line;

/// The state of one finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The checked part works, or the problem has no consequence.
    Ok,
    /// Toolhold works, but a part of it is slower, missing or close to its limit.
    Warning,
    /// Toolhold doesn't work or isn't safe.
    Failure,
}

/// One finding. Each of its texts is one line without control characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The group of the finding.
    pub group: &'static str,
    /// The name of the check.
    pub name: String,
    /// The state of the finding.
    pub state: State,
    /// The result.
    pub found: String,
    /// A command or a line of the configuration that fixes the problem. Always present unless the
    /// state is `Ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    /// Makes a finding that all is well.
    pub fn ok(name: impl Into<String>, found: impl AsRef<str>) -> Self {
        Self::new(name.into(), State::Ok, found.as_ref(), None)
    }

    /// Creates a finding about a part that could be better.
    pub fn warning(name: impl Into<String>, found: impl AsRef<str>, fix: impl AsRef<str>) -> Self {
        Self::new(name.into(), State::Warning, found.as_ref(), Some(fix.as_ref()))
    }

    /// Makes a finding that something doesn't work or isn't safe.
    pub fn failure(name: impl Into<String>, found: impl AsRef<str>, fix: impl AsRef<str>) -> Self {
        Self::new(name.into(), State::Failure, found.as_ref(), Some(fix.as_ref()))
    }

    fn new(name: String, state: State, found: &str, fix: Option<&str>) -> Self {
        // Paths and the texts of a configuration or a plugin are untrusted.
        // Lines to paste stay lines.
        Self {
            group: "",
            name: neutral_line(&name),
            state,
            found: neutral_lines(found),
            fix: fix.map(neutral_lines),
        }
    }
}

/// All findings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// By group, in the order of the checks.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Counts the findings in a state.
    pub fn count(&self, state: State) -> usize {
        self.findings.iter().filter(|finding| finding.state == state).count()
    }

    /// Adds the findings of a group.
    pub fn add(&mut self, group: &'static str, findings: Vec<Finding>) {
        self.findings.extend(findings.into_iter().map(|finding| Finding { group, ..finding }));
    }
}

/// Runs blocking checks on a separate thread, and waits at most `patience`.
pub async fn within(
    patience: Duration,
    checks: impl FnOnce() -> Vec<Finding> + Send + 'static,
) -> Vec<Finding> {
    within_or(patience, checks).await.unwrap_or_else(|finding| vec![finding])
}

/// Runs blocking work like [`within`], and returns its value.
///
/// # Errors
///
/// Returns a finding if the work panicked or took too long.
pub async fn within_or<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Finding> {
    match tokio::time::timeout(patience, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(Finding::failure(
            "this check",
            format!("the check crashed: {error}"),
            "report this bug of Toolhold",
        )),
        Err(_) => Err(late(patience)),
    }
}

fn neutral_lines(text: &str) -> String {
    text.lines().map(neutral_line).collect::<Vec<_>>().join("\n")
}

/// Makes the finding of a check that takes longer than `patience`.
pub fn late(patience: Duration) -> Finding {
    let found = format!("no answer within {} s", patience.as_secs());
    Finding::failure(
        "this check",
        found,
        "check whether a folder of Toolhold, or a granted one, is on a server that does not answer",
    )
}

/// Formats a number of bytes for people. The unit is the largest one with a value of at least one,
/// with tenths.
pub fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut whole = bytes;
    // The remainder, in parts of 1/1024.
    let mut fraction = 0;
    while unit + 1 < units.len() && whole >= 1024 {
        fraction = whole % 1024;
        whole /= 1024;
        unit += 1;
    }
    match fraction * 10 / 1024 {
        0 => format!("{whole} {}", units[unit]),
        tenth => format!("{whole}.{tenth} {}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_fitting_units() {
        let check = |bytes: u64, expected: &str| assert_eq!(size(bytes), expected);
        check(0, "0 bytes");
        check(1023, "1023 bytes");
        check(1024, "1 KiB");
        check(1536 << 20, "1.5 GiB");
        check(24 << 30, "24 GiB");
        check(u64::MAX, "16777215.9 TiB");
    }

    #[test]
    fn finding_is_one_line_without_control_characters() {
        let finding = Finding::warning("a\nb", "\u{1b}[2J", "x\ty");
        assert!(
            !format!("{}{}", finding.name, finding.found).contains(['\n', '\u{1b}']),
            "{finding:?}"
        );
    }

    #[test]
    fn check_that_hangs_or_panics_is_a_finding() {
        let reactor = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .expect("a reactor starts");
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let hung = reactor.block_on(within(Duration::from_millis(10), move || {
            let _ = wait.recv();
            Vec::new()
        }));
        assert_eq!((hung[0].state, hung.len()), (State::Failure, 1));
        drop(release);
        let broken = reactor.block_on(within(Duration::from_secs(60), || panic!("on purpose")));
        assert_eq!((broken[0].state, broken.len()), (State::Failure, 1));
    }
}
