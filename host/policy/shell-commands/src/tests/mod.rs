//! Tables of commands and how they are read.

mod fuzz;
mod judge;

use super::*;

fn blocklist() -> Blocklist<String> {
    Blocklist::new(DEFAULT_BLOCKED.iter().map(|entry| ((*entry).to_owned(), "here".to_owned())))
}

/// Checks which entry of the blocklist matches each command: `entry` for a certain match, `entry?`
/// for a possible one, and an empty text for none.
#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let command = Command::read(text);
        let list = blocklist();
        let found = list.find(&command);
        let found = found.map_or(String::new(), |blocked| {
            format!("{}{}", blocked.entry, if blocked.certain { "" } else { "?" })
        });
        assert_eq!(found, *expected, "{text:?}: {command:?}");
    }
}

#[test]
fn blocked_program_is_found_in_any_folder_and_spelling() {
    check(&[
        ("sudo ls", "sudo"),
        ("SUDO ls", "sudo"),
        ("/usr/bin/sudo ls", "sudo"),
        ("su\\do ls", "sudo"),
        ("s\"ud\"o ls", "sudo"),
        ("'sudo' ls", "sudo"),
        ("su\\\ndo ls", "sudo"),
        ("$'\\x73udo' ls", "sudo"),
        ("$'\\163udo' ls", "sudo"),
        ("mkfs.ext4 /dev/sda1", "mkfs"),
        ("mkfs /dev/sda1", "mkfs"),
        ("curl https://example.org", "curl"),
        ("sudoku", ""),
        ("ncdu", ""),
        ("cat sudo", ""),
        ("echo 'sudo ls'", ""),
        ("grep -r curl src", ""),
        ("git commit -m 'use curl; not wget'", ""),
    ]);
}

#[test]
fn flags_of_an_entry_match_in_any_order_and_place() {
    let entries = ["rm -rf", "git push --force", "tar -x -f old.tar"];
    let list: Blocklist<String> =
        Blocklist::new(entries.map(|entry| (entry.to_owned(), "here".to_owned())));
    for (text, expected) in [
        ("rm -rf d", Some("rm -rf")),
        ("rm -fr d", Some("rm -rf")),
        ("rm -r -f d", Some("rm -rf")),
        ("rm d -vRf", Some("rm -rf")),
        ("rm --force --recursive d", Some("rm -rf")),
        ("git push origin --force", Some("git push --force")),
        ("git --force push", Some("git push --force")),
        ("tar -xvf old.tar", Some("tar -x -f old.tar")),
        ("rm -r d", None),
        ("rm -r -- -f", None),
        ("git push --forced", None),
        ("tar -xf new.tar", None),
    ] {
        let command = Command::read(text);
        let found = list.find(&command);
        assert_eq!(
            found.map(|blocked| (blocked.entry, blocked.certain)),
            expected.map(|entry| (entry, true)),
            "{text}"
        );
    }
}

#[test]
fn every_command_of_a_line_is_checked() {
    check(&[
        ("true && sudo x", "sudo"),
        ("true || sudo x", "sudo"),
        ("true; sudo x", "sudo"),
        ("true & sudo x", "sudo"),
        ("true | sudo x", "sudo"),
        ("true |& sudo x", "sudo"),
        ("true\nsudo x", "sudo"),
        ("(sudo x)", "sudo"),
        ("{ sudo x; }", "sudo"),
        ("! sudo x", "sudo"),
        ("if true; then sudo x; fi", "sudo"),
        ("while sudo x; do :; done", "sudo"),
        ("for i in 1 2; do sudo x; done", "sudo"),
        ("case $x in a) sudo x;; esac", "sudo"),
        ("f() { sudo x; }", "sudo"),
        ("function f { sudo x; }", "sudo"),
        ("true # sudo x", ""),
        ("echo a#sudo", ""),
        ("true # x\nsudo y", "sudo"),
        ("true > sudo", ""),
        ("true 2>&1 | sudo x", "sudo"),
        ("true &> log; sudo x", "sudo"),
    ]);
}

#[test]
fn words_before_a_command_do_not_hide_it() {
    check(&[
        ("A=1 sudo x", "sudo"),
        ("A=1 B='a b' sudo x", "sudo"),
        ("PATH+=:/x sudo x", "sudo"),
        ("env sudo x", "sudo"),
        ("env -i A=1 sudo x", "sudo"),
        ("env -u A B=2 sudo x", "sudo"),
        ("nice -n 5 sudo x", "sudo"),
        ("nice -5 sudo x", "sudo"),
        ("nice --adjustment=5 sudo x", "sudo"),
        ("nohup sudo x", "sudo"),
        ("exec -a name sudo x", "sudo"),
        ("command sudo x", "sudo"),
        ("command -v sudo", ""),
        ("time -p sudo x", "sudo"),
        ("timeout 5 sudo x", "sudo"),
        ("timeout -k 1 -s KILL 5 sudo x", "sudo"),
        ("xargs -n1 sudo", "sudo"),
        ("xargs -0 -I {} sudo {}", "sudo"),
        ("xargs grep sudo", ""),
        ("xargs rm -rf", "rm -rf /?"),
        ("xargs -I X sudo X", "sudo"),
        ("find . -name '*.c' -exec sudo x {} \\;", "sudo"),
        ("find . -name sudo", ""),
        ("stdbuf -oL sudo x", "sudo"),
        ("busybox wget x", "wget"),
        ("nice timeout 5 env A=1 sudo x", "sudo"),
        ("env -S 'sudo x'", "sudo"),
        ("env -iS'A=1 sudo' x", "sudo"),
        ("env a-b=c sudo x", "sudo"),
        ("anything sudo x", "sudo?"),
        ("anything bash -c 'sudo x'", "sudo"),
    ]);
}

#[test]
fn commands_inside_commands_are_checked() {
    check(&[
        ("echo $(sudo x)", "sudo"),
        ("echo \"$(sudo x)\"", "sudo"),
        ("echo '$(sudo x)'", ""),
        ("echo `sudo x`", "sudo"),
        ("echo \"`sudo x`\"", "sudo"),
        ("echo $(echo $(sudo x))", "sudo"),
        ("echo `echo \\`sudo x\\``", "sudo"),
        ("diff <(sudo x) y", "sudo"),
        ("tee >(sudo x)", "sudo"),
        ("echo ${A:-$(sudo x)}", "sudo"),
        ("bash -c 'sudo x'", "sudo"),
        ("bash -lc \"sudo x\"", "sudo"),
        ("sh -e -c 'true; sudo x'", "sudo"),
        ("bash -o pipefail -c 'sudo x'", "sudo"),
        ("bash -c \"bash -c 'sudo x'\"", "sudo"),
        ("eval 'sudo x'", "sudo"),
        ("eval sudo x", "sudo"),
        ("trap 'sudo x' EXIT", "sudo"),
        ("cat <<EOF\n$(sudo x)\nEOF", "sudo"),
        ("cat <<'EOF'\n$(sudo x)\nEOF", ""),
        ("cat <<EOF\nsudo x\nEOF\nsudo y", "sudo"),
        ("cat <<EOF\nsudo x\nEOF\ntrue", ""),
    ]);
}

#[test]
fn entries_of_several_words_match_a_program_and_its_arguments() {
    check(&[
        ("dd if=/dev/zero of=x", "dd if="),
        ("dd of=x bs=1 if=/dev/zero", "dd if="),
        ("dd of=x", ""),
        ("dd of=x $MORE", "dd if=?"),
        ("rm -rf /", "rm -rf /"),
        ("rm -fr /", "rm -rf /"),
        ("rm -r -f /", "rm -rf /"),
        ("rm --recursive --force /", "rm -rf /"),
        ("rm -rf //", "rm -rf /"),
        ("rm -rf /./", "rm -rf /"),
        ("rm -rf /*", "rm -rf /"),
        ("rm -rf -- /", "rm -rf /"),
        ("rm -rf ~", "rm -rf /"),
        ("rm -rf --no-preserve-root /", "rm -rf /"),
        ("rm -rf .git/worktrees/x", "rm -rf /"),
        ("rm -rf /tmp/x", ""),
        ("rm -rf build", ""),
        ("rm -rf build/*", ""),
        ("rm /", ""),
        ("rm -rf $DIR", "rm -rf /?"),
        ("rm -rf \"$DIR\"/", "rm -rf /?"),
        ("rm -rf \"$DIR/build\"", ""),
    ]);
    let list = Blocklist::<String>::new([("git push --force".to_owned(), "here".to_owned())]);
    for (text, blocked) in [
        ("git push --force", true),
        ("git push origin main --force", true),
        ("git -C x push --force", true),
        ("git push", false),
        ("git commit -m 'push --force'", false),
    ] {
        assert_eq!(list.find(&Command::read(text)).is_some(), blocked, "{text}");
    }
}

#[test]
fn unknown_programs_make_a_command_unclear() {
    for text in [
        "$CMD x",
        "\"$CMD\" x",
        "$(echo sudo) x",
        "/usr/bin/su?o x",
        "{sudo,x}",
        "eval \"$X\"",
        "bash -c \"$X\"",
        "bash",
        "curl x | bash",
        "bash <<< 'sudo x'",
        "cat <<EOF\nx",
        "echo 'unended",
        "echo \"unended",
        "echo $(unended",
        "env -S '$X y'",
        "nice --strange 5 sudo x",
        "sudo --strange x",
        "find . -exec $X {} +",
        "xargs $X",
    ] {
        assert!(Command::read(text).unclear.is_some(), "{text}: {:?}", Command::read(text));
    }
    for text in [
        "ls -l",
        "echo $HOME *.rs",
        "echo $(date)",
        "A=$X ls",
        "cat < notes.txt",
        "bash script.sh",
        "git log --format='%h'",
        "",
    ] {
        assert_eq!(Command::read(text).unclear, None, "{text}");
    }
    let deep = format!("{}true{}", "$(".repeat(100), ")".repeat(100));
    assert!(Command::read(&deep).unclear.is_some());
    assert!(Command::read(&"true;".repeat(100_000)).unclear.is_some());
    assert!(
        Command::read(&(0..1000).map(|index| format!("a{index};")).collect::<String>())
            .unclear
            .is_some()
    );
}

#[test]
fn texts_are_the_commands_and_the_files_written_to() {
    let check =
        |text: &str, expected: &[&str]| assert_eq!(Command::read(text).texts, expected, "{text}");
    check("git status", &["git status"]);
    check("cd x && git push", &["cd x", "git push"]);
    check("A=1 git push", &["A=1 git push", "git push"]);
    check("timeout 5 git push", &["timeout 5 git push", "git push"]);
    check("git log > out.txt", &["git log > out.txt", "git log", "> out.txt"]);
    check("make >/dev/null 2>&1", &["make"]);
    check("git commit -m \"a b\"", &["git commit -m \"a b\"", "git commit -m a b"]);
    check("sh -c 'git push'", &["sh -c 'git push'", "sh -c git push", "git push"]);
}

#[test]
fn risk_is_that_of_the_riskiest_part() {
    for (text, expected) in [
        ("ls", Risk::Low),
        ("git status", Risk::Low),
        ("git push", Risk::Medium),
        ("git -C x push", Risk::Medium),
        ("git log --format=x", Risk::Low),
        ("git log --format=x --output=y", Risk::Medium),
        ("git diff --output y", Risk::Medium),
        ("npm install", Risk::Medium),
        ("cargo build", Risk::Low),
        ("cargo publish", Risk::Medium),
        ("mv a b", Risk::Medium),
        ("rm a", Risk::High),
        ("ls && rm a", Risk::High),
        ("A=1 /bin/rm a", Risk::High),
        ("timeout 5 ssh host", Risk::High),
        ("bash -c 'chmod 777 x'", Risk::High),
        ("mkfs.ext4 x", Risk::High),
        ("echo rm", Risk::Low),
    ] {
        assert_eq!(Command::read(text).risk().0, expected, "{text}");
    }
}

#[test]
fn risk_of_a_redirection_names_its_direction() {
    for (text, file) in [
        ("tr a b < /proc/2/cmdline", "< /proc/2/cmdline"),
        ("echo 1 > /proc/sys/vm/x", "> /proc/sys/vm/x"),
    ] {
        assert_eq!(Command::read(text).risk(), (Risk::High, file.to_owned()), "{text}");
    }
}

#[test]
fn commands_that_a_shell_runs_are_not_read_as_text() {
    // Each of these runs `sudo x` in some shell.
    for text in [
        "git log \"${x:-'}\"; sudo x; echo \"'}\"",
        "git log \"${x:-{}\"; sudo x; echo \"}\"",
        "git log \"$(echo \"$(echo '\"')\")\"; sudo x; echo \"\\')\"",
        "git log \"$(true # '\n)\"; sudo x; echo \"\\')\"",
        "git log \"$(case x in x) sudo x;; esac)\"",
        "git log \"$\\\n(sudo x)\"",
        "git log `echo \\'; sudo x; echo \\'`",
        "git log $'\\'; sudo x #'",
        "git log ${x:-<(sudo x)}",
        "git log ${x:-E[ `sudo x`{a,b}E",
        "A='a b'\\\n 2>f sudo x",
        "git log \r#; sudo x",
        "((1 #2)); sudo x",
        "function git { for i do sudo x; done; }; git a",
        "set -- a; for i do sudo x; done",
        "for i; do sudo x; done",
        "select i do sudo x; done",
        "time for i do sudo x; done",
        "time ! sudo x",
        "coproc sudo x",
        "coproc X { sudo x; }",
        "echo 'sudo x' | bash -",
        "echo 'sudo x' | bash /dev/stdin",
        "echo 'sudo x' | . /dev/stdin",
        "bash -c - 'sudo x'",
        "bash -eo pipefail -c 'sudo x'",
        "watch 'sudo x'",
        "parallel 'sudo x'",
        "parallel ::: 'sudo x'",
        "flock F -c 'sudo x'",
        "flock F sudo x",
        "script -c 'sudo x'",
        "echo sudo x | xargs env",
        "echo sudo x | xargs timeout 5",
        "echo 'sudo x' | xargs -I X sh -c X",
        "echo 'sudo x' | xargs -IX sh -c 'ls; X'",
        "echo sudo | xargs -I X X x",
        "echo sudo | xargs -I X env X x",
        "echo 'sudo x' | xargs -d '\\n' sh -c",
        "echo 'sudo x' | xargs -I X eval X",
        "nsenter -t1 sudo x",
        "unshare -r sudo x",
        "chroot / sudo x",
        "echo 'sudo x' | chroot /",
    ] {
        let (command, list) = (Command::read(text), blocklist());
        assert!(
            list.find(&command).is_some_and(|blocked| blocked.entry == "sudo")
                || command.unclear.is_some(),
            "{text:?}: {command:?}"
        );
    }
    // These are clear.
    for text in [
        "for i in a b; do ls $i; done",
        "echo \"${x:-a}\" \"$(git log \"$y\" | sort -k '2')\"",
        "echo ${x:-'}'}",
        "echo `date`",
        "watch ls",
        "ls | xargs grep -l x",
        "ls | xargs -I {} sh -c 'ls \"$1\"' _ {}",
        "bash -eo pipefail -c ls",
        "ls\r\nls",
    ] {
        assert_eq!(Command::read(text).unclear, None, "{text:?}");
    }
}

/// A text that runs the same command: another form of it, or another command around it.
fn hidden(command: &str, way: usize) -> String {
    let quoted = shlex::try_quote(command).map(|quoted| quoted.into_owned()).unwrap_or_default();
    let in_backticks = command.replace('\\', "\\\\").replace('`', "\\`").replace('$', "\\$");
    match way {
        0 => format!("bash -c {quoted}"),
        1 => format!("eval {quoted}"),
        2 => format!("({command})"),
        3 => format!("{{ {command}\n}}"),
        4 => format!("echo $({command})"),
        5 => format!("echo \"$({command}\n)\""),
        6 => format!("echo `{in_backticks}`"),
        7 => format!("if true; then {command}\nfi"),
        8 => format!("for i in a; do {command}\ndone"),
        9 => format!("f() {{ {command}\n}}; f"),
        10 => format!("case a in a) {command}\nesac"),
        11 => format!("env A=1 timeout 5 sh -c {quoted}"),
        12 => format!("find . -exec sh -c {quoted} \\;"),
        13 => format!("echo a | xargs -I X sh -c {quoted}"),
        14 => format!("cat <<EOF\n$({command}\n)\nEOF"),
        15 => format!("trap {quoted} EXIT"),
        16 => format!(
            "git -c alias.x={} x",
            shlex::try_quote(&format!("!{command}")).unwrap_or_default()
        ),
        17 => format!("ls 2>/dev/null && {command}"),
        18 => format!("diff <({command}) b"),
        19 => format!("A=1 B=$({command}) ls"),
        20 => format!("! time {command}"),
        21 => format!("nice -n 5 nohup bash -euc {quoted} &"),
        22 => format!("cat <<'EOF'\n'\"`\nEOF\n{command}"),
        23 => format!("echo ${{x:-$({command})}}"),
        24 => format!("ssh host {quoted}"),
        _ => format!("ls # '\n{command}"),
    }
}

const SIGNS: [&str; 52] = [
    "a",
    "b ",
    " ",
    "\n",
    ";",
    "&",
    "&&",
    "|",
    "||",
    "(",
    ")",
    "{",
    "}",
    "[[ ",
    " ]]",
    "[ ",
    " ]",
    "((",
    "))",
    "$(",
    "`",
    "${",
    "$((",
    "<(",
    ">(",
    "<<E\n",
    "\nE\n",
    "<<<",
    ">",
    "<",
    "2>&1",
    "'",
    "\"",
    "\\",
    "\\\n",
    "$x",
    "=",
    "a=",
    "if ",
    "then ",
    "fi",
    "for i in ",
    "do ",
    "done",
    "case ",
    " in ",
    "esac",
    "#",
    "function ",
    "() ",
    "sudo ",
    "env ",
];

#[test]
fn expensive_texts_exceed_the_limits() {
    // Each of these takes less than a second in a debug build. Without the limits, some take a
    // minute.
    for (part, times) in [
        ("a|", 30_000),
        ("<<E$[\t\t", 8_000),
        ("$(", 30_000),
        ("${x:-", 12_000),
        ("[[ a && ", 8_000),
        ("env ", 16_000),
        ("find -exec ", 5_900),
        ("a;", 32_000),
        ("if ", 20_000),
        ("> a ", 16_000),
        ("`", 60_000),
        ("a=(b $(c <<X) ", 4_000),
    ] {
        let command = Command::read(&part.repeat(times));
        assert!(command.unclear.is_some(), "{part}");
        assert!(
            command.texts.iter().map(String::len).sum::<usize>() <= 256 * 1024
                && command.programs.len() <= 256,
            "{part}"
        );
    }
}

proptest::proptest! {
    /// At any depth and in any spelling, a blocked command is found, or the text is unresolved.
    #[test]
    fn nesting_does_not_hide_a_blocked_command(
        spelling in proptest::sample::select(vec!["sudo x", "s'u'do x", "su\\do x", "\"sudo\" x", "$'\\x73udo' x", "/bin/sudo x", "A=1 sudo x", "su\\\ndo x"]),
        ways in proptest::collection::vec(0..26_usize, 0..5),
    ) {
        let text = ways.iter().fold(spelling.to_owned(), |text, way| hidden(&text, *way));
        let command = Command::read(&text);
        let found = blocklist().find(&command).is_some_and(|blocked| blocked.entry == "sudo");
        proptest::prop_assert!(found || command.unclear.is_some(), "{text:?} {command:?}");
    }

    /// Any sequence of the grammar's own signs is analyzed in bounded time, with a bounded result.
    #[test]
    fn signs_in_any_order_are_analyzed(signs in proptest::collection::vec(proptest::sample::select(SIGNS.to_vec()), 0..80)) {
        let text = signs.concat();
        let (analysis, command) = (analyze(&text), Command::read(&text));
        proptest::prop_assert!(analysis.commands.len() <= 512);
        proptest::prop_assert!(command.texts.iter().map(String::len).sum::<usize>() <= 256 * 1024);
    }

    /// Any text is read in bounded time and without a panic.
    #[test]
    fn any_text_is_read(text in "([ -~]|\n|sudo|\\$\\(|`|<<|\\\\|'|\"|\u{e9}|\u{1f600}){0,200}") {
        let command = Command::read(&text);
        proptest::prop_assert!(command.texts.len() <= 2048);
    }

    /// A blocked command is found or suspected between any other texts.
    #[test]
    fn neighbours_do_not_hide_a_blocked_command(before in "[a-z |&;()\n=>.-]{0,30}", after in "[ -~\n]{0,30}") {
        let text = format!("{before}\nsudo x\n{after}");
        let command = Command::read(&text);
        // The text before it may itself be blocked, and is then found first.
        let before = blocklist().find(&Command::read(&before)).is_some();
        let found = blocklist().find(&command).is_some_and(|blocked| blocked.entry == "sudo" || !blocked.certain || before);
        proptest::prop_assert!(found || command.unclear.is_some(), "{text:?} {command:?}");
    }
}

/// Everyday lines with comparisons and arithmetic.
const CALCULATING: &str = include_str!("calculating.txt");

/// The lines that are unresolved. They use input or an argument in arithmetic, or the items of a
/// list might be used in it.
const UNRESOLVED: [&str; 3] = ["total=0; while read", "f() { echo $(( $1", "arr=(a b c); for"];

#[test]
fn everyday_lines_that_calculate_are_resolved() {
    let lines: Vec<&str> = CALCULATING.lines().collect();
    assert_eq!(lines.len(), 60);
    let unresolved: Vec<&str> =
        lines.iter().copied().filter(|line| analyze(line).unresolved.is_some()).collect();
    let known = |line: &&&str| UNRESOLVED.iter().any(|begin| line.starts_with(begin));
    assert!(
        unresolved.iter().all(|line| known(&line)) && unresolved.len() == UNRESOLVED.len(),
        "{unresolved:#?}"
    );
}
