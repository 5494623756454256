//! Which programs a plugin may start, and with which arguments.

use globset::{GlobBuilder, GlobMatcher};

use crate::origin::Origin;

/// The programs that the operator granted. The default grants none.
///
/// An entry is a program and a glob for each of its arguments, separated by spaces:
/// `git {status,diff} **`. `*` and `?` stand for characters of one argument, `{a,b}` for one of
/// several, and a last `**` for any further arguments, none among them. Without it, there have to
/// be exactly as many arguments as globs. A program without `/` in its name is the one that is
/// found on the operator's `PATH`.
#[derive(Clone, Debug, Default)]
pub struct Programs(Vec<Entry>);

#[derive(Clone, Debug)]
struct Entry {
    program: String,
    arguments: Vec<GlobMatcher>,
    /// Whether further arguments may follow.
    open: bool,
    place: Origin,
}

impl Programs {
    /// Compiles entries, each with the place where it stands.
    ///
    /// # Errors
    ///
    /// The first entry that is none, and why.
    pub fn new<P: Into<Origin>>(
        entries: impl IntoIterator<Item = (String, P)>,
    ) -> Result<Self, String> {
        entries
            .into_iter()
            .map(|(text, place)| Entry::new(&text, place.into()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether nothing is granted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a program may be started with these arguments.
    pub fn allow(&self, program: &str, arguments: &[String]) -> bool {
        self.0.iter().any(|entry| entry.allows(program, arguments))
    }

    /// Where the grants stand, for whoever is refused: that of an entry for the same program, else
    /// the first.
    pub fn place(&self, program: &str) -> Option<&Origin> {
        let same = self.0.iter().find(|entry| entry.program == program);
        same.or(self.0.first()).map(|entry| &entry.place)
    }
}

impl Entry {
    fn new(text: &str, place: Origin) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let program = words
            .next()
            .ok_or("an entry of `programs` names a program, and globs for its arguments")?;
        if program.contains(['*', '?', '{', '[', '"', '\'']) {
            return Err(format!(
                "`{text}`: the program itself is a name or a path, without wildcards and quotes"
            ));
        }
        let mut globs: Vec<&str> = words.collect();
        let open = globs.last() == Some(&"**");
        if open {
            globs.pop();
        }
        let compile = |glob: &&str| {
            let glob =
                GlobBuilder::new(glob).literal_separator(false).backslash_escape(true).build();
            glob.map(|glob| glob.compile_matcher())
                .map_err(|error| format!("`{text}`: {}", error.kind()))
        };
        let arguments = globs.iter().map(compile).collect::<Result<_, _>>()?;
        Ok(Self { program: program.to_owned(), arguments, open, place })
    }

    fn allows(&self, program: &str, arguments: &[String]) -> bool {
        let enough = if self.open {
            arguments.len() >= self.arguments.len()
        } else {
            arguments.len() == self.arguments.len()
        };
        program == self.program
            && enough
            && self.arguments.iter().zip(arguments).all(|(glob, argument)| glob.is_match(argument))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_matched_one_by_one() {
        let programs = ["git {status,diff} **", "git log --oneline", "make", "/opt/x/run *.txt"];
        let programs = Programs::new(programs.map(|text| (text.to_owned(), "here".to_owned())))
            .expect("they are well formed");
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
    fn what_is_no_entry_is_refused_with_its_reason() {
        for text in ["", "  ", "g* x", "'git' x", "git {a"] {
            assert!(Programs::new([(text.to_owned(), "here".to_owned())]).is_err(), "{text:?}");
        }
    }
}
