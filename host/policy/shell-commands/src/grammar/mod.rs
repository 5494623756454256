//! Parses the text of a shell command with a grammar of bash.
//!
//! The grammar supports more forms than a handwritten parser. But it accepts errors, and reads some
//! texts differently from a shell. For this reason, its result is checked against the text: each
//! word must also be a word for a shell, gaps between words must not separate commands, and a
//! here-document must end where a shell ends it. If a check fails or the grammar reports an error,
//! the text is unclear. The commands that were found still apply.

mod evaluated;
mod nodes;
mod output;

use std::cell::Cell;
use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, ParseState, Parser};

use super::calculated::{Rule, Variables};
use super::document;
use super::word::{DISPUTED, Word, word};
pub(super) use nodes::is_harmless;
use nodes::{KNOWN, is_inert_text, is_word};

const UNREADABLE: &str = "shells may read the command in different ways";

pub(super) const TOO_MUCH: &str = "the command exceeds the limits of the analysis";

/// The maximum number of progress callbacks of the parser, which makes a callback every hundred
/// steps. A script of 40 KiB takes about a thousand callbacks. In a hostile text, the steps between
/// two callbacks take longer.
pub(super) const MAX_STEPS: usize = 1024;

/// Bytes of one read of the parser, and the number of reads that count as one callback. Reads are
/// counted because, after some operators, the parser reads the rest of the text to find one word.
const CHUNK: usize = 1024;
const READS: usize = 16;

/// Operators at which the parser goes back, or reads the whole rest of the text, and their largest
/// numbers. A text with more of them is refused.
const COSTLY: [(&str, usize); 2] = [("|", 1024), ("<<", 64)];

#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) parts: Vec<Part>,
    pub(super) redirects: Vec<Redirect>,
    pub(super) assigned: Vec<(String, Word)>,
    pub(super) scripts: Vec<String>,
    pub(super) unclear: Option<&'static str>,
    /// Whether a command uses the output of another command of the text, as text or as a file.
    pub(super) substitutes: bool,
    pub(super) bomb: bool,
    /// The command that writes the output of the text, and whether it is the only command that
    /// writes to this output.
    pub(super) last: Option<(Part, bool)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) text: String,
    pub(super) words: Vec<Word>,
    pub(super) assigned: Vec<(String, Word)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) target: Word,
    pub(super) writes: bool,
}

impl Redirect {
    pub(super) fn sign(&self) -> &'static str {
        if self.writes { ">" } else { "<" }
    }
}

/// Parses a text. `steps` is the number of callbacks that are left. The variables of the text are
/// added to `variables`.
pub(super) fn parse(source: &str, steps: &mut usize, variables: &mut Variables) -> Parsed {
    if COSTLY.iter().any(|(sign, most)| source.matches(sign).count() > *most) {
        return unreadable(TOO_MUCH);
    }
    let mut parser = Parser::new();
    let left = Cell::new(*steps * READS);
    let mut on_progress = |_: &ParseState| {
        if spend(&left, READS) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let tree = parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok().and_then(|()| {
        let bytes = source.as_bytes();
        let options = ParseOptions::new().progress_callback(&mut on_progress);
        parser.parse_with_options(
            &mut |at, _| {
                let rest: &[u8] = bytes.get(at..).unwrap_or_default();
                if spend(&left, 1) { &rest[..rest.len().min(CHUNK)] } else { &[] }
            },
            None,
            Some(options),
        )
    });
    *steps = left.get() / READS;
    // After a refused read, the tree covers only the start of the text.
    let Some(tree) = tree else { return unreadable(TOO_MUCH) };
    if left.get() == 0 {
        return unreadable(TOO_MUCH);
    }
    let mut walk = Walk::new(source);
    walk.variables = std::mem::take(variables);
    let root = tree.root_node();
    walk.check_gap(&source[..root.start_byte()], None);
    walk.check_gap(&source[root.end_byte()..], None);
    walk.run(root);
    let last = output::last_node(root, source).and_then(|(node, alone)| {
        let mut walk = Walk::new(source);
        walk.command(node, &[], &[]);
        Some((walk.parsed.parts.pop()?, alone))
    });
    *variables = walk.variables;
    Parsed { last, ..walk.parsed }
}

fn unreadable(why: &'static str) -> Parsed {
    Parsed { unclear: Some(why), ..Parsed::default() }
}

fn spend(left: &Cell<usize>, cost: usize) -> bool {
    let is_enough = left.get() >= cost;
    left.set(left.get().saturating_sub(cost));
    is_enough
}

struct Walk<'t> {
    source: &'t str,
    parsed: Parsed,
    /// The kinds of the parent nodes, the outermost first.
    above: Vec<&'t str>,
    /// The command that `add_redirected` already added.
    handled: Option<usize>,
    variables: Variables,
}

impl<'t> Walk<'t> {
    fn new(source: &'t str) -> Self {
        Self {
            source,
            parsed: Parsed::default(),
            above: Vec::new(),
            handled: None,
            variables: Variables::default(),
        }
    }

    /// Visits the nodes, parents first. [`visit`](Self::visit) decides whether the children of a
    /// node are visited. The walk is a loop, because an attacker chooses the depth of the tree and
    /// recursion could overflow the stack.
    fn run(&mut self, root: Node<'t>) {
        let mut cursor = root.walk();
        loop {
            let node = cursor.node();
            if self.visit(node) && cursor.goto_first_child() {
                self.above.push(node.kind());
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return;
                }
                self.above.pop();
            }
        }
    }

    fn unclear(&mut self, why: &'static str) {
        self.parsed.unclear.get_or_insert(why);
    }

    fn text(&self, node: Node<'t>) -> &'t str {
        &self.source[node.byte_range()]
    }

    fn visit(&mut self, node: Node<'t>) -> bool {
        let kind = node.kind();
        if node.is_error() || node.is_missing() {
            self.unclear(UNREADABLE);
            return true;
        }
        if !node.is_named() {
            return true;
        }
        if !KNOWN.contains(&kind) {
            self.unclear("the command contains unknown syntax");
        }
        self.check_gaps(node);
        if kind.ends_with("_redirect") && self.is_numbered(node) {
            self.unclear(DISPUTED);
        }
        let above = self.above.last().copied().unwrap_or_default();
        match kind {
            "command" | "declaration_command" | "unset_command" => self.command(node, &[], &[]),
            "redirected_statement" => self.add_redirected(node),
            "file_redirect" => self.redirect(node),
            "heredoc_redirect" => self.add_document(node),
            "command_substitution" => {
                self.parsed.substitutes = true;
                let text = self.text(node);
                if let Some(inner) = text.strip_prefix('`').or_else(|| text.strip_prefix("$`")) {
                    self.add_backticks(inner);
                    return false;
                }
            }
            "process_substitution" => self.parsed.substitutes = true,
            "variable_assignment"
                if !matches!(
                    above,
                    "command" | "declaration_command" | "c_style_for_statement"
                ) =>
            {
                self.assignment(node);
            }
            "arithmetic_expansion" | "c_style_for_statement" => self.arithmetic(node),
            "compound_statement" if self.text(node).starts_with("((") => self.arithmetic(node),
            // A shell reads this as arithmetic if the text is valid arithmetic.
            "subshell" if self.text(node).starts_with("((") && Rule::Arithmetic.is_enabled() => {
                self.unclear(DISPUTED);
            }
            "test_command" => self.test(node),
            "function_definition" => self.add_function(node),
            "for_statement" => self.add_for_loop(node),
            "subscript" => self.index(self.text(node)),
            "array" => self.add_indexes(node),
            "expansion" => self.expansion(node),
            "comment" => self.check_comment(node),
            "regex" | "extglob_pattern"
                if !is_inert_text(self.text(node), above == "expansion") =>
            {
                self.unclear(DISPUTED);
            }
            "word" | "concatenation" if above == "expansion" => {}
            // These children were read together with their parents.
            _ if matches!(above, "concatenation" | "translated_string") => {}
            "word" | "number" | "raw_string" | "ansi_c_string" | "string" | "concatenation"
            | "translated_string" => {
                if let (_, Some(why)) = word(node, self.source) {
                    self.unclear(why);
                }
            }
            _ => {}
        }
        true
    }

    /// Checks the text between the children of a node. The grammar skips this text.
    fn check_gaps(&mut self, node: Node<'t>) {
        // In these nodes, the gaps are text.
        if matches!(
            node.kind(),
            "string" | "heredoc_body" | "expansion" | "concatenation" | "regex"
        ) {
            return;
        }
        // These nodes end with their line, so a child on the next line belongs to another command.
        let ends_with_line = matches!(
            node.kind(),
            "file_redirect"
                | "herestring_redirect"
                | "variable_assignments"
                | "declaration_command"
        );
        let mut previous: Option<Node<'t>> = None;
        for child in node.children(&mut node.walk()) {
            if child.kind() == "heredoc_body" {
                break;
            }
            if let Some(previous) = previous
                && let Some(gap) = self.source.get(previous.end_byte()..child.start_byte())
                && !gap.is_empty()
            {
                self.check_gap(gap, Some((previous, child)));
                // A backslash before a line end joins two lines.
                if ends_with_line && gap.replace("\\\n", "").contains('\n') {
                    self.unclear(DISPUTED);
                }
            }
            previous = Some(child);
        }
    }

    /// Checks a text that belongs to no node. `between` are the nodes before and after the text, or
    /// `None` at the start and the end of the source.
    fn check_gap(&mut self, gap: &str, between: Option<(Node<'t>, Node<'t>)>) {
        let spaces = gap.replace("\\\n", "");
        // The grammar drops a `-` before a here-document. `add_redirected` adds this `-` to the
        // command.
        if spaces.trim() == "-"
            && let Some((_, after)) = between
            && after.kind() == "heredoc_redirect"
        {
            return;
        }
        let line_ends = spaces.replace("\r\n", "\n");
        if line_ends.trim_end_matches('\r').contains(|c| !matches!(c, ' ' | '\t' | '\n')) {
            return self
                .unclear("the command contains a character that some shells treat as a space");
        }
        if gap.ends_with('\r') && between.is_some() {
            return self.unclear("the command contains a carriage return within a line");
        }

        let Some((before, after)) = between else { return };
        let is_continued_line = spaces.is_empty() && !gap.is_empty();
        if is_continued_line {
            self.check_continued_line(before, after);
        }
    }

    /// Checks two nodes with only an escaped line end between them. A shell joins the nodes to one
    /// word or one operator, but the grammar doesn't.
    fn check_continued_line(&mut self, before: Node<'t>, after: Node<'t>) {
        let ends_with_meta = is_meta(self.text(before).chars().next_back());
        let starts_with_meta = is_meta(self.text(after).chars().next());
        // Two words are no problem, because `command` joins them as a shell does.
        let are_words =
            [before, after].iter().all(|node| is_word(*node) || node.kind() == "command_name");
        if ends_with_meta == starts_with_meta && !are_words {
            self.unclear(DISPUTED);
        }
    }

    /// Adds a simple command. `more` are its words after the redirections. `streams` are the
    /// redirections as written.
    fn command(&mut self, node: Node<'t>, more: &[Word], streams: &[String]) {
        if self.handled == Some(node.id()) {
            return;
        }
        let mut part = Part::default();
        let mut previous_end = None;
        let mut follows_word = false;
        for child in node.children(&mut node.walk()) {
            let mut touches = false;
            if let Some(end) = previous_end {
                let gap = self.source.get(end..child.start_byte()).unwrap_or_default();
                let spaces = gap.replace("\\\n", "");
                touches = spaces.is_empty();
                if spaces.contains('\n') {
                    self.unclear(DISPUTED);
                }
            }
            let is_redirect = child.kind().ends_with("_redirect");
            let begins_with_number = is_redirect
                && child.child(0).is_some_and(|first| first.kind() == "file_descriptor");
            match child.kind() {
                "variable_assignment" if node.kind() == "command" => {
                    part.assigned.extend(self.assigned_in(child));
                }
                "subshell" | "comment" => {}
                _ if is_redirect => {
                    if touches && begins_with_number {
                        self.unclear(DISPUTED);
                    }
                    part.words.extend(self.words_after(child));
                }
                _ => {
                    let next = self.word_of_command(child);
                    match part.words.last_mut() {
                        Some(last) if touches && follows_word => last.join(&next),
                        _ if touches => {
                            self.unclear(DISPUTED);
                            part.words.push(next);
                        }
                        _ => part.words.push(next),
                    }
                }
            }
            previous_end = Some(child.end_byte());
            follows_word = !is_redirect && child.kind() != "variable_assignment";
        }
        part.words.extend_from_slice(more);
        let mut cursor = node.walk();
        let children = node.children(&mut cursor);
        let leading_assignments = children
            .take_while(|child| child.kind() == "variable_assignment")
            .map(|child| self.text(child));
        let mut texts: Vec<&str> = Vec::new();
        if node.kind() == "command" {
            texts.extend(leading_assignments);
        }
        texts.extend(part.words.iter().map(|word| word.raw.as_str()));
        let own_streams: Vec<String> = node
            .children(&mut node.walk())
            .filter_map(|child| self.redirection_text(child))
            .collect();
        texts.extend(own_streams.iter().chain(streams).map(String::as_str));
        part.text = texts.join(" ");
        self.parsed.parts.push(part);
    }

    fn word_of_command(&mut self, child: Node<'t>) -> Word {
        let mut node = child;
        // The name of a command is a node around a word.
        if child.kind() == "command_name" {
            node = child.child(0).unwrap_or(child);
        }
        let raw = self.text(node);
        if node.kind() == "variable_assignment" {
            let (name, value) = self.assigned_in(node).unwrap_or_default();
            let text = format!("{name}={}", value.text);
            return Word { text, raw: raw.to_owned(), ..value };
        }
        let is_sign = !node.is_named() && node.child_count() == 0;
        // For a shell, these signs are words.
        let is_sign_as_word = is_sign && matches!(node.kind(), "$" | "=~" | "==");
        if is_word(node) || is_sign_as_word {
            let (read_word, _) = word(node, self.source);
            return read_word;
        }
        if is_sign { Word::plain(raw) } else { Word::unknown(raw) }
    }

    /// Adds a command with redirections. The grammar reads words after the file of a redirection as
    /// further files, so these words are added to the command.
    fn add_redirected(&mut self, node: Node<'t>) {
        let Some(body) = node.child(0) else { return };
        let mut later_words = Vec::new();
        let mut streams = Vec::new();
        for child in node.children(&mut node.walk()) {
            if !child.kind().ends_with("_redirect") {
                continue;
            }
            // The grammar drops a `-` before a here-document.
            if child.kind() == "heredoc_redirect"
                && let Some(gap) = self.source.get(body.end_byte()..child.start_byte())
                && gap.trim() == "-"
            {
                later_words.push(Word::plain("-"));
            }
            later_words.extend(self.words_after(child));
            streams.extend(self.redirection_text(child));
        }

        if matches!(body.kind(), "command" | "declaration_command" | "unset_command") {
            self.command(body, &later_words, &streams);
            self.handled = Some(body.id());
        } else if !later_words.is_empty() {
            self.parsed.parts.push(Part { words: later_words, ..Part::default() });
            self.unclear(DISPUTED);
        }
    }

    /// Returns the words of a command that follow a redirection. In the tree, they are part of the
    /// redirection.
    fn words_after(&mut self, redirect: Node<'t>) -> Vec<Word> {
        let mut words = Vec::new();
        let is_heredoc = redirect.kind() == "heredoc_redirect";
        let mut previous_end = redirect.start_byte();
        for child in redirect.children(&mut redirect.walk()) {
            if child.kind() == "heredoc_body" {
                break;
            }
            if is_word(child) && !matches!(child.kind(), "heredoc_start" | "file_descriptor") {
                let gap = self.source.get(previous_end..child.start_byte()).unwrap_or_default();
                let spaces = gap.replace("\\\n", "");
                let is_separate_in_line = !spaces.is_empty() && !spaces.contains('\n');
                if !words.is_empty() && !is_separate_in_line {
                    self.unclear(DISPUTED);
                }
                let (next_word, _) = word(child, self.source);
                words.push(next_word);
            } else if is_heredoc && child.kind().ends_with("_redirect") {
                words.extend(self.words_after(child));
            }
            previous_end = child.end_byte();
        }
        // The first word is the file of the redirection. A here-document has no file.
        if !is_heredoc && !words.is_empty() {
            words.remove(0);
        }
        words
    }

    /// Returns the text of a redirection of a file, such as `> file`.
    fn redirection_text(&self, node: Node<'t>) -> Option<String> {
        // A here-document may contain other redirections, as in `cat <<END > file`.
        if node.kind() == "heredoc_redirect" {
            let inner: Vec<String> = node
                .children(&mut node.walk())
                .filter_map(|child| self.redirection_text(child))
                .collect();
            return if inner.is_empty() { None } else { Some(inner.join(" ")) };
        }
        let redirect = self.redirect_of(node)?;
        let operator = node.children(&mut node.walk()).find(|child| !child.is_named())?;
        Some(format!("{} {}", self.text(operator), redirect.target.raw))
    }

    /// Returns the redirection of a node. Returns `None` without a file, or for a device that
    /// stores nothing.
    fn redirect_of(&self, node: Node<'t>) -> Option<Redirect> {
        if node.kind() != "file_redirect" {
            return None;
        }
        let children: Vec<Node<'t>> = node.children(&mut node.walk()).collect();
        let operator = children.iter().find(|child| !child.is_named())?.kind();
        let target_node =
            children.iter().find(|child| is_word(**child) && child.kind() != "file_descriptor")?;
        let (target, _) = word(*target_node, self.source);
        // `2>&1` and `2>&-` name a stream by its number, or close a stream.
        let is_stream = operator.ends_with('&')
            && target.text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        let writes = operator != "<" && operator != "<&";
        let is_known_harmless = !target.open && is_harmless(&target.text);
        if is_stream || is_known_harmless {
            return None;
        }
        Some(Redirect { target, writes })
    }

    /// Checks whether a number is directly before a redirection. For a shell, the number names a
    /// stream, but the grammar reads it as a word.
    fn is_numbered(&self, node: Node<'t>) -> bool {
        let before = &self.source[..node.start_byte()];
        let before_number = before.trim_end_matches(|c: char| c.is_ascii_digit());
        let has_number = before_number.len() < before.len();
        // Digits at the end of a word belong to the word.
        let starts_word = match before_number.chars().next_back() {
            Some(c) => c.is_whitespace() || ";&|()<>".contains(c),
            None => true,
        };
        has_number && starts_word
    }

    fn redirect(&mut self, node: Node<'t>) {
        self.parsed.redirects.extend(self.redirect_of(node));
    }

    /// Adds the commands in a here-document. The command is unclear if shells may read the document
    /// differently.
    fn add_document(&mut self, node: Node<'t>) {
        match document::check(node, self.source) {
            Ok(scripts) => {
                self.parsed.substitutes |= !scripts.is_empty();
                self.parsed.scripts.extend(scripts);
            }
            Err(why) => self.unclear(why),
        }
    }

    /// Adds the command in backticks. `text` starts after the first backtick.
    fn add_backticks(&mut self, text: &str) {
        let is_quoted = self.above.contains(&"string");
        match document::in_backticks(text, is_quoted) {
            Some((script, rest, why)) => {
                if let Some(why) = why {
                    self.unclear(why);
                }
                self.parsed.scripts.push(script);
                // In backticks, the grammar pairs quotes, but a shell doesn't. Therefore the
                // command may end earlier for a shell than for the grammar.
                if !rest.is_empty() {
                    self.unclear(DISPUTED);
                }
            }
            None => self.unclear("the command has a quote or bracket without an end"),
        }
    }

    /// Returns the variable of an assignment and its new value. The value of a list is unknown.
    fn assigned_in(&mut self, node: Node<'t>) -> Option<(String, Word)> {
        let children: Vec<Node<'t>> = node.children(&mut node.walk()).collect();
        let [name, operator, value_nodes @ ..] = children.as_slice() else { return None };
        let has_no_gaps =
            children.windows(2).all(|pair| pair[0].end_byte() == pair[1].start_byte());
        if !has_no_gaps || !operator.kind().ends_with('=') {
            self.unclear(DISPUTED);
        }
        let value = match value_nodes {
            [] => Word::default(),
            [value_node] if is_word(*value_node) => {
                let (value, _) = word(*value_node, self.source);
                value
            }
            _ => Word::unknown(self.text(node)),
        };
        Some((self.text(*name).to_owned(), value))
    }

    fn assignment(&mut self, node: Node<'t>) {
        let assigned = self.assigned_in(node);
        self.parsed.assigned.extend(assigned);
    }

    /// Checks a test. In `[[ … ]]`, operators such as `<` compare values. In `[ … ]`, an ordinary
    /// command, they are redirections.
    fn test(&mut self, node: Node<'t>) {
        let text = self.text(node);
        if text.starts_with("[[") {
            return self.condition(node);
        }
        let words = self.words_of_test(node);
        self.variables.add_test(&words);
        let mut cursor = node.walk();
        'all: loop {
            let inner = cursor.node();
            let has_own_node = inner.id() != node.id()
                && matches!(
                    inner.kind(),
                    "command_substitution"
                        | "process_substitution"
                        | "string"
                        | "expansion"
                        | "arithmetic_expansion"
                );
            let is_operator = !inner.is_named()
                && ["&&", "||", "|", "|&", "&", ";", "<", ">", "<<", ">>", "(", ")", "\n"]
                    .contains(&inner.kind());
            if is_operator || inner.kind() == "redirected_statement" {
                self.unclear(DISPUTED);
            }
            if !has_own_node && cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    break 'all;
                }
            }
        }
        let children = node.children(&mut node.walk()).collect::<Vec<_>>();
        for pair in children.windows(2) {
            let gap = self.source.get(pair[0].end_byte()..pair[1].start_byte());
            if gap.unwrap_or_default().replace("\\\n", "").contains('\n') {
                self.unclear(DISPUTED);
            }
        }
    }

    /// Adds the name of a function. Detects a function that starts itself twice.
    fn add_function(&mut self, node: Node<'t>) {
        let Some(name_node) = node.child_by_field_name("name") else { return };
        let Some(body_node) = node.child_by_field_name("body") else { return };
        let name = self.text(name_node);
        let body: String = self.text(body_node).chars().filter(|c| !c.is_whitespace()).collect();
        // For example, `f() { f | f & }` starts more and more processes.
        let starts_itself_twice = body.contains(&format!("{name}|{name}"));
        if starts_itself_twice {
            self.parsed.bomb = true;
        }
        self.variables.add_function(name);
    }

    /// Checks the text in `${…}` that has no node.
    fn expansion(&mut self, node: Node<'t>) {
        self.expanded(self.text(node));
        let mut at = node.start_byte() + 2;
        let inner_end = node.end_byte().saturating_sub(1);
        let mut is_inert = true;
        for child in node.children(&mut node.walk()) {
            // The value is expanded like a prompt, which can contain commands.
            if child.kind() == "P" && Rule::Prompt.is_enabled() {
                self.unclear("the command evaluates a string that is only known at run time");
            }
            let has_own_node = matches!(
                child.kind(),
                "command_substitution"
                    | "process_substitution"
                    | "expansion"
                    | "simple_expansion"
                    | "string"
                    | "raw_string"
                    | "concatenation"
                    | "arithmetic_expansion"
                    | "ansi_c_string"
                    | "array"
                    | "subscript"
            );
            if has_own_node {
                is_inert = is_inert && self.is_inert_expansion(at, child.start_byte());
                at = child.end_byte();
            }
            if child.kind() == "concatenation" {
                let parts = child.children(&mut child.walk()).collect::<Vec<_>>();
                let mut leaves = parts.iter().filter(|part| {
                    part.child_count() == 0
                        && !matches!(part.kind(), "raw_string" | "ansi_c_string")
                });
                let are_inert = leaves.all(|part| is_inert_text(self.text(*part), true));
                let touch = parts.windows(2).all(|pair| pair[0].end_byte() == pair[1].start_byte());
                is_inert = is_inert && are_inert && touch;
            }
            if child.kind() == "process_substitution" || child.kind() == "array" {
                self.unclear("the command starts another command inside an expansion");
            }
        }
        if !is_inert || !self.is_inert_expansion(at, inner_end) {
            self.unclear(DISPUTED);
        }
    }

    /// Checks whether the text between two offsets in `${…}` neither starts nor ends a command or a
    /// quote.
    fn is_inert_expansion(&self, start: usize, end: usize) -> bool {
        self.source.get(start..end).is_none_or(|text| is_inert_text(text, true))
    }

    /// Checks that a comment has the same start and end for shells and for the grammar.
    fn check_comment(&mut self, node: Node<'t>) {
        let before = self.source[..node.start_byte()].chars().next_back();
        let follows_word = before.is_some_and(|c| !c.is_whitespace() && !";&|()<>`".contains(c));
        let after = self.source[node.end_byte()..].chars().next();
        let ends_early = after.is_some_and(|c| c != '\n' && c != '\r');
        if follows_word || ends_early {
            self.unclear(DISPUTED);
        }
    }
}

fn is_meta(c: Option<char>) -> bool {
    c.is_some_and(|c| ";&|()<>\n".contains(c))
}
