//! Makes the words of a command from a call's arguments and a template of the operator.
//!
//! Each value is exactly one word. It is never split or expanded, and can't become an option of the
//! command.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use toolhold_contract::{Access, Subject, SubjectKind};

/// Most parts of a template, and most bytes of a part.
const MAX_PARTS: usize = 128;
const MAX_PART: usize = 1024;

/// Most characters of an argument's name.
const MAX_NAME: usize = 40;

const MAX_WORDS: usize = 10_000;

const END_OF_OPTIONS: &str = "--";

/// A template that isn't valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandTemplateError {
    /// The template has too many parts.
    #[error("a template has at most {MAX_PARTS} parts")]
    Parts,
    /// A word is too long.
    #[error("`{word}` has {bytes} bytes; the limit is {MAX_PART}")]
    Length {
        /// The beginning of the word.
        word: String,
        /// Bytes of the word.
        bytes: usize,
    },
    /// A word can't be passed to a command.
    #[error("`{0}` contains a NUL character")]
    Nul(String),
    /// A brace has no counterpart.
    #[error("`{word}` has a single `{brace}`; write `{brace}{brace}` for the character")]
    Brace {
        /// The beginning of the word.
        word: String,
        /// The brace.
        brace: String,
    },
    /// A list or a switch is a part of a word.
    #[error("`{{{argument}}}` has to be a separate word, not a part of `{word}`")]
    Inside {
        /// The list or the switch as written in the template.
        argument: String,
        /// The beginning of the word.
        word: String,
    },
    /// The access of a path is neither `read` nor `write`.
    #[error("`{name}` can be a path to `read` or to `write`, not to `{access}`")]
    Access {
        /// Name of the argument.
        name: String,
        /// The start of the invalid access.
        access: String,
    },
    /// An argument can't have this name.
    #[error(
        "`{0}` can't be an argument's name: use at most {MAX_NAME} characters of [a-z0-9_-], the \
         first a letter"
    )]
    Name(String),
    /// A switch has no words to switch on.
    #[error("`{{{0}?}}` needs a list with the optional words: [\"--all\", \"{{{0}?}}\"]")]
    Switch(String),
    /// An optional list of words has no argument, so no call could leave the list out.
    #[error("a list without an argument isn't optional; write the words without a list")]
    Constant,
    /// An argument has two meanings.
    #[error("`{0}` has different meanings in different parts")]
    Ambiguous(String),
    /// A description names an unknown argument.
    #[error("`{{{0}}}` is described, but no part of `arguments` uses it")]
    Described(String),
}

/// An argument that can't be given to a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandArgumentError {
    /// The lists have too many strings.
    #[error("the command has too many words; the limit is {MAX_WORDS}")]
    Words,
    /// The value isn't a string.
    #[error("`{0}` has to be a string")]
    Type(String),
    /// The value contains a NUL character.
    #[error("`{0}` contains a NUL character, which arguments of commands can't contain")]
    Nul(String),
    /// The value looks like an option.
    #[error("`{0}` starts with `-`, so the command would read the value as an option")]
    Option(String),
}

/// The template of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandTemplate {
    parts: Vec<Part>,
    stdin: Option<String>,
    arguments: BTreeMap<String, Argument>,
    /// The description of the tool. `None` for the component's own description.
    pub description: Option<String>,
}

/// A part of a template as written by the operator.
#[derive(Clone, Copy, Debug)]
pub enum WrittenPart<'w> {
    /// One word: `--json`, `{pattern}`, `--max-count={count}`, `{file:read}`, or `{files:read...}`.
    Word(&'w str),
    /// Words that are left out if the call lacks one of their arguments.
    Optional(&'w [String]),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    words: Vec<Word>,
    optional: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Text(Vec<Piece>),
    List(Placeholder),
    /// Adds no word. If the argument isn't true, the other words of the list are left out.
    Switch(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Argument(Placeholder),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Placeholder {
    name: String,
    path: Option<Access>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Argument {
    takes: Takes,
    path: Option<Access>,
    required: bool,
    description: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Text,
    List,
    Switch,
}

/// The words and the standard input of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// The arguments, without the program's name.
    pub words: Vec<String>,
    /// The text of the standard input.
    pub stdin: String,
}

impl Argument {
    /// Returns an argument that a call may leave out.
    fn new(takes: Takes, path: Option<Access>) -> Self {
        Self { takes, path, required: false, description: None }
    }
}

impl CommandTemplate {
    /// Parses a template. `stdin` is the argument that becomes the standard input, or empty.
    /// `descriptions` are the descriptions of the arguments.
    ///
    /// # Errors
    ///
    /// Returns the invalid part and its fault.
    pub fn parse<'w>(
        written: impl IntoIterator<Item = WrittenPart<'w>>,
        stdin: &str,
        descriptions: &BTreeMap<String, String>,
    ) -> Result<Self, CommandTemplateError> {
        let mut template = Self::default();
        for written_part in written {
            template.add(parse_part(written_part)?)?;
        }
        if !stdin.is_empty() {
            check_name(stdin)?;
            template.add_argument(stdin, Argument::new(Takes::Text, None))?;
            template.stdin = Some(stdin.to_owned());
        }
        for (name, description) in descriptions {
            let Some(argument) = template.arguments.get_mut(name) else {
                return Err(CommandTemplateError::Described(name.clone()));
            };
            argument.description = Some(description.clone());
        }
        Ok(template)
    }

    /// Adds a part and its arguments. An argument must have the same meaning in all parts. An
    /// optional part must have an argument, and a switch must be in an optional part.
    fn add(&mut self, part: Part) -> Result<(), CommandTemplateError> {
        if self.parts.len() == MAX_PARTS {
            return Err(CommandTemplateError::Parts);
        }
        let mut argument_count = 0;
        for word in &part.words {
            match word {
                Word::Text(pieces) => {
                    for piece in pieces {
                        if let Piece::Argument(Placeholder { name, path }) = piece {
                            argument_count += 1;
                            let mut argument = Argument::new(Takes::Text, *path);
                            argument.required = !part.optional;
                            self.add_argument(name, argument)?;
                        }
                    }
                }
                Word::List(Placeholder { name, path }) => {
                    argument_count += 1;
                    self.add_argument(name, Argument::new(Takes::List, *path))?;
                }
                Word::Switch(name) if part.optional => {
                    argument_count += 1;
                    self.add_argument(name, Argument::new(Takes::Switch, None))?;
                }
                Word::Switch(name) => return Err(CommandTemplateError::Switch(name.clone())),
            }
        }
        // An optional part is left out if its argument is missing, so the part needs an argument.
        if part.optional && argument_count == 0 {
            return Err(CommandTemplateError::Constant);
        }
        self.parts.push(part);
        Ok(())
    }

    fn add_argument(&mut self, name: &str, argument: Argument) -> Result<(), CommandTemplateError> {
        let Argument { takes, path, required, .. } = argument;
        let known = self.arguments.entry(name.to_owned()).or_insert(argument);
        if known.takes != takes || known.path != path {
            return Err(CommandTemplateError::Ambiguous(name.to_owned()));
        }
        if required {
            known.required = true;
        }
        Ok(())
    }

    /// Returns the JSON Schema of the arguments.
    pub fn schema(&self) -> Value {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for (name, argument) in &self.arguments {
            let mut property = match argument.takes {
                Takes::Text => json!({ "type": "string" }),
                Takes::List => json!({ "type": "array", "items": { "type": "string" } }),
                Takes::Switch => json!({ "type": "boolean" }),
            };
            if let Some(description) = &argument.description {
                property["description"] = json!(description);
            }
            properties.insert(name.clone(), property);
            if argument.required {
                required.push(name);
            }
        }
        let mut schema = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema["additionalProperties"] = json!(false);
        schema
    }

    /// Returns the subjects of a call: the arguments that name paths.
    pub fn subjects(&self) -> Vec<Subject> {
        let mut subjects = Vec::new();
        for (name, argument) in &self.arguments {
            if let Some(access) = argument.path {
                let pointer = format!("/{name}");
                subjects.push(Subject { pointer, kind: SubjectKind::Path, access });
            }
        }
        subjects
    }

    /// Returns the words and the standard input of a call. The arguments must match the schema.
    ///
    /// # Errors
    ///
    /// Returns the first argument that can't be given to the command, and the reason.
    pub fn expand(&self, arguments: &Value) -> Result<CommandLine, CommandArgumentError> {
        let mut words = Vec::new();
        let mut may_be_option = true;
        for part in &self.parts {
            let is_given = part.words.iter().all(|word| word.is_given(arguments));
            if part.optional && !is_given {
                continue;
            }
            for word in &part.words {
                word.expand(arguments, &mut may_be_option, &mut words)?;
                if words.len() > MAX_WORDS {
                    return Err(CommandArgumentError::Words);
                }
            }
        }

        let mut stdin = "";
        if let Some(name) = &self.stdin
            && let Some(text) = arguments.get(name).and_then(Value::as_str)
        {
            stdin = text;
        }
        Ok(CommandLine { words, stdin: stdin.to_owned() })
    }
}

impl Word {
    /// Checks whether a call has all arguments of this word. A list must have an item, and a switch
    /// must be true.
    fn is_given(&self, arguments: &Value) -> bool {
        match self {
            Self::Text(pieces) => pieces.iter().all(|piece| match piece {
                Piece::Literal(_) => true,
                Piece::Argument(Placeholder { name, .. }) => {
                    arguments.get(name).is_some_and(Value::is_string)
                }
            }),
            Self::List(Placeholder { name, .. }) => {
                let items = arguments.get(name).and_then(Value::as_array);
                items.is_some_and(|items| !items.is_empty())
            }
            Self::Switch(name) => arguments.get(name) == Some(&Value::Bool(true)),
        }
    }

    /// Adds the words of a call for this word of the template. `may_be_option` becomes false after
    /// the word `--`, because the command then reads no word as an option.
    fn expand(
        &self,
        arguments: &Value,
        may_be_option: &mut bool,
        words: &mut Vec<String>,
    ) -> Result<(), CommandArgumentError> {
        match self {
            Self::Text(pieces) => {
                let mut word = String::new();
                for piece in pieces {
                    word += match piece {
                        Piece::Literal(text) => text,
                        Piece::Argument(Placeholder { name, .. }) => {
                            text_of(name, arguments.get(name))?
                        }
                    };
                }
                match &pieces[..] {
                    [Piece::Argument(first), ..] => {
                        check_option(&first.name, &word, *may_be_option)?;
                    }
                    [Piece::Literal(text)] if text == END_OF_OPTIONS => *may_be_option = false,
                    // The operator wrote the start of this word, so the word may be an option.
                    [Piece::Literal(_), ..] | [] => {}
                }
                words.push(word);
            }
            Self::List(Placeholder { name, .. }) => {
                let items = arguments.get(name).and_then(Value::as_array);
                for item in items.into_iter().flatten() {
                    let word = text_of(name, Some(item))?;
                    check_option(name, word, *may_be_option)?;
                    words.push(word.to_owned());
                }
            }
            // A switch only decides whether its part is left out.
            Self::Switch(_) => {}
        }
        Ok(())
    }
}

/// Returns the text of `value`. The errors contain `name`, the name of its argument.
fn text_of<'v>(name: &str, value: Option<&'v Value>) -> Result<&'v str, CommandArgumentError> {
    let Some(text) = value.and_then(Value::as_str) else {
        return Err(CommandArgumentError::Type(name.to_owned()));
    };
    if text.contains('\0') {
        return Err(CommandArgumentError::Nul(name.to_owned()));
    }
    Ok(text)
}

/// Refuses a word that the command would read as an option. An option can change everything that
/// the command does. A single `-` isn't an option. `name` is the argument at the start of the word.
fn check_option(name: &str, word: &str, may_be_option: bool) -> Result<(), CommandArgumentError> {
    let is_option = word.len() > 1 && word.starts_with('-');
    if may_be_option && is_option {
        return Err(CommandArgumentError::Option(name.to_owned()));
    }
    Ok(())
}

fn parse_part(written: WrittenPart<'_>) -> Result<Part, CommandTemplateError> {
    let (written_words, optional) = match written {
        WrittenPart::Word(word) => (vec![word], false),
        WrittenPart::Optional(words) => (words.iter().map(String::as_str).collect(), true),
    };
    let mut words = Vec::new();
    for word in written_words {
        words.push(parse_word(word)?);
    }
    Ok(Part { words, optional })
}

fn parse_word(written: &str) -> Result<Word, CommandTemplateError> {
    let word: String = written.chars().take(80).collect();
    if written.len() > MAX_PART {
        return Err(CommandTemplateError::Length { word, bytes: written.len() });
    }
    if written.contains('\0') {
        return Err(CommandTemplateError::Nul(word));
    }
    let whole = written.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    if let Some(name) = whole.and_then(|name| name.strip_suffix("...")) {
        return parse_placeholder(name).map(Word::List);
    }
    if let Some(name) = whole.and_then(|name| name.strip_suffix('?')) {
        return check_name(name).map(|()| Word::Switch(name.to_owned()));
    }
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = written;
    while let Some(at) = rest.find(['{', '}']) {
        literal += &rest[..at];
        let brace = &rest[at..=at];
        let after = &rest[at + 1..];
        if let Some(doubled) = after.strip_prefix(brace) {
            literal += brace;
            rest = doubled;
            continue;
        }
        let inside = if brace == "{" { after.split_once('}') } else { None };
        let Some((name, after)) = inside else {
            return Err(CommandTemplateError::Brace { word, brace: brace.to_owned() });
        };
        if name.ends_with("...") || name.ends_with('?') {
            return Err(CommandTemplateError::Inside { argument: name.to_owned(), word });
        }
        let placeholder = parse_placeholder(name)?;
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
        }
        pieces.push(Piece::Argument(placeholder));
        rest = after;
    }
    literal += rest;
    if !literal.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(Word::Text(pieces))
}

/// Parses the text in braces: `NAME`, `NAME:read` or `NAME:write`.
fn parse_placeholder(written: &str) -> Result<Placeholder, CommandTemplateError> {
    let (name, path) = match written.split_once(':') {
        None => (written, None),
        Some((name, "read")) => (name, Some(Access::Read)),
        Some((name, "write")) => (name, Some(Access::Write)),
        Some((name, other)) => {
            check_name(name)?;
            // An error shows only the start of a long text.
            let access = other.chars().take(MAX_NAME).collect();
            return Err(CommandTemplateError::Access { name: name.to_owned(), access });
        }
    };
    check_name(name)?;
    Ok(Placeholder { name: name.to_owned(), path })
}

/// Checks the name of an argument. The error contains the start of an invalid name.
fn check_name(name: &str) -> Result<(), CommandTemplateError> {
    let has_valid_start = name.starts_with(|c: char| c.is_ascii_lowercase());
    let has_valid_characters = name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-'));
    if name.len() <= MAX_NAME && has_valid_start && has_valid_characters {
        return Ok(());
    }
    Err(CommandTemplateError::Name(name.chars().take(MAX_NAME).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(parts: &[&[&str]]) -> Result<CommandTemplate, CommandTemplateError> {
        let owned: Vec<Vec<String>> =
            parts.iter().map(|part| part.iter().map(|word| (*word).to_owned()).collect()).collect();
        let written = owned.iter().map(|part| match &part[..] {
            [word] => WrittenPart::Word(word),
            words => WrittenPart::Optional(words),
        });
        CommandTemplate::parse(written, "input", &BTreeMap::new())
    }

    #[track_caller]
    fn words(parts: &[&[&str]], arguments: &Value) -> Result<Vec<String>, CommandArgumentError> {
        template(parts).expect("the template is valid").expand(arguments).map(|line| line.words)
    }

    #[test]
    fn value_is_one_word_whatever_it_has() {
        let evil = "a b; rm -rf / $(id) {x} \n\"'*";
        let all = words(&[&["-e"], &["--in={x}"], &["{x}"]], &json!({ "x": evil }));
        assert_eq!(all, Ok(vec!["-e".to_owned(), format!("--in={evil}"), evil.to_owned()]));
    }

    #[test]
    fn value_never_becomes_an_option() {
        let error = words(&[&["{x}"]], &json!({ "x": "--exec=sh" })).expect_err("it is an option");
        assert!(error.to_string().contains("`x` starts with `-`"), "{error}");
        assert!(words(&[&["{x...}"]], &json!({ "x": ["ok", "-i"] })).is_err());
        assert!(words(&[&["{x}{y}"]], &json!({ "x": "", "y": "-i" })).is_err());
        // A value that is `--` doesn't end the options, and is none.
        assert!(words(&[&["{x}"], &["{y}"]], &json!({ "x": "--", "y": "-i" })).is_err());
        assert!(words(&[&["--"], &["{x}"]], &json!({ "x": "-i" })).is_ok());
        assert!(words(&[&["--level={x}"]], &json!({ "x": "-1" })).is_ok());
        assert!(words(&[&["{x}"]], &json!({ "x": "-" })).is_ok());
    }

    #[test]
    fn optional_part_is_left_out_as_a_whole() {
        let parts: &[&[&str]] =
            &[&["--max", "{n}"], &["-i", "{case?}"], &["--in", "{files...}"], &["{rest...}"]];
        for (arguments, expected) in [
            (json!({}), vec![]),
            (json!({ "n": "3", "case": true }), vec!["--max", "3", "-i"]),
            (json!({ "case": false, "files": [] }), vec![]),
            (json!({ "files": ["a", "b c"], "rest": ["d"] }), vec!["--in", "a", "b c", "d"]),
        ] {
            let words = words(parts, &arguments).expect("the arguments fit");
            assert_eq!(words, expected, "{arguments}");
        }
    }

    #[test]
    fn schema_and_standard_input_come_from_the_template() {
        let template = template(&[&["{pattern}"], &["-C", "{context}"], &["{files...}"]])
            .expect("the template is valid");
        let schema = template.schema();
        assert_eq!(schema["required"], json!(["pattern"]));
        assert_eq!(schema["properties"]["files"]["items"], json!({ "type": "string" }));
        assert_eq!(schema["additionalProperties"], json!(false));
        let names: Vec<_> =
            schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
        assert_eq!(names, ["context", "files", "input", "pattern"]);
        assert_eq!(
            self::template(&[&["{out:write}"], &["{in:read...}"], &["{text}"]])
                .map(|template| template.subjects()),
            Ok(vec![
                Subject { pointer: "/in".into(), kind: SubjectKind::Path, access: Access::Read },
                Subject { pointer: "/out".into(), kind: SubjectKind::Path, access: Access::Write },
            ])
        );
        let line = template.expand(&json!({ "pattern": "p", "input": "--text" }));
        assert_eq!(line.map(|line| line.stdin), Ok("--text".to_owned()));
    }

    #[test]
    fn wrong_template_says_what_is_wrong() {
        for (parts, reason) in [
            (&[&["{a"][..]][..], "single `{`"),
            (&[&["a}"]], "single `}`"),
            (&[&["{}"]], "can't be an argument's name"),
            (&[&["{A}"]], "can't be an argument's name"),
            (&[&["--x={a...}"]], "a separate word"),
            (&[&["{a?}"]], "needs a list"),
            (&[&["a", "b"]], "isn't optional"),
            (&[&["{a}"], &["{a...}"]], "different meanings"),
            (&[&["a\0"]], "NUL"),
            (&[&["{a:run}"]], "to `read` or to `write`"),
            (&[&["{a}"], &["{a:read}"]], "different meanings"),
        ] {
            let error = template(parts).expect_err("the template is wrong");
            assert!(error.to_string().contains(reason), "{error}");
        }
        assert!(template(&[&["{{a}}"]]).is_ok_and(|template| template.arguments.len() == 1));
        let described = BTreeMap::from([("b".to_owned(), "what".to_owned())]);
        assert!(CommandTemplate::parse([WrittenPart::Word("{a}")], "", &described).is_err());
        assert_eq!(words(&[&["{{a}}"]], &json!({})), Ok(vec!["{a}".to_owned()]));
        assert!(words(&[&["{a}"]], &json!({ "a": "x\0y" })).is_err());
    }
}
