//! Any bytes as a component: what admission reads before any code runs is bounded, neutral, and the
//! same however it is read.

use toolhold_compiler::typed::{Docs, Outline};
use toolhold_component::{Interfaces, Manifest, SchemaCost, check_shape, is_name, refusal};
use toolhold_contract::text::{neutral, neutral_line};
use toolhold_fuzz::{NAMES, Result, Target, Unstructured, json, json_text, schema};
use toolhold_policy::OwnTable;

const MANIFEST: &str = "toolhold:manifest";

const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";
const MODULE: &[u8] = b"\0asm\x01\0\0\0";

const TOKENS: [&str; 24] = [
    "\0asm\x0d\0\x01\0",
    "\0asm\x01\0\0\0",
    "toolhold:manifest",
    "package-docs",
    "component-type",
    "toolhold:tool/tools@0.1.0",
    "toolhold:host/call@0.1.0",
    "wasi:cli/run@0.2.3",
    "wasi:cli/run@0.3.0",
    "wasi_snapshot_preview1",
    "_start",
    "\"manifest\":1,",
    "\"name\":\"a\",",
    "\"version\":\"1\",",
    "\"description\":\"d\",",
    "\"capabilities\":[{\"name\":\"http\",\"reason\":\"r\"}],",
    "\"limits\":{\"memory_mib\":1},",
    "\"config_schema\":{\"type\":\"object\"},",
    "\"parts\":[],",
    "{\"$ref\":\"#\"}",
    "\u{1}{\"docs\":\"d\"}",
    "\x03\x40",
    "\0",
    "\u{7f}",
];

const INTERFACES: [&str; 14] = [
    "toolhold:tool/tools@0.1.0",
    "toolhold:tool/filter@0.1.0",
    "toolhold:tool/tools@9.0.0",
    "toolhold:host/call@0.1.0",
    "toolhold:host/process@0.1.0",
    "toolhold:host/telepathy@0.1.0",
    "wasi:cli/run@0.2.3",
    "wasi:cli/environment@0.2.0",
    "wasi:http/types@0.2.0",
    "wasi:http/types@0.3.0",
    "acme:units/convert@1.2.0-\u{202e}x",
    "acme:units/\u{1b}[2J",
    "run",
    "",
];

#[test]
fn soak_any_bytes_are_read_as_a_component() {
    let target = Target {
        name: "components",
        test: "soak_any_bytes_are_read_as_a_component",
        tokens: &TOKENS,
        generate: |random| component(random, 3),
        read: |entry| wat::parse_bytes(&entry).map_or_else(|_| entry.clone(), Into::into),
        cases: 2_000,
    };
    target.run(check);
}

fn check(wasm: &[u8]) {
    // Only its end and its bounds matter.
    let _ = check_shape(wasm);
    Docs::read(wasm).package();
    let interfaces = Interfaces::read(wasm);
    if let Ok(found) = &interfaces {
        assert!(found.exports.len() <= 256, "{} exports", found.exports.len());
        for name in found.imports.iter().chain(&found.exports) {
            assert!(name.len() <= 1024 && is_line(name), "{name:?}");
        }
    }
    if let Ok(Outline { version: Some(version), .. }) = Outline::read(wasm) {
        assert!(version.len() <= 256 && is_line(&version), "{version:?}");
    }
    let manifest = match Manifest::read_if_any(wasm) {
        Ok(manifest) => manifest,
        Err(error) => {
            let reason = error.to_string();
            assert!(reason.len() < 4096, "{reason}");
            return;
        }
    };
    // A signature is about the bytes of this section.
    let section = Manifest::section(wasm).expect("the manifest was read");
    assert_eq!(section.is_some(), manifest.is_some());
    let Some(manifest) = manifest else { return };
    check_manifest(&manifest);
    for import in interfaces.into_iter().flat_map(|found| found.imports) {
        check_import(&import, &manifest);
    }
}

fn check_manifest(manifest: &Manifest) {
    let Manifest {
        name,
        version,
        description,
        authors,
        capabilities,
        parts,
        config_schema,
        limits,
        ..
    } = manifest;
    assert!(is_name(name) && parts.iter().all(|part| is_name(&part.name)));
    assert!(parts.len() <= 64 && capabilities.len() <= 32 && authors.len() <= 32);
    assert!(is_line(version) && authors.iter().all(|author| is_line(author)));
    assert!(is_prose(description) && capabilities.iter().all(|asked| is_prose(&asked.reason)));
    let weight = config_schema.as_ref().map_or(0, |schema| SchemaCost::from_schema(schema).weight);
    assert!(weight <= 100_000, "{weight}");
    // Written again, it means the same.
    let json = serde_json::to_vec(manifest).expect("it is JSON");
    if json.len() <= 64 * 1024 {
        let again = Manifest::read(&[COMPONENT, &custom(MANIFEST, &json)].concat());
        let again = again.expect("it is as valid as before");
        assert_eq!((&again.name, &again.parts), (name, parts));
        assert_eq!((&again.config_schema, &again.limits), (config_schema, limits));
    }
}

/// Without a grant, only interfaces that are always linked are imported.
fn check_import(import: &str, manifest: &Manifest) {
    let table = OwnTable::default();
    let (name, version) = import.split_once('@').unwrap_or((import, ""));
    let is_known = match name.split_once('/') {
        Some(("toolhold:host" | "toolhold:tool", _)) => version == "0.1.0",
        Some(("wasi:http", _)) => false,
        Some((package, _)) => package.starts_with("wasi:") && !version.starts_with("0.3."),
        None => name == "wasi_snapshot_preview1",
    };
    let refusal = refusal(import, manifest, &table, &|_| false);
    assert!(refusal.is_some() || is_known, "{import} is admitted");
}

/// Whether a text can be shown on one line.
fn is_line(text: &str) -> bool {
    neutral_line(text) == text
}

fn is_prose(text: &str) -> bool {
    neutral(text) == text
}

fn component(random: &mut Unstructured<'_>, depth: usize) -> Result<Vec<u8>> {
    let mut bytes = COMPONENT.to_vec();
    for _ in 0..random.int_in_range(1..=5)? {
        bytes.extend(match random.int_in_range(0..=11)? {
            0..=3 => custom(MANIFEST, manifest(random)?.as_bytes()),
            4 => custom("package-docs", &docs(random)?),
            5 => custom("component-type:x", &component(random, 0)?),
            6 if depth > 0 => section(4, &component(random, depth - 1)?),
            7 => section(1, &module(random)?),
            8 => section(10, &named(random, &[5, 0])?),
            9 => section(11, &named(random, &[5, 0, 0])?),
            10 => {
                let count: u16 = random.arbitrary()?;
                let instances = [0, 0, 0].repeat(usize::from(count % 2000));
                section(5, &[leb(count.into()), instances].concat())
            }
            _ => section(random.arbitrary()?, &random.arbitrary::<[u8; 7]>()?),
        });
    }
    Ok(bytes)
}

fn module(random: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let loops = random.int_in_range(0..=100)?;
    let code = [&[0][..], &[3, 0x40].repeat(loops), &[0x0b].repeat(loops + 1)].concat();
    let mut module = MODULE.to_vec();
    if random.ratio(1, 4)? {
        module.extend(custom(MANIFEST, manifest(random)?.as_bytes()));
    }
    module.extend(section(10, &[leb(1), sized(&code)].concat()));
    Ok(module)
}

/// Imports or exports, each with a name and what it is.
fn named(random: &mut Unstructured<'_>, kind: &[u8]) -> Result<Vec<u8>> {
    let count = random.int_in_range(0..=4)?;
    let mut bytes = leb(count);
    for _ in 0..count {
        bytes.push(0);
        bytes.extend(sized(random.choose(&INTERFACES)?.as_bytes()));
        bytes.extend(kind);
    }
    Ok(bytes)
}

fn docs(random: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    const KEYS: [&str; 6] = ["docs", "worlds", "interfaces", "funcs", "func_exports", "w"];
    Ok([&[1][..], json(random, &KEYS, 5)?.as_bytes()].concat())
}

fn manifest(random: &mut Unstructured<'_>) -> Result<String> {
    const KEYS: [&str; 8] =
        ["name", "access", "reason", "http", "files", "sha256", "memory_mib", "timeout_secs"];
    let name = *random.choose(&["a", "tester", "a-b", "A", "x/y"])?;
    let (version, description) = (text(random)?, text(random)?);
    let mut manifest = format!(
        r#"{{"manifest":1,"name":"{name}","version":{version},"description":{description}"#
    );
    for _ in 0..random.int_in_range(0..=4)? {
        let (key, value) = match random.int_in_range(0..=7)? {
            0 | 1 => ("config_schema", schema(random, 4)?),
            2 => {
                let name = random.choose(&["http", "process", "files", "x"])?;
                ("capabilities", format!(r#"[{{"name":"{name}","reason":{}}}]"#, text(random)?))
            }
            3 => {
                let (name, digest) = (text(random)?, "a".repeat(64));
                ("parts", format!(r#"[{{"name":{name},"sha256":"{digest}"}}]"#))
            }
            4 => ("limits", json(random, &KEYS, 1)?),
            5 => ("authors", format!("[{}]", text(random)?)),
            6 => ("license", text(random)?),
            _ => (*random.choose(&NAMES)?, json(random, &KEYS, 3)?),
        };
        manifest += &format!(",{}:{value}", json_text(key));
    }
    Ok(manifest + "}")
}

fn text(random: &mut Unstructured<'_>) -> Result<String> {
    const TEXTS: [&str; 6] = ["a", "my-plugin", "1.0.0", "\u{1b}[31m\u{202e}", "", "x\ny"];
    Ok(json_text(random.choose(&TEXTS)?))
}

fn custom(name: &str, data: &[u8]) -> Vec<u8> {
    section(0, &[&sized(name.as_bytes()), data].concat())
}

fn section(id: u8, contents: &[u8]) -> Vec<u8> {
    [&[id][..], &sized(contents)].concat()
}

/// Bytes after their length.
fn sized(bytes: &[u8]) -> Vec<u8> {
    [&leb(bytes.len()), bytes].concat()
}

/// A number as WebAssembly writes it.
fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(0x80 | (number & 0x7f) as u8);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}
