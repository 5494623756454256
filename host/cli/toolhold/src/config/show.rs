//! `toolhold config show`: shows the current values and their sources.

use std::io::Write;

use serde_json::{Value, json};
use toolhold_core::config::{
    AppliedPrincipal, Ceiling, Config, ConfigEntry, Folders, Ignored, Project, ProjectTrust,
    Source, Taken,
};
use toolhold_core::text::neutral_line;

use crate::error::Error;
use crate::shown::{self, toml};
use crate::style::{FAINT, STRONG};

/// The column in which comments start.
const COMMENTS: usize = 48;

pub(super) fn as_json(loaded: &Config) -> Result<(), Error> {
    let entries = loaded.entries();
    let values = entries.into_iter().map(|entry| {
        let source = entry.source.to_string();
        json!({ "key": entry.key, "value": entry.value, "source": source })
    });
    let object = json!({
        "file": loaded.file.as_deref().map(shown::path),
        "defaults": loaded.defaults.as_deref().map(shown::path),
        "project": loaded.project.as_ref().map(project),
        "ceilings": loaded.ceilings.iter().map(ceiling).collect::<Value>(),
        "values": values.collect::<Value>(),
    });
    writeln!(std::io::stdout(), "{object:#}")?;
    Ok(())
}

fn project(project: &Project) -> Value {
    let standing = match project.standing {
        ProjectTrust::Narrows => "narrows",
        ProjectTrust::Changed => "changed",
        ProjectTrust::Trusted => "trusted",
    };
    json!({
        "file": shown::path(&project.path),
        "digest": project.digest,
        "standing": standing,
        "ignored": project.ignored().iter().map(ignored).collect::<Value>(),
    })
}

/// Describes a key of the project's file that has no effect.
fn ignored(Ignored { key, source, current, proposed, reasons, .. }: &Ignored) -> Value {
    json!({
        "key": key,
        "source": source.to_string(),
        "current": current,
        "proposed": proposed,
        "reasons": reasons,
    })
}

pub(crate) fn ceiling(Ceiling { path, signed_by, taken, .. }: &Ceiling) -> Value {
    json!({
        "file": shown::path(path),
        "signed_by": signed_by,
        "taken": taken.iter().map(taken_key).collect::<Value>(),
    })
}

/// Describes a key whose value a ceiling has replaced.
fn taken_key(Taken { key, wanted, wanted_by, held, source }: &Taken) -> Value {
    json!({
        "key": key,
        "source": source.to_string(),
        "held": held,
        "wanted": wanted,
        "wanted_by": wanted_by.to_string(),
    })
}

pub(super) fn as_toml(loaded: &Config, folders: &Folders) -> Result<(), Error> {
    let mut out = anstream::stdout().lock();
    match &loaded.file {
        Some(file) => {
            writeln!(out, "{FAINT}# Your configuration: {}.{FAINT:#}", shown::path(file))?;
        }
        None => {
            writeln!(
                out,
                "{FAINT}# There is no {}.{FAINT:#}",
                shown::path(&folders.config_file())
            )?;
        }
    }
    if let Some(defaults) = &loaded.defaults {
        writeln!(
            out,
            "{FAINT}# {} sets defaults for keys that your configuration leaves out.{FAINT:#}",
            shown::path(defaults)
        )?;
    }
    if let Some(AppliedPrincipal { name, directory, .. }) = &loaded.principal {
        writeln!(
            out,
            "{FAINT}# The caller has the rights of [principals.{name}] and works in {}.{FAINT:#}",
            shown::path(directory)
        )?;
    }
    if let Some(Project { path, standing, .. }) = &loaded.project {
        let effect = match standing {
            ProjectTrust::Narrows => "can only restrict your configuration.",
            ProjectTrust::Changed => {
                "can only restrict your configuration. The file has changed since you trusted it."
            }
            ProjectTrust::Trusted => "is trusted, so all its keys apply.",
        };
        writeln!(out, "{FAINT}# {} {effect}{FAINT:#}", shown::path(path))?;
    }
    for Ceiling { path, .. } in &loaded.ceilings {
        writeln!(out, "{FAINT}# {} limits all these files.{FAINT:#}", shown::path(path))?;
    }
    let entries = loaded.entries();
    let mut table = "";
    for entry in &entries {
        let (entry_table, name) = entry.key.rsplit_once('.').unwrap_or(("", &entry.key));
        if entry_table != table {
            writeln!(out, "\n{STRONG}[{entry_table}]{STRONG:#}")?;
            table = entry_table;
        }
        for (line, source) in lines(name, entry) {
            match source {
                Some(source) => {
                    let source = neutral_line(&source.to_string());
                    writeln!(out, "{line:COMMENTS$} {FAINT}# {source}{FAINT:#}")?;
                }
                None => writeln!(out, "{line}")?,
            }
        }
    }
    if let Some(project) = &loaded.project {
        write_ignored(&mut out, project.ignored())?;
    }
    for ceiling in &loaded.ceilings {
        write_limits(&mut out, ceiling)?;
    }
    Ok(())
}

/// Writes the keys of the project's file that have no effect.
fn write_ignored(out: &mut impl Write, ignored: &[Ignored]) -> std::io::Result<()> {
    if ignored.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{FAINT}# Ignored, because a file in the working directory can only restrict; to \
         apply these keys: toolhold trust{FAINT:#}"
    )?;
    for key in ignored {
        let value = toml(&key.proposed);
        writeln!(out, "{FAINT}# {key}; the ignored value: {value}{FAINT:#}")?;
    }
    Ok(())
}

/// Writes the values that a ceiling has replaced.
fn write_limits(out: &mut impl Write, ceiling: &Ceiling) -> std::io::Result<()> {
    if ceiling.taken.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{FAINT}# Limited by {}:{FAINT:#}", shown::path(&ceiling.path))?;
    for Taken { key, wanted, wanted_by, source, .. } in &ceiling.taken {
        let source = neutral_line(&source.to_string());
        let key = neutral_line(key);
        let wanted = toml(wanted);
        let wanted_by = neutral_line(&wanted_by.to_string());
        writeln!(
            out,
            "{FAINT}# {source}: without the ceiling, `{key}` is {wanted} ({wanted_by}){FAINT:#}"
        )?;
    }
    Ok(())
}

/// Returns the lines of an entry with their sources. If a list's elements have different sources,
/// each element has its own line.
fn lines<'a>(name: &str, entry: &'a ConfigEntry) -> Vec<(String, Option<&'a Source>)> {
    let has_one_source = entry.elements.iter().all(|source| *source == entry.source);
    if has_one_source {
        return vec![(format!("{name} = {}", toml(&entry.value)), Some(&entry.source))];
    }
    let mut lines = vec![(format!("{name} = ["), None)];
    if let Some(items) = entry.value.as_array() {
        for (item, source) in items.iter().zip(&entry.elements) {
            lines.push((format!("  {},", toml(item)), Some(source)));
        }
    }
    lines.push(("]".to_owned(), None));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_with_several_sources_takes_several_lines() {
        let flag = Source::Flag("--allow x".to_owned());
        let mut entry = ConfigEntry {
            key: "k".into(),
            value: json!([".", "x"]),
            source: Source::Default,
            elements: vec![Source::Default; 2],
        };
        assert_eq!(lines("k", &entry), [("k = [\".\", \"x\"]".to_owned(), Some(&Source::Default))]);
        entry.elements[1] = flag.clone();
        let shown = lines("k", &entry);
        assert_eq!(shown[2], ("  \"x\",".to_owned(), Some(&flag)));
        assert_eq!(shown.len(), 4);
    }
}
