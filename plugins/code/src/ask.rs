//! Asks language servers for definitions, uses and symbols, and decides which of their answers
//! count.
//!
//! A server runs the code of the project, so that everything it says is that of a stranger: places
//! count if this plugin may read them, with the line that it reads itself.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use code_model::{Definition, Language};
use language_server::{Client, LspError, Place, Position};
use toolhold_sdk::process::ProcessError;
use toolhold_sdk::service::{self, Connection};
use toolhold_sdk::{Call, Failure};

use crate::files::Text;
use crate::hit::{FoundBy, Hit, one_line, shown};
use crate::project::below;
use crate::servers::{Server, ServerSettings};
use crate::sources::Search;
use crate::{files, indexed_project};

/// Places of the name that are asked about, and servers that are asked, in one call.
const MAX_SPOTS: usize = 3;
const MAX_SERVERS: usize = 2;

/// Files that are read for the places that servers name, and places that aren't shown.
const MAX_READ: usize = 100;
const MAX_HIDDEN: usize = 1_000;

/// Files whose change a server is told, and milliseconds since their change: a server ends ten
/// minutes after the last call that asked it, and a call takes a while too.
const MAX_CHANGED: usize = 500;
const RECENT: u64 = 30 * 60_000;

/// The time in which a new server has to say that it loads its project.
const GRACE: Duration = Duration::from_millis(500);

/// How often a server is asked while it loads its project.
const ROUNDS: usize = 3;

/// The time for the answer after the servers.
const RESERVE: Duration = Duration::from_secs(5);

/// The time for the last output of a server before it ends.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Lines of a server's text about a name.
const MAX_HOVER_LINES: usize = 30;

/// Bytes at the end of its standard error that say why a server ended.
const MAX_ERRORS: usize = 400;

/// The answers of the servers.
#[derive(Debug, Default)]
pub(crate) struct Said {
    pub(crate) hits: Vec<Hit>,
    /// A server's text about the name: its type and its documentation.
    pub(crate) hover: Option<String>,
    /// The notices about the answer.
    pub(crate) notices: Vec<String>,
    /// Whether a server that fits said less than it could, or nothing.
    pub(crate) is_incomplete: bool,
    /// Whether a server was asked, so that a stranger wrote some of the answer.
    pub(crate) is_asked: bool,
}

/// A question to the servers.
pub(crate) struct Question<'q> {
    pub(crate) name: &'q str,
    /// The file and the line whose name is meant. `None`: any that was found.
    pub(crate) at: Option<(&'q str, u32)>,
    pub(crate) references: bool,
    pub(crate) settings: &'q ServerSettings,
}

/// A place of the name.
#[derive(Debug)]
struct Spot {
    path: String,
    server: Server,
    /// The language in the protocol.
    language: &'static str,
    text: Rc<Text>,
    position: Position,
}

/// Asks the servers that fit. `hits`: the hits that were found without them.
///
/// # Errors
///
/// The rules refuse the command of a server, or the name isn't where the call says.
pub(crate) fn ask(
    search: &mut Search<'_>,
    question: &Question<'_>,
    hits: &[Hit],
    call: &Call,
) -> Result<Said, Failure> {
    let spots = match question.at {
        Some((path, line)) => vec![spot_at(path, line, question.name)?],
        None => spots_of(search, question.name, hits)?,
    };
    let time = Duration::from_secs(question.settings.timeout);
    let end = Instant::now() + time.min(call.remaining().saturating_sub(RESERVE));
    let mut servers: Vec<Server> = Vec::new();
    for spot in &spots {
        if !servers.contains(&spot.server) {
            servers.push(spot.server);
        }
    }
    if servers.is_empty() {
        servers = usual_servers(search);
    }
    let is_defined = hits.iter().any(|hit| hit.found_by.contains(&FoundBy::Definition));
    let mut asker = Asker {
        search,
        question,
        is_defined,
        said: Said { is_asked: !servers.is_empty(), ..Said::default() },
        texts: BTreeMap::new(),
        seen: BTreeSet::new(),
        hidden: BTreeSet::new(),
        refusal: None,
        end,
    };
    if servers.is_empty() {
        asker.tell("no server knows the languages here".to_owned());
    }
    for server in servers.into_iter().take(MAX_SERVERS) {
        let spots: Vec<&Spot> = spots.iter().filter(|spot| spot.server == server).collect();
        call.progress(None, &format!("Asking the language server of {}", server.key()));
        asker.ask(server, &spots)?;
    }
    let hidden = asker.hidden.len();
    if hidden > 0 {
        asker.said.notices.push(format!(
            "Places of the language server that aren't shown: {hidden}. They can't be read here, or the search was narrowed."
        ));
    }
    Ok(asker.said)
}

/// The place of the name in this line.
fn spot_at(path: &str, line: u32, name: &str) -> Result<Spot, Failure> {
    let bytes =
        files::begin_of(path).map_err(|error| Failure::io(format!("reading {path}"), &error))?;
    let shown = one_line(path);
    let text = Rc::new(Text::new(String::from_utf8_lossy(&bytes).into_owned()));
    let Some(column) = text.line(line).and_then(|line| column_of(line, name)) else {
        let message = format!("`{}` isn't in line {line} of {shown}", one_line(name));
        return Err(Failure::invalid(message).with_suggestion("Read the file, and set line."));
    };
    spot(path.to_owned(), text, line, column).ok_or_else(|| {
        Failure::permanent("language", format!("no language server is known for {shown}"))
    })
}

/// The places where the name is defined, by its exact spelling, or else where it is used.
fn spots_of(search: &mut Search<'_>, name: &str, hits: &[Hit]) -> Result<Vec<Spot>, Failure> {
    let defined = hits.iter().filter(|hit| hit.name.as_deref() == Some(name));
    let mut spots = spots_in(search, defined, name);
    if spots.is_empty() {
        search.references = true;
        let uses = search.references()?;
        spots = spots_in(search, uses.iter(), name);
    }
    Ok(spots)
}

fn spots_in<'h>(search: &Search<'_>, hits: impl Iterator<Item = &'h Hit>, name: &str) -> Vec<Spot> {
    let spots = hits.filter_map(|hit| {
        let file = search.project.table.files().find(|file| search.show(file) == hit.path)?;
        let path = search.project.absolute(&file.path);
        let bytes = files::begin_of(&path).ok()?;
        let text = Rc::new(Text::new(String::from_utf8_lossy(&bytes).into_owned()));
        let column = column_of(text.line(hit.line)?, name)?;
        spot(path, text, hit.line, column)
    });
    spots.take(MAX_SPOTS).collect()
}

fn spot(path: String, text: Rc<Text>, line: u32, column: usize) -> Option<Spot> {
    let language = Language::detect(&path, text.content.as_bytes())?;
    let (server, language) = Server::for_language(language)?;
    let position = Position::of_byte(line.checked_sub(1)?, text.line(line)?, column);
    Some(Spot { path, server, language, text, position })
}

/// The byte of a line where a name stands as a whole word.
fn column_of(line: &str, name: &str) -> Option<usize> {
    line.match_indices(name).map(|(start, _)| start).find(|start| {
        let before = &line[..*start];
        let after = &line[start + name.len()..];
        !before.ends_with(is_word_part) && !after.starts_with(is_word_part)
    })
}

fn is_word_part(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// The servers for most files of the search.
fn usual_servers(search: &Search<'_>) -> Vec<Server> {
    let mut counts: BTreeMap<Server, usize> = BTreeMap::new();
    for file in search.project.table.files().filter(|file| search.filter.allows_file(&file.path)) {
        if let Some(server) = server_of(&file.path) {
            *counts.entry(server).or_default() += 1;
        }
    }
    let mut counts: Vec<(Server, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.into_iter().map(|(server, _)| server).collect()
}

fn server_of(path: &str) -> Option<Server> {
    Language::from_file_name(path).and_then(Server::for_language).map(|(server, _)| server)
}

struct Asker<'a, 's> {
    search: &'a Search<'s>,
    question: &'a Question<'a>,
    /// Whether a definition was found without a server.
    is_defined: bool,
    said: Said,
    /// The files of places, and what the index knows of their definitions. `None`: it can't be
    /// read.
    texts: BTreeMap<String, Option<(Text, Vec<Definition>)>>,
    /// Places that are hits.
    seen: BTreeSet<(String, u32, &'static str)>,
    /// Places that aren't shown.
    hidden: BTreeSet<(String, u32)>,
    /// Why the server refused its first request.
    refusal: Option<String>,
    end: Instant,
}

impl Asker<'_, '_> {
    /// Notes why a server said less than it could.
    fn tell(&mut self, why: String) {
        self.said.is_incomplete = true;
        self.said.notices.push(format!("The language server's answer is missing: {why}"));
    }

    /// Asks one server about the places of the name in its languages.
    fn ask(&mut self, server: Server, spots: &[&Spot]) -> Result<(), Failure> {
        let key = server.key();
        let root = &self.search.project.root;
        let Some(command) = server.command(self.question.settings, root) else {
            self.tell(format!("`{key}` in [tools.code.lsp.servers] names none."));
            return Ok(());
        };
        let program = one_line(command.first().map_or("", String::as_str)).into_owned();
        let connection = match service::connect(key, command, Some(root)) {
            Ok(connection) => connection,
            Err(ProcessError::Denied(why)) => {
                return Err(Failure::permanent("not-permitted", why)
                    .with_suggestion("Leave out `source` to search without a language server."));
            }
            Err(error) => {
                self.tell(format!("{program}: {}", first_lines(&error.to_string())));
                return Ok(());
            }
        };
        let is_new = connection.is_new();
        let left = self.end.saturating_duration_since(Instant::now());
        let mut client = Client::new(connection, left);
        let talked = self.talk(&mut client, server, spots, is_new);
        let is_loading = client.is_loading();
        // One that still loads its project goes on with it until the next call.
        let is_kept = talked.is_ok() || talked == Err(LspError::Timeout) && is_loading;
        if is_kept {
            if let Some(connection) = client.finish() {
                connection.keep();
            }
            if is_loading {
                self.tell(format!("{program} still loads the project. Repeat the call."));
            } else if let Some(why) = self.refusal.take()
                && self.said.hits.is_empty()
            {
                self.tell(format!("{program} refused: {}", first_lines(&why)));
            }
        } else if let Err(error) = talked {
            let why = explain(&error, server, client.into_transport());
            self.tell(format!("{program}: {why}"));
        }
        Ok(())
    }

    fn talk(
        &mut self,
        client: &mut Client<Connection>,
        server: Server,
        spots: &[&Spot],
        is_new: bool,
    ) -> Result<(), LspError> {
        if is_new {
            client.initialize(&self.search.project.root, &server.options())?;
        } else {
            client.files_changed(&self.changed_files(server))?;
        }
        for spot in spots {
            let opened = client.open(&spot.path, spot.language, &spot.text.content);
            self.answer(opened)?;
        }
        let mut grace = if is_new { GRACE } else { Duration::ZERO };
        for _ in 0..ROUNDS {
            // Some servers say that they load only when they are asked.
            let left = self.end.saturating_duration_since(Instant::now());
            client.settle(grace, left / 2)?;
            self.questions(client, spots)?;
            if !client.is_loading() {
                break;
            }
            grace = Duration::ZERO;
        }
        Ok(())
    }

    fn questions(
        &mut self,
        client: &mut Client<Connection>,
        spots: &[&Spot],
    ) -> Result<(), LspError> {
        self.refusal = None;
        for spot in spots {
            let places = client.definition(&spot.path, spot.position);
            for place in self.answer(places)? {
                self.add(&place, FoundBy::ServerDefinition);
            }
            if self.question.references {
                let places = client.references(&spot.path, spot.position);
                for place in self.answer(places)? {
                    self.add(&place, FoundBy::ServerReference);
                }
            }
        }
        if !self.is_defined {
            let symbols = client.workspace_symbols(self.question.name);
            for symbol in self.answer(symbols)? {
                if own_name(&symbol.name) == self.question.name {
                    self.add(&symbol.place, FoundBy::ServerDefinition);
                }
            }
        }
        if let Some(spot) = spots.first() {
            let hover = client.hover(&spot.path, spot.position);
            if let Some(text) = self.answer(hover)? {
                self.said.hover = Some(hover_text(&text));
            }
        }
        Ok(())
    }

    /// An answer. A server that refuses one request may answer the next.
    fn answer<T: Default>(&mut self, answer: Result<T, LspError>) -> Result<T, LspError> {
        match answer {
            Err(LspError::Refused(why)) => {
                self.refusal.get_or_insert(why);
                Ok(T::default())
            }
            answer => answer,
        }
    }

    /// Adds a place, if it is one that may be shown.
    fn add(&mut self, place: &Place, found_by: FoundBy) {
        let Place { path, start, .. } = place;
        let number = start.line.saturating_add(1);
        let key = (path.clone(), number, found_by.name());
        // Some servers count a definition among its uses.
        let is_known = [found_by, FoundBy::ServerDefinition]
            .iter()
            .any(|way| self.seen.contains(&(path.clone(), number, way.name())));
        if self.said.hits.len() >= 4 * self.search.most || is_known {
            return;
        }
        match self.hit(path, number, *start, found_by) {
            Some(hit) => {
                self.seen.insert(key);
                self.said.hits.push(hit);
            }
            None if self.hidden.len() < MAX_HIDDEN => {
                self.hidden.insert((path.clone(), number));
            }
            None => {}
        }
    }

    fn hit(&mut self, path: &str, number: u32, start: Position, found_by: FoundBy) -> Option<Hit> {
        let search = self.search;
        // Another spelling would be another place.
        let is_plain = path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."));
        let own = below(&search.project.root, path);
        let is_wanted = own.map_or(search.filter.is_open(), |own| search.filter.allows_file(own));
        if !is_plain || !is_wanted {
            return None;
        }
        if !self.texts.contains_key(path) {
            if self.texts.len() >= MAX_READ {
                return None;
            }
            let read = files::begin_of(path).ok().map(|bytes| {
                let file = own.and_then(|own| search.project.table.get(own));
                let definitions = file.and_then(|file| search.definitions_of(file).ok());
                let text = Text::new(String::from_utf8_lossy(&bytes).into_owned());
                (text, definitions.unwrap_or_default())
            });
            self.texts.insert(path.to_owned(), read);
        }
        let (text, definitions) = self.texts.get(path)?.as_ref()?;
        let line = text.line(number)?;
        let shown = search.paths.show(path);
        let name = self.question.name;
        let known = definitions.iter().find(|one| one.line == number && one.name == name);
        let is_kind =
            search.filter.kind.is_none_or(|kind| known.is_some_and(|one| one.kind == kind));
        match (found_by, known) {
            (FoundBy::ServerDefinition, _) if !is_kind => None,
            (FoundBy::ServerDefinition, Some(known)) => {
                Some(Hit::of_definition(&shown, known, line).because(found_by))
            }
            _ => {
                let hit = Hit::of_line(&shown, number, line, found_by, definitions);
                let column = u32::try_from(start.byte_in(line) + 1).ok();
                Some(Hit { column, ..hit })
            }
        }
    }

    /// The files of a server's languages that have changed since it may have read them.
    fn changed_files(&self, server: Server) -> Vec<String> {
        let now = indexed_project::now_ms();
        let project = self.search.project;
        let mut changed: Vec<_> = project
            .table
            .files()
            .filter(|file| now.saturating_sub(file.modified_ms) < RECENT)
            .filter(|file| server_of(&file.path) == Some(server))
            .collect();
        changed.sort_by_key(|file| std::cmp::Reverse(file.modified_ms));
        changed.into_iter().take(MAX_CHANGED).map(|file| project.absolute(&file.path)).collect()
    }
}

/// The name itself, as in `package.Name` and `name(int)`.
fn own_name(symbol: &str) -> &str {
    let name = symbol.split(['(', '<']).next().unwrap_or_default();
    name.rsplit(|char: char| !(char.is_alphanumeric() || char == '_')).next().unwrap_or_default()
}

/// Why a server gave no answer.
fn explain(error: &LspError, server: Server, mut connection: Connection) -> String {
    // The last output of the server may still be on its way.
    if *error == LspError::Ended {
        connection.read(Some(LAST_WORDS));
    }
    let said = connection.errors();
    let said = String::from_utf8_lossy(&said);
    if *error == LspError::Ended && said.trim_end().ends_with("not found") {
        return format!(
            "it isn't installed. {} Another one is set with `{}` in [tools.code.lsp.servers].",
            server.install(),
            server.key()
        );
    }
    let error = first_lines(&error.to_string());
    let said = first_lines(&said);
    if said.is_empty() { format!("{error}.") } else { format!("{error}: {said}") }
}

/// The first lines of a text, as one line: the later lines are a backtrace.
fn first_lines(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut line = lines.collect::<Vec<_>>().join(" ");
    if line.len() > MAX_ERRORS {
        line.truncate(line.floor_char_boundary(MAX_ERRORS));
        line.push('…');
    }
    one_line(&line).into_owned()
}

/// A server's text about a name, bounded as lines of files are.
fn hover_text(text: &str) -> String {
    let lines: Vec<String> = text.trim().lines().take(MAX_HOVER_LINES).map(shown).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_found_as_a_whole_word() {
        for (line, name, column) in [
            ("run(rerun, run_all, run)", "run", Some(0)),
            ("x.rerun().run()", "run", Some(10)),
            ("é = Ü::run", "run", Some(9)),
            ("running", "run", None),
            ("", "run", None),
        ] {
            assert_eq!(column_of(line, name), column, "{line}");
        }
    }

    #[test]
    fn name_of_a_symbol_is_its_last_part() {
        for (symbol, name) in [
            ("pkg.Type.Name", "Name"),
            ("a::b", "b"),
            ("run(int)", "run"),
            ("Vec<T>", "Vec"),
            ("", ""),
        ] {
            assert_eq!(own_name(symbol), name, "{symbol}");
        }
    }

    #[test]
    fn error_of_a_server_begins_with_its_first_lines() {
        assert_eq!(first_lines("Error: no\r\n\n    at x:1\n"), "Error: no at x:1");
        let long = first_lines(&format!("Error: é\u{1b}[31m\n{}", "    at x\n".repeat(999)));
        assert!(long.starts_with("Error: é\u{fffd}[31m at x at x"), "{long}");
        assert!(long.ends_with('…') && long.len() < 450, "{long}");
        assert_eq!(first_lines(" \n"), "");
    }

    #[test]
    fn hover_is_bounded_and_steers_nothing() {
        let lines = "y\n".repeat(99);
        let text = hover_text(&format!("\n a\u{1b}[2J\u{202e}b \n{}\n{lines}", "x ".repeat(9_000)));
        assert!(text.starts_with("a\u{fffd}[2J\u{fffd}b\nx x"), "{text}");
        assert!(text.lines().count() == MAX_HOVER_LINES && text.len() < 1_000, "{text}");
    }
}
