//! Chooses the grammar and the tables of a language.

use std::rc::Rc;

use code_model::{Language, Parsed, ParserQuestion};

use crate::macros;
use crate::rules;
use crate::walk::Tables;

/// Blanks what a grammar can't read, and keeps the length of a source.
pub(crate) type Blank = fn(&[u8]) -> Vec<u8>;

/// The grammar of a language. A component has only the code of the grammars that it names.
pub trait Grammar {
    /// Blanks parts of a source before it is parsed.
    #[doc(hidden)]
    const BLANK: Option<Blank> = None;

    /// The tables of its parser and of the walk.
    #[doc(hidden)]
    fn tables() -> Rc<Tables>;
}

macro_rules! grammars {
    ($($name:ident, $tables:expr, $rules:ident, $names:ident $(, $blank:expr)?;)*) => {
        $(
            #[doc = concat!("See [`Language::", stringify!($name), "`].")]
            pub struct $name;

            impl Grammar for $name {
                $(const BLANK: Option<Blank> = Some($blank);)?

                fn tables() -> Rc<Tables> {
                    // An instance of a part gets one source after the other.
                    thread_local! {
                        static TABLES: Rc<Tables> =
                            Rc::new(Tables::new($tables.into(), rules::$rules, rules::$names));
                    }
                    TABLES.with(Rc::clone)
                }
            }
        )*

        /// Parses a source as one of a language that is known only now.
        ///
        /// # Errors
        ///
        /// The errors of [`parse`](crate::parse).
        pub fn parse_as(
            language: Language,
            source: &[u8],
            question: ParserQuestion,
        ) -> Result<Parsed, String> {
            match language {
                $(Language::$name => crate::parse::<$name>(source, question),)*
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
