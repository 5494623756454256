//! `toolhold trust`: decides whether the working directory's `toolhold.toml` may extend the grants
//! of the user's configuration, and whether the directory's skills may be used.

use std::fmt::Write as _;
use std::io::{BufRead, Write};
use std::path::Path;

use toolhold_core::HostError;
use toolhold_core::config::{
    self, Folders, Ignored, Inputs, Project, ProjectFilterRules, ProjectRulesTrust, ProjectTrust,
    Source,
};
use toolhold_core::text::neutral_line;
use toolhold_skills::{Skill, SkillOrigin, Skills, trusted_skills};

use crate::arguments::TrustArguments;
use crate::ask::{self, Dialogue};
use crate::error::Error;
use crate::exit::Exit;
use crate::options::Options;
use crate::plugin;
use crate::shown::{self, toml};
use crate::skills::trust_skill;
use crate::style::{FAINT, STRONG};

/// Runs the command.
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
    // Only files are read. If a variable or an option made the same grant as the project's file,
    // the project's grant would be hidden here, but it would apply later.
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
    if loaded.project.is_none() && rules.is_none() && !has_skills {
        return Err(Error::Usage(format!(
            "{} has no toolhold.toml, no filters.toml and no skill of a project",
            directory.display()
        )));
    }
    let mut exit = Exit::Success;
    if let Some(project) = &loaded.project {
        exit = trust_project(project, arguments, &folders)?;
        // The trusted file applies only to commands in its own directory.
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
    Ok(exit)
}

fn first_failure(first: Exit, second: Exit) -> Exit {
    if first == Exit::Success { second } else { first }
}

fn trust_project(
    project: &Project,
    arguments: &TrustArguments,
    folders: &Folders,
) -> Result<Exit, Error> {
    let shown = shown::path(&project.path);
    let mut out = anstream::stdout();
    if project.widening.is_empty() {
        writeln!(out, "{shown} only restricts, so all of it already applies.")?;
        return Ok(Exit::Success);
    }
    if project.standing == ProjectTrust::Trusted {
        writeln!(out, "{shown} is already trusted.")?;
        return Ok(Exit::Success);
    }
    write!(out, "{}", describe(project))?;
    if !confirm(arguments, "Apply this file like your own, until it changes?")? {
        writeln!(out, "The file is not trusted, and can still only restrict.")?;
        return Ok(Exit::Denied);
    }
    project.trust(folders)?;
    writeln!(out, "{shown} is trusted, until it changes.")?;
    Ok(Exit::Success)
}

/// Shows the filter rules of a project, and trusts the rules if the person confirms.
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
    if !confirm(arguments, "Use these rules, until the file changes?")? {
        writeln!(out, "The file is not trusted, and its rules aren't used.")?;
        return Ok(Exit::Denied);
    }
    rules.trust(folders)?;
    writeln!(out, "{shown} is trusted, until it changes.")?;
    Ok(Exit::Success)
}

/// Asks at the terminal, unless `--yes` answers.
fn confirm(arguments: &TrustArguments, question: &str) -> Result<bool, Error> {
    anstream::stdout().flush()?;
    if arguments.yes {
        return Ok(true);
    }
    let Some(mut dialogue) = ask::open_dialogue("it is not trusted") else {
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
    dialogue.yes_or_no(question, false)
}

/// Describes all grants that the file would add. The list is complete, because the person trusts
/// all of them.
fn describe(project: &Project) -> String {
    let mut text = format!(
        "{} asks for more than your own configuration grants:\n",
        shown::path(&project.path)
    );
    for Ignored { key, source, current, proposed, reasons, .. } in &project.widening {
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

fn forget(directory: &Path, folders: &Folders) -> Result<Exit, Error> {
    // A removed file has no real path, but its path can still be removed from the list.
    let directory = directory
        .canonicalize()
        .or_else(|_| std::path::absolute(directory))
        .map_err(HostError::io(format!("opening {}", directory.display())))?;
    let is_file = ["toolhold.toml", "filters.toml"].iter().any(|name| directory.ends_with(name));
    let mut paths = if is_file {
        Vec::new()
    } else {
        vec![directory.join("toolhold.toml"), directory.join("filters.toml")]
    };
    paths.extend(trusted_skills(&directory, folders)?);
    // The path may belong to a file or to a skill's folder.
    paths.push(directory.clone());
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
        directory.display()
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
