//! The files of a project that a command starts, such as a script or a Makefile.

use super::code::code;
use super::expand::Program;

/// Programs whose first argument is a program that they run.
const INTERPRETERS: [&str; 18] = [
    ".", "bash", "bun", "dash", "deno", "fish", "ksh", "lua", "node", "nodejs", "perl", "php",
    "python", "ruby", "sh", "source", "tsx", "zsh",
];

/// Programs that read what they start from a file of their own name.
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

/// The paths as the command says them, relative to the directory in which it starts, or to one that
/// it goes to. Not all of them exist.
pub(super) fn files(programs: &[Program]) -> Vec<String> {
    let moves = programs.iter().filter(|program| program.name == "cd");
    let folders: Vec<&str> =
        moves.filter_map(|program| Some(&*program.arguments.first()?.text)).collect();
    let mut files = Vec::new();
    for name in programs.iter().flat_map(of_program) {
        files.extend(folders.iter().map(|folder| format!("{folder}/{name}")));
        files.push(name);
    }
    files
}

fn of_program(program: &Program) -> Vec<String> {
    let mut files = Vec::new();
    let first = shlex::split(&program.text).and_then(|words| words.into_iter().next());
    files.extend(first.filter(|path| path.contains('/')));
    let is_versioned = |c: char| c.is_ascii_digit() || c == '.';
    let name = match program.name.trim_end_matches(is_versioned) {
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
