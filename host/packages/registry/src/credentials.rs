//! Reads logins for registries from the `config.json` of Docker and other clients.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use serde::Deserialize;
use toolhold_contract::text::{cut, neutral_line};

use crate::bounded;
use crate::error::FetchError;

/// Most bytes of the file. A larger file is refused.
const MAX_FILE: u64 = 1 << 20;

const FILE: &str = "config.json";

/// Most bytes of a helper program's name in a message. Longer names are cut.
const MAX_HELPER_NAME: usize = 64;

/// The logins by registry.
#[derive(Clone, Default)]
pub struct Credentials {
    path: PathBuf,
    config: ClientConfig,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClientConfig {
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

/// A registry's login in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Login {
    Missing,
    /// A user name and a password, as the value of a header.
    Basic(HeaderValue),
    /// The login is in an unsupported form. The text names the form and the remedy.
    Unreadable(String),
}

impl Credentials {
    /// Returns the usual path of Docker's file of logins. `docker_config` is the folder in the
    /// variable `DOCKER_CONFIG`. The default is `.docker` in the home folder.
    pub fn usual_path(docker_config: Option<&str>, home: &Path) -> PathBuf {
        match docker_config {
            Some(folder) if !folder.is_empty() => Path::new(folder).join(FILE),
            _ => home.join(".docker").join(FILE),
        }
    }

    /// Reads a file of logins. Returns no logins if the file doesn't exist. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`FetchError::Credentials`] if the file can't be read, or isn't in Docker's format.
    pub fn load(path: &Path) -> Result<Self, FetchError> {
        let bytes = bounded::read_if_there(path, MAX_FILE)
            .map_err(|error| file_error(path, error.to_string()))?;
        let config = match bytes {
            None => ClientConfig::default(),
            // The parser's message could show a password, so only the line is reported.
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                let line = error.line();
                file_error(path, format!("the JSON isn't valid, at line {line}"))
            })?,
        };
        Ok(Self { path: path.to_owned(), config })
    }

    /// Returns the login for a registry. `registry` is the registry's host and port.
    pub(crate) fn login(&self, registry: &str) -> Login {
        let file = self.path.display();
        let entry = self.config.auths.iter().find(|(key, _)| registry_of(key) == Some(registry));
        if let Some((_, entry)) = entry {
            if let Some(value) = entry.basic() {
                return Login::Basic(value);
            }
            if !entry.identitytoken.is_empty() {
                return Login::Unreadable(format!(
                    "the login in {file} is an identity token, which isn't supported: log in with \
                     a user name and a password or an access token"
                ));
            }
        }
        let helper = self.config.cred_helpers.get(registry).or(self.config.creds_store.as_ref());
        let Some(helper) = helper else { return Login::Missing };
        let shown_helper = neutral_line(cut(helper, MAX_HELPER_NAME));
        Login::Unreadable(format!(
            "{file} leaves the login to the helper program `{shown_helper}`, which Toolhold \
             doesn't start: write an entry with `auth` below `auths` in that file, or set \
             DOCKER_CONFIG to a folder with such a file"
        ))
    }

    /// Returns the path of the file for messages. If no file was read, returns the usual path.
    pub(crate) fn shown_path(&self) -> String {
        if self.path.as_os_str().is_empty() {
            "~/.docker/config.json".to_owned()
        } else {
            self.path.display().to_string()
        }
    }
}

impl Entry {
    fn basic(&self) -> Option<HeaderValue> {
        // The field `auth` has precedence over the fields `username` and `password`.
        let decoded = STANDARD.decode(self.auth.trim()).unwrap_or_default();
        let login = if !decoded.is_empty() {
            decoded
        } else if self.username.is_empty() {
            return None;
        } else {
            format!("{}:{}", self.username, self.password).into_bytes()
        };
        // A colon separates the user name and the password.
        if !login.contains(&b':') {
            return None;
        }
        let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(login))).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

fn file_error(path: &Path, why: String) -> FetchError {
    FetchError::Credentials { path: path.display().to_string(), why }
}

/// Shows only the path, because the logins are secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Returns the host and port in a key of `auths`, which may be a URL. Returns `None` if the key
/// names only a part of a registry, because its login isn't valid for the whole registry.
fn registry_of(key: &str) -> Option<&str> {
    let location = key.strip_prefix("https://").unwrap_or(key);
    match location.split_once('/') {
        // These paths are the root of a registry's API.
        Some((registry, "" | "v1" | "v1/" | "v2" | "v2/")) => Some(registry),
        Some(_) => None,
        None => Some(location),
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
