//! Reads and checks `plugin.toml`.

use std::path::Path;

use serde_json::{Map, Value, json};
use thiserror::Error;
use toolhold_component::{Capability, Manifest};

use crate::AuthoringError;
use crate::files::{MANIFEST, ProjectFileError};
use crate::pack_error::PackError;
use crate::section::with_section;

pub(crate) const FILE: &str = MANIFEST;

pub(crate) struct Authored {
    pub(crate) manifest: Manifest,
    /// The manifest as JSON, with the fields of `plugin.toml`.
    json: String,
    /// The table `[build]`, which hosts don't read.
    pub(crate) build: BuildTable,
}

/// An invalid `plugin.toml`.
#[derive(Debug, Error)]
pub enum AuthoredError {
    #[error("the manifest isn't valid TOML: {0}")]
    NotToml(toml::de::Error),
    #[error("the manifest has a value that JSON can't represent")]
    NotJson,
    #[error("the file isn't a manifest: {0}")]
    NotManifest(serde_json::Error),
    #[error(
        "the manifest has an unknown field `{field}`. The fields of a manifest are: {known}, \
         config_schema, and [build]"
    )]
    UnknownField { field: String, known: String },
    #[error("[build] has an unknown field `{0}`; the fields are: language, sdk")]
    UnknownBuildField(String),
    #[error("`{0}` in [build] must be a string")]
    BuildFieldType(String),
    #[error("`access` of the capability `files` is missing; write \"read\" or \"read-write\"")]
    NoFileAccess,
    #[error("`access` of the capability `files` is {0:?}; write \"read\" or \"read-write\"")]
    FileAccess(String),
    #[error(
        "the capability `{capability}` has the access {access:?}; only `files` has an access. The \
         capabilities are: {known}",
        known = Capability::ALL.map(Capability::name).join(", ")
    )]
    Access { capability: String, access: String },
    #[error(transparent)]
    Pack(#[from] PackError),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct BuildTable {
    pub(crate) language: Option<String>,
    /// The folder of the SDK.
    pub(crate) sdk: Option<String>,
}

impl Authored {
    pub(crate) fn open(file: &Path) -> Result<Self, AuthoringError> {
        let text = String::from_utf8(crate::read(file)?)
            .map_err(|_| ProjectFileError::NotUtf8(file.to_owned()))?;
        Self::parse(&text)
            .map_err(|error| AuthoringError::Manifest { file: file.to_owned(), error })
    }

    /// Parses the author's manifest. Refuses unknown fields and all faults that a host refuses.
    pub(crate) fn parse(text: &str) -> Result<Self, AuthoredError> {
        let table: toml::Table = toml::from_str(text).map_err(AuthoredError::NotToml)?;
        let Ok(Value::Object(mut fields)) = serde_json::to_value(table) else {
            return Err(AuthoredError::NotJson);
        };
        let build = BuildTable::take(&mut fields)?;
        // An author may leave out the version of the manifest's format.
        fields.entry("manifest").or_insert(json!(1));
        let written = Value::Object(fields);
        let parsed: Manifest =
            serde_json::from_value(written.clone()).map_err(AuthoredError::NotManifest)?;
        // `read` lacks the fields that a host ignores.
        let read = serde_json::to_value(&parsed).map_err(AuthoredError::NotManifest)?;
        if let Some(field) = find_unknown(&written, &read, "") {
            let mut known = Vec::new();
            for (name, _) in read.as_object().into_iter().flatten() {
                known.push(name.as_str());
            }
            return Err(AuthoredError::UnknownField { field, known: known.join(", ") });
        }
        for request in &parsed.capabilities {
            check_access(&request.name, request.access.as_deref())?;
        }

        let json = written.to_string();
        // The host's checks need a component, so the manifest is put into an empty component.
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
    /// Removes the table `[build]`, which isn't part of the manifest, from `fields`.
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

/// Checks that `files`, and no other capability, has an access.
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

const EMPTY_COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

/// Returns the path of the first field that is in `written` but not in `read`. `path` is the path
/// of `written`.
fn find_unknown(written: &Value, read: &Value, path: &str) -> Option<String> {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (key, written_value) in written {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let Some(read_value) = read.get(key) else { return Some(path) };
                let unknown = find_unknown(written_value, read_value, &path);
                if unknown.is_some() {
                    return unknown;
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
            (
                &format!(
                    "{VALID}[[capabilities]]\nname = \"filez\"\naccess = \"read\"\nreason = \"r\"\n"
                ),
                "The capabilities are: files, search, http",
            ),
            (&VALID.replace("sample", "No Name"), "the plugin's name `No Name` isn't valid"),
            (&format!("{VALID}[build]\nlang = \"go\"\n"), "[build] has an unknown field `lang`"),
        ];
        for (text, expected) in cases {
            let Err(error) = Authored::parse(text) else { panic!("{text} is valid") };
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
