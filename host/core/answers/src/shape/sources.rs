//! Decides which secrets redaction searches in a text, by the file or tool from which the text
//! comes.

use std::borrow::Cow;
use std::cell::Cell;

use toolhold_catalogue::CallContext;
use toolhold_contract::{Body, Content};
use toolhold_redaction::{self as redaction, Keys};
use toolhold_system::files::FileView;

use crate::overflow::READ_OVERFLOW;

/// Maximum number of attempts to find the file name of a line. After that, the line is redacted
/// like a settings file.
const TRIES: usize = 64;

/// Maximum number of bytes of a path that are compared, counted from its end.
const NAME_BYTES: usize = 256;

/// Maximum number of digits of a line number.
const LINE_NUMBER_DIGITS: usize = 20;

/// The source of a call's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    One(Keys),
    /// Lines of many files, each with its file's name, as in the answer of `grep`. The value is the
    /// minimum strictness for all lines.
    Lines(Keys),
}

impl Source {
    /// Returns the source of a call's texts. `password = …` is an ordinary line in source code, but
    /// a secret in a settings file.
    pub(super) fn for_call(context: &CallContext) -> Self {
        let Some(tool) = context.tool.as_deref() else { return Self::One(Keys::Text) };
        if !tool.is_built_in() {
            return Self::One(Keys::Text);
        }
        let is_plugin = tool.plugin.is_some();
        let path = context.subjects.first().map(|subject| &*subject.text);
        match (&*tool.definition.name, path) {
            ("read", Some(path)) if is_plugin => Self::One(of_file(path)),
            // The answer has lines of the file and lines of the tool, so the stricter keys apply.
            ("edit", Some(path)) if is_plugin => Self::One(of_file(path).max(Keys::Text)),
            ("grep", Some(path)) if is_plugin => Self::Lines(keys_for_search(context, path)),
            ("grep", None) if is_plugin => Self::Lines(Keys::Unknown),
            // A stored answer is already redacted.
            (READ_OVERFLOW, _) => Self::One(Keys::Unknown),
            _ => Self::One(Keys::Text),
        }
    }

    /// Redacts a part. In an answer of `grep`, the name of each line's file decides how strictly
    /// the line is redacted.
    pub(super) fn part(self, mut part: Content) -> Content {
        if let Self::Lines(minimum) = self
            && let Body::Text(text) = &mut part.body
        {
            let first_line = Line::beginning(0);
            let lines = Lines { text, minimum, line: Cell::new(first_line) };
            if let Cow::Owned(redacted) =
                redaction::text_where(text, &|offset| lines.keys_at(offset))
            {
                *text = redacted;
            }
            part.media_type = part.media_type.map(|name| redaction::owned(name, Keys::Text));
            part.meta = part.meta.map(|meta| redaction::json(meta, Keys::Text));
            return part;
        }
        redaction::content(part, self.keys())
    }

    pub(super) fn keys(self) -> Keys {
        match self {
            Self::One(keys) => keys,
            Self::Lines(minimum) => minimum.max(Keys::Text),
        }
    }
}

/// Returns the minimum strictness for redacting the lines that `grep` finds in `path`.
///
/// A search in a directory has no minimum, because each line has the name of its own file.
fn keys_for_search(context: &CallContext, path: &str) -> Keys {
    let keys = of_file(path);
    if keys != Keys::Unknown && is_directory(context, path) == Some(true) {
        return Keys::Unknown;
    }
    keys
}

fn is_directory(context: &CallContext, path: &str) -> Option<bool> {
    let grants = context.tool.as_ref()?.plugin.as_ref()?.policy().files.clone()?;
    let read_only = true;
    Some(FileView::new(grants, read_only).find(path.as_ref()).ok()?.kind.is_dir())
}

/// The lines of `grep`: `path:12: text`, or `path-12- text`.
struct Lines<'a> {
    text: &'a str,
    /// The minimum strictness for every line.
    minimum: Keys,
    /// The line of the last query, and how far it was read, so that no text is read twice.
    line: Cell<Line>,
}

#[derive(Clone, Copy)]
struct Line {
    start: usize,
    /// Offset of the first byte that wasn't read.
    seen: usize,
    tries: usize,
    /// The strictest redaction that any possible file name of the line requires.
    keys: Keys,
}

impl Line {
    fn beginning(start: usize) -> Self {
        Self { start, seen: start, tries: 0, keys: Keys::Unknown }
    }
}

impl Lines<'_> {
    /// Returns how strictly the text at an offset is redacted. The file name at the start of the
    /// line decides. Offsets mostly increase, so the state of the line is kept for the next call.
    fn keys_at(&self, offset: usize) -> Keys {
        let mut line = self.line_at(offset);
        if line.seen < offset {
            self.read_names(&mut line, offset);
        }
        self.line.set(line);
        line.keys.max(self.minimum)
    }

    fn line_at(&self, offset: usize) -> Line {
        let line = self.line.get();
        if offset < line.start {
            let line_start = self.text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
            return Line::beginning(line_start);
        }
        if offset <= line.seen {
            return line;
        }
        match self.text[line.seen..offset].rfind('\n') {
            Some(newline) => Line::beginning(line.seen + newline + 1),
            None => line,
        }
    }

    /// Reads a line until an offset. A file name may contain separators, so a line can have several
    /// possible file names. The name with the strictest redaction decides.
    fn read_names(&self, line: &mut Line, offset: usize) {
        for (index, separator) in self.text[line.seen..offset].match_indices([':', '-']) {
            // A long line can have too many separators to try. Its file name stays unknown, so the
            // line is redacted as strictly as a settings file.
            if line.tries == TRIES {
                line.keys = line.keys.max(Keys::Settings);
                break;
            }
            line.tries += 1;
            let path_end = line.seen + index;
            let after_path = &self.text[path_end + separator.len()..offset];
            if starts_with_line_number(after_path, separator) {
                let path = &self.text[line.start..path_end];
                let min_start = path.len().saturating_sub(NAME_BYTES);
                let name_start = path.ceil_char_boundary(min_start);
                line.keys = line.keys.max(of_file(&path[name_start..]));
            }
        }
        line.seen = offset;
    }
}

fn starts_with_line_number(text: &str, separator: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).take(LINE_NUMBER_DIGITS).count();
    digits > 0 && text[digits..].starts_with(separator)
}

/// Returns how strictly the content of a file with this name is redacted.
fn of_file(path: &str) -> Keys {
    let name = match path.rsplit_once('/') {
        Some((_, name)) => name.to_ascii_lowercase(),
        None => path.to_ascii_lowercase(),
    };
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

/// File name extensions of private keys.
const PRIVATE_KEYS: [&str; 9] = ["pem", "key", "p8", "pk8", "pfx", "p12", "ppk", "pkcs8", "pkcs12"];

/// The beginnings of the names of private keys of SSH.
const SSH_KEYS: [&str; 5] = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "ssh_host_"];

/// File name extensions of settings files and of logs that show settings.
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

/// The beginnings of the names of settings files.
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
            Lines { text: &text, minimum: Keys::Unknown, line: Cell::new(Line::beginning(0)) };
        let mut seen = 0;
        for (offset, _) in text.match_indices("token") {
            lines.keys_at(offset);
            let line = lines.line.get();
            assert!(
                line.seen == offset && line.seen > seen && line.tries <= TRIES,
                "what was seen is remembered"
            );
            seen = line.seen;
        }
        assert_eq!(lines.line.get().start, text.rfind('b').expect("it is there"));
        assert_eq!(
            (lines.keys_at(text.len()), lines.keys_at(10)),
            (Keys::Settings, Keys::Unknown),
            "also where the next look begins again"
        );
    }
}
