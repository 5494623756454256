//! Reads the password of a secret key from the terminal or another source.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::str::FromStr;

use rustix::fs::{Mode, OFlags};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::SigningError;

/// Most bytes of a password, as in minisign.
const MAX_PASSWORD: usize = 1024;

/// The source of a password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PasswordSource {
    /// The terminal. The typed password isn't shown.
    #[default]
    Terminal,
    /// The environment variable of this name.
    Variable(String),
    /// The first line of the open file with this descriptor number.
    Descriptor(u32),
}

/// A reason why there is no password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// The password source has another format.
    #[error("the place must be `env:NAME` or `fd:NUMBER`")]
    Source,
    /// The descriptor isn't a number.
    #[error("the number after `fd:` isn't valid")]
    Descriptor,
    /// There is no terminal.
    #[error(
        "there is no terminal to ask for the password. Use `--password-from env:NAME` or \
         `--password-from fd:NUMBER`"
    )]
    NoTerminal,
    /// The password was typed in two ways.
    #[error("the two passwords are different")]
    Different,
    /// The variable isn't set. Contains its name.
    #[error("the variable {0} isn't set, or isn't text")]
    Variable(String),
    /// The password has no characters.
    #[error("the password is empty")]
    Empty,
    /// The password is too long. Contains its size in bytes.
    #[error("the password is {0} bytes; the limit is {MAX_PASSWORD}")]
    TooLong(usize),
    /// The password isn't UTF-8.
    #[error("the password isn't text in UTF-8")]
    NotText,
}

impl FromStr for PasswordSource {
    type Err = PasswordError;

    fn from_str(text: &str) -> Result<Self, PasswordError> {
        match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Ok(Self::Variable(name.into())),
            Some(("fd", number)) => {
                number.parse().map(Self::Descriptor).map_err(|_| PasswordError::Descriptor)
            }
            _ => Err(PasswordError::Source),
        }
    }
}

impl PasswordSource {
    /// Reads the password. With `twice`, a terminal asks for the password a second time, because it
    /// is a new password. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no password, if it is too long, or if the two passwords differ.
    pub fn read(&self, prompt: &str, twice: bool) -> Result<Zeroizing<String>, SigningError> {
        let password = match self {
            Self::Terminal => {
                let first = ask(prompt)?;
                if twice && *ask("Repeat the password")? != *first {
                    return Err(PasswordError::Different.into());
                }
                first
            }
            Self::Variable(name) => match std::env::var(name) {
                Ok(value) => Zeroizing::new(value),
                Err(_) => return Err(PasswordError::Variable(name.clone()).into()),
            },
            Self::Descriptor(number) => {
                let path = format!("/proc/self/fd/{number}");
                let file =
                    File::open(&path).map_err(|error| SigningError::file(path.as_ref(), error))?;
                read_line(file)?
            }
        };
        match password.len() {
            0 => Err(PasswordError::Empty.into()),
            length if length > MAX_PASSWORD => Err(PasswordError::TooLong(length).into()),
            _ => Ok(password),
        }
    }
}

/// Asks at the terminal, without showing the typed text.
fn ask(prompt: &str) -> Result<Zeroizing<String>, SigningError> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut terminal: File = rustix::fs::open("/dev/tty", flags, Mode::empty())
        .map_err(|_| PasswordError::NoTerminal)?
        .into();
    let settings = tcgetattr(&terminal).map_err(|_| PasswordError::NoTerminal)?;
    write!(terminal, "{prompt}: ").map_err(terminal_error)?;
    let password = read_hidden(&terminal, settings);
    // The terminal didn't show the user's own line end.
    writeln!(terminal).map_err(terminal_error)?;
    password
}

/// Reads a line from a terminal that doesn't show the typed text meanwhile.
fn read_hidden(terminal: &File, settings: Termios) -> Result<Zeroizing<String>, SigningError> {
    let hidden = Hidden::new(terminal, settings).map_err(|errno| terminal_error(errno.into()))?;
    read_line(hidden.terminal)
}

fn terminal_error(error: io::Error) -> SigningError {
    SigningError::file("/dev/tty".as_ref(), error)
}

/// A terminal that doesn't show typed text, until this is dropped.
struct Hidden<'t> {
    terminal: &'t File,
    /// The settings of the terminal before and after.
    settings: Termios,
}

impl<'t> Hidden<'t> {
    fn new(terminal: &'t File, settings: Termios) -> rustix::io::Result<Self> {
        let mut without_echo = settings.clone();
        without_echo.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal.as_fd(), OptionalActions::Flush, &without_echo)?;
        Ok(Self { terminal, settings })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal.as_fd(), OptionalActions::Flush, &self.settings);
    }
}

/// Reads the first line, and no further bytes.
fn read_line(mut from: impl Read) -> Result<Zeroizing<String>, SigningError> {
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_PASSWORD + 1));
    let mut byte = [0];
    while line.len() <= MAX_PASSWORD {
        let count = from
            .read(&mut byte)
            .map_err(|error| SigningError::file("the password".as_ref(), error))?;
        if count == 0 || byte[0] == b'\n' {
            break;
        }
        line.push(byte[0]);
    }
    let text = std::str::from_utf8(&line).map_err(|_| PasswordError::NotText)?;
    Ok(Zeroizing::new(text.to_owned()))
}
