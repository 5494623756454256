//! The manifest: one JSON object that describes a plugin and what it asks for. It is rendered at
//! compile time into the custom section `toolhold:manifest`.

/// The description of a plugin, and what it asks for.
pub struct Manifest {
    /// `[a-z0-9-]`, a letter first, at most 24 characters.
    pub name: &'static str,
    /// Semantic version.
    pub version: &'static str,
    /// The description in one line.
    pub description: &'static str,
    /// The authors, separated by `:` as Cargo gives them. May be empty.
    pub authors: &'static str,
    /// SPDX expression. May be empty.
    pub license: &'static str,
    /// URL. May be empty.
    pub repository: &'static str,
    /// The capabilities that the plugin asks for.
    pub capabilities: &'static [Capability],
    /// The plugin's own limits.
    pub limits: Limits,
    /// The JSON Schema of its settings, as text.
    pub config_schema: Option<&'static str>,
    /// The parts that it brings along: names, and SHA-256 in hexadecimal.
    pub parts: &'static [(&'static str, &'static str)],
}

/// A capability that a plugin asks for.
pub struct Capability {
    /// The name as in the configuration: `files`, `search`.
    pub name: &'static str,
    /// `read` or `read-write` for `files`.
    pub access: Option<&'static str>,
    /// The reason, for the operator.
    pub reason: &'static str,
}

/// The limits of a call. They can only lower the limits of the host.
pub struct Limits {
    /// Memory in MiB.
    pub memory_mib: Option<u32>,
    /// Time in seconds, for calls without a `timeout` argument.
    pub timeout_secs: Option<u32>,
}

impl Limits {
    /// No limits beyond those of the host.
    pub const NONE: Self = Self { memory_mib: None, timeout_secs: None };
}

/// The manifest as JSON, and its length. `N` is that length: call it with `N` = 0 first to get it.
pub const fn render<const N: usize>(manifest: &Manifest) -> ([u8; N], usize) {
    let mut json = Json { bytes: [0; N], length: 0 };
    json.raw("{\"manifest\":1,\"name\":");
    json.string(manifest.name);
    json.member("version", manifest.version);
    json.member("description", manifest.description);
    if !manifest.authors.is_empty() {
        json.raw(",\"authors\":[\"");
        json.split(manifest.authors.as_bytes());
        json.raw("\"]");
    }
    if !manifest.license.is_empty() {
        json.member("license", manifest.license);
    }
    if !manifest.repository.is_empty() {
        json.member("repository", manifest.repository);
    }
    json.raw(",\"capabilities\":[");
    let mut index = 0;
    while index < manifest.capabilities.len() {
        let capability = &manifest.capabilities[index];
        json.raw(if index == 0 { "{\"name\":" } else { ",{\"name\":" });
        json.string(capability.name);
        if let Some(access) = capability.access {
            json.member("access", access);
        }
        json.member("reason", capability.reason);
        json.raw("}");
        index += 1;
    }
    json.raw("]");
    json.limits(&manifest.limits);
    if let Some(schema) = manifest.config_schema {
        json.raw(",\"config_schema\":");
        json.raw(schema);
    }
    let mut index = 0;
    while index < manifest.parts.len() {
        let (name, digest) = manifest.parts[index];
        json.raw(if index == 0 { ",\"parts\":[{\"name\":" } else { ",{\"name\":" });
        json.string(name);
        json.member("sha256", digest);
        json.raw("}");
        index += 1;
    }
    if index > 0 {
        json.raw("]");
    }
    json.raw("}");
    (json.bytes, json.length)
}

/// A writer that keeps the first `N` bytes and counts all bytes.
struct Json<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Json<N> {
    const fn byte(&mut self, byte: u8) {
        if self.length < N {
            self.bytes[self.length] = byte;
        }
        self.length += 1;
    }

    const fn raw(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut index = 0;
        while index < bytes.len() {
            self.byte(bytes[index]);
            index += 1;
        }
    }

    const fn string(&mut self, text: &str) {
        self.byte(b'"');
        let bytes = text.as_bytes();
        let mut index = 0;
        while index < bytes.len() {
            self.push_escaped(bytes[index]);
            index += 1;
        }
        self.byte(b'"');
    }

    const fn push_escaped(&mut self, byte: u8) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        match byte {
            b'"' | b'\\' => {
                self.byte(b'\\');
                self.byte(byte);
            }
            0..0x20 => {
                self.raw("\\u00");
                self.byte(HEX[(byte >> 4) as usize]);
                self.byte(HEX[(byte & 15) as usize]);
            }
            _ => self.byte(byte),
        }
    }

    /// Writes strings that are separated by `:` in `list`, without the outer quotes.
    const fn split(&mut self, list: &[u8]) {
        let mut index = 0;
        while index < list.len() {
            if list[index] == b':' {
                self.raw("\",\"");
            } else {
                self.push_escaped(list[index]);
            }
            index += 1;
        }
    }

    const fn member(&mut self, key: &str, value: &str) {
        self.raw(",\"");
        self.raw(key);
        self.raw("\":");
        self.string(value);
    }

    const fn limits(&mut self, limits: &Limits) {
        let pairs = [("memory_mib", limits.memory_mib), ("timeout_secs", limits.timeout_secs)];
        let mut index = 0;
        let mut written = 0;
        while index < pairs.len() {
            let (key, value) = pairs[index];
            if let Some(value) = value {
                self.raw(if written == 0 { ",\"limits\":{\"" } else { ",\"" });
                self.raw(key);
                self.raw("\":");
                self.number(value);
                written += 1;
            }
            index += 1;
        }
        if written > 0 {
            self.raw("}");
        }
    }

    const fn number(&mut self, value: u32) {
        if value >= 10 {
            self.number(value / 10);
        }
        self.byte(b'0' + (value % 10) as u8);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const BARE: Manifest = Manifest {
        name: "bare",
        version: "1.2.3",
        description: "Nothing much",
        authors: "",
        license: "",
        repository: "",
        capabilities: &[],
        limits: Limits::NONE,
        config_schema: None,
        parts: &[],
    };

    const FULL: Manifest = Manifest {
        description: "Says \"hi\" \\ über\u{1f}",
        authors: "A <a@example.org>:B",
        license: "MIT OR Apache-2.0",
        repository: "https://example.org/full",
        capabilities: &[
            Capability { name: "files", access: Some("read"), reason: "to look\n" },
            Capability { name: "search", access: None, reason: "to find" },
        ],
        limits: Limits { memory_mib: Some(64), timeout_secs: Some(10) },
        config_schema: Some(r#"{"type":"object"}"#),
        parts: &[("rust", "0a"), ("go", "1b")],
        ..BARE
    };

    #[test]
    fn manifest_leaves_out_empty_fields() {
        const LENGTH: usize = render::<0>(&BARE).1;
        let value: Value = serde_json::from_slice(&render::<LENGTH>(&BARE).0).unwrap();
        assert_eq!(
            value,
            json!({ "manifest": 1, "name": "bare", "version": "1.2.3", "description": "Nothing much", "capabilities": [] })
        );
    }

    #[test]
    fn manifest_reads_back_as_written() {
        const LENGTH: usize = render::<0>(&FULL).1;
        let value: Value = serde_json::from_slice(&render::<LENGTH>(&FULL).0).unwrap();
        assert_eq!(
            value,
            json!({
                "manifest": 1, "name": "bare", "version": "1.2.3", "description": "Says \"hi\" \\ über\u{1f}",
                "authors": ["A <a@example.org>", "B"], "license": "MIT OR Apache-2.0", "repository": "https://example.org/full",
                "capabilities": [
                    { "name": "files", "access": "read", "reason": "to look\n" },
                    { "name": "search", "reason": "to find" },
                ],
                "limits": { "memory_mib": 64, "timeout_secs": 10 },
                "config_schema": { "type": "object" },
                "parts": [{ "name": "rust", "sha256": "0a" }, { "name": "go", "sha256": "1b" }],
            })
        );
    }
}
