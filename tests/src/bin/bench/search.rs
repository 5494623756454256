//! Searching a large tree, against ripgrep with the same rules, pattern and number of threads.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::Setting;
use crate::measure::{Compared, find_program, in_turn, output_of, time};
use crate::sandbox::Sandbox;
use crate::table::{Row, Target, Unit, show_time};
use crate::tree::Tree;

const ROUNDS: usize = 7;

/// More than any of the patterns finds, so that both read the whole tree.
const LIMIT: u32 = 10_000;

const NO_RIVAL: &str = "rg is not installed: apt-get install ripgrep, or cargo install ripgrep";

struct Search {
    what: &'static str,
    pattern: &'static str,
    case_sensitive: bool,
}

/// Each finds some lines, but few: what is measured is the search, not the printing.
const SEARCHES: [Search; 3] = [
    Search { what: "literal", pattern: "unsafe impl GlobalAlloc", case_sensitive: true },
    Search { what: "regex", pattern: r"fn\s+\w+_unchecked_mut\b", case_sensitive: true },
    Search { what: "case-insensitive", pattern: "global_allocator", case_sensitive: false },
];

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let tree = Tree::find_or_make(&setting.scratch)?;
    let sandbox = Sandbox::with_files(&setting.repository, &tree.root)?;
    let mut rows = Vec::new();
    for search in &SEARCHES {
        let what = format!("grep, {}, {}", search.what, tree.description);
        rows.push(row("grep", &what, Target::AtMost(1.15), || grep(&sandbox, &tree.root, search))?);
    }
    let what = format!("find_path, {}", tree.description);
    rows.push(row("find", &what, Target::AtMost(1.5), || find(&sandbox, &tree.root))?);
    Ok(rows)
}

fn row(
    name: &'static str,
    what: &str,
    target: Target,
    compare: impl FnOnce() -> Result<Compared, String>,
) -> Result<Row, String> {
    if find_program("rg").is_none() {
        return Ok(Row::not_measured(name, what, Unit::Ratio, target, NO_RIVAL.to_owned()));
    }
    let Compared { ours, rival, ratios } = compare()?;
    let (ours, rival) = (show_time(ours), format!("rg {}", show_time(rival)));
    Ok(Row { name, what: what.to_owned(), samples: ratios, unit: Unit::Ratio, target, ours, rival })
}

fn grep(sandbox: &Sandbox, root: &Path, search: &Search) -> Result<Compared, String> {
    let arguments = json!({
        "pattern": search.pattern, "path": root, "case_sensitive": search.case_sensitive, "limit": LIMIT,
    });
    let case = if search.case_sensitive { "--case-sensitive" } else { "--ignore-case" };
    let rival = || {
        let mut command = rg(root);
        command.args(["--line-number", "--no-heading", case, "--regexp", search.pattern, "./"]);
        command
    };
    compare(sandbox, "grep", &arguments, "matches", rival)
}

fn find(sandbox: &Sandbox, root: &Path) -> Result<Compared, String> {
    const GLOB: &str = "build.rs";
    let arguments = json!({ "pattern": format!("**/{GLOB}"), "path": root, "limit": LIMIT });
    let rival = || {
        let mut command = rg(root);
        command.args(["--files", "--glob", GLOB, "./"]);
        command
    };
    compare(sandbox, "find_path", &arguments, "paths", rival)
}

/// ripgrep as the tools search: nothing above the root counts, and no configuration.
fn rg(root: &Path) -> Command {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new("rg");
    command.args([
        "--no-config",
        "--no-ignore-parent",
        "--no-ignore-global",
        "--color",
        "never",
        "--threads",
        &threads.to_string(),
    ]);
    command.current_dir(root);
    command
}

/// Both must have found the same number: a search that finds less isn't faster.
fn compare(
    sandbox: &Sandbox,
    tool: &str,
    arguments: &Value,
    counted: &str,
    rival: impl Fn() -> Command,
) -> Result<Compared, String> {
    let answer = sandbox.structured(tool, arguments.clone())?;
    let ours = answer[counted].as_u64();
    let theirs = String::from_utf8_lossy(&output_of(&mut rival())?).lines().count() as u64;
    if ours != Some(theirs) || answer["cut"] != Value::Bool(false) {
        return Err(format!(
            "{tool} {arguments} found {answer} and rg {theirs}: they don't do the same work"
        ));
    }
    in_turn(
        ROUNDS,
        || time(|| sandbox.call_and_wait(tool, arguments.clone())),
        || time(|| output_of(&mut rival())),
    )
}
