//! Makes the `[mcp.servers]` table of an imported server.

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};
use thiserror::Error;
use toml_edit::{Array, InlineTable, Item, Table, Value, value};
use toolhold_core::config::{Config, Problems, fill_in_secrets, referenced_secrets};
use toolhold_core::text::{cut, neutral_line};
use toolhold_mcp_client::client_files::{EntryError, NamedServer, ServerEntry, variable};
use toolhold_net::requests::{OutboundError, check_url};
use toolhold_redaction::{Keys, field, text};
use toolhold_terminal::nearest::look_alike;

use super::SECRETS;

const MAX_NAME: usize = 24;

/// Headers that the HTTP library sets itself.
const OF_CONNECTION: [HeaderName; 5] =
    [CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE];

/// Words in the names of variables and options that have credentials as values.
const SECRET_WORDS: [&str; 17] = [
    "apikey",
    "auth",
    "cookie",
    "credential",
    "credentials",
    "key",
    "pass",
    "passphrase",
    "passwd",
    "password",
    "pat",
    "pin",
    "pw",
    "pwd",
    "secret",
    "secrets",
    "token",
];

#[derive(Debug, Error)]
pub(crate) enum ImportError {
    #[error(transparent)]
    Entry(#[from] EntryError),
    #[error("the server is Toolhold itself")]
    Toolhold,
    #[error("the name isn't valid: use at most {MAX_NAME} of a-z, 0-9 and `-`, the first a letter")]
    Name,
    #[error("your configuration already has [mcp.servers.{0}]")]
    Configured(String),
    #[error("a plugin has the name `{0}`")]
    Plugin(String),
    #[error("the name would be `{name}`, which `{other}` in the same file also gets")]
    SameFile { name: String, other: String },
    #[error("{client} also has a server `{name}`")]
    OtherClient { name: String, client: &'static str },
    #[error("the name looks like the name of your server `{0}`")]
    LooksLike(String),
    #[error(transparent)]
    Start(#[from] ServerStartError),
    #[error(
        "the server uses the old SSE transport (the address ends in `/sse`), which isn't supported"
    )]
    Sse,
    #[error("the client generates the value of `{0}`: write the value into a secret")]
    GeneratedVariable(String),
    #[error("the client generates the header `{0}`: write the value into a secret")]
    GeneratedHeader(String),
    #[error("the header `{}` can't have this value", neutral_line(cut(.0, 128)))]
    Header(String),
    #[error("{}", first_message(.0))]
    Configuration(Problems),
    #[error(transparent)]
    Scratch(#[from] std::io::Error),
}

fn first_message(problems: &Problems) -> &str {
    problems.0.first().map_or("", |problem| problem.message.as_str())
}

#[derive(Debug, Error)]
pub(crate) enum ServerStartError {
    #[error("the command is empty")]
    Empty,
    #[error(
        "argument {0} looks like a credential, which must not be in toolhold.toml: write \
         `${{secret:NAME}}` instead, and add `--secret NAME=env:VARIABLE` or `--secret \
         NAME=file:PATH`"
    )]
    CredentialArgument(usize),
    #[error("the address seems to contain a credential: pass the credential in a header")]
    CredentialAddress,
    #[error(transparent)]
    Address(#[from] OutboundError),
}

#[derive(Debug)]
pub(super) struct Imported {
    pub(super) name: String,
    pub(super) table: Table,
    /// The names and contents of the secret files.
    pub(super) secrets: Vec<(String, String)>,
    /// The client, and the server's name in the client.
    pub(super) origin: (&'static str, String),
    /// Settings of the client's entry that aren't imported.
    pub(super) further: Vec<String>,
}

pub(super) struct ImportContext<'a> {
    /// The title of the client.
    pub(super) client: &'static str,
    pub(super) config: &'a Config,
    /// The other servers of the same import.
    pub(super) others: &'a [Imported],
    /// The existing secret files.
    pub(super) files: &'a [String],
}

/// Makes the table of a server. Fails if the name is taken, or if Toolhold can't use the server.
pub(super) fn import_server(
    own_name: &str,
    entry: ServerEntry,
    context: &ImportContext<'_>,
) -> Result<Imported, ImportError> {
    let name = fit_name(own_name)?;
    let config = &context.config.values;
    if config.mcp.servers.contains_key(&name) {
        return Err(ImportError::Configured(name));
    }
    if config.plugins.contains_key(&name) {
        return Err(ImportError::Plugin(name));
    }
    if let Some(Imported { origin: (client, other), .. }) =
        context.others.iter().find(|other| other.name == name)
    {
        return Err(if *client == context.client {
            ImportError::SameFile { name, other: other.clone() }
        } else {
            ImportError::OtherClient { name, client }
        });
    }
    let servers = config.mcp.servers.keys().chain(config.plugins.keys()).map(String::as_str);
    let others = servers.chain(context.others.iter().map(|other| other.name.as_str()));
    if let Some(other) = look_alike(&name, others) {
        return Err(ImportError::LooksLike(other.to_owned()));
    }
    let mut imported = Imported {
        name,
        table: Table::new(),
        secrets: Vec::new(),
        origin: (context.client, own_name.to_owned()),
        further: entry.further,
    };
    match entry.server {
        NamedServer::Program { words, variables } => {
            let kept_words = imported.without_credentials(&words, context);
            check_command(&kept_words)?;
            let [program, arguments @ ..] = &kept_words[..] else {
                return Err(ServerStartError::Empty.into());
            };
            imported.table.insert("command", value(program));
            if !arguments.is_empty() {
                imported.table.insert("args", value(arguments.iter().collect::<Array>()));
            }
            imported.add_presets(program);
            for (variable, value) in &variables {
                imported.add_variable(variable, value, context)?;
            }
        }
        NamedServer::Url { url, headers, token_variable } => {
            check_address(&url)?;
            if is_sse(&url) {
                return Err(ImportError::Sse);
            }
            imported.table.insert("url", value(url));
            if let Some(token) = token_variable {
                imported.add_secret("token", [("env", token.as_str())]);
            }
            for (header, value) in &headers {
                imported.add_header(header, value, context)?;
            }
        }
    }
    if !entry.is_enabled {
        imported.table.insert("enabled", value(false));
    }
    Ok(imported)
}

/// Checks that a command line has a program, and no plain credential in an argument.
pub(crate) fn check_command(words: &[String]) -> Result<(), ServerStartError> {
    if words.first().is_none_or(|program| program.trim().is_empty()) {
        return Err(ServerStartError::Empty);
    }
    let plain_words: Vec<String> = words.iter().map(|word| without_references(word)).collect();
    for index in 1..plain_words.len() {
        if credential_in(&plain_words, index).is_some() {
            return Err(ServerStartError::CredentialArgument(index));
        }
    }
    Ok(())
}

/// Removes the `${secret:NAME}` references from an argument.
fn without_references(argument: &str) -> String {
    let names = referenced_secrets(argument).into_iter();
    let empty: Vec<(&str, &str)> = names.map(|name| (name, "")).collect();
    fill_in_secrets(argument, &empty)
}

/// Returns the part of `words[index]` that looks like a credential. `words[0]` is the program, so
/// `index` is at least 1.
pub(super) fn credential_in(words: &[String], index: usize) -> Option<&str> {
    let word = words[index].as_str();
    let previous_word = words[index - 1].as_str();
    let (option, value) = match word.split_once('=') {
        Some((option, value)) if option.starts_with('-') => (option, value),
        // After `--token=VALUE`, the next word isn't the option's value.
        _ if previous_word.contains('=') => ("", word),
        _ => (previous_word, word),
    };
    let is_credential_of_option = is_secret_option(option) && may_be_credential(value);
    if is_credential_of_option || has_secret(value) {
        return Some(value);
    }
    if has_secret(word) { Some(word) } else { None }
}

/// Checks whether `url` is for the SSE transport, which Toolhold doesn't support.
fn is_sse(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.trim_end_matches('/').ends_with("/sse")
}

pub(crate) fn check_address(url: &str) -> Result<(), ServerStartError> {
    if has_secret(url) {
        return Err(ServerStartError::CredentialAddress);
    }
    check_url(url)?;
    Ok(())
}

/// The least bytes of a URL's part that may be a credential.
const MIN_CREDENTIAL: usize = 20;

/// Checks whether a part after the URL's host is long and has letters and digits.
pub(super) fn may_hold_credential(url: &str) -> bool {
    // `https://HOST/PATH` has the parts `https:`, an empty part, `HOST` and `PATH`.
    let parts_up_to_host = 3;
    url.split(['/', '?', '#']).skip(parts_up_to_host).any(|part| {
        part.len() >= MIN_CREDENTIAL
            && part.contains(|letter: char| letter.is_ascii_alphabetic())
            && part.contains(|letter: char| letter.is_ascii_digit())
    })
}

/// Returns the credentials in variables or headers: the name, the text before the value (such as
/// `Bearer `), and the value.
pub(super) fn credentials(server: &NamedServer) -> Vec<(&str, &str, &str)> {
    let (pairs, is_header) = match server {
        NamedServer::Program { variables, .. } => (variables, false),
        NamedServer::Url { headers, .. } => (headers, true),
    };
    let mut credentials = Vec::new();
    for (name, text) in pairs {
        let (prefix, value) =
            if is_header { split_scheme(name, text) } else { ("", text.as_str()) };
        let is_reference = variable(value).is_some() || text.contains("${");
        let is_credential = is_secret(name, text) || (is_header && is_authorization(name));
        if is_credential && !is_reference {
            credentials.push((name.as_str(), prefix, value));
        }
    }
    credentials
}

fn is_value(text: &str) -> bool {
    HeaderValue::from_str(text).is_ok()
}

fn is_authorization(header: &str) -> bool {
    header.eq_ignore_ascii_case("authorization")
}

/// Splits the value of `Authorization` into a scheme, such as `Bearer `, and the credential. Other
/// headers have an empty scheme.
fn split_scheme<'t>(header: &str, text: &'t str) -> (&'t str, &'t str) {
    match text.find(' ') {
        Some(space) if is_authorization(header) => text.split_at(space + " ".len()),
        _ => ("", text),
    }
}

impl Imported {
    /// Moves credentials in arguments into secret files. Returns the words with references in place
    /// of the credentials.
    fn without_credentials(
        &mut self,
        words: &[String],
        context: &ImportContext<'_>,
    ) -> Vec<String> {
        let mut replaced = words.to_vec();
        for index in 1..words.len() {
            if let Some(credential) = credential_in(words, index) {
                let name = format!("ARGUMENT_{index}");
                let further_keys = [];
                self.keep_secret(&name, credential, &further_keys, context);
                // The credential is the word or its end.
                let before = words[index].strip_suffix(credential).unwrap_or_default();
                replaced[index] = format!("{before}${{secret:{name}}}");
            }
        }
        replaced
    }

    /// Adds the preset that a package runner needs, if `program` is a package runner.
    fn add_presets(&mut self, program: &str) {
        let preset = match program {
            "npx" => "node",
            "uvx" => "uv",
            _ => return,
        };
        self.table.insert("presets", value(Array::from_iter([preset])));
    }

    /// Adds an environment variable. `text` is its value, or a reference to a variable of the
    /// client.
    fn add_variable(
        &mut self,
        name: &str,
        text: &str,
        context: &ImportContext<'_>,
    ) -> Result<(), ImportError> {
        match variable(text) {
            Some(source) if source == name => {
                let names = self.table.entry("env").or_insert(value(Array::new()));
                if let Some(names) = names.as_array_mut() {
                    names.push(name);
                }
            }
            Some(source) => self.add_secret(name, [("env", source)]),
            None if text.contains("${") => {
                return Err(ImportError::GeneratedVariable(name.to_owned()));
            }
            None if is_secret(name, text) => {
                let further_keys = [];
                self.keep_secret(name, text, &further_keys, context);
            }
            None => self.add_pair("variables", name, text),
        }
        Ok(())
    }

    /// Adds a header. `text` is its value, which may have a reference to a variable of the client.
    fn add_header(
        &mut self,
        name: &str,
        text: &str,
        context: &ImportContext<'_>,
    ) -> Result<(), ImportError> {
        let is_allowed = match HeaderName::try_from(name) {
            Ok(header) => !OF_CONNECTION.contains(&header) && is_value(text),
            Err(_) => false,
        };
        if !is_allowed {
            return Err(ImportError::Header(name.to_owned()));
        }
        let (prefix, credential) = split_scheme(name, text);
        let header_key = ("header", name);
        let prefix_key = ("prefix", prefix);
        match variable(credential) {
            Some(source) => self.add_secret(name, [("env", source), header_key, prefix_key]),
            None if text.contains("${") => {
                return Err(ImportError::GeneratedHeader(name.to_owned()));
            }
            None if is_authorization(name) || is_secret(name, text) => {
                self.keep_secret(name, credential, &[header_key, prefix_key], context);
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

    /// Adds a secret with the value `text`, and a file with a new name for the value.
    /// `further_keys` are more keys of the secret's table.
    fn keep_secret(
        &mut self,
        name: &str,
        text: &str,
        further_keys: &[(&str, &str)],
        context: &ImportContext<'_>,
    ) {
        let plain_name =
            name.replace(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_', "_");
        let first = format!("{}-{plain_name}", self.name);
        let mut file = first.clone();
        let mut number = 2;
        while self.is_taken(&file, context) {
            file = format!("{first}-{number}");
            number += 1;
        }

        let path = format!("{SECRETS}/{file}");
        let mut keys = vec![("file", path.as_str())];
        keys.extend_from_slice(further_keys);
        self.add_secret(name, keys);
        self.secrets.push((file, text.to_owned()));
    }

    /// Checks whether a secret file of this name exists or is planned.
    fn is_taken(&self, file: &str, context: &ImportContext<'_>) -> bool {
        let exists = context.files.iter().any(|other| other == file);
        let others = context.others.iter().flat_map(|imported| &imported.secrets);
        exists || self.secrets.iter().chain(others).any(|(other, _)| other == file)
    }

    fn add_secret<'k>(&mut self, name: &str, keys: impl IntoIterator<Item = (&'k str, &'k str)>) {
        let mut secret = Table::new();
        for (key, text) in keys {
            secret.insert(key, value(text));
        }
        // Only `[secrets.NAME]` becomes a header of the file, and not `[secrets]`.
        let mut implicit = Table::new();
        implicit.set_implicit(true);
        let secrets = self.table.entry("secrets").or_insert(Item::Table(implicit));
        if let Some(secrets) = secrets.as_table_mut() {
            secrets.insert(name, Item::Table(secret));
        }
    }
}

/// Converts a client's name for a server to lower-case letters, digits and `-`. Refuses a name that
/// is too long, starts with a digit, or has `..` or letters outside ASCII.
pub(super) fn fit_name(name: &str) -> Result<String, ImportError> {
    if name.contains("..") || name.chars().any(char::is_control) || !name.is_ascii() {
        return Err(ImportError::Name);
    }
    let lowercase = name.to_ascii_lowercase();
    let letters = lowercase.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
    let fitted = letters.trim_matches('-');
    let has_first_letter = fitted.starts_with(|first: char| first.is_ascii_lowercase());
    if fitted.len() > MAX_NAME || !has_first_letter {
        return Err(ImportError::Name);
    }
    Ok(fitted.to_owned())
}

/// Checks whether a value looks like a credential. A doubtful value counts as a credential, because
/// a secret file works for any value.
pub(crate) fn is_secret(name: &str, value: &str) -> bool {
    field(name, value, Keys::Settings) != value
        || has_secret(value)
        || (names_secret(name) && !is_plain(value))
}

fn is_secret_option(option: &str) -> bool {
    let last = option.rsplit('-').next().unwrap_or_default();
    option.starts_with('-') && !["auth", "cookie", "pin"].contains(&last) && names_secret(last)
}

/// Checks whether `value` can be a credential, which has at least six bytes.
fn may_be_credential(value: &str) -> bool {
    value.len() >= 6 && !value.starts_with('-') && !is_plain(value) && variable(value).is_none()
}

/// Checks whether `value` is a path, a number or a switch.
fn is_plain(value: &str) -> bool {
    value.is_empty()
        || value.starts_with('/')
        || value.parse::<f64>().is_ok()
        || ["true", "false"].contains(&value)
}

fn names_secret(name: &str) -> bool {
    let mut words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.any(|word| SECRET_WORDS.iter().any(|secret| word.eq_ignore_ascii_case(secret)))
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

    fn read(name: &str, server: NamedServer, files: &[String]) -> Result<Imported, ImportError> {
        let context =
            ImportContext { client: "A Client", config: &Config::default(), others: &[], files };
        let entry = ServerEntry { server, is_enabled: true, further: Vec::new() };
        import_server(name, entry, &context)
    }

    fn program(words: &[&str], variables: &[(&str, &str)]) -> Result<Imported, ImportError> {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        read("GitHub Server", NamedServer::Program { words, variables: map(variables) }, &[])
    }

    fn is_command(words: &[&str]) -> bool {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        check_command(&words).is_ok()
    }

    #[test]
    fn files_with_secrets_have_names_of_their_own() {
        let token = ["ghp_", "0123456789abcdefghijABCDEFGHIJ012345"].concat();
        let variables = map(&[("A.KEY", &token), ("A_KEY", &token)]);
        let server = NamedServer::Program { words: vec!["x".to_owned()], variables };
        let files = ["s-A_KEY".to_owned(), "s-A_KEY-3".to_owned()];
        let server = read("s", server, &files).expect("it is imported");
        let names: Vec<&str> = server.secrets.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["s-A_KEY-2", "s-A_KEY-4"]);
        let secrets = server.table["secrets"].as_table().expect("a table");
        assert_eq!(secrets["A_KEY"]["file"].as_str(), Some("secrets/s-A_KEY-4"));
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
    fn credentials_in_arguments_become_secrets() {
        let database = "postgresql://me:hunter2hunter@db.example/x";
        let server =
            program(&["x", "--api-key=hunter2hunter", "--password", "hunter3", database], &[])
                .expect("it is imported");
        let text = server.table.to_string();
        assert!(!text.contains("hunter"), "{text}");
        let args = "args = [\"--api-key=${secret:ARGUMENT_1}\", \"--password\", \
                    \"${secret:ARGUMENT_3}\", \"${secret:ARGUMENT_4}\"]";
        assert!(text.contains(args), "{text}");
        let kept: Vec<&str> = server.secrets.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(kept, ["hunter2hunter", "hunter3", database]);
    }

    #[test]
    fn addresses_of_sse_are_left_out() {
        for (url, is_left_out) in [
            ("https://mcp.linear.app/sse", true),
            ("https://h.example/sse/?a=b", true),
            ("https://h.example/mcp", false),
            ("https://h.example/assess", false),
        ] {
            let server =
                NamedServer::Url { url: url.to_owned(), headers: map(&[]), token_variable: None };
            let result = read("a", server, &[]);
            assert_eq!(matches!(result, Err(ImportError::Sse)), is_left_out, "{url}");
        }
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
        let server = read("a", server, &[]).expect("it is imported");
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
        for refused in [
            &["x", "--token", &token][..],
            &["x", "--password", "hunter2hunter"],
            &["x", "--api-key=hunter2hunter"],
            &["x", "postgresql://me:hunter2hunter@db.example/x"],
        ] {
            assert!(!is_command(refused), "{refused:?}");
        }
        for allowed in [
            &["x", "--token", "${secret:TOKEN}"][..],
            &["x", "--api-key=${secret:KEY}", "postgresql://me:${secret:PW}@db.example/x"],
        ] {
            assert!(is_command(allowed), "{allowed:?}");
        }
        assert!(program(&["x"], &[("A", "${input:token}")]).is_err());
        assert!(program(&[], &[]).is_err());
        for argument in
            ["--port=8080", "--key=/etc/key", "--max-tokens=100000", "--auth=oauth2pkce"]
        {
            assert!(program(&["x", argument], &[]).is_ok(), "{argument}");
        }
        let short = program(&["x"], &[("PW", "hunter2"), ("SECRET", "abc"), ("KEYBOARD", "us")]);
        let short = short.expect("it is imported");
        let kept: Vec<&str> = short.secrets.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(kept, ["hunter2", "abc"]);
        for (name, text) in [("Host", "a.example"), ("X-A", "b\r\nHost: c"), ("X A", "b")] {
            let url = "https://h.example/mcp".to_owned();
            let headers = map(&[(name, text)]);
            let server = NamedServer::Url { url, headers, token_variable: None };
            assert!(read("a", server, &[]).is_err(), "{name}");
        }
        for name in ["0", "../../x", "\u{8}ash", "\u{431}ash"] {
            assert!(fit_name(name).is_err(), "{name}");
        }
        assert!(fit_name(&"a".repeat(25)).is_err());
        assert!(may_hold_credential("https://h.example/s/0a1b2c3d4e5f60718293/mcp"));
        assert!(!may_hold_credential("https://h.example/a-long-path-of-words/mcp2"));
        assert_eq!(fit_name("@acme/Server_1").unwrap(), "acme-server-1");
    }
}
