//! Reads and checks the manifest of a plugin, without running the plugin.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhold_contract::text::{cut, neutral, neutral_line};
use wasmparser::{BinaryReaderError, Parser, Payload};

use crate::capability::Capability;
use crate::file::is_sha256;
use crate::schema::{self, SchemaError};

/// The custom section with the manifest.
const SECTION: &str = "toolhold:manifest";

/// Most bytes of a manifest. A larger manifest is refused.
const MAX_MANIFEST: usize = 64 * 1024;

const VERSION: u32 = 1;

/// Most interfaces that a component exports. A component with more is refused.
const MAX_EXPORTS: usize = 256;

/// Most bytes of a plugin's name. A longer name is refused.
const MAX_NAME: usize = 24;

/// Most parts of a plugin. A manifest with more parts is refused.
const MAX_PARTS: usize = 64;

/// Most authors and requests for capabilities. Further entries are dropped.
const MAX_AUTHORS: usize = 32;
const MAX_REQUESTS: usize = 32;

/// Most bytes of a name in an error. Longer names are cut.
const MAX_NAME_IN_ERROR: usize = 80;

/// The manifest of a plugin: a JSON object in the custom section `toolhold:manifest` of the
/// component.
///
/// Unknown fields are ignored, so newer plugins can be loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the format: 1.
    pub manifest: u32,
    /// The plugin's name: `[a-z0-9-]`, at most 24 characters, beginning with a letter.
    pub name: String,
    /// The plugin's own version.
    pub version: String,
    /// The plugin's purpose, in one or two sentences.
    pub description: String,
    /// The plugin's authors.
    #[serde(default)]
    pub authors: Vec<String>,
    /// The licence, as an SPDX expression.
    #[serde(default)]
    pub license: Option<String>,
    /// The repository of the plugin's source code.
    #[serde(default)]
    pub repository: Option<String>,
    /// The capabilities that the plugin requests, with reasons.
    #[serde(default)]
    pub capabilities: Vec<Request>,
    /// Limits that are sufficient for the plugin. These limits can only lower the host's limits.
    #[serde(default)]
    pub limits: RequestedLimits,
    /// The JSON Schema (2020-12) of the plugin's settings, `[plugins.NAME.config]`. Its `type` must
    /// be `object`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_schema: Option<Value>,
    /// The plugin's modules, at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

/// A module of a plugin: a pure component for `toolhold:tool/part`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The name of the module, with the same rules as for plugins. The file of the module is
    /// `NAME.wasm`.
    pub name: String,
    /// The SHA-256 of the component, in lower-case hexadecimal.
    pub sha256: String,
}

/// A capability that a plugin requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The name of the capability, such as `files`.
    pub name: String,
    /// The access for `files`: `read` or `read-write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<String>,
    /// The reason for the request, for the person who grants it.
    pub reason: String,
}

/// Limits that a plugin sets for itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestedLimits {
    /// The most MiB of linear memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
    /// The longest time of a call without a `timeout` argument, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_secs: Option<u32>,
}

/// The reason why a component has no valid manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The bytes can't be read.
    #[error(transparent)]
    Component(#[from] ComponentError),
    /// There is no manifest.
    #[error(
        "the component has no manifest. A manifest is a custom section `{SECTION}` with the \
         plugin's name, version and requested capabilities. The SDK's `plugin!` macro writes the \
         manifest"
    )]
    Missing,
    /// There are several manifests.
    #[error("the component has several sections `{SECTION}`; only one is allowed")]
    Several,
    /// The manifest is too large. The number is its size in bytes.
    #[error("the manifest is {0} bytes; the limit is {MAX_MANIFEST}")]
    TooLarge(usize),
    /// The manifest isn't valid JSON, or lacks a field.
    #[error("the manifest isn't valid: {0}")]
    NotJson(#[from] serde_json::Error),
    /// The manifest has another format. Contains its version.
    #[error("the manifest has format {0}; this host reads format {VERSION}")]
    Format(u32),
    /// The name isn't valid.
    #[error(
        "the plugin's name `{0}` isn't valid: use at most {MAX_NAME} characters of [a-z0-9-], the \
         first a letter"
    )]
    Name(String),
    /// The schema of the settings isn't valid.
    #[error("the `config_schema` of the manifest {0}")]
    Config(#[from] SchemaError),
    /// The schema of the settings isn't the schema of an object.
    #[error(
        "the `config_schema` of the manifest must be the schema of an object, with `\"type\": \
         \"object\"`"
    )]
    ConfigType,
    /// The list of modules isn't valid.
    #[error(transparent)]
    Parts(#[from] PartListError),
}

/// The reason why the modules of a manifest are refused.
#[derive(Debug, thiserror::Error)]
pub enum PartListError {
    /// There are too many modules. The number is their count.
    #[error("the manifest names {0} modules in `parts`; the limit is {MAX_PARTS}")]
    TooMany(usize),
    /// The name of a part isn't valid.
    #[error(
        "the name of the module `{0}` isn't valid: use at most {MAX_NAME} characters of [a-z0-9-], \
         the first a letter"
    )]
    Name(String),
    /// The digest of a module isn't valid. The text is the module's name.
    #[error("the `sha256` of the module `{0}` must be 64 hexadecimal digits in lower case")]
    Digest(String),
    /// Two parts have the same name.
    #[error("the manifest names the module `{0}` twice")]
    Twice(String),
}

/// The reason why the bytes of a component can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ComponentError {
    /// The bytes are precompiled code for a processor.
    #[error("the file is precompiled code, which can't be checked. Use the component itself")]
    Precompiled,
    /// The bytes are neither a component nor a module.
    #[error("the file is not a WebAssembly component")]
    NotAComponent,
    /// The parser can't read the component.
    #[error("the component is damaged: {0}")]
    Damaged(#[from] BinaryReaderError),
    /// The component exports too many interfaces.
    #[error("the component exports too many interfaces; the limit is {MAX_EXPORTS}")]
    TooManyExports,
}

impl Manifest {
    /// Finds and checks the manifest of a component. The manifest is at the top level, or in a
    /// module or component inside, because some compilers put the manifest there.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes aren't a component, or if the manifest is missing, invalid, or
    /// there twice.
    pub fn read(wasm: &[u8]) -> Result<Self, ManifestError> {
        Self::read_if_any(wasm)?.ok_or(ManifestError::Missing)
    }

    /// Reads the manifest like [`read`](Self::read). Returns `None` if the component has no
    /// manifest.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`read`](Self::read), except for a missing manifest.
    pub fn read_if_any(wasm: &[u8]) -> Result<Option<Self>, ManifestError> {
        let Some(section) = Self::section(wasm)? else { return Ok(None) };
        if section.len() > MAX_MANIFEST {
            return Err(ManifestError::TooLarge(section.len()));
        }
        let manifest: Self = serde_json::from_slice(section)?;
        manifest.check().map(Some)
    }

    /// Returns the bytes of the manifest in the component, or `None` if there is no manifest.
    ///
    /// # Errors
    ///
    /// Fails if the bytes aren't a component, or if there are several manifests.
    pub fn section(wasm: &[u8]) -> Result<Option<&[u8]>, ManifestError> {
        find_sections(wasm)?.single()
    }

    /// Checks the fields. Long texts and lists are cut, because they are only shown.
    fn check(self) -> Result<Self, ManifestError> {
        if self.manifest != VERSION {
            return Err(ManifestError::Format(self.manifest));
        }
        if !is_name(&self.name) {
            return Err(ManifestError::Name(neutral_line(cut(&self.name, MAX_NAME_IN_ERROR))));
        }
        let config_schema = match &self.config_schema {
            Some(schema) => Some(parse_config_schema(schema)?),
            None => None,
        };
        check_parts(&self.parts)?;

        // Texts are shown in terminals and logs, so control characters are replaced.
        let shown_authors = self.authors.iter().take(MAX_AUTHORS);
        let authors = shown_authors.map(|author| bounded_line(author)).collect();
        let shown_requests = self.capabilities.iter().take(MAX_REQUESTS);
        let capabilities = shown_requests.map(Request::bounded).collect();
        Ok(Self {
            version: bounded_line(&self.version),
            description: bounded_prose(&self.description),
            authors,
            license: self.license.as_deref().map(bounded_line),
            repository: self.repository.as_deref().map(bounded_line),
            capabilities,
            config_schema,
            ..self
        })
    }

    /// Returns the plugin's request for a capability, or `None` if the plugin doesn't request it.
    pub fn asks_for(&self, capability: Capability) -> Option<&Request> {
        self.capabilities.iter().find(|request| request.name == capability.name())
    }
}

impl Request {
    /// Checks whether the plugin asks for files only to read them.
    pub fn is_read_only(&self) -> bool {
        self.access.as_deref() != Some("read-write")
    }

    /// Returns an example of a line in the plugin's table that grants exactly the request. Returns
    /// `None` if this version of Toolhold doesn't have the capability.
    pub fn grant_line(&self) -> Option<&'static str> {
        match Capability::named(&self.name)? {
            Capability::Files if self.is_read_only() => {
                Some(r#"allowed_paths = [{ path = ".", access = "read" }]"#)
            }
            capability => Some(capability.facts().line),
        }
    }

    /// Returns an example of the option of `toolhold plugin grant` for the request. Returns `None`
    /// if only the configuration grants the capability.
    pub fn grant_option(&self) -> Option<&'static str> {
        match Capability::named(&self.name)? {
            Capability::Files if !self.is_read_only() => Some("--allow-path ."),
            Capability::Files | Capability::Search => Some("--allow-read ."),
            Capability::Http => Some("--allow-host api.example.com"),
            Capability::Store => Some("--store 16"),
            Capability::Index => Some("--index 16"),
            Capability::Session => Some("--session"),
            Capability::Process
            | Capability::Service
            | Capability::Embeddings
            | Capability::Parts
            | Capability::Schedule => None,
        }
    }

    fn bounded(&self) -> Self {
        Self {
            name: bounded_line(&self.name),
            access: self.access.as_deref().map(bounded_line),
            reason: bounded_prose(&self.reason),
        }
    }
}

/// Returns the start of a text as one line, without terminal control characters.
fn bounded_line(text: &str) -> String {
    neutral_line(cut(text, 256))
}

fn bounded_prose(text: &str) -> String {
    neutral(cut(text, 4096)).into_owned()
}

/// Parses the schema of the plugin's settings, with the same checks as schemas of tools. The
/// settings must be an object.
fn parse_config_schema(written: &Value) -> Result<Value, ManifestError> {
    let schema = schema::parse(&written.to_string())?;
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(ManifestError::ConfigType);
    }
    Ok(schema)
}

/// Checks a list of parts. The name of a part becomes a file name, and its digest a name in the
/// compile cache. Neither may contain characters such as `/`, which could lead out of these
/// folders.
fn check_parts(parts: &[Part]) -> Result<(), PartListError> {
    if parts.len() > MAX_PARTS {
        return Err(PartListError::TooMany(parts.len()));
    }
    for (index, Part { name, sha256 }) in parts.iter().enumerate() {
        let shown_name = neutral_line(cut(name, MAX_NAME_IN_ERROR));
        if !is_name(name) {
            return Err(PartListError::Name(shown_name));
        }
        if !is_sha256(sha256) {
            return Err(PartListError::Digest(shown_name));
        }
        if parts[..index].iter().any(|earlier| earlier.name == *name) {
            return Err(PartListError::Twice(shown_name));
        }
    }
    Ok(())
}

/// Checks whether a plugin may have this name.
pub fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.len() <= MAX_NAME
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[derive(Default)]
struct Sections<'w> {
    /// Sections at the top level.
    outer: Vec<&'w [u8]>,
    /// The sections of inner modules and components.
    inner: Vec<&'w [u8]>,
}

impl<'w> Sections<'w> {
    /// Returns the only manifest. A section at the top level has precedence over sections inside.
    fn single(&self) -> Result<Option<&'w [u8]>, ManifestError> {
        match (&self.outer[..], &self.inner[..]) {
            ([section], _) | ([], [section]) => Ok(Some(section)),
            ([], []) => Ok(None),
            _ => Err(ManifestError::Several),
        }
    }
}

/// Finds the manifests at the top level of a component, and in the modules and components inside.
fn find_sections(wasm: &[u8]) -> Result<Sections<'_>, ComponentError> {
    // Wasmtime writes precompiled components as ELF files.
    if wasm.starts_with(b"\x7fELF") {
        return Err(ComponentError::Precompiled);
    }
    if !Parser::is_component(wasm) && !Parser::is_core_wasm(wasm) {
        return Err(ComponentError::NotAComponent);
    }
    let mut sections = Sections::default();
    // Number of modules and components around the payload.
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) if section.name() == SECTION => {
                let level = if depth == 0 { &mut sections.outer } else { &mut sections.inner };
                level.push(section.data());
            }
            _ => {}
        }
    }
    Ok(sections)
}

/// The names of the interfaces that a component imports and exports itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    /// The imported interfaces.
    pub imports: Vec<String>,
    /// The exported interfaces.
    pub exports: Vec<String>,
}

impl Interfaces {
    /// Reads the names of the interfaces of a component.
    ///
    /// # Errors
    ///
    /// Fails if the component is damaged or has too many exports.
    pub fn read(wasm: &[u8]) -> Result<Self, ComponentError> {
        let mut interfaces = Self::default();
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        interfaces.imports.push(bounded_line(import?.name.name));
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        let name = export?.name.name;
                        // Only names of interfaces have a `:`.
                        if name.contains(':') {
                            interfaces.exports.push(bounded_line(name));
                        }
                        if interfaces.exports.len() > MAX_EXPORTS {
                            return Err(ComponentError::TooManyExports);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(interfaces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_that_only_reads_is_not_advised_to_get_more() {
        for (name, access, line, option) in [
            ("files", Some("read"), r#"access = "read""#, Some("--allow-read .")),
            ("files", Some("read-write"), r#"["."]"#, Some("--allow-path .")),
            ("files", None, r#"access = "read""#, Some("--allow-read .")),
            ("process", None, "programs = ", None),
        ] {
            let request = Request {
                name: name.to_owned(),
                access: access.map(str::to_owned),
                reason: "it needs that".to_owned(),
            };
            let written = request.grant_line().unwrap_or_default();
            assert!(written.contains(line), "{written}");
            assert_eq!(request.grant_option(), option, "{request:?}");
        }
    }
}
