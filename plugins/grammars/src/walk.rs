//! Walks through a syntax tree, and collects what it defines, in what, and which names it uses.

use std::collections::BTreeSet;

use code_model::{Definition, Kind, MAX_DEFINITIONS, MAX_NAME, MAX_REFERENCES, Parsed, Reference};
use tree_sitter::{Language, Node, Tree};

use crate::rule::{Found, Opens, Place, Rule};

/// Deepest node that is looked at. The walk itself needs no stack for it.
const MAX_DEPTH: usize = 2_000;

/// Most references on one line. Only minified sources have more.
const MAX_ON_LINE: usize = 200;

/// The container of a definition, or a body whose variables are local.
struct Scope {
    depth: usize,
    opens: Opens,
    /// Bytes of the path without it.
    outer: usize,
}

struct Walk<'a> {
    source: &'a [u8],
    parsed: Parsed,
    scopes: Vec<Scope>,
    /// The names of the scopes.
    path: String,
    /// Where the names begin that were found, and that the walk hasn't come to: they are no
    /// references.
    defined: BTreeSet<usize>,
    /// Where the references of the current line begin.
    line: usize,
}

/// The actions of the walk at each kind of node of a grammar.
pub struct Tables {
    pub(crate) language: Language,
    /// By the number of the kind: its rule, and whether it is a name.
    actions: Vec<(Option<&'static Rule>, bool)>,
}

impl Tables {
    /// `names`: the nodes that are names.
    pub(crate) fn new(language: Language, rules: &'static [Rule], names: &[&str]) -> Self {
        let count = u16::try_from(language.node_kind_count()).unwrap_or(u16::MAX);
        // One kind may have several numbers.
        let actions = (0..count)
            .map(|id| match language.node_kind_for_id(id) {
                Some(kind) if language.node_kind_is_named(id) => {
                    (rules.iter().find(|rule| rule.node == kind), names.contains(&kind))
                }
                _ => (None, false),
            })
            .collect();
        Self { language, actions }
    }
}

/// Walks through the tree of a source. `references`: whether they are wanted.
pub(crate) fn walk(tables: &Tables, tree: &Tree, source: &[u8], references: bool) -> Parsed {
    let mut walk = Walk {
        source,
        parsed: Parsed { has_errors: tree.root_node().has_error(), ..Parsed::default() },
        scopes: Vec::new(),
        path: String::new(),
        defined: BTreeSet::new(),
        line: 0,
    };
    let mut cursor = tree.walk();
    let mut found = Vec::new();
    let mut depth = 0;
    loop {
        let node = cursor.node();
        let action = tables.actions.get(usize::from(node.kind_id()));
        let (rule, is_name) = action.copied().unwrap_or_default();
        if is_name && references {
            walk.reference(node);
        }
        if let Some(rule) = rule {
            (rule.find)(node, rule.kind, walk.place(), source, &mut found);
            walk.take(node, rule, depth, &mut found);
        }
        let is_skipped = rule.is_some_and(|rule| rule.opens == Opens::Skipped);
        if !is_skipped && depth < MAX_DEPTH && cursor.goto_first_child() {
            depth += 1;
            continue;
        }
        walk.parsed.limited |= depth == MAX_DEPTH && node.child_count() > 0;
        loop {
            walk.leave(depth);
            if cursor.goto_next_sibling() {
                break;
            }
            if !cursor.goto_parent() {
                return walk.parsed;
            }
            depth -= 1;
        }
    }
}

impl Walk<'_> {
    fn place(&self) -> Place {
        match self.scopes.last().map(|scope| scope.opens) {
            Some(Opens::Body) => Place::Body,
            Some(Opens::Type) => Place::Type,
            _ => Place::Module,
        }
    }

    /// Adds what a rule has found at a node, and opens its scope.
    fn take(&mut self, node: Node<'_>, rule: &Rule, depth: usize, found: &mut Vec<Found<'_>>) {
        let place = self.place();
        let outer = self.path.len();
        let mut opens = rule.opens;
        let mut scope = String::new();
        for one in found.drain(..) {
            opens = one.opens.unwrap_or(opens);
            let (sign, name) = one.name.map(|name| bare(name, self.source)).unwrap_or_default();
            let container = path_of(&one.container);
            if scope.is_empty() {
                scope = joined(&container, name);
            }
            let kind = match (one.kind, place) {
                (Some(Kind::Variable | Kind::Constant), Place::Body) => None,
                (Some(Kind::Variable), Place::Type) => Some(Kind::Field),
                (Some(Kind::Function), Place::Type) => Some(Kind::Method),
                (kind, _) => kind,
            };
            let (Some(kind), Some(at)) = (kind, one.name) else { continue };
            let container = joined(&self.path, &container);
            if name.is_empty() {
                continue;
            }
            if name.len() > MAX_NAME
                || container.len() > MAX_NAME
                || self.parsed.definitions.len() == MAX_DEFINITIONS
            {
                self.parsed.limited = true;
                continue;
            }
            self.defined.insert(at.start_byte());
            let (line, column) = position(at, sign);
            self.parsed.definitions.push(Definition {
                name: name.to_owned(),
                kind,
                container,
                start: row(node.start_position().row),
                end: row(last_row(node)),
                line,
                column,
            });
        }
        if matches!(opens, Opens::Body | Opens::Type | Opens::Module) {
            // A path that is too long isn't taken, so it needn't grow either.
            if !scope.is_empty() && outer <= MAX_NAME {
                self.path = joined(&self.path, &scope);
            }
            self.scopes.push(Scope { depth, opens, outer });
        }
    }

    /// Closes the scope of a node at this depth.
    fn leave(&mut self, depth: usize) {
        while self.scopes.last().is_some_and(|scope| scope.depth == depth) {
            if let Some(scope) = self.scopes.pop() {
                self.path.truncate(scope.outer);
            }
        }
    }

    fn reference(&mut self, node: Node<'_>) {
        if self.defined.remove(&node.start_byte()) {
            return;
        }
        let (sign, name) = bare(node, self.source);
        let (line, column) = position(node, sign);
        let references = &mut self.parsed.references;
        if references.last().is_none_or(|last| last.line != line) {
            self.line = references.len();
        }
        if name.is_empty() || references[self.line..].iter().any(|other| other.name == name) {
            return;
        }
        if name.len() > MAX_NAME
            || references.len() - self.line >= MAX_ON_LINE
            || references.len() == MAX_REFERENCES
        {
            self.parsed.limited = true;
            return;
        }
        references.push(Reference { name: name.to_owned(), line, column });
    }
}

/// The text of a node, if it is UTF-8.
pub(crate) fn text<'s>(node: Node<'_>, source: &'s [u8]) -> &'s str {
    let bytes = source.get(node.byte_range()).unwrap_or_default();
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// The name in a node, and the bytes of the sign before it: that of a symbol, a variable or a
/// private member, or quotes.
fn bare<'s>(node: Node<'_>, source: &'s [u8]) -> (usize, &'s str) {
    let name = text(node, source);
    let bare = name.trim_start_matches([':', '$', '#', '@', '"', '\'']);
    (name.len() - bare.len(), bare.trim_end_matches(['"', '\'']))
}

/// A path with the model's sign between its names, in place of the signs of the languages.
fn path_of(container: &str) -> String {
    container.replace("::", ".").replace('\\', ".").trim_matches('.').to_owned()
}

fn joined(path: &str, name: &str) -> String {
    match (path.is_empty(), name.is_empty()) {
        (_, true) => path.to_owned(),
        (true, false) => name.to_owned(),
        (false, false) => format!("{path}.{name}"),
    }
}

fn row(row: usize) -> u32 {
    u32::try_from(row).unwrap_or(u32::MAX).saturating_add(1)
}

/// The row of a node's last byte. Some nodes end behind their line's end.
fn last_row(node: Node<'_>) -> usize {
    let end = node.end_position();
    if end.column == 0 && end.row > node.start_position().row { end.row - 1 } else { end.row }
}

fn position(node: Node<'_>, sign: usize) -> (u32, u32) {
    let point = node.start_position();
    (row(point.row), u32::try_from(point.column + sign).unwrap_or(u32::MAX))
}
