//! The released contract: `wit/released` has a line for each item, with its type, as it was at the
//! last release. Components that exist need these items as they are. Before the first release, the
//! file is empty.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use wit_parser::{Handle, InterfaceId, Resolve, Type, TypeDefKind, WorldItem};

/// The packages of the contract, each in a folder of its own.
const PACKAGES: [&str; 2] = ["tool", "host"];

/// What plugins and parts export. Those that exist have no more than that.
const EXPORTED: [&str; 3] = ["tools", "filter", "part"];

const RULE: &str = "These items are released: \"Changes of a released version\" in \
    docs/decisions/contract.md says how else it is done";

fn wit() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap();
    root.join("wit")
}

/// The items of each interface and world of the contract in a folder, each as WIT with full names.
type Contract = BTreeMap<String, BTreeMap<String, String>>;

fn contract(folder: &Path) -> Contract {
    let mut resolve = Resolve::default();
    resolve.push_dir(wit().join("deps/io")).unwrap();
    let mut all = Contract::new();
    for package in PACKAGES {
        let (id, _) = resolve.push_dir(folder.join(package)).unwrap();
        for (name, id) in &resolve.packages[id].interfaces {
            all.insert(format!("{package}/{name}"), items(&resolve, *id));
        }
        for (name, id) in &resolve.packages[id].worlds {
            let world = &resolve.worlds[*id];
            let line = |way: &str, key, item: &WorldItem| {
                let kind = match item {
                    WorldItem::Interface { .. } => "interface",
                    WorldItem::Function(_) => "func",
                    WorldItem::Type { .. } => "type",
                };
                (format!("{way} {}", resolve.name_world_key(key)), kind.to_owned())
            };
            let imports = world.imports.iter().map(|(key, item)| line("import", key, item));
            let exports = world.exports.iter().map(|(key, item)| line("export", key, item));
            all.insert(format!("world {name}"), imports.chain(exports).collect());
        }
    }
    all
}

fn items(resolve: &Resolve, interface: InterfaceId) -> BTreeMap<String, String> {
    let interface = &resolve.interfaces[interface];
    let types = interface.types.iter();
    let types = types.map(|(name, id)| (name.clone(), kind(resolve, &resolve.types[*id].kind)));
    let functions = interface.functions.iter().map(|(name, function)| {
        let parameters: Vec<String> = function
            .params
            .iter()
            .map(|parameter| format!("{}: {}", parameter.name, shown(resolve, &parameter.ty)))
            .collect();
        let result = function.result.map(|ty| format!(" -> {}", shown(resolve, &ty)));
        let how = if function.kind.is_async() { "async func" } else { "func" };
        (name.clone(), format!("{how}({}){}", parameters.join(", "), result.unwrap_or_default()))
    });
    types.chain(functions).collect()
}

/// A type where it is used: one with a name by its full name.
fn shown(resolve: &Resolve, ty: &Type) -> String {
    let Type::Id(id) = ty else { return format!("{ty:?}").to_lowercase() };
    let definition = &resolve.types[*id];
    match (&definition.name, &definition.kind) {
        // What an interface uses of another one is that one's.
        (_, TypeDefKind::Type(of @ Type::Id(_))) => shown(resolve, of),
        (Some(name), _) => {
            let owner = match definition.owner {
                wit_parser::TypeOwner::Interface(id) => resolve.id_of(id).unwrap_or_default(),
                _ => String::new(),
            };
            format!("{owner}.{name}")
        }
        (None, anonymous) => kind(resolve, anonymous),
    }
}

/// What a type is.
fn kind(resolve: &Resolve, kind: &TypeDefKind) -> String {
    let shown = |ty: &Type| shown(resolve, ty);
    let maybe = |ty: &Option<Type>| ty.as_ref().map_or_else(|| "_".to_owned(), shown);
    let block = |what: &str, lines: Vec<String>| format!("{what} {{ {} }}", lines.join(", "));
    let field = |name: &str, ty: String| format!("{name}: {ty}");
    match kind {
        TypeDefKind::Record(record) => {
            let fields = record.fields.iter();
            block("record", fields.map(|each| field(&each.name, shown(&each.ty))).collect())
        }
        TypeDefKind::Variant(variant) => {
            let cases = variant.cases.iter();
            block("variant", cases.map(|each| field(&each.name, maybe(&each.ty))).collect())
        }
        TypeDefKind::Enum(cases) => {
            block("enum", cases.cases.iter().map(|each| each.name.clone()).collect())
        }
        TypeDefKind::Flags(flags) => {
            block("flags", flags.flags.iter().map(|each| each.name.clone()).collect())
        }
        TypeDefKind::Tuple(tuple) => block("tuple", tuple.types.iter().map(shown).collect()),
        TypeDefKind::Option(of) => format!("option<{}>", shown(of)),
        TypeDefKind::List(of) => format!("list<{}>", shown(of)),
        TypeDefKind::Result(result) => {
            format!("result<{}, {}>", maybe(&result.ok), maybe(&result.err))
        }
        TypeDefKind::Type(of) => shown(of),
        TypeDefKind::Resource => "resource".to_owned(),
        TypeDefKind::Handle(Handle::Own(id)) => shown(&Type::Id(*id)),
        TypeDefKind::Handle(Handle::Borrow(id)) => format!("borrow<{}>", shown(&Type::Id(*id))),
        other => panic!("{} isn't compared yet: add it here", other.as_str()),
    }
}

/// The changes that break components that were built for the released contract, a sentence each.
fn broken(released: &Contract, current: &Contract) -> Vec<String> {
    let mut found = Vec::new();
    for (interface, items) in released {
        let Some(now) = current.get(interface) else {
            found.push(format!("`{interface}` is gone"));
            continue;
        };
        for (name, was) in items {
            match now.get(name) {
                None => found.push(format!("`{name}` of `{interface}` is gone")),
                Some(is) if is != was => {
                    found.push(format!("`{name}` of `{interface}` was `{was}` and is `{is}`"));
                }
                Some(_) => {}
            }
        }
        let name = interface.split_once('/').map_or("world", |(_, name)| name);
        if interface.starts_with("world ") || EXPORTED.contains(&name) {
            let new = now.keys().filter(|name| !items.contains_key(*name));
            found.extend(new.map(|name| {
                format!("`{name}` of `{interface}` is new, and plugins that exist don't have it")
            }));
        }
    }
    found
}

/// The lines of `wit/released` for a contract: interface, item and type, separated by tabs.
fn lines(contract: &Contract) -> String {
    let mut text = String::new();
    for (interface, items) in contract {
        for (name, item) in items {
            writeln!(text, "{interface}\t{name}\t{item}").unwrap();
        }
    }
    text
}

/// The contract of such lines.
fn parse(text: &str) -> Contract {
    let mut all = Contract::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, '\t').map(str::to_owned);
        let (Some(interface), Some(name), Some(item)) = (parts.next(), parts.next(), parts.next())
        else {
            panic!("`{line}` isn't a line of wit/released: interface, item and type, with tabs");
        };
        all.entry(interface).or_default().insert(name, item);
    }
    all
}

/// Writes the file for the next release too. CONTRIBUTING says when it is copied.
#[test]
fn released_contract_is_unchanged() {
    let current = contract(&wit());
    fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("released"), lines(&current)).unwrap();
    let released = fs::read_to_string(wit().join("released")).unwrap();
    let broken = broken(&parse(&released), &current);
    assert!(broken.is_empty(), "{}. {RULE}", broken.join("; "));
}

/// What `broken` says of the contract after changes: a file, a text in it, and another text.
fn after(changes: &[(&str, &str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    for package in PACKAGES {
        fs::create_dir(folder.path().join(package)).unwrap();
        for entry in fs::read_dir(wit().join(package)).unwrap() {
            let from = entry.unwrap().path();
            let to = folder.path().join(package).join(from.file_name().unwrap());
            fs::copy(from, to).unwrap();
        }
    }
    for (file, old, new) in changes {
        let path = folder.path().join(file);
        let text = fs::read_to_string(&path).unwrap_or_default();
        assert!(text.contains(old), "{file} has no {old}");
        fs::write(&path, text.replacen(old, new, 1)).unwrap();
    }
    let released = parse(&lines(&contract(&wit())));
    broken(&released, &contract(folder.path()))
}

#[test]
fn what_breaks_components_is_named() {
    let key = "record entry {\n    /// The key.\n    key: string,";
    for (changes, said) in [
        (
            ("host/store.wit", key, "record entry {\n    key: string,\n    more: u8,"),
            "`entry` of `host/store` was `record { key: string, value: list<u8> }` and is \
             `record { key: string, more: u8, value: list<u8> }`",
        ),
        (
            ("host/store.wit", "get: func(key: string)", "fetch: func(key: string)"),
            "`get` of `host/store` is gone",
        ),
        (
            ("host/index.wit", "vector: option<list<s8>>,\n    /// Data", "/// Data"),
            "`document` of `host/index` was",
        ),
        (
            (
                "host/schedule.wit",
                "pause: func(name: string, paused: bool)",
                "pause: func(name: string)",
            ),
            "`pause` of `host/schedule` was `func(name: string, paused: bool) -> result<bool, \
             toolhold:host/types@0.1.0.error>` and is",
        ),
        (
            ("host/service.wit", "is-new: func() -> bool;", "is-new: func() -> u8;"),
            "`[method]connection.is-new` of `host/service` was",
        ),
        (
            ("tool/types.wit", "enum category {", "enum category {\n    new,"),
            "`category` of `tool/types` was",
        ),
        (
            ("tool/tools.wit", "interface tools {", "interface tools {\n  more: func();"),
            "`more` of `tool/tools` is new, and plugins that exist don't have it",
        ),
        (
            ("tool/part.wit", "interface part {", "interface part {\n  type more = u8;"),
            "`more` of `tool/part` is new",
        ),
        (
            ("tool/worlds.wit", "export filter;", "export filter;\n  export tools;"),
            "`export toolhold:tool/tools@0.1.0` of `world filter-plugin` is new",
        ),
    ] {
        let found = after(&[changes]);
        assert!(found.len() == 1 && found[0].starts_with(said), "{changes:?}: {found:#?}");
    }
    let renamed = after(&[("host/log.wit", "interface log {", "interface logs {")]);
    assert_eq!(renamed, ["`host/log` is gone"]);
}

#[test]
fn additions_that_fit_are_allowed() {
    let new = "package toolhold:host@0.1.0;\n\ninterface news {\n  use types.{error};\n  \
               get: func() -> result<string, error>;\n}\n";
    assert_eq!(after(&[("host/news.wit", "", new)]), [""; 0]);
    let function = "interface store {\n  record total { keys: u64 }\n  count: func() -> total;";
    assert_eq!(after(&[("host/store.wit", "interface store {", function)]), [""; 0]);
    let method = "is-new: func() -> bool;\n    pid: func() -> u32;";
    assert_eq!(after(&[("host/service.wit", "is-new: func() -> bool;", method)]), [""; 0]);
    let words = ("host/store.wit", "/// The value of a key.", "/// What a key has.");
    assert_eq!(after(&[words]), [""; 0]);
    let world = "\nworld both {\n  export tools;\n  export filter;\n}\n\nworld filter-plugin {";
    assert_eq!(after(&[("tool/worlds.wit", "\nworld filter-plugin {", world)]), [""; 0]);
}
