//! Bash as the judge: a real bash runs random commands with programs that only record that they
//! ran. The analysis has to find every program that ran, or the command has to be unresolved.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::calculated::{DISABLED_RULE, Rule};
use super::super::{Command, CommandAnalysis};

/// The rules. If one is disabled, the analysis has to miss a program.
const RULES: [Rule; 29] = [
    Rule::Arithmetic,
    Rule::Let,
    Rule::Index,
    Rule::Slice,
    Rule::Indirect,
    Rule::Prompt,
    Rule::Default,
    Rule::Comparison,
    Rule::ConditionName,
    Rule::TestName,
    Rule::TestWords,
    Rule::Integer,
    Rule::IntegerVariable,
    Rule::Reference,
    Rule::ListText,
    Rule::ReadName,
    Rule::UnsetName,
    Rule::PrintfName,
    Rule::WaitName,
    Rule::Callback,
    Rule::Words,
    Rule::Jobs,
    Rule::Trace,
    Rule::Eval,
    Rule::Trap,
    Rule::Alias,
    Rule::Value,
    Rule::ShellVariable,
    Rule::Function,
];

/// The number of commands in an ordinary run, and in a soak run.
const CASES: (usize, usize) = (3_000, 1_000_000);

/// The programs in `PATH`. Each records its name and prints a number.
const PROGRAMS: [&str; 5] = ["p1", "p2", "p3", "wc", "nproc"];

/// The built-in commands of bash, as `compgen -b` lists them, without those that would wait or end
/// the process group.
const BUILTINS: [&str; 59] = [
    ".",
    ":",
    "[",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "declare",
    "dirs",
    "disown",
    "echo",
    "enable",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "getopts",
    "hash",
    "help",
    "history",
    "jobs",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "set",
    "shift",
    "shopt",
    "source",
    "test",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "wait",
];

/// The texts between `${x` and `}`.
const OPERATORS: [&str; 36] = [
    "", ":-W", "-W", ":=W", "=W", ":?W", "?W", ":+W", "+W", ":W", ":1:W", ": W", "#W", "##W", "%W",
    "%%W", "/W/W", "//W/W", "/#W/W", "/%W/W", "^W", "^^W", ",W", ",,W", "@U", "@u", "@L", "@Q",
    "@E", "@P", "@A", "@K", "@a", "@k", "[W]", "[W]:W",
];

/// A generator of repeatable random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// True once in `bound` times.
    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    /// A command substitution.
    fn substitution(&mut self) -> String {
        let program = self.pick(&PROGRAMS[..3]);
        match self.below(4) {
            0 => format!("`{program}`"),
            1 => format!("$({program} x)"),
            _ => format!("$({program})"),
        }
    }

    /// A text that runs a program if it is evaluated as a number or a name.
    fn payload(&mut self) -> String {
        let inner = self.substitution();
        match self.below(6) {
            0 => format!("b[a[{inner}]]"),
            1 => format!("1+a[{inner}]"),
            _ => format!("a[{inner}]"),
        }
    }

    /// A word that expands to a text.
    fn quoted(&mut self, text: &str) -> String {
        match self.below(4) {
            0 => format!("\"{}\"", text.replace('$', "\\$").replace('`', "\\`")),
            1 => format!("$'{}'", text.replace('$', "\\x24").replace('`', "\\140")),
            _ => format!("'{text}'"),
        }
    }

    /// Commands that set `x` to a text.
    fn set(&mut self, text: &str) -> String {
        let word = self.quoted(text);
        match self.below(16) {
            0..3 => format!("x={word}"),
            3 => format!("read -r x <<< {word}"),
            4 => format!("printf -v x %s {word}"),
            5 => format!("x=$(echo {word})"),
            6 => format!("mapfile -t x <<< {word}"),
            7 => format!("for x in {word}; do :; done"),
            8 => format!("y={word}; x=$y"),
            9 => format!("set -- {word}; x=$1"),
            10 => format!("x=({word})"),
            11 => format!("select x in {word}; do break; done <<< 1"),
            12 => format!("export x={word}"),
            13 => format!(": ${{x:={word}}}"),
            14 => format!("IFS= read -r -d '' x < <(echo {word})"),
            _ => format!("unset x; declare x={word}"),
        }
    }

    /// A command that evaluates a word. If `variable` is true, it evaluates the value of `x`.
    fn evaluates(&mut self, word: &str, variable: bool) -> String {
        let bare = if variable { "x" } else { word };
        match self.below(34) {
            0 => format!("(( {bare} ))"),
            1 => format!("echo $(( {bare} + 1 ))"),
            2 => format!("echo $[ {bare} ]"),
            3 => format!("let {word}"),
            4 => format!("let y={bare}"),
            5 => format!("for ((i = {bare}; i < 1; i++)); do break; done"),
            6 => format!("[[ {word} -eq 1 ]]"),
            7 => format!("[[ -f q || 1 -lt {bare} ]]"),
            8 => format!("[[ -v {word} ]]"),
            9 => format!("[ -v {word} ]"),
            10 => format!("test -n q -a -v {word}"),
            11 => format!("y=abc; echo ${{y:{bare}}}"),
            12 => format!("y=abc; echo ${{y:1:{bare}}}"),
            13 => format!("echo ${{c[{bare}]}}"),
            14 => format!("c[{bare}]=1"),
            15 => format!("c=([{bare}]=1)"),
            16 => format!("a=(1); unset {word}"),
            17 => format!("declare -i v={word}"),
            18 => format!("declare -i v; v={word}"),
            19 => format!("{}={word}", self.pick(&["RANDOM", "OPTIND", "HISTCMD", "SRANDOM"])),
            20 => format!("y={word}; echo ${{!y}}"),
            21 => format!("declare -n r={word}; echo $r"),
            22 => format!("read {word} <<< 1"),
            23 => format!("printf -v {word} 1"),
            24 => format!(": & wait -p {word} $!"),
            25 => format!("declare {word}=1"),
            26 => format!("f() {{ local {word}=1; }}; f"),
            27 => format!("read <<< {word}; (( REPLY ))"),
            28 => format!("[[ {word} =~ .* ]]; (( BASH_REMATCH ))"),
            29 => format!(": {word}; (( _ ))"),
            30 => format!("exec {{c[{bare}]}}> file"),
            31 => format!("set -- {word}; (( $1 ))"),
            32 => format!("test -v {word}"),
            _ => format!("y={word}; z=y; (( z ))"),
        }
    }

    /// A command that evaluates a text that is or contains a command.
    fn runs(&mut self) -> String {
        let program = self.pick(&PROGRAMS[..3]);
        let (substitution, inner) = (self.substitution(), self.substitution());
        let text = self.quoted(&substitution);
        match self.below(20) {
            0 => format!("eval '{program} x'"),
            1 => format!("trap {program} EXIT"),
            2 => format!("shopt -s expand_aliases\nalias foo={program}\nfoo"),
            3 => format!("mapfile -C {program} -c 1 y <<< q"),
            4 => format!("compgen -W {text}"),
            5 => format!("compgen -C {program}"),
            6 => format!("jobs -x {program}"),
            7 => format!("PS4={text}; set -x; :"),
            8 => format!("x={text}; echo ${{x@P}}"),
            9 => format!("x='q[{inner}]'; PS4='${{a[x]}}'; set -x; :"),
            10 => format!("declare -a q={}", self.quoted(&format!("({substitution})"))),
            11 => format!("q=(1); x='({inner})'; declare q=\"$x\""),
            12 => format!("x='-v {}'; [ $x ]", self.payload()),
            13 => format!("set -- -v '{}'; test \"$1\" \"$2\"", self.payload()),
            14 => format!("wc() {{ echo '{}'; }}; (( $(wc -l < /dev/null) ))", self.payload()),
            15 => format!("nproc() {{ echo '{}'; }}; x=$(nproc); (( x ))", self.payload()),
            16 => format!("coproc {program}; wait"),
            17 => format!("f() {{ {program}; }}; f"),
            18 => format!("case x in {substitution}) ;; *) {program} ;; esac"),
            _ => format!("cat <<E\n{substitution}\nE\nread x <<< \"{inner}\""),
        }
    }

    /// A word of any kind.
    fn word(&mut self) -> String {
        let payload = self.payload();
        match self.below(14) {
            0 => self.quoted(&payload),
            1 => self.substitution(),
            2 => format!("\"{}\"", self.substitution()),
            3 => format!("${{x{}}}", self.pick(&OPERATORS).replacen('W', "y", 2)),
            4 => "\"$x\"".to_owned(),
            5 => "$x".to_owned(),
            6 => format!("x={payload}").replace(['$', '`', '('], "").replace(')', ""),
            7 => format!("<({})", self.pick(&PROGRAMS[..3])),
            8 => format!("$(( x + {} ))", self.below(9)),
            9 => self
                .pick(&[
                    "-a", "-v", "-p", "-n", "-i", "-x", "-f", "-C", "-W", "-A", "-t", "-u", "--",
                ])
                .to_owned(),
            10 => self.pick(&["1", "0", "x", "y", "a[1]", "+1", "{1,2}", "~", "*"]).to_owned(),
            11 => self.pick(&PROGRAMS[..3]).to_owned(),
            _ => {
                self.pick(&["=", "!=", "-eq", "!", "-z", "%s", "EXIT", "DEBUG", "word"]).to_owned()
            }
        }
    }

    /// A command of any kind.
    fn command(&mut self) -> String {
        let payload = self.payload();
        match self.below(8) {
            0 | 1 => {
                let word = self.quoted(&payload);
                self.evaluates(&word, false)
            }
            2 | 3 => format!("{}; {}", self.set(&payload), self.evaluates("\"$x\"", true)),
            4 => self.runs(),
            5 => {
                let words: Vec<String> = (0..self.below(4)).map(|_| self.word()).collect();
                let set = if self.one_in(2) {
                    format!("{}; ", self.set(&payload))
                } else {
                    String::new()
                };
                format!("{set}{} {}", self.pick(&BUILTINS), words.join(" "))
            }
            6 => {
                let (word, more) = (self.word(), self.word());
                let operator =
                    self.pick(&OPERATORS).replacen('W', &word, 1).replacen('W', &more, 1);
                let name = self.pick(&["x", "!x", "#x", "a[@]", "@", "q"]);
                format!(
                    "{}; echo {}",
                    self.set(&payload),
                    self.around(&format!("${{{name}{operator}}}"))
                )
            }
            _ => format!("{} {}", self.pick(&PROGRAMS[..3]), self.word()),
        }
    }

    fn around(&mut self, word: &str) -> String {
        if self.one_in(3) { format!("\"{word}\"") } else { word.to_owned() }
    }

    /// A command line.
    fn line(&mut self) -> String {
        let inner = self.command();
        match self.below(20) {
            0 => format!("( {inner} )"),
            1 => format!("{{ {inner}\n}}"),
            2 => format!("if {inner}\nthen :; fi"),
            3 => format!("g() {{ {inner}\n}}\ng"),
            4 => format!("{inner}\ntrue && {}", self.command()),
            5 => format!("echo \"$(\n{inner}\n)\""),
            6 => format!("while {inner}\ndo break; done"),
            7 => format!("time {inner}"),
            8 if !inner.contains('\'') => format!("bash -c '{inner}'"),
            9 if !inner.contains('\'') => format!("eval '{inner}'"),
            10 => format!("! {inner}"),
            11 => format!("true | {{ {inner}\n}}"),
            _ => inner,
        }
    }
}

/// Runs commands with bash, in a folder with the programs and a working folder.
struct Judge {
    folder: tempfile::TempDir,
    bash: PathBuf,
    timeout: PathBuf,
}

impl Judge {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let programs = folder.path().join("programs");
        fs::create_dir(&programs).unwrap();
        let notes = programs.join("p1");
        fs::write(&notes, "#!/bin/sh\necho \"${0##*/}\" >> \"$RAN\"\necho 0\n").unwrap();
        fs::set_permissions(&notes, fs::Permissions::from_mode(0o755)).unwrap();
        for program in PROGRAMS.iter().skip(1) {
            symlink(&notes, programs.join(program)).unwrap();
        }
        let [bash, timeout] = ["bash", "timeout"].map(|program| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let found = std::env::split_paths(&path)
                .map(|folder| folder.join(program))
                .find(|found| found.is_file());
            found.unwrap_or_else(|| panic!("{program} is needed to judge"))
        });
        // So that a command that starts `bash` by name finds the same one.
        symlink(&bash, programs.join("bash")).unwrap();
        Self { folder, bash, timeout }
    }

    /// The programs that a command line starts.
    fn ran(&self, line: &str, number: usize) -> BTreeSet<String> {
        let folder = self.folder.path().join(format!("work-{number}"));
        let ran = self.folder.path().join(format!("ran-{number}"));
        fs::create_dir(&folder).unwrap();
        let mut shell = Process::new(&self.timeout);
        shell.arg("-sKILL").arg("20").arg(&self.bash).args(["-c", line]).env_clear();
        shell
            .env("PATH", self.folder.path().join("programs"))
            .env("RAN", &ran)
            .current_dir(&folder);
        // The exit status is ignored: many lines are invalid on purpose.
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        let names = read(&ran);
        let _ = fs::remove_file(&ran);
        fs::remove_dir_all(&folder).unwrap();
        names
    }
}

fn read(ran: &Path) -> BTreeSet<String> {
    // A sourced program records the name of the shell, which is dropped here.
    let ran = fs::read_to_string(ran).unwrap_or_default();
    ran.lines().filter(|name| PROGRAMS.contains(name)).map(str::to_owned).collect()
}

/// A program that ran and wasn't found.
fn missed<'r>(analysis: &CommandAnalysis, ran: &'r BTreeSet<String>) -> Option<&'r String> {
    if analysis.unresolved.is_some() {
        return None;
    }
    ran.iter().find(|name| !analysis.commands.iter().any(|simple| simple.program == **name))
}

fn analyze(line: &str) -> CommandAnalysis {
    Command::parse(line).analysis()
}

#[test]
fn soak_programs_that_bash_runs_are_found_and_each_rule_is_needed() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed: u64 = number("TOOLHOLD_SEED").unwrap_or(18);
    let cases = if std::env::var_os("TOOLHOLD_SOAK").is_some() { CASES.1 } else { CASES.0 };
    let judge = Judge::new();
    let mut random = Random(seed);
    let lines: Vec<String> = (0..cases).map(|_| random.line()).collect();
    let next = AtomicUsize::new(0);
    let run = || {
        let mut found = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(line) = lines.get(at) else { return found };
            let ran = judge.ran(line, at);
            if !ran.is_empty() {
                found.push((line, ran));
            }
        }
    };
    let judged: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let missing: Vec<_> = judged
        .iter()
        .filter_map(|(line, ran)| missed(&analyze(line), ran).map(|program| (line, program)))
        .collect();
    let unresolved = judged.iter().filter(|(line, _)| analyze(line).unresolved.is_some()).count();
    println!(
        "{} lines, {} that start a program, {unresolved} of these unresolved",
        lines.len(),
        judged.len()
    );
    let shown: Vec<String> =
        missing.iter().take(20).map(|(line, program)| format!("{program} ran: {line}")).collect();
    assert!(
        missing.is_empty(),
        "seed {seed}: {} of {} were not found:\n{}",
        missing.len(),
        lines.len(),
        shown.join("\n")
    );
    assert!(
        judged.len() > cases / 3,
        "seed {seed}: only {} of {cases} started anything",
        judged.len()
    );
    let idle: Vec<_> = RULES.iter().filter(|rule| !is_needed(**rule, &judged)).collect();
    assert!(idle.is_empty(), "seed {seed}: nothing is missed without {idle:?}");
}

/// Whether the analysis misses a program if a rule is disabled.
fn is_needed(rule: Rule, judged: &[(&String, BTreeSet<String>)]) -> bool {
    DISABLED_RULE.set(Some(rule));
    let needed = judged.iter().any(|(line, ran)| missed(&analyze(line), ran).is_some());
    DISABLED_RULE.set(None);
    needed
}
