//! `berth mcp import`: the servers of MCP clients become servers of Berth.

mod found;
mod table;

use std::io::Write;
use std::path::Path;

use berth_clients::{CLIENTS, Client};
use berth_core::HostError;
use berth_core::config::{self, Folders, Inputs, Loaded};
use berth_core::text::{counted, cut, neutral, neutral_line};
use berth_private::PrivateFolder;
use berth_terminal::error::CommandError;
use berth_terminal::exit::Exit;
use berth_terminal::style::{FAINT, STRONG};
use berth_terminal::{changed_file, nearest::nearest};
use clap::Args;

use crate::written;
use found::{Found, found};
use table::{Imported, imported};

pub use found::moved;

/// The folder of the secrets that were imported, beside `berth.toml`.
const SECRETS: &str = "secrets";

/// `berth mcp import`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  berth mcp import\n  berth mcp import cursor\n  berth mcp import claude-code --project\n\nThe servers that the files of your MCP clients name become tables of your \
                  berth.toml. Credentials become secrets in files beside it. Nothing starts before `berth mcp approve`. Afterwards `berth mcp config CLIENT --write --replace` \
                  puts Berth into the client's file, in their place."
)]
pub struct ImportArguments {
    /// The client; without one, all known clients
    client: Option<String>,
    /// Read the file of the project in the working directory, instead of the user's
    #[arg(long)]
    project: bool,
    /// Import without asking
    #[arg(long)]
    yes: bool,
}

/// Runs the command. `file`: the user's `berth.toml`.
pub(crate) fn import(
    arguments: &ImportArguments,
    file: &Path,
    folders: &Folders,
    config: &Loaded,
    confirm: impl FnOnce(&str) -> Result<bool, CommandError>,
) -> Result<Exit, CommandError> {
    let clients = match &arguments.client {
        Some(name) => vec![named(name)?],
        None => CLIENTS.iter().collect(),
    };
    let mut out = anstream::stdout();
    let (mut tables, mut looked): (Vec<Imported>, u64) = (Vec::new(), 0);
    for client in clients {
        let Some((path, all)) = found(client, arguments.project)? else { continue };
        looked += 1;
        let path = neutral_line(&path.display().to_string());
        writeln!(out, "{STRONG}{}{STRONG:#} {FAINT}{path}{FAINT:#}", client.title)?;
        for Found { name, server } in all {
            let new = server.and_then(|server| imported(&name, server, config, &tables));
            let new = new.and_then(|new| checked(new, folders));
            let name = neutral_line(cut(&name, 128));
            match new {
                Ok(new) => {
                    writeln!(out, "  {name}")?;
                    tables.push(new);
                }
                Err(reason) => writeln!(out, "  {name} is left out: {}", neutral_line(&reason))?,
            }
        }
    }
    if tables.is_empty() {
        let found = if looked == 0 { "No such file is there" } else { "No server is to be added" };
        writeln!(out, "{found}.")?;
        return Ok(Exit::Success);
    }
    let shown = neutral_line(&file.display().to_string());
    writeln!(out, "\nThis is to be added to {shown}:")?;
    for Imported { name, table, secrets } in &tables {
        writeln!(out, "\n{}", neutral(&written::shown(name, table)))?;
        for (secret, _) in secrets {
            writeln!(out, "{FAINT}# its value goes into {SECRETS}/{secret}{FAINT:#}")?;
        }
    }
    let question = format!("Add {}?", counted(tables.len() as u64, "server"));
    if !arguments.yes && !confirm(&question)? {
        writeln!(out, "Nothing was changed.")?;
        return Ok(Exit::Denied);
    }
    store(file, &tables)?;
    writeln!(
        out,
        "\nThey have no folder, and no network unless it stands there. Add what each needs, then see \
         what it offers:"
    )?;
    for Imported { name, .. } in &tables {
        writeln!(out, "  berth mcp approve {name}")?;
    }
    Ok(Exit::Success)
}

/// A server that the configuration takes: a name of a variable that it doesn't know would keep the
/// whole file from being read.
fn checked(new: Imported, folders: &Folders) -> Result<Imported, String> {
    let mut file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    file.write_all(written::shown(&new.name, &new.table).as_bytes())
        .map_err(|error| error.to_string())?;
    let inputs = Inputs { file: Some(file.path().to_owned()), ..Inputs::default() };
    match config::load(folders, &inputs) {
        Ok(_) => Ok(new),
        Err(problems) => {
            let problem = problems.0.into_iter().next().map(|problem| problem.message);
            Err(problem.unwrap_or_default())
        }
    }
}

/// The client with this name.
fn named(name: &str) -> Result<&'static Client, CommandError> {
    CLIENTS.iter().find(|client| client.name == name).ok_or_else(|| {
        let near = nearest(name, CLIENTS.iter().map(|client| client.name));
        let hint = near.map_or_else(
            || "`berth mcp config` lists those that are known".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        CommandError::Usage(format!("there is no client `{}`; {hint}", neutral_line(name)))
    })
}

/// Writes the secrets, and then the tables that name them.
fn store(file: &Path, tables: &[Imported]) -> Result<(), CommandError> {
    let folder = file.parent().unwrap_or(Path::new(".")).join(SECRETS);
    let failed = || HostError::io(format!("writing secrets into {}", folder.display()));
    let secrets: Vec<&(String, String)> =
        tables.iter().flat_map(|imported| &imported.secrets).collect();
    if !secrets.is_empty() {
        let folder = PrivateFolder::make(&folder).map_err(failed())?;
        for (name, value) in secrets {
            folder.put(name, value.as_bytes()).map_err(failed())?;
        }
    }
    changed_file::change(file, false, |text| written::add_tables(text, tables_of(tables)))?;
    Ok(())
}

fn tables_of(tables: &[Imported]) -> impl Iterator<Item = (&str, &toml_edit::Table)> {
    tables.iter().map(|imported| (imported.name.as_str(), &imported.table))
}
