//! Decides which secrets are searched in a text. The file or tool from which the text comes
//! determines this.

use std::borrow::Cow;
use std::cell::Cell;

use toolhold_catalogue::CallContext;
use toolhold_contract::{Body, Content};
use toolhold_redaction::{self as redaction, Keys};
use toolhold_system::files::FileView;

use crate::overflow::READ_OVERFLOW;

/// Maximum number of attempts to split the beginning of a line. After that, the line is treated
/// like a line of a settings file.
const TRIES: usize = 64;

/// Maximum number of bytes that are compared at the end of a file's name.
const NAME: usize = 256;

/// The source of a call's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// All text has one source, which may be unknown.
    One(Keys),
    /// Lines of many files, each after its file's name, as in the answer of `grep`. The value is
    /// the minimum setting for each line.
    Lines(Keys),
}

impl Source {
    /// Returns the source of a call's texts. In source code, `password = …` is an ordinary line. In
    /// a settings file, this line contains a secret.
    pub(super) fn for_call(context: &CallContext) -> Self {
        let Some(tool) = context.tool.as_deref() else { return Self::One(Keys::Text) };
        if !tool.is_built_in() {
            return Self::One(Keys::Text);
        }
        let is_plugin = tool.plugin.is_some();
        let path = context.subjects.first().map(|subject| &*subject.text);
        match (&*tool.definition.name, path) {
            ("read", Some(path)) if is_plugin => Self::One(of_file(path)),
            // The answer has lines of a file among text of the tool.
            ("edit", Some(path)) if is_plugin => Self::One(of_file(path).max(Keys::Text)),
            ("grep", Some(path)) if is_plugin => Self::Lines(keys_for_search(context, path)),
            ("grep", None) if is_plugin => Self::Lines(Keys::Unknown),
            // A stored answer is already redacted.
            (READ_OVERFLOW, _) => Self::One(Keys::Unknown),
            _ => Self::One(Keys::Text),
        }
    }

    /// Redacts a part of an answer according to its source.
    pub(super) fn part(self, mut part: Content) -> Content {
        if let (Self::Lines(least), Body::Text(text)) = (self, &mut part.body) {
            let lines = Lines { text, least, line: Cell::new(Line::beginning(0)) };
            if let Cow::Owned(redacted) = redaction::text_where(text, &|offset| lines.at(offset)) {
                *text = redacted;
            }
            part.media_type = part.media_type.map(|name| redaction::owned(name, Keys::Text));
            part.meta = part.meta.map(|meta| redaction::json(meta, Keys::Text));
            return part;
        }
        redaction::content(part, self.keys())
    }

    /// Returns the setting for messages and fields, which have no lines of files.
    pub(super) fn keys(self) -> Keys {
        match self {
            Self::One(keys) => keys,
            Self::Lines(least) => least.max(Keys::Text),
        }
    }
}

/// Returns the minimum setting for lines that `grep` finds in `path`.
///
/// In a directory, each line shows the name of its own file. Links of `path` are followed: a line
/// shows the name of the link, which can differ from the target's name.
fn keys_for_search(context: &CallContext, path: &str) -> Keys {
    let keys = of_file(path);
    if keys != Keys::Unknown && is_directory(context, path) == Some(true) {
        return Keys::Unknown;
    }
    keys
}

/// Checks whether a path is a directory. Returns `None` if this isn't known.
fn is_directory(context: &CallContext, path: &str) -> Option<bool> {
    let grants = context.tool.as_ref()?.plugin.as_ref()?.policy().files.clone()?;
    Some(FileView::new(grants, true).find(path.as_ref()).ok()?.kind.is_dir())
}

/// The lines of `grep`: `path:12: text`, or `path-12- text`.
struct Lines<'a> {
    text: &'a str,
    least: Keys,
    /// The line of the last query, which stores the progress so that nothing is read twice.
    line: Cell<Line>,
}

/// A partly read line.
#[derive(Clone, Copy)]
struct Line {
    /// The offset of the line's first byte.
    start: usize,
    /// The offset up to which the line was read.
    seen: usize,
    /// The number of attempts to split the line's beginning.
    tries: usize,
    /// The strictest setting of the file names with which the line may begin.
    keys: Keys,
}

impl Line {
    fn beginning(start: usize) -> Self {
        Self { start, seen: start, tries: 0, keys: Keys::Unknown }
    }
}

impl Lines<'_> {
    /// Returns the setting at an offset. The text before the offset in the same line determines it.
    fn at(&self, offset: usize) -> Keys {
        let mut line = self.line.get();
        if offset < line.start {
            let line_start = self.text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
            line = Line::beginning(line_start);
        } else if let Some(newline) = self.text[line.seen..offset.max(line.seen)].rfind('\n') {
            line = Line::beginning(line.seen + newline + 1);
        }

        // A file's name can look like the beginning of a line. If one way to split the line gives
        // the name of a settings file, the line is treated as one of a settings file.
        let unread = &self.text[line.seen..offset.max(line.seen)];
        for (index, separator) in unread.match_indices([':', '-']) {
            if line.tries == TRIES {
                line.keys = line.keys.max(Keys::Settings);
                break;
            }
            line.tries += 1;
            let path_end = line.seen + index;
            let after = &self.text[path_end + 1..offset];
            let digits = after.bytes().take_while(u8::is_ascii_digit).take(20).count();
            // The line number is between two equal separators.
            if digits > 0 && after[digits..].starts_with(separator) {
                let path = &self.text[line.start..path_end];
                let name_start = path.ceil_char_boundary(path.len().saturating_sub(NAME));
                line.keys = line.keys.max(of_file(&path[name_start..]));
            }
        }
        line.seen = offset.max(line.seen);
        self.line.set(line);
        line.keys.max(self.least)
    }
}

/// Returns the setting for a file of this name.
fn of_file(path: &str) -> Keys {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let has_key_extension = PRIVATE_KEYS.contains(&extension);
    let is_ssh_key = extension != "pub" && SSH_KEYS.iter().any(|prefix| name.starts_with(prefix));
    let may_be_ssh_key = extension.is_empty() && name.starts_with("id_");
    if has_key_extension || is_ssh_key || may_be_ssh_key {
        return Keys::PrivateKey;
    }

    let has_settings_extension = SETTINGS.contains(&extension);
    let has_settings_name =
        name.ends_with("rc") || NAMES.iter().any(|prefix| name.starts_with(prefix));
    let may_hold_credentials = extension.is_empty() && name.contains("credential");
    if has_settings_extension || has_settings_name || may_hold_credentials {
        return Keys::Settings;
    }
    Keys::Unknown
}

/// Endings of the names of files with private keys.
const PRIVATE_KEYS: [&str; 9] = ["pem", "key", "p8", "pk8", "pfx", "p12", "ppk", "pkcs8", "pkcs12"];

/// Beginnings of the names of ssh's private keys.
const SSH_KEYS: [&str; 5] = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "ssh_host_"];

/// Suffixes of the names of settings files and of their logs.
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

/// Beginnings of the names of settings files.
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
    fn settings_are_recognised_by_file_name() {
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
        for path in [
            "src/main.rs",
            "a.py",
            "README.md",
            "password",
            "lib.ts",
            "x.c",
            "Makefile",
            "configure.py/x.rs",
        ] {
            assert_eq!(of_file(path), Keys::Unknown, "{path}");
        }
        for path in [
            "/h/.ssh/id_ed25519",
            "id_rsa.old",
            "/h/.ssh/id_work",
            "tls/server.KEY",
            "a.pem",
            "AuthKey_X.p8",
            "/etc/ssh/ssh_host_rsa_key",
        ] {
            assert_eq!(of_file(path), Keys::PrivateKey, "{path}");
        }
        for path in ["id_rsa.pub", "id_map.rs", "keys.rs", "ssh_host_rsa_key.pub"] {
            assert_eq!(of_file(path), Keys::Unknown, "{path}");
        }
    }

    #[test]
    fn search_line_is_redacted_by_its_own_file() {
        let secret = "Tr0ub4dor&3x";
        let text = format!(
            "a.rs:1: password = \"{secret}\"\na.env:2: PASSWORD={secret}\na.env-3- TOKEN={secret}\nb/.env:1: x.rs:9: password={secret}\n"
        );
        let redacted = Source::Lines(Keys::Unknown).part(Content::text(text));
        let redacted = redacted.as_text().expect("it is text");
        let lines: Vec<bool> = redacted.lines().map(|line| line.contains(secret)).collect();
        assert_eq!(lines, [true, false, false, false], "{redacted}");
    }
    #[test]
    fn file_name_with_many_separators_hides_no_settings() {
        let secret = "correcthorse";
        for (path, told) in [
            ("a:1:".repeat(70) + "/.env", false),
            ("-".repeat(70) + "/.env", false),
            ("a-b/x.rs".to_owned(), true),
        ] {
            let redacted = Source::Lines(Keys::Unknown)
                .part(Content::text(format!("{path}:1: password={secret}\n")));
            assert_eq!(format!("{redacted:?}").contains(secret), told, "{redacted:?}");
        }
    }

    #[test]
    fn long_line_is_read_once_for_all_its_keys() {
        let text = "a.rs:1: ".to_owned() + &"x-1- token=".repeat(1000) + "\nb.env:2: token=a";
        let lines =
            Lines { text: &text, least: Keys::Unknown, line: Cell::new(Line::beginning(0)) };
        let mut seen = 0;
        for (offset, _) in text.match_indices("token") {
            lines.at(offset);
            let line = lines.line.get();
            assert!(
                line.seen == offset && line.seen > seen && line.tries <= TRIES,
                "what was seen is remembered"
            );
            seen = line.seen;
        }
        assert_eq!(lines.line.get().start, text.rfind('b').expect("it is there"));
        assert_eq!(
            (lines.at(text.len()), lines.at(10)),
            (Keys::Settings, Keys::Unknown),
            "also where the next look begins again"
        );
    }
}
