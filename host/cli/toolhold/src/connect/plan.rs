//! The changes that connect a client, before they are made.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use toolhold_core::config::Folders;
use toolhold_core::text::neutral;
use toolhold_mcp_client::client_files::{
    Client, ClientState, Format, NamedServer, ServerConfig, Setting, edit, servers, set, without,
};

use super::record::{Connections, RecordKey};
use super::{command_line, run_or_print};
use crate::arguments::connect::ConnectArguments;
use crate::changed_file::FileChange;
use crate::error::Error;
use crate::host;
use crate::mcp::{Moved, moved};
use crate::options::Options;
use crate::style::FAINT;

/// The most bytes of a client's file. Claude Code also keeps its history in this file.
const MAX_FILE: u64 = 64 << 20;

pub(super) struct Plan {
    key: RecordKey,
    /// The server's name in the client.
    name: String,
    format: Format,
    changes: Vec<FileChange>,
    /// The client's own commands, in order.
    commands: Vec<Vec<String>>,
    /// The command that undoes the last command of `commands`.
    undo_command: Vec<String>,
    /// Sentences for the person.
    notes: Vec<String>,
    moved: Moved,
}

impl Plan {
    pub(super) fn new(
        client: &'static Client,
        arguments: &ConnectArguments,
        server: &ServerConfig,
        only_toolhold: bool,
        options: &Options,
        folders: &Folders,
    ) -> Result<Self, Error> {
        let name = arguments.server_name();
        let mut plan = Self {
            key: RecordKey::new(client, arguments.project)?,
            name: name.to_owned(),
            format: client.format,
            changes: Vec::new(),
            commands: Vec::new(),
            undo_command: client.remove_command(name),
            notes: Vec::new(),
            moved: Moved::default(),
        };
        let mut settings = Vec::new();
        plan.add_state(client.permission(name), &mut settings);
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
                    "a running {title} overwrites the file with the user's servers, so --replace \
                     needs --project"
                )));
            }
            plan.add_commands(client, server)?;
            plan.add_settings(&settings_file, arguments.project, &settings)?;
            return Ok(plan);
        };

        let loaded = if arguments.replace { Some(host::load(options, folders)?) } else { None };
        let own_config = loaded.as_ref().map(|loaded| (loaded, folders));
        let has_settings = settings_file == file;
        let change = FileChange::plan(&file, arguments.project, |before| {
            plan.moved = moved(servers(client, before)?, own_config);
            let without_moved = without(client.format, before, client.table, &plan.moved.names)?;
            let connected = edit(client.format, &without_moved, client.table, name, &entry)?;
            if has_settings { set(client.format, &connected, &settings) } else { Ok(connected) }
        })?;
        plan.changes.extend(change);
        plan.notes.append(&mut plan.moved.notes);
        if !has_settings {
            plan.add_settings(&settings_file, arguments.project, &settings)?;
        }
        Ok(plan)
    }

    /// Adds the settings for a state of the client to `settings`. If the person must act, adds a
    /// note.
    fn add_state(&mut self, state: ClientState, settings: &mut Vec<Setting>) {
        match state {
            // The server's entry already has the effect, so there is nothing to add.
            ClientState::InEntry => {}
            ClientState::Settings(mut more, note) => {
                settings.append(&mut more);
                if !note.is_empty() {
                    self.notes.push(note.to_owned());
                }
            }
            ClientState::ByHand(note) => self.notes.push(note.into_owned()),
        }
    }

    /// Adds the change of a settings file, if the file changes.
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

    /// Adds the client's commands that add `server` in place of another server of the same name.
    /// Adds no commands if the client already has `server`.
    fn add_commands(&mut self, client: &Client, server: &ServerConfig) -> Result<(), Error> {
        let present_server = match client.read_file().map_err(Error::usage)? {
            Some(file) => named_server(client, &file, &self.name),
            None => None,
        };
        if let Some(present_server) = present_server {
            if is_same(&present_server, server) {
                return Ok(());
            }
            self.commands.push(client.remove_command(&self.name));
        }
        self.commands.push(client.command(&self.name, server));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.commands.is_empty()
    }

    /// Prints the changes without credentials, and the notes.
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

    /// Makes the changes. Each change is recorded first, so that it can be undone after a failure.
    /// Returns whether all of the client's commands ran.
    pub(super) fn make(&self, folders: &Folders) -> Result<bool, Error> {
        for change in &self.changes {
            Connections::add_file(folders, &self.key, &self.name, self.format, change)?;
            change.write()?;
        }
        if !self.commands.is_empty() {
            Connections::add_command(folders, &self.key, &self.name, &self.undo_command)?;
        }
        let mut has_run_all = true;
        for command in &self.commands {
            if !run_or_print(command)? {
                has_run_all = false;
            }
        }
        Ok(has_run_all)
    }
}

/// Returns the server of this name in a client's file, if its entry can be read.
fn named_server(client: &Client, file: &Path, name: &str) -> Option<NamedServer> {
    let bytes = toolhold_data_dir::read_regular(file, MAX_FILE).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    for (server_name, entry) in servers(client, &text).ok()? {
        if server_name == name {
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
