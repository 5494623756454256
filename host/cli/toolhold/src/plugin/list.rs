//! `toolhold plugin list` and `toolhold plugin reload`: the plugins of the running hosts.

use std::io::Write;
use std::time::Duration;

use serde_json::json;
use toolhold_core::config::Folders;
use toolhold_core::text::cut;
use toolhold_core::{Ask, Host, HostPlugins, PluginPlace, PluginState, ask_hosts};

use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use crate::shown;
use crate::style::{BAD, FAINT, GOOD, STRONG};
use toolhold_terminal::table::Table;

/// Lists the plugins of all running hosts. If no host runs, lists the plugins that a new host would
/// load.
pub(super) fn list(as_json: bool, options: &Options) -> Result<Exit, Error> {
    let hosts = ask_hosts(&Folders::from_environment()?, Ask::Plugins)?;
    if !hosts.is_empty() {
        return show(&hosts, as_json);
    }
    let plugins = host::run(options, async |host: Host| Ok(host.plugins()))?;
    if as_json {
        writeln!(std::io::stdout(), "{:#}", json!([{ "pid": null, "plugins": plugins }]))?;
        return Ok(Exit::Success);
    }
    let mut out = anstream::stdout().lock();
    table(&mut out, &plugins)?;
    writeln!(
        out,
        "\n{FAINT}No running host watches its plugins; a new host would load the plugins \
         above.{FAINT:#}"
    )?;
    Ok(Exit::Success)
}

/// Makes every running host load its plugins again.
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
        table(&mut out, &host.plugins)?;
    }
    Ok(Exit::Success)
}

/// Bytes of a list below a plugin.
const LISTED: usize = 400;

const HEADS: [&str; 9] =
    ["NAME", "VERSION", "GEN", "DIGEST", "STATE", "CALLS", "FAILED", "P50", "P99"];

/// The column of the state.
const STATE: usize = 4;

fn table(out: &mut impl Write, plugins: &[PluginState]) -> std::io::Result<()> {
    let mut table = Table::new(HEADS, &[2, 5, 6, 7, 8]);
    for plugin in plugins {
        table.row(cells(plugin));
        table.colour(STATE, if plugin.digest.is_some() { GOOD } else { BAD });
        add_list(&mut table, "reaches", &plugin.hosts);
        add_list(&mut table, "secrets:", &plugin.secrets);
        if let Some(waiting) = &plugin.waiting {
            let version = match &waiting.version {
                Some(version) => format!("{} ", cut(version, 40)),
                None => String::new(),
            };
            let state = if waiting.held { "held back" } else { "not loaded" };
            table.detail(&format!("{version}{state}: {}", waiting.reason));
        }
    }
    table.print(out)
}

fn add_list(table: &mut Table<9>, label: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let list = items.join(", ");
    let short = cut(&list, LISTED);
    let more = if short.len() < list.len() { "…" } else { "" };
    table.detail(&format!("{label} {short}{more}"));
}

fn cells(plugin: &PluginState) -> [String; 9] {
    let name = if plugin.place == PluginPlace::BuiltIn {
        format!("{} (built in)", plugin.name)
    } else {
        plugin.name.clone()
    };
    [
        name,
        cut(plugin.version.as_deref().unwrap_or("-"), 40).to_owned(),
        plugin.generation.to_string(),
        plugin.digest.as_deref().map_or("-", |digest| cut(digest, 12)).to_owned(),
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
