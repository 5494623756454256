//! `toolhold plugin add`, `remove`, `update`, `outdated`, `verify`, `history` and `rollback`.

use std::io::Write;
use std::path::absolute;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use toolhold_core::config::insert::WrittenGrants;
use toolhold_core::config::{Config, PathAccess};
use toolhold_core::text::neutral_line;
use toolhold_core::{
    ApprovedPlugin, Capability, CapabilityRequest, Difference, LockedPlugin, PluginInspection,
    SignerChange, grant_in_words, grant_line,
};
use toolhold_registry::{Credentials, FetchError, FetchOptions, Fetched, Source, fetch};

use crate::arguments::install::{AddArguments, InstallCommand};
use crate::error::Error;
use crate::exit::Exit;
use crate::init::FolderError;
use crate::options::Options;
use crate::plugin::Setting;
use crate::plugin::approve::tell_hosts;
use crate::plugin::install::{Comparison, Installed, Installer, Offer, abilities, check_source};
use crate::plugin_description::{Differences, Header, LeftOutTools, SignedBy};
use crate::style::{FAINT, STRONG};
use crate::{allow, ask, host, init, progress};

/// MiB that a plugin may keep if a person says so without a number.
const USUAL_STORE: u32 = 16;

/// Digits of a digest that name one component.
const MIN_DIGITS: usize = 32;

/// Runs the command.
pub(crate) fn run(command: &InstallCommand, options: &Options) -> Result<Exit, Error> {
    let setting = Setting::from_options(options)?;
    let built_in = built_in_names();
    let installer = Installer::new(&setting.folders, &setting.loaded, &built_in);
    let shop = Shop { setting: &setting, installer };
    match command {
        InstallCommand::Add(arguments) => shop.add(arguments, options),
        InstallCommand::Install { yes } => shop.install_wanted(*yes, options),
        InstallCommand::Remove { name } => shop.remove(name),
        InstallCommand::Update { name, check, yes, downgrade, json } => {
            let how = How { check: *check, yes: *yes, downgrade: *downgrade };
            shop.update(name.as_deref(), how, *json)
        }
        InstallCommand::Outdated { json } => {
            shop.update(None, How { check: true, yes: false, downgrade: false }, *json)
        }
        InstallCommand::Verify { json } => shop.verify(*json),
        InstallCommand::History { name, json } => shop.history(name, *json),
        InstallCommand::Rollback { name } => shop.roll_back(name),
    }
}

/// Installs what the configuration names and isn't installed, for `toolhold trust`.
pub(crate) fn install_wanted(yes: bool, options: &Options) -> Result<Exit, Error> {
    let setting = Setting::from_options(options)?;
    let built_in = built_in_names();
    let installer = Installer::new(&setting.folders, &setting.loaded, &built_in);
    if installer.wanted()?.is_empty() {
        return Ok(Exit::Success);
    }
    Shop { setting: &setting, installer }.install_wanted(yes, options)
}

/// The names of the built-in plugins.
pub(crate) fn built_in_names() -> Vec<&'static str> {
    toolhold_builtins::all().iter().map(|builtin| builtin.name).collect()
}

/// A person's consent to an installation.
#[derive(Clone, Copy)]
struct Consent<'a> {
    yes: bool,
    digest: Option<&'a str>,
    /// The name that the plugin has to have.
    name: Option<&'a str>,
}

struct Shop<'a> {
    setting: &'a Setting,
    installer: Installer<'a>,
}

/// How to update.
#[derive(Clone, Copy)]
struct How {
    check: bool,
    yes: bool,
    downgrade: bool,
}

/// The result of one plugin's update.
struct Update {
    name: String,
    from: String,
    to: Option<String>,
    state: &'static str,
    difference: Option<Box<Difference>>,
    signer: Option<SignerChange>,
    error: Option<String>,
}

impl Update {
    fn new(name: &str, locked: &LockedPlugin, state: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            from: locked.approved.version.clone(),
            to: None,
            state,
            difference: None,
            signer: None,
            error: None,
        }
    }
}

impl Shop<'_> {
    fn add(&self, arguments: &AddArguments, options: &Options) -> Result<Exit, Error> {
        let how = Consent { yes: arguments.yes, digest: arguments.digest.as_deref(), name: None };
        self.install(&arguments.source, how, self.grants(arguments)?, options)
    }

    /// Installs what the configuration names and isn't installed.
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
            let how = Consent { yes, digest: None, name: Some(name) };
            let installed = self.install(source, how, WrittenGrants::default(), options)?;
            exit = exit.max(installed);
        }
        Ok(exit)
    }

    /// Shows the component of a source, asks, and installs it.
    fn install(
        &self,
        source: &str,
        how: Consent<'_>,
        mut grants: WrittenGrants,
        options: &Options,
    ) -> Result<Exit, Error> {
        let written = Source::parse(source).map_err(Error::usage)?;
        // The lock file is used from other directories.
        let source = match &written {
            Source::Path(path) => Source::Path(
                absolute(path)
                    .map_err(toolhold_core::HostError::io("finding the working directory"))?,
            ),
            other => other.clone(),
        };
        // Before anything is fetched.
        if grants != WrittenGrants::default() {
            allow::folders_of_own_file(options)?;
        }
        let offer = host::block_on(self.offer(&written, &source))?;
        let name = offer.name();
        if let Some(wanted) = how.name.filter(|wanted| *wanted != name) {
            return Err(Error::Usage(format!(
                "{source} is the plugin `{name}`, but is named in [plugins.{wanted}]; rename the \
                 table"
            )));
        }
        self.installer.check_new(&offer)?;
        check_digest(how.digest, &offer)?;
        let mut out = anstream::stdout().lock();
        show(&mut out, &offer.inspection, &offer.signed_by)?;
        show_granted(&mut out, &offer.inspection, &self.setting.loaded)?;
        out.flush()?;
        if offer.inspection.info.manifest.asks_for(Capability::Files).is_some_and(reads_only) {
            // A grant that the plugin doesn't ask for is left out.
            grants.directories.iter_mut().for_each(|(_, access)| *access = PathAccess::Read);
        }
        if !how.yes && how.digest.is_none() {
            let message = "there is no terminal to ask at; `--yes` installs the current component, \
                 `--digest SHA256` only the component with that digest";
            let mut dialogue = ask::open_dialogue("the plugin is not installed")
                .ok_or_else(|| Error::Unasked(message.to_owned()))?;
            if allow::folders_of_own_file(options).is_ok() {
                self.ask_for_grants(&mut dialogue, &offer, &mut grants)?;
            }
            if !dialogue.yes_or_no(&format!("Install {name}?"), false)? {
                writeln!(out, "{name} is not installed.")?;
                return Ok(Exit::Denied);
            }
        }
        self.installer.install(&offer, &grants)?;
        writeln!(out, "\nInstalled {name} {}.", neutral_line(offer.version()))?;
        let lines = grants.lines();
        if !lines.is_empty() {
            let file = crate::shown::path(&self.setting.folders.config_file());
            writeln!(out, "Granted in {file}:\n  [plugins.{name}]")?;
            lines.iter().try_for_each(|line| writeln!(out, "  {}", neutral_line(line)))?;
        }
        let requests = &offer.inspection.info.manifest.capabilities;
        let info = &offer.inspection.info;
        let loaded = &self.setting.loaded;
        let missing: Vec<&str> = requests
            .iter()
            .filter(|request| {
                !is_granted(&grants, &request.name)
                    && grant_in_words(loaded, &info.manifest.name, &request.name).is_none()
            })
            .filter_map(|request| grant_line(&request.name))
            .collect();
        if !missing.is_empty() {
            writeln!(
                out,
                "Some requests are not granted. To grant them, for example:\n  [plugins.{name}]"
            )?;
            missing.iter().try_for_each(|line| writeln!(out, "  {line}"))?;
        }
        tell_hosts(&mut out, &self.setting.folders, name, offer.digest())?;
        Ok(Exit::Success)
    }

    /// Fetches and examines the component of a source. `source`: how the lock file names it.
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
        // The file of a path is known only afterwards.
        if !matches!(source, Source::Path(_)) {
            check_source(loaded, source)?;
        }
        let door = toolhold_core::door(loaded, folders, "toolhold plugin");
        let credentials = match source {
            Source::Oci(_) => {
                let docker = std::env::var("DOCKER_CONFIG").ok();
                let home = folders.home.clone().unwrap_or_default();
                Credentials::load(&Credentials::usual_path(docker.as_deref(), &home))
                    .map_err(fetch_failed)?
            }
            _ => Credentials::default(),
        };
        let options = FetchOptions { credentials, ..FetchOptions::default() };
        let done = AtomicU64::new(0);
        let all = AtomicU64::new(0);
        let count = |bytes: u64, length: Option<u64>| {
            done.store(bytes, Ordering::Relaxed);
            all.store(length.unwrap_or_default(), Ordering::Relaxed);
        };
        progress::show(fetch(source, &door, &options, &count), || {
            let done = done.load(Ordering::Relaxed);
            let all = all.load(Ordering::Relaxed);
            format!("fetching the component, {}", transferred(done, all))
        })
        .await
        .map_err(fetch_failed)
    }

    /// The grants of the command line.
    fn grants(&self, arguments: &AddArguments) -> Result<WrittenGrants, Error> {
        let read = arguments.allow_read.iter().map(|path| (path, PathAccess::Read));
        let write = arguments.allow_path.iter().map(|path| (path, PathAccess::ReadWrite));
        let mut directories = Vec::new();
        for (path, access) in read.chain(write) {
            let written = path
                .to_str()
                .ok_or_else(|| Error::Usage("a directory's name is not UTF-8".to_owned()))?;
            directories.push((self.directory(written).map_err(Error::usage)?, access));
        }
        Ok(WrittenGrants {
            directories,
            hosts: arguments.allow_host.clone(),
            store_mib: arguments.store,
            index_mib: arguments.index,
            session: arguments.session,
        })
    }

    /// The real path of a directory to grant.
    fn directory(&self, written: &str) -> Result<String, FolderError> {
        let here = &self.setting.directory;
        let path = if written == "." { here.display().to_string() } else { written.to_owned() };
        init::folder(&path, &self.setting.folders, here)
    }

    /// Asks for the grants that the plugin wants and the command line doesn't give.
    fn ask_for_grants(
        &self,
        dialogue: &mut ask::Dialogue<impl std::io::BufRead, impl Write>,
        offer: &Offer,
        grants: &mut WrittenGrants,
    ) -> Result<(), Error> {
        let manifest = &offer.inspection.info.manifest;
        if let Some(request) = manifest.asks_for(Capability::Files)
            && grants.directories.is_empty()
        {
            let (access, may) = if reads_only(request) {
                (PathAccess::Read, "read")
            } else {
                (PathAccess::ReadWrite, "read and change")
            };
            let question = format!(
                "Directories that the plugin may {may}, separated by commas [Enter: none]:"
            );
            grants.directories = loop {
                let answer = dialogue.ask(&question)?;
                let found: Result<Vec<_>, FolderError> =
                    items(&answer).map(|item| Ok((self.directory(item)?, access))).collect();
                match found {
                    Ok(directories) => break directories,
                    Err(error) => {
                        dialogue.print(&format!("  {}", neutral_line(&error.to_string())))?;
                    }
                }
            };
        }
        if manifest.asks_for(Capability::Http).is_some() && grants.hosts.is_empty() {
            let answer = dialogue
                .ask("Hosts that the plugin may reach, separated by commas [Enter: none]:")?;
            grants.hosts = items(&answer).map(str::to_owned).collect();
        }
        if manifest.asks_for(Capability::Store).is_some() && grants.store_mib.is_none() {
            let question = format!("May the plugin store up to {USUAL_STORE} MiB of data?");
            grants.store_mib = dialogue.yes_or_no(&question, false)?.then_some(USUAL_STORE);
        }
        if manifest.asks_for(Capability::Index).is_some() && grants.index_mib.is_none() {
            let question =
                format!("May the plugin store up to {USUAL_STORE} MiB of documents for search?");
            grants.index_mib = dialogue.yes_or_no(&question, false)?.then_some(USUAL_STORE);
        }
        if manifest.asks_for(Capability::Session).is_some() && !grants.session {
            grants.session = dialogue.yes_or_no(
                "May the plugin keep its memory between the calls of a session?",
                false,
            )?;
        }
        Ok(())
    }

    /// The installed plugin of a name from the command line.
    fn one(&self, name: &str) -> Result<LockedPlugin, Error> {
        let installed = self.installer.all()?;
        installed.get(name).cloned().ok_or_else(|| {
            let names: Vec<&str> = installed.keys().map(String::as_str).collect();
            Error::Usage(if names.is_empty() {
                "no plugin is installed".to_owned()
            } else {
                format!("no plugin `{name}` is installed; installed: {}", names.join(", "))
            })
        })
    }

    fn remove(&self, name: &str) -> Result<Exit, Error> {
        self.one(name)?;
        self.installer.remove(name)?;
        let mut out = anstream::stdout().lock();
        writeln!(out, "Removed {name}.")?;
        if self.setting.loaded.values.plugins.contains_key(name) {
            writeln!(
                out,
                "[plugins.{name}] stays in your configuration: its grants apply to the next plugin \
                 of this name."
            )?;
        }
        Ok(Exit::Success)
    }

    fn update(&self, name: Option<&str>, how: How, as_json: bool) -> Result<Exit, Error> {
        let installed = match name {
            Some(name) => [(name.to_owned(), self.one(name)?)].into(),
            None => self.installer.all()?,
        };
        let mut updates = Vec::new();
        for (name, locked) in installed {
            let update = self.update_one(&name, &locked, how, as_json).unwrap_or_else(|error| {
                Update { error: error.end().1, ..Update::new(&name, &locked, "failed") }
            });
            if !as_json {
                print_update(&update)?;
            }
            updates.push(update);
        }
        if as_json {
            let all: Vec<Value> = updates.iter().map(update_json).collect();
            writeln!(std::io::stdout().lock(), "{:#}", json!(all))?;
        } else if updates.is_empty() {
            writeln!(anstream::stdout(), "No plugin is installed.")?;
        }
        Ok(if updates.iter().any(|update| update.state == "failed") {
            Exit::Host
        } else if updates.iter().any(|update| update.state == "held") {
            Exit::Denied
        } else {
            Exit::Success
        })
    }

    fn update_one(
        &self,
        name: &str,
        locked: &LockedPlugin,
        how: How,
        as_json: bool,
    ) -> Result<Update, Error> {
        let now = &locked.approved;
        if now.source.as_ref().is_some_and(|source| source.bundle.is_some()) {
            return Ok(Update::new(name, locked, "bundle"));
        }
        let given = now.source.as_ref().map(|source| source.given.clone()).unwrap_or_default();
        let source = Source::parse(&given).map_err(Error::usage)?;
        if source.is_pinned() {
            return Ok(Update::new(name, locked, "same"));
        }
        let (offer, check) = host::block_on(async {
            let offer = self.offer(&source, &source).await?;
            let check = self.installer.compare(now, name, &offer, how.downgrade).await?;
            Ok((offer, check))
        })?;
        let Comparison::Other { difference, signer, is_more } = check else {
            return Ok(Update::new(name, locked, "same"));
        };
        let to = Some(offer.version().to_owned());
        if how.check {
            let state = if is_more { "more" } else { "available" };
            let difference = Some(difference);
            return Ok(Update { to, difference, signer, ..Update::new(name, locked, state) });
        }
        let is_approved = !is_more
            || how.yes
            || !as_json && self.approves_more(name, &difference, signer.as_ref())?;
        let state = match self.installer.update(now, &offer, is_approved)? {
            Installed::InForce => "updated",
            Installed::Held => "held",
        };
        if state == "updated" && !as_json {
            tell_hosts(&mut anstream::stdout(), &self.setting.folders, name, offer.digest())?;
        }
        let difference = Some(difference);
        Ok(Update { to, difference, signer, ..Update::new(name, locked, state) })
    }

    /// Asks whether an update that can do more is approved. False without a terminal.
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
        dialogue.yes_or_no(&format!("Approve this update of {name}?"), false)
    }

    fn verify(&self, as_json: bool) -> Result<Exit, Error> {
        let found = self.installer.verify()?;
        let is_right = found.values().all(Vec::is_empty);
        if as_json {
            let plugins: Vec<Value> = found
                .iter()
                .map(|(name, wrong)| json!({ "name": name, "ok": wrong.is_empty(), "problems": wrong }))
                .collect();
            writeln!(
                std::io::stdout().lock(),
                "{:#}",
                json!({ "ok": is_right, "plugins": plugins })
            )?;
        } else {
            let mut out = anstream::stdout().lock();
            for (name, wrong) in &found {
                if wrong.is_empty() {
                    writeln!(out, "{name}: matches toolhold.lock")?;
                } else {
                    wrong.iter().try_for_each(|wrong| {
                        writeln!(out, "{STRONG}{name}{STRONG:#}: {}", neutral_line(wrong))
                    })?;
                }
            }
            let count = found.len();
            let broken = found.values().filter(|wrong| !wrong.is_empty()).count();
            match broken {
                0 => writeln!(out, "{count} verified.")?,
                broken => writeln!(out, "{broken} of {count} differ from toolhold.lock.")?,
            }
        }
        Ok(if is_right { Exit::Success } else { Exit::ToolFailure })
    }

    fn history(&self, name: &str, as_json: bool) -> Result<Exit, Error> {
        let locked = self.one(name)?;
        let LockedPlugin { approved, previous, offered } = &locked;
        if as_json {
            writeln!(std::io::stdout().lock(), "{:#}", json!(locked))?;
            return Ok(Exit::Success);
        }
        let mut out = anstream::stdout().lock();
        if let Some(offered) = offered {
            line(&mut out, offered, &format!("held: `toolhold plugin approve {name}`"))?;
        }
        line(&mut out, approved, "current")?;
        previous.iter().try_for_each(|earlier| line(&mut out, earlier, "earlier"))?;
        Ok(Exit::Success)
    }

    fn roll_back(&self, name: &str) -> Result<Exit, Error> {
        self.one(name)?;
        let (now, before) = self.installer.roll_back(name)?;
        let mut out = anstream::stdout().lock();
        writeln!(
            out,
            "{name} {} is in use again, instead of {}. `toolhold plugin update {name}` installs \
             the version of its source again.",
            neutral_line(&now.version),
            neutral_line(&before.version)
        )?;
        tell_hosts(&mut out, &self.setting.folders, name, &now.digest)?;
        Ok(Exit::Success)
    }
}

fn fetch_failed(error: FetchError) -> Error {
    Error::Fetch(error.to_string())
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

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

fn is_granted(grants: &WrittenGrants, capability: &str) -> bool {
    match capability {
        "files" | "search" => !grants.directories.is_empty(),
        "http" => !grants.hosts.is_empty(),
        "store" => grants.store_mib.is_some(),
        "index" => grants.index_mib.is_some(),
        "session" => grants.session,
        _ => false,
    }
}

/// Whether a plugin that asks for files only reads them.
fn reads_only(request: &CapabilityRequest) -> bool {
    request.access.as_deref() == Some("read")
}

/// Shows the facts that a person has to know before they install a plugin.
pub(crate) fn show(
    out: &mut impl Write,
    inspection: &PluginInspection,
    signed_by: &SignedBy,
) -> Result<(), Error> {
    write!(out, "{}", Header(&inspection.info))?;
    writeln!(out, "{signed_by}")?;
    let (asked, unasked): (Vec<_>, Vec<_>) =
        abilities(&inspection.info.manifest).into_iter().partition(|one| one.reason.is_some());
    if asked.is_empty() {
        writeln!(out, "\n{STRONG}The plugin asks for nothing{STRONG:#}")?;
    } else {
        writeln!(out, "\n{STRONG}The plugin asks to{STRONG:#}")?;
    }
    for ability in &asked {
        let reason = neutral_line(ability.reason.as_deref().unwrap_or_default());
        writeln!(out, "  {}\n    {FAINT}reason: {reason}{FAINT:#}", ability.words)?;
    }
    let unasked: Vec<&str> = unasked.iter().map(|ability| ability.noun).collect();
    if !unasked.is_empty() {
        writeln!(out, "\n{STRONG}The plugin does not ask for{STRONG:#}")?;
        writeln!(out, "  {}", unasked.join(", "))?;
    }
    writeln!(out, "\n{STRONG}Tools{STRONG:#}")?;
    crate::plugin::list_tools(out, inspection)?;
    write!(out, "{}", LeftOutTools(inspection))?;
    Ok(())
}

/// Shows what the configuration grants to the name already, perhaps for another plugin.
pub(crate) fn show_granted(
    out: &mut impl Write,
    inspection: &PluginInspection,
    loaded: &Config,
) -> Result<(), Error> {
    let info = &inspection.info;
    let requests = info.manifest.capabilities.iter();
    let granted: Vec<(&str, String)> = requests
        .filter_map(|request| {
            Some((&*request.name, grant_in_words(loaded, &info.manifest.name, &request.name)?))
        })
        .collect();
    if !granted.is_empty() {
        let table = neutral_line(&info.manifest.name);
        writeln!(out, "\n{STRONG}Granted already, by [plugins.{table}]{STRONG:#}")?;
        granted.iter().try_for_each(|(name, what)| {
            writeln!(out, "  {}: {}", neutral_line(name), neutral_line(what))
        })?;
    }
    Ok(())
}

fn print_update(update: &Update) -> Result<(), Error> {
    let mut out = anstream::stdout().lock();
    let Update { name, from, to, state, difference, signer, error } = update;
    let from = neutral_line(from);
    let to = neutral_line(to.as_deref().unwrap_or_default());
    match *state {
        "same" => writeln!(out, "{name} {from}: up to date")?,
        "bundle" => {
            writeln!(
                out,
                "{name} {from}: installed by a bundle; only another bundle can update it"
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
            "{STRONG}{name}{STRONG:#} {from} -> {to}: held, because it asks for more, has other \
             descriptions or another signer; {from} stays in use until `toolhold plugin approve \
             {name}`"
        )?,
        state => {
            let more = if state == "more" { "; it needs approval" } else { "" };
            writeln!(out, "{STRONG}{name}{STRONG:#} {from} -> {to}{more}")?;
        }
    }
    if let (Some(difference), "more" | "available" | "held") = (difference, *state) {
        write!(out, "{}", Differences(difference, signer.as_ref()))?;
    }
    Ok(())
}

fn update_json(update: &Update) -> Value {
    let Update { name, from, to, state, difference, signer, error } = update;
    let signer = signer.as_ref().map(|SignerChange { old, new }| json!({ "old": old, "new": new }));
    json!({ "name": name, "from": from, "to": to, "state": state, "difference": difference, "signer": signer, "error": error })
}

fn line(out: &mut impl Write, version: &ApprovedPlugin, state: &str) -> std::io::Result<()> {
    let source = version.source.as_ref().map(|source| neutral_line(&source.resolved));
    writeln!(
        out,
        "{}  {}  {STRONG}{state}{STRONG:#}\n  {FAINT}{}{FAINT:#}",
        neutral_line(&version.version),
        &version.digest[..version.digest.len().min(12)],
        source.unwrap_or_default()
    )
}

/// The transferred bytes, for people.
fn transferred(done: u64, all: u64) -> String {
    match all {
        0 => format!("{} MiB", mebibytes(done)),
        all => {
            let part = usize::try_from(done.min(all).saturating_mul(20) / all).unwrap_or(20);
            let bar = format!("{}{}", "=".repeat(part), " ".repeat(20 - part));
            format!("[{bar}] {} of {} MiB", mebibytes(done), mebibytes(all))
        }
    }
}

fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{}", tenths / 10, tenths % 10)
}
