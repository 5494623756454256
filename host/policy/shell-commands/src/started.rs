//! Finds the files of a project that a command starts, such as a script or a Makefile.

use super::code::code;
use super::expand::Program;

/// Programs that run their first argument as a program.
const INTERPRETERS: [&str; 18] = [
    ".", "bash", "bun", "dash", "deno", "fish", "ksh", "lua", "node", "nodejs", "perl", "php",
    "python", "ruby", "sh", "source", "tsx", "zsh",
];

/// Programs that read the commands to start from a file with a fixed name.
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

/// Most directories to which one command changes.
const MAX_FOLDERS: usize = 20;

/// Most paths of one command.
const MAX_FILES: usize = 1000;

/// Options whose value is the directory to which a program changes.
const GOES_TO: [&str; 5] = ["-C", "--cwd", "--directory", "--git-dir", "--prefix"];

/// Returns the paths as written in the command, relative to the directory in which the command
/// starts or to which it changes. Some of these paths don't exist.
pub(super) fn files(programs: &[Program]) -> Vec<String> {
    let folders = folders(programs);
    let mut files = Vec::new();
    for name in programs.iter().flat_map(files_of) {
        if files.len() + folders.len() >= MAX_FILES {
            break;
        }
        files.extend(folders.iter().map(|folder| format!("{folder}/{name}")));
        files.push(name);
    }
    files
}

/// Returns the directories to which a command changes, either one after the other or from its first
/// directory.
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

fn folders_of(program: &Program) -> Vec<String> {
    let arguments: Vec<&str> = program.arguments.iter().map(|word| &*word.text).collect();
    if ["cd", "pushd"].contains(&&*program.name) {
        let folder = arguments.iter().find(|text| !text.starts_with('-'));
        return folder.map(|folder| (*folder).to_owned()).into_iter().collect();
    }
    let mut folders = Vec::new();
    for (at, text) in arguments.iter().enumerate() {
        let Some(option) = GOES_TO.iter().find(|option| text.starts_with(**option)) else {
            continue;
        };
        match &text[option.len()..] {
            "" => folders.extend(arguments.get(at + 1).map(|next| (*next).to_owned())),
            value => folders.push(value.trim_start_matches('=').to_owned()),
        }
    }
    folders
}

/// Returns the files that a program starts: the program itself, its script, and the files that it
/// always reads.
fn files_of(program: &Program) -> Vec<String> {
    let mut files = Vec::new();
    if let Some(words) = shlex::split(&program.text)
        && let Some(path) = words.into_iter().next()
        && path.contains('/')
    {
        files.push(path);
    }
    let unversioned = program.name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let name = match unversioned {
        "" => &*program.name,
        name => name,
    };
    if INTERPRETERS.contains(&name) && code(&program.name, &program.arguments).is_none() {
        let mut arguments = program.arguments.iter().map(|word| &word.text);
        files.extend(arguments.find(|text| !text.starts_with('-')).cloned());
    }
    if let Some((_, names)) = RUNNERS.iter().find(|(runner, _)| *runner == name) {
        files.extend(names.iter().map(|name| (*name).to_owned()));
        // `make -f FILE`, `npm --prefix FOLDER`.
        let arguments = program.arguments.iter().map(|word| &word.text);
        files.extend(arguments.filter(|text| !text.starts_with('-')).cloned());
    }
    files
}
