//! Decides which programs a plugin may start, and with which arguments.

use globset::{GlobBuilder, GlobMatcher};
use toolhold_contract::Denial;
use toolhold_contract::text::{cut, neutral_line};

use crate::origin::{Origin, OwnTable};
use crate::path_globs::{GlobError, check_glob};

/// The programs that the operator granted. The default grants no program.
///
/// An entry is a program and a glob for each of its arguments, separated by spaces: `git
/// {status,diff} **`. `*` and `?` match characters of one argument, and `{a,b}` matches `a` or `b`.
/// A final `**` matches zero or more further arguments. Without it, the number of arguments must
/// equal the number of globs. A program without `/` in its name is searched for in the operator's
/// `PATH`.
#[derive(Clone, Debug, Default)]
pub struct Programs(Vec<Entry>);

/// Bytes of a command that a denial shows. A longer command is cut.
const MAX_SHOWN: usize = 512;

/// An entry that isn't valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramsError {
    /// The entry names no program.
    #[error("an entry of `programs` is empty: write a program, and globs for its arguments")]
    Empty,
    /// The program isn't a plain name or path.
    #[error("`{0}`: wildcards and quotes aren't allowed in the program; write its name or path")]
    Program(String),
    /// A glob is too long.
    #[error(transparent)]
    Length(#[from] GlobError),
    /// The engine can't read a glob.
    #[error("`{entry}`: {}", .source.kind())]
    Glob {
        /// The entry as written.
        entry: String,
        /// The explanation of the engine.
        source: globset::Error,
    },
}

#[derive(Clone, Debug)]
struct Entry {
    program: String,
    arguments: Vec<GlobMatcher>,
    has_rest: bool,
    place: Origin,
}

impl Programs {
    /// Compiles entries. Each has its place in the configuration.
    ///
    /// # Errors
    ///
    /// Returns the first entry that isn't valid, with the reason.
    pub fn new<P: Into<Origin>>(
        entries: impl IntoIterator<Item = (String, P)>,
    ) -> Result<Self, ProgramsError> {
        let mut compiled = Vec::new();
        for (text, place) in entries {
            compiled.push(Entry::new(&text, place.into())?);
        }
        Ok(Self(compiled))
    }

    /// Checks whether no program is granted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks whether a program may be started with these arguments.
    pub fn allow(&self, program: &str, arguments: &[String]) -> bool {
        self.0.iter().any(|entry| entry.allows(program, arguments))
    }

    /// Returns the denial of a program with these arguments. Returns `None` if the program may be
    /// started. `line` is the whole command. `table` is the configuration table that grants
    /// programs.
    pub fn refusal(
        &self,
        program: &str,
        arguments: &[String],
        line: &str,
        table: &OwnTable,
    ) -> Option<Denial> {
        if self.allow(program, arguments) {
            return None;
        }
        let shown = neutral_line(cut(line, MAX_SHOWN));
        let (rule, place, remedy) = match self.place(program) {
            None => {
                let remedy = format!("To allow it, add the program to `programs` in {table}.");
                ("`programs` is empty", "built in".into(), remedy.into())
            }
            Some(place) => {
                let remedy = place.remedy(|| {
                    format!(
                        "To allow it, add \"{shown}\" to `programs`, with `*` or `**` in place of arguments that may differ."
                    )
                });
                ("`programs` has no entry for this command", place.text.clone(), remedy)
            }
        };
        Some(Denial {
            capability: "process".to_owned(),
            action: format!("run {shown}"),
            rule: rule.to_owned(),
            place: String::from(place),
            remedy: String::from(remedy),
        })
    }

    /// Returns the place of the grants, for denials: the place of an entry for the same program, or
    /// of the first entry.
    pub fn place(&self, program: &str) -> Option<&Origin> {
        let same = self.0.iter().find(|entry| entry.program == program);
        same.or(self.0.first()).map(|entry| &entry.place)
    }
}

impl Entry {
    /// Reads an entry: a program, and a glob for each of its arguments.
    fn new(text: &str, place: Origin) -> Result<Self, ProgramsError> {
        let mut words = text.split_whitespace();
        let program = words.next().ok_or(ProgramsError::Empty)?;
        if program.contains(['*', '?', '{', '[', '"', '\'']) {
            return Err(ProgramsError::Program(text.to_owned()));
        }
        let mut globs: Vec<&str> = words.collect();
        let has_rest = globs.last() == Some(&"**");
        if has_rest {
            globs.pop();
        }
        let mut arguments = Vec::new();
        for glob in globs {
            check_glob(glob)?;
            let glob = GlobBuilder::new(glob)
                .literal_separator(false)
                .backslash_escape(true)
                .build()
                .map_err(|source| ProgramsError::Glob { entry: text.to_owned(), source })?;
            arguments.push(glob.compile_matcher());
        }
        Ok(Self { program: program.to_owned(), arguments, has_rest, place })
    }

    /// Checks whether the entry allows a program with these arguments.
    fn allows(&self, program: &str, arguments: &[String]) -> bool {
        let has_count = if self.has_rest {
            arguments.len() >= self.arguments.len()
        } else {
            arguments.len() == self.arguments.len()
        };
        if program != self.program || !has_count {
            return false;
        }
        self.arguments.iter().zip(arguments).all(|(glob, argument)| glob.is_match(argument))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_braces_end_nothing() {
        let deep = format!("{}a{}", "{".repeat(300_000), "}".repeat(300_000));
        let error = Programs::new([(format!("git {deep}"), "the test")]).unwrap_err();
        assert!(error.to_string().contains("the limit is 4096"), "{error}");
        let error = crate::files::PathGlobs::new(vec![(deep, "the test")]).unwrap_err();
        assert!(error.to_string().contains("the limit is 4096"), "{error}");
    }

    #[test]
    fn each_argument_is_matched_with_its_glob() {
        let programs = ["git {status,diff} **", "git log --oneline", "make", "/opt/x/run *.txt"];
        let programs = Programs::new(programs.map(|text| (text.to_owned(), "here".to_owned())))
            .expect("valid entries");
        for (command, allowed) in [
            ("git status", true),
            ("git status -s", true),
            ("git diff a b c", true),
            ("git push", false),
            ("git", false),
            ("git -c alias.status=!sh status", false),
            ("git log --oneline", true),
            ("git log", false),
            ("git log --oneline -3", false),
            ("make", true),
            ("make all", false),
            ("/bin/make", false),
            ("/opt/x/run a/b.txt", true),
            ("/opt/x/run a.sh", false),
            ("run a.txt", false),
            ("sh -c git", false),
        ] {
            let mut words = command.split(' ').map(str::to_owned);
            let program = words.next().unwrap_or_default();
            assert_eq!(programs.allow(&program, &words.collect::<Vec<_>>()), allowed, "{command}");
        }
    }

    #[test]
    fn invalid_entry_is_refused() {
        for text in ["", "  ", "g* x", "'git' x", "git {a"] {
            assert!(Programs::new([(text.to_owned(), "here".to_owned())]).is_err(), "{text:?}");
        }
    }
}
