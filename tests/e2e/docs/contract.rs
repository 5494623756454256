//! The reference of the contract, made of the WIT and its comments.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use wit_parser::{
    Docs, Function, FunctionKind, Handle, Interface, InterfaceId, PackageId, Resolve, Type,
    TypeDef, TypeDefKind, TypeId, TypeOwner, WorldItem,
};

use super::markdown::root;
use super::reference::wrapped_behind;

/// What stands before the interfaces.
const INTRODUCTION: &str = "\
# The contract

This page is generated from the comments in [`wit/tool`](../../wit/tool/worlds.wit) and
[`wit/host`](../../wit/host/types.wit). To change it, change the comments, run
`cargo xtask test -- page_of_the_contract_equals_the_wit`, and copy the file that the test names.
`toolhold plugin wit` writes the WIT files into a folder, for generators of bindings. [Writing a
plugin](../plugins.md) explains how to use them, and [the cookbook](cookbook.md) has samples.

A plugin exports interfaces of `toolhold:tool`, and imports the interfaces of `toolhold:host` that
it uses. Types are written as in WIT: `option<T>` may be missing, `list<T>` is a list,
`result<T, E>` is `T` or the error `E`, `u32` is a whole number without a sign, `s32` one with a
sign, `f64` is a floating-point number. KiB and MiB are 1,024 and 1,048,576 bytes; characters are
Unicode scalar values.

Most records have a field `meta: option<json>` for fields of later versions: a JSON object or
nothing. A reader ignores what it doesn't know. This page leaves these fields out, and shows a
`meta` that has a use.

";

/// How the comment of a field begins that is only for later versions. The page leaves it out.
const RESERVED: &str = "For fields of later versions";

/// The packages of the contract, behind those that they use.
const PACKAGES: [&str; 3] = ["wit/deps/io", "wit/tool", "wit/host"];

/// The page.
pub(super) fn page() -> String {
    let mut resolve = Resolve::default();
    let packages = PACKAGES.map(|folder| {
        resolve
            .push_dir(root().join(folder))
            .unwrap_or_else(|error| panic!("{folder}: {error:#}"))
            .0
    });
    let mut page = INTRODUCTION.to_owned();
    for package in &packages[1..] {
        page += &of_package(&resolve, *package);
    }
    page.truncate(page.trim_end().len());
    page + "\n"
}

fn of_package(resolve: &Resolve, package: PackageId) -> String {
    let package = &resolve.packages[package];
    let mut text = String::new();
    let mut names: Vec<_> = package.interfaces.iter().collect();
    // Types first: the others use them.
    names.sort_by_key(|(name, _)| (*name != "types", name.as_str()));
    for (name, id) in names {
        let interface = &resolve.interfaces[*id];
        let (namespace, of) = (&package.name.namespace, &package.name.name);
        let version = package.name.version.as_ref().map_or_else(String::new, |v| format!("@{v}"));
        let _ = write!(text, "## `{namespace}:{of}/{name}{version}`\n\n");
        paragraphs(&mut text, &interface.docs, "");
        of_interface(&mut text, resolve, *id, interface);
    }
    for (name, id) in &package.worlds {
        let world = &resolve.worlds[*id];
        let _ = write!(text, "## World `{name}`\n\n");
        paragraphs(&mut text, &world.docs, "");
        for (key, item) in &world.exports {
            if let WorldItem::Interface { .. } = item {
                let _ = write!(text, "It exports `{}`.\n\n", resolve.name_world_key(key));
            }
        }
    }
    text
}

fn of_interface(text: &mut String, resolve: &Resolve, id: InterfaceId, interface: &Interface) {
    let types = interface.types.values().map(|id| (*id, &resolve.types[*id]));
    let (used, own): (Vec<_>, Vec<_>) =
        types.partition(|(_, found)| origin(resolve, found).is_some_and(|origin| origin != id));
    let mut uses: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, found) in used {
        let from = origin(resolve, found).and_then(|origin| resolve.id_of(origin));
        let name = found.name.as_deref().unwrap_or_default();
        uses.entry(from.unwrap_or_default()).or_default().push(format!("`{name}`"));
    }
    for (from, names) in uses {
        let line = format!("It uses {} of `{from}`.", names.join(", "));
        let _ = write!(text, "{}\n\n", wrapped_behind("", &line, ""));
    }
    for function in interface.functions.values().filter(|function| resource(function).is_none()) {
        of_function(text, resolve, function, "###");
    }
    for (id, found) in own {
        of_type(text, resolve, found);
        for function in interface.functions.values().filter(|f| resource(f) == Some(id)) {
            of_function(text, resolve, function, "####");
        }
    }
}

/// The interface that a name was brought from with `use`.
fn origin(resolve: &Resolve, found: &TypeDef) -> Option<InterfaceId> {
    let TypeDefKind::Type(Type::Id(target)) = found.kind else { return None };
    match resolve.types[target].owner {
        TypeOwner::Interface(id) => Some(id),
        _ => None,
    }
}

fn resource(function: &Function) -> Option<TypeId> {
    match function.kind {
        FunctionKind::Method(id) | FunctionKind::Static(id) | FunctionKind::Constructor(id) => {
            Some(id)
        }
        _ => None,
    }
}

fn of_function(text: &mut String, resolve: &Resolve, function: &Function, heading: &str) {
    // `[method]child.read` is called `read`, and its first parameter is the resource.
    let name = function.name.rsplit(['.', ']']).next().unwrap_or_default();
    let is_method = matches!(function.kind, FunctionKind::Method(_));
    let parameters: Vec<String> = function
        .params
        .iter()
        .skip(usize::from(is_method))
        .map(|parameter| format!("{}: {}", parameter.name, type_name(resolve, &parameter.ty)))
        .collect();
    let result = function
        .result
        .map_or_else(String::new, |result| format!(" -> {}", type_name(resolve, &result)));
    let fixed = if matches!(function.kind, FunctionKind::Static(_)) { "static " } else { "" };
    let _ = write!(
        text,
        "{heading} `{name}`\n\n```wit\n{name}: {fixed}func({}){result}\n```\n\n",
        parameters.join(", ")
    );
    paragraphs(text, &function.docs, "");
}

fn of_type(text: &mut String, resolve: &Resolve, found: &TypeDef) {
    let name = found.name.as_deref().unwrap_or_default();
    let _ = write!(text, "### {} `{name}`\n\n", found.kind.as_str());
    if let TypeDefKind::Type(target) = &found.kind {
        let _ = write!(text, "`{}`\n\n", type_name(resolve, target));
    }
    paragraphs(text, &found.docs, "");
    match &found.kind {
        TypeDefKind::Record(record) => {
            for field in &record.fields {
                is_documented(name, &field.name, &field.docs);
                if is_reserved(&field.docs) {
                    continue;
                }
                item(text, &field.name, &type_name(resolve, &field.ty), &field.docs);
            }
        }
        TypeDefKind::Variant(variant) => {
            for case in &variant.cases {
                is_documented(name, &case.name, &case.docs);
                let carried =
                    case.ty.map_or_else(String::new, |carried| type_name(resolve, &carried));
                item(text, &case.name, &carried, &case.docs);
            }
        }
        TypeDefKind::Enum(set) => {
            for case in &set.cases {
                is_documented(name, &case.name, &case.docs);
                item(text, &case.name, "", &case.docs);
            }
        }
        TypeDefKind::Resource | TypeDefKind::Type(_) => return,
        other => panic!("`{name}` is of a kind that the page has no form for: {}", other.as_str()),
    }
    text.push('\n');
}

#[track_caller]
fn is_documented(of: &str, name: &str, docs: &Docs) {
    assert!(docs.contents.is_some(), "`{name}` of `{of}` has no comment: add `///` above it");
}

fn is_reserved(docs: &Docs) -> bool {
    docs.contents.as_deref().unwrap_or_default().trim_start().starts_with(RESERVED)
}

/// A field or case.
fn item(text: &mut String, name: &str, carried: &str, docs: &Docs) {
    let carried = if carried.is_empty() { String::new() } else { format!(": `{carried}`") };
    let mut parts = parts(docs);
    let first = match parts.first() {
        Some(Part { bullet: false, .. }) => format!(". {}", parts.remove(0).text),
        _ => String::new(),
    };
    let line = format!("* **`{name}`**{carried}{first}");
    let _ = writeln!(text, "{}", wrapped_behind("", &line, "  "));
    if !parts.is_empty() {
        text.push('\n');
        write_parts(text, &parts, "  ");
    }
}

/// A paragraph or an item of a list.
struct Part {
    bullet: bool,
    text: String,
}

fn parts(docs: &Docs) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut ended = true;
    for line in docs.contents.as_deref().unwrap_or_default().lines().map(str::trim) {
        if line.is_empty() {
            ended = true;
        } else if let Some(text) = line.strip_prefix("* ") {
            parts.push(Part { bullet: true, text: text.to_owned() });
            ended = false;
        } else if let (false, Some(last)) = (ended, parts.last_mut()) {
            last.text.extend([" ", line]);
        } else {
            parts.push(Part { bullet: false, text: line.to_owned() });
            ended = false;
        }
    }
    parts
}

fn paragraphs(text: &mut String, docs: &Docs, indentation: &str) {
    write_parts(text, &parts(docs), indentation);
}

fn write_parts(text: &mut String, parts: &[Part], indentation: &str) {
    for (at, part) in parts.iter().enumerate() {
        let (mark, inner) = if part.bullet { ("* ", "  ") } else { ("", "") };
        let line = format!("{mark}{}", part.text);
        let lines = wrapped_behind(indentation, &line, &format!("{indentation}{inner}"));
        let _ = writeln!(text, "{lines}");
        let next_is_bullet = parts.get(at + 1).is_some_and(|next| next.bullet);
        if !(part.bullet && next_is_bullet) {
            text.push('\n');
        }
    }
}

/// A type as WIT writes it.
fn type_name(resolve: &Resolve, found: &Type) -> String {
    let Type::Id(id) = found else {
        return match found {
            Type::Bool => "bool",
            Type::U8 => "u8",
            Type::U16 => "u16",
            Type::U32 => "u32",
            Type::U64 => "u64",
            Type::S8 => "s8",
            Type::S16 => "s16",
            Type::S32 => "s32",
            Type::S64 => "s64",
            Type::F32 => "f32",
            Type::F64 => "f64",
            Type::Char => "char",
            Type::String => "string",
            other => panic!("{other:?} has no form here"),
        }
        .to_owned();
    };
    let found = &resolve.types[*id];
    if let Some(name) = &found.name {
        return name.clone();
    }
    let inner =
        |inner: &Option<Type>| inner.map_or_else(|| "_".to_owned(), |t| type_name(resolve, &t));
    match &found.kind {
        TypeDefKind::Option(some) => format!("option<{}>", type_name(resolve, some)),
        TypeDefKind::List(of_each) => format!("list<{}>", type_name(resolve, of_each)),
        TypeDefKind::Tuple(tuple) => {
            let types: Vec<String> = tuple.types.iter().map(|t| type_name(resolve, t)).collect();
            format!("tuple<{}>", types.join(", "))
        }
        TypeDefKind::Result(result) => match (&result.ok, &result.err) {
            (Some(ok), None) => format!("result<{}>", type_name(resolve, ok)),
            (None, None) => "result".to_owned(),
            (ok, err) => format!("result<{}, {}>", inner(ok), inner(err)),
        },
        TypeDefKind::Handle(Handle::Own(id)) => type_name(resolve, &Type::Id(*id)),
        TypeDefKind::Handle(Handle::Borrow(id)) => {
            format!("borrow<{}>", type_name(resolve, &Type::Id(*id)))
        }
        other => panic!("{other:?} has no form here"),
    }
}
