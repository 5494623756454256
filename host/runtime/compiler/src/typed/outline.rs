//! Reads the exports and imports of a component, which determine its kind.

use serde::{Deserialize, Serialize};
use toolhold_component::{ComponentError, Interfaces};
use toolhold_contract::text::{cut, neutral_line};
use wasmparser::{BinaryReaderError, Parser, Payload};

/// The module that a command of WASI preview 1 imports.
const PREVIEW1: &str = "wasi_snapshot_preview1";

/// Most bytes of a name that is made from a file's name. Longer names are cut.
const MAX_NAME: usize = 24;

/// Most bytes of a version. Longer versions are cut.
const MAX_VERSION: usize = 64;

/// Most bytes of an import's name in an error. Longer names are cut.
const MAX_SHOWN_IMPORT: usize = 80;

/// The kind of a component, which determines how Toolhold runs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComponentKind {
    /// The component exports Toolhold's interfaces.
    #[default]
    Plugin,
    /// Other components. Their exported functions become tools.
    Functions,
    /// A WASI command.
    Command,
}

/// The exports and imports of a component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// The kind of the component.
    pub kind: ComponentKind,
    /// The names of the imported interfaces.
    pub imports: Vec<String>,
    /// The names of the exported interfaces.
    pub exports: Vec<String>,
    /// The version of the first exported package, if it has one.
    pub version: Option<String>,
}

/// The reason why Toolhold can't run a component.
#[derive(Debug, thiserror::Error)]
pub enum OutlineError {
    /// The component can't be read.
    #[error(transparent)]
    Component(#[from] ComponentError),
    /// The core module can't be read.
    #[error("the module is damaged: {0}")]
    Damaged(#[from] BinaryReaderError),
    /// The command imports another module. The field is this module's name, neutralised.
    #[error(
        "the file is a core WebAssembly module that imports `{0}`; a command of WASI preview 1 \
         imports only `{PREVIEW1}`. Build the plugin for the target wasm32-wasip2"
    )]
    OtherImport(String),
    /// The core module isn't a command.
    #[error(
        "the file is a core WebAssembly module, neither a component nor a command: it exports no \
         `_start`. Build the plugin for the target wasm32-wasip2"
    )]
    NoCommand,
}

impl Outline {
    /// Reads a component, or a core module that is a command of WASI preview 1.
    ///
    /// # Errors
    ///
    /// Returns an error if the component is damaged or the core module isn't a command.
    pub fn read(wasm: &[u8]) -> Result<Self, OutlineError> {
        if Parser::is_core_wasm(wasm) {
            return read_module(wasm);
        }
        let Interfaces { imports, exports } = Interfaces::read(wasm)?;
        let kind = if exports.iter().any(|name| name.starts_with("toolhold:tool/")) {
            ComponentKind::Plugin
        } else if exports.iter().any(|name| name.starts_with("wasi:cli/run@0.2.")) {
            ComponentKind::Command
        } else {
            ComponentKind::Functions
        };
        let mut own_exports = exports.iter().filter(|name| !name.starts_with("wasi:"));
        let first_version = own_exports.find_map(|name| name.split_once('@'));
        let version = first_version.map(|(_, version)| neutral_line(cut(version, MAX_VERSION)));
        Ok(Self { kind, imports, exports, version })
    }

    /// Returns the first imported interface of a package.
    pub fn imports_of(&self, package: &str) -> Option<&str> {
        let prefix = format!("{package}/");
        self.imports.iter().map(String::as_str).find(|import| import.starts_with(&prefix))
    }

    /// Checks whether this is a core module.
    pub fn is_module(&self) -> bool {
        self.imports.iter().any(|import| import == PREVIEW1)
    }
}

/// Reads a core module, which must be a command of WASI preview 1 without further imports.
fn read_module(wasm: &[u8]) -> Result<Outline, OutlineError> {
    let mut has_start = false;
    let mut unknown_import = None;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import?;
                    if import.module != PREVIEW1 {
                        unknown_import.get_or_insert_with(|| {
                            neutral_line(cut(import.module, MAX_SHOWN_IMPORT))
                        });
                    }
                }
            }
            Payload::ExportSection(section) => {
                for export in section {
                    if export?.name == "_start" {
                        has_start = true;
                    }
                }
            }
            _ => {}
        }
    }
    if !has_start {
        return Err(OutlineError::NoCommand);
    }
    if let Some(import) = unknown_import {
        return Err(OutlineError::OtherImport(import));
    }
    Ok(Outline {
        kind: ComponentKind::Command,
        imports: vec![PREVIEW1.to_owned()],
        exports: Vec::new(),
        version: None,
    })
}

/// Makes the name of a plugin without a manifest from the stem of its file. Invalid characters are
/// dropped.
pub fn name_from(stem: &str) -> String {
    let letters: String = stem.chars().filter_map(to_name_character).collect();
    let from_first_letter = letters.trim_start_matches(|c: char| !c.is_ascii_lowercase());
    let name = cut(from_first_letter, MAX_NAME).trim_end_matches('-');
    if name.is_empty() { "component".to_owned() } else { name.to_owned() }
}

fn to_name_character(c: char) -> Option<char> {
    match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '-') => Some(c),
        '_' | '.' | ' ' => Some('-'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(text: &str) -> Result<Outline, OutlineError> {
        Outline::read(&wat::parse_str(text).expect("the text is WebAssembly"))
    }

    #[test]
    fn commands_of_preview_1_are_told_from_other_modules() {
        let command = r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func (param i32)))
            (func (export "_start")))"#;
        let outline = |text| self::outline(text);
        let found = outline(command).expect("it is a command");
        assert_eq!((found.kind, found.is_module()), (ComponentKind::Command, true));
        let error = outline("(module)").expect_err("it is no command").to_string();
        assert!(error.contains("exports no `_start`"), "{error}");
        let error = outline(r#"(module (import "env" "f" (func)) (func (export "_start")))"#)
            .expect_err("it needs another module")
            .to_string();
        assert!(error.contains("imports `env`"), "{error}");
    }

    #[test]
    fn name_is_made_of_a_file_name() {
        for (stem, name) in [
            ("word_count", "word-count"),
            ("7zip", "zip"),
            ("My Tool.v2", "my-tool-v2"),
            ("..", "component"),
            ("ж\u{202e}\n", "component"),
            (&"x".repeat(100), &"x".repeat(24)),
        ] {
            assert_eq!(name_from(stem), name);
        }
    }
}
