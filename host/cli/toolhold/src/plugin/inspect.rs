//! `toolhold plugin inspect`.

use std::io::Write;
use std::path::Path;

use serde_json::json;
use toolhold_core::config::{InstanceLifetime, Loaded, Method, WrittenSecretHost};
use toolhold_core::text::{counted, neutral_line};
use toolhold_core::{Approvals, Candidate, CapabilityRequest, PluginInfo, grant_line};
use toolhold_install::file_signer;

use super::Setting;
use crate::card::{Card, Differences, Imports, LeftOutTools, SettingsCard, Signed};
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
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
    let approved = Approvals::open(&setting.folders)
        .all()?
        .remove(name)
        .is_some_and(|locked| locked.approved.digest == info.digest);
    let difference = inspected
        .as_ref()
        .ok()
        .map(|inspected| setting.difference(inspected))
        .transpose()?
        .flatten();
    let granted = |request: &CapabilityRequest| grant_for(&setting.loaded, &info, request);
    if as_json {
        let mut object = json!(*info);
        let grants = info
            .manifest
            .capabilities
            .iter()
            .map(|request| (request.name.clone(), json!(granted(request))));
        object["granted"] = grants.collect::<serde_json::Map<_, _>>().into();
        object["secrets"] = secrets(&setting.loaded, name)
            .into_iter()
            .map(|(name, hosts)| json!({ "name": name, "hosts": hosts }))
            .collect();
        object["signed_by"] = json!(signed_by.as_ref().and_then(|signed| signed.as_ref().ok()));
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
        writeln!(out, "\n{}", Signed(signed_by))?;
    }
    let requests = || info.manifest.capabilities.iter();
    let mut held: Vec<(&str, String)> =
        requests().filter_map(|request| Some((request.name.as_str(), granted(request)?))).collect();
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
    let missing = requests()
        .filter(|request| granted(request).is_none())
        .filter_map(|request| Some((request.name.as_str(), grant_line(&request.name)?)));
    let (missing, lines): (Vec<&str>, Vec<&str>) = missing.unzip();
    if !missing.is_empty() {
        writeln!(out, "\n{STRONG}Not granted{STRONG:#}")?;
        writeln!(
            out,
            "  {}: to grant some, name them in {}:\n    [plugins.{name}]",
            missing.join(", "),
            neutral_line(&setting.loaded.own_file().to_string())
        )?;
        if file {
            writeln!(out, "    path = {:?}", std::path::absolute(plugin)?)?;
        }
        lines.iter().try_for_each(|line| writeln!(out, "    {line}"))?;
    }
    match &inspected {
        Ok(inspected) => {
            writeln!(out, "\n{STRONG}Tools{STRONG:#}")?;
            super::list_tools(&mut out, inspected)?;
            write!(out, "{}", LeftOutTools(inspected))?;
        }
        Err(error) => writeln!(
            out,
            "\n{STRONG}It does not load{STRONG:#}\n  {}",
            neutral_line(&error.to_string())
        )?,
    }
    if let Some(difference) = &difference {
        writeln!(out, "\n{STRONG}Since the version that was approved{STRONG:#}")?;
        let signer = inspected.as_ref().map(|inspected| setting.signer_change(inspected));
        let signer = signer.ok().transpose()?.flatten();
        write!(out, "{}", Differences(difference, signer.as_ref()))?;
    }
    Ok(Exit::Success)
}

/// The grant for a request, in words; `None` if there is none.
pub(super) fn grant_for(
    loaded: &Loaded,
    info: &PluginInfo,
    request: &CapabilityRequest,
) -> Option<String> {
    let plugin = loaded.config.plugins.get(&info.manifest.name);
    match request.name.as_str() {
        // Both reach only the granted directories.
        "files" | "search" => {
            let paths: Vec<&str> = plugin
                .iter()
                .flat_map(|plugin| &plugin.allowed_paths)
                .map(|allowed| allowed.path.as_str())
                .collect();
            (!paths.is_empty()).then(|| paths.join(", "))
        }
        "process" => {
            let plugin = plugin?;
            let programs = plugin.programs.iter().map(|program| program.as_str().to_owned());
            let judged = plugin.judged_programs.then(|| "what `bash` may run".to_owned());
            let shell = plugin.shell.then(|| "every program, by a shell".to_owned());
            join(programs.chain(judged).chain(shell))
        }
        "http" => {
            let plugin = plugin?;
            let hosts = plugin.hosts.iter().map(|grant| {
                let methods: Vec<&str> = grant.methods.iter().map(Method::as_str).collect();
                if methods.is_empty() {
                    grant.to_string()
                } else {
                    format!("{grant} ({})", methods.join(", "))
                }
            });
            join(
                hosts.chain(
                    plugin
                        .allowed_private_hosts
                        .iter()
                        .map(|hosts| format!("{} (private)", hosts.as_str())),
                ),
            )
        }
        "store" => plugin
            .filter(|plugin| plugin.store_mib.get() > 0)
            .map(|plugin| format!("{} MiB, {} keys", plugin.store_mib.get(), plugin.store_keys())),
        "index" => plugin.filter(|plugin| plugin.index_mib.get() > 0).map(|plugin| {
            format!("{} MiB, {} documents", plugin.index_mib.get(), plugin.index_documents())
        }),
        "parts" => plugin
            .filter(|plugin| plugin.parts_cpu_secs.get() > 0)
            .map(|plugin| format!("{} s of processor time a call", plugin.parts_cpu_secs.get())),
        "service" => plugin
            .filter(|plugin| plugin.services.get() > 0)
            .map(|plugin| format!("{} for each session", plugin.services.get())),
        "schedule" => plugin
            .filter(|plugin| plugin.schedule_tasks.get() > 0)
            .map(|plugin| counted(plugin.schedule_tasks.get(), "task")),
        "embeddings" => plugin
            .filter(|plugin| !plugin.embeddings.is_empty())
            .map(|plugin| format!("by [providers.{}]", plugin.embeddings)),
        "session" => plugin
            .filter(|plugin| plugin.instance == InstanceLifetime::Session)
            .map(|_| "an instance for each session".to_owned()),
        _ => None,
    }
}

fn join(items: impl Iterator<Item = String>) -> Option<String> {
    let items: Vec<String> = items.collect();
    (!items.is_empty()).then(|| items.join(", "))
}

/// The secrets for the plugin's requests, each with its hosts.
fn secrets<'l>(loaded: &'l Loaded, plugin: &str) -> Vec<(&'l str, Vec<&'l str>)> {
    let secrets = loaded.config.plugins.get(plugin).into_iter().flat_map(|plugin| &plugin.secrets);
    secrets
        .map(|(name, secret)| {
            (name.as_str(), secret.hosts.iter().map(WrittenSecretHost::as_str).collect())
        })
        .collect()
}
