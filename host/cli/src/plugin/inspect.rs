//! `berth plugin inspect`.

use std::io::Write;
use std::path::Path;

use berth_host::config::Loaded;
use berth_host::text::neutral_line;
use berth_host::{Approvals, Candidate, CapabilityRequest, PluginInfo};
use serde_json::json;

use super::Setting;
use super::card::{Card, Differences, Imports};
use crate::arguments::Options;
use crate::error::Error;
use crate::exit::Exit;
use crate::style::STRONG;

/// Tells what a component is, given its file or the name under which it lies there.
pub(super) fn inspect(plugin: &str, as_json: bool, options: &Options) -> Result<Exit, Error> {
    let setting = Setting::of(options)?;
    // A name has neither a dot nor a slash, so what has one is a file.
    let candidate = if plugin.contains(['.', '/']) { Candidate::file(Path::new(plugin))? } else { setting.candidate(plugin)? };
    let info = std::sync::Arc::clone(candidate.info());
    let name = &info.manifest.name;
    let inspected = setting.inspected(candidate);
    let approved = Approvals::of(&setting.folders).all()?.remove(name).is_some_and(|approved| approved.digest == info.digest);
    let difference = inspected.as_ref().ok().map(|inspected| setting.difference(inspected)).transpose()?.flatten();
    let granted = |request: &CapabilityRequest| granted(&setting.loaded, &info, request);
    if as_json {
        let mut object = json!(*info);
        let grants = info.manifest.capabilities.iter().map(|request| (request.name.clone(), json!(granted(request))));
        object["granted"] = grants.collect::<serde_json::Map<_, _>>().into();
        object["approved"] = json!(approved);
        object["difference"] = json!(difference);
        match &inspected {
            Ok(inspected) => object["tools"] = inspected.tools.iter().map(|tool| json!(**tool)).collect(),
            Err(error) => object["refused"] = json!(error.to_string()),
        }
        writeln!(std::io::stdout().lock(), "{object:#}")?;
        return Ok(Exit::Success);
    }
    let mut out = anstream::stdout().lock();
    write!(out, "{}{}", Card(&info), Imports(&info))?;
    if info.manifest.capabilities.iter().any(|request| granted(request).is_none()) {
        writeln!(out, "\n{STRONG}Not granted{STRONG:#}")?;
        writeln!(out, "  files: to grant some, name them in your berth.toml:\n    [plugins.{name}]")?;
        if plugin.contains(['.', '/']) {
            writeln!(out, "    path = {plugin:?}")?;
        }
        writeln!(out, "    allowed_paths = [\".\"]")?;
    }
    match &inspected {
        Ok(inspected) => {
            writeln!(out, "\n{STRONG}Tools{STRONG:#}")?;
            super::list_tools(&mut out, inspected)?;
        }
        Err(error) => writeln!(out, "\n{STRONG}It does not load{STRONG:#}\n  {}", neutral_line(&error.to_string()))?,
    }
    if let Some(difference) = &difference {
        writeln!(out, "\n{STRONG}Since the version that was approved{STRONG:#}")?;
        write!(out, "{}", Differences(difference))?;
    }
    Ok(Exit::Success)
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
