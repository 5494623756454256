//! What a plugin says about itself, read without running it.

use berth_contract::text::{cut, neutral, neutral_line};
use serde::{Deserialize, Serialize};
use wasmparser::{Parser, Payload};

/// The custom section that holds the manifest.
const SECTION: &str = "berth:manifest";

/// Bytes of a manifest.
const MAX_MANIFEST: usize = 64 * 1024;

/// The version of the manifest's form that this host reads.
const VERSION: u32 = 1;

/// Characters of a plugin's name.
const MAX_NAME: usize = 24;

/// The manifest of a plugin: one JSON object in the custom section `berth:manifest` of the
/// component.
///
/// Fields that this host does not know are left alone, so that newer plugins load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the form: 1.
    pub manifest: u32,
    /// `[a-z0-9-]`, at most 24 characters, beginning with a letter.
    pub name: String,
    /// The plugin's own version.
    pub version: String,
    /// What it is for, in a sentence or two.
    pub description: String,
    /// Who wrote it.
    #[serde(default)]
    pub authors: Vec<String>,
    /// An SPDX expression.
    #[serde(default)]
    pub license: Option<String>,
    /// Where its source is.
    #[serde(default)]
    pub repository: Option<String>,
    /// What it wants beyond the base, and why.
    #[serde(default)]
    pub capabilities: Vec<Request>,
    /// Bounds that it can do with; they only lower the host's.
    #[serde(default)]
    pub limits: RequestedLimits,
}

/// A capability that a plugin asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// `files`, `search`, …
    pub name: String,
    /// For `files`: `read` or `read-write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// For the person who grants it.
    pub reason: String,
}

/// Bounds that a plugin sets itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestedLimits {
    /// MiB of linear memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
    /// Seconds that a call takes at most, where its arguments don't say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<u32>,
}

impl Manifest {
    /// Finds and checks the manifest in the bytes of a component. It stands at the component's own
    /// level, or, where a compiler put it there, in one of the modules and components inside.
    ///
    /// # Errors
    ///
    /// What is wrong and what to do: no component at all, no manifest, several, or one that breaks
    /// its rules.
    pub fn read(wasm: &[u8]) -> Result<Self, String> {
        let section = sections(wasm)?.one()?;
        if section.len() > MAX_MANIFEST {
            return Err(format!(
                "its manifest has {} bytes; at most {MAX_MANIFEST} are read",
                section.len()
            ));
        }
        let manifest: Self = serde_json::from_slice(section)
            .map_err(|error| format!("its manifest is not what it should be: {error}"))?;
        manifest.checked()
    }

    fn checked(self) -> Result<Self, String> {
        if self.manifest != VERSION {
            return Err(format!(
                "its manifest has form {}; this host reads form {VERSION}",
                self.manifest
            ));
        }
        let name = &self.name;
        let well_formed = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.len() <= MAX_NAME
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !well_formed {
            let shown = neutral_line(cut(name, 80));
            return Err(format!(
                "its name `{shown}` is invalid: 1 to {MAX_NAME} of [a-z0-9-], starting with a letter"
            ));
        }
        // For people and logs, so neutralised once and for all (invariant 6).
        let line = |text: String| neutral_line(cut(&text, 256));
        let prose = |text: String| neutral(cut(&text, 4096)).into_owned();
        Ok(Self {
            version: line(self.version),
            description: prose(self.description),
            authors: self.authors.into_iter().take(32).map(line).collect(),
            license: self.license.map(line),
            repository: self.repository.map(line),
            capabilities: self
                .capabilities
                .into_iter()
                .take(32)
                .map(|request| Request {
                    name: line(request.name),
                    access: request.access.map(line),
                    reason: prose(request.reason),
                })
                .collect(),
            ..self
        })
    }

    /// Whether the plugin asks for a capability.
    pub fn asks_for(&self, capability: &str) -> Option<&Request> {
        self.capabilities.iter().find(|request| request.name == capability)
    }
}

/// The manifest sections of a component.
#[derive(Default)]
struct Sections<'w> {
    outer: Vec<&'w [u8]>,
    inner: Vec<&'w [u8]>,
}

impl<'w> Sections<'w> {
    fn one(&self) -> Result<&'w [u8], String> {
        match (&self.outer[..], &self.inner[..]) {
            ([section], _) | ([], [section]) => Ok(section),
            ([], []) => Err(format!(
                "it has no manifest: a custom section `{SECTION}` with the plugin's name, version and what it asks for. \
                 The SDK's `plugin!` macro writes it"
            )),
            _ => Err(format!("it has several sections `{SECTION}`; one is needed")),
        }
    }
}

fn sections(wasm: &[u8]) -> Result<Sections<'_>, String> {
    if Parser::is_core_wasm(wasm) {
        return Err("it is a core WebAssembly module, not a component. Build it for the target wasm32-wasip2".into());
    }
    if wasm.starts_with(b"\x7fELF") {
        return Err(
            "it is precompiled code, which can't be checked. Give the component itself".into()
        );
    }
    if !Parser::is_component(wasm) {
        return Err("it is not a WebAssembly component".into());
    }
    let mut found = Sections::default();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(|error| format!("it is damaged: {error}"))? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) if section.name() == SECTION => {
                let level = if depth == 0 { &mut found.outer } else { &mut found.inner };
                level.push(section.data());
            }
            _ => {}
        }
    }
    Ok(found)
}

/// The interfaces that a component imports, as it names them.
///
/// # Errors
///
/// Where the component is damaged.
pub(crate) fn imports(wasm: &[u8]) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(|error| format!("it is damaged: {error}"))? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    let import = import.map_err(|error| format!("it is damaged: {error}"))?;
                    names.push(neutral_line(cut(import.name.name, 256)));
                }
            }
            _ => {}
        }
    }
    Ok(names)
}
