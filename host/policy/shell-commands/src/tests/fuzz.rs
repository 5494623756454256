//! Any text as a command: the analysis ends soon, is bounded, and misses no program that certainly
//! runs.

use std::collections::BTreeSet;

use toolhold_fuzz::{Result, Target, Unstructured};

use super::super::*;
use super::blocklist;

/// A program that no input has.
const PROBE: &str = "probe-7f3a";

const TOKENS: [&str; 72] = [
    "; ",
    " && ",
    " || ",
    " | ",
    " |& ",
    " & ",
    "\n",
    "\\\n",
    " # ",
    "'",
    "\"",
    "`",
    "$(",
    ")",
    "(",
    "${",
    "}",
    "$((",
    "))",
    "$'",
    "$\"",
    "<<E\n",
    "\nE\n",
    "<<-'E'\n",
    "<<< ",
    " > ",
    " >> ",
    " 2>&1",
    " &> ",
    " <(",
    " >(",
    "{ ",
    "; }",
    "if ",
    "; then ",
    "; else ",
    "; fi",
    "while ",
    "; do ",
    "; done",
    "for x in ",
    "case x in ",
    ") ",
    ";; ",
    "esac",
    "function f ",
    "f() ",
    "[[ ",
    " ]]",
    "(( ",
    "! ",
    "time ",
    "coproc ",
    "$x",
    "${x[",
    "@P}",
    "x=",
    "x+=",
    "x=(",
    "{a,b}",
    "~/",
    "*",
    "eval ",
    "bash -c ",
    "sudo ",
    "env ",
    "xargs ",
    "find . -exec ",
    "trap ",
    "alias a=",
    "exec ",
    "sh <<< ",
];

const WORDS: [&str; 32] = [
    "ls",
    "rm",
    "git",
    "curl",
    "/bin/cat",
    "./run.sh",
    "python3",
    "make",
    "ssh",
    "sed",
    "-c",
    "-rf",
    "--",
    "-exec",
    "-i",
    "push",
    "-C",
    "/etc/passwd",
    "/tmp/x",
    "x",
    "'a b'",
    "\"$x\"",
    "$x",
    "$(id)",
    "`id`",
    "${x:-y}",
    "$'\\x6c\\x73'",
    "s\"ud\"o",
    "su\\do",
    "{a,b}",
    "*.rs",
    "1",
];

/// Most bytes of a text that is given to several shells.
const MAX_SHELL: usize = 8 * 1024;

/// Names of programs that run the text of an argument.
const SHELLS: [&str; 4] = ["bash -c ", "eval ", "sh -ec ", "env X=1 bash -c "];

#[test]
fn soak_any_text_is_analyzed() {
    let target = Target {
        name: "shell",
        test: "tests::fuzz::soak_any_text_is_analyzed",
        tokens: &TOKENS,
        generate: |random| Ok(script(random, 4)?.into_bytes()),
        read: |entry| entry,
        cases: 600,
    };
    target.run(|input| check(&String::from_utf8_lossy(input)));
}

fn check(text: &str) {
    let command = Command::parse(text);
    let analysis = command.analysis();
    assert!(analysis.commands.len() <= 512, "{} commands", analysis.commands.len());
    assert_eq!(
        format!("{:?}", Command::parse(text)),
        format!("{command:?}"),
        "it is the same again"
    );
    let lines = analysis.explain();
    assert!(lines.len() <= MAX_LINES + 2);
    for line in lines {
        assert!(line.text.len() <= 2 * MAX_LINE_BYTES && !line.text.contains(char::is_control));
    }
    blocklist().find(&command);
    command.risk();
    command.risk_if_undoable();
    command.first_unlisted(&["ls".to_owned()]);
    command.git_commands().count();
    assert!(command.directories().len() <= 64 && command.started_files().len() <= 1000);

    // Bash reads line by line: a first line that is complete runs, whatever follows.
    let found = programs(&format!("{PROBE} x\n{text}"));
    assert!(
        found.is_none_or(|found| found.contains(PROBE)),
        "the program of the first line is missed"
    );

    // What a text starts, a shell with this text starts too. What may be only an argument of an
    // unknown program isn't certain.
    let certain = command.programs.iter().filter(|program| program.certain);
    let certain: BTreeSet<String> = certain.map(|program| program.name.clone()).collect();
    // A word that begins with `-` would be an option, and a long text takes long.
    let is_word = !text.contains('\0') && !text.starts_with('-') && text.len() < MAX_SHELL;
    if command.unclear.is_some() || !is_word {
        return;
    }
    let quoted = command_line([&text.to_owned()]);
    for shell in SHELLS {
        let Some(found) = programs(&format!("{shell}{quoted}")) else { continue };
        let missed: Vec<_> = certain.difference(&found).collect();
        assert!(missed.is_empty(), "`{shell}` misses {missed:?}");
    }
}

/// The names of the programs in a text. `None`: the analysis says that there may be others.
fn programs(text: &str) -> Option<BTreeSet<String>> {
    let command = Command::parse(text);
    command
        .unclear
        .is_none()
        .then(|| command.programs.iter().map(|program| program.name.clone()).collect())
}

/// Some commands.
fn script(random: &mut Unstructured<'_>, depth: usize) -> Result<String> {
    let mut script = command(random, depth)?;
    while random.ratio(1, 3)? && !random.is_empty() {
        script += random.choose(&["; ", " && ", " || ", " | ", "\n", " & ", " |& "])?;
        script += &command(random, depth)?;
    }
    Ok(script)
}

fn command(random: &mut Unstructured<'_>, depth: usize) -> Result<String> {
    let kind = if depth == 0 || random.is_empty() { 0 } else { random.int_in_range(0..=20)? };
    let mut inner = || script(random, depth - 1);
    Ok(match kind {
        1 => format!("( {} )", inner()?),
        2 => format!("{{ {}\n}}", inner()?),
        3 => format!("if {}; then {}\nfi", inner()?, inner()?),
        4 => format!("while {}; do {}\ndone", inner()?, inner()?),
        5 => format!("for x in a b; do {}\ndone", inner()?),
        6 => format!("case $x in a) {};; *) {}\nesac", inner()?, inner()?),
        7 => format!("f() {{ {}\n}}; f", inner()?),
        8 => format!("x=$({}\n)", inner()?),
        9 => format!("echo \"$({}\n)\" `{}`", inner()?, inner()?),
        10 => format!("cat <<E\n{}\n$({}\n)\nE\n", inner()?, inner()?),
        11 => format!("{}{}", random.choose(&SHELLS)?, command_line([&script(random, depth - 1)?])),
        12 => format!("cat <({}\n)", inner()?),
        13 => format!("[[ $({}\n) == x ]]", inner()?),
        14 => format!("echo $(( 1 + $({}\n) ))", inner()?),
        15 => format!("find . -exec {} {{}} ';'", simple(random)?),
        16 => format!("xargs {}", simple(random)?),
        17 => format!("sudo -u x {}", simple(random)?),
        18 => format!("{} > {}", inner()?, random.choose(&WORDS)?),
        _ => simple(random)?,
    })
}

fn simple(random: &mut Unstructured<'_>) -> Result<String> {
    let mut command = (*random.choose(&WORDS)?).to_owned();
    for _ in 0..random.int_in_range(0..=4)? {
        command.push(' ');
        let words = if random.ratio(1, 6)? { &TOKENS[..] } else { &WORDS };
        command += random.choose(words)?;
    }
    Ok(command)
}
