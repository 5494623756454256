//! The systemd unit of `toolhold tasks daemon`.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

use thiserror::Error;
use toolhold_core::HostError;
use toolhold_core::config::Folders;
use toolhold_core::text::neutral_line;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;

use crate::arguments::tasks::DaemonArguments;

const UNIT: &str = "toolhold.service";

/// The variable that names the ceiling. The unit must set it, to limit the tasks too.
const CEILING: &str = "TOOLHOLD_CEILING";

/// Prints, installs or removes the unit. Returns `None` if `arguments` request nothing of this.
/// `config` and `settings` are the values of `--config` and `--set` for the unit.
pub(crate) fn manage_unit(
    arguments: &DaemonArguments,
    folders: &Folders,
    config: Option<&Path>,
    settings: &[String],
) -> Result<Option<Exit>, CommandError> {
    let mut out = anstream::stdout().lock();
    if arguments.print {
        write!(out, "{}", unit(folders, config, settings)?)?;
        return Ok(Some(Exit::Success));
    }
    if !arguments.install && !arguments.uninstall {
        return Ok(None);
    }

    let unit_folder = unit_folder(folders)?;
    let path = unit_folder.join(UNIT);
    let shown = neutral_line(&path.display().to_string());
    let private = toolhold_data_dir::PrivateFolder::make(&unit_folder)
        .map_err(HostError::io(format!("opening {}", unit_folder.display())))?;
    if arguments.install {
        let text = unit(folders, config, settings)?;
        private
            .put_with_mode(UNIT, text.as_bytes(), 0o644)
            .map_err(HostError::io(format!("writing {}", path.display())))?;
        writeln!(
            out,
            "Wrote {shown}. To enable the unit:\n  systemctl --user daemon-reload\n  systemctl \
             --user enable --now {UNIT}\nTo also run it while you are logged out: loginctl \
             enable-linger"
        )?;
        return Ok(Some(Exit::Success));
    }
    match private.remove(UNIT) {
        Ok(()) => writeln!(
            out,
            "Removed {shown}. If the daemon still runs: systemctl --user disable --now {UNIT}"
        )?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            writeln!(out, "There is no {shown}.")?;
        }
        Err(error) => {
            return Err(HostError::io(format!("removing {}", path.display()))(error).into());
        }
    }
    Ok(Some(Exit::Success))
}

/// Returns the folder of the user's systemd units.
fn unit_folder(folders: &Folders) -> Result<PathBuf, CommandError> {
    let config_home = PathBuf::from(std::env::var_os("XDG_CONFIG_HOME").unwrap_or_default());
    if config_home.is_absolute() {
        return Ok(config_home.join("systemd/user"));
    }
    let Some(home) = &folders.home else {
        return Err(CommandError::usage(
            "there is no home directory; print the unit with --print, and install the unit by hand",
        ));
    };
    Ok(home.join(".config/systemd/user"))
}

/// Returns the text of the unit. systemd starts the unit without the environment of this process,
/// so the unit itself sets the variables that name Toolhold's folders and the ceiling. Without
/// them, the daemon would run the tasks in the default folders.
fn unit(
    folders: &Folders,
    config: Option<&Path>,
    settings: &[String],
) -> Result<String, CommandError> {
    let program = std::env::current_exe().map_err(HostError::io("finding this program"))?;
    let mut words = vec![program.into_os_string()];
    if let Some(file) = config {
        words.extend(["--config".into(), absolute(file)?.into_os_string()]);
    }
    for setting in settings {
        words.extend(["--set".into(), setting.into()]);
    }

    let mut variables = Vec::new();
    for (toolhold_variable, xdg_variable, folder) in [
        ("TOOLHOLD_CONFIG_DIR", "XDG_CONFIG_HOME", &folders.config),
        ("TOOLHOLD_DATA_DIR", "XDG_DATA_HOME", &folders.data),
        ("TOOLHOLD_CACHE_DIR", "XDG_CACHE_HOME", &folders.cache),
    ] {
        if is_set(toolhold_variable) || is_set(xdg_variable) {
            variables.push((toolhold_variable, folder.clone()));
        }
    }
    if let Some(ceiling) = std::env::var_os(CEILING)
        && !ceiling.is_empty()
    {
        variables.push((CEILING, absolute(Path::new(&ceiling))?));
    }
    unit_text(&words, &variables).map_err(CommandError::usage)
}

fn absolute(path: &Path) -> Result<PathBuf, HostError> {
    std::path::absolute(path).map_err(HostError::io(format!("finding {}", path.display())))
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// A word of the unit has a control character or isn't UTF-8.
#[derive(Debug, Error)]
#[error(
    "a unit can't contain `{}`: the text has a control character, such as a line end, or isn't \
     UTF-8",
    neutral_line(&.0.to_string_lossy())
)]
struct UnitWordError(OsString);

/// Returns a unit that runs the tasks. `words` are the program and its options, and `variables` are
/// its environment variables.
fn unit_text(words: &[OsString], variables: &[(&str, PathBuf)]) -> Result<String, UnitWordError> {
    let mut command = Vec::new();
    for word in words {
        // In a unit's command, `$$` stands for `$`.
        command.push(quote(word)?.replace('$', "$$"));
    }
    let mut environment = String::new();
    for (name, value) in variables {
        let mut variable = OsString::from(format!("{name}="));
        variable.push(value);
        environment += &format!("Environment={}\n", quote(&variable)?);
    }
    Ok(format!(
        "[Unit]\n\
         Description=Toolhold: tasks at a later time\n\
         \n\
         [Service]\n\
         {environment}\
         ExecStart={} tasks daemon\n\
         Restart=on-failure\n\
         RestartSec=5\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n",
        command.join(" ")
    ))
}

/// Quotes a word for a unit. Fails if the word isn't UTF-8 or has control characters.
fn quote(word: &OsStr) -> Result<String, UnitWordError> {
    match word.to_str() {
        Some(text) if !text.contains(char::is_control) => {
            let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
            Ok(format!("\"{escaped}\""))
        }
        _ => Err(UnitWordError(word.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_of_a_unit_is_one() {
        let unit = |word: &str| unit_text(&[word.into()], &[("A", word.into())]);
        let check = |word: &str, command: &str, variable: &str| {
            let unit = unit(word).expect("systemd can read it");
            assert!(unit.contains(&format!("ExecStart=\"{command}\" tasks daemon\n")), "{unit}");
            assert!(unit.contains(&format!("Environment=\"A={variable}\"\n")), "{unit}");
        };
        check("/usr/bin/toolhold", "/usr/bin/toolhold", "/usr/bin/toolhold");
        check(
            "/a b/$x/50%/\"q\"/\\",
            "/a b/$$x/50%%/\\\"q\\\"/\\\\",
            "/a b/$x/50%%/\\\"q\\\"/\\\\",
        );
        let refused = unit("/a\nExecStart=/bin/evil").expect_err("it would be a line of its own");
        let refused = refused.to_string();
        assert!(refused.contains("control character") && !refused.contains('\n'), "{refused}");
    }
}
