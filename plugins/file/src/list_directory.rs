use berth_sdk::search::{self, Ending, Entry, Kind, Scope};
use berth_sdk::{Annotations, Call, Failure, Output, Subject, Tool};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::notices::{self, size};
use crate::paths;

/// A listing longer than this is cut.
const MAX_ENTRIES: u32 = 1_000;

/// The entries of one directory, with what they are.
pub(crate) struct ListDirectory;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// The directory. Default: the working directory.
    path: Option<String>,
}

impl Tool for ListDirectory {
    const NAME: &'static str = "list_directory";
    const TITLE: Option<&'static str> = Some("List directory");
    const DESCRIPTION: &'static str = "Lists what is directly in a directory, hidden entries included: [dir], [file] with its size, [symlink]; \
        directories first, each sorted by name, at most 1,000. Use find_path to look deeper or for names that fit a pattern. \
        Fails where the path is missing or not a directory.";
    const ANNOTATIONS: Annotations = Annotations { cacheable: true, ..Annotations::READ_ONLY };
    const SUBJECTS: &'static [Subject] = &[Subject::reads_path("/path")];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        let root = paths::or_working_directory(arguments.path)?;
        if std::fs::metadata(&root).is_ok_and(|meta| !meta.is_dir()) {
            let failure = Failure::permanent("not-a-directory", format!("{root} is not a directory"));
            return Err(failure.with_suggestion("Use read to see a file."));
        }
        let scope = Scope { root: root.clone(), max_depth: Some(1), ..Scope::default() };
        let found = search::find(&scope, MAX_ENTRIES)?;
        let mut text = listing(&root, &found.items);
        if found.ending == Ending::Limit {
            notices::add(
                &mut text,
                &format!("Only the first {MAX_ENTRIES} entries are shown. Use find_path with a pattern to see others."),
            );
        }
        notices::add_ending(&mut text, found.ending);
        notices::add_skipped(&mut text, found.skipped);
        Ok(Output::text(text))
    }
}

/// One line an entry: directories, files, links, the rest.
fn listing(root: &str, entries: &[Entry]) -> String {
    if entries.is_empty() {
        return format!("{root} is empty.\n");
    }
    let name = |entry: &Entry| entry.path[paths::prefix(root, &entry.path)..].to_owned();
    let mut lines: Vec<(u8, String)> = entries
        .iter()
        .map(|entry| match entry.kind {
            Kind::Directory => (0, format!("[dir] {}/\n", name(entry))),
            Kind::File => (1, format!("[file] {}  {}\n", name(entry), size(entry.size))),
            Kind::Symlink => (2, format!("[symlink] {}\n", name(entry))),
            Kind::Other => (3, format!("[other] {}\n", name(entry))),
        })
        .collect();
    lines.sort_by_key(|line| line.0);
    lines.into_iter().map(|line| line.1).collect()
}
