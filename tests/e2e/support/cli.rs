use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{not_tried, shared_cache, toolhold};

/// The variable that hides later versions of Landlock from the program that is tested.
pub(crate) const NEWEST_LANDLOCK: &str = "TEST_NEWEST_LANDLOCK";

/// A folder to work in, with folders of Toolhold's own beside it.
pub(crate) struct Cli {
    pub(crate) root: TempDir,
    /// Whether every call that acts needs approval.
    asks: bool,
}

/// The result of a command.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Cli {
    pub(crate) fn new() -> Self {
        let root = TempDir::new().expect("a temporary folder is made");
        for folder in ["work", "config"] {
            fs::create_dir(root.path().join(folder)).expect("a folder is made");
        }
        let cli = Self { root, asks: false };
        fs::write(cli.work().join("notes.txt"), "first\nsecond\n").expect("a file is written");
        fs::write(cli.root.path().join("secret.txt"), "the secret").expect("a file is written");
        cli
    }

    /// The same with `autonomy = "ask"`.
    pub(crate) fn asking() -> Self {
        Self { asks: true, ..Self::new() }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().canonicalize().expect("it is there").join("work")
    }

    pub(crate) fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new(toolhold());
        command.args(line).current_dir(self.work()).env_clear().env("HOME", self.root.path());
        command
            .env("TOOLHOLD_CONFIG_DIR", self.root.path().join("config"))
            .env("TOOLHOLD_DATA_DIR", self.root.path().join("data"));
        command.envs(std::env::var(NEWEST_LANDLOCK).map(|newest| (NEWEST_LANDLOCK, newest)));
        if self.asks {
            command.env("TOOLHOLD_TOOLS_AUTONOMY", "ask");
        }
        command.env("TOOLHOLD_CACHE_DIR", shared_cache()).stdin(Stdio::null());
        command
    }

    #[track_caller]
    pub(crate) fn run(&self, line: &[&str]) -> Ended {
        Ended::from_output(self.command(line).output().expect("toolhold starts"))
    }

    /// The same at a terminal, where a line of `input` answers each question, and the input ends
    /// after the last one. `None`, with a notice, if this machine has no `script`, which creates
    /// terminals.
    pub(crate) fn typed(&self, line: &[&str], input: &str) -> Option<Ended> {
        self.at_a_terminal(&quoted(line), "", input)
    }

    /// The same with variables of the environment.
    pub(crate) fn typed_with(
        &self,
        variables: &[(&str, &str)],
        line: &[&str],
        input: &str,
    ) -> Option<Ended> {
        let assignments: String =
            variables.iter().map(|(name, value)| format!("{name}='{value}' ")).collect();
        self.at_a_terminal(&format!("{assignments}{}", quoted(line)), "", input)
    }

    /// The same with `ahead` typed before the command started.
    pub(crate) fn typed_ahead(&self, line: &[&str], ahead: &str, input: &str) -> Option<Ended> {
        // Typed text is in the terminal once the shell has read a line of it.
        self.at_a_terminal(&format!("read line; {}", quoted(line)), &format!("\n{ahead}"), input)
    }

    fn at_a_terminal(&self, shell: &str, ahead: &str, input: &str) -> Option<Ended> {
        let command = self.command(&[]);
        let mut script = Command::new("script");
        script.args(["-qec", shell, "/dev/null"]).current_dir(self.work()).env_clear();
        script
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .env("NO_COLOR", "1");
        script.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        type_at_terminal(script, ahead, input).map(Ended::from_output)
    }

    /// The user's configuration.
    pub(crate) fn configure(&self, text: &str) {
        fs::write(self.root.path().join("config/toolhold.toml"), text)
            .expect("the configuration is written");
    }
}

/// Runs `script`, which creates a terminal, with `ahead` typed at once, and then a line of `input`
/// as the answer to each question. `None`, with a notice, if this machine has no `script`.
pub(crate) fn type_at_terminal(mut script: Command, ahead: &str, input: &str) -> Option<Output> {
    let spawned =
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = spawned.inspect_err(|_| not_tried("script")) else { return None };
    let mut keyboard = child.stdin.take();
    let mut screen = child.stdout.take().expect("it has an output");
    press_keys(&mut keyboard, ahead);
    let mut answers = input.split_inclusive('\n');
    let mut shown = Vec::new();
    let mut part = [0; 4096];
    loop {
        match screen.read(&mut part).expect("it can be read") {
            0 => break,
            read => shown.extend_from_slice(&part[..read]),
        }
        // A question is on the last line, with the cursor after it.
        if shown.ends_with(b"] ") || shown.ends_with(b"]: ") {
            match answers.next() {
                Some(answer) => press_keys(&mut keyboard, answer),
                None => keyboard = None,
            }
        }
    }
    let ended = child.wait_with_output().expect("it ends");
    Some(Output { stdout: shown, ..ended })
}

fn press_keys(keyboard: &mut Option<ChildStdin>, text: &str) {
    let keyboard = keyboard.as_mut().expect("it has an input");
    keyboard.write_all(text.as_bytes()).expect("it reads its input");
}

/// A command of `toolhold` for a shell.
fn quoted(line: &[&str]) -> String {
    let words = std::iter::once(toolhold().display().to_string())
        .chain(line.iter().map(|word| (*word).to_owned()));
    words.map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

impl Ended {
    pub(crate) fn from_output(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("toolhold prints UTF-8");
        let code = output.status.code().expect("toolhold is not killed");
        let ended = Self { code, stdout: text(output.stdout), stderr: text(output.stderr) };
        assert!(
            !ended.stdout.contains('\u{1b}') && !ended.stderr.contains('\u{1b}'),
            "no colours where nobody sees them"
        );
        ended
    }

    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}
