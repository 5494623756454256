//! `toolhold trust`: decides whether the working directory's `toolhold.toml` may add grants to the
//! user's configuration, and whether the directory's skills and commands may be used.

use std::fmt::Write as _;
use std::io::{BufRead, Write};
use std::path::Path;

use toolhold_core::HostError;
use toolhold_core::config::{
    self, Folders, Ignored, Inputs, Project, ProjectFilterRules, ProjectRulesTrust, ProjectTrust,
    Source,
};
use toolhold_core::text::neutral_line;
use toolhold_skills::{
    CustomCommand, CustomCommands, Skill, SkillOrigin, Skills, trusted_commands, trusted_skills,
};

use crate::arguments::TrustArguments;
use crate::ask::{self, Dialogue};
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::plugin;
use crate::shown::{self, toml};
use crate::skills::trust_skill;
use crate::style::{FAINT, STRONG};

pub(crate) fn run(arguments: &TrustArguments, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    if arguments.list {
        return list(&folders);
    }
    let directory = arguments.directory.as_deref().unwrap_or(Path::new("."));
    if arguments.forget {
        return forget(directory, &folders);
    }
    let directory = directory
        .canonicalize()
        .map_err(HostError::io(format!("opening {}", directory.display())))?;
    // Options and variables are ignored, because they could hide a grant that the project's file
    // adds.
    let inputs = Inputs {
        file: options.config.clone(),
        working_directory: Some(directory.clone()),
        defaults: options.inputs()?.defaults,
        ..Inputs::default()
    };
    let loaded = config::load(&folders, &inputs).map_err(HostError::from)?;
    let rules = loaded.project_filter_rules(&folders, &directory).map_err(Error::usage)?;
    let skills = Skills::find(&loaded, &folders, &directory)?;
    let trusted: Vec<&Skill> =
        skills.usable.iter().filter(|skill| skill.origin == SkillOrigin::Trusted).collect();
    let has_skills = !trusted.is_empty() || !skills.untrusted.is_empty();
    let mut commands = CustomCommands::find(&folders, &directory, toolhold_tui::is_command)?.found;
    commands.retain(|command| command.origin != SkillOrigin::User);
    let has_parts = has_skills || !commands.is_empty();
    if loaded.project.is_none() && rules.is_none() && !has_parts {
        return Err(Error::Usage(format!(
            "{} has no toolhold.toml, no filters.toml, and no skill or command of a project",
            directory.display()
        )));
    }
    let mut exit = Exit::Success;
    if let Some(project) = &loaded.project {
        exit = trust_project(project, arguments, &folders)?;
        // A file's plugins are used only in its directory, so they are installed only from there.
        if exit == Exit::Success && toolhold_core::config::working_directory()? == directory {
            exit = plugin::install_wanted(arguments.yes, options)?;
        }
    }
    if let Some(rules) = &rules {
        let rules_exit = trust_rules(rules, arguments, &folders)?;
        exit = first_failure(exit, rules_exit);
    }
    for skill in trusted {
        let shown = shown::path(&skill.folder);
        writeln!(anstream::stdout(), "{shown} is already trusted.")?;
    }
    for skill in &skills.untrusted {
        let skill_exit = trust_skill(skill, &folders, |question| confirm(arguments, question))?;
        exit = first_failure(exit, skill_exit);
    }
    for command in &commands {
        let command_exit = trust_command(command, arguments, &folders)?;
        exit = first_failure(exit, command_exit);
    }
    Ok(exit)
}

fn first_failure(first: Exit, second: Exit) -> Exit {
    if first == Exit::Success { second } else { first }
}

/// Shows the grants of a project's `toolhold.toml`, and trusts the file if the person agrees.
fn trust_project(
    project: &Project,
    arguments: &TrustArguments,
    folders: &Folders,
) -> Result<Exit, Error> {
    let shown = shown::path(&project.path);
    let mut out = anstream::stdout();
    if project.widening.is_empty() {
        writeln!(
            out,
            "{shown} only restricts your configuration, so the whole file already applies."
        )?;
        return Ok(Exit::Success);
    }
    if project.standing == ProjectTrust::Trusted {
        writeln!(out, "{shown} is already trusted.")?;
        return Ok(Exit::Success);
    }
    write!(out, "{}", describe(project))?;
    if !confirm(arguments, "Apply this file like your own configuration until the file changes?")? {
        writeln!(out, "The file is not trusted, and can still only restrict your configuration.")?;
        return Ok(Exit::Denied);
    }
    project.trust(folders)?;
    writeln!(out, "{shown} is trusted until the file changes.")?;
    Ok(Exit::Success)
}

/// Shows a project's filter rules, and trusts them if the person agrees.
fn trust_rules(
    rules: &ProjectFilterRules,
    arguments: &TrustArguments,
    folders: &Folders,
) -> Result<Exit, Error> {
    let shown = shown::path(&rules.path);
    let mut out = anstream::stdout();
    if rules.standing == ProjectRulesTrust::Trusted {
        writeln!(out, "{shown} is already trusted.")?;
        return Ok(Exit::Success);
    }
    writeln!(out, "{shown} has rules that make answers shorter:\n")?;
    for line in rules.text.lines() {
        writeln!(out, "  {}", neutral_line(line))?;
    }
    if rules.standing == ProjectRulesTrust::Changed {
        writeln!(out, "\nThe file has changed since you trusted it.")?;
    }
    writeln!(
        out,
        "\nErrors, warnings and lines about security always stay. {FAINT}Digest: {}{FAINT:#}\n",
        rules.digest
    )?;
    if !confirm(arguments, "Use these rules until the file changes?")? {
        writeln!(out, "The file is not trusted, so its rules aren't used.")?;
        return Ok(Exit::Denied);
    }
    rules.trust(folders)?;
    writeln!(out, "{shown} is trusted until the file changes.")?;
    Ok(Exit::Success)
}

/// Shows a project's command, and trusts it if the person agrees.
fn trust_command(
    command: &CustomCommand,
    arguments: &TrustArguments,
    folders: &Folders,
) -> Result<Exit, Error> {
    let shown = shown::path(&command.path);
    let mut out = anstream::stdout();
    if command.origin == SkillOrigin::Trusted {
        writeln!(out, "{shown} is already trusted.")?;
        return Ok(Exit::Success);
    }
    writeln!(out, "{shown} is a command. /{} sends this text to the agent:\n", command.name)?;
    for line in command.source.lines() {
        writeln!(out, "  {}", neutral_line(line))?;
    }
    if command.origin == SkillOrigin::Changed {
        writeln!(out, "\nThe command has changed since you trusted it.")?;
    }
    writeln!(out, "\n{FAINT}Digest: {}{FAINT:#}\n", command.digest)?;
    if !confirm(arguments, "Use this command, until it changes?")? {
        writeln!(out, "The command is not trusted, and isn't used.")?;
        return Ok(Exit::Denied);
    }
    config::add_trust(folders, &command.path, &command.digest)?;
    writeln!(out, "{shown} is trusted until the file changes.")?;
    Ok(Exit::Success)
}

/// Asks at the terminal, unless `--yes` is set.
fn confirm(arguments: &TrustArguments, question: &str) -> Result<bool, Error> {
    anstream::stdout().flush()?;
    if arguments.yes {
        return Ok(true);
    }
    let Some(mut dialogue) = ask::open_dialogue("the file is not trusted") else {
        return Err(Error::Unasked(
            "there is no terminal to ask at, so the file is not trusted; \
             check the file, then run: toolhold trust --yes"
                .to_owned(),
        ));
    };
    ask_for_trust(&mut dialogue, question)
}

fn ask_for_trust<R: BufRead, W: Write>(
    dialogue: &mut Dialogue<R, W>,
    question: &str,
) -> Result<bool, Error> {
    let default_answer = false;
    dialogue.yes_or_no(question, default_answer)
}

/// Describes all grants that the file would add, because the person trusts the whole file.
fn describe(project: &Project) -> String {
    let mut text = format!(
        "{} asks for more than your own configuration grants:\n",
        shown::path(&project.path)
    );
    for Ignored { key, source, current, proposed, reasons, .. } in &project.widening {
        // The source of a project's key is always a line of a file.
        let line = if let Source::File { line, .. } = source { *line } else { 0 };
        let current = if current.is_null() { "nothing".to_owned() } else { toml(current) };
        let _ = writeln!(text, "\n  {STRONG}{}{STRONG:#}, line {line}", neutral_line(key));
        for reason in reasons {
            let _ = writeln!(text, "    {FAINT}{}{FAINT:#}", neutral_line(reason));
        }
        let _ = writeln!(text, "    now:      {current}\n    asks for: {}", toml(proposed));
    }
    if project.standing == ProjectTrust::Changed {
        text += "\nThe file has changed since you trusted it.\n";
    }
    text + &format!("\nYour denials stay in any case. {FAINT}Digest: {}{FAINT:#}\n", project.digest)
}

fn list(folders: &Folders) -> Result<Exit, Error> {
    let mut out = anstream::stdout().lock();
    let trusted = config::trusted(folders)?;
    if trusted.is_empty() {
        writeln!(out, "No file is trusted.")?;
    }
    for (path, digest) in &trusted {
        writeln!(out, "{}  {FAINT}{digest}{FAINT:#}", neutral_line(path))?;
    }
    Ok(Exit::Success)
}

/// Ends the trust in the file `target`, or in all files of the directory `target`.
fn forget(target: &Path, folders: &Folders) -> Result<Exit, Error> {
    // A deleted file has no real path, but its stored path can still be removed.
    let target = target
        .canonicalize()
        .or_else(|_| std::path::absolute(target))
        .map_err(HostError::io(format!("opening {}", target.display())))?;
    let is_file = target.ends_with("toolhold.toml") || target.ends_with("filters.toml");
    let mut paths = Vec::new();
    if !is_file {
        paths.push(target.join("toolhold.toml"));
        paths.push(target.join("filters.toml"));
    }
    paths.extend(trusted_skills(&target, folders)?);
    paths.extend(trusted_commands(&target, folders)?);
    // `target` may be a trusted file, or the folder of a trusted skill.
    paths.push(target.clone());
    let mut out = anstream::stdout();
    let mut is_forgotten = false;
    for path in paths {
        if config::forget(folders, &path)? {
            writeln!(out, "{} is no longer trusted.", shown::path(&path))?;
            is_forgotten = true;
        }
    }
    if is_forgotten {
        return Ok(Exit::Success);
    }
    Err(Error::Usage(format!(
        "nothing in {} is trusted; `toolhold trust --list` lists the trusted files",
        target.display()
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn project() -> Project {
        let source = Source::File { path: "/w/toolhold.toml".into(), line: 3 };
        let ignored = |key: &str, current, proposed| Ignored {
            key: key.into(),
            rules: false,
            source: source.clone(),
            current,
            proposed,
            reasons: vec!["no".into()],
        };
        Project {
            path: "/w/toolhold.toml".into(),
            digest: "d".repeat(64),
            standing: ProjectTrust::Changed,
            widening: vec![
                ignored("tools.call", json!(30), json!(60)),
                ignored("plugins.x", json!(null), json!({ "path": "\u{1b}[2J" })),
            ],
        }
    }

    #[test]
    fn trust_shows_every_request_before_asking() {
        let text = anstream::adapter::strip_str(&describe(&project())).to_string();
        assert!(
            text.contains("  tools.call, line 3\n    no\n    now:      30\n    asks for: 60\n"),
            "{text}"
        );
        assert!(
            text.contains("    now:      nothing\n    asks for: { path = \"\\u001b[2J\" }\n"),
            "{text}"
        );
        assert!(text.contains("has changed since") && text.contains(&"d".repeat(64)), "{text}");
    }

    #[test]
    fn only_yes_is_accepted() {
        for (said, expected) in [("\n", false), ("n\n", false), ("y\n", true)] {
            assert_eq!(
                ask_for_trust(&mut Dialogue::between(said.as_bytes(), Vec::new()), "").ok(),
                Some(expected),
                "{said:?}"
            );
        }
    }
}
