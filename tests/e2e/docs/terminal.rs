//! Output that a person sees at a terminal, shown whole: questions with the answers that are typed,
//! and the findings of the doctor.

use super::markdown::{blocks, document};
use super::project;
use super::session::line_fits;
use crate::support::{Cli, Ended};

/// The pages with questions at a terminal, in `text` blocks with a command.
const PAGES: [&str; 2] = ["docs/approvals.md", "docs/installing.md"];

#[test]
fn questions_at_a_terminal_are_shown_whole() {
    for page in PAGES {
        let blocks = blocks(&document(page));
        let shown: Vec<_> = blocks
            .iter()
            .filter(|block| block.language == "text" && block.text.starts_with("$ "))
            .collect();
        assert!(!shown.is_empty(), "{page} shows no question");
        let (_folder, session) = project();
        for block in shown {
            assert!(!block.text.contains("\n…\n"), "{page} leaves lines out:\n{}", block.text);
            session.try_at_a_terminal(block);
        }
    }
}

/// The group, the name, the state and the rest of each finding, and the last line.
fn findings(report: &str) -> (Vec<[&str; 4]>, &str) {
    let mut findings = Vec::new();
    let mut group = "";
    for line in report.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("  ") {
            None => group = line,
            // A fix, below its finding.
            Some(rest) if rest.starts_with(' ') => {}
            Some(rest) => {
                let (state, rest) = rest.split_once(' ').expect("a state is followed by a name");
                let rest = rest.trim_start();
                let (name, found) = rest.split_once("  ").expect("a name is followed by a text");
                findings.push([group, name, state, found.trim_start()]);
            }
        }
    }
    (findings, group)
}

fn names(findings: &[[&str; 4]]) -> Vec<String> {
    findings.iter().map(|[group, name, ..]| format!("{group}: {name}")).collect()
}

/// A warning is a matter of the machine: only its name is compared.
#[test]
fn doctor_prints_what_its_page_shows() {
    let page = document("docs/troubleshooting.md");
    let shown = blocks(&page)
        .into_iter()
        .find_map(|block| block.text.strip_prefix("$ toolhold doctor\n").map(str::to_owned))
        .expect("the page shows the doctor");
    // A user who has used nothing yet, with Toolhold's folders in the usual places.
    let cli = Cli::new();
    let mut command = cli.command(&["doctor"]);
    for name in ["TOOLHOLD_CONFIG_DIR", "TOOLHOLD_DATA_DIR", "TOOLHOLD_CACHE_DIR"] {
        command.env_remove(name);
    }
    let home = cli.root.path().canonicalize().expect("it is there");
    command.env("HOME", &home);
    let printed = Ended::from_output(command.output().expect("toolhold starts")).ends(0).stdout;
    let printed = printed.replace(&*home.to_string_lossy(), "/home/u");

    let (shown, shown_end) = findings(&shown);
    let (found, end) = findings(&printed);
    assert_eq!(names(&shown), names(&found), "{printed}");
    for ([_, name, _, expected], [_, _, state, actual]) in shown.iter().zip(&found) {
        assert!(*state != "ok" || line_fits(expected, actual), "{name}: {expected:?}, {actual:?}");
    }
    if found.iter().all(|[_, _, state, _]| *state == "ok") {
        assert_eq!(shown_end, end);
    }
}
