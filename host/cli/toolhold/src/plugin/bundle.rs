//! `toolhold plugin bundle`: creates, shows and installs a bundle.

use std::io::Write;

use toolhold_core::config::Inputs;
use toolhold_core::text::{counted, neutral_line};
use toolhold_core::{Ask, ask_hosts};

use crate::arguments::bundle::{BundleCommand, InstallBundleArguments};
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::plugin::install::{
    BundleContents, BundlePlan, Installer, PlannedChange, PlannedPlugin, create_bundle,
};
use crate::plugin::{Setting, built_in_names, show, show_granted};
use crate::plugin_description::Differences;
use crate::style::STRONG;
use crate::{ask, host, key, progress, shown};

pub(crate) fn run(command: &BundleCommand, options: &Options) -> Result<Exit, Error> {
    let setting = Setting::from_options(options)?;
    let inputs = options.inputs()?;
    match command {
        BundleCommand::Create(arguments) => {
            let key = key::secret_key(&arguments.key, arguments.password_from.as_ref())?;
            let index = create_bundle(arguments, &key, &setting.folders, &inputs)?;
            let mut out = anstream::stdout().lock();
            let path = shown::path(&arguments.file);
            writeln!(out, "{path} is signed by key {}:", key.public().id())?;
            for file in &index.files {
                writeln!(out, "  {}", file.name)?;
            }
        }
        BundleCommand::Show { file, json } => {
            let contents = BundleContents::open(file, &setting.folders, &setting.loaded)?;
            let mut out = anstream::stdout().lock();
            if *json {
                writeln!(out, "{:#}", contents.describe())?;
            } else {
                write!(out, "{contents}")?;
            }
        }
        BundleCommand::Install(arguments) => return install(arguments, &setting, &inputs),
    }
    Ok(Exit::Success)
}

/// Shows the plan of an installation, and makes the installation if the person agrees.
fn install(
    arguments: &InstallBundleArguments,
    setting: &Setting,
    inputs: &Inputs,
) -> Result<Exit, Error> {
    let folders = &setting.folders;
    let built_in = built_in_names();
    let installer = Installer::new(folders, &setting.loaded, &built_in);
    let contents = BundleContents::open(&arguments.file, folders, &setting.loaded)?;
    let plan = host::block_on(async {
        let plan =
            BundlePlan::new(contents, &arguments.without, arguments.downgrade, &installer, inputs);
        Ok(progress::show(plan, || "examining the bundle".to_owned()).await?)
    })?;
    let mut out = anstream::stdout().lock();
    print_plan(&mut out, &plan, setting)?;
    out.flush()?;
    if plan.is_empty() {
        writeln!(out, "Everything in the bundle is already installed.")?;
        return Ok(Exit::Success);
    }
    if !arguments.yes {
        let mut dialogue = ask::open_dialogue("nothing is installed").ok_or_else(|| {
            Error::Unasked("there is no terminal to ask at; `--yes` installs the bundle".to_owned())
        })?;
        let default_answer = false;
        if !dialogue.yes_or_no("Install all of this?", default_answer)? {
            writeln!(out, "Nothing is installed.")?;
            return Ok(Exit::Denied);
        }
    }
    plan.apply(folders)?;
    writeln!(
        out,
        "\nInstalled. A bundle grants nothing: grants are in [plugins.NAME] of your configuration."
    )?;
    let hosts = ask_hosts(folders, Ask::Reload)?.len();
    if hosts > 0 {
        writeln!(out, "{} now use the new versions.", counted(hosts, "running host"))?;
    }
    Ok(Exit::Success)
}

/// Prints the changes that an installation would make.
fn print_plan(out: &mut impl Write, plan: &BundlePlan, setting: &Setting) -> Result<(), Error> {
    writeln!(out, "The bundle is signed by your trusted key `{}`.", neutral_line(plan.signer()))?;
    for (name, version) in &plan.same {
        writeln!(out, "\n{name} {}: already installed", neutral_line(version))?;
    }
    for plugin in &plan.plugins {
        let name = plugin.name();
        let new_version = neutral_line(plugin.version());
        let PlannedPlugin { inspection, signed_by, change, .. } = plugin;
        match change {
            PlannedChange::New => {
                writeln!(out, "\n{STRONG}New{STRONG:#}")?;
                show(out, inspection, signed_by)?;
                show_granted(out, &inspection.info.manifest, &setting.loaded)?;
            }
            PlannedChange::Other { from, is_downgrade, difference, signer } => {
                let old_version = neutral_line(from);
                let older = if *is_downgrade { ", older" } else { "" };
                writeln!(out, "\n{STRONG}{name}{STRONG:#} {old_version} -> {new_version}{older}")?;
                write!(out, "{}", Differences(difference, signer.as_ref()))?;
            }
        }
    }
    for file in plan.filters.iter().chain(&plan.ceiling) {
        if !file.is_same() {
            write!(out, "\n{file}")?;
        }
    }
    Ok(())
}
