//! `toolhold init`: asks a few questions, writes the configuration, and imports and connects MCP
//! clients.

mod providers;
mod template;
mod undo;

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io::{BufRead, Write};
use std::path::Path;

use serde_json::json;
use toolhold_core::HostError;
use toolhold_core::config::{self, Config, Folders, Inputs, presets};
use toolhold_core::text::neutral_line;
use toolhold_models::choice::EnvironmentProvider;

use crate::arguments::connect::ConnectArguments;
use crate::arguments::{CallArguments, InitArguments, YesOrNo};
use crate::ask::{self, Dialogue};
use crate::call;
use crate::connect::{self, FoundClient};
use crate::error::Error;
use crate::exit::Exit;
use crate::granted_folder::{folder, folder_at};
use crate::mcp;
use crate::new_file;
use crate::options::Options;
use crate::shown::{self, toml};
use crate::style::{FAINT, STRONG, warn};

const NETWORK: &str = "Commands may use the network without asking; other tools need your \
                       approval.";
const ASKS: &str = "Changes of files there need your approval.";
const WRITES: &str =
    "Tools and commands work there without asking, and `toolhold undo` restores what they changed.";

#[derive(Debug, PartialEq)]
struct Answers {
    /// The granted folders: real paths, or `.`.
    folders: Vec<String>,
    write: bool,
    network: bool,
    /// The presets for toolchains in the home directory.
    presets: Vec<&'static str>,
    /// The model providers with a key in the environment.
    providers: Vec<EnvironmentProvider>,
}

pub(crate) fn run(arguments: &InitArguments, options: &Options) -> Result<Exit, Error> {
    if arguments.print {
        write!(std::io::stdout(), "{}", template::template())?;
        return Ok(Exit::Success);
    }
    let own = Folders::from_environment()?;
    if arguments.undo {
        return undo::undo(&own, arguments.yes, options);
    }
    let file = options.config_file(&own);
    if file.symlink_metadata().is_ok() {
        return Err(new_file::exists(&file));
    }
    for name in &arguments.connect {
        connect::check(name, options)?;
    }
    let here = config::working_directory()?;
    let mut folders = Vec::new();
    for path in &arguments.folder {
        let folder = folder_at(path, &own, &here)
            .map_err(|error| Error::Usage(format!("--folder {}: {error}", path.display())))?;
        folders.push(folder);
    }
    let write = arguments.write.map(|answer| answer == YesOrNo::Yes);
    let network = arguments.network.map(|answer| answer == YesOrNo::Yes);
    let found = found_presets(&own);
    let existing = load_without_file(options, &own)?;
    let mut clients = arguments.connect.clone();

    let mut dialogue = ask::open_dialogue("nothing was written");
    let is_watched = dialogue.is_some();
    let mut answers = match &mut dialogue {
        Some(dialogue) => {
            ask(dialogue, folders, write, network, |written| folder(written, &own, &here))?
        }
        None if folders.is_empty() && write.is_none() && network.is_none() => {
            let message = "there is no terminal to ask at; give the answers as options: toolhold \
                 init --folder DIRECTORY --write yes|no --network yes|no";
            return Err(Error::Usage(message.to_owned()));
        }
        None => Answers {
            folders: if folders.is_empty() { vec![".".to_owned()] } else { folders },
            write: write.unwrap_or(true),
            network: network.unwrap_or(false),
            presets: Vec::new(),
            providers: Vec::new(),
        },
    };
    let uses_presets = match (arguments.presets, &mut dialogue) {
        (Some(answer), _) => answer == YesOrNo::Yes,
        (None, Some(dialogue)) => !found.is_empty() && ask_for_presets(dialogue, &found)?,
        (None, None) => false,
    };
    if uses_presets {
        answers.presets = found;
    }
    answers.providers = providers::choose(arguments.providers, dialogue.as_mut(), &existing)?;
    if let Some(dialogue) = &mut dialogue
        && clients.is_empty()
        && options.config.is_none()
    {
        clients = ask_for_clients(dialogue)?;
    }
    let imports_servers = match (arguments.import, &mut dialogue) {
        (Some(answer), _) => answer == YesOrNo::Yes,
        (None, Some(dialogue)) => ask_for_import(dialogue)?,
        (None, None) => false,
    };
    drop(dialogue);

    new_file::create(&file, &configuration(&answers))?;
    let plugins = Config::default().plugin_folder(&own, &here);
    new_file::private_folder(&plugins)?;
    let mut written = vec![file.clone()];
    undo::record(&own, &written, Vec::new())?;
    write!(anstream::stdout(), "{}", describe(&answers, &file, &plugins))?;
    if answers.providers.is_empty() {
        write!(anstream::stdout(), "{}", providers::describe_found(&existing, &own))?;
    }
    if imports_servers {
        writeln!(anstream::stdout())?;
        let outcome = mcp::import_servers(&file, &own, &existing, !is_watched)?;
        for reason in &outcome.broken {
            warn(reason)?;
        }
        written.extend(outcome.secrets);
        undo::record(&own, &written, outcome.folders)?;
    }
    for name in &clients {
        let exit = connect::run(&ConnectArguments::of_client(name, !is_watched), options)?;
        if exit == Exit::Success {
            undo::record_client(&own, name)?;
        }
    }
    let exit = call_for_test(&answers, &here, options)?;
    // The clients are only shown here, so an unknown home isn't an error.
    let clients = connect::found_clients().unwrap_or_default();
    write!(anstream::stdout(), "{}", describe_next(&answers, &clients))?;
    Ok(exit)
}

/// Returns the presets for toolchains in the user's home, or in folders that variables name.
fn found_presets(own: &Folders) -> Vec<&'static str> {
    let Some(home) = &own.home else { return Vec::new() };
    let mut variables = BTreeMap::new();
    for (name, _) in presets::ROOTS {
        if let Ok(value) = std::env::var(name) {
            variables.insert(name.to_owned(), value);
        }
    }
    presets::found(&presets::Roots { home, variables: &variables })
}

fn ask_for_presets<R: BufRead, W: Write>(
    dialogue: &mut Dialogue<R, W>,
    found: &[&str],
) -> Result<bool, Error> {
    dialogue.print(&format!(
        "Your home has programs, settings and caches of: {}. Commands can't see these files \
         without a preset. With a preset, commands may read the programs and write the caches; \
         credentials stay hidden.",
        found.join(", ")
    ))?;
    let default_answer = true;
    dialogue.yes_or_no("May commands use these toolchains?", default_answer)
}

/// Loads the configuration that applies without a file of the user.
fn load_without_file(options: &Options, own: &Folders) -> Result<Config, Error> {
    let empty = tempfile::NamedTempFile::new().map_err(HostError::io("making an empty file"))?;
    let file = Some(empty.path().to_owned());
    let inputs = Inputs { file, working_directory: None, ..options.inputs()? };
    Ok(config::load(own, &inputs).map_err(HostError::from)?)
}

/// Asks about each MCP client on this machine that isn't connected. Returns the clients to connect.
fn ask_for_clients<R: BufRead, W: Write>(
    dialogue: &mut Dialogue<R, W>,
) -> Result<Vec<String>, Error> {
    let mut clients = Vec::new();
    for found in connect::found_clients()? {
        if !found.has_settings || found.is_connected {
            continue;
        }
        let title = found.client.title;
        let question = format!("Connect {title} to the tools? Toolhold shows the change first.");
        let default_answer = true;
        if dialogue.yes_or_no(&question, default_answer)? {
            clients.push(found.client.name.to_owned());
        }
    }
    Ok(clients)
}

/// Asks whether to import the servers of MCP clients. Returns `false` if there are no servers.
fn ask_for_import<R: BufRead, W: Write>(dialogue: &mut Dialogue<R, W>) -> Result<bool, Error> {
    let titles = mcp::clients_with_servers()?;
    if titles.is_empty() {
        return Ok(false);
    }
    let question = format!("Import the servers of {}? You see them first.", titles.join(", "));
    let default_answer = true;
    dialogue.yes_or_no(&question, default_answer)
}

/// Lists the first folder, as a test of the new configuration.
fn call_for_test(answers: &Answers, here: &Path, options: &Options) -> Result<Exit, Error> {
    let path = test_path(answers, here);
    let mut shown_argument = String::new();
    let mut arguments = Vec::new();
    if let Some(path) = path {
        shown_argument = format!(" path={}", shown::shell_word(&neutral_line(&path)));
        arguments.push(format!("path={path}"));
    }
    writeln!(anstream::stdout(), "\nA test call: toolhold call list_directory{shown_argument}")?;
    call::run(&CallArguments::of_tool("list_directory", arguments), options)
}

/// Returns the folder for the test call, or `None` if the working directory is granted.
fn test_path(answers: &Answers, here: &Path) -> Option<String> {
    let is_covered = answers.folders.iter().any(|folder| folder == "." || here.starts_with(folder));
    if is_covered { None } else { answers.folders.first().cloned() }
}

/// Asks for values that the command line lacks: folders if `folders` is empty, and other values
/// that are `None`. `check` checks a folder, and returns the folder's text for the file.
fn ask<R: BufRead, W: Write, E: Display>(
    dialogue: &mut Dialogue<R, W>,
    mut folders: Vec<String>,
    write: Option<bool>,
    network: Option<bool>,
    check: impl Fn(&str) -> Result<String, E>,
) -> Result<Answers, Error> {
    if folders.is_empty() {
        folders = ask_for_folders(dialogue, check)?;
    }
    let write = match write {
        Some(write) => write,
        None => {
            dialogue.print(
                "Commands run in a sandbox. Toolhold saves files before a change, and `toolhold \
                 undo` restores the files.",
            )?;
            let default_answer = true;
            dialogue.yes_or_no(
                "May tools and commands change files in these folders without asking?",
                default_answer,
            )?
        }
    };
    let network = match network {
        Some(network) => network,
        None => {
            let default_answer = false;
            dialogue.yes_or_no("May commands use the network without asking?", default_answer)?
        }
    };
    // The presets and providers are asked about later.
    Ok(Answers { folders, write, network, presets: Vec::new(), providers: Vec::new() })
}

/// Asks for folders until the person wants no more. `check` returns a folder's text for the file.
fn ask_for_folders<R: BufRead, W: Write, E: Display>(
    dialogue: &mut Dialogue<R, W>,
    check: impl Fn(&str) -> Result<String, E>,
) -> Result<Vec<String>, Error> {
    dialogue.print(
        "Which folders may tools use? Enter means \".\": the folder in which \
         toolhold is started each time.",
    )?;
    let mut folders = Vec::new();
    loop {
        let is_first = folders.is_empty();
        let question =
            if is_first { "Path of a folder [.]:" } else { "Path of another folder [no more]:" };
        let answer = dialogue.ask(question)?;
        if is_first && answer.is_empty() {
            folders.push(".".to_owned());
            continue;
        }
        // The prompt offers "no more". A folder `no` can be entered as `./no`.
        let is_no = ["", "n", "no", "no more"].contains(&answer.to_ascii_lowercase().as_str());
        if !is_first && is_no {
            return Ok(folders);
        }
        match check(&answer) {
            Ok(folder) if folders.contains(&folder) => {
                dialogue.print("  That folder is already in the list.")?;
            }
            Ok(folder) => {
                if folder != answer {
                    dialogue.print(&format!("  That is {}.", neutral_line(&folder)))?;
                }
                folders.push(folder);
            }
            Err(error) => dialogue.print(&format!("  {}.", neutral_line(&error.to_string())))?,
        }
    }
}

/// Returns the text of the new `toolhold.toml`. Writing to a string never fails, so the results of
/// `writeln!` are ignored.
fn configuration(answers: &Answers) -> String {
    let mut text = "\
# Toolhold's configuration, written by `toolhold init`. `toolhold init --print` shows all keys,
# `toolhold config check` finds errors in this file, and `toolhold config show` prints the
# current values.
"
    .to_owned();
    text += "\n[tools]\n# \"ask\": every change needs approval. \"sandboxed\": file tools, and \
         commands in the sandbox,\n# need no approval, because `toolhold undo` restores their \
         changes.\n";
    let autonomy = if answers.write { "sandboxed" } else { "ask" };
    let _ = writeln!(text, "autonomy = \"{autonomy}\"");
    text += "\n[tools.file]\n# The folders that the built-in tools may use. \".\" is the folder in \
         which toolhold is started.\n";
    text += "# { path = \"…\", access = \"read\" } is only for reading.\nallowed_paths = [\n";
    for folder in &answers.folders {
        let _ = writeln!(text, "  {},", toml(&json!(folder)));
    }
    text += "]\n";
    text += "# Files that are never read or written, in any folder; remove the # to use this \
         line.\n";
    text += "# deny_read = [\"**/.env\", \"~/.ssh\"]\n";
    if answers.network || !answers.presets.is_empty() {
        text += "\n[tools.shell]\n";
    }
    if answers.network {
        text += "# \"ask\": each host needs approval. \"deny\": no command gets the \
             network.\nnetwork = \"allow\"\n";
    }
    if !answers.presets.is_empty() {
        text += "# Toolchains in your home: their programs are read, and their caches written.\n";
        let _ = writeln!(text, "presets = {}", toml(&json!(answers.presets)));
    }
    text + &providers::tables(&answers.providers)
}

/// Describes the new configuration. `plugins` is the folder for plugins.
fn describe(answers: &Answers, file: &Path, plugins: &Path) -> String {
    let mut text = format!(
        "Wrote {STRONG}{}{STRONG:#}. The folder for plugins is {}.\n",
        shown::path(file),
        shown::path(plugins)
    );
    text += if answers.write { WRITES } else { ASKS };
    text.push('\n');
    if answers.network {
        text += &format!("{NETWORK}\n");
    }
    if let Some(first) = answers.providers.first() {
        let model = &first.settings.model;
        text += &format!("The agent uses {model} of {}, {}.\n", first.known.name, first.origin());
    }
    text
}

/// Names the next commands, and the connected clients.
fn describe_next(answers: &Answers, clients: &[FoundClient]) -> String {
    let chat = if answers.providers.is_empty() { "" } else { "  toolhold chat\n" };
    let mut text = format!(
        "\nTry next:\n  toolhold tools\n{chat}  toolhold connect\n  toolhold mcp import\n  \
         {FAINT}toolhold config show{FAINT:#}\n"
    );
    for FoundClient { client, is_found, is_connected, .. } in clients {
        if !is_found {
            continue;
        }
        let title = client.title;
        if *is_connected {
            text += &format!("{title} is connected, from its next start on.\n");
        } else {
            let name = client.name;
            text +=
                &format!("{title} is not connected. To connect it: `toolhold connect {name}`\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers to typed input, and the shown text.
    fn dialogue(typed: &str) -> (Result<Answers, Error>, String) {
        let mut shown = Vec::new();
        let check = |written: &str| {
            if written.starts_with("/bad") {
                Err(format!("{written} is bad"))
            } else {
                Ok(written.replace('~', "/h"))
            }
        };
        let answers = ask(
            &mut Dialogue::between(typed.as_bytes(), &mut shown),
            Vec::new(),
            None,
            None,
            check,
        );
        (answers, anstream::adapter::strip_str(&String::from_utf8_lossy(&shown)).to_string())
    }

    fn answers(folders: &[&str], write: bool, network: bool) -> Answers {
        Answers {
            folders: folders.iter().map(|&folder| folder.to_owned()).collect(),
            write,
            network,
            presets: Vec::new(),
            providers: Vec::new(),
        }
    }

    #[test]
    fn enter_keeps_the_defaults() {
        assert_eq!(dialogue("\n\n\n\n").0.ok(), Some(answers(&["."], true, false)));
    }

    #[test]
    fn ungrantable_folder_is_asked_again() {
        let (said, shown) = dialogue("/bad/one\n~/a\n/h/a\n/b\n\nno\nmaybe\ny\n");
        assert_eq!(said.ok(), Some(answers(&["/h/a", "/b"], false, true)));
        assert!(
            shown.contains("  /bad/one is bad.\n") && shown.contains("  That is /h/a.\n"),
            "{shown}"
        );
        assert!(
            shown.contains("  That folder is already in the list.\n")
                && shown.contains("answer y or n"),
            "{shown}"
        );
        assert!(dialogue("/a\n").0.is_err(), "the end of the input is no answer");
    }

    #[test]
    fn init_summary_is_true() {
        let file = Path::new("/c/toolhold.toml");
        let told = |answers: &Answers| describe(answers, file, Path::new("/d/plugins"));
        assert!(
            told(&answers(&["."], false, true)).contains(ASKS)
                && told(&answers(&["."], true, true)).contains(NETWORK)
        );
        let all = told(&answers(&["."], true, false));
        assert!(!all.contains(ASKS) && !all.contains(NETWORK), "{all}");
        let here = Path::new("/w");
        assert_eq!(test_path(&answers(&["/a b", "."], true, false), here), None);
        assert_eq!(test_path(&answers(&["/a b"], true, false), here).as_deref(), Some("/a b"));
        let with_presets = Answers { presets: vec!["cargo"], ..answers(&["."], true, false) };
        assert!(configuration(&with_presets).contains("[tools.shell]\n# Toolchains"));
        let read = configuration(&answers(&["/a\"b"], false, false));
        assert!(read.contains("  \"/a\\\"b\",\n") && read.contains("autonomy = \"ask\""), "{read}");
        let writes = configuration(&answers(&["."], true, false));
        assert!(writes.contains("autonomy = \"sandboxed\""), "{writes}");
    }
}
