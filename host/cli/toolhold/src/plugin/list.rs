//! `toolhold plugin list` and `toolhold plugin reload`.

use std::io::Write;
use std::time::Duration;

use serde_json::json;
use toolhold_core::config::{self, Folders};
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{Ask, Host, HostPlugins, PluginPlace, PluginState, ask_hosts};

use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use crate::plugin::built_in_names;
use crate::plugin::install::Installer;
use crate::shown;
use crate::style::{BAD, FAINT, GOOD, STRONG};
use toolhold_terminal::table::Table;

/// Lists the plugins of the running hosts or, if no host is running, the plugins that a new host
/// would load.
pub(super) fn list(as_json: bool, options: &Options) -> Result<Exit, Error> {
    let hosts = ask_hosts(&Folders::from_environment()?, Ask::Plugins)?;
    if !hosts.is_empty() {
        show(&hosts, as_json)?;
        if !as_json {
            name_uninstalled(options)?;
        }
        return Ok(Exit::Success);
    }
    let plugins = host::run(options, async |host: Host| Ok(host.plugins()))?;
    if as_json {
        writeln!(std::io::stdout(), "{:#}", json!([{ "pid": null, "plugins": plugins }]))?;
        return Ok(Exit::Success);
    }
    let mut out = anstream::stdout().lock();
    print_table(&mut out, &plugins)?;
    writeln!(
        out,
        "\n{FAINT}No running host watches its plugins; a new host would load the plugins \
         above.{FAINT:#}"
    )?;
    name_uninstalled(options)?;
    Ok(Exit::Success)
}

/// Prints the names of plugins that have a `source` in the configuration, but aren't installed.
fn name_uninstalled(options: &Options) -> Result<(), Error> {
    let folders = Folders::from_environment()?;
    // Running hosts use an earlier configuration, so an invalid configuration isn't an error.
    let Ok(loaded) = config::load(&folders, &options.inputs()?) else { return Ok(()) };
    let built_in = built_in_names();
    let wanted = Installer::new(&folders, &loaded, &built_in).wanted()?;
    if !wanted.is_empty() {
        let names: Vec<String> = wanted.iter().map(|(name, _)| neutral_line(name)).collect();
        writeln!(
            anstream::stdout(),
            "\nNot installed: {}. `toolhold plugin install` installs them.",
            names.join(", ")
        )?;
    }
    Ok(())
}

/// Makes the running hosts load changed plugins, and lists all their plugins.
pub(super) fn reload(as_json: bool) -> Result<Exit, Error> {
    let hosts = ask_hosts(&Folders::from_environment()?, Ask::Reload)?;
    if hosts.is_empty() && !as_json {
        writeln!(
            anstream::stdout(),
            "No running host watches its plugins, so there is nothing to reload. Each new host \
             loads the current plugins."
        )?;
        return Ok(Exit::Success);
    }
    show(&hosts, as_json)
}

fn show(hosts: &[HostPlugins], as_json: bool) -> Result<Exit, Error> {
    if as_json {
        writeln!(std::io::stdout(), "{:#}", json!(hosts))?;
        return Ok(Exit::Success);
    }
    let mut out = anstream::stdout().lock();
    for (index, host) in hosts.iter().enumerate() {
        let gap = if index == 0 { "" } else { "\n" };
        writeln!(out, "{gap}{STRONG}Host with process {}{STRONG:#}", host.pid)?;
        print_table(&mut out, &host.plugins)?;
    }
    Ok(Exit::Success)
}

/// The most bytes of a list below a plugin.
const MAX_LIST: usize = 400;

/// The most bytes of a version in the table.
const MAX_VERSION: usize = 40;

/// The shown digits of a digest.
const SHORT_DIGEST: usize = 12;

const COLUMNS: usize = 9;

const HEADS: [&str; COLUMNS] =
    ["NAME", "VERSION", "GEN", "DIGEST", "STATE", "CALLS", "FAILED", "P50", "P99"];

const STATE_COLUMN: usize = 4;

fn print_table(out: &mut impl Write, plugins: &[PluginState]) -> std::io::Result<()> {
    const NUMBER_COLUMNS: &[usize] = &[2, 5, 6, 7, 8];
    let mut table = Table::new(HEADS, NUMBER_COLUMNS);
    for plugin in plugins {
        table.row(cells(plugin));
        table.colour(STATE_COLUMN, if plugin.digest.is_some() { GOOD } else { BAD });
        add_list(&mut table, "reaches", &plugin.hosts);
        add_list(&mut table, "secrets:", &plugin.secrets);
        if let Some(waiting) = &plugin.waiting {
            let version = match &waiting.version {
                Some(version) => format!("{} ", cut(version, MAX_VERSION)),
                None => String::new(),
            };
            let state = if waiting.held { "held back" } else { "not loaded" };
            table.detail(&format!("{version}{state}: {}", waiting.reason));
        }
    }
    table.print(out)
}

/// Adds a line with a list below the last row, unless the list is empty.
fn add_list(table: &mut Table<COLUMNS>, label: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let list = items.join(", ");
    let short = cut(&list, MAX_LIST);
    let more = if short.len() < list.len() { "…" } else { "" };
    table.detail(&format!("{label} {short}{more}"));
}

fn cells(plugin: &PluginState) -> [String; COLUMNS] {
    let name = if plugin.place == PluginPlace::BuiltIn {
        format!("{} (built in)", plugin.name)
    } else {
        plugin.name.clone()
    };
    [
        name,
        cut(plugin.version.as_deref().unwrap_or("-"), MAX_VERSION).to_owned(),
        plugin.generation.to_string(),
        cut(plugin.digest.as_deref().unwrap_or("-"), SHORT_DIGEST).to_owned(),
        plugin.word().to_owned(),
        plugin.calls.to_string(),
        plugin.failures.to_string(),
        time(plugin.p50),
        time(plugin.p99),
    ]
}

fn time(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), shown::time)
}
