//! `toolhold plugin inspect`: describes a component, given its file or the name of an installed
//! plugin.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use toolhold_core::config::{Config, WrittenSecretHost};
use toolhold_core::text::neutral_line;
use toolhold_core::{Candidate, PluginApprovals, PluginInfo, grant_in_words, grant_line};

use super::Setting;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::plugin::install::file_signer;
use crate::plugin_description::{Card, Differences, Imports, LeftOutTools, SettingsCard, SignedBy};
use crate::style::STRONG;

/// Describes a component, given its file or the name of an installed plugin.
pub(super) fn inspect(plugin: &str, as_json: bool, options: &Options) -> Result<Exit, Error> {
    let setting = Setting::from_options(options)?;
    // A name has neither a dot nor a slash, so anything with one is a file.
    let file = plugin.contains(['.', '/']);
    let candidate =
        if file { Candidate::file(Path::new(plugin))? } else { setting.candidate(plugin)? };
    let info = std::sync::Arc::clone(candidate.info());
    let name = &info.manifest.name;
    let inspected = setting.inspect(candidate);
    let signed_by = file.then(|| file_signer(Path::new(plugin), name, &setting.loaded)).flatten();
    let approved = PluginApprovals::open(&setting.folders)
        .all()?
        .remove(name)
        .is_some_and(|locked| locked.approved.digest == info.digest);
    let difference = inspected
        .as_ref()
        .ok()
        .map(|inspected| setting.difference(inspected))
        .transpose()?
        .flatten();
    if as_json {
        let mut object = json!(*info);
        let grants = info.manifest.capabilities.iter().map(|request| {
            (request.name.clone(), json!(grant_in_words(&setting.loaded, name, &request.name)))
        });
        object["granted"] = grants.collect::<serde_json::Map<_, _>>().into();
        object["secrets"] = secrets(&setting.loaded, name)
            .into_iter()
            .map(|(name, hosts)| json!({ "name": name, "hosts": hosts }))
            .collect();
        object["signed_by"] = json!(signed_by.as_ref().and_then(SignedBy::key));
        object["approved"] = json!(approved);
        object["difference"] = json!(difference);
        match &inspected {
            Ok(inspected) => {
                object["left_out"] = json!(inspected.left_out);
                object["tools"] = inspected.tools.iter().map(|tool| json!(**tool)).collect();
            }
            Err(error) => object["refused"] = json!(error.to_string()),
        }
        writeln!(std::io::stdout().lock(), "{object:#}")?;
        return Ok(Exit::Success);
    }
    let mut out = anstream::stdout().lock();
    write!(out, "{}{}{}", Card(&info), SettingsCard(&info), Imports(&info))?;
    if let Some(signed_by) = &signed_by {
        writeln!(out, "\n{signed_by}")?;
    }
    write_grants(&mut out, &info, &setting, file.then_some(plugin))?;
    match &inspected {
        Ok(inspected) => {
            writeln!(out, "\n{STRONG}Tools{STRONG:#}")?;
            super::list_tools(&mut out, inspected)?;
            write!(out, "{}", LeftOutTools(inspected))?;
        }
        Err(error) => writeln!(
            out,
            "\n{STRONG}The component does not load{STRONG:#}\n  {}",
            neutral_line(&error.to_string())
        )?,
    }
    if let Some(difference) = &difference {
        writeln!(out, "\n{STRONG}Changes since the approved version{STRONG:#}")?;
        let signer = inspected
            .as_ref()
            .map(|inspected| setting.signer_change(inspected))
            .ok()
            .transpose()?
            .flatten();
        write!(out, "{}", Differences(difference, signer.as_ref()))?;
    }
    Ok(Exit::Success)
}

/// Writes the requests that are granted, and the grants that are missing. `file`: the component,
/// if it isn't an installed plugin.
fn write_grants(
    out: &mut impl Write,
    info: &PluginInfo,
    setting: &Setting,
    file: Option<&str>,
) -> Result<(), Error> {
    let name = &info.manifest.name;
    let requests = &info.manifest.capabilities;
    let mut held: Vec<(&str, String)> = requests
        .iter()
        .filter_map(|request| {
            Some((request.name.as_str(), grant_in_words(&setting.loaded, name, &request.name)?))
        })
        .collect();
    let secrets = secrets(&setting.loaded, name);
    if !secrets.is_empty() {
        let each: Vec<String> = secrets
            .iter()
            .map(|(name, hosts)| format!("{name} (for {})", hosts.join(", ")))
            .collect();
        held.push(("secrets", each.join(", ")));
    }
    if !held.is_empty() {
        writeln!(out, "\n{STRONG}Granted{STRONG:#}")?;
        held.iter().try_for_each(|(name, what)| {
            writeln!(out, "  {}: {}", neutral_line(name), neutral_line(what))
        })?;
    }
    let missing = requests
        .iter()
        .filter(|request| grant_in_words(&setting.loaded, name, &request.name).is_none())
        .filter_map(|request| Some((request.name.as_str(), grant_line(&request.name)?)));
    let (missing, lines): (Vec<&str>, Vec<&str>) = missing.unzip();
    if !missing.is_empty() {
        writeln!(out, "\n{STRONG}Not granted{STRONG:#}")?;
        writeln!(
            out,
            "  {}. To grant some of these, write in {}:\n    [plugins.{name}]",
            missing.join(", "),
            neutral_line(&setting.loaded.own_file().to_string())
        )?;
        if let Some(file) = file {
            writeln!(out, "    path = {:?}", std::path::absolute(file)?)?;
        }
        lines.iter().try_for_each(|line| writeln!(out, "    {line}"))?;
    }
    Ok(())
}

/// The secrets for the plugin's requests, each with its hosts.
fn secrets<'l>(loaded: &'l Config, plugin: &str) -> Vec<(&'l str, Vec<&'l str>)> {
    let secrets = loaded.values.plugins.get(plugin).into_iter().flat_map(|plugin| &plugin.secrets);
    secrets
        .map(|(name, secret)| {
            (name.as_str(), secret.hosts.iter().map(WrittenSecretHost::as_str).collect())
        })
        .collect()
}
