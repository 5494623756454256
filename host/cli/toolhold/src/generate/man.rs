//! `toolhold generate man`: writes the manual pages.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use toolhold_core::HostError;

use crate::arguments::{Arguments, ManArguments};
use crate::error::Error;
use crate::exit::Exit;
use crate::nearest::nearest;

pub(crate) fn run(arguments: &ManArguments) -> Result<Exit, Error> {
    let root = root();
    match &arguments.all {
        Some(directory) => {
            let written = fs::create_dir_all(directory).and_then(|()| write_all(&root, directory));
            written.map_err(HostError::io(format!(
                "writing the manual pages to {}",
                directory.display()
            )))?;
        }
        None => {
            let command = find(&root, &arguments.command)?;
            std::io::stdout().lock().write_all(page(command)?.as_bytes())?;
        }
    }
    Ok(Exit::Success)
}

/// Writes a page for the command and each subcommand, for example `toolhold-config-show.1`.
fn write_all(command: &Command, directory: &Path) -> io::Result<()> {
    fs::write(directory.join(format!("{}.1", full_name(command))), page(command)?)?;
    for subcommand in command.get_subcommands() {
        write_all(subcommand, directory)?;
    }
    Ok(())
}

fn page(command: &Command) -> io::Result<String> {
    let mut page = Vec::new();
    Man::new(command.clone())
        .source(concat!("toolhold ", env!("CARGO_PKG_VERSION")))
        .manual("Toolhold")
        .render(&mut page)?;
    // Characters outside ASCII become escapes, which every locale shows correctly.
    Ok(String::from_utf8_lossy(&page).chars().map(escape).collect())
}

fn escape(c: char) -> String {
    if c.is_ascii() { c.to_string() } else { format!("\\[u{:04X}]", u32::from(c)) }
}

fn full_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// Returns the command with all subcommands, except `toolhold help`, which needs no page.
fn root() -> Command {
    let mut root = Arguments::command().disable_help_subcommand(true);
    root.build();
    root
}

/// Finds the command with these names, for example `config` and `show`.
fn find<'c>(root: &'c Command, names: &[String]) -> Result<&'c Command, Error> {
    let mut command = root;
    for name in names {
        command = command.find_subcommand(name).ok_or_else(|| {
            let near = nearest(name, command.get_subcommands().map(Command::get_name));
            let hint = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`toolhold help` lists all commands".to_owned(),
            };
            Error::Usage(format!("there is no command `{}`; {hint}", names.join(" ")))
        })?;
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command has a page with all its options and arguments.
    #[test]
    fn man_pages_are_complete() {
        fn check(command: &Command, pages: &mut usize) {
            // Roff distinguishes hyphen and minus, and has escapes for the first character of a
            // line.
            let page = page(command)
                .expect("a vector takes everything")
                .replace("\\-", "-")
                .replace("\\&", "");
            assert!(page.is_ascii() && page.contains(".TH"), "{page}");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let long = argument.get_long().map(|long| format!("--{long}"));
                let name = long
                    .or_else(|| Some(argument.get_value_names()?.first()?.to_string()))
                    .expect("it has a name");
                assert!(page.contains(&name), "{} lacks {name}:\n{page}", command.get_name());
            }
            for below in command.get_subcommands() {
                assert!(
                    page.contains(below.get_name()),
                    "{} lacks {}:\n{page}",
                    command.get_name(),
                    below.get_name()
                );
                check(below, pages);
            }
            *pages += 1;
        }
        let mut pages = 0;
        check(&root(), &mut pages);
        assert!(pages >= 12, "{pages}");
    }

    #[test]
    fn command_is_found_by_its_names() {
        let find = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            find(&root(), &names).map(|command| full_name(command).to_owned())
        };
        assert_eq!(find(&[]).ok().as_deref(), Some("toolhold"));
        assert_eq!(find(&["config", "show"]).ok().as_deref(), Some("toolhold-config-show"));
        assert!(
            matches!(find(&["cnfig"]), Err(Error::Usage(message)) if message.contains("`config`"))
        );
    }
}
