//! `toolhold mcp`, and `toolhold mcp config`, which writes Toolhold into the configuration of an
//! MCP client.

mod import;
mod login;
mod server_tables;
mod servers;
mod shown_tool;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Parser;
use serde_json::{Map, Value, json};
use toolhold_core::config::Folders;
use toolhold_core::text::neutral;
use toolhold_core::{HostError, NAME};
use toolhold_mcp_client::client_files::{
    CLIENTS, Client, ServerConfig, edit, install_command, servers, without,
};

use self::import::Moved;
use crate::arguments::{Arguments, McpCommand, McpConfig};
use crate::changed_file;
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::nearest::nearest;
use crate::options::Options;
use crate::shown;
use crate::style::{FAINT, STRONG};

/// Runs the command.
pub(crate) fn run(command: &McpCommand, options: &Options) -> Result<Exit, Error> {
    let config = match command {
        McpCommand::Config(config) => config,
        McpCommand::Servers(command) => {
            let folders = Folders::from_environment()?;
            let file = options.config_file(&folders);
            return host::block_on(servers::run(command, &file, &folders, || {
                host::load(options, &folders)
            }));
        }
    };
    match config.client.as_deref() {
        None => list(config.json),
        Some(name) => show_client(find_client(name)?, config, options),
    }
}

/// Finds the client with a name.
///
/// # Errors
///
/// No client has this name.
fn find_client(name: &str) -> Result<&'static Client, Error> {
    CLIENTS.iter().find(|client| client.name == name).ok_or_else(|| {
        let near = nearest(name, CLIENTS.iter().map(|client| client.name));
        let hint = near.map_or_else(
            || "`toolhold mcp config` lists the known clients".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        Error::Usage(format!("there is no client `{name}`; {hint}"))
    })
}

/// Lists the clients and their files.
fn list(as_json: bool) -> Result<Exit, Error> {
    if as_json {
        let mut all = Vec::new();
        for client in &CLIENTS {
            let user = client.user_file().map_err(Error::usage)?;
            all.push(json!({ "client": client.name, "title": client.title, "user": user, "project": client.project, "http": client.takes_http() }));
        }
        writeln!(std::io::stdout().lock(), "{:#}", Value::Array(all))?;
        return Ok(Exit::Success);
    }
    let mut out = anstream::stdout().lock();
    for client in &CLIENTS {
        let user = match client.user_file().map_err(Error::usage)? {
            Some(file) => neutral(&file.display().to_string()).into_owned(),
            None => "by its own command".to_owned(),
        };
        let project = match client.project {
            Some(file) => format!("; --project: {file}"),
            None => String::new(),
        };
        let http = if client.takes_http() { "" } else { "; no --http" };
        writeln!(
            out,
            "{STRONG}{:15}{STRONG:#} {:16} {FAINT}{user}{project}{http}{FAINT:#}",
            client.name, client.title
        )?;
    }
    Ok(Exit::Success)
}

fn show_client(
    client: &'static Client,
    config: &McpConfig,
    options: &Options,
) -> Result<Exit, Error> {
    let server = server(config, options)?;
    let entry = client.entry(&server).map_err(Error::usage)?;
    let file = if config.project {
        Some(client.project_file().map_err(Error::usage)?)
    } else {
        client.user_file().map_err(Error::usage)?
    };
    let Some(file) = file else {
        return run_client_command(client, config, &server);
    };
    if config.write {
        return write_entry(client, config, options, &file, &server, &entry);
    }

    if config.json {
        let whole = object(client.table, object(&config.name, entry));
        let report = json!({ "client": client.name, "file": file, "config": whole });
        writeln!(std::io::stdout().lock(), "{report:#}")?;
        return Ok(Exit::Success);
    }
    let text = edit(client.format, "", client.table, &config.name, &entry).map_err(Error::usage)?;
    write!(std::io::stdout().lock(), "{text}")?;
    let file = neutral(&file.display().to_string()).into_owned();
    writeln!(
        anstream::stderr(),
        "{FAINT}Write this into {file}, or use `--write`, which keeps the rest of the \
         file.{FAINT:#}"
    )?;
    Ok(Exit::Success)
}

/// Writes Toolhold into the client's file. With `--replace`, the servers that Toolhold has are
/// taken out.
fn write_entry(
    client: &'static Client,
    config: &McpConfig,
    options: &Options,
    file: &Path,
    server: &ServerConfig,
    entry: &Value,
) -> Result<Exit, Error> {
    let loaded = if config.replace {
        let folders = Folders::from_environment()?;
        Some((host::load(options, &folders)?, folders))
    } else {
        None
    };
    let ours = loaded.as_ref().map(|(ours, folders)| (ours, folders));
    let mut moved = Moved::default();
    let change = changed_file::change(file, config.project, |before| {
        moved = import::moved(servers(client, before)?, ours);
        let without_moved = without(client.format, before, client.table, &moved.names)?;
        edit(client.format, &without_moved, client.table, &config.name, entry)
    })?;
    let diff = change.map(|diff| moved.hide(&diff));
    for note in &moved.notes {
        writeln!(anstream::stderr(), "{note}")?;
    }

    if config.json {
        let report =
            json!({ "client": client.name, "file": file, "changed": diff.is_some(), "diff": diff });
        writeln!(std::io::stdout().lock(), "{report:#}")?;
        return Ok(Exit::Success);
    }
    let shown = neutral(&file.display().to_string()).into_owned();
    match diff {
        None => writeln!(anstream::stderr(), "{shown} already has it.")?,
        Some(diff) => {
            write!(std::io::stdout().lock(), "{}", neutral(&diff))?;
            writeln!(
                anstream::stderr(),
                "Wrote {shown}. {} reads the file when it starts.",
                client.title
            )?;
        }
    }
    if let ServerConfig::Http { variable: Some(variable), .. } = server {
        writeln!(
            anstream::stderr(),
            "{} reads the server's token from the variable {variable}.",
            client.title
        )?;
    }
    Ok(Exit::Success)
}

/// Prints the command for a client whose configuration only this command can change.
fn run_client_command(
    client: &Client,
    config: &McpConfig,
    server: &ServerConfig,
) -> Result<Exit, Error> {
    let words = client.command(&config.name, server);
    let line = words.iter().map(|word| shown::shell_word(word)).collect::<Vec<_>>().join(" ");
    if config.write {
        let title = client.title;
        return Err(Error::Usage(format!(
            "{title} rewrites the file with its user's servers while it runs; run `{line}` \
             instead, or write the project's file with --project"
        )));
    }
    let mut out = std::io::stdout().lock();
    if config.json {
        writeln!(out, "{:#}", json!({ "client": client.name, "command": words }))?;
    } else {
        writeln!(out, "{line}")?;
    }
    Ok(Exit::Success)
}

/// Returns the server for the client.
fn server(config: &McpConfig, options: &Options) -> Result<ServerConfig, Error> {
    let has_name_letters =
        config.name.chars().all(|letter| letter == '-' || is_variable_letter(letter));
    if config.name.is_empty() || config.name.len() > 64 || !has_name_letters {
        return Err(Error::usage(
            "--name takes at most 64 letters, digits, `-` and `_`: tools are shown under it",
        ));
    }
    let has_own_options = !options.allow.is_empty()
        || !options.allow_read.is_empty()
        || !options.plugin.is_empty()
        || !options.set.is_empty()
        || options.config.is_some();
    if has_own_options {
        return Err(Error::usage(
            "arguments of the server follow `--`, as in `toolhold mcp config cursor -- --allow /home/u/project`",
        ));
    }
    match &config.http {
        Some(url) => http_server(url, config),
        None => stdio_server(config),
    }
}

/// Returns the server that runs already, at a URL.
fn http_server(url: &str, config: &McpConfig) -> Result<ServerConfig, Error> {
    let has_scheme = url.starts_with("http://") || url.starts_with("https://");
    if !has_scheme || !url.chars().all(|letter| letter.is_ascii_graphic()) {
        return Err(Error::usage("--http takes the server's URL, as in http://127.0.0.1:8300/mcp"));
    }
    if !config.serve.is_empty() {
        return Err(Error::usage(
            "a server over HTTP is already running, so its options can't be set here",
        ));
    }
    let variable = &config.token_variable;
    if variable.is_empty() || !variable.chars().all(is_variable_letter) {
        return Err(Error::usage(
            "--token-variable takes the name of an environment variable, never the token itself",
        ));
    }
    let variable = if config.oauth { None } else { Some(variable.clone()) };
    Ok(ServerConfig::Http { url: url.to_owned(), variable })
}

/// Returns the server that the client starts.
fn stdio_server(config: &McpConfig) -> Result<ServerConfig, Error> {
    let line = [NAME, "serve"].into_iter().map(str::to_owned).chain(config.serve.iter().cloned());
    if let Err(error) = Arguments::try_parse_from(line) {
        let message = error.to_string();
        let reason = message.lines().next().unwrap_or_default().trim_start_matches("error: ");
        return Err(Error::Usage(format!(
            "`toolhold serve` does not accept these options: {reason}"
        )));
    }
    if config.serve.iter().any(|word| word == "--http" || word.starts_with("--http=")) {
        return Err(Error::usage(
            "a server that the client starts uses stdin and stdout; for a server over HTTP, use \
             --http URL",
        ));
    }
    let here = std::env::current_dir().map_err(HostError::io("finding the working directory"))?;
    let program = program(config.project)?;
    let mut arguments = vec!["serve".to_owned()];
    arguments.extend(with_absolute_paths(&config.serve, &here));
    Ok(ServerConfig::Stdio { program, arguments })
}

fn is_variable_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Options whose value is a path.
const PATHS: [&str; 4] = ["--allow", "--allow-read", "--plugin", "--config"];

/// Makes the paths in the options absolute, so that they mean the same wherever the client starts
/// the server.
fn with_absolute_paths(options: &[String], here: &Path) -> Vec<String> {
    let mut words = Vec::new();
    let mut follows_path_option = false;
    for word in options {
        if follows_path_option {
            words.push(absolute(word, here));
            follows_path_option = false;
            continue;
        }
        follows_path_option = PATHS.contains(&word.as_str());
        words.push(match word.split_once('=') {
            Some((option, path)) if PATHS.contains(&option) => {
                format!("{option}={}", absolute(path, here))
            }
            _ => word.clone(),
        });
    }
    words
}

fn absolute(path: &str, here: &Path) -> String {
    if path.starts_with('~') { path.to_owned() } else { here.join(path).display().to_string() }
}

/// Returns the program that clients start, by its absolute path: a client that a shell didn't start
/// may not find the name. A project's file goes to other machines, so it contains the name instead,
/// if the name leads to this very program here.
///
/// # Errors
///
/// A package runner fetched this program, and none is installed.
fn program(for_project: bool) -> Result<String, Error> {
    let running = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .map_err(HostError::io("finding this program"))?;
    let path = match install_command(&running) {
        None => running,
        Some(command) => installed().ok_or_else(|| {
            Error::Usage(format!(
                "this program is in the cache of a package runner, which may be emptied. Install \
                 it with `{command}`, where PACKAGE is the file or package that you gave to the \
                 runner, then run `{NAME} mcp config` again"
            ))
        })?,
    };
    if for_project && installed().as_ref() == Some(&path) {
        return Ok(NAME.to_owned());
    }
    path.into_os_string().into_string().map_err(|path| {
        Error::Usage(format!(
            "{} can't be written into a client's file: the path isn't UTF-8",
            path.display()
        ))
    })
}

/// Returns the real path of the program that `PATH` finds by the name. Caches of package runners,
/// which these put into `PATH`, are left out.
fn installed() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    for folder in std::env::split_paths(&folders) {
        let path = folder.join(NAME);
        if is_program(&path)
            && let Ok(real_path) = path.canonicalize()
            && install_command(&real_path).is_none()
        {
            return Some(real_path);
        }
    }
    None
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn object(key: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value)]))
}
