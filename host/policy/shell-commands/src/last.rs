//! Finds the command that writes the output of a command line, without its variables, wrappers and
//! folder. This is the last command, or in a pipe the last command that does more than show its
//! input.

use super::calculated::Variables;
use super::grammar::{MAX_STEPS, Part, parse};
use super::programs::SHELLS;
use super::word::Word;
use super::wrappers::{Started, named};

/// The maximum number of wrappers and shells around the command.
const MAX_DEPTH: usize = 4;

/// Returns the command of `part` in one line, and whether it is the only command that writes to its
/// output. The line has no variables, wrappers and folder of the program. Returns `None` if the
/// command isn't known. `alone` means that no command outside of `part` writes to the output.
pub(super) fn line(part: &Part, mut alone: bool) -> Option<(String, bool)> {
    let mut words = part.words.clone();
    for _ in 0..MAX_DEPTH {
        let (program, arguments) = words.split_first()?;
        if program.is_unknown() {
            return None;
        }
        let name = program.text.rsplit('/').next().unwrap_or_default();
        if let Some(script) = shell_script(name, arguments) {
            let mut steps = MAX_STEPS;
            let parsed = parse(script, &mut steps, &mut Variables::default());
            let (inner_part, inner_alone) = parsed.last?;
            words = inner_part.words;
            alone = alone && inner_alone;
            continue;
        }
        if let Some(command) = find_command(name, arguments) {
            words = command;
            continue;
        }
        if name.is_empty() {
            return None;
        }
        let wrapper = match named(name) {
            // `parallel` runs several commands, and `ssh` runs a command on another machine.
            Some(wrapper) if !["parallel", "ssh"].contains(&wrapper.name) => wrapper,
            // The program isn't a wrapper, so it writes the output.
            _ => return Some((to_line(name, arguments), alone)),
        };
        match wrapper.started(arguments) {
            Started::Words { command, .. } if !command.is_empty() => words = command.to_vec(),
            _ => return None,
        }
    }
    None
}

/// Returns a command as one line. Unknown words stay as written.
fn to_line(name: &str, arguments: &[Word]) -> String {
    let mut texts: Vec<&str> = name.split_whitespace().collect();
    for word in arguments {
        let text = if word.is_unknown() { &word.raw } else { &word.text };
        texts.extend(text.split_whitespace());
    }
    texts.join(" ")
}

/// Returns the command that `find` runs for each file: `find . -name '*.rs' -exec cat {} +`.
fn find_command(name: &str, arguments: &[Word]) -> Option<Vec<Word>> {
    if name != "find" {
        return None;
    }
    let action_index = arguments
        .iter()
        .position(|word| ["-exec", "-execdir", "-ok", "-okdir"].contains(&word.text.as_str()))?;
    let mut command = Vec::new();
    for word in &arguments[action_index + 1..] {
        let ends_command = [";", "+"].contains(&word.text.as_str());
        if ends_command {
            break;
        }
        command.push(word.clone());
    }
    Some(command)
}

/// Returns the script of a shell such as `bash -lc '…'`, if it is the second argument.
fn shell_script<'w>(name: &str, arguments: &'w [Word]) -> Option<&'w str> {
    let [option, script, ..] = arguments else { return None };
    let takes_script = option.text.starts_with('-')
        && option.text.ends_with('c')
        && !option.text.starts_with("--");
    if !takes_script || !SHELLS.contains(&name) || script.is_unknown() {
        return None;
    }
    Some(&script.text)
}

#[cfg(test)]
mod tests {
    use super::super::last_command;

    #[test]
    fn last_command_has_no_pipes_and_wrappers() {
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
            ("cargo test 2>&1 | tee log | tail -5", "cargo test"),
            ("cat access.log | awk '{print $1}' | sort | uniq -c | sort -rn | head", "sort -rn"),
            ("cargo test | grep price", "grep price"),
            ("find . | xargs cat", "cat"),
            ("find . -name '*.rs' -exec grep -n x {} +", "grep -n x {}"),
            ("cat x", "cat x"),
        ] {
            assert_eq!(last_command(text).map(|last| last.line).as_deref(), Some(last), "{text}");
        }
    }

    #[test]
    fn output_of_other_commands_is_detected() {
        for (text, alone) in [
            ("cargo test", true),
            ("cd x && export A=b; mkdir -p y && cargo test 2>&1 | tail", true),
            ("cat main.rs && cargo test", false),
            ("cargo test; echo \"$(cat main.rs)\"", false),
            ("npm ci && npm test", false),
            ("bash -c 'ls; make'", false),
            ("ls &\nmake", false),
        ] {
            assert_eq!(last_command(text).map(|last| last.alone), Some(alone), "{text}");
        }
    }

    #[test]
    fn text_without_a_single_last_command_has_none() {
        for text in [
            "",
            "for x in *; do make; done",
            "if a; then b; fi",
            "A=b",
            "$X y",
            "sudo",
            "f() { ls; }",
            "'",
        ] {
            assert_eq!(last_command(text), None, "{text}");
        }
    }
}
