//! The checkers: which folders they fit, how they are called, and how they are installed.

use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::parse::{Parser, cargo, eslint, go, mypy, ruff, tsc};

/// Most entries of a folder that are looked at for files of a language.
pub(crate) const MAX_ENTRIES: usize = 2_000;

// A program that checks a project. A doc comment would be in the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(crate) enum Checker {
    Cargo,
    Tsc,
    Eslint,
    Ruff,
    Mypy,
    Go,
}

/// How much is checked.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Level {
    #[default]
    Check,
    Clippy,
}

impl Level {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Clippy => "clippy",
        }
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Check => Self::Clippy,
            Self::Clippy => Self::Check,
        }
    }
}

/// The language of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Rust,
    JavaScript,
    Python,
    Go,
}

impl Language {
    pub(crate) const ALL: [Self; 4] = [Self::Rust, Self::JavaScript, Self::Python, Self::Go];

    /// The names of files by which a folder is known to be a project of it.
    pub(crate) fn files(self) -> impl Iterator<Item = &'static str> {
        let more: &[&str] = if self == Self::JavaScript { &["package.json"] } else { &[] };
        let checkers = Checker::ALL.into_iter().filter(move |one| one.language() == self);
        checkers.flat_map(Checker::files).chain(more.iter().copied())
    }
}

/// Files by which a folder is known to be for several checkers, and for eslint.
const PYTHON: &[&str] = &["pyproject.toml", "setup.cfg", "setup.py"];
const ESLINT: &[&str] = &[
    "eslint.config.js",
    "eslint.config.mjs",
    "eslint.config.cjs",
    "eslint.config.ts",
    "eslint.config.mts",
    "eslint.config.cts",
    ".eslintrc",
    ".eslintrc.js",
    ".eslintrc.cjs",
    ".eslintrc.json",
    ".eslintrc.yml",
    ".eslintrc.yaml",
];

/// Words that programs write, in lower case, if they don't find or may not use something.
const MISSING: &[&str] = &[
    "not found",
    "no such file",
    "cannot find",
    "can't find",
    "could not find",
    "couldn't find",
    "could not be found",
    "no module named",
    "not installed",
    "not permitted",
    "permission denied",
];

impl Checker {
    pub(crate) const ALL: [Self; 6] =
        [Self::Cargo, Self::Tsc, Self::Eslint, Self::Ruff, Self::Mypy, Self::Go];

    /// Its name in the configuration, in arguments and in answers.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cargo => "cargo",
            Self::Tsc => "tsc",
            Self::Eslint => "eslint",
            Self::Ruff => "ruff",
            Self::Mypy => "mypy",
            Self::Go => "go",
        }
    }

    /// The files that it looks for in a folder, for a person.
    pub(crate) const fn looks_for(self) -> &'static str {
        match self {
            Self::Cargo => "Cargo.toml",
            Self::Tsc => "tsconfig.json",
            Self::Eslint => "eslint.config.js",
            Self::Ruff | Self::Mypy => "pyproject.toml, setup.cfg or *.py",
            Self::Go => "go.mod",
        }
    }

    pub(crate) const fn language(self) -> Language {
        match self {
            Self::Cargo => Language::Rust,
            Self::Tsc | Self::Eslint => Language::JavaScript,
            Self::Ruff | Self::Mypy => Language::Python,
            Self::Go => Language::Go,
        }
    }

    /// The way to install it.
    pub(crate) const fn install(self) -> &'static str {
        match self {
            Self::Cargo => "Install Rust from rustup.rs.",
            Self::Tsc => "Install it in the project: `npm install --save-dev typescript`.",
            Self::Eslint => "Install it in the project: `npm install --save-dev eslint`.",
            Self::Ruff => "Install it: `pip install ruff` in .venv.",
            Self::Mypy => "Install it: `pip install mypy` in .venv.",
            Self::Go => "Install Go from go.dev.",
        }
    }

    /// How commands see what is installed outside the granted folders. Whether it is granted
    /// already isn't known here.
    pub(crate) const fn grant(self) -> &'static str {
        match self {
            Self::Cargo => {
                "Commands see only granted files: unless it is set, `presets = [\"cargo\"]` in [tools.shell] grants the toolchains of rustup."
            }
            Self::Tsc | Self::Eslint => {
                "Commands see only granted files: unless it is set, `presets = [\"node\"]` in [tools.shell] grants the usual places of Node.js, and `allowed_paths` a folder, such as one above with node_modules."
            }
            Self::Ruff | Self::Mypy => {
                "Commands see only granted files: unless it is set, `presets = [\"python\"]` in [tools.shell] grants the usual places of Python (`\"uv\"` those of uv), and `allowed_paths` any other folder."
            }
            Self::Go => {
                "Commands see only granted files: unless it is set, `presets = [\"go\"]` in [tools.shell] grants the usual places of Go."
            }
        }
    }

    /// The remedy for the failure that its output tells of, if the remedy is known.
    pub(crate) fn hint(self, said: &str) -> Option<&'static str> {
        let said = said.to_ascii_lowercase();
        let is_cargo = self == Self::Cargo;
        if is_cargo && said.contains("offline") {
            return Some("It has no network here: run `cargo fetch` with bash first.");
        }
        if said.contains("read-only file system") {
            return Some(if is_cargo {
                "It has to write there: grant the folder to commands without `access = \"read\"`, or set CARGO_TARGET_DIR to one that they may write, and name that variable in `env` of [tools.shell]."
            } else {
                "It has to write there: grant the folder to commands without `access = \"read\"`."
            });
        }
        if is_cargo && said.contains("no default is configured") {
            return Some(
                "If rustup has no default toolchain, `rustup default stable` in a terminal of yours sets one. If it has, commands don't see it: `presets = [\"cargo\"]` in [tools.shell] grants the toolchains of rustup.",
            );
        }
        MISSING.iter().any(|part| said.contains(part)).then(|| self.grant())
    }

    pub(crate) const fn parser(self) -> Parser {
        match self {
            Self::Cargo => cargo::PARSER,
            Self::Tsc => tsc::PARSER,
            Self::Eslint => eslint::PARSER,
            Self::Ruff => ruff::PARSER,
            Self::Mypy => mypy::PARSER,
            Self::Go => go::PARSER,
        }
    }

    /// Whether it writes JSON in any case, also where it finds nothing.
    pub(crate) const fn always_writes_json(self) -> bool {
        matches!(self, Self::Cargo | Self::Eslint | Self::Ruff)
    }

    /// The names of files by which a folder is known to be for it.
    fn files(self) -> impl Iterator<Item = &'static str> {
        let (names, python): (&[&str], &[&str]) = match self {
            Self::Cargo => (&["Cargo.toml"], &[]),
            Self::Tsc => (&["tsconfig.json"], &[]),
            Self::Eslint => (ESLINT, &[]),
            Self::Ruff => (&["ruff.toml", ".ruff.toml"], PYTHON),
            Self::Mypy => (&["mypy.ini", ".mypy.ini"], PYTHON),
            Self::Go => (&["go.mod"], &[]),
        };
        names.iter().chain(python).copied()
    }

    /// Whether a folder with a file of this name is for it.
    pub(crate) fn is_marked_by(self, name: &str) -> bool {
        self.files().any(|file| file == name)
    }

    /// The nearest folder from `folder` up to `top` that it fits.
    pub(crate) fn root(self, folder: &Path, top: &Path) -> Option<PathBuf> {
        let above = up(folder, top)
            .find(|folder| self.files().any(|name| folder.join(name).is_file()))
            .map(Path::to_owned);
        let is_python = self.language() == Language::Python;
        above.or_else(|| (is_python && has_ending(folder, ".py")).then(|| folder.to_owned()))
    }

    /// The command, for the folder that it runs in. A program that the project brings along is
    /// preferred: it has the version that the project wants.
    pub(crate) fn command(self, level: Level, folder: &Path, more: &[String]) -> Vec<String> {
        match self {
            Self::Cargo => {
                let command = match level {
                    Level::Check => "check",
                    Level::Clippy => "clippy",
                };
                // There is no network, and with this cargo says so at once. With `--quiet` it would
                // leave out the warnings of build scripts.
                words(
                    "cargo".to_owned(),
                    &[command, "--offline", "--message-format=json"],
                    more,
                    &[],
                )
            }
            // A configuration with `composite` or `incremental` would have it write its build
            // information into the project.
            Self::Tsc => {
                let arguments = ["--noEmit", "--pretty", "false"];
                let nowhere = ["--incremental", "--tsBuildInfoFile", "/dev/null"];
                let program = brought(folder, &NODE_FOLDERS, self.name());
                words(program, &[arguments, nowhere].concat(), more, &[])
            }
            Self::Eslint => {
                let program = brought(folder, &NODE_FOLDERS, self.name());
                words(program, &["--format", "json"], more, &["."])
            }
            Self::Ruff => {
                let program = brought(folder, &PYTHON_FOLDERS, self.name());
                let arguments = ["check", "--output-format", "json", "--no-cache"];
                words(program, &arguments, more, &["."])
            }
            Self::Mypy => {
                let program = brought(folder, &PYTHON_FOLDERS, self.name());
                let arguments = [
                    "--show-column-numbers",
                    "--show-error-codes",
                    "--no-error-summary",
                    "--no-color-output",
                    "--no-pretty",
                ];
                words(program, &arguments, more, &["."])
            }
            Self::Go => words("go".to_owned(), &["vet", "-json"], more, &["./..."]),
        }
    }
}

/// The folders of a project in which npm and Python put programs.
const NODE_FOLDERS: [&str; 1] = ["node_modules/.bin"];
const PYTHON_FOLDERS: [&str; 2] = [".venv/bin", "venv/bin"];

fn words(program: String, arguments: &[&str], more: &[String], last: &[&str]) -> Vec<String> {
    let own = arguments.iter().map(|word| (*word).to_owned());
    let last = last.iter().map(|word| (*word).to_owned());
    [program].into_iter().chain(own).chain(more.iter().cloned()).chain(last).collect()
}

/// `folder` and the folders above it, up to `top`. Only `folder` if it isn't below `top`.
pub(crate) fn up<'a>(folder: &'a Path, top: &'a Path) -> impl Iterator<Item = &'a Path> {
    let count = folder.strip_prefix(top).map_or(0, |below| below.components().count());
    folder.ancestors().take(count + 1)
}

/// The program in one of these folders of the project, or of one above, as far as folders are
/// granted; otherwise its name alone.
fn brought(folder: &Path, folders: &[&str], name: &str) -> String {
    for at in folder.ancestors() {
        for bin in folders {
            let program = Path::new(bin).join(name);
            // A link into a folder that isn't granted looks as if it was missing.
            if fs::symlink_metadata(at.join(&program)).is_ok() {
                let program = if at == folder { program } else { at.join(program) };
                return program.to_string_lossy().into_owned();
            }
        }
    }
    name.to_owned()
}

pub(crate) fn has_ending(folder: &Path, ending: &str) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().take(MAX_ENTRIES).flatten();
    entries.into_iter().any(|entry| entry.file_name().to_string_lossy().ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: PathBuf) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn folder_is_found_upwards_to_the_top() {
        let dir = tempfile::tempdir().unwrap();
        let (outer, top) = (dir.path(), dir.path().join("top"));
        let deep = top.join("a/b");
        fs::create_dir_all(&deep).unwrap();
        write(outer.join("Cargo.toml"));
        assert_eq!(Checker::Cargo.root(&deep, &top), None, "above the top it isn't looked for");
        write(top.join("Cargo.toml"));
        assert_eq!(Checker::Cargo.root(&deep, &top), Some(top.clone()));
        assert_eq!(Checker::Cargo.root(outer, &top), Some(outer.to_owned()));
        assert_eq!(Checker::Ruff.root(&deep, &top), None);
        write(deep.join("x.py"));
        assert_eq!(Checker::Ruff.root(&deep, &top), Some(deep.clone()));
        write(top.join("pyproject.toml"));
        assert_eq!(Checker::Mypy.root(&deep, &top), Some(top));
    }

    #[test]
    fn program_of_the_project_is_preferred() {
        let dir = tempfile::tempdir().unwrap();
        let (top, sub) = (dir.path(), dir.path().join("sub"));
        fs::create_dir_all(&sub).unwrap();
        let program = |folder: &Path| Checker::Tsc.command(Level::Check, folder, &[])[0].clone();
        assert_eq!(program(&sub), "tsc");
        write(top.join("node_modules/.bin/tsc"));
        assert_eq!(program(top), "node_modules/.bin/tsc");
        assert_eq!(Path::new(&program(&sub)), top.join("node_modules/.bin/tsc"));
    }

    #[test]
    fn hint_is_about_what_was_said() {
        let preset = Some("Commands see only granted files");
        for (checker, said, expected) in [
            (Checker::Cargo, "error: expected `=`\n --> Cargo.toml:2:5", None),
            (Checker::Cargo, "error: no such file or directory (os error 2)", preset),
            (
                Checker::Cargo,
                "error: failed to create /w/target\n\nCaused by:\n  Read-only file system (os error 30)",
                Some("CARGO_TARGET_DIR"),
            ),
            (Checker::Eslint, "Error: EROFS: read-only file system, open 'x'", Some("write there")),
            (
                Checker::Cargo,
                "error: rustup could not choose a version of cargo to run, because one wasn't specified explicitly, and no default is configured.",
                Some("`rustup default stable`"),
            ),
            (Checker::Cargo, "error: in offline mode, x can't be found", Some("`cargo fetch`")),
            (Checker::Eslint, "SyntaxError: Unexpected token ')'", None),
            (Checker::Eslint, "Error: Cannot find module 'x'", preset),
            (Checker::Mypy, "No module named mypy", preset),
            (Checker::Go, "go: open /x: permission denied", preset),
        ] {
            let hint = checker.hint(said);
            let fits = match (hint, expected) {
                (Some(hint), Some(part)) => hint.contains(part),
                (hint, part) => hint == part,
            };
            assert!(fits, "{said}: {hint:?}");
        }
    }

    #[test]
    fn further_arguments_come_before_what_is_checked() {
        let more = ["--strict".to_owned()];
        let command = Checker::Mypy.command(Level::Check, Path::new("/w"), &more);
        assert_eq!(command[command.len() - 2..], ["--strict", "."]);
        let clippy = Checker::Cargo.command(Level::Clippy, Path::new("/w"), &[]);
        assert_eq!(clippy[..2], ["cargo", "clippy"]);
    }
}
