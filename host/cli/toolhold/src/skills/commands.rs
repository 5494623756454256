//! `toolhold skills`: lists, shows and checks skills.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use toolhold_core::config::{Config, Folders};
use toolhold_core::text::{counted, neutral, neutral_line};
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::style::{BAD, GOOD, STRONG, WARNING};
use toolhold_terminal::table::Table;

use toolhold_skills::Skills;
use toolhold_skills::folder::{Owners, SkillFolder};
use toolhold_skills::skill::{
    SKILL_FILE, Skill, SkillFinding, SkillOrigin, SkillText, check, folder_name,
};

use crate::arguments::skills::SkillsCommand;

pub(crate) fn run(
    command: &SkillsCommand,
    config: &Config,
    folders: &Folders,
    directory: &Path,
) -> Result<Exit, CommandError> {
    let skills = Skills::find(config, folders, directory)?;
    match command {
        SkillsCommand::List { json } => list(&skills, *json),
        SkillsCommand::Show { name, json } => show(&skills, name, config, *json),
        SkillsCommand::Check { skill, json } => check_all(&skills, skill.as_deref(), *json),
    }
}

/// Lists the skills, and the folders that were left out with the reasons.
fn list(skills: &Skills, as_json: bool) -> Result<Exit, CommandError> {
    let mut out = anstream::stdout().lock();
    let all: Vec<&Skill> = skills.usable.iter().chain(&skills.untrusted).collect();
    if as_json {
        writeln!(out, "{:#}", json!({ "skills": all, "left_out": skills.left_out }))?;
        return Ok(Exit::Success);
    }
    if all.is_empty() {
        writeln!(out, "There are no skills.")?;
    }
    let mut table = Table::new(["NAME", "FROM", "DESCRIPTION"], &[]);
    let from_column = 1;
    for skill in &all {
        let Skill { name, description, folder, origin, .. } = skill;
        table.row([name.clone(), origin.in_words().to_owned(), description.clone()]);
        if !origin.is_usable() {
            table.colour(from_column, WARNING);
        }
        table.detail(&folder.display().to_string());
    }
    if !all.is_empty() {
        table.print(&mut out)?;
    }
    let mut err = anstream::stderr();
    for reason in &skills.left_out {
        writeln!(err, "{WARNING}note{WARNING:#}: {reason}")?;
    }
    if !skills.untrusted.is_empty() {
        writeln!(err, "`toolhold trust` shows the project's skills and asks whether to use them.")?;
    }
    Ok(Exit::Success)
}

fn show(skills: &Skills, name: &str, config: &Config, as_json: bool) -> Result<Exit, CommandError> {
    let skill = find_skill(skills, name)?;
    let folder = SkillFolder::open(&skill.folder, Owners::Any).map_err(CommandError::usage)?;
    let text = SkillText::read(&folder).map_err(CommandError::usage)?;
    let (findings, tree) = check(&folder, &skill.name);
    let files: Vec<String> = tree.files.iter().map(|file| neutral_line(&file.path)).collect();
    let mut variables: Vec<&str> = Vec::new();
    if let Some(environment) = config.values.skills.env.get(&skill.name) {
        variables.extend(environment.keys().map(String::as_str));
    }
    let matter = &text.matter;
    let shown_text = neutral(&String::from_utf8_lossy(&text.bytes)).into_owned();
    let mut out = anstream::stdout().lock();
    if as_json {
        let object = json!({
            "skill": skill, "license": matter.license, "compatibility": matter.compatibility,
            "files": files, "variables": variables, "findings": findings, "text": shown_text,
        });
        writeln!(out, "{object:#}")?;
        return Ok(Exit::Success);
    }

    let path = neutral_line(&skill.folder.display().to_string());
    writeln!(out, "{STRONG}{}{STRONG:#}, {}: {path}", skill.name, skill.origin.in_words())?;
    writeln!(out, "files: {}", files.join(", "))?;
    if !variables.is_empty() {
        writeln!(out, "variables: {}", variables.join(", "))?;
    }
    print_findings(&mut out, &findings)?;
    writeln!(out, "\n{}", shown_text.trim_end())?;
    Ok(Exit::Success)
}

fn find_skill<'s>(skills: &'s Skills, name: &str) -> Result<&'s Skill, CommandError> {
    let mut all = skills.usable.iter().chain(&skills.untrusted);
    all.find(|skill| skill.name == name).ok_or_else(|| {
        CommandError::Usage(format!(
            "there is no skill `{}`; `toolhold skills list` lists all skills",
            neutral_line(name)
        ))
    })
}

/// Returns the folder of the skill `skill`, the skills below the path `skill`, or the folders of
/// all skills.
fn folders_to_check(skills: &Skills, skill: Option<&str>) -> Result<Vec<PathBuf>, CommandError> {
    let Some(skill) = skill else {
        let all = skills.usable.iter().chain(&skills.untrusted);
        return Ok(all.map(|skill| skill.folder.clone()).collect());
    };
    let is_path = skill.contains('/') || skill == "." || Path::new(skill).join(SKILL_FILE).exists();
    if !is_path {
        return Ok(vec![find_skill(skills, skill)?.folder.clone()]);
    }

    let mut path = Path::new(skill)
        .canonicalize()
        .map_err(|error| CommandError::Usage(format!("{}: {error}", neutral_line(skill))))?;
    if path.file_name().is_some_and(|name| name == SKILL_FILE) {
        // `SKILL.md` stands for its folder.
        path.pop();
    }
    let folder = SkillFolder::open(&path, Owners::Any).map_err(CommandError::usage)?;
    if folder.has(SKILL_FILE) {
        return Ok(vec![path]);
    }

    let (names, _) = folder.names(10_000).map_err(CommandError::usage)?;
    let mut skill_folders = Vec::new();
    for name in &names {
        if let Some(Ok(inner)) = folder.folder(name)
            && inner.has(SKILL_FILE)
        {
            skill_folders.push(path.join(name));
        }
    }
    if skill_folders.is_empty() {
        return Err(CommandError::Usage(format!(
            "there is no {SKILL_FILE} in {} or a folder in it",
            neutral_line(skill)
        )));
    }
    Ok(skill_folders)
}

fn check_all(skills: &Skills, skill: Option<&str>, as_json: bool) -> Result<Exit, CommandError> {
    let mut checked = Vec::new();
    for path in folders_to_check(skills, skill)? {
        let name = folder_name(&path);
        let is_of_user = skills
            .usable
            .iter()
            .any(|skill| skill.origin == SkillOrigin::User && skill.folder == path);
        let owners = if is_of_user { Owners::User } else { Owners::Any };
        let findings = match SkillFolder::open(&path, owners) {
            Ok(folder) => check(&folder, name).0,
            Err(error) => vec![SkillFinding { is_error: true, message: error.to_string() }],
        };
        checked.push((path, findings));
    }
    // Skills that were left out are listed only if all skills are checked.
    let left_out = if skill.is_none() { &skills.left_out[..] } else { &[] };

    let mut out = anstream::stdout().lock();
    if as_json {
        let mut objects = Vec::new();
        for (folder, findings) in &checked {
            objects.push(json!({ "folder": folder, "findings": findings }));
        }
        writeln!(out, "{:#}", json!({ "skills": objects, "left_out": left_out }))?;
    } else {
        for (path, findings) in &checked {
            let count = counted(findings.len(), "finding");
            let path = neutral_line(&path.display().to_string());
            if findings.is_empty() {
                writeln!(out, "{GOOD}ok{GOOD:#}  {path}")?;
            } else {
                writeln!(out, "{STRONG}{path}{STRONG:#}: {count}")?;
            }
            print_findings(&mut out, findings)?;
        }
        for reason in left_out {
            writeln!(out, "{BAD}error{BAD:#}: {reason}")?;
        }
    }

    let mut all_findings = checked.iter().flat_map(|(_, findings)| findings);
    let has_errors = all_findings.any(|finding| finding.is_error);
    let is_ok = !has_errors && left_out.is_empty();
    Ok(if is_ok { Exit::Success } else { Exit::ToolFailure })
}

fn print_findings(out: &mut impl Write, findings: &[SkillFinding]) -> std::io::Result<()> {
    for SkillFinding { is_error, message } in findings {
        let message = neutral_line(message);
        if *is_error {
            writeln!(out, "  {BAD}error{BAD:#}: {message}")?;
        } else {
            writeln!(out, "  {WARNING}warning{WARNING:#}: {message}")?;
        }
    }
    Ok(())
}
