//! Reads and checks `plugin.toml`, the manifest as its author writes it.

use std::path::Path;

use serde_json::{Map, Value, json};
use toolhold_component::Manifest;

/// The name of the file.
pub(crate) const FILE: &str = "plugin.toml";

/// A manifest from `plugin.toml`, checked.
pub(crate) struct Authored {
    /// What the host will read.
    pub(crate) manifest: Manifest,
    /// The same as JSON, as its author wrote it.
    json: String,
    /// The table `[build]`, which is for `toolhold plugin build` alone.
    pub(crate) build: BuildTable,
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
    /// It can't be read, or as [`parse`](Self::parse).
    pub(crate) fn open(file: &Path) -> Result<Self, String> {
        let shown = file.display();
        let text =
            String::from_utf8(crate::read(file)?).map_err(|_| format!("{shown} isn't UTF-8"))?;
        Self::parse(&text).map_err(|error| format!("{shown}: {error}"))
    }

    /// Reads and checks the text of a `plugin.toml`.
    ///
    /// # Errors
    ///
    /// What is wrong, and the fields that there are: it isn't TOML, it has an unknown field, or the
    /// host would refuse it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table =
            toml::from_str(text).map_err(|error| format!("it isn't valid TOML: {error}"))?;
        let Ok(Value::Object(mut fields)) = serde_json::to_value(table) else {
            return Err("it has a value that JSON can't represent".into());
        };
        let build = BuildTable::take(&mut fields)?;
        fields.entry("manifest").or_insert(json!(1));
        let written = Value::Object(fields);
        let understood: Manifest = serde_json::from_value(written.clone())
            .map_err(|error| format!("it isn't a manifest: {error}"))?;
        let read = serde_json::to_value(&understood).map_err(|error| error.to_string())?;
        if let Some(field) = unknown(&written, &read, "") {
            let known: Vec<&str> =
                read.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            return Err(format!(
                "it has an unknown field `{field}`. A manifest has: {}, config_schema, and [build]",
                known.join(", ")
            ));
        }
        let odd = understood.capabilities.iter().find(|asked| {
            let known: &[Option<&str>] = match asked.name.as_str() {
                "files" => &[Some("read"), Some("read-write")],
                _ => &[None],
            };
            !known.contains(&asked.access.as_deref())
        });
        if let Some(odd) = odd {
            let is = odd.access.as_ref().map_or("is missing".into(), |is| format!("is {is:?}"));
            return Err(match odd.name.as_str() {
                "files" => format!(
                    "`access` of the capability `files` {is}; it has to be \"read\" or \"read-write\""
                ),
                name => format!("`access` of the capability `{name}` {is}; only `files` has one"),
            });
        }
        let json = written.to_string();
        // The same checks as a host's, on the smallest component that has the section.
        let manifest =
            Manifest::read(&crate::section::with_section(EMPTY_COMPONENT, json.as_bytes())?)?;
        Ok(Self { manifest, json, build })
    }

    /// The content of the section `toolhold:manifest`.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }
}

impl BuildTable {
    fn take(fields: &mut Map<String, Value>) -> Result<Self, String> {
        let Some(table) = fields.remove("build") else { return Ok(Self::default()) };
        let mut found = Self::default();
        for (key, value) in table.as_object().into_iter().flatten() {
            let place = match key.as_str() {
                "language" => &mut found.language,
                "sdk" => &mut found.sdk,
                _ => {
                    return Err(format!(
                        "[build] has an unknown field `{key}`; it has: language, sdk"
                    ));
                }
            };
            let text = value.as_str().ok_or(format!("`{key}` in [build] has to be a text"))?;
            *place = Some(text.to_owned());
        }
        Ok(found)
    }
}

/// The header of a component, without a section.
const EMPTY_COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

/// The first field that was written and that the host doesn't know.
fn unknown(written: &Value, read: &Value, place: &str) -> Option<String> {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => written.iter().find_map(|(key, value)| {
            let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
            match read.get(key) {
                Some(read) => unknown(value, read, &place),
                None => Some(place),
            }
        }),
        (Value::Array(written), Value::Array(read)) => {
            written.iter().zip(read).find_map(|(written, read)| unknown(written, read, place))
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
                "is \"reed\"; it has to be \"read\" or \"read-write\"",
            ),
            (&VALID.replace("sample", "No Name"), "its name `No Name` isn't valid"),
            (&format!("{VALID}[build]\nlang = \"go\"\n"), "[build] has an unknown field `lang`"),
        ];
        for (text, expected) in cases {
            let Err(error) = Authored::parse(text) else { panic!("{text} is valid") };
            assert!(error.contains(expected), "{error}");
        }
    }
}
