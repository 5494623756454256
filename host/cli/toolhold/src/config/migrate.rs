//! `toolhold config migrate`: converts the configuration of another agent into a `toolhold.toml`.

use std::io::Write;
use std::path::Path;

use similar::TextDiff;
use toolhold_core::HostError;
use toolhold_core::config::{self, Folders, Migration};
use toolhold_core::text::{neutral, neutral_line};

use crate::ask;
use crate::changed_file;
use crate::error::Error;
use crate::exit::Exit;
use crate::new_file;
use crate::options::Options;
use crate::shown;
use crate::style::{FAINT, STRONG};

/// Shows the converted configuration of `from`, and writes it to the command line's
/// `toolhold.toml`, which may be the same file. Asks first, unless `yes` is set.
pub(super) fn run(from: &Path, yes: bool, options: &Options) -> Result<Exit, Error> {
    let folders = Folders::from_environment()?;
    let to = options.config_file(&folders);
    let migration = config::migrate(&folders, from).map_err(HostError::from)?;
    let in_place = is_same_file(from, &to);
    show(&migration, from, &to)?;
    let mut out = anstream::stdout();
    if in_place && migration.before == migration.after {
        writeln!(out, "{} needs no change.", shown::path(&to))?;
        return Ok(Exit::Success);
    }
    if !in_place && to.symlink_metadata().is_ok() {
        return Err(new_file::exists(&to));
    }
    if !yes {
        let Some(mut dialogue) = ask::open_dialogue("nothing was written") else {
            return Err(Error::Unasked(format!(
                "there is no terminal to ask at, so nothing was written; run: toolhold config migrate --yes {}",
                shown::shell_word(&shown::path(from))
            )));
        };
        let default_answer = false;
        if !dialogue.yes_or_no(&format!("Write {}?", shown::path(&to)), default_answer)? {
            writeln!(out, "Nothing was written.")?;
            return Ok(Exit::Denied);
        }
    }
    if in_place {
        let in_project = false;
        changed_file::change(&to, in_project, |current| {
            if current != migration.before {
                return Err("the file was changed in the meantime");
            }
            Ok(migration.after.clone())
        })?;
    } else {
        new_file::create(&to, &migration.after)?;
    }
    writeln!(out, "Wrote {}. To check it: toolhold config check", shown::path(&to))?;
    Ok(Exit::Success)
}

fn is_same_file(first: &Path, second: &Path) -> bool {
    match (first.canonicalize(), second.canonicalize()) {
        (Ok(real_first), Ok(real_second)) => real_first == real_second,
        _ => false,
    }
}

/// Prints the conversion as a diff, the renamed keys, and the keys that were left out.
fn show(migration: &Migration, from: &Path, to: &Path) -> Result<(), Error> {
    let mut out = anstream::stdout();
    let text_diff = TextDiff::from_lines(migration.before.as_str(), migration.after.as_str());
    let from = shown::path(from);
    let to = shown::path(to);
    let diff = text_diff.unified_diff().header(&from, &to).to_string();
    write!(out, "{}", neutral(&diff))?;
    list(&mut out, "Keys with a new name", &migration.moved, " -> ")?;
    list(&mut out, "Left out", &migration.left_out, ": ")?;
    Ok(())
}

/// Writes each pair on a line below a title, with `separator` between both parts of the pair.
fn list(
    out: &mut impl Write,
    title: &str,
    pairs: &[(String, String)],
    separator: &str,
) -> std::io::Result<()> {
    if !pairs.is_empty() {
        writeln!(out, "\n{STRONG}{title}{STRONG:#}")?;
    }
    for (first, second) in pairs {
        let first = neutral_line(first);
        let second = neutral_line(second);
        writeln!(out, "  {first}{FAINT}{separator}{FAINT:#}{second}")?;
    }
    Ok(())
}
