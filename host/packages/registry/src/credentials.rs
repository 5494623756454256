//! Reads logins for registries from the file that other clients of registries write
//! (`DOCKER_CONFIG`).

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde::Deserialize;

use crate::bounded;
use crate::error::FetchError;

/// Largest file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// The file's name.
const FILE: &str = "config.json";

/// Logins by registry.
#[derive(Clone, Default)]
pub struct Credentials {
    path: PathBuf,
    known: Known,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Known {
    auths: HashMap<String, Entry>,
    cred_helpers: HashMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: String,
    username: String,
    password: String,
    identitytoken: String,
}

/// The login that the file has for a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Login {
    /// Nothing.
    Missing,
    /// A user name and a password, as the value of a header.
    Basic(HeaderValue),
    /// Only in a form that isn't read; the text says in which, and what to do.
    Unreadable(String),
}

impl Credentials {
    /// The usual place of the file: in the folder that `DOCKER_CONFIG` names, otherwise below the
    /// home.
    pub fn usual_path(docker_config: Option<&str>, home: &Path) -> PathBuf {
        match docker_config.filter(|folder| !folder.is_empty()) {
            Some(folder) => Path::new(folder).join(FILE),
            None => home.join(".docker").join(FILE),
        }
    }

    /// Reads the file. A missing one has no logins. Blocks.
    ///
    /// # Errors
    ///
    /// [`FetchError::Credentials`]: it can't be read, or isn't of this form.
    pub fn load(path: &Path) -> Result<Self, FetchError> {
        let read = bounded::read_if_there(path, MAX_FILE);
        let known = match read.map_err(|error| file_error(path, error.to_string()))? {
            None => Known::default(),
            // The parser's own words could show a password.
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let line = error.line();
                file_error(path, format!("the JSON isn't valid, at line {line}"))
            })?,
        };
        Ok(Self { path: path.to_owned(), known })
    }

    /// The login for a registry, by host and port.
    pub(crate) fn login(&self, registry: &str) -> Login {
        let file = self.path.display();
        let entry = self.known.auths.iter().find(|(key, _)| registry_of(key) == Some(registry));
        if let Some((_, entry)) = entry {
            let decoded = STANDARD.decode(entry.auth.trim()).ok();
            let joined = match decoded.filter(|decoded| !decoded.is_empty()) {
                Some(decoded) => Some(decoded),
                None if !entry.username.is_empty() => {
                    Some(format!("{}:{}", entry.username, entry.password).into_bytes())
                }
                None => None,
            };
            if let Some(joined) = joined.filter(|joined| joined.contains(&b':')) {
                let value = format!("Basic {}", STANDARD.encode(joined));
                if let Ok(mut value) = HeaderValue::from_str(&value) {
                    value.set_sensitive(true);
                    return Login::Basic(value);
                }
            }
            if !entry.identitytoken.is_empty() {
                return Login::Unreadable(format!(
                    "the login in {file} is an identity token, which isn't supported: log in with \
                     a user name and a password or an access token"
                ));
            }
        }
        let helper = self.known.cred_helpers.get(registry).or(self.known.creds_store.as_ref());
        match helper {
            Some(helper) => Login::Unreadable(format!(
                "the login in {file} is in the helper program `{}`, which Toolhold doesn't start: \
                 write an entry with `auth` below `auths` in that file, or set DOCKER_CONFIG to a \
                 folder with such a file",
                toolhold_contract::text::neutral_line(toolhold_contract::text::cut(helper, 64))
            )),
            None => Login::Missing,
        }
    }

    /// Where logins are, for people.
    pub(crate) fn place(&self) -> String {
        if self.path.as_os_str().is_empty() {
            "~/.docker/config.json".to_owned()
        } else {
            self.path.display().to_string()
        }
    }
}

fn file_error(path: &Path, why: String) -> FetchError {
    FetchError::Credentials { path: path.display().to_string(), why }
}

/// Without the secrets.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Host and port in a key of `auths`, which may be a URL.
fn registry_of(key: &str) -> Option<&str> {
    let rest = key.strip_prefix("https://").unwrap_or(key);
    match rest.split_once('/') {
        Some((registry, "" | "v1" | "v1/" | "v2" | "v2/")) => Some(registry),
        // A login for a part of a registry isn't one for all of it.
        Some(_) => None,
        None => Some(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(text: &str) -> Result<Credentials, FetchError> {
        let folder = tempfile::tempdir().expect("there is a folder");
        let path = Credentials::usual_path(folder.path().to_str(), Path::new("/nowhere"));
        std::fs::write(&path, text).expect("it is written");
        Credentials::load(&path)
    }

    #[test]
    fn login_is_found_for_its_registry_alone() {
        let auth = STANDARD.encode("anna:pass:word");
        let text = format!(
            r#"{{"auths": {{"a.example:5000": {{"auth": "{auth}"}}, "https://b.example/v2/": {{"username": "u", "password": "p"}}, "c.example/part": {{"auth": "{auth}"}}, "d.example": {{"identitytoken": "t"}}, "e.example": {{}}}},
            "credHelpers": {{"e.example": "x\u001b"}}, "other": 1}}"#
        );
        let found = loaded(&text).expect("is valid");
        let basic = |text: &str| match found.login(text) {
            Login::Basic(value) => value.to_str().expect("is text").to_owned(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(basic("a.example:5000"), format!("Basic {auth}"));
        assert_eq!(basic("b.example"), format!("Basic {}", STANDARD.encode("u:p")));
        for other in
            ["a.example", "c.example", "c.example/part", "a.example:5001", "", "x.b.example"]
        {
            assert_eq!(found.login(other), Login::Missing, "{other}");
        }
        let told = |registry| match found.login(registry) {
            Login::Unreadable(why) => why,
            other => panic!("{other:?}"),
        };
        assert!(told("d.example").contains("identity token"));
        assert!(
            told("e.example").contains("helper program") && !told("e.example").contains('\u{1b}')
        );
        assert!(!format!("{found:?}").contains(&auth));
    }

    #[test]
    fn broken_file_is_an_error_that_shows_no_secret() {
        let error =
            loaded("{\"auths\": {\"a\": {\"auth\": \"secret-1\", x").expect_err("is broken");
        assert!(error.to_string().contains("line 1") && !error.to_string().contains("secret"));
        let missing = Credentials::load(Path::new("/nowhere/config.json")).expect("has no logins");
        assert_eq!(missing.login("a.example"), Login::Missing);
        let large = format!("{{\"x\": \"{}\"}}", "x".repeat(1 << 20));
        assert!(loaded(&large).expect_err("is too large").to_string().contains("too large"));
    }
}
