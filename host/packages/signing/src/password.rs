//! Reads the password of a secret key from the terminal or another source.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::str::FromStr;

use rustix::fs::{Mode, OFlags};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::SigningError;

/// Most bytes of a password, as in minisign. A longer password is refused.
const MAX_PASSWORD: usize = 1024;

/// The source of a password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PasswordSource {
    /// The terminal. The typed password isn't shown.
    #[default]
    Terminal,
    /// The environment variable with this name.
    Variable(String),
    /// The first line of the file descriptor with this number.
    Descriptor(u32),
}

/// The reason why there is no password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// The text isn't a password source.
    #[error("the source of the password must be `env:NAME` or `fd:NUMBER`")]
    Source,
    /// The descriptor isn't a number.
    #[error("the number after `fd:` isn't valid")]
    Descriptor,
    /// There is no terminal.
    #[error(
        "no terminal is available to ask for the password. Use `--password-from env:NAME` or \
         `--password-from fd:NUMBER`"
    )]
    NoTerminal,
    /// The repeated password is different.
    #[error("the two passwords are different")]
    Different,
    /// The variable isn't set. The text is its name.
    #[error("the variable {0} isn't set, or isn't UTF-8")]
    Variable(String),
    /// The password is empty.
    #[error("the password is empty")]
    Empty,
    /// The password is too long. The number is its size in bytes.
    #[error("the password is {0} bytes; the limit is {MAX_PASSWORD}")]
    TooLong(usize),
    /// The password isn't UTF-8.
    #[error("the password isn't UTF-8")]
    NotText,
}

impl FromStr for PasswordSource {
    type Err = PasswordError;

    fn from_str(text: &str) -> Result<Self, PasswordError> {
        match text.split_once(':') {
            Some(("env", name)) if !name.is_empty() => Ok(Self::Variable(name.into())),
            Some(("fd", number)) => match number.parse() {
                Ok(descriptor) => Ok(Self::Descriptor(descriptor)),
                Err(_) => Err(PasswordError::Descriptor),
            },
            _ => Err(PasswordError::Source),
        }
    }
}

impl PasswordSource {
    /// Reads the password. With `twice`, the user types a new password two times. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if there is no password, if it is too long, or if the repeated password differs.
    pub fn read(&self, prompt: &str, twice: bool) -> Result<Zeroizing<String>, SigningError> {
        let password = match self {
            Self::Terminal => {
                let first = ask(prompt)?;
                if twice {
                    let repeated = ask("Repeat the password")?;
                    if *repeated != *first {
                        return Err(PasswordError::Different.into());
                    }
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
        if password.is_empty() {
            return Err(PasswordError::Empty.into());
        }
        if password.len() > MAX_PASSWORD {
            return Err(PasswordError::TooLong(password.len()).into());
        }
        Ok(password)
    }
}

/// Asks at the terminal, which doesn't show the typed text.
fn ask(prompt: &str) -> Result<Zeroizing<String>, SigningError> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut terminal: File = rustix::fs::open("/dev/tty", flags, Mode::empty())
        .map_err(|_| PasswordError::NoTerminal)?
        .into();
    let settings = tcgetattr(&terminal).map_err(|_| PasswordError::NoTerminal)?;
    write!(terminal, "{prompt}: ").map_err(terminal_error)?;
    let password = read_hidden(&terminal, settings);
    // The terminal didn't show the user's line end, so the program writes one.
    writeln!(terminal).map_err(terminal_error)?;
    password
}

fn read_hidden(terminal: &File, settings: Termios) -> Result<Zeroizing<String>, SigningError> {
    let hidden = Hidden::new(terminal, settings).map_err(|errno| terminal_error(errno.into()))?;
    read_line(hidden.terminal)
}

fn terminal_error(error: io::Error) -> SigningError {
    SigningError::file("/dev/tty".as_ref(), error)
}

/// A terminal that doesn't show typed text until this value is dropped.
struct Hidden<'t> {
    terminal: &'t File,
    /// The terminal's original settings.
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

/// Reads the first line, and leaves the bytes after it unread. A longer line than the limit is cut
/// one byte above the limit, which shows that the password is too long.
fn read_line(mut from: impl Read) -> Result<Zeroizing<String>, SigningError> {
    // A vector that grows leaves a copy of the password in memory. This capacity is enough for
    // every line, so the vector never grows.
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_PASSWORD + 1));
    let mut buffer = [0];
    while line.len() <= MAX_PASSWORD {
        let count = from
            .read(&mut buffer)
            .map_err(|error| SigningError::file("the password".as_ref(), error))?;
        let [byte] = buffer;
        let is_at_end = count == 0;
        if is_at_end || byte == b'\n' {
            break;
        }
        line.push(byte);
    }
    let text = std::str::from_utf8(&line).map_err(|_| PasswordError::NotText)?;
    Ok(Zeroizing::new(text.to_owned()))
}
