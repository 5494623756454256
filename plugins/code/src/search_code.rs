//! `search_code`: its arguments, which ways of searching it tries in which order, and its answer.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use code_model::{Kind, Language, words};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use toolhold_sdk::search::{self, Pattern, Scope};
use toolhold_sdk::{
    Call, Content, Failure, Output, Promises, Subject, Tool, add_notice, config, schema,
};

use crate::ask::{self, Question, Said};
use crate::files::Files;
use crate::hit::{self, Found, FoundBy, Hit};
use crate::indexed_project::Project;
use crate::near;
use crate::outline;
use crate::parse::PARSERS;
use crate::paths::{self, PathShortener};
use crate::project::{self, LISTED, Walk, below};
use crate::servers::ServerSettings;
use crate::sources::{Filter, Search};
use crate::update::Report;
use crate::vectors;

/// The default number of hits.
const DEFAULT_RESULTS: usize = 10;

/// Bytes of a query or a symbol.
const MAX_QUERY: usize = 1_000;

/// The time that is left for the search and its answer after the index was brought up to date.
const TIME_TO_ANSWER: Duration = Duration::from_secs(5);

/// The time in which names like a missing one are looked for.
const TIME_FOR_NAMES: Duration = Duration::from_millis(500);

/// How often a search starts again because a file changed under it.
const ROUNDS: usize = 3;

/// The remedy for a path that can't be searched.
const OTHER_PATH: &str = "Use find_path to find it, or leave path out to search everything.";

/// Searches in code by names and words.
pub(crate) struct SearchCode;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Words in names and code. One of query, symbol and outline is needed.
    query: Option<String>,
    /// The name of a definition, in any style: `load_config`, `Config::load`.
    symbol: Option<String>,
    /// A file whose definitions to list.
    outline: Option<String>,
    /// File or directory. Default: `.`.
    path: Option<String>,
    /// Only files that match this glob: `src/**/*.rs`.
    file_pattern: Option<String>,
    kind: Option<WantedKind>,
    /// Only files in it: rust, python, javascript, typescript, go, c, cpp, java, csharp, ruby, php,
    /// bash.
    language: Option<String>,
    /// Find uses too.
    include_references: Option<bool>,
    /// The language_server also knows what macros and types define; it takes seconds to start.
    /// Default: index.
    #[serde(default)]
    source: Source,
    /// For a language server: the line of the symbol in path.
    #[schemars(range(min = 1))]
    line: Option<u32>,
    /// Default: 10.
    #[schemars(range(min = 1, max = 50))]
    max_results: Option<usize>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Source {
    #[default]
    Index,
    LanguageServer,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum WantedKind {
    // No doc comments: so the schema stays a plain list of names.
    Function,
    Method,
    Class,
    Struct,
    Enum,
    Variant,
    Interface,
    Type,
    Constant,
    Variable,
    Field,
    Module,
    Macro,
}

/// The plugin's settings.
#[derive(Deserialize)]
#[serde(default)]
struct Settings {
    /// Files of one project.
    max_files: usize,
    /// Seconds that a call spends on bringing the index up to date.
    update_secs: u64,
    lsp: ServerSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_files: 50_000, update_secs: 20, lsp: ServerSettings::default() }
    }
}

impl Tool for SearchCode {
    const NAME: &str = "search_code";
    const TITLE: Option<&str> = Some("Search in code");
    const DESCRIPTION: &str = "\
        Finds code: where a symbol is defined and used, which places have the words of a query, \
        and what a file defines. Knows the definitions of 12 languages; finds words in all text \
        files. Returns the surest hits first, as path:line. Use grep for regular expressions and \
        exact text.";
    const PROMISES: Promises = Promises { read_only: false, ..Promises::READ_ONLY };
    // A language server is a program, which the rules for commands decide on.
    const READS_WITH: &[(&str, &[&str])] = &[("source", &["index"])];
    const SUBJECTS: &[Subject] = &[Subject::reads_path("/path"), Subject::reads_path("/outline")];
    const BARE_ARGUMENT: Option<&str> = Some("query");
    const ANSWERS_IN_TEXT: bool = true;
    type Arguments = Arguments;

    fn output_schema() -> Option<Schema> {
        Some(schema::for_type::<Found>())
    }

    fn call(mut arguments: Arguments, call: &Call) -> Result<Output, Failure> {
        // Files of the index are compared by their spelling.
        arguments.path = arguments.path.map(paths::without_dots);
        let directory = paths::directory().ok();
        let shortener = PathShortener::new(directory.clone());
        if let Some(file) = &arguments.outline {
            return outline::of_file(file, &shortener, Instant::now() + call.remaining());
        }
        let wanted = Wanted::new(&arguments)?;
        let at = arguments.place()?;
        let path = match arguments.path.clone() {
            Some(path) => path,
            None => paths::directory()?,
        };
        fs::metadata(&path).map_err(|error| {
            Failure::io(format!("searching {path}"), &error).with_suggestion(OTHER_PATH)
        })?;
        let settings: Settings = config::all()?;
        let root = project::root_of(&path, directory.as_deref());
        let until = Instant::now() + call.remaining().saturating_sub(TIME_TO_ANSWER);
        let index_until = until.min(Instant::now() + Duration::from_secs(settings.update_secs));
        let mut project = Project::open(&root)?;
        // A line is meant, and not all that stands in its file.
        let folder = match at {
            None => below(&root, &path).unwrap_or_default().to_owned(),
            Some(_) => String::new(),
        };
        let filter = Filter {
            files: files_of_pattern(&path, &root, arguments.file_pattern.as_deref())?,
            kind: arguments.kind.map(WantedKind::kind),
            language: language(arguments.language.as_deref())?,
            folder,
        };
        let most = arguments.max_results.unwrap_or(DEFAULT_RESULTS).clamp(1, 50);
        let mut round = 0;
        let mut vectors = vectors::Report::default();
        let mut vector = None;
        loop {
            round += 1;
            let walk = project::walk(&root, settings.max_files)?;
            let first = &filter.folder;
            let report = project.update(&walk, first, call, index_until);
            if round == 1 {
                vectors = project.make_vectors(call, index_until);
                let query = if filter.kind.is_none() { wanted.query.as_deref() } else { None };
                vector = vectors.of_query(query);
            }
            let mut search = Search {
                vector: vector.clone(),
                project: &project,
                files: Files::default(),
                filter: filter.clone(),
                query: wanted.query.clone(),
                name: wanted.name.clone(),
                containers: wanted.containers.clone(),
                references: wanted.references,
                paths: &shortener,
                most,
                until,
            };
            let mut hits = search.run()?;
            // The container may be a module, which is a file in some languages.
            let mut elsewhere =
                !search.containers.is_empty() && !hits.iter().any(Hit::is_definition);
            if elsewhere {
                let mut declared = search.declared()?;
                elsewhere = declared.is_empty();
                if elsewhere {
                    search.containers.clear();
                    hits = search.run()?;
                } else if search.query.is_none() {
                    // A name that is defined needs no other lines with its word.
                    hits.retain(|hit| hit.found_by != [FoundBy::Words]);
                }
                hits.append(&mut declared);
            }
            // A file changed between the walk and now: its new time shows that to the next walk.
            if round < ROUNDS && !search.files.outdated.is_empty() {
                project.forget(&search.files.outdated);
                continue;
            }
            let mut said = Said::default();
            if arguments.source == Source::LanguageServer {
                said = ask_servers(&mut search, &wanted, at, &settings.lsp, &hits, call)?;
                hits.append(&mut said.hits);
            }
            let hits = hit::ranked(hits, most);
            let answer = Answer {
                wanted: &wanted,
                path: &path,
                walk: &walk,
                report: &report,
                vectors: &vectors,
                said,
                elsewhere,
            };
            return answer.finish(hits, &project, &filter, &shortener, &arguments, most);
        }
    }
}

impl Arguments {
    /// The file and the line where the symbol stands. `None`: any place is meant.
    fn place(&self) -> Result<Option<(&str, u32)>, Failure> {
        let Some(line) = self.line else { return Ok(None) };
        let file = self.path.as_deref().filter(|path| Path::new(path).is_file());
        match file {
            Some(file) if self.source == Source::LanguageServer => Ok(Some((file, line))),
            _ => Err(Failure::invalid("line needs a file as path, and a language server")
                .with_suggestion(
                    "Set path to the file, and source to language_server, or leave out line.",
                )),
        }
    }
}

/// Asks language servers for the symbol, if the operator wants them to be asked.
fn ask_servers(
    search: &mut Search<'_>,
    wanted: &Wanted,
    at: Option<(&str, u32)>,
    settings: &ServerSettings,
    hits: &[Hit],
    call: &Call,
) -> Result<Said, Failure> {
    if !settings.enabled {
        let off = "No language server was asked: they are off. The operator sets `enabled = true` in [tools.code.lsp].";
        return Ok(Said { notices: vec![off.to_owned()], is_incomplete: true, ..Said::default() });
    }
    let Some(name) = &wanted.name else {
        let failure = Failure::invalid("symbol is missing; a language server is asked about one");
        return Err(failure.with_suggestion("Give the symbol's name, or leave out source."));
    };
    let question = Question { name, at, references: wanted.references, settings };
    ask::ask(search, &question, hits, call)
}

/// The symbol or the words that the arguments ask for.
struct Wanted {
    query: Option<String>,
    name: Option<String>,
    containers: Vec<String>,
    references: bool,
}

impl Wanted {
    fn new(arguments: &Arguments) -> Result<Self, Failure> {
        let query = given(arguments.query.as_deref(), "query")?;
        let symbol = given(arguments.symbol.as_deref(), "symbol")?;
        if query.is_none() && symbol.is_none() {
            return Err(Failure::invalid(
                "query, symbol and outline are missing; one of them is needed",
            )
            .with_suggestion(
                "Give the symbol's name, words of what you look for, or a file for its outline.",
            ));
        }
        let symbol = symbol.unwrap_or_default();
        let mut parts: Vec<&str> = symbol
            .split(|char: char| {
                matches!(char, ':' | '.' | '#' | '/' | '\\') || char.is_whitespace()
            })
            .filter(|part| !words::whole(part).is_empty())
            .collect();
        let mut name = parts.pop().map(|name| name.trim_end_matches(['(', ')', '!']).to_owned());
        // These name no module.
        let own =
            parts.iter().take_while(|part| ["crate", "self", "super"].contains(*part)).count();
        let containers = parts.into_iter().skip(own).map(words::whole).collect();
        let references = arguments.include_references.unwrap_or(false);
        if let (true, None, Some(query)) = (references, &name, &query) {
            // The uses of a query are those of its only word.
            let mut identifiers = words::identifiers(query);
            name = match (identifiers.next(), identifiers.next()) {
                (Some(only), None) => Some(only.to_owned()),
                _ => None,
            };
        }
        Ok(Self { query, name, containers, references })
    }

    fn describe(&self) -> String {
        let name = self.name.as_ref().map(|name| format!("`{}`", hit::one_line(name)));
        let query = self.query.as_ref().map(|query| format!("\"{}\"", hit::one_line(query)));
        name.or(query).unwrap_or_default()
    }
}

/// An argument without blanks around it. `None`: it is missing or empty.
fn given(text: Option<&str>, what: &str) -> Result<Option<String>, Failure> {
    match text.map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) if text.len() > MAX_QUERY => Err(Failure::invalid(format!(
            "{what} is {} bytes; the limit is {MAX_QUERY}",
            text.len()
        ))
        .with_suggestion("Give the rarest words of it, or use grep for exact text.")),
        text => Ok(text.map(str::to_owned)),
    }
}

/// The inputs of an answer, in addition to its hits.
struct Answer<'a> {
    wanted: &'a Wanted,
    path: &'a str,
    walk: &'a Walk,
    report: &'a Report,
    vectors: &'a vectors::Report,
    said: Said,
    /// Whether the named containers have no such name, so that it was looked for anywhere.
    elsewhere: bool,
}

impl Answer<'_> {
    fn finish(
        &self,
        mut hits: Vec<Hit>,
        project: &Project,
        filter: &Filter,
        shortener: &PathShortener,
        arguments: &Arguments,
        most: usize,
    ) -> Result<Output, Failure> {
        let mut did_you_mean = Vec::new();
        let is_defined = hits.iter().any(|hit| {
            let mut ways = hit.found_by.iter();
            ways.any(|way| matches!(way, FoundBy::Definition | FoundBy::ServerDefinition))
        });
        if !is_defined && let Some(name) = &self.wanted.name {
            let until = Instant::now() + TIME_FOR_NAMES;
            did_you_mean = near::names(project, name, filter, until)?
                .into_iter()
                .filter(|near| near != name)
                .map(|near| hit::one_line(&near).into_owned())
                .collect();
        }
        let is_of_lines = hits.is_empty() && filter.kind.is_none();
        if is_of_lines {
            hits = grep(self.wanted, self.path, arguments, filter, shortener, most)?;
        }
        let mut text: String = hits.iter().map(Hit::describe).collect();
        if hits.is_empty() {
            text = format!("Nothing found for {}.\n", self.wanted.describe());
        } else if !is_defined && let Some(name) = &self.wanted.name {
            let place = if is_of_lines {
                " in files that are parsed. These lines are of other files: ignored ones, links, or large ones. With `outline`, a file is parsed"
            } else {
                ""
            };
            let name = hit::one_line(name);
            add_notice(&mut text, &format!("No definition of `{name}` was found{place}."));
        } else if self.elsewhere
            && let Some(name) = &self.wanted.name
        {
            let containers = self.wanted.containers.join("::");
            let name = hit::one_line(name);
            let outer = hit::one_line(&containers);
            add_notice(&mut text, &format!("`{name}` of `{outer}` isn't known; these are others."));
        }
        if !did_you_mean.is_empty() {
            add_notice(&mut text, &format!("Did you mean {}?", did_you_mean.join(" or ")));
        }
        if let Some(hover) = &self.said.hover {
            text.push_str("The language server says:\n");
            hover.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
        }
        self.add_notices(&mut text, project, shortener, hits.len() >= most);
        let found = Found {
            hits,
            complete: self.report.waiting == 0
                && self.report.stopped.is_none()
                && !self.walk.incomplete
                && !self.said.is_incomplete,
            indexed_files: project.table.len(),
            waiting_files: self.report.waiting,
            did_you_mean,
            hover: self.said.hover.clone(),
        };
        let content =
            if self.said.is_asked { Content::untrusted(text) } else { Content::text(text) };
        Output::from(content).with_structured(&found)
    }

    fn add_notices(
        &self,
        text: &mut String,
        project: &Project,
        shortener: &PathShortener,
        full: bool,
    ) {
        let Report { waiting, stopped, no_parser } = self.report;
        if full {
            add_notice(text, "There may be more: raise max_results, or narrow the search.");
        }
        let all = project.table.len();
        match stopped {
            Some(why) => add_notice(
                text,
                &format!("The index isn't complete: {waiting} files are missing, because {why}"),
            ),
            None if *waiting > 0 => add_notice(
                text,
                &format!(
                    "The index isn't complete: it has {all} files, and {waiting} are missing. Repeat the call to go on."
                ),
            ),
            None => {}
        }
        let files = self.walk.files.len();
        let searched = Path::new(self.path);
        let crowded = self.walk.crowded.as_ref().filter(|folder| {
            searched.starts_with(folder) || Path::new(folder).starts_with(searched)
        });
        match crowded {
            Some(folder) => {
                let folder = shortener.show(folder);
                let folder = hit::one_line(&folder);
                add_notice(
                    text,
                    &format!(
                        "{folder} has more than {LISTED} entries; only {LISTED} of them are searched."
                    ),
                );
            }
            None if self.walk.incomplete && self.walk.crowded.is_none() => add_notice(
                text,
                &format!(
                    "The project has too many files: only {files} are searched. See `max_files` in `[index]`."
                ),
            ),
            None => {}
        }
        if let Some(notice) = self.vectors.notice() {
            add_notice(text, &notice);
        }
        self.said.notices.iter().for_each(|notice| add_notice(text, notice));
        if let Some((_, why)) = no_parser.first_key_value() {
            let languages: Vec<&str> = no_parser.keys().copied().collect();
            let languages = languages.join(", ");
            add_notice(
                text,
                &format!("Definitions in {languages} aren't known, only words: {why}. {PARSERS}"),
            );
        }
        if self.walk.denied > 0 {
            let denied = self.walk.denied;
            add_notice(text, &format!("Skipped: {denied} denied by the operator's rules."));
        }
    }
}

/// Lines with the text itself, for files that no index has.
fn grep(
    wanted: &Wanted,
    path: &str,
    arguments: &Arguments,
    filter: &Filter,
    shortener: &PathShortener,
    most: usize,
) -> Result<Vec<Hit>, Failure> {
    let (regex, case_sensitive) = match (&wanted.name, &wanted.query) {
        (Some(name), _) => (format!(r"(^|\W){}($|\W)", escape(name)), true),
        (None, Some(query)) => (escape(query), false),
        (None, None) => return Ok(Vec::new()),
    };
    let scope = Scope {
        root: path.to_owned(),
        globs: arguments.file_pattern.clone().into_iter().collect(),
        ignore_rules: true,
        files_only: true,
        max_depth: None,
    };
    let pattern = Pattern { regex, case_sensitive, ..Pattern::default() };
    let limit = if filter.language.is_some() { 1_000 } else { most };
    let lines = search::grep(&scope, &pattern, u32::try_from(limit).unwrap_or(u32::MAX))?;
    Ok(lines
        .items
        .iter()
        .filter(|line| {
            filter.language.as_ref().is_none_or(|wanted| {
                Language::from_file_name(&line.path)
                    .is_some_and(|language| language.name() == *wanted)
            })
        })
        .take(most)
        .map(|line| {
            let number = u32::try_from(line.number).unwrap_or(u32::MAX);
            Hit::of_line(&shortener.show(&line.path), number, &line.text, FoundBy::Text, &[])
        })
        .collect())
}

/// A text as a regular expression that matches only it.
fn escape(text: &str) -> String {
    let mut regex = String::new();
    for char in text.chars() {
        if char.is_ascii_punctuation() {
            regex.push('\\');
        }
        regex.push(char);
    }
    regex
}

/// The files below `path` that match the pattern, as paths below the project.
fn files_of_pattern(
    path: &str,
    root: &str,
    pattern: Option<&str>,
) -> Result<Option<BTreeSet<String>>, Failure> {
    let Some(pattern) = pattern else { return Ok(None) };
    let scope = Scope {
        root: path.to_owned(),
        globs: vec![pattern.strip_prefix("./").unwrap_or(pattern).to_owned()],
        ignore_rules: true,
        files_only: true,
        max_depth: None,
    };
    let found = search::find(&scope, u32::MAX)?;
    let paths = found.items.iter().filter_map(|entry| below(root, &entry.path));
    Ok(Some(paths.map(str::to_owned).collect()))
}

/// The name of a language as definitions have it.
fn language(name: Option<&str>) -> Result<Option<String>, Failure> {
    let Some(name) = name else { return Ok(None) };
    let lower = name.to_lowercase();
    let known = match lower.as_str() {
        "c++" => "cpp",
        "c#" => "csharp",
        "js" | "jsx" => "javascript",
        "ts" | "tsx" => "typescript",
        "py" => "python",
        "rs" => "rust",
        "sh" | "shell" => "bash",
        "golang" => "go",
        other => other,
    };
    let names: BTreeSet<&str> = Language::ALL.into_iter().map(Language::name).collect();
    if names.contains(known) {
        return Ok(Some(known.to_owned()));
    }
    let names: Vec<&str> = names.into_iter().collect();
    Err(Failure::invalid(format!("language is {:?}, which no parser knows", hit::one_line(name)))
        .with_suggestion(format!("Use one of: {}.", names.join(", "))))
}

impl WantedKind {
    fn kind(self) -> Kind {
        match self {
            Self::Function => Kind::Function,
            Self::Method => Kind::Method,
            Self::Class => Kind::Class,
            Self::Struct => Kind::Struct,
            Self::Enum => Kind::Enum,
            Self::Variant => Kind::Variant,
            Self::Interface => Kind::Interface,
            Self::Type => Kind::Type,
            Self::Constant => Kind::Constant,
            Self::Variable => Kind::Variable,
            Self::Field => Kind::Field,
            Self::Module => Kind::Module,
            Self::Macro => Kind::Macro,
        }
    }
}
