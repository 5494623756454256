//! The parts that parse languages: a tree-sitter grammar each, and the walk through its trees.
//!
//! The walk is the same for all languages. A table for each of them says which nodes of its trees
//! define something ([`rules`]).

mod c;
mod find;
mod grammars;
mod macros;
pub mod part;
mod rule;
mod rules;
mod walk;

use std::ops::ControlFlow;

use code_model::{MAX_SOURCE, Parsed, ParserQuestion};
use tree_sitter::{ParseOptions, ParseState, Parser, Tree};

pub use grammars::{
    Bash, C, CSharp, Cpp, Go, Grammar, Java, JavaScript, Php, Python, Ruby, Rust, Tsx, TypeScript,
    parse_as,
};

/// Checks of the parser in one source. Between two of them it does 100 steps. Real sources take
/// less than one step for each byte; the steps of sources that make a parser slow also take longer.
const fn most_checks(bytes: usize) -> usize {
    200 + bytes / 50
}

/// Finds the definitions of a source, and what else is asked for.
///
/// # Errors
///
/// The source is too large, or the grammar doesn't fit this version of tree-sitter.
pub fn parse<G: Grammar>(source: &[u8], question: ParserQuestion) -> Result<Parsed, String> {
    if source.len() > MAX_SOURCE {
        let size = source.len();
        return Err(format!("the source is {size} bytes; the limit is {MAX_SOURCE}"));
    }
    let tables = G::tables();
    let mut parser = Parser::new();
    parser
        .set_language(&tables.language)
        .map_err(|error| format!("the grammar can't be used: {error}"))?;
    let blanked = G::BLANK.map(|blank| blank(source));
    let mut parsed = match tree(&mut parser, blanked.as_deref().unwrap_or(source)) {
        Some(tree) => walk::walk(&tables, &tree, source, question == ParserQuestion::References),
        None => Parsed { limited: true, has_errors: true, ..Parsed::default() },
    };
    if question == ParserQuestion::Chunks {
        let text = String::from_utf8_lossy(source);
        parsed.chunks = code_model::chunks(&text, &parsed.definitions);
    }
    Ok(parsed)
}

/// The answer of a part to an input.
///
/// # Errors
///
/// The input isn't a question, or the errors of [`parse`].
pub fn answer<G: Grammar>(input: &[u8]) -> Result<Vec<u8>, String> {
    let (question, source) = ParserQuestion::decode(input)?;
    parse::<G>(source, question).map(|parsed| parsed.encode())
}

/// The tree of a source. `None`: it takes too many steps.
fn tree(parser: &mut Parser, source: &[u8]) -> Option<Tree> {
    let most = most_checks(source.len());
    let mut checks = 0;
    parser.parse_with_options(
        &mut |at, _| source.get(at..).unwrap_or_default(),
        None,
        Some(ParseOptions::new().progress_callback(&mut |_: &ParseState| {
            checks += 1;
            if checks > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })),
    )
}
