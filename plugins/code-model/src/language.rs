//! The languages that `search_code` parses, and how the language of a file is detected.

/// A language that a parser reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Language {
    /// Rust.
    Rust,
    /// Python.
    Python,
    /// JavaScript, with JSX.
    JavaScript,
    /// TypeScript without JSX.
    TypeScript,
    /// TypeScript with JSX, which has a parser of its own.
    Tsx,
    /// Go.
    Go,
    /// C.
    C,
    /// C++.
    Cpp,
    /// Java.
    Java,
    /// C#.
    CSharp,
    /// Ruby.
    Ruby,
    /// PHP.
    Php,
    /// Scripts of Bash and of other shells of its family.
    Bash,
}

/// The names of files without an extension that says enough.
const NAMES: [(&str, Language); 8] = [
    ("Rakefile", Language::Ruby),
    ("Gemfile", Language::Ruby),
    ("Vagrantfile", Language::Ruby),
    (".bashrc", Language::Bash),
    (".bash_profile", Language::Bash),
    (".profile", Language::Bash),
    ("PKGBUILD", Language::Bash),
    ("configure.ac", Language::Bash),
];

/// The programs behind `#!`.
const PROGRAMS: [(&str, Language); 9] = [
    ("python", Language::Python),
    ("bash", Language::Bash),
    ("sh", Language::Bash),
    ("dash", Language::Bash),
    ("ksh", Language::Bash),
    ("node", Language::JavaScript),
    ("ruby", Language::Ruby),
    ("php", Language::Php),
    ("deno", Language::TypeScript),
];

/// Words that only a header of C++ has, at the beginning of a line.
const CPP_WORDS: [&[u8]; 8] = [
    b"class ",
    b"namespace ",
    b"template<",
    b"template <",
    b"using ",
    b"public:",
    b"private:",
    b"protected:",
];

/// Words that only a header of Objective-C has, at the beginning of a line. No parser reads such a
/// header: the parser of C would find things that aren't there.
const OBJECTIVE_C_WORDS: [&[u8]; 5] =
    [b"#import ", b"@class ", b"@interface ", b"@protocol ", b"@end"];

/// Where JavaScript says that its types are those of Flow.
const FLOW: &[u8] = b"@flow";

/// Bytes of a source in which it says so.
const FLOW_WITHIN: usize = 2_048;

impl Language {
    /// All languages.
    pub const ALL: [Self; 13] = [
        Self::Rust,
        Self::Python,
        Self::JavaScript,
        Self::TypeScript,
        Self::Tsx,
        Self::Go,
        Self::C,
        Self::Cpp,
        Self::Java,
        Self::CSharp,
        Self::Ruby,
        Self::Php,
        Self::Bash,
    ];

    /// Its name for people and models. TypeScript has one, with and without JSX.
    pub fn name(self) -> &'static str {
        match self {
            Self::TypeScript | Self::Tsx => "typescript",
            other => other.part(),
        }
    }

    /// The name of the part that parses it.
    pub fn part(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::TypeScript => "typescript",
            Self::Tsx => "tsx",
            Self::Go => "go",
            Self::C => "c",
            Self::Cpp => "cpp",
            Self::Java => "java",
            Self::CSharp => "csharp",
            Self::Ruby => "ruby",
            Self::Php => "php",
            Self::Bash => "bash",
        }
    }

    /// The language with this name of a [part](Self::part).
    pub fn from_part(part: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.part() == part)
    }

    /// The language of a file with this name or path. A header `.h` counts as C; see
    /// [`of`](Self::of).
    pub fn from_file_name(path: &str) -> Option<Self> {
        let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
        if let Some((_, language)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Some(*language);
        }
        let (stem, extension) = name.rsplit_once('.')?;
        if stem.is_empty() {
            return None;
        }
        Some(match extension {
            // By convention, this one letter is of another case in C++.
            "C" | "H" => Self::Cpp,
            other => match other.to_ascii_lowercase().as_str() {
                "rs" => Self::Rust,
                "py" | "pyi" | "pyw" => Self::Python,
                "js" | "mjs" | "cjs" | "jsx" => Self::JavaScript,
                "ts" | "mts" | "cts" => Self::TypeScript,
                "tsx" => Self::Tsx,
                "go" => Self::Go,
                "c" | "h" => Self::C,
                "cc" | "cpp" | "cxx" | "c++" | "hh" | "hpp" | "hxx" | "h++" | "ipp" | "inl"
                | "tcc" => Self::Cpp,
                "java" => Self::Java,
                "cs" => Self::CSharp,
                "rb" | "rake" | "gemspec" | "ru" => Self::Ruby,
                "php" | "phtml" | "inc" => Self::Php,
                "sh" | "bash" | "ksh" | "bats" => Self::Bash,
                _ => return None,
            },
        })
    }

    /// The language of a file with this name or path and this content, or the beginning of it: a
    /// header may be one of C++ or Objective-C, JavaScript may have types as TypeScript has, and a
    /// script may name its program in its first line.
    pub fn detect(path: &str, content: &[u8]) -> Option<Self> {
        match Self::from_file_name(path) {
            Some(Self::C) if path.ends_with(".h") => match content {
                content if has_line(content, &OBJECTIVE_C_WORDS) => None,
                content if has_line(content, &CPP_WORDS) => Some(Self::Cpp),
                _ => Some(Self::C),
            },
            // The grammar of TypeScript reads the types of Flow too.
            Some(Self::JavaScript) if has_flow(content) => Some(Self::Tsx),
            Some(language) => Some(language),
            None => from_first_line(content),
        }
    }
}

/// Whether a line begins with one of these words.
fn has_line(content: &[u8], words: &[&[u8]]) -> bool {
    content.split(|byte| *byte == b'\n').any(|line| {
        let line = line.trim_ascii_start();
        words.iter().any(|word| line.starts_with(word))
    })
}

fn has_flow(content: &[u8]) -> bool {
    let begin = &content[..content.len().min(FLOW_WITHIN)];
    begin.windows(FLOW.len()).any(|bytes| bytes == FLOW)
}

fn from_first_line(content: &[u8]) -> Option<Language> {
    let line = content.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line.get(..line.len().min(256))?).ok()?;
    let mut words = line.split_ascii_whitespace();
    let mut program = file_name(words.next()?);
    if program == "env" {
        // Options and variables come before the program.
        program = file_name(words.find(|word| !word.starts_with('-') && !word.contains('='))?);
    }
    let program = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    PROGRAMS.iter().find(|(known, _)| *known == program).map(|(_, language)| *language)
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_have_languages() {
        for (path, language) in [
            ("src/lib.rs", Some(Language::Rust)),
            ("a.b/c.PY", Some(Language::Python)),
            ("x.tsx", Some(Language::Tsx)),
            ("x.d.ts", Some(Language::TypeScript)),
            ("x.C", Some(Language::Cpp)),
            ("x.c", Some(Language::C)),
            ("x.h", Some(Language::C)),
            ("lib/Rakefile", Some(Language::Ruby)),
            (".bashrc", Some(Language::Bash)),
            (".rs", None),
            ("rs", None),
            ("README.md", None),
            ("", None),
        ] {
            assert_eq!(Language::from_file_name(path), language, "{path}");
        }
    }

    #[test]
    fn content_decides_where_a_name_does_not() {
        for (path, content, language) in [
            ("x.h", "int f(void);\n", Some(Language::C)),
            ("x.h", "#ifdef A\n  class B;\n", Some(Language::Cpp)),
            ("x.h", "/* a class */ int b;\n", Some(Language::C)),
            ("x.h", "#import <A.h>\nclass B;\n", None),
            ("x.h", "/* x */\n@interface A\n@end\n", None),
            ("x.js", "/** @flow strict */\n", Some(Language::Tsx)),
            ("x.js", "/** @noflow */\n", Some(Language::JavaScript)),
            ("run", "#!/bin/sh\n", Some(Language::Bash)),
            ("run", "#!/usr/bin/env -S python3.12 -u\n", Some(Language::Python)),
            ("run", "#!/usr/bin/env A=1 ruby\n", Some(Language::Ruby)),
            ("run", "#!/usr/bin/perl\n", None),
            ("run", "#!", None),
            ("run", "#!/usr/bin/env", None),
            ("run", "", None),
            ("x.py", "#!/bin/sh\n", Some(Language::Python)),
        ] {
            assert_eq!(Language::detect(path, content.as_bytes()), language, "{path}: {content}");
        }
    }

    #[test]
    fn parts_have_names_of_their_own() {
        for language in Language::ALL {
            assert_eq!(Language::from_part(language.part()), Some(language));
        }
        assert_eq!(Language::Tsx.name(), Language::TypeScript.name());
    }
}
