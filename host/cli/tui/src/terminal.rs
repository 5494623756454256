//! Sets up the terminal for the full screen, and restores it, even after a panic.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::thread;

use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{
    self, DisableBracketedPaste, DisableFocusChange, EnableBracketedPaste, EnableFocusChange, Event,
};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use crate::inbox::Inbox;

/// The most bytes of a log line. A longer line becomes several lines.
const MAX_LOG_LINE: u64 = 4096;

/// Shows a notification of the terminal. The text is fixed, because untrusted text could contain
/// control characters.
const NOTIFY: &[u8] = b"\x1b]9;Toolhold needs approval\x1b\\\x07";

static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// The process's original stderr, while the screen is open.
static STDERR: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Checks whether stdin and stdout are a terminal that can show a full screen.
pub fn fits() -> bool {
    let term = std::env::var_os("TERM").unwrap_or_default();
    if term.is_empty() || term == "dumb" {
        return false;
    }
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Opens the full screen. The mouse isn't captured, so that the person can select text.
pub(crate) fn open() -> io::Result<()> {
    restore_after_panics();
    IS_OPEN.store(true, Ordering::SeqCst);
    let result = enable_raw_mode().and_then(|()| {
        execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste, EnableFocusChange)
    });
    if result.is_err() {
        restore();
    }
    result
}

/// Restores the terminal if the screen has changed it. Any thread can do this at any time.
pub fn restore() {
    if !IS_OPEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // Ignore errors, because a closed terminal needs no restoring.
    let _ = execute!(
        io::stdout(),
        DisableFocusChange,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        Show
    );
    let _ = disable_raw_mode();
    if let Some(stderr) = STDERR.lock().unwrap_or_else(PoisonError::into_inner).take() {
        let _ = rustix::stdio::dup2_stderr(&stderr);
    }
}

fn restore_after_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let show_panic = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            show_panic(panic);
        }));
    });
}

/// Shows the normal screen. The terminal stays in raw mode.
pub(crate) fn leave() -> io::Result<()> {
    execute!(io::stdout(), LeaveAlternateScreen, Show)
}

pub(crate) fn enter() -> io::Result<()> {
    execute!(io::stdout(), EnterAlternateScreen)
}

pub(crate) fn notify() -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(NOTIFY)?;
    out.flush()
}

/// Sends stderr to the inbox, because log lines and messages of other crates must not be written
/// across the screen.
pub(crate) fn catch_stderr(inbox: &Arc<Inbox>) -> io::Result<()> {
    if !io::stderr().is_terminal() {
        return Ok(());
    }
    // Take a descriptor from 3 on, because the lower ones are stdin, stdout and stderr.
    let stderr = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3)?;
    let (pipe, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::stdio::dup2_stderr(&writer)?;
    *STDERR.lock().unwrap_or_else(PoisonError::into_inner) = Some(stderr);
    let inbox = Arc::clone(inbox);
    thread::Builder::new().name("log".to_owned()).spawn(move || pass_lines(pipe, &inbox))?;
    Ok(())
}

fn pass_lines(pipe: OwnedFd, inbox: &Inbox) {
    let mut lines = BufReader::new(File::from(pipe));
    loop {
        let mut line = Vec::new();
        match lines.by_ref().take(MAX_LOG_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => inbox.add_log_line(String::from_utf8_lossy(&line).trim_end().to_owned()),
        }
    }
}

/// Starts the thread that passes keys to the inbox.
pub(crate) fn read_keys(inbox: &Arc<Inbox>) -> io::Result<()> {
    let inbox = Arc::clone(inbox);
    thread::Builder::new().name("keys".to_owned()).spawn(move || pass_keys(&inbox))?;
    Ok(())
}

/// Passes terminal events to the inbox until the terminal is closed.
fn pass_keys(inbox: &Inbox) {
    loop {
        match event::read() {
            Ok(event) => inbox.add_terminal_event(event),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => {
                inbox.lose_terminal();
                return;
            }
        }
    }
}

pub(crate) fn is_visible(event: &Event) -> bool {
    !matches!(event, Event::FocusGained | Event::FocusLost | Event::Mouse(_))
}
