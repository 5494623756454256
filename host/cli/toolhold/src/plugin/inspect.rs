//! `toolhold plugin inspect`: describes a component.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use toolhold_core::config::{Config, WrittenSecretHost};
use toolhold_core::text::neutral_line;
use toolhold_core::{Candidate, LockedPlugin, Origin, PluginApprovals, PluginInfo, grant_in_words};

use super::Setting;
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::plugin::install::file_signer;
use crate::plugin_description::{Card, Differences, Imports, LeftOutTools, SettingsCard, SignedBy};
use crate::style::STRONG;

/// Describes `plugin`, which is the file of a component or the name of a plugin.
pub(super) fn inspect(plugin: &str, as_json: bool, options: &Options) -> Result<Exit, Error> {
    let setting = Setting::from_options(options)?;
    // A name has no dot and no slash.
    let file = if plugin.contains(['.', '/']) { Some(Path::new(plugin)) } else { None };
    let candidate = match file {
        Some(file) => Candidate::file(file)?,
        None => setting.candidate(plugin)?,
    };
    let info = std::sync::Arc::clone(candidate.info());
    let name = &info.manifest.name;
    let inspection = setting.inspect(candidate);
    let locked = PluginApprovals::open(&setting.folders).all()?.remove(name);
    let signed_by = match (file, &info.origin) {
        (Some(file), _) => file_signer(file, name, &setting.loaded),
        (None, Origin::File(copy)) => installed_signer(locked.as_ref(), &info)
            .or_else(|| file_signer(copy, name, &setting.loaded)),
        (None, Origin::BuiltIn) => None,
    };
    let is_approved = locked.is_some_and(|locked| locked.approved.digest == info.digest)
        || setting.loaded.is_pinned(name, &info.digest);
    let difference = match &inspection {
        Ok(inspection) => setting.difference(inspection)?,
        Err(_) => None,
    };

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
        object["approved"] = json!(is_approved);
        object["difference"] = json!(difference);
        match &inspection {
            Ok(inspection) => {
                object["left_out"] = json!(inspection.left_out);
                object["tools"] = inspection.tools.iter().map(|tool| json!(**tool)).collect();
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
    write_grants(&mut out, &info, &setting, file)?;
    match &inspection {
        Ok(inspection) => {
            writeln!(out, "\n{STRONG}Tools{STRONG:#}")?;
            super::list_tools(&mut out, inspection)?;
            write!(out, "{}", LeftOutTools(inspection))?;
        }
        Err(error) => writeln!(
            out,
            "\n{STRONG}The component does not load{STRONG:#}\n  {}",
            neutral_line(&error.to_string())
        )?,
    }
    if let Some(difference) = &difference
        && let Ok(inspection) = &inspection
    {
        writeln!(out, "\n{STRONG}Changes since the approved version{STRONG:#}")?;
        let signer = setting.signer_change(inspection)?;
        write!(out, "{}", Differences(difference, signer.as_ref()))?;
    }
    Ok(Exit::Success)
}

/// Returns the key that was trusted when the plugin was installed, if there was a key. The
/// signature isn't checked again: a key may be trusted only for some sources, and the installed
/// component doesn't name its source.
fn installed_signer(locked: Option<&LockedPlugin>, info: &PluginInfo) -> Option<SignedBy> {
    let LockedPlugin { approved, offered, .. } = locked?;
    let mut versions = vec![approved];
    versions.extend(offered);
    let version = versions.into_iter().find(|version| version.digest == info.digest)?;
    let source = version.source.as_ref()?;
    source.signer.clone().map(SignedBy::Key)
}

/// Writes the granted and the missing requests. `file` is the component, unless it belongs to an
/// installed plugin.
fn write_grants(
    out: &mut impl Write,
    info: &PluginInfo,
    setting: &Setting,
    file: Option<&Path>,
) -> Result<(), Error> {
    let name = &info.manifest.name;
    let mut granted = Vec::new();
    let mut missing = Vec::new();
    let mut missing_lines = Vec::new();
    for request in &info.manifest.capabilities {
        if let Some(grant) = grant_in_words(&setting.loaded, name, &request.name) {
            granted.push((request.name.as_str(), grant));
        } else if let Some(line) = request.grant_line() {
            missing.push(request.name.as_str());
            missing_lines.push(line);
        }
    }
    let secret_texts: Vec<String> = secrets(&setting.loaded, name)
        .iter()
        .map(|(name, hosts)| format!("{name} (for {})", hosts.join(", ")))
        .collect();
    if !secret_texts.is_empty() {
        granted.push(("secrets", secret_texts.join(", ")));
    }

    if !granted.is_empty() {
        writeln!(out, "\n{STRONG}Granted{STRONG:#}")?;
        for (name, grant) in &granted {
            writeln!(out, "  {}: {}", neutral_line(name), neutral_line(grant))?;
        }
    }
    if !missing.is_empty() {
        writeln!(out, "\n{STRONG}Not granted{STRONG:#}")?;
        writeln!(
            out,
            "  {}. To grant some of these requests, write in {}:\n    [plugins.{name}]",
            missing.join(", "),
            neutral_line(&setting.loaded.own_file().to_string())
        )?;
        if let Some(file) = file {
            writeln!(out, "    path = {:?}", std::path::absolute(file)?)?;
        }
        for line in missing_lines {
            writeln!(out, "    {line}")?;
        }
    }
    Ok(())
}

/// Returns the names of a plugin's secrets in the configuration, each with the hosts that get the
/// secret.
fn secrets<'l>(loaded: &'l Config, plugin: &str) -> Vec<(&'l str, Vec<&'l str>)> {
    let Some(table) = loaded.values.plugins.get(plugin) else { return Vec::new() };
    let mut secrets = Vec::new();
    for (name, secret) in &table.secrets {
        let hosts = secret.hosts.iter().map(WrittenSecretHost::as_str).collect();
        secrets.push((name.as_str(), hosts));
    }
    secrets
}
