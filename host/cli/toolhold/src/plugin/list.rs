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

/// Lists the plugins of every running host. Without a running host, lists the plugins of a new one.
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
    let widths: [usize; 9] = std::array::from_fn(|column| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .chain([HEADS[column].len()])
            .max()
            .unwrap_or(0)
    });
    writeln!(out, "{FAINT}{}{FAINT:#}", line(&HEADS.map(str::to_owned), widths))?;
    for (row, plugin) in rows.iter().zip(plugins) {
        let style = if plugin.digest.is_some() { GOOD } else { BAD };
        // Coloured after padding, since colours have no width.
        let text = line(row, widths);
        writeln!(
            out,
            "{}",
            text.replacen(plugin.word(), &format!("{style}{}{style:#}", plugin.word()), 1)
        )?;
        let lists = [("reaches", &plugin.hosts), ("secrets:", &plugin.secrets)];
        for (what, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            let all = list.join(", ");
            let short = cut(&all, LISTED);
            let more = if short.len() < all.len() { "…" } else { "" };
            writeln!(out, "  {FAINT}{what} {}{more}{FAINT:#}", neutral_line(short))?;
        }
        if let Some(waiting) = &plugin.waiting {
            let version = waiting
                .version
                .as_deref()
                .map(|version| format!("{} ", neutral_line(cut(version, 40))))
                .unwrap_or_default();
            let what = if waiting.held { "held back" } else { "not loaded" };
            writeln!(out, "  {FAINT}{version}{what}: {}{FAINT:#}", neutral_line(&waiting.reason))?;
        }
    }
    Ok(())
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
