//! `toolhold plugin list` and `toolhold plugin reload`: the plugins of the running hosts.

use std::io::Write;
use std::time::Duration;

use serde_json::json;
use toolhold_core::config::Folders;
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{Ask, Host, HostPlugins, PluginPlace, PluginState, ask_hosts};

use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::options::Options;
use crate::shown;
use crate::style::{BAD, FAINT, GOOD, STRONG};

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

fn table(out: &mut impl Write, plugins: &[PluginState]) -> std::io::Result<()> {
    let rows: Vec<[String; 9]> = plugins.iter().map(cells).collect();
    let mut widths = HEADS.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    writeln!(out, "{FAINT}{}{FAINT:#}", line(&HEADS.map(str::to_owned), widths))?;
    for (row, plugin) in rows.iter().zip(plugins) {
        let style = if plugin.digest.is_some() { GOOD } else { BAD };
        // The colour is added after the padding, because it has no width.
        let state = plugin.word();
        let coloured = format!("{style}{state}{style:#}");
        writeln!(out, "{}", line(row, widths).replacen(state, &coloured, 1))?;
        write_list(out, "reaches", &plugin.hosts)?;
        write_list(out, "secrets:", &plugin.secrets)?;
        if let Some(waiting) = &plugin.waiting {
            let version = match &waiting.version {
                Some(version) => format!("{} ", neutral_line(cut(version, 40))),
                None => String::new(),
            };
            let state = if waiting.held { "held back" } else { "not loaded" };
            let reason = neutral_line(&waiting.reason);
            writeln!(out, "  {FAINT}{version}{state}: {reason}{FAINT:#}")?;
        }
    }
    Ok(())
}

fn write_list(out: &mut impl Write, label: &str, items: &[String]) -> std::io::Result<()> {
    if items.is_empty() {
        return Ok(());
    }
    let list = items.join(", ");
    let short = cut(&list, LISTED);
    let more = if short.len() < list.len() { "…" } else { "" };
    writeln!(out, "  {FAINT}{label} {}{more}{FAINT:#}", neutral_line(short))
}

fn line(cells: &[String; 9], widths: [usize; 9]) -> String {
    let padded: Vec<String> =
        cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
    padded.join("  ").trim_end().to_owned()
}

fn cells(plugin: &PluginState) -> [String; 9] {
    let name = if plugin.place == PluginPlace::BuiltIn {
        format!("{} (built in)", plugin.name)
    } else {
        plugin.name.clone()
    };
    [
        neutral_line(&name),
        neutral_line(cut(plugin.version.as_deref().unwrap_or("-"), 40)),
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
