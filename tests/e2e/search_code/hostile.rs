//! What a project must not be able to do, and what no rule may be got around by.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{project, write};
use crate::support::Cli;

const TOKEN: &str = "xylophone_of_the_vault";

fn everything(cli: &Cli) -> String {
    let symbol = format!("symbol={TOKEN}");
    let query = "query=xylophone vault".to_owned();
    [
        cli.finds(&[&symbol, "include_references=true"]),
        cli.finds(&[&query, "max_results=50"]),
        cli.finds(&["symbol=xylophone_of_the_vaul"]),
    ]
    .concat()
}

#[track_caller]
fn assert_hidden(cli: &Cli, path: &str) {
    let text = everything(cli);
    assert!(!text.contains(path) && !text.contains("in the vault"), "{path} is shown: {text}");
}

#[test]
fn denied_file_never_appears_whenever_the_rule_came() {
    let cli = project();
    let code = format!("pub fn {TOKEN}() {{ /* in the vault */ }}\n");
    write(&cli, "secrets/vault.rs", &code);
    // Before the rule it is found, so that the index has it.
    assert!(everything(&cli).contains("secrets/vault.rs:1 function"));
    cli.configure("[tools.file]\ndeny_read = [\"secrets/**\"]\n");
    assert_hidden(&cli, "secrets/vault.rs");
    let refused = cli.searches(&["outline=secrets/vault.rs"]);
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    // An index that was made under the rule has nothing of it either.
    fs::remove_dir_all(cli.root.path().join("data/indexes")).expect("the index is removed");
    assert_hidden(&cli, "secrets/vault.rs");
}

#[test]
fn names_of_a_denied_file_are_not_suggested_where_files_are_left_out() {
    let cli = project();
    write(&cli, "secrets/vault.rs", format!("pub fn {TOKEN}() {{}}\n"));
    let typo = format!("symbol={}", TOKEN.trim_end_matches('t'));
    assert!(cli.finds(&[&typo]).contains(TOKEN));
    cli.configure("[tools.file]\ndeny_read = [\"secrets/**\"]\n[index]\nmax_files = 1\n");
    let text = cli.finds(&[&typo]);
    assert!(text.contains("only 1 ") && !text.contains(TOKEN), "{text}");
}

#[test]
fn links_lead_nowhere() {
    let cli = project();
    let outside = cli.root.path().join("outside");
    fs::create_dir(&outside).expect("a folder is made");
    let code = format!("pub fn {TOKEN}() {{ /* in the vault */ }}\n");
    fs::write(outside.join("vault.rs"), code).expect("a file is written");
    symlink(&outside, cli.work().join("away")).expect("a link is made");
    symlink(outside.join("vault.rs"), cli.work().join("near.rs")).expect("a link is made");
    assert_hidden(&cli, "vault.rs:1");
    assert_hidden(&cli, "near.rs:1");
    // A file that becomes a link after it was indexed.
    write(&cli, "real.rs", "pub fn harmless() {}\n");
    assert!(cli.finds(&["symbol=harmless"]).contains("real.rs:1"));
    fs::remove_file(cli.work().join("real.rs")).expect("it is removed");
    symlink(outside.join("vault.rs"), cli.work().join("real.rs")).expect("a link is made");
    assert_hidden(&cli, "real.rs:1");
}

#[test]
fn large_file_is_known_by_its_begin() {
    let cli = project();
    let mut text = b"fn begin_of_giant() {}\n".to_vec();
    let filler = b"let filler_word = other_word + 1; // and so on, and so on, and so on\n";
    while text.len() < 100 << 20 {
        text.extend_from_slice(filler);
    }
    write(&cli, "giant.rs", &text);
    let found = cli.finds(&["query=begin_of_giant"]);
    assert!(found.starts_with("giant.rs:1 (words)"), "{found}");
    assert!(cli.finds(&["symbol=Config"]).starts_with("src/config.rs:3 struct Config"));
    assert!(index_bytes(&cli) < 20 << 20, "{}", index_bytes(&cli));
}

#[test]
fn every_one_of_many_files_is_found() {
    let cli = project();
    for folder in 0..200 {
        for file in 0..100 {
            let path = format!("many/{folder}/{file}.rs");
            write(&cli, path, format!("fn item_{folder}_of_{file}() {{}}\n"));
        }
    }
    // A call may end before everything is indexed, and then says so.
    let mut text = cli.finds(&["symbol=item_199_of_99"]);
    for _ in 0..20 {
        if !text.contains("The index isn't complete") {
            break;
        }
        text = cli.finds(&["symbol=item_199_of_99"]);
    }
    assert!(text.starts_with("many/199/99.rs:1 function item_199_of_99 (definition)"), "{text}");
    assert!(cli.finds(&["symbol=item_7_of_3"]).starts_with("many/7/3.rs:1 function"));
}

#[test]
fn soak_slow_sources_keep_no_other_from_the_index() {
    let cli = project();
    let count = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 60 } else { 4 };
    for number in 0..count {
        // Each takes the parser more than its limit.
        write(&cli, format!("slow/{number}.rb"), format!("{number}{}", "%w(".repeat(17_000)));
    }
    write(&cli, "slow/zz.rb", "def after_slow_ones\nend\n");
    let mut text = String::new();
    for _ in 0..count {
        text = cli.finds(&["symbol=after_slow_ones"]);
        if !text.contains("The index isn't complete") {
            break;
        }
    }
    let first = "slow/zz.rb:1 method after_slow_ones (definition)\n";
    assert!(text.starts_with(first) && !text.contains("isn't complete"), "{text}");
    let outline = cli.searches(&["outline=slow/0.rb"]);
    assert!(outline.stderr.contains("more than 2 s of CPU time"), "{}", outline.stderr);
}

#[test]
fn names_and_contents_of_others_steer_nothing() {
    let cli = project();
    write(&cli, "esc\u{1b}[2J\u{202e}.rs", "fn steering_name() { \u{1b}[31m \u{202e} }\n");
    write(&cli, "line\nend.rs", "fn line_end_name() {}\n");
    write(&cli, OsStr::from_bytes(b"in\xffvalid.rs"), "fn invalid_name() {}\n");
    write(&cli, "invalid.rs", b"\xff\xfe\xfd\nfn after_invalid() {}\n");
    write(&cli, "nul.rs", b"fn with_nul() {}\0");
    // The command asserts that no output has an escape.
    let text = cli.finds(&["symbol=steering_name"]);
    assert!(text.contains("steering_name") && !text.contains('\u{202e}'), "{text}");
    assert!(cli.finds(&["symbol=after_invalid"]).starts_with("invalid.rs:2 function"));
    for left_out in ["with_nul", "line_end_name", "invalid_name"] {
        let text = cli.finds(&[&format!("symbol={left_out}")]);
        assert!(!text.contains("(definition)"), "{text}");
    }
}

#[test]
fn index_stays_within_its_bound_on_disk() {
    let cli = project();
    cli.configure("[index]\nmax_mib = 1\n");
    for file in 0..60 {
        let words = (0..4000).map(|word| format!("word{file}x{word}\n")).collect::<String>();
        write(&cli, format!("text/{file}.txt"), words);
    }
    let mut text = String::new();
    for _ in 0..3 {
        text = cli.finds(&["query=word59x3999"]);
    }
    // What isn't in the index is found all the same, and the answer says what is missing.
    assert!(text.starts_with("text/59.txt:4000 "), "{text}");
    assert!(text.contains("the index is full; raise `max_mib` in `[index]`"), "{text}");
    // Words of documents, and what SQLite writes ahead.
    assert!(index_bytes(&cli) <= 12 << 20, "{}", index_bytes(&cli));
}

#[test]
fn project_that_was_not_searched_for_longest_makes_room() {
    let cli = project();
    cli.configure("[index]\nmax_mib = 1\n[tools.file]\nallowed_paths = [\"/\"]\n");
    let root = cli.root.path().canonicalize().expect("it is there");
    let projects: Vec<PathBuf> = (0..4).map(|number| root.join(format!("p{number}"))).collect();
    for (number, project) in projects.iter().enumerate() {
        fs::create_dir(project).expect("a folder is made");
        let words = (0..40_000).map(|word| format!("p{number}word{word}\n")).collect::<String>();
        fs::write(project.join("a.txt"), words).expect("a file is written");
        let path = format!("path={}", project.display());
        let text = cli.finds(&[&format!("query=p{number}word5"), &path]);
        assert!(text.contains("(words)") && !text.contains("full"), "{number}: {text}");
    }
}

#[test]
fn call_writes_nothing_but_its_index() {
    let cli = project();
    let before = files(&cli.work());
    cli.finds(&["symbol=Config", "include_references=true"]);
    assert_eq!(files(&cli.work()), before);
    let data = files(&cli.root.path().join("data"));
    let allowed = ["indexes", "audit", "sessions", "state"];
    for path in data.keys() {
        let first = path.components().next().expect("it has a name").as_os_str();
        assert!(allowed.iter().any(|name| first == *name), "{}", path.display());
    }
    assert!(data.keys().any(|path| path.starts_with("indexes")), "{data:?}");
}

/// The files below a folder, with their lengths.
fn files(folder: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("it is readable").flatten() {
            let meta = entry.metadata().expect("it is there");
            if meta.is_dir() {
                folders.push(entry.path());
            } else {
                let path = entry.path();
                let path = path.strip_prefix(folder).expect("it is below").to_owned();
                found.insert(path, meta.len());
            }
        }
    }
    found
}

/// Bytes of the index on disk.
fn index_bytes(cli: &Cli) -> u64 {
    files(&cli.root.path().join("data/indexes")).values().sum()
}
