//! A shell in which the commands of a document are run.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::markdown::Block;
use crate::support::{compiler_caches, shared_cache, toolhold, type_at_terminal};

/// A folder to run commands in, with `toolhold` on the path and a user who has configured nothing.
pub(crate) struct Session {
    pub(crate) folder: PathBuf,
    user: TempDir,
    /// A ceiling over everything that the user says.
    pub(crate) ceiling: Option<PathBuf>,
    /// A folder with programs that come before those of the machine.
    pub(crate) tools: Option<PathBuf>,
    at_home: bool,
}

impl Session {
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            user: TempDir::new().expect("a temporary folder is made"),
            ceiling: None,
            tools: None,
            at_home: false,
        }
    }

    /// The user's home, which has their folders in it.
    pub(crate) fn user(&self) -> PathBuf {
        self.user.path().canonicalize().expect("the folder is there")
    }

    /// Puts a file into the home.
    pub(crate) fn write_of_user(&mut self, name: &str, text: &[u8]) {
        self.at_home = true;
        let path = self.user().join(name);
        let folder = path.parent().expect("a file lies in a folder");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .and_then(|()| fs::write(&path, text))
            .expect("a file is written");
    }

    /// Limits what the user allows.
    pub(crate) fn under(&mut self, ceiling: &str) {
        self.write_of_user("ceiling.toml", ceiling.as_bytes());
        self.ceiling = Some(self.user().join("ceiling.toml"));
    }

    /// Puts a file into the folder.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().expect("a file lies in a folder"))
            .and_then(|()| fs::write(&path, text))
            .expect("a file is written");
    }

    /// Runs the commands of a block and compares their output.
    #[track_caller]
    pub(crate) fn try_block(&self, block: &Block) {
        match block.language.as_str() {
            "sh" => drop(self.works(&block.text)),
            "" | "console" => commands(&block.text)
                .into_iter()
                .for_each(|(command, expected)| self.prints(&command, &expected)),
            _ => {}
        }
    }

    /// Runs the commands of a block, and stays in the folder that its last line enters.
    #[track_caller]
    pub(crate) fn follow(&mut self, block: &Block) {
        self.try_block(block);
        let last = block.text.lines().last().unwrap_or_default();
        if let ("sh", Some(folder)) = (block.language.as_str(), last.strip_prefix("cd ")) {
            self.folder.push(folder);
        }
    }

    /// Runs a command that has to work, and returns all its output.
    #[track_caller]
    pub(crate) fn works(&self, command: &str) -> String {
        let (works, printed) = self.run(command);
        assert!(works, "`{command}` fails:\n{printed}");
        printed
    }

    #[track_caller]
    fn prints(&self, command: &str, expected: &str) {
        let (_, printed) = self.run(command);
        compare(command, expected, &printed);
    }

    /// Runs the commands of a block at a terminal, types the answers that it shows, and compares
    /// the screen. Does nothing if this machine has no `script`, which creates terminals.
    #[track_caller]
    pub(crate) fn try_at_a_terminal(&self, block: &Block) {
        for (command, expected) in commands(&block.text) {
            let mut script = Command::new("script");
            script.args(["-qec", &command, "/dev/null"]).current_dir(&self.folder);
            for (name, value) in self.shell("").get_envs() {
                match value {
                    Some(value) => script.env(name, value),
                    None => script.env_remove(name),
                };
            }
            script.env("NO_COLOR", "1").env("SHELL", "/bin/sh");
            let Some(ended) = type_at_terminal(script, "", &answers(&expected)) else { return };
            compare(&command, &expected, &String::from_utf8_lossy(&ended.stdout));
        }
    }

    /// Whether it succeeded, and all its output.
    fn run(&self, command: &str) -> (bool, String) {
        // Both streams in one, in their order.
        let output = self.shell(&format!("exec 2>&1\n{command}")).output();
        let output = output.expect("there is a shell");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A shell with this script.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let mut path =
            toolhold().parent().expect("a program lies in a folder").as_os_str().to_owned();
        for folder in self
            .tools
            .iter()
            .map(|tools| tools.as_os_str().to_owned())
            .chain(std::env::var_os("PATH"))
        {
            path.push(":");
            path.push(folder);
        }
        let mut shell = Command::new("sh");
        shell.arg("-ec").arg(script).current_dir(&self.folder);
        // Without Toolhold's variables of the user who runs the tests, and without cargo's.
        for (name, _) in std::env::vars_os() {
            let ours = |name: &str| {
                ["TOOLHOLD_", "CARGO_PKG_", "CARGO_MANIFEST_"]
                    .iter()
                    .any(|prefix| name.starts_with(prefix))
            };
            if name.to_str().is_some_and(ours) {
                shell.env_remove(name);
            }
        }
        shell.env("PATH", path);
        for (name, folder) in [("TOOLHOLD_CONFIG_DIR", "config"), ("TOOLHOLD_DATA_DIR", "data")] {
            shell.env(name, self.user.path().join(folder));
        }
        shell.env("TOOLHOLD_CACHE_DIR", shared_cache());
        // The home folder, if a reader has files there. Otherwise it is that of the user who runs
        // the tests: cargo has its toolchains there.
        shell.envs(self.at_home.then(|| ("HOME", self.user.path())));
        shell.envs(self.ceiling.iter().map(|path| ("TOOLHOLD_CEILING", path)));
        // The plugins of the repository have compiled most of what an example needs.
        shell.env("CARGO_TARGET_DIR", super::built());
        shell.envs(self.tools.iter().flat_map(|tools| compiler_caches(tools)));
        shell
    }
}

#[track_caller]
fn compare(command: &str, expected: &str, printed: &str) {
    let expected: Vec<&str> = expected.trim_end().lines().collect();
    let actual: Vec<&str> = printed.trim_end().lines().collect();
    assert!(
        fits(&expected, &actual),
        "`{command}` is said to print\n{}\nand prints\n{printed}",
        expected.join("\n")
    );
}

/// The answers after the questions on a screen, which end with their choices in brackets, each with
/// a line break.
fn answers(screen: &str) -> String {
    let questions = screen.lines().filter_map(|line| {
        let (question, answer) = line.split_once("]: ").or_else(|| line.split_once("] "))?;
        question.contains(" [").then(|| format!("{answer}\n"))
    });
    questions.collect()
}

/// The commands of a block, each after a `$`, with the expected output.
fn commands(block: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((_, output))) => output.extend([line, "\n"]),
            // An image.
            (None, None) => return Vec::new(),
        }
    }
    commands
}

/// Whether lines are as expected. `…` stands for anything, alone on a line for any lines.
fn fits(expected: &[&str], actual: &[&str]) -> bool {
    match (expected.split_first(), actual.split_first()) {
        (None, first) => first.is_none(),
        (Some((line, rest)), _) if line.trim() == "…" => {
            (0..=actual.len()).any(|skipped| fits(rest, &actual[skipped..]))
        }
        (Some(_), None) => false,
        (Some((line, rest)), Some((first, others))) => line_fits(line, first) && fits(rest, others),
    }
}

/// Whether a line is as expected. `…` stands for anything.
pub(crate) fn line_fits(expected: &str, actual: &str) -> bool {
    match expected.split_once('…') {
        None => expected == actual,
        Some((before, after)) => actual.strip_prefix(before).is_some_and(|rest| {
            let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.any(|at| line_fits(after, &rest[at..]))
        }),
    }
}

#[test]
fn only_an_ellipsis_matches_anything() {
    let check = |expected: &[&str], actual: &[&str], fit: bool| {
        assert_eq!(fits(expected, actual), fit, "{expected:?} {actual:?}");
    };
    check(&["a", "b"], &["a", "b"], true);
    check(&["a"], &["a", "b"], false);
    check(&["a", "b"], &["a"], false);
    check(&["a…c…", "…", "z"], &["abcd", "x", "y", "z"], true);
    check(&["a…c"], &["abcd"], false);
    check(&["  …"], &[], true);
    check(&["…", "b"], &["a", "c"], false);
}

#[test]
fn answers_follow_the_choices() {
    let screen =
        "Plugin x\nWhich, as in a.b [Enter: none]: src\nInstall x? [y/N] y\n\n  a = [\"b\"]\n";
    assert_eq!(answers(screen), "src\ny\n");
}

#[test]
fn commands_stand_behind_a_dollar_sign() {
    let found = commands("$ a b\nout\n\nmore\n$ c\n");
    assert_eq!(
        found,
        [("a b".to_owned(), "out\n\nmore\n".to_owned()), ("c".to_owned(), String::new())]
    );
    assert_eq!(commands("┌──┐\n$ x\n"), []);
}
