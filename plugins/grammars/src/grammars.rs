//! The grammars, each with its tables.

use code_model::{Language, Parsed};
use tree_sitter::Language as Tables;

use crate::macros;
use crate::rules::{self, Rule};

/// Blanks what a grammar can't read, and keeps the length of a source.
pub(crate) type Blank = fn(&[u8]) -> Vec<u8>;

/// The grammar of a language. A component has only the code of those that it names.
pub trait Grammar {
    /// What its trees define.
    #[doc(hidden)]
    const RULES: &'static [Rule];
    /// Its nodes that are names.
    #[doc(hidden)]
    const NAMES: &'static [&'static str];

    /// What is blanked in a source before it is parsed.
    #[doc(hidden)]
    const BLANK: Option<Blank> = None;

    /// The tables of its parser.
    fn language() -> Tables;
}

macro_rules! grammars {
    ($($name:ident, $tables:expr, $rules:ident, $names:ident $(, $blank:expr)?;)*) => {
        $(
            #[doc = concat!("See [`Language::", stringify!($name), "`].")]
            pub struct $name;

            impl Grammar for $name {
                const RULES: &'static [Rule] = rules::$rules;
                const NAMES: &'static [&'static str] = rules::$names;
                $(const BLANK: Option<Blank> = Some($blank);)?

                fn language() -> Tables {
                    $tables.into()
                }
            }
        )*

        /// Parses a source as one of a language that is known only now.
        ///
        /// # Errors
        ///
        /// Those of [`parse`](crate::parse).
        pub fn parse_as(language: Language, source: &[u8]) -> Result<Parsed, String> {
            match language {
                $(Language::$name => crate::parse::<$name>(source),)*
            }
        }
    };
}

grammars! {
    Rust, tree_sitter_rust::LANGUAGE, RUST, RUST_NAMES;
    Python, tree_sitter_python::LANGUAGE, PYTHON, PYTHON_NAMES;
    JavaScript, tree_sitter_javascript::LANGUAGE, JAVASCRIPT, JAVASCRIPT_NAMES;
    TypeScript, tree_sitter_typescript::LANGUAGE_TYPESCRIPT, JAVASCRIPT, JAVASCRIPT_NAMES;
    Tsx, tree_sitter_typescript::LANGUAGE_TSX, JAVASCRIPT, JAVASCRIPT_NAMES;
    Go, tree_sitter_go::LANGUAGE, GO, GO_NAMES;
    C, tree_sitter_c::LANGUAGE, C_FAMILY, C_FAMILY_NAMES, macros::blanked;
    Cpp, tree_sitter_cpp::LANGUAGE, C_FAMILY, C_FAMILY_NAMES, macros::blanked;
    Java, tree_sitter_java::LANGUAGE, JAVA, JAVA_NAMES;
    CSharp, tree_sitter_c_sharp::LANGUAGE, CSHARP, CSHARP_NAMES;
    Ruby, tree_sitter_ruby::LANGUAGE, RUBY, RUBY_NAMES;
    Php, tree_sitter_php::LANGUAGE_PHP, PHP, PHP_NAMES;
    Bash, tree_sitter_bash::LANGUAGE, BASH, BASH_NAMES;
}
