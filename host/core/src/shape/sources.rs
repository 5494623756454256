//! What a text is taken from, as far as that decides which secrets are looked for in it.

use std::borrow::Cow;

use berth_contract::{Body, Content};
use berth_policy::redact::{self, Keys};

use crate::facts::Facts;
use crate::overflow::READ_OVERFLOW;

/// What a call's texts are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// One place, or nobody knows.
    One(Keys),
    /// Lines of many files, each behind its file's name: what `grep` answers with.
    Lines,
}

impl Source {
    /// What the texts of a call come from. In source code, `password = …` is a line like any other; in a file of settings it tells a secret.
    pub(super) fn of(facts: &Facts) -> Self {
        let Some(tool) = facts.tool.as_deref().filter(|tool| tool.is_built_in()) else { return Self::One(Keys::Text) };
        match &*tool.definition.name {
            "read" if tool.plugin.is_some() => Self::One(facts.subjects.first().map_or(Keys::Text, |file| of_file(&file.text))),
            "grep" if tool.plugin.is_some() => Self::Lines,
            // What was kept was redacted as it came.
            READ_OVERFLOW => Self::One(Keys::Unknown),
            _ => Self::One(Keys::Text),
        }
    }

    /// A part of an answer, redacted as its source has it.
    pub(super) fn part(self, mut part: Content) -> Content {
        if let (Self::Lines, Body::Text(text)) = (self, &mut part.body) {
            if let Cow::Owned(redacted) = redact::text_where(text, &|offset| of_line(text, offset)) {
                *text = redacted;
            }
            part.media_type = part.media_type.map(|name| redact::owned(name, Keys::Text));
            part.meta = part.meta.map(|meta| redact::json(meta, Keys::Text));
            return part;
        }
        redact::content(part, self.keys())
    }

    /// What holds for texts that have no lines of files: messages, fields.
    pub(super) fn keys(self) -> Keys {
        match self {
            Self::One(keys) => keys,
            Self::Lines => Keys::Text,
        }
    }
}

/// What counts in the line of a `grep` that holds `offset`: `path:12: text`, or `path-12- text`.
fn of_line(text: &str, offset: usize) -> Keys {
    let start = text[..offset].rfind('\n').map_or(0, |end| end + 1);
    let line = &text[start..offset];
    // A file can be named as if a line began in its name, so it is enough that one way to read the line names settings.
    let mut keys = Keys::Unknown;
    for (at, _) in line.match_indices([':', '-']).take(64) {
        let rest = &line[at + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && rest.as_bytes().get(digits) == line.as_bytes().get(at) && of_file(&line[..at]) == Keys::Settings {
            keys = Keys::Settings;
        }
    }
    keys
}

/// What counts in a file of that name.
fn of_file(path: &str) -> Keys {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let settings = SETTINGS.contains(&extension)
        || NAMES.iter().any(|known| name.starts_with(known))
        || name.ends_with("rc")
        || name.contains("credential") && extension.is_empty();
    if settings { Keys::Settings } else { Keys::Unknown }
}

/// What the names of files end with that hold settings, or what a program wrote about them.
const SETTINGS: [&str; 41] = [
    "env",
    "ini",
    "toml",
    "yaml",
    "yml",
    "json",
    "json5",
    "jsonc",
    "ndjson",
    "properties",
    "conf",
    "config",
    "cfg",
    "cnf",
    "xml",
    "plist",
    "tfvars",
    "tfstate",
    "netrc",
    "npmrc",
    "pgpass",
    "pypirc",
    "credentials",
    "secrets",
    "secret",
    "envrc",
    "reg",
    "service",
    "ovpn",
    "rdp",
    "har",
    "log",
    "history",
    "local",
    "production",
    "development",
    "staging",
    "test",
    "vars",
    "kubeconfig",
    "publishsettings",
];

/// How the names of files begin that hold settings.
const NAMES: [&str; 14] = [
    ".env",
    "credentials",
    "secrets",
    "config",
    "kubeconfig",
    "dockerfile",
    "containerfile",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".htpasswd",
    ".git-credentials",
    ".bash_",
    ".profile",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_told_by_the_name_of_their_file() {
        for path in [
            "/a/.env",
            ".env.production",
            "app/config.toml",
            "x.YAML",
            "/h/.aws/credentials",
            "/h/.npmrc",
            "app.properties",
            "Dockerfile",
            "a.json",
            "/h/.kube/config",
            "/h/.bash_history",
            "gunicorn.conf",
        ] {
            assert_eq!(of_file(path), Keys::Settings, "{path}");
        }
        for path in ["src/main.rs", "a.py", "README.md", "password", "lib.ts", "x.c", "Makefile", "configure.py/x.rs"] {
            assert_eq!(of_file(path), Keys::Unknown, "{path}");
        }
    }

    #[test]
    fn each_line_of_a_search_counts_by_its_own_file() {
        let secret = "Tr0ub4dor&3x";
        let text = format!(
            "a.rs:1: password = \"{secret}\"\na.env:2: PASSWORD={secret}\na.env-3- TOKEN={secret}\nb/.env:1: x.rs:9: password={secret}\n"
        );
        let redacted = Source::Lines.part(Content::text(text));
        let redacted = redacted.as_text().expect("it is text");
        let lines: Vec<bool> = redacted.lines().map(|line| line.contains(secret)).collect();
        assert_eq!(lines, [true, false, false, false], "{redacted}");
    }
}
