//! Finds the files that a command starts, such as a script or a Makefile.

use super::code::code;
use super::expand::Program;

/// Programs that run the file in their first argument.
const INTERPRETERS: [&str; 18] = [
    ".", "bash", "bun", "dash", "deno", "fish", "ksh", "lua", "node", "nodejs", "perl", "php",
    "python", "ruby", "sh", "source", "tsx", "zsh",
];

/// Programs that read commands from a file with a fixed name.
const RUNNERS: [(&str, &[&str]); 8] = [
    ("bun", &["package.json"]),
    ("gmake", &["GNUmakefile", "makefile", "Makefile"]),
    ("just", &["justfile", "Justfile", ".justfile"]),
    ("make", &["GNUmakefile", "makefile", "Makefile"]),
    ("npm", &["package.json"]),
    ("pnpm", &["package.json"]),
    ("task", &["Taskfile.yml", "Taskfile.yaml"]),
    ("yarn", &["package.json"]),
];

/// The maximum number of directories of one command. Further directories are ignored.
const MAX_FOLDERS: usize = 20;

/// The maximum number of paths of one command. Further paths are ignored.
const MAX_FILES: usize = 1000;

/// Options whose value is a directory to which the program changes.
const GOES_TO: [&str; 5] = ["-C", "--cwd", "--directory", "--git-dir", "--prefix"];

/// Returns the files that programs start. A file may be relative to any directory to which the
/// command changes. Every possible path is returned, so some paths may not exist.
pub(super) fn files(programs: &[Program]) -> Vec<String> {
    let folders = folders(programs);
    let mut files = Vec::new();
    for path in programs.iter().flat_map(files_of) {
        if files.len() + folders.len() >= MAX_FILES {
            break;
        }
        files.extend(folders.iter().map(|folder| format!("{folder}/{path}")));
        files.push(path);
    }
    files
}

/// Returns the directories to which a command changes. A later directory may be relative to the
/// directory before it, or to the directory in which the command starts. Both paths are returned.
pub(super) fn folders(programs: &[Program]) -> Vec<String> {
    let mut folders: Vec<String> = Vec::new();
    let mut current: Option<String> = None;
    for folder in programs.iter().flat_map(folders_of).take(MAX_FOLDERS) {
        if let Some(current) = &mut current {
            *current = format!("{current}/{folder}");
            folders.push(current.clone());
        } else {
            current = Some(folder.clone());
        }
        folders.push(folder);
    }
    folders
}

/// Returns the directories to which a program changes: `cd DIRECTORY`, `make -C DIRECTORY`.
fn folders_of(program: &Program) -> Vec<String> {
    let arguments: Vec<&str> = program.arguments.iter().map(|word| word.text.as_str()).collect();
    let mut folders = Vec::new();
    if matches!(program.name.as_str(), "cd" | "pushd") {
        if let Some(folder) = arguments.iter().find(|text| !text.starts_with('-')) {
            folders.push((*folder).to_owned());
        }
        return folders;
    }
    for (index, text) in arguments.iter().enumerate() {
        let attached_value = GOES_TO.iter().find_map(|option| text.strip_prefix(*option));
        let Some(attached) = attached_value else { continue };
        if !attached.is_empty() {
            folders.push(attached.trim_start_matches('=').to_owned());
        } else if let Some(next) = arguments.get(index + 1) {
            folders.push((*next).to_owned());
        }
    }
    folders
}

/// Returns the files of a program: the program itself, its script, and files with a fixed name.
fn files_of(program: &Program) -> Vec<String> {
    let mut files = Vec::new();
    if let Some(words) = shlex::split(&program.text)
        && let Some(path) = words.into_iter().next()
        && path.contains('/')
    {
        files.push(path);
    }

    // `python3.12` is the interpreter `python`. A name of only digits stays as it is.
    let mut name = program.name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if name.is_empty() {
        name = program.name.as_str();
    }
    // An interpreter without code in its arguments runs the file in its first argument.
    if INTERPRETERS.contains(&name) && code(&program.name, &program.arguments).is_none() {
        let mut arguments = program.arguments.iter().map(|word| &word.text);
        files.extend(arguments.find(|text| !text.starts_with('-')).cloned());
    }

    if let Some((_, names)) = RUNNERS.iter().find(|(runner, _)| *runner == name) {
        files.extend(names.iter().map(|name| (*name).to_owned()));
        let arguments = program.arguments.iter().map(|word| &word.text);
        files.extend(arguments.filter(|text| !text.starts_with('-')).cloned());
    }
    files
}
