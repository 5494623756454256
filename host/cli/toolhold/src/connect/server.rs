//! The server in a client's file: this program, which the client starts, or a running server.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Parser;
use toolhold_core::{HostError, NAME};
use toolhold_mcp_client::client_files::{ServerConfig, install_command};

use crate::arguments::Arguments;
use crate::arguments::connect::ConnectArguments;
use crate::error::Error;
use crate::options::Options;

/// The most bytes of the server's name in the client.
const MAX_NAME: usize = 64;

/// Checks the arguments, and returns the server that they describe.
pub(super) fn server(
    arguments: &ConnectArguments,
    options: &Options,
) -> Result<ServerConfig, Error> {
    let name = arguments.server_name();
    let has_name_letters = name.chars().all(|letter| letter == '-' || is_variable_letter(letter));
    if name.is_empty() || name.len() > MAX_NAME || !has_name_letters {
        return Err(Error::usage(
            "--name takes at most 64 letters, digits, `-` and `_`: the client shows the tools \
             under this name",
        ));
    }
    // Options before `--` don't apply to the server, although the person probably meant that, so
    // they are refused.
    let has_own_options = !options.allow.is_empty()
        || !options.allow_read.is_empty()
        || !options.plugin.is_empty()
        || !options.set.is_empty()
        || options.config.is_some();
    if has_own_options {
        return Err(Error::usage(
            "options of the server go after `--`, as in `toolhold connect cursor -- --allow \
             /home/u/project`",
        ));
    }
    match &arguments.http {
        Some(url) => http_server(url, arguments),
        None => stdio_server(arguments),
    }
}

/// Returns a running server at a URL.
fn http_server(url: &str, arguments: &ConnectArguments) -> Result<ServerConfig, Error> {
    let has_scheme = url.starts_with("http://") || url.starts_with("https://");
    if !has_scheme || !url.chars().all(|letter| letter.is_ascii_graphic()) {
        return Err(Error::usage("--http takes the server's URL, as in http://127.0.0.1:8300/mcp"));
    }
    if !arguments.serve.is_empty() {
        return Err(Error::usage(
            "with --http, the server is already running, so this command can't set options of the \
             server",
        ));
    }
    let variable = &arguments.token_variable;
    if variable.is_empty() || !variable.chars().all(is_variable_letter) {
        return Err(Error::usage(
            "--token-variable takes the name of an environment variable, never the token itself",
        ));
    }
    let variable = if arguments.oauth { None } else { Some(variable.clone()) };
    Ok(ServerConfig::Http { url: url.to_owned(), variable })
}

/// Returns the server that the client starts: this program, with the options after `--`.
fn stdio_server(arguments: &ConnectArguments) -> Result<ServerConfig, Error> {
    // Parsing only checks the options, so that a mistake is reported before the client starts the
    // server.
    let line =
        [NAME, "serve"].into_iter().map(str::to_owned).chain(arguments.serve.iter().cloned());
    if let Err(error) = Arguments::try_parse_from(line) {
        let message = error.to_string();
        let reason = message.lines().next().unwrap_or_default().trim_start_matches("error: ");
        return Err(Error::Usage(format!(
            "`toolhold serve` does not accept these options: {reason}"
        )));
    }
    let has_http =
        arguments.serve.iter().any(|word| word == "--http" || word.starts_with("--http="));
    if has_http {
        return Err(Error::usage(
            "a server that the client starts uses stdin and stdout; for a server over HTTP, use \
             --http URL",
        ));
    }
    let here = std::env::current_dir().map_err(HostError::io("finding the working directory"))?;
    let program = program(arguments.project)?;
    let mut words = vec!["serve".to_owned()];
    words.extend(with_absolute_paths(&arguments.serve, &here));
    Ok(ServerConfig::Stdio { program, arguments: words })
}

fn is_variable_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Options whose value is a path.
const PATH_OPTIONS: [&str; 4] = ["--allow", "--allow-read", "--plugin", "--config"];

/// Makes the paths in the options absolute, because the client starts the server in another
/// directory. Relative paths start at `here`.
fn with_absolute_paths(options: &[String], here: &Path) -> Vec<String> {
    let mut words = Vec::new();
    let mut follows_path_option = false;
    for word in options {
        if follows_path_option {
            words.push(absolute(word, here));
            follows_path_option = false;
            continue;
        }
        follows_path_option = PATH_OPTIONS.contains(&word.as_str());
        if let Some((option, path)) = word.split_once('=')
            && PATH_OPTIONS.contains(&option)
        {
            words.push(format!("{option}={}", absolute(path, here)));
        } else {
            words.push(word.clone());
        }
    }
    words
}

fn absolute(path: &str, here: &Path) -> String {
    if path.starts_with('~') { path.to_owned() } else { here.join(path).display().to_string() }
}

/// Returns the absolute path of the program that the client starts, because the client may have
/// another `PATH`. A project (`for_project`) is used on several machines, so its file gets only the
/// name of the program, provided that `PATH` leads to this program.
///
/// # Errors
///
/// Returns an error if this program is in a package runner's cache, and no other Toolhold is
/// installed.
fn program(for_project: bool) -> Result<String, Error> {
    let running = std::env::current_exe()
        .and_then(|path| path.canonicalize())
        .map_err(HostError::io("finding this program"))?;
    // A package runner may empty its cache, so a client's file must not name a program in it.
    let path = match install_command(&running) {
        None => running,
        Some(command) => installed().ok_or_else(|| {
            Error::Usage(format!(
                "this program is in the cache of a package runner, which may be emptied. Install \
                 it with `{command}`, where PACKAGE is the file or package that you gave to the \
                 runner, then run `{NAME} connect` again"
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

/// Returns the real path of the installed Toolhold in `PATH`. The caches that package runners add
/// to `PATH` are skipped.
fn installed() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    for folder in std::env::split_paths(&folders) {
        let path = folder.join(NAME);
        if is_program(&path)
            && let Ok(real_path) = path.canonicalize()
            // Only a program in a cache has a command that installs it.
            && install_command(&real_path).is_none()
        {
            return Some(real_path);
        }
    }
    None
}

/// Finds a program in the absolute folders of `PATH`.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    for folder in std::env::split_paths(&folders) {
        let path = folder.join(name);
        if folder.is_absolute() && is_program(&path) {
            return Some(path);
        }
    }
    None
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
