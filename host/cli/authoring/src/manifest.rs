//! Reads and checks `plugin.toml`, the manifest that the author writes.

use std::path::Path;

use serde_json::{Map, Value, json};
use thiserror::Error;
use toolhold_component::Manifest;

use crate::AuthoringError;
use crate::files::{MANIFEST, ProjectFileError};
use crate::pack_error::PackError;
use crate::section::with_section;

/// The name of the file.
pub(crate) const FILE: &str = MANIFEST;

/// A manifest from `plugin.toml`, checked.
pub(crate) struct Authored {
    /// The manifest in the form that the host reads.
    pub(crate) manifest: Manifest,
    /// The manifest as JSON, with only the fields that the author wrote.
    json: String,
    /// The table `[build]`, which only `toolhold plugin build` uses.
    pub(crate) build: BuildTable,
}

/// An invalid `plugin.toml`.
#[derive(Debug, Error)]
pub enum AuthoredError {
    #[error("it isn't valid TOML: {0}")]
    NotToml(toml::de::Error),
    #[error("it has a value that JSON can't represent")]
    NotJson,
    #[error("it isn't a manifest: {0}")]
    NotManifest(serde_json::Error),
    #[error(
        "it has an unknown field `{field}`. A manifest has: {known}, config_schema, and [build]"
    )]
    UnknownField { field: String, known: String },
    #[error("[build] has an unknown field `{0}`; it has: language, sdk")]
    UnknownBuildField(String),
    #[error("`{0}` in [build] must be a string")]
    BuildFieldType(String),
    #[error("`access` of the capability `files` is missing; write \"read\" or \"read-write\"")]
    NoFileAccess,
    #[error("`access` of the capability `files` is {0:?}; write \"read\" or \"read-write\"")]
    FileAccess(String),
    #[error("the capability `{capability}` has the access {access:?}; only `files` has an access")]
    Access { capability: String, access: String },
    #[error(transparent)]
    Pack(#[from] PackError),
}

/// The table `[build]`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct BuildTable {
    /// The name of the language.
    pub(crate) language: Option<String>,
    /// The folder of the SDK.
    pub(crate) sdk: Option<String>,
}

impl Authored {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file can't be read, and in all cases of [`parse`](Self::parse).
    pub(crate) fn open(file: &Path) -> Result<Self, AuthoringError> {
        let text = String::from_utf8(crate::read(file)?)
            .map_err(|_| ProjectFileError::NotUtf8(file.to_owned()))?;
        Self::parse(&text)
            .map_err(|error| AuthoringError::Manifest { file: file.to_owned(), error })
    }

    /// Reads and checks the text of a `plugin.toml`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text isn't TOML, if it has an unknown field, or if the host would
    /// refuse it. The error for an unknown field lists the known fields.
    pub(crate) fn parse(text: &str) -> Result<Self, AuthoredError> {
        let table: toml::Table = toml::from_str(text).map_err(AuthoredError::NotToml)?;
        let Ok(Value::Object(mut fields)) = serde_json::to_value(table) else {
            return Err(AuthoredError::NotJson);
        };
        let build = BuildTable::take(&mut fields)?;
        fields.entry("manifest").or_insert(json!(1));
        let written = Value::Object(fields);
        let parsed: Manifest =
            serde_json::from_value(written.clone()).map_err(AuthoredError::NotManifest)?;
        // The fields that the host reads.
        let read = serde_json::to_value(&parsed).map_err(AuthoredError::NotManifest)?;
        if let Some(field) = find_unknown(&written, &read, "") {
            let known: Vec<&str> =
                read.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            return Err(AuthoredError::UnknownField { field, known: known.join(", ") });
        }
        for request in &parsed.capabilities {
            check_access(&request.name, request.access.as_deref())?;
        }

        let json = written.to_string();
        // The checks of a host run on the smallest component that has the section.
        let component = with_section(EMPTY_COMPONENT, json.as_bytes())?;
        let manifest = Manifest::read(&component).map_err(PackError::from)?;
        Ok(Self { manifest, json, build })
    }

    /// Returns the content of the section `toolhold:manifest`.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }
}

impl BuildTable {
    /// Removes the table from the fields of a manifest.
    fn take(fields: &mut Map<String, Value>) -> Result<Self, AuthoredError> {
        let Some(table) = fields.remove("build") else { return Ok(Self::default()) };
        let mut build = Self::default();
        for (key, value) in table.as_object().into_iter().flatten() {
            let field = match key.as_str() {
                "language" => &mut build.language,
                "sdk" => &mut build.sdk,
                _ => return Err(AuthoredError::UnknownBuildField(key.clone())),
            };
            let text = value.as_str().ok_or_else(|| AuthoredError::BuildFieldType(key.clone()))?;
            *field = Some(text.to_owned());
        }
        Ok(build)
    }
}

/// Checks the access of a request. `files` must have an access, and other capabilities must not
/// have one.
fn check_access(capability: &str, access: Option<&str>) -> Result<(), AuthoredError> {
    match (capability, access) {
        ("files", None) => Err(AuthoredError::NoFileAccess),
        ("files", Some("read" | "read-write")) | (_, None) => Ok(()),
        ("files", Some(access)) => Err(AuthoredError::FileAccess(access.to_owned())),
        (capability, Some(access)) => Err(AuthoredError::Access {
            capability: capability.to_owned(),
            access: access.to_owned(),
        }),
    }
}

/// The header of a component, without a section.
const EMPTY_COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

/// Returns the first written field that the host doesn't read. `path`: the path of the value.
fn find_unknown(written: &Value, read: &Value, path: &str) -> Option<String> {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (key, value) in written {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let Some(read) = read.get(key) else { return Some(path) };
                if let Some(unknown) = find_unknown(value, read, &path) {
                    return Some(unknown);
                }
            }
            None
        }
        (Value::Array(written), Value::Array(read)) => {
            let mut pairs = written.iter().zip(read);
            pairs.find_map(|(written, read)| find_unknown(written, read, path))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "name = \"sample\"\nversion = \"1.0.0\"\ndescription = \"d\"\n";

    #[test]
    fn written_manifest_becomes_json_without_the_build_table() {
        let text = format!(
            "{VALID}[[capabilities]]\nname = \"files\"\naccess = \"read\"\nreason = \"r\"\n[build]\nlanguage = \"go\"\nsdk = \"x\"\n"
        );
        let authored = Authored::parse(&text).unwrap();
        assert_eq!(authored.manifest.name, "sample");
        assert_eq!(authored.manifest.capabilities[0].access.as_deref(), Some("read"));
        let json: Value = serde_json::from_str(authored.json()).unwrap();
        assert_eq!(json["manifest"], 1);
        assert_eq!(json.get("build"), None);
        assert_eq!(authored.build.language.as_deref(), Some("go"));
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("name = ", "isn't valid TOML"),
            ("name = \"sample\"\n", "missing field"),
            (&format!("{VALID}capabilites = []\n"), "unknown field `capabilites`"),
            (
                &format!(
                    "{VALID}[[capabilities]]\nname = \"files\"\nacces = \"read\"\nreason = \"r\"\n"
                ),
                "unknown field `capabilities.acces`",
            ),
            (
                &format!(
                    "{VALID}[[capabilities]]\nname = \"files\"\naccess = \"reed\"\nreason = \"r\"\n"
                ),
                "is \"reed\"; write \"read\" or \"read-write\"",
            ),
            (&VALID.replace("sample", "No Name"), "its name `No Name` isn't valid"),
            (&format!("{VALID}[build]\nlang = \"go\"\n"), "[build] has an unknown field `lang`"),
        ];
        for (text, expected) in cases {
            let Err(error) = Authored::parse(text) else { panic!("{text} is valid") };
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
