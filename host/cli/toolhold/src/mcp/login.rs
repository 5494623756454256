//! `toolhold mcp login` and `toolhold mcp logout`.

use std::io::Write;

use toolhold_core::config::{Config, Folders, McpServer};
use toolhold_core::text::{cut, neutral_line};
use toolhold_mcp_client::{LoginError, LoginPage, forget_tokens};

use crate::error::Error;
use crate::exit::Exit;
use crate::style::{FAINT, STRONG};

/// The most bytes of the authorization server's name on the terminal.
const MAX_ISSUER: usize = 200;

/// Returns the configured server `name`, which must have a URL.
fn server<'a>(config: &'a Config, name: &str) -> Result<&'a McpServer, Error> {
    let shown = neutral_line(name);
    match config.values.mcp.servers.get(name) {
        Some(server) if !server.url.is_empty() => Ok(server),
        Some(_) => Err(Error::Usage(format!(
            "[mcp.servers.{shown}] is a program; only servers with `url` have a login"
        ))),
        None => Err(Error::Usage(format!("your configuration has no [mcp.servers.{shown}]"))),
    }
}

/// Logs in to the server `name` in the browser.
pub(crate) async fn login(config: &Config, folders: &Folders, name: &str) -> Result<Exit, Error> {
    let server = server(config, name)?;
    toolhold_mcp_client::login(config, folders, name, server, show).await.map_err(|error| {
        match error {
            LoginError::Host(error) => Error::Host(error),
            LoginError::Io(error) => Error::Write(error),
        }
    })?;
    writeln!(
        anstream::stderr(),
        "You are logged in. `toolhold mcp approve {name}` shows the server's tools."
    )?;
    Ok(Exit::Success)
}

/// Prints the URL of the login page.
fn show(page: &LoginPage) -> std::io::Result<()> {
    let mut err = anstream::stderr();
    writeln!(
        err,
        "{STRONG}Open this URL and log in at {}:{STRONG:#}",
        neutral_line(cut(&page.issuer, MAX_ISSUER))
    )?;
    writeln!(std::io::stdout().lock(), "{}", page.address)?;
    writeln!(err, "{FAINT}After the login, the browser returns to {}.{FAINT:#}", page.back)
}

pub(crate) fn logout(config: &Config, folders: &Folders, name: &str) -> Result<Exit, Error> {
    let server = server(config, name)?;
    forget_tokens(folders, name, &server.url)?;
    writeln!(anstream::stderr(), "Toolhold no longer has tokens for {name}.")?;
    Ok(Exit::Success)
}
