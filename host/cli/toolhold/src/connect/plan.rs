//! The changes that connect a client, before they are made.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use toolhold_core::config::Folders;
use toolhold_core::text::neutral;
use toolhold_mcp_client::client_files::{
    Client, ClientState, Format, NamedServer, ServerConfig, Setting, edit, servers, set, without,
};

use super::record::{Connection, RecordKey};
use super::{command_line, run_or_print};
use crate::arguments::connect::ConnectArguments;
use crate::changed_file::FileChange;
use crate::error::Error;
use crate::host;
use crate::mcp::{Moved, moved};
use crate::options::Options;
use crate::style::FAINT;

/// Largest file of a client that is read, in bytes. Claude Code keeps its history in the file.
const LONGEST: u64 = 64 << 20;

/// The changes that connect a client.
pub(super) struct Plan {
    key: RecordKey,
    format: Format,
    changes: Vec<FileChange>,
    /// The commands of the client, which are run in this order.
    commands: Vec<Vec<String>>,
    /// The command that takes the last of them back.
    undo_command: Vec<String>,
    /// Sentences for the user.
    notes: Vec<String>,
    moved: Moved,
}

impl Plan {
    /// Plans the changes.
    ///
    /// # Errors
    ///
    /// A file can't be read or changed, or the client can't use such a server.
    pub(super) fn new(
        client: &'static Client,
        arguments: &ConnectArguments,
        server: &ServerConfig,
        only_toolhold: bool,
        options: &Options,
        folders: &Folders,
    ) -> Result<Self, Error> {
        let mut plan = Self {
            key: RecordKey::new(client, arguments.project)?,
            format: client.format,
            changes: Vec::new(),
            commands: Vec::new(),
            undo_command: client.remove_command(&arguments.name),
            notes: Vec::new(),
            moved: Moved::default(),
        };
        let mut settings = Vec::new();
        plan.add_state(client.permission(&arguments.name), &mut settings);
        if only_toolhold {
            plan.add_state(client.own_tools_off(), &mut settings);
        }
        let entry = client.entry(server).map_err(Error::usage)?;
        let servers_file = if arguments.project {
            Some(client.project_file().map_err(Error::usage)?)
        } else {
            client.user_file().map_err(Error::usage)?
        };
        let settings_file = client.settings_file(arguments.project).map_err(Error::usage)?;
        let Some(file) = servers_file else {
            if arguments.replace {
                let title = client.title;
                return Err(Error::Usage(format!(
                    "{title} rewrites the file with its user's servers while it runs; --replace \
                     works with --project"
                )));
            }
            plan.add_commands(client, arguments, server)?;
            plan.add_settings(&settings_file, arguments.project, &settings)?;
            return Ok(plan);
        };

        let loaded = if arguments.replace { Some(host::load(options, folders)?) } else { None };
        let ours = loaded.as_ref().map(|ours| (ours, folders));
        let has_settings = settings_file == file;
        let change = FileChange::plan(&file, arguments.project, |before| {
            plan.moved = moved(servers(client, before)?, ours);
            let without_moved = without(client.format, before, client.table, &plan.moved.names)?;
            let connected =
                edit(client.format, &without_moved, client.table, &arguments.name, &entry)?;
            if has_settings { set(client.format, &connected, &settings) } else { Ok(connected) }
        })?;
        plan.changes.extend(change);
        plan.notes.append(&mut plan.moved.notes);
        if !has_settings {
            plan.add_settings(&settings_file, arguments.project, &settings)?;
        }
        Ok(plan)
    }

    /// Adds the settings that bring a client into a state, or the sentence about it.
    fn add_state(&mut self, state: ClientState, settings: &mut Vec<Setting>) {
        match state {
            ClientState::InEntry => {}
            ClientState::Settings(mut more, note) => {
                settings.append(&mut more);
                if !note.is_empty() {
                    self.notes.push(note.to_owned());
                }
            }
            ClientState::ByHand(note) => self.notes.push(note.to_owned()),
        }
    }

    /// Adds the change of the file with the client's settings.
    fn add_settings(
        &mut self,
        file: &Path,
        in_project: bool,
        settings: &[Setting],
    ) -> Result<(), Error> {
        let format = self.format;
        let change = FileChange::plan(file, in_project, |before| set(format, before, settings))?;
        self.changes.extend(change);
        Ok(())
    }

    /// Adds the client's own commands, unless its file has the server already.
    fn add_commands(
        &mut self,
        client: &Client,
        arguments: &ConnectArguments,
        server: &ServerConfig,
    ) -> Result<(), Error> {
        let known = match client.read_file().map_err(Error::usage)? {
            Some(file) => named_server(client, &file, &arguments.name),
            None => None,
        };
        if let Some(known) = known {
            if is_same(&known, server) {
                return Ok(());
            }
            self.commands.push(client.remove_command(&arguments.name));
        }
        self.commands.push(client.command(&arguments.name, server));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.commands.is_empty()
    }

    /// Shows the whole change, without credentials, and the notes.
    pub(super) fn show(&self) -> Result<(), Error> {
        let mut out = std::io::stdout().lock();
        for command in &self.commands {
            writeln!(out, "$ {}", command_line(command))?;
        }
        for change in &self.changes {
            write!(out, "{}", neutral(&self.moved.hide(&change.diff())))?;
        }
        for note in &self.notes {
            writeln!(anstream::stderr(), "{FAINT}{note}{FAINT:#}")?;
        }
        Ok(())
    }

    /// Returns the change for programs.
    pub(super) fn to_json(&self, client: &Client, is_written: bool) -> Value {
        let mut files = Vec::new();
        for change in &self.changes {
            files.push(json!({ "file": change.path(), "diff": self.moved.hide(&change.diff()) }));
        }
        json!({
            "client": client.name,
            "changed": !self.is_empty(),
            "written": is_written,
            "files": files,
            "commands": self.commands,
            "notes": self.notes,
        })
    }

    /// Makes the changes. Each is recorded before, so that it can be taken back. Returns whether
    /// all commands of the client ran; otherwise, they are printed.
    ///
    /// # Errors
    ///
    /// A file can't be written, or a command fails.
    pub(super) fn make(&self, folders: &Folders) -> Result<bool, Error> {
        for change in &self.changes {
            Connection::add_file(folders, &self.key, self.format, change)?;
            change.write()?;
        }
        if !self.commands.is_empty() {
            Connection::add_command(folders, &self.key, &self.undo_command)?;
        }
        let mut has_run_all = true;
        for command in &self.commands {
            has_run_all &= run_or_print(command)?;
        }
        Ok(has_run_all)
    }
}

/// Returns the server of a name in a client's file.
fn named_server(client: &Client, file: &Path, name: &str) -> Option<NamedServer> {
    let bytes = toolhold_data_dir::read_regular(file, LONGEST).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    for (known, entry) in servers(client, &text).ok()? {
        if known == name {
            return Some(entry.ok()?.server);
        }
    }
    None
}

fn is_same(known: &NamedServer, server: &ServerConfig) -> bool {
    match (known, server) {
        (NamedServer::Program { words, .. }, ServerConfig::Stdio { program, arguments }) => {
            words.split_first().is_some_and(|(first, rest)| first == program && rest == arguments)
        }
        (NamedServer::Url { url: known, .. }, ServerConfig::Http { url, .. }) => known == url,
        _ => false,
    }
}
