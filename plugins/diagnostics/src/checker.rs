//! The checkers: which folders they fit, how they are called, and how they are installed.

use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::diagnostics::Level;
use crate::finding::Collector;
use crate::parse::{cargo, eslint, go, mypy, ruff, tsc};

/// Most entries of a folder that are looked at for files of a language.
const MAX_ENTRIES: usize = 2_000;

/// A program that checks a project.
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

/// How the output of a checker is read.
#[derive(Clone, Copy)]
pub(crate) struct Parser {
    pub(crate) object: fn(&mut Collector, &[u8]),
    pub(crate) line: fn(&mut Collector, &str),
}

/// Files by which a folder is known to be for a checker: names, and the ends of names.
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

    /// What it looks for in a folder, for a person.
    pub(crate) const fn looks_for(self) -> &'static str {
        match self {
            Self::Cargo => "Cargo.toml",
            Self::Tsc => "tsconfig.json",
            Self::Eslint => "eslint.config.js",
            Self::Ruff | Self::Mypy => "pyproject.toml, setup.cfg or *.py",
            Self::Go => "go.mod",
        }
    }

    /// How it is installed.
    pub(crate) const fn install(self) -> &'static str {
        match self {
            Self::Cargo => {
                "Install Rust from rustup.rs, and grant it to commands: `presets = [\"rust\"]` in [tools.shell]."
            }
            Self::Tsc => "Install it in the project: `npm install --save-dev typescript`.",
            Self::Eslint => "Install it in the project: `npm install --save-dev eslint`.",
            Self::Ruff => "Install it: `pip install ruff` in .venv.",
            Self::Mypy => "Install it: `pip install mypy` in .venv.",
            Self::Go => {
                "Install Go from go.dev, and grant it to commands: `presets = [\"go\"]` in [tools.shell]."
            }
        }
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

    /// The nearest folder from `folder` up to `top` that it fits.
    pub(crate) fn root(self, folder: &Path, top: &Path) -> Option<PathBuf> {
        let (names, ends): (&[&str], &str) = match self {
            Self::Cargo => (&["Cargo.toml"], ""),
            Self::Tsc => (&["tsconfig.json"], ""),
            Self::Eslint => (ESLINT, ""),
            Self::Ruff => (&["ruff.toml", ".ruff.toml"], ".py"),
            Self::Mypy => (&["mypy.ini", ".mypy.ini"], ".py"),
            Self::Go => (&["go.mod"], ""),
        };
        let python: &[&str] = if ends.is_empty() { &[] } else { PYTHON };
        let has_name =
            |folder: &Path| names.iter().chain(python).any(|name| folder.join(name).is_file());
        let above = up(folder, top).find(|folder| has_name(folder)).map(Path::to_owned);
        above.or_else(|| (!ends.is_empty() && has_ending(folder, ends)).then(|| folder.to_owned()))
    }

    /// The command, for the folder that it runs in. A program that the project brings along is
    /// preferred: it has the version that the project wants.
    pub(crate) fn command(
        self,
        level: Level,
        folder: &Path,
        top: &Path,
        more: &[String],
    ) -> Vec<String> {
        let node = || brought(folder, top, &["node_modules/.bin"], self.name());
        let python = || brought(folder, top, &[".venv/bin", "venv/bin"], self.name());
        let (program, arguments): (String, &[&str]) = match self {
            Self::Cargo => {
                let command = match level {
                    Level::Check => "check",
                    Level::Clippy => "clippy",
                };
                // There is no network, and with this cargo says so at once.
                return words(
                    "cargo".to_owned(),
                    &[command, "--offline", "--quiet", "--message-format=json"],
                    more,
                    &[],
                );
            }
            Self::Tsc => (node(), &["--noEmit", "--pretty", "false"]),
            Self::Eslint => return words(node(), &["--format", "json"], more, &["."]),
            Self::Ruff => {
                let arguments = ["check", "--output-format", "json", "--no-cache"];
                return words(python(), &arguments, more, &["."]);
            }
            Self::Mypy => {
                let arguments = [
                    "--show-column-numbers",
                    "--show-error-codes",
                    "--no-error-summary",
                    "--no-color-output",
                    "--no-pretty",
                ];
                return words(python(), &arguments, more, &["."]);
            }
            Self::Go => return words("go".to_owned(), &["vet", "-json"], more, &["./..."]),
        };
        words(program, arguments, more, &[])
    }
}

fn words(program: String, arguments: &[&str], more: &[String], last: &[&str]) -> Vec<String> {
    let own = arguments.iter().map(|word| (*word).to_owned());
    let last = last.iter().map(|word| (*word).to_owned());
    [program].into_iter().chain(own).chain(more.iter().cloned()).chain(last).collect()
}

/// `folder` and the folders above it, up to `top`. Only `folder` if it isn't below `top`.
fn up<'a>(folder: &'a Path, top: &'a Path) -> impl Iterator<Item = &'a Path> {
    let count = folder.strip_prefix(top).map_or(0, |below| below.components().count());
    folder.ancestors().take(count + 1)
}

/// The program in one of these folders of the project; otherwise its name alone.
fn brought(folder: &Path, top: &Path, folders: &[&str], name: &str) -> String {
    for at in up(folder, top) {
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

fn has_ending(folder: &Path, ending: &str) -> bool {
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
        let program =
            |folder: &Path| Checker::Tsc.command(Level::Check, folder, top, &[])[0].clone();
        assert_eq!(program(&sub), "tsc");
        write(top.join("node_modules/.bin/tsc"));
        assert_eq!(program(top), "node_modules/.bin/tsc");
        assert_eq!(Path::new(&program(&sub)), top.join("node_modules/.bin/tsc"));
    }

    #[test]
    fn further_arguments_come_before_what_is_checked() {
        let more = ["--strict".to_owned()];
        let command = Checker::Mypy.command(Level::Check, Path::new("/w"), Path::new("/w"), &more);
        assert_eq!(command[command.len() - 2..], ["--strict", "."]);
        let clippy = Checker::Cargo.command(Level::Clippy, Path::new("/w"), Path::new("/w"), &[]);
        assert_eq!(clippy[..2], ["cargo", "clippy"]);
    }
}
