//! The findings of `toolhold doctor`, and the time limit of its checks.

use std::time::Duration;

use serde::Serialize;
use toolhold_contract::text::neutral_line;

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The checked part works, or its problem has no consequence.
    Ok,
    /// Toolhold works, but a part of it is slower, missing or close to its limit.
    Warning,
    /// Toolhold doesn't work or isn't safe.
    Failure,
}

/// One finding. Its texts are without control characters.
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
    /// A command or a configuration line that fixes the problem. `None` only if the state is `Ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    /// Creates a finding without a problem.
    pub fn ok(name: impl Into<String>, found: impl AsRef<str>) -> Self {
        Self::new(name.into(), State::Ok, found.as_ref(), None)
    }

    /// Creates a finding about a problem that Toolhold tolerates.
    pub fn warning(name: impl Into<String>, found: impl AsRef<str>, fix: impl AsRef<str>) -> Self {
        Self::new(name.into(), State::Warning, found.as_ref(), Some(fix.as_ref()))
    }

    /// Creates a finding about a part that doesn't work or isn't safe.
    pub fn failure(name: impl Into<String>, found: impl AsRef<str>, fix: impl AsRef<str>) -> Self {
        Self::new(name.into(), State::Failure, found.as_ref(), Some(fix.as_ref()))
    }

    fn new(name: String, state: State, found: &str, fix: Option<&str>) -> Self {
        // Paths and texts of a configuration or a plugin are untrusted. A fix can have several
        // lines, so line ends stay.
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
    /// The findings by group, in the order of the checks.
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

/// Runs blocking checks on a separate thread. Waits at most `patience`.
pub async fn within(
    patience: Duration,
    checks: impl FnOnce() -> Vec<Finding> + Send + 'static,
) -> Vec<Finding> {
    within_or(patience, checks).await.unwrap_or_else(|finding| vec![finding])
}

/// Runs blocking work on a separate thread. Waits at most `patience` for the result of the work.
///
/// # Errors
///
/// Returns a finding if the work panicked or took too long.
pub async fn within_or<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Finding> {
    match tokio::time::timeout(patience, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(result)) => Ok(result),
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

/// Creates the finding of a check that takes longer than `patience`.
pub fn late(patience: Duration) -> Finding {
    let found = format!("the check didn't finish within {} s", patience.as_secs());
    Finding::failure(
        "this check",
        found,
        "check whether a folder of Toolhold, or a granted folder, is on a server that does not \
         answer",
    )
}

/// Formats a number of bytes with a unit and tenths, such as `1.5 MiB`.
pub fn size(bytes: u64) -> String {
    const STEP: u64 = 1024;
    let mut unit = "bytes";
    let mut whole = bytes;
    let mut remainder = 0;
    for larger_unit in ["KiB", "MiB", "GiB", "TiB"] {
        if whole < STEP {
            break;
        }
        remainder = whole % STEP;
        whole /= STEP;
        unit = larger_unit;
    }
    let tenths = remainder * 10 / STEP;
    if tenths == 0 { format!("{whole} {unit}") } else { format!("{whole}.{tenths} {unit}") }
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
