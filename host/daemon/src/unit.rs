//! `berth daemon`: its arguments, and its unit for systemd.

use std::io::Write;
use std::path::{Path, PathBuf};

use berth_core::HostError;
use berth_core::config::Folders;
use berth_core::text::neutral_line;
use berth_terminal::error::CommandError;
use berth_terminal::exit::Exit;
use clap::Args;

/// The name of the unit.
const UNIT: &str = "berth.service";

/// `berth daemon`.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  berth daemon\n  berth daemon --install\n  berth daemon --print\n\nTasks run only while this runs, or `berth serve` does. Of several processes, one runs them."
)]
pub struct DaemonArguments {
    /// Write a unit for systemd, so that it runs while you are logged in, and say how to enable it
    #[arg(long, conflicts_with_all = ["uninstall", "print"])]
    pub install: bool,
    /// Remove that unit
    #[arg(long, conflicts_with = "print")]
    pub uninstall: bool,
    /// Print that unit
    #[arg(long)]
    pub print: bool,
}

/// Does what the arguments say about the unit. `None`: they say nothing, and the tasks have to run.
///
/// # Errors
///
/// The unit can't be written or removed.
pub fn manage_unit(
    arguments: &DaemonArguments,
    folders: &Folders,
) -> Result<Option<Exit>, CommandError> {
    let mut out = anstream::stdout().lock();
    if arguments.print {
        write!(out, "{}", unit()?)?;
        return Ok(Some(Exit::Success));
    }
    if !arguments.install && !arguments.uninstall {
        return Ok(None);
    }
    let folder = folder(folders)?;
    let path = folder.join(UNIT);
    let shown = neutral_line(&path.display().to_string());
    let private = berth_private::PrivateFolder::make(&folder)
        .map_err(HostError::io(format!("opening {}", folder.display())))?;
    if arguments.install {
        private
            .put_with_mode(UNIT, unit()?.as_bytes(), 0o644)
            .map_err(HostError::io(format!("writing {}", path.display())))?;
        writeln!(
            out,
            "Wrote {shown}. To enable it:\n  systemctl --user daemon-reload\n  systemctl --user enable --now {UNIT}\nTo have it run when you are logged out too: loginctl enable-linger"
        )?;
        return Ok(Some(Exit::Success));
    }
    match private.remove(UNIT) {
        Ok(()) => writeln!(
            out,
            "Removed {shown}. If it runs still: systemctl --user disable --now {UNIT}"
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

/// The user's folder for units.
fn folder(folders: &Folders) -> Result<PathBuf, CommandError> {
    let config = std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty());
    let config = config.map(PathBuf::from).filter(|path| path.is_absolute());
    let config = config.or_else(|| Some(folders.home.as_ref()?.join(".config")));
    let config = config.ok_or_else(|| {
        CommandError::Usage("there is no home directory; use --print, and put it in place".into())
    })?;
    Ok(config.join("systemd/user"))
}

fn unit() -> Result<String, CommandError> {
    let program = std::env::current_exe().map_err(HostError::io("finding this program"))?;
    Ok(text(&quoted(&program).map_err(CommandError::Usage)?))
}

fn text(program: &str) -> String {
    format!(
        "[Unit]\n\
         Description=Berth: tasks at a later time\n\
         \n\
         [Service]\n\
         ExecStart={program} daemon\n\
         Restart=on-failure\n\
         RestartSec=5\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n"
    )
}

/// A path as one word of a unit.
///
/// # Errors
///
/// systemd couldn't read it.
fn quoted(path: &Path) -> Result<String, String> {
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control));
    let text = text.ok_or("the program's path has characters that a unit can't have")?;
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    Ok(format!("\"{}\"", text.replace('%', "%%").replace('$', "$$")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_one_word_of_a_unit() {
        let check = |path: &str, expected: &str| {
            assert_eq!(quoted(Path::new(path)).as_deref(), Ok(expected));
        };
        check("/usr/bin/berth", "\"/usr/bin/berth\"");
        check("/a b/$x/50%/\"q\"/\\", "\"/a b/$$x/50%%/\\\"q\\\"/\\\\\"");
        assert!(quoted(Path::new("/a\nExecStart=/bin/evil")).is_err());
    }
}
