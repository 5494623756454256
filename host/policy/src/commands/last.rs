//! The command whose output a command line's output is: the last one, without what its output is piped to.

use tree_sitter::Node;

use super::grammar::{MAX_STEPS, Part, parse};
use super::programs::SHELLS;
use super::word::Word;
use super::wrappers::{Started, named};

/// Commands that stand behind another one and write nothing of their own that matters: `cargo test || true`, `make; echo "exit: $?"`.
const ASIDE: [&str; 7] = ["echo", "printf", "true", "false", ":", "exit", "wait"];

/// Shells inside of each other that are looked into.
const DEPTH: usize = 4;

/// The node of that command in a tree.
pub(super) fn node<'t>(root: Node<'t>, source: &str) -> Option<Node<'t>> {
    let mut node = root;
    loop {
        let inner = match node.kind() {
            "command" => return Some(node),
            "pipeline" | "redirected_statement" | "negated_command" => parts(node).next(),
            "program" | "list" | "subshell" | "compound_statement" => {
                let all: Vec<Node<'t>> = parts(node).collect();
                all.iter().rev().find(|part| !is_aside(**part, source)).or(all.last()).copied()
            }
            _ => None,
        };
        node = inner?;
    }
}

fn parts<'t>(node: Node<'t>) -> impl Iterator<Item = Node<'t>> {
    let count = u32::try_from(node.named_child_count()).unwrap_or(u32::MAX);
    let child = move |at| node.named_child(at);
    (0..count).filter_map(child).filter(|child| child.kind() != "comment" && !child.kind().ends_with("_redirect"))
}

fn is_aside(node: Node<'_>, source: &str) -> bool {
    let name = node.child_by_field_name("name").and_then(|name| source.get(name.byte_range()));
    node.kind() == "command" && name.is_some_and(|name| ASIDE.contains(&name))
}

/// The command in one line: without variables, what only starts it and the folder of its program. None where that can't be told.
pub(super) fn line(part: &Part) -> Option<String> {
    let mut words = part.words.clone();
    for _ in 0..DEPTH {
        let (program, arguments) = words.split_first().filter(|(program, _)| !program.is_unknown())?;
        let name = program.text.rsplit('/').next().unwrap_or_default();
        if let Some(script) = script(name, arguments) {
            words = parse(&script, &mut MAX_STEPS.clone()).last?.words;
            continue;
        }
        let Some(wrapper) = named(name).filter(|wrapper| !["xargs", "parallel", "ssh"].contains(&wrapper.name)) else {
            let arguments = arguments.iter().map(|word| if word.is_unknown() { &word.raw } else { &word.text });
            let line = std::iter::once(name).chain(arguments.map(String::as_str)).collect::<Vec<_>>().join(" ");
            return (!name.is_empty()).then(|| line.split_whitespace().collect::<Vec<_>>().join(" "));
        };
        match wrapper.started(arguments) {
            Started::Words { command, .. } if !command.is_empty() => words = command.to_vec(),
            _ => return None,
        }
    }
    None
}

/// What a shell is given to run: `bash -lc '…'`.
fn script(name: &str, arguments: &[Word]) -> Option<String> {
    let [option, script, ..] = arguments else { return None };
    let takes = SHELLS.contains(&name) && option.text.starts_with('-') && option.text.ends_with('c') && !option.text.starts_with("--");
    (takes && !script.is_unknown()).then(|| script.text.clone())
}

#[cfg(test)]
mod tests {
    use super::super::last_command;

    #[test]
    fn it_is_the_last_one_without_its_pipes_and_what_starts_it() {
        for (text, last) in [
            ("cargo test", "cargo test"),
            ("cd x && cargo  test   --workspace", "cargo test --workspace"),
            ("a ; cargo test", "cargo test"),
            ("npm ci && npm test 2>&1 | tail -50", "npm test"),
            ("RUST_LOG=debug /usr/bin/cargo build > out.txt 2>&1", "cargo build"),
            ("sudo -u x env A=b timeout 10 make -j4", "make -j4"),
            ("bash -lc 'cd x; git status'", "git status"),
            ("(cd x; go test ./...)", "go test ./..."),
            ("{ ls; pytest -q; }", "pytest -q"),
            ("! make", "make"),
            ("cargo test || true", "cargo test"),
            ("make; echo \"exit: $?\"", "make"),
            ("echo hello", "echo hello"),
            ("a &\nmake", "make"),
            ("cat \"my file.log\"", "cat my file.log"),
            ("ls $DIR", "ls $DIR"),
            ("cargo test # all of it", "cargo test"),
            ("time cargo build", "cargo build"),
            ("cat <<EOF\nx\nEOF", "cat"),
        ] {
            assert_eq!(last_command(text).as_deref(), Some(last), "{text}");
        }
    }

    #[test]
    fn what_runs_no_single_command_last_has_none() {
        for text in ["", "for x in *; do make; done", "if a; then b; fi", "A=b", "$X y", "sudo", "f() { ls; }", "'"] {
            assert_eq!(last_command(text), None, "{text}");
        }
    }
}
