//! `berth plugin`.

use std::fmt;
use std::io::Write;
use std::path::Path;

use berth_host::config::{self, Folders, Loaded};
use berth_host::text::neutral_line;
use berth_host::{Candidate, CapabilityRequest, Host, HostError, Origin, PluginInfo};
use serde_json::json;

use crate::arguments::{Options, PluginCommand};
use crate::error::Error;
use crate::exit::Exit;
use crate::host;
use crate::style::{FAINT, STRONG};

/// Runs the command.
pub(crate) fn run(command: &PluginCommand, options: &Options) -> Result<Exit, Error> {
    let PluginCommand::Inspect { file, json } = command;
    inspect(file, *json, options)
}

fn inspect(file: &Path, as_json: bool, options: &Options) -> Result<Exit, Error> {
    let candidate = Candidate::file(file)?;
    let info = candidate.info();
    let folders = Folders::from_environment()?;
    let loaded = config::load(&folders, &options.inputs()).map_err(HostError::from)?;
    let granted = |request: &CapabilityRequest| granted(&loaded, info, request);
    let tools = tools(file, folders.clone());
    if as_json {
        let mut object = json!(**info);
        let grants = info.manifest.capabilities.iter().map(|request| (request.name.clone(), json!(granted(request))));
        object["granted"] = grants.collect::<serde_json::Map<_, _>>().into();
        match &tools {
            Ok(tools) => object["tools"] = tools.iter().map(|tool| json!(**tool)).collect(),
            Err(reason) => object["refused"] = json!(reason),
        }
        writeln!(std::io::stdout().lock(), "{object:#}")?;
        return Ok(Exit::Success);
    }
    let mut out = anstream::stdout().lock();
    write!(out, "{}", Card(info))?;
    if info.manifest.capabilities.iter().any(|request| granted(request).is_none()) {
        writeln!(out, "\n{STRONG}Not granted{STRONG:#}")?;
        let name = &info.manifest.name;
        writeln!(
            out,
            "  files: to grant some, name them in your berth.toml:\n    [plugins.{name}]\n    path = {:?}",
            file.display().to_string()
        )?;
        writeln!(out, "    allowed_paths = [\".\"]")?;
    }
    match tools {
        Ok(tools) => {
            writeln!(out, "\n{STRONG}Tools{STRONG:#}")?;
            for tool in &tools {
                writeln!(out, "  {STRONG}{}{STRONG:#}  {}", tool.name, crate::tools::summary(tool))?;
            }
        }
        Err(reason) => writeln!(out, "\n{STRONG}It does not load{STRONG:#}\n  {}", neutral_line(&reason))?,
    }
    Ok(Exit::Success)
}

/// What the plugin's own code says it offers, asked with nothing granted. `Err` says why it does not load.
fn tools(file: &Path, folders: Folders) -> Result<Vec<std::sync::Arc<berth_host::Definition>>, String> {
    let asked = host::block_on(async {
        let builder = Host::builder().config(Loaded::default()).folders(folders).plugin_file(file.to_owned());
        Ok(builder.build().await?.tools())
    });
    asked.map_err(|error| error.end().1.unwrap_or_default())
}

/// The grant that answers a request, in words; `None` if there is none.
fn granted(loaded: &Loaded, info: &PluginInfo, request: &CapabilityRequest) -> Option<String> {
    let plugin = loaded.config.plugins.get(&info.manifest.name);
    match request.name.as_str() {
        // Both reach what the granted directories hold and nothing else.
        "files" | "search" => {
            let paths: Vec<&str> = plugin.iter().flat_map(|plugin| &plugin.allowed_paths).map(|allowed| allowed.path.as_str()).collect();
            (!paths.is_empty()).then(|| paths.join(", "))
        }
        _ => None,
    }
}

/// What is known of a plugin, as people read it.
pub(crate) struct Card<'a>(pub(crate) &'a PluginInfo);

impl fmt::Display for Card<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PluginInfo { manifest, origin, digest, size, imports } = self.0;
        let line = neutral_line;
        writeln!(f, "{STRONG}Plugin {} {}{STRONG:#}", line(&manifest.name), line(&manifest.version))?;
        writeln!(f, "  {}", line(&manifest.description))?;
        if !manifest.authors.is_empty() {
            writeln!(f, "  by {}", line(&manifest.authors.join(", ")))?;
        }
        for (name, text) in [("licence", &manifest.license), ("source", &manifest.repository)] {
            if let Some(text) = text {
                writeln!(f, "  {name}: {}", line(text))?;
            }
        }
        match origin {
            Origin::BuiltIn => writeln!(f, "  built in")?,
            Origin::File(path) => writeln!(f, "  file: {}", line(&path.display().to_string()))?,
        }
        writeln!(f, "  size: {size} bytes\n  sha256: {digest}")?;
        writeln!(f, "\n{STRONG}Asks for{STRONG:#}")?;
        if manifest.capabilities.is_empty() {
            writeln!(f, "  nothing")?;
        }
        for request in &manifest.capabilities {
            let access = request.access.as_deref().map(|access| format!(" ({})", line(access))).unwrap_or_default();
            writeln!(f, "  {}{access}: {}", line(&request.name), line(&request.reason))?;
        }
        writeln!(f, "\n{STRONG}Imports{STRONG:#}")?;
        for import in imports {
            writeln!(f, "  {FAINT}{}{FAINT:#}", line(import))?;
        }
        Ok(())
    }
}
