//! Finds the names in declarations of C and C++, which stand inside declarators.

use code_model::Kind;
use tree_sitter::Node;

use crate::rule::{Found, Place};
use crate::walk::text;

/// Most declarators around one name.
const MAX_DECLARATORS: usize = 64;

/// The names of a declaration: functions, and what the rule says.
pub(crate) fn declared<'t>(
    node: Node<'t>,
    kind: Kind,
    place: Place,
    source: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    // Prototypes in functions are as local as variables, and so are types without a name.
    if place == Place::Body && matches!(kind, Kind::Variable | Kind::Field) {
        return;
    }
    let mut cursor = node.walk();
    for declarator in node.children_by_field_name("declarator", &mut cursor) {
        let Some(Name { node: name, container, is_function }) = innermost(declarator, source)
        else {
            continue;
        };
        let kind = match kind {
            Kind::Function => kind,
            _ if is_function && kind != Kind::Type => Kind::Function,
            _ => kind,
        };
        let kind =
            if kind == Kind::Function && !container.is_empty() { Kind::Method } else { kind };
        found.push(Found { name: Some(name), kind: Some(kind), container, opens: None });
    }
}

/// A type, if this is its definition.
pub(crate) fn with_body<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    source: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    if node.child_by_field_name("body").is_none() {
        return;
    }
    let Some(name) = node.child_by_field_name("name") else { return };
    if let Some(Name { node: name, container, .. }) = innermost(name, source) {
        found.push(Found { name: Some(name), kind: Some(kind), container, opens: None });
    }
}

/// `namespace a::b`: two namespaces. The inner one comes first: it is what others stand in.
pub(crate) fn namespace<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    source: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let mut names = Vec::new();
    let mut rest = node.child_by_field_name("name");
    while let Some(name) = rest.take() {
        if name.kind() != "nested_namespace_specifier" {
            names.push(name);
            continue;
        }
        let mut cursor = name.walk();
        for inner in name.named_children(&mut cursor) {
            match inner.kind() {
                "nested_namespace_specifier" => rest = Some(inner),
                _ => names.push(inner),
            }
        }
    }
    while let Some(name) = names.pop() {
        let outer: Vec<&str> = names.iter().map(|outer| text(*outer, source)).collect();
        let container = outer.join(".");
        found.push(Found { name: Some(name), kind: Some(kind), container, opens: None });
    }
}

struct Name<'t> {
    node: Node<'t>,
    container: String,
    is_function: bool,
}

/// The name inside of a declarator.
fn innermost<'t>(declarator: Node<'t>, source: &[u8]) -> Option<Name<'t>> {
    let mut node = declarator;
    let mut containers = Vec::new();
    let mut is_function = false;
    for _ in 0..MAX_DECLARATORS {
        node = match node.kind() {
            "function_declarator" => {
                is_function = true;
                node.child_by_field_name("declarator")?
            }
            // A pointer to a function is none.
            "pointer_declarator" | "reference_declarator" if is_function => {
                is_function = false;
                inner(node)?
            }
            "qualified_identifier" => {
                if let Some(scope) = node.child_by_field_name("scope") {
                    let scope = text(scope, source);
                    containers.push(scope.split('<').next().unwrap_or(scope).trim());
                }
                node.child_by_field_name("name")?
            }
            "template_function" | "template_method" | "template_type" => {
                node.child_by_field_name("name")?
            }
            "identifier" | "field_identifier" | "type_identifier" | "operator_name"
            | "destructor_name" | "operator_cast" | "primitive_type" => {
                let container = containers.join(".");
                return Some(Name { node, container, is_function });
            }
            _ => inner(node)?,
        };
    }
    None
}

/// The declarator inside of another one.
fn inner(node: Node<'_>) -> Option<Node<'_>> {
    let last = u32::try_from(node.named_child_count()).ok()?.checked_sub(1)?;
    node.child_by_field_name("declarator").or_else(|| {
        // Attributes stand behind the declarator, and conventions of calls before it.
        let place = if node.kind() == "attributed_declarator" { 0 } else { last };
        node.named_child(place)
    })
}
