//! `toolhold plugin add`, `grant`, `install`, `remove`, `update`, `outdated`, `verify`, `history`
//! and `rollback`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::absolute;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use toolhold_core::config::Folders;
use toolhold_core::config::insert::WrittenGrants;
use toolhold_core::outbound_client;
use toolhold_core::text::neutral_line;
use toolhold_core::{
    ApprovedPlugin, Difference, LockedPlugin, PluginInfo, PluginInspection, SignerChange,
};
use toolhold_registry::{Credentials, FetchError, FetchOptions, Fetched, Source, fetch};

use crate::arguments::install::{AddArguments, InstallCommand};
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::plugin::Setting;
use crate::plugin::install::{
    Comparison, Installed, Installer, Offer, abilities, check_source, grants,
};
use crate::plugin::running_hosts::tell_hosts;
use crate::plugin_description::{Differences, Header, LeftOutTools, SignedBy};
use crate::style::{FAINT, STRONG};
use crate::{allow, ask, host, progress};

/// The fewest digits of a digest that identify a component.
const MIN_DIGITS: usize = 32;

pub(crate) fn run(command: &InstallCommand, options: &Options) -> Result<Exit, Error> {
    let setting = Setting::from_options(options)?;
    let built_in = built_in_names();
    let installer = Installer::new(&setting.folders, &setting.loaded, &built_in);
    let context = CommandContext { setting: &setting, installer };
    match command {
        InstallCommand::Add(arguments) => context.add(arguments, options),
        InstallCommand::Grant { name, grants } => grants::grant(name, grants, &setting, options),
        InstallCommand::Install { yes } => context.install_wanted(*yes, options),
        InstallCommand::Remove { name } => context.remove(name),
        InstallCommand::Update { name, check, yes, downgrade, json } => {
            let mode = UpdateMode { check: *check, yes: *yes, downgrade: *downgrade };
            context.update(name.as_deref(), mode, *json)
        }
        InstallCommand::Outdated { json } => {
            let all_plugins = None;
            let mode = UpdateMode { check: true, yes: false, downgrade: false };
            context.update(all_plugins, mode, *json)
        }
        InstallCommand::Verify { json } => context.verify(*json),
        InstallCommand::History { name, json } => context.history(name, *json),
        InstallCommand::Rollback { name } => context.roll_back(name),
    }
}

/// Installs the missing plugins of the configuration, for `toolhold trust`. `yes` says whether
/// `--yes` is set.
pub(crate) fn install_wanted(yes: bool, options: &Options) -> Result<Exit, Error> {
    let setting = Setting::from_options(options)?;
    let built_in = built_in_names();
    let installer = Installer::new(&setting.folders, &setting.loaded, &built_in);
    if installer.wanted()?.is_empty() {
        return Ok(Exit::Success);
    }
    CommandContext { setting: &setting, installer }.install_wanted(yes, options)
}

pub(crate) fn built_in_names() -> Vec<&'static str> {
    toolhold_builtins::all().iter().map(|builtin| builtin.name).collect()
}

#[derive(Clone, Copy)]
struct Consent<'a> {
    /// Whether every component may be installed without a question.
    yes: bool,
    /// The digest of the component that may be installed without a question.
    digest: Option<&'a str>,
    /// The name that the plugin must have.
    name: Option<&'a str>,
}

struct CommandContext<'a> {
    setting: &'a Setting,
    installer: Installer<'a>,
}

#[derive(Clone, Copy)]
struct UpdateMode {
    /// Whether updates are only shown.
    check: bool,
    /// Whether updates that request more are approved.
    yes: bool,
    /// Whether older versions are allowed.
    downgrade: bool,
}

struct Update {
    name: String,
    from: String,
    to: Option<String>,
    state: &'static str,
    difference: Option<Box<Difference>>,
    signer: Option<SignerChange>,
    error: Option<String>,
    /// The installed component, which may still need grants.
    installed: Option<Arc<PluginInfo>>,
}

impl Update {
    /// Makes the report about a plugin without an update, for the reason `state`.
    fn new(name: &str, locked: &LockedPlugin, state: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            from: locked.approved.version.clone(),
            to: None,
            state,
            difference: None,
            signer: None,
            error: None,
            installed: None,
        }
    }
}

impl CommandContext<'_> {
    fn add(&self, arguments: &AddArguments, options: &Options) -> Result<Exit, Error> {
        let digest = arguments.digest.as_deref();
        let consent = Consent { yes: arguments.yes, digest, name: None };
        let grants = grants::from_arguments(&arguments.grants, self.setting)?;
        self.install(&arguments.source, consent, grants, options)
    }

    /// Installs the missing plugins of the configuration. Returns the most serious exit code.
    fn install_wanted(&self, yes: bool, options: &Options) -> Result<Exit, Error> {
        let wanted = self.installer.wanted()?;
        if wanted.is_empty() {
            writeln!(
                anstream::stdout(),
                "Every plugin that the configuration names by `source` is installed."
            )?;
        }
        let mut exit = Exit::Success;
        for (name, source) in &wanted {
            let consent = Consent { yes, digest: None, name: Some(name) };
            let installed = self.install(source, consent, WrittenGrants::default(), options)?;
            exit = exit.max(installed);
        }
        Ok(exit)
    }

    fn install(
        &self,
        source: &str,
        consent: Consent<'_>,
        mut grants: WrittenGrants,
        options: &Options,
    ) -> Result<Exit, Error> {
        let written = Source::parse(source).map_err(Error::usage)?;
        // The lock file is used from other directories too, so its paths must be absolute.
        let source = match &written {
            Source::Path(path) => Source::Path(
                absolute(path)
                    .map_err(toolhold_core::HostError::io("finding the working directory"))?,
            ),
            other => other.clone(),
        };
        // If the grants can't be written, the command fails before the download.
        if grants != WrittenGrants::default() {
            allow::folders_of_own_file(options)?;
        }

        let offer = host::block_on(self.offer(&written, &source))?;
        let name = offer.name();
        if let Some(table) = consent.name
            && table != name
        {
            return Err(Error::Usage(format!(
                "{source} is the plugin `{name}`, but is named in [plugins.{table}]; rename the \
                 table"
            )));
        }
        self.installer.check_new(&offer)?;
        check_digest(consent.digest, &offer)?;
        let manifest = &offer.inspection.info.manifest;
        grants::check_requested(&grants, manifest)?;
        let mut out = anstream::stdout().lock();
        show(&mut out, &offer.inspection, &offer.signed_by)?;
        grants::show_granted(&mut out, manifest, &self.setting.loaded)?;
        out.flush()?;

        grants::narrow(&mut grants, manifest);
        let is_pinned = self.setting.loaded.is_pinned(name, offer.digest());
        if !consent.yes && consent.digest.is_none() && !is_pinned {
            let message = "there is no terminal to ask at; `--yes` installs the current component, \
                           `--digest SHA256` installs only the component with that digest";
            let mut dialogue = ask::open_dialogue("the plugin is not installed")
                .ok_or_else(|| Error::Unasked(message.to_owned()))?;
            if allow::folders_of_own_file(options).is_ok() {
                grants::ask(&mut dialogue, manifest, &mut grants, self.setting)?;
            }
            let default_answer = false;
            if !dialogue.yes_or_no(&format!("Install {name}?"), default_answer)? {
                writeln!(out, "{name} is not installed.")?;
                return Ok(Exit::Denied);
            }
        }

        self.installer.install(&offer, &grants)?;
        writeln!(out, "\nInstalled {name} {}.", neutral_line(offer.version()))?;
        grants::write_granted(&mut out, name, &grants, &self.setting.folders)?;
        grants::write_missing(&mut out, &offer.inspection.info, &grants, &self.setting.loaded)?;
        tell_hosts(&mut out, &self.setting.folders, name, offer.digest())?;
        Ok(Exit::Success)
    }

    /// Downloads and examines a component. `written` is the source on the command line, and
    /// `source` the source for the lock file.
    async fn offer(&self, written: &Source, source: &Source) -> Result<Offer, Error> {
        let fetched = self.fetch(written).await?;
        let folders = &self.setting.folders;
        let loaded = &self.setting.loaded;
        let examined = Offer::examine(&fetched, source, folders, loaded);
        Ok(progress::show(examined, || "examining the component".to_owned()).await?)
    }

    async fn fetch(&self, source: &Source) -> Result<Fetched, Error> {
        let folders = &self.setting.folders;
        let loaded = &self.setting.loaded;
        // `Offer::examine` checks the policy for a path, after the file was found.
        if !matches!(source, Source::Path(_)) {
            check_source(loaded, source)?;
        }
        let network = outbound_client(loaded, folders, "toolhold plugin");
        let options = fetch_options(source, folders)?;
        let bytes_so_far = AtomicU64::new(0);
        let all_bytes = AtomicU64::new(0);
        let count = |bytes: u64, length: Option<u64>| {
            bytes_so_far.store(bytes, Ordering::Relaxed);
            // 0 stands for an unknown length.
            all_bytes.store(length.unwrap_or_default(), Ordering::Relaxed);
        };
        progress::show(fetch(source, &network, &options, &count), || {
            let bytes = bytes_so_far.load(Ordering::Relaxed);
            let all = all_bytes.load(Ordering::Relaxed);
            format!("fetching the component, {}", describe_transfer(bytes, all))
        })
        .await
        .map_err(fetch_failed)
    }

    /// Finds an installed plugin. The error for an unknown name lists the installed plugins.
    fn find(&self, name: &str) -> Result<LockedPlugin, Error> {
        let mut installed = self.installer.all()?;
        if let Some(locked) = installed.remove(name) {
            return Ok(locked);
        }
        if installed.is_empty() {
            return Err(Error::Usage("no plugin is installed".to_owned()));
        }
        let names: Vec<&str> = installed.keys().map(String::as_str).collect();
        let names = names.join(", ");
        Err(Error::Usage(format!("no plugin `{name}` is installed; installed: {names}")))
    }

    /// Removes a plugin, and prints whether its grants remain.
    fn remove(&self, name: &str) -> Result<Exit, Error> {
        self.find(name)?;
        self.installer.remove(name)?;
        let mut out = anstream::stdout().lock();
        writeln!(out, "Removed {name}.")?;
        if self.setting.loaded.values.plugins.contains_key(name) {
            writeln!(
                out,
                "[plugins.{name}] stays in your configuration: its grants apply to the next plugin \
                 of this name."
            )?;
            let place = self.setting.loaded.own_table(&format!("plugins.{name}")).place;
            if let Some(line) = place.line {
                let file = neutral_line(&place.file.to_string());
                writeln!(
                    out,
                    "Until then, each start reports the table. To remove the grants, remove \
                     [plugins.{name}] and the tables below it from {file}, line {line}."
                )?;
            }
        }
        Ok(Exit::Success)
    }

    /// Updates the plugin `name`, or all plugins. An error of one plugin doesn't stop the other
    /// updates.
    fn update(&self, name: Option<&str>, mode: UpdateMode, as_json: bool) -> Result<Exit, Error> {
        let installed = match name {
            Some(name) => BTreeMap::from([(name.to_owned(), self.find(name)?)]),
            None => self.installer.all()?,
        };
        let mut updates = Vec::new();
        for (name, locked) in installed {
            let update = match self.update_plugin(&name, &locked, mode, as_json) {
                Ok(update) => update,
                Err(error) => {
                    let (_, message) = error.end();
                    Update { error: message, ..Update::new(&name, &locked, "failed") }
                }
            };
            if !as_json {
                print_update(&update)?;
                self.print_missing_grants(&update)?;
            }
            updates.push(update);
        }

        if as_json {
            let objects: Vec<Value> = updates.iter().map(update_as_json).collect();
            writeln!(std::io::stdout().lock(), "{:#}", json!(objects))?;
        } else if updates.is_empty() {
            writeln!(anstream::stdout(), "No plugin is installed.")?;
        }
        if updates.iter().any(|update| update.state == "failed") {
            return Ok(Exit::Host);
        }
        let is_held = updates.iter().any(|update| update.state == "held");
        Ok(if is_held { Exit::Denied } else { Exit::Success })
    }

    fn print_missing_grants(&self, update: &Update) -> Result<(), Error> {
        let Some(info) = &update.installed else { return Ok(()) };
        let no_new_grants = WrittenGrants::default();
        let mut out = anstream::stdout().lock();
        grants::write_missing(&mut out, info, &no_new_grants, &self.setting.loaded)
    }

    fn update_plugin(
        &self,
        name: &str,
        locked: &LockedPlugin,
        mode: UpdateMode,
        as_json: bool,
    ) -> Result<Update, Error> {
        let current = &locked.approved;
        let current_source = current.source.as_ref();
        if current_source.is_some_and(|source| source.bundle.is_some()) {
            return Ok(Update::new(name, locked, "bundle"));
        }
        let given = current_source.map(|source| source.given.as_str()).unwrap_or_default();
        let source = Source::parse(given).map_err(Error::usage)?;
        if source.is_pinned() {
            return Ok(Update::new(name, locked, "same"));
        }

        let (offer, comparison) = host::block_on(async {
            let offer = self.offer(&source, &source).await?;
            let comparison = self.installer.compare(current, name, &offer, mode.downgrade).await?;
            Ok((offer, comparison))
        })?;
        let Comparison::Other { difference, signer, needs_approval } = comparison else {
            return Ok(Update::new(name, locked, "same"));
        };
        let state = if mode.check {
            if needs_approval { "more" } else { "available" }
        } else {
            let mut is_approved = !needs_approval || mode.yes;
            // With `--json`, a program is the caller and can't answer.
            if !is_approved && !as_json {
                is_approved = self.approves_more(name, &difference, signer.as_ref())?;
            }
            match self.installer.update(current, &offer, is_approved)? {
                Installed::InForce => "updated",
                Installed::Held => "held",
            }
        };
        if state == "updated" && !as_json {
            tell_hosts(&mut anstream::stdout(), &self.setting.folders, name, offer.digest())?;
        }
        let mut update = Update::new(name, locked, state);
        update.to = Some(offer.version().to_owned());
        update.difference = Some(difference);
        update.signer = signer;
        if state == "updated" {
            update.installed = Some(Arc::clone(&offer.inspection.info));
        }
        Ok(update)
    }

    /// Asks whether to approve an update that requests more. Returns `false` if there is no
    /// terminal.
    fn approves_more(
        &self,
        name: &str,
        difference: &Difference,
        signer: Option<&SignerChange>,
    ) -> Result<bool, Error> {
        let Some(mut dialogue) = ask::open_dialogue("the current version stays in use") else {
            return Ok(false);
        };
        dialogue.print(&format!(
            "{name}, changes since the current version:\n{}",
            Differences(difference, signer)
        ))?;
        let default_answer = false;
        dialogue.yes_or_no(&format!("Approve this update of {name}?"), default_answer)
    }

    fn verify(&self, as_json: bool) -> Result<Exit, Error> {
        let problems_by_name = self.installer.verify()?;
        let is_ok = problems_by_name.values().all(Vec::is_empty);
        if as_json {
            let mut plugins = Vec::new();
            for (name, problems) in &problems_by_name {
                let is_plugin_ok = problems.is_empty();
                plugins.push(json!({ "name": name, "ok": is_plugin_ok, "problems": problems }));
            }
            let object = json!({ "ok": is_ok, "plugins": plugins });
            writeln!(std::io::stdout().lock(), "{object:#}")?;
        } else {
            print_verification(&problems_by_name)?;
        }
        Ok(if is_ok { Exit::Success } else { Exit::ToolFailure })
    }

    fn history(&self, name: &str, as_json: bool) -> Result<Exit, Error> {
        let locked = self.find(name)?;
        let LockedPlugin { approved, previous, offered } = &locked;
        if as_json {
            writeln!(std::io::stdout().lock(), "{:#}", json!(locked))?;
            return Ok(Exit::Success);
        }
        let mut out = anstream::stdout().lock();
        if let Some(offered) = offered {
            write_version(&mut out, offered, &format!("held: `toolhold plugin approve {name}`"))?;
        }
        write_version(&mut out, approved, "current")?;
        for version in previous {
            write_version(&mut out, version, "earlier")?;
        }
        Ok(Exit::Success)
    }

    fn roll_back(&self, name: &str) -> Result<Exit, Error> {
        self.find(name)?;
        let (restored, replaced) = self.installer.roll_back(name)?;
        let mut out = anstream::stdout().lock();
        writeln!(
            out,
            "{name} {} is in use again, instead of {}. `toolhold plugin update {name}` installs \
             the version of the source again.",
            neutral_line(&restored.version),
            neutral_line(&replaced.version)
        )?;
        tell_hosts(&mut out, &self.setting.folders, name, &restored.digest)?;
        Ok(Exit::Success)
    }
}

fn print_verification(problems_by_name: &BTreeMap<String, Vec<String>>) -> Result<(), Error> {
    let mut out = anstream::stdout().lock();
    let mut broken = 0;
    for (name, problems) in problems_by_name {
        if problems.is_empty() {
            writeln!(out, "{name}: matches toolhold.lock")?;
        } else {
            broken += 1;
        }
        for problem in problems {
            writeln!(out, "{STRONG}{name}{STRONG:#}: {}", neutral_line(problem))?;
        }
    }
    let count = problems_by_name.len();
    if broken == 0 {
        writeln!(out, "{count} verified.")?;
    } else {
        writeln!(out, "{broken} of {count} differ from toolhold.lock.")?;
    }
    Ok(())
}

/// Returns the options of a download: the user's logins, for OCI registries.
pub(crate) fn fetch_options(source: &Source, folders: &Folders) -> Result<FetchOptions, Error> {
    if !matches!(source, Source::Oci(_)) {
        return Ok(FetchOptions::default());
    }
    let docker_folder = std::env::var("DOCKER_CONFIG").ok();
    let home = folders.home.clone().unwrap_or_default();
    let path = Credentials::usual_path(docker_folder.as_deref(), &home);
    let credentials = Credentials::load(&path).map_err(fetch_failed)?;
    Ok(FetchOptions { credentials, ..FetchOptions::default() })
}

pub(crate) fn fetch_failed(error: FetchError) -> Error {
    Error::Fetch(error.to_string())
}

/// Checks that the offer's digest starts with the digits that the person gave.
fn check_digest(wanted: Option<&str>, offer: &Offer) -> Result<(), Error> {
    let Some(wanted) = wanted else { return Ok(()) };
    if wanted.len() < MIN_DIGITS {
        let given = wanted.len();
        return Err(Error::Usage(format!(
            "--digest has {given} digits; the minimum is {MIN_DIGITS}"
        )));
    }
    if offer.digest().starts_with(&wanted.to_ascii_lowercase()) {
        Ok(())
    } else {
        Err(Error::Usage(format!(
            "the component's digest differs, so nothing is installed: {}",
            offer.digest()
        )))
    }
}

/// Shows a plugin to the person who decides about the installation.
pub(crate) fn show(
    out: &mut impl Write,
    inspection: &PluginInspection,
    signed_by: &SignedBy,
) -> Result<(), Error> {
    write!(out, "{}", Header(&inspection.info))?;
    writeln!(out, "{signed_by}")?;
    let mut requested = Vec::new();
    let mut other_nouns = Vec::new();
    for ability in abilities(&inspection.info.manifest) {
        // Only requested abilities have a reason.
        match ability.reason {
            Some(reason) => requested.push((ability.words, neutral_line(&reason))),
            None => other_nouns.push(ability.noun),
        }
    }
    if requested.is_empty() {
        writeln!(out, "\n{STRONG}The plugin asks for nothing{STRONG:#}")?;
    } else {
        writeln!(out, "\n{STRONG}The plugin asks to{STRONG:#}")?;
    }
    for (words, reason) in &requested {
        writeln!(out, "  {words}\n    {FAINT}reason: {reason}{FAINT:#}")?;
    }
    if !other_nouns.is_empty() {
        writeln!(out, "\n{STRONG}The plugin does not ask for{STRONG:#}")?;
        writeln!(out, "  {}", other_nouns.join(", "))?;
    }
    writeln!(out, "\n{STRONG}Tools{STRONG:#}")?;
    crate::plugin::list_tools(out, inspection)?;
    write!(out, "{}", LeftOutTools(inspection))?;
    Ok(())
}

/// Prints the result of an update and, if the update waits for the person, the differences.
fn print_update(update: &Update) -> Result<(), Error> {
    let mut out = anstream::stdout().lock();
    let Update { name, from, to, state, difference, signer, error, .. } = update;
    let from = neutral_line(from);
    let to = neutral_line(to.as_deref().unwrap_or_default());
    match *state {
        "same" => writeln!(out, "{name} {from}: up to date")?,
        "bundle" => {
            writeln!(
                out,
                "{name} {from}: installed by a bundle; only another bundle can update this plugin"
            )?;
        }
        "failed" => writeln!(
            out,
            "{STRONG}{name}{STRONG:#} {from}: not updated: {}",
            neutral_line(error.as_deref().unwrap_or_default())
        )?,
        "updated" => writeln!(out, "{name} {from} -> {to}: updated")?,
        "held" => writeln!(
            out,
            "{STRONG}{name}{STRONG:#} {from} -> {to}: held, because the update asks for more, has \
             other descriptions or another signer; {from} stays in use until `toolhold plugin \
             approve {name}`"
        )?,
        state => {
            let more = if state == "more" { "; the update needs approval" } else { "" };
            writeln!(out, "{STRONG}{name}{STRONG:#} {from} -> {to}{more}")?;
        }
    }
    let waits_for_person = matches!(*state, "more" | "available" | "held");
    if waits_for_person && let Some(difference) = difference {
        write!(out, "{}", Differences(difference, signer.as_ref()))?;
    }
    Ok(())
}

fn update_as_json(update: &Update) -> Value {
    let Update { name, from, to, state, difference, signer, error, .. } = update;
    let signer = signer.as_ref().map(|SignerChange { old, new }| json!({ "old": old, "new": new }));
    json!({ "name": name, "from": from, "to": to, "state": state, "difference": difference, "signer": signer, "error": error })
}

/// The shown digits of a digest.
const SHORT_DIGEST: usize = 12;

/// Writes two lines about a version. `state` is, for example, `current`.
fn write_version(
    out: &mut impl Write,
    plugin: &ApprovedPlugin,
    state: &str,
) -> std::io::Result<()> {
    let version = neutral_line(&plugin.version);
    let digest = &plugin.digest[..plugin.digest.len().min(SHORT_DIGEST)];
    let source = plugin.source.as_ref().map(|source| neutral_line(&source.resolved));
    writeln!(out, "{version}  {digest}  {STRONG}{state}{STRONG:#}")?;
    writeln!(out, "  {FAINT}{}{FAINT:#}", source.unwrap_or_default())
}

/// Describes the progress of a download. `all` is the length, or 0 if the length is unknown.
fn describe_transfer(bytes: u64, all: u64) -> String {
    const BAR_WIDTH: u64 = 20;
    if all == 0 {
        return format!("{} MiB", format_mebibytes(bytes));
    }
    let filled = bytes.min(all).saturating_mul(BAR_WIDTH) / all;
    let mut bar = String::new();
    for position in 0..BAR_WIDTH {
        bar.push(if position < filled { '=' } else { ' ' });
    }
    format!("[{bar}] {} of {} MiB", format_mebibytes(bytes), format_mebibytes(all))
}

fn format_mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{}", tenths / 10, tenths % 10)
}
