//! Parses the text of a shell command with a grammar of bash.
//!
//! The grammar supports more forms than a handwritten parser would, but it differs from the shell:
//! it accepts errors, and it reads some texts differently. For this reason, its result is checked
//! against the text. Each word must also be a word for a shell, the gaps between words must not
//! contain text that separates commands, and a here-document must end where a shell ends it. If a
//! check fails or the grammar reports an error, the text is unclear, but the commands that were
//! found still apply.

mod evaluated;
mod nodes;
mod output;

use std::cell::Cell;
use std::ops::ControlFlow;

use tree_sitter::{Node, ParseOptions, ParseState, Parser};

use super::calculated::{Rule, Variables, applies};
use super::document;
use super::word::{DISPUTED, Word, word};
pub(super) use nodes::is_harmless;
use nodes::{KNOWN, is_inert_text, is_word};

/// The reason if the grammar can't read a text.
const UNREADABLE: &str = "it is unknown how a shell reads it";

/// The reason if a text exceeds the limits of the analysis.
pub(super) const TOO_MUCH: &str = "it exceeds the limits of the analysis";

/// Limit for the calls of the parser's progress callback. The parser calls it every hundred steps.
/// A script of 40 KiB takes about a thousand calls. A hostile text needs more time per call.
pub(super) const MAX_STEPS: usize = 1024;

/// Most bytes that the parser reads at once, and the number of reads that cost as much as one
/// callback. After some operators, the parser reads the whole rest of the text to find one word.
const CHUNK: usize = 1024;
const READS: usize = 16;

/// Operators at which the parser goes back or reads the whole rest of the text. Each has its
/// greatest number in one text.
const COSTLY: [(&str, usize); 2] = [("|", 1024), ("<<", 64)];

/// The parts of a text.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) parts: Vec<Part>,
    pub(super) redirects: Vec<Redirect>,
    /// Variables that are set without a command.
    pub(super) assigned: Vec<(String, Word)>,
    /// The texts in backticks.
    pub(super) scripts: Vec<String>,
    /// The reason why the text may start further commands.
    pub(super) unclear: Option<&'static str>,
    /// Whether another command uses the output of a command in the text, as text or as a file.
    pub(super) substitutes: bool,
    /// Whether a function in the text starts itself twice.
    pub(super) bomb: bool,
    /// The command that writes the output of the text, and whether no other command writes to this
    /// output.
    pub(super) last: Option<(Part, bool)>,
}

/// A simple command: a program and its arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// The text as written, without harmless redirections.
    pub(super) text: String,
    pub(super) words: Vec<Word>,
    /// The variables that are set for this command only.
    pub(super) assigned: Vec<(String, Word)>,
}

/// A file that a stream is redirected to or from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Redirect {
    pub(super) target: Word,
    pub(super) writes: bool,
}

impl Redirect {
    /// Returns the operator of the direction.
    pub(super) fn sign(&self) -> &'static str {
        if self.writes { ">" } else { "<" }
    }
}

/// Parses a text. `steps` is the number of callbacks that the parser may still make, and is reduced
/// by the used callbacks. `variables` are the known variables. The assignments in the text are
/// added to them.
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
    // Without a read, the parser assumes that the text is shorter than it is.
    let Some(tree) = tree else { return unreadable(TOO_MUCH) };
    if left.get() == 0 {
        return unreadable(TOO_MUCH);
    }
    let mut walk = Walk::new(source);
    walk.variables = std::mem::take(variables);
    let root = tree.root_node();
    walk.gap(&source[..root.start_byte()], None);
    walk.gap(&source[root.end_byte()..], None);
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

/// Subtracts `cost` from `left`. Returns whether `left` was at least `cost`.
fn spend(left: &Cell<usize>, cost: usize) -> bool {
    let is_enough = left.get() >= cost;
    left.set(left.get().saturating_sub(cost));
    is_enough
}

struct Walk<'t> {
    source: &'t str,
    parsed: Parsed,
    /// The kinds of the parent nodes. The outermost comes first.
    above: Vec<&'t str>,
    /// The command that was already added together with its redirections.
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

    /// Visits every node. Parents come before their children. The function isn't recursive because
    /// an untrusted text determines the depth of the tree.
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

    /// Records a node. Returns whether to visit its children.
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
            self.unclear("it contains unknown syntax");
        }
        self.gaps(node);
        if kind.ends_with("_redirect") && self.is_numbered(node) {
            self.unclear(DISPUTED);
        }
        let above = self.above.last().copied().unwrap_or_default();
        match kind {
            "command" | "declaration_command" | "unset_command" => self.command(node, &[], &[]),
            "redirected_statement" => self.redirected(node),
            "file_redirect" => self.redirect(node),
            "heredoc_redirect" => self.document(node),
            "command_substitution" => {
                self.parsed.substitutes = true;
                let text = self.text(node);
                if let Some(inner) = text.strip_prefix('`').or_else(|| text.strip_prefix("$`")) {
                    self.backticks(inner);
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
            // A shell reads this as arithmetic if it can.
            "subshell" if self.text(node).starts_with("((") && applies(Rule::Arithmetic) => {
                self.unclear(DISPUTED);
            }
            "test_command" => self.test(node),
            "function_definition" => self.function(node),
            "for_statement" => self.for_each(node),
            "subscript" => self.index(self.text(node)),
            "array" => self.list(node),
            "expansion" => self.expansion(node),
            "comment" => self.comment(node),
            "regex" | "extglob_pattern"
                if !is_inert_text(self.text(node), above == "expansion") =>
            {
                self.unclear(DISPUTED);
            }
            "word" | "concatenation" if above == "expansion" => {}
            // The children of these nodes were read together with their parents.
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

    /// Checks the text that the grammar skips between the children of a node.
    fn gaps(&mut self, node: Node<'t>) {
        // The gaps in these nodes are text.
        if matches!(
            node.kind(),
            "string" | "heredoc_body" | "expansion" | "concatenation" | "regex"
        ) {
            return;
        }
        let mut before: Option<Node<'t>> = None;
        // These nodes end with their line, so a child on the next line doesn't belong to them.
        let ends_with_line = matches!(
            node.kind(),
            "file_redirect"
                | "herestring_redirect"
                | "variable_assignments"
                | "declaration_command"
        );
        for child in node.children(&mut node.walk()) {
            if child.kind() == "heredoc_body" {
                break;
            }
            if let Some(before) = before
                && let Some(gap) = self.source.get(before.end_byte()..child.start_byte())
                && !gap.is_empty()
            {
                self.gap(gap, Some((before, child)));
                if ends_with_line && gap.replace("\\\n", "").contains('\n') {
                    self.unclear(DISPUTED);
                }
            }
            before = Some(child);
        }
    }

    fn gap(&mut self, gap: &str, between: Option<(Node<'t>, Node<'t>)>) {
        let spaces = gap.replace("\\\n", "");
        // The grammar drops a `-` here. `redirected` adds it to the command again.
        if spaces.trim() == "-"
            && let Some((_, after)) = between
            && after.kind() == "heredoc_redirect"
        {
            return;
        }
        let line_ends = spaces.replace("\r\n", "\n");
        if line_ends.trim_end_matches('\r').contains(|c| !matches!(c, ' ' | '\t' | '\n')) {
            return self.unclear("it contains a character that some shells treat as a space");
        }
        if gap.ends_with('\r') && between.is_some() {
            return self.unclear("it contains a carriage return within a line");
        }
        let Some((before, after)) = between else { return };
        if spaces.is_empty() && !gap.is_empty() {
            // The line continues, so the two nodes have no gap. `command` joins them if both are
            // words.
            let left = is_meta(self.text(before).chars().next_back());
            let right = is_meta(self.text(after).chars().next());
            let are_words =
                [before, after].iter().all(|node| is_word(*node) || node.kind() == "command_name");
            if left == right && !are_words {
                self.unclear(DISPUTED);
            }
        }
    }

    /// Adds a simple command. `more` are its words after the redirections. `streams` are its
    /// redirections as written.
    fn command(&mut self, node: Node<'t>, more: &[Word], streams: &[String]) {
        if self.handled == Some(node.id()) {
            return;
        }
        let mut part = Part::default();
        let mut end: Option<(usize, bool)> = None;
        for child in node.children(&mut node.walk()) {
            let gap = end.map(|(end, was_word)| {
                (self.source.get(end..child.start_byte()).unwrap_or_default(), was_word)
            });
            let touches = gap.is_some_and(|(gap, _)| gap.replace("\\\n", "").is_empty());
            if gap.is_some_and(|(gap, _)| gap.replace("\\\n", "").contains('\n')) {
                self.unclear(DISPUTED);
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
                        Some(last) if touches && gap.is_some_and(|(_, was_word)| was_word) => {
                            last.join(&next);
                        }
                        _ if touches => {
                            self.unclear(DISPUTED);
                            part.words.push(next);
                        }
                        _ => part.words.push(next),
                    }
                }
            }
            end = Some((child.end_byte(), !is_redirect && child.kind() != "variable_assignment"));
        }
        part.words.extend_from_slice(more);
        let mut cursor = node.walk();
        let children = node.children(&mut cursor);
        let assigned = children
            .take_while(|child| child.kind() == "variable_assignment")
            .map(|child| self.text(child));
        let words = part.words.iter().map(|word| word.raw.as_str());
        let before = if node.kind() == "command" { assigned.collect() } else { Vec::new() };
        let own: Vec<String> =
            node.children(&mut node.walk()).filter_map(|child| self.stream(child)).collect();
        let streams = own.iter().chain(streams).map(String::as_str);
        part.text = before.into_iter().chain(words).chain(streams).collect::<Vec<_>>().join(" ");
        self.parsed.parts.push(part);
    }

    /// Returns the word of a command's child node.
    fn word_of_command(&mut self, child: Node<'t>) -> Word {
        let mut node = child;
        if child.kind() == "command_name" {
            node = child.child(0).unwrap_or(child);
        }
        let raw = self.text(node);
        if node.kind() == "variable_assignment" {
            let (name, value) = self.assigned_in(node).pop().unwrap_or_default();
            let text = format!("{name}={}", value.text);
            return Word { text, raw: raw.to_owned(), ..value };
        }
        if is_word(node) {
            return word(node, self.source).0;
        }
        let is_sign = !node.is_named() && node.child_count() == 0;
        if !is_sign {
            return Word::unknown(raw);
        }
        match node.kind() {
            "$" | "=~" | "==" => word(node, self.source).0,
            _ => Word::plain(raw),
        }
    }

    /// Adds a command with redirections. The grammar reads words after the file of a redirection as
    /// more files.
    fn redirected(&mut self, node: Node<'t>) {
        let mut more = Vec::new();
        let mut streams = Vec::new();
        let body_end = node.child(0).map_or(0, |body| body.end_byte());
        for child in node.children(&mut node.walk()) {
            if !child.kind().ends_with("_redirect") {
                continue;
            }
            if child.kind() == "heredoc_redirect"
                && let Some(gap) = self.source.get(body_end..child.start_byte())
                && gap.trim() == "-"
            {
                more.push(Word::plain("-"));
            }
            more.extend(self.words_after(child));
            streams.extend(self.stream(child));
        }
        match node.child(0) {
            Some(body)
                if matches!(body.kind(), "command" | "declaration_command" | "unset_command") =>
            {
                self.command(body, &more, &streams);
                self.handled = Some(body.id());
            }
            _ if more.is_empty() => {}
            _ => {
                self.parsed.parts.push(Part { words: more, ..Part::default() });
                self.unclear(DISPUTED);
            }
        }
    }

    /// Returns the words of a command after a redirection. The grammar makes these words a part of
    /// the redirection.
    fn words_after(&mut self, redirect: Node<'t>) -> Vec<Word> {
        let mut words = Vec::new();
        let skip = usize::from(redirect.kind() != "heredoc_redirect");
        let mut end = redirect.start_byte();
        for child in redirect.children(&mut redirect.walk()) {
            if child.kind() == "heredoc_body" {
                break;
            }
            if is_word(child) && !matches!(child.kind(), "heredoc_start" | "file_descriptor") {
                let gap = self.source.get(end..child.start_byte()).unwrap_or_default();
                let spaces = gap.replace("\\\n", "");
                if !words.is_empty() && (spaces.is_empty() || spaces.contains('\n')) {
                    self.unclear(DISPUTED);
                }
                words.push(word(child, self.source).0);
            } else if redirect.kind() == "heredoc_redirect" && child.kind().ends_with("_redirect") {
                words.extend(self.words_after(child));
            }
            end = child.end_byte();
        }
        words.drain(..skip.min(words.len()));
        words
    }

    /// Returns a redirection as written. Returns `None` if it is harmless.
    fn stream(&self, node: Node<'t>) -> Option<String> {
        if node.kind() == "heredoc_redirect" {
            let inner: Vec<String> =
                node.children(&mut node.walk()).filter_map(|child| self.stream(child)).collect();
            return (!inner.is_empty()).then(|| inner.join(" "));
        }
        let redirect = self.redirect_of(node)?;
        let operator = node.children(&mut node.walk()).find(|child| !child.is_named())?;
        Some(format!("{} {}", self.text(operator), redirect.target.raw))
    }

    fn redirect_of(&self, node: Node<'t>) -> Option<Redirect> {
        if node.kind() != "file_redirect" {
            return None;
        }
        let children: Vec<Node<'t>> = node.children(&mut node.walk()).collect();
        let operator = children.iter().find(|child| !child.is_named())?.kind();
        let target =
            children.iter().find(|child| is_word(**child) && child.kind() != "file_descriptor")?;
        let (target, _) = word(*target, self.source);
        let is_stream = operator.ends_with('&')
            && target.text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        let writes = operator != "<" && operator != "<&";
        let is_known_harmless = !target.open && is_harmless(&target.text);
        if is_stream || is_known_harmless {
            return None;
        }
        Some(Redirect { target, writes })
    }

    /// Checks whether a number is directly before a redirection. A shell reads this number as the
    /// number of a stream, but the grammar reads it as a word.
    fn is_numbered(&self, node: Node<'t>) -> bool {
        let before = &self.source[..node.start_byte()];
        let word = before.trim_end_matches(|c: char| c.is_ascii_digit());
        word.len() < before.len()
            && word.chars().next_back().is_none_or(|c| c.is_whitespace() || ";&|()<>".contains(c))
    }

    fn redirect(&mut self, node: Node<'t>) {
        self.parsed.redirects.extend(self.redirect_of(node));
    }

    fn document(&mut self, node: Node<'t>) {
        match document::check(node, self.source) {
            Ok(scripts) => {
                self.parsed.substitutes |= !scripts.is_empty();
                self.parsed.scripts.extend(scripts);
            }
            Err(why) => self.unclear(why),
        }
    }

    /// Adds the command in backticks. `text` begins after the first backtick.
    fn backticks(&mut self, text: &str) {
        match document::in_backticks(text, self.above.contains(&"string")) {
            Some((script, rest, why)) => {
                if let Some(why) = why {
                    self.unclear(why);
                }
                self.parsed.scripts.push(script);
                // Inside of backticks, the grammar pairs quotes, a shell doesn't.
                if !rest.is_empty() {
                    self.unclear(DISPUTED);
                }
            }
            None => self.unclear("it has a quote or bracket without an end"),
        }
    }

    /// Returns the variable and its new value. The value of a list isn't known.
    fn assigned_in(&mut self, node: Node<'t>) -> Vec<(String, Word)> {
        let children: Vec<Node<'t>> = node.children(&mut node.walk()).collect();
        let [name, operator, value @ ..] = children.as_slice() else { return Vec::new() };
        let touch = children.windows(2).all(|pair| pair[0].end_byte() == pair[1].start_byte());
        if !touch || !operator.kind().ends_with('=') {
            self.unclear(DISPUTED);
        }
        let value = match value {
            [] => Word::default(),
            [value] if is_word(*value) => word(*value, self.source).0,
            _ => Word::unknown(self.text(node)),
        };
        vec![(self.text(*name).to_owned(), value)]
    }

    fn assignment(&mut self, node: Node<'t>) {
        let assigned = self.assigned_in(node);
        self.parsed.assigned.extend(assigned);
    }

    /// Checks a test. `[ … ]` is an ordinary command, so operators such as `<` belong to the shell.
    /// In `[[ … ]]`, these operators compare values.
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

    fn function(&mut self, node: Node<'t>) {
        let (Some(name), Some(body)) =
            (node.child_by_field_name("name"), node.child_by_field_name("body"))
        else {
            return;
        };
        let name = self.text(name);
        let body: String = self.text(body).chars().filter(|c| !c.is_whitespace()).collect();
        let starts_itself_twice = body.contains(&format!("{name}|{name}"));
        if starts_itself_twice {
            self.parsed.bomb = true;
        }
        self.variables.add_function(name);
    }

    /// Checks the text in `${…}` that has no separate node.
    fn expansion(&mut self, node: Node<'t>) {
        self.expanded(self.text(node));
        let mut at = node.start_byte() + 2;
        let inner_end = node.end_byte().saturating_sub(1);
        let mut is_inert = true;
        for child in node.children(&mut node.walk()) {
            // The value is expanded like a prompt, which can contain commands.
            if child.kind() == "P" && applies(Rule::Prompt) {
                self.unclear("it evaluates a string that is only known at run time");
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
                self.unclear("it starts a command inside an expansion");
            }
        }
        if !is_inert || !self.is_inert_expansion(at, inner_end) {
            self.unclear(DISPUTED);
        }
    }

    /// Checks whether the text between two offsets in `${…}` is inert.
    fn is_inert_expansion(&self, start: usize, end: usize) -> bool {
        self.source.get(start..end).is_none_or(|text| is_inert_text(text, true))
    }

    fn comment(&mut self, node: Node<'t>) {
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
