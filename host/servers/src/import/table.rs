//! The table of an imported server.

use berth_clients::{NamedServer, variable};
use berth_core::config::Loaded;
use berth_redaction::{Keys, field, text};
use berth_requests::check_url;
use toml_edit::{Array, InlineTable, Item, Table, Value, value};

use super::SECRETS;

/// Most characters of a name.
const MAX_NAME: usize = 24;

/// A server as it is added to `berth.toml`.
#[derive(Debug)]
pub(super) struct Imported {
    pub(super) name: String,
    pub(super) table: Table,
    /// Files with secrets: their names and contents.
    pub(super) secrets: Vec<(String, String)>,
}

/// The table of a server of a client, unless its name is taken or it can't be used.
pub(super) fn imported(
    name: &str,
    server: NamedServer,
    config: &Loaded,
    others: &[Imported],
) -> Result<Imported, String> {
    let name = fitted(name)?;
    let mcp = &config.config.mcp;
    match () {
        () if mcp.servers.contains_key(&name) => {
            return Err(format!("your configuration has [mcp.servers.{name}] already"));
        }
        () if config.config.plugins.contains_key(&name) => {
            return Err(format!("a plugin is called `{name}`"));
        }
        () if others.iter().any(|other| other.name == name) => {
            return Err(format!("another client has a server `{name}` too"));
        }
        () => {}
    }
    let mut imported = Imported { name, table: Table::new(), secrets: Vec::new() };
    match server {
        NamedServer::Program { words, variables } => {
            let [program, arguments @ ..] = &words[..] else {
                return Err("its command is empty".to_owned());
            };
            if let Some(at) = arguments.iter().position(|word| has_secret(word)) {
                return Err(format!(
                    "its argument {} looks like a credential, which a berth.toml is no place for: \
                     pass it in a variable",
                    at + 1
                ));
            }
            imported.table.insert("command", value(program));
            if !arguments.is_empty() {
                imported.table.insert("args", value(arguments.iter().collect::<Array>()));
            }
            imported.add_presets(program);
            for (variable, value) in &variables {
                imported.add_variable(variable, value)?;
            }
        }
        NamedServer::Url { url, headers, token_variable } => {
            if has_secret(&url) {
                return Err("its address holds what looks like a credential: give it in a header"
                    .to_owned());
            }
            check_url(&url).map_err(|error| error.to_string())?;
            imported.table.insert("url", value(url));
            if let Some(token) = token_variable {
                imported.add_secret("token", [("env", token.as_str())]);
            }
            for (header, value) in &headers {
                imported.add_header(header, value)?;
            }
        }
    }
    Ok(imported)
}

impl Imported {
    /// What a package runner needs that lies in a folder of the user.
    fn add_presets(&mut self, program: &str) {
        let preset = match program {
            "npx" => "node",
            "uvx" => "uv",
            _ => return,
        };
        self.table.insert("presets", value(Array::from_iter([preset])));
    }

    fn add_variable(&mut self, name: &str, text: &str) -> Result<(), String> {
        match variable(text) {
            Some(known) if known == name => {
                let names = self.table.entry("env").or_insert(value(Array::new()));
                if let Some(names) = names.as_array_mut() {
                    names.push(name);
                }
            }
            Some(known) => self.add_secret(name, [("env", known)]),
            None if text.contains("${") => {
                return Err(format!(
                    "the client makes the value of `{name}` itself: write it into a secret"
                ));
            }
            None if is_secret(name, text) => self.keep_secret(name, text, &[]),
            None => self.add_pair("variables", name, text),
        }
        Ok(())
    }

    fn add_header(&mut self, name: &str, text: &str) -> Result<(), String> {
        let (prefix, rest) = match text.split_once(' ') {
            Some((scheme, rest)) if name.eq_ignore_ascii_case("authorization") => {
                (format!("{scheme} "), rest)
            }
            _ => (String::new(), text),
        };
        let more = [("header", name), ("prefix", prefix.as_str())];
        match variable(rest) {
            Some(known) => self.add_secret(name, [("env", known), more[0], more[1]]),
            None if text.contains("${") => {
                return Err(format!(
                    "the client makes the header `{name}` itself: write it into a secret"
                ));
            }
            None if name.eq_ignore_ascii_case("authorization") || is_secret(name, text) => {
                self.keep_secret(name, rest, &more);
            }
            None => self.add_pair("headers", name, text),
        }
        Ok(())
    }

    fn add_pair(&mut self, key: &str, name: &str, text: &str) {
        let pairs = self.table.entry(key).or_insert(value(InlineTable::new()));
        if let Some(pairs) = pairs.as_inline_table_mut() {
            pairs.insert(name, Value::from(text));
        }
    }

    /// Has a file hold a secret.
    fn keep_secret(&mut self, name: &str, text: &str, more: &[(&str, &str)]) {
        let of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let plain = name.replace(|letter| !of_name(letter), "_");
        let file = format!("{}-{plain}", self.name);
        let path = format!("{SECRETS}/{file}");
        self.add_secret(name, [("file", path.as_str())].into_iter().chain(more.iter().copied()));
        self.secrets.push((file, text.to_owned()));
    }

    fn add_secret<'k>(&mut self, name: &str, keys: impl IntoIterator<Item = (&'k str, &'k str)>) {
        let mut secret = Table::new();
        for (key, text) in keys {
            secret.insert(key, value(text));
        }
        let mut implicit = Table::new();
        implicit.set_implicit(true);
        let secrets = self.table.entry("secrets").or_insert(Item::Table(implicit));
        if let Some(secrets) = secrets.as_table_mut() {
            secrets.insert(name, Item::Table(secret));
        }
    }
}

/// A server's name in Berth: small letters, digits and `-`.
pub(super) fn fitted(name: &str) -> Result<String, String> {
    let fit = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9') => letter,
        _ => '-',
    };
    let fitted: String = name.chars().map(fit).collect();
    let fitted = fitted.trim_matches('-');
    if fitted.len() <= MAX_NAME && fitted.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Ok(fitted.to_owned());
    }
    Err(format!("its name doesn't fit: at most {MAX_NAME} of a-z, 0-9 and `-`, a letter first"))
}

/// Whether a value looks like a credential, by its name or by itself.
fn is_secret(name: &str, value: &str) -> bool {
    field(name, value, Keys::Settings) != value || has_secret(value)
}

fn has_secret(value: &str) -> bool {
    text(value, Keys::Text) != value
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn program(words: &[&str], variables: &[(&str, &str)]) -> Result<Imported, String> {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let server = NamedServer::Program { words, variables: map(variables) };
        imported("GitHub Server", server, &Loaded::default(), &[])
    }

    #[test]
    fn credentials_become_secrets_and_the_rest_stays() {
        let token = ["ghp_", "0123456789abcdefghijABCDEFGHIJ012345"].concat();
        let github = program(
            &["/usr/bin/server", "--verbose"],
            &[("GITHUB_TOKEN", &token), ("LEVEL", "info"), ("OWN", "${env:OWN}"), ("A", "${B}")],
        )
        .expect("it is imported");
        assert_eq!(github.name, "github-server");
        let expected = "command = \"/usr/bin/server\"\nargs = [\"--verbose\"]\nvariables = { LEVEL = \"info\" }\nenv = [\"OWN\"]\n";
        let text = github.table.to_string();
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(github.secrets, [("github-server-GITHUB_TOKEN".to_owned(), token.clone())]);
        assert!(!text.contains(&token), "{text}");
        let secrets = github.table["secrets"].as_table().expect("a table");
        assert_eq!(
            secrets["GITHUB_TOKEN"]["file"].as_str(),
            Some("secrets/github-server-GITHUB_TOKEN")
        );
        assert_eq!(secrets["A"]["env"].as_str(), Some("B"));
    }

    #[test]
    fn headers_become_secrets() {
        let headers = map(&[
            ("Authorization", "Bearer ${TOKEN}"),
            ("X-Team", "blue"),
            ("X-Api-Key", "0123456789abcdef0123"),
        ]);
        let url = "https://h.example/mcp".to_owned();
        let server = NamedServer::Url { url, headers, token_variable: None };
        let server = imported("a", server, &Loaded::default(), &[]).expect("it is imported");
        let secrets = server.table["secrets"].as_table().expect("a table");
        assert_eq!(secrets["Authorization"]["env"].as_str(), Some("TOKEN"));
        assert_eq!(secrets["Authorization"]["prefix"].as_str(), Some("Bearer "));
        assert_eq!(secrets["X-Api-Key"]["header"].as_str(), Some("X-Api-Key"));
        assert_eq!(server.table["headers"]["X-Team"].as_str(), Some("blue"));
        assert_eq!(server.secrets.len(), 1);
    }

    #[test]
    fn what_would_write_a_credential_down_is_refused() {
        let token = ["ghp_", "0123456789abcdefghijABCDEFGHIJ012345"].concat();
        assert!(program(&["x", "--token", &token], &[]).is_err());
        assert!(program(&["x"], &[("A", "${input:token}")]).is_err());
        assert!(program(&[], &[]).is_err());
        assert!(fitted("0").is_err());
        assert!(fitted(&"a".repeat(25)).is_err());
        assert_eq!(fitted("@acme/Server_1").as_deref(), Ok("acme-server-1"));
    }
}
