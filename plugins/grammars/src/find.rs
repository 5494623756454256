//! Finds names that don't simply stand in the field `name` of a node, by language.

use code_model::Kind;
use tree_sitter::Node;

use crate::rule::{Found, Opens, Place};
use crate::walk::text;

fn push<'t>(found: &mut Vec<Found<'t>>, name: Node<'t>, kind: Kind) {
    found.push(Found { name: Some(name), kind: Some(kind), ..Found::default() });
}

pub(crate) fn nothing<'t>(_: Node<'t>, _: Kind, _: Place, _: &[u8], _: &mut Vec<Found<'t>>) {}

/// Everything in the field `name`.
pub(crate) fn named<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    _: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let mut cursor = node.walk();
    for name in node.children_by_field_name("name", &mut cursor) {
        if name.is_named() {
            push(found, name, kind);
        }
    }
}

/// The first named child.
pub(crate) fn first_child<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    _: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    if let Some(name) = node.named_child(0) {
        push(found, name, kind);
    }
}

/// The names in the declarators.
pub(crate) fn declarators<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    _: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let mut cursor = node.walk();
    for declarator in node.children_by_field_name("declarator", &mut cursor) {
        if let Some(name) = declarator.child_by_field_name("name") {
            push(found, name, kind);
        }
    }
}

/// The type of an `impl`, which its functions stand in.
pub(crate) fn rust_impl<'t>(
    node: Node<'t>,
    _: Kind,
    _: Place,
    source: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let Some(ty) = node.child_by_field_name("type") else { return };
    let path = text(ty, source).split('<').next().unwrap_or_default();
    let name = path.rsplit("::").next().unwrap_or_default();
    let bare = name.rsplit(|c: char| c.is_whitespace() || c == '&').next().unwrap_or_default();
    found.push(Found { container: bare.to_owned(), ..Found::default() });
}

fn constant_or(kind: Kind, name: &str) -> Kind {
    let is_constant = name.len() > 1
        && name.chars().any(|c| c.is_ascii_uppercase())
        && !name.chars().any(char::is_lowercase);
    if is_constant { Kind::Constant } else { kind }
}

pub(crate) fn python_assignment<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    source: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let Some(left) = node.child_by_field_name("left") else { return };
    let mut cursor = left.walk();
    let names = match left.kind() {
        "identifier" => vec![left],
        "pattern_list" | "tuple_pattern" => left.named_children(&mut cursor).collect(),
        _ => Vec::new(),
    };
    for name in names.into_iter().filter(|name| name.kind() == "identifier") {
        push(found, name, constant_or(kind, text(name, source)));
    }
}

pub(crate) fn python_type<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    _: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let name = node.child_by_field_name("left").and_then(|left| left.named_child(0));
    // It may have parameters.
    let name =
        name.and_then(
            |name| {
                if name.kind() == "identifier" { Some(name) } else { name.named_child(0) }
            },
        );
    if let Some(name) = name {
        push(found, name, kind);
    }
}

/// The kind that a value gives to its name.
fn javascript_value(value: Option<Node<'_>>) -> Option<(Kind, Opens)> {
    Some(match value?.kind() {
        "arrow_function" | "function_expression" | "generator_function" | "function" => {
            (Kind::Function, Opens::Body)
        }
        "class" => (Kind::Class, Opens::Type),
        _ => return None,
    })
}

pub(crate) fn javascript_variable<'t>(
    node: Node<'t>,
    kind: Kind,
    place: Place,
    source: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let Some(name) = node.child_by_field_name("name").filter(|name| name.kind() == "identifier")
    else {
        return;
    };
    let value = node.child_by_field_name("value");
    let is_object = value.is_some_and(|value| value.kind() == "object") && place != Place::Body;
    let (kind, opens) = javascript_value(value).unwrap_or_else(|| {
        let opens = if is_object { Opens::Type } else { Opens::Nothing };
        (constant_or(kind, text(name, source)), opens)
    });
    found.push(Found {
        name: Some(name),
        kind: Some(kind),
        opens: Some(opens),
        ..Found::default()
    });
}

/// `a.b = function () {}`, also for the prototype of a class.
pub(crate) fn javascript_assignment<'t>(
    node: Node<'t>,
    _: Kind,
    _: Place,
    source: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let Some((kind, opens)) = javascript_value(node.child_by_field_name("right")) else { return };
    let Some(left) = node.child_by_field_name("left") else { return };
    if left.kind() != "member_expression" {
        return;
    }
    let Some(name) = left.child_by_field_name("property") else { return };
    let object =
        left.child_by_field_name("object").map(|object| text(object, source)).unwrap_or_default();
    let of_type = object.strip_suffix(".prototype");
    let kind = match of_type {
        Some(_) if kind == Kind::Function => Kind::Method,
        _ => kind,
    };
    let container = match of_type.unwrap_or(object) {
        "exports" | "module.exports" | "this" | "window" | "globalThis" => "",
        other if other.bytes().all(|b| b.is_ascii_alphanumeric() || b"._$".contains(&b)) => other,
        _ => "",
    };
    found.push(Found {
        name: Some(name),
        kind: Some(kind),
        container: container.to_owned(),
        opens: Some(opens),
    });
}

/// A function under a key of an object.
pub(crate) fn javascript_pair<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    _: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let Some((_, opens)) = javascript_value(node.child_by_field_name("value")) else { return };
    if let Some(key) = node.child_by_field_name("key")
        && matches!(key.kind(), "property_identifier" | "string")
    {
        found.push(Found {
            name: Some(key),
            kind: Some(kind),
            opens: Some(opens),
            ..Found::default()
        });
    }
}

pub(crate) fn javascript_field<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    _: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    // JavaScript's grammar has another field than that of TypeScript.
    let name = node.child_by_field_name("property").or_else(|| node.child_by_field_name("name"));
    let Some(name) = name else { return };
    let value = javascript_value(node.child_by_field_name("value"));
    let (kind, opens) = match value {
        Some((Kind::Function, opens)) => (Kind::Method, opens),
        Some(other) => other,
        None => (kind, Opens::Nothing),
    };
    found.push(Found {
        name: Some(name),
        kind: Some(kind),
        opens: Some(opens),
        ..Found::default()
    });
}

/// A member of a type with a name. Those of types without one are the affair of one function.
pub(crate) fn member<'t>(
    node: Node<'t>,
    kind: Kind,
    place: Place,
    source: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    if place == Place::Type {
        named(node, kind, place, source, found);
    }
}

/// A method, in the type of its receiver.
pub(crate) fn go_method<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    source: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let Some(name) = node.child_by_field_name("name") else { return };
    let written = node.child_by_field_name("receiver").map(|receiver| text(receiver, source));
    let receiver = written.unwrap_or_default().split('[').next().unwrap_or_default();
    let of = receiver.rsplit(|c: char| !c.is_alphanumeric() && c != '_').find(|s| !s.is_empty());
    found.push(Found {
        name: Some(name),
        kind: Some(kind),
        container: of.unwrap_or_default().to_owned(),
        opens: None,
    });
}

pub(crate) fn go_type<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    _: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let Some(name) = node.child_by_field_name("name") else { return };
    let kind = match node.child_by_field_name("type").map(|of| of.kind()) {
        Some("struct_type") => Kind::Struct,
        Some("interface_type") => Kind::Interface,
        _ => kind,
    };
    push(found, name, kind);
}

pub(crate) fn csharp_variables<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    _: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let mut cursor = node.walk();
    for variables in node.named_children(&mut cursor) {
        if variables.kind() != "variable_declaration" {
            continue;
        }
        let mut cursor = variables.walk();
        for variable in variables.named_children(&mut cursor) {
            if let Some(name) = variable.child_by_field_name("name")
                && variable.kind() == "variable_declarator"
            {
                push(found, name, kind);
            }
        }
    }
}

/// `operator +`: the name is the sign.
pub(crate) fn csharp_operator<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    _: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    if let Some(sign) = node.child_by_field_name("operator") {
        push(found, sign, kind);
    }
}

/// `implicit operator T`: the name is the type.
pub(crate) fn csharp_conversion<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    _: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let Some(mut of) = node.child_by_field_name("type") else { return };
    if of.kind() == "generic_name" {
        of = of.named_child(0).unwrap_or(of);
    }
    push(found, of, kind);
}

/// `class A::B`: the name is `B`.
pub(crate) fn ruby_path<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    source: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let Some(mut name) = node.child_by_field_name("name") else { return };
    let mut container = String::new();
    if name.kind() == "scope_resolution" {
        let scope = name.child_by_field_name("scope").map(|scope| text(scope, source));
        scope.unwrap_or_default().clone_into(&mut container);
        let Some(last) = name.child_by_field_name("name") else { return };
        name = last;
    }
    found.push(Found { name: Some(name), kind: Some(kind), container, opens: None });
}

pub(crate) fn ruby_constant<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    _: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    if let Some(left) = node.child_by_field_name("left").filter(|left| left.kind() == "constant") {
        push(found, left, kind);
    }
}

/// `attr_reader :name` and its like, and `alias_method :new, :old`.
pub(crate) fn ruby_call<'t>(
    node: Node<'t>,
    kind: Kind,
    place: Place,
    source: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let method = node.child_by_field_name("method").map(|method| text(method, source));
    let (kind, most) = match method {
        Some("attr_reader" | "attr_writer" | "attr_accessor") => (kind, usize::MAX),
        Some("alias_method") => (Kind::Method, 1),
        _ => return,
    };
    if place != Place::Type {
        return;
    }
    let Some(arguments) = node.child_by_field_name("arguments") else { return };
    let mut cursor = arguments.walk();
    for name in arguments.named_children(&mut cursor).take(most) {
        if name.kind() == "simple_symbol" {
            push(found, name, kind);
        }
    }
}

/// `define('NAME', …)`.
pub(crate) fn php_define<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    source: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let called = node.child_by_field_name("function").map(|function| text(function, source));
    if called != Some("define") {
        return;
    }
    let first =
        node.child_by_field_name("arguments").and_then(|arguments| arguments.named_child(0));
    let string = first.and_then(|first| first.named_child(0));
    let name = string.and_then(|string| string.named_child(0));
    if let Some(name) = name.filter(|name| name.kind() == "string_content") {
        push(found, name, kind);
    }
}

/// A variable of the script. Inside of functions, most are temporary.
pub(crate) fn bash_variable<'t>(
    node: Node<'t>,
    kind: Kind,
    _: Place,
    source: &[u8],
    found: &mut Vec<Found<'t>>,
) {
    let name = node.child_by_field_name("name").filter(|name| name.kind() == "variable_name");
    if let Some(name) = name {
        push(found, name, constant_or(kind, text(name, source)));
    }
}
