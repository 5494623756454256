//! Sets up the terminal for the full screen, and always restores it, even after a panic.

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

/// Bytes of a line of the log.
const MAX_LOG_LINE: u64 = 4096;

/// The sequence with which a terminal shows a notification. The text is fixed, because untrusted
/// text must not appear here.
const NOTIFY: &[u8] = b"\x1b]9;Toolhold needs approval\x1b\\\x07";

/// Whether the screen is open.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// The stderr of the process before the screen was opened.
static STDERR: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Checks whether a full screen can be shown. Stdin and stdout must be a terminal with a movable
/// cursor.
pub fn fits() -> bool {
    let term = std::env::var_os("TERM").unwrap_or_default();
    if term.is_empty() || term == "dumb" {
        return false;
    }
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Sets up the terminal for the screen. The mouse isn't captured, so text can be selected.
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

/// Restores the terminal if the screen has changed it. Any thread can call this function, also more
/// than once.
pub fn restore() {
    if !IS_OPEN.swap(false, Ordering::SeqCst) {
        return;
    }
    // If the terminal is closed, nothing has to be restored.
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

/// Shows the normal screen for a while. Keys still arrive one by one.
pub(crate) fn leave() -> io::Result<()> {
    execute!(io::stdout(), LeaveAlternateScreen, Show)
}

/// Goes back to the screen.
pub(crate) fn enter() -> io::Result<()> {
    execute!(io::stdout(), EnterAlternateScreen)
}

/// Tells the terminal that Toolhold waits for the person.
pub(crate) fn notify() -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(NOTIFY)?;
    out.flush()
}

/// Redirects text for stderr to the inbox. Otherwise log lines and messages of other crates would
/// be written across the screen.
pub(crate) fn catch_stderr(inbox: &Arc<Inbox>) -> io::Result<()> {
    if !io::stderr().is_terminal() {
        return Ok(());
    }
    // Descriptors below 3 are stdin, stdout and stderr.
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

/// Passes keys to the inbox until the terminal is closed.
pub(crate) fn read_keys(inbox: &Arc<Inbox>) -> io::Result<()> {
    let inbox = Arc::clone(inbox);
    thread::Builder::new().name("keys".to_owned()).spawn(move || pass_keys(&inbox))?;
    Ok(())
}

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

/// Checks whether an event changes the picture.
pub(crate) fn is_visible(event: &Event) -> bool {
    !matches!(event, Event::FocusGained | Event::FocusLost | Event::Mouse(_))
}
