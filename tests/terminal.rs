//! A terminal in which `toolhold` runs, and what a person would see on it.

use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Time limit for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came from the program.
struct Shown {
    bytes: Vec<u8>,
    screen: vt100::Parser,
    has_ended: bool,
}

/// A terminal.
pub(crate) struct Terminal {
    child: Child,
    keyboard: Option<ChildStdin>,
    shown: Arc<(Mutex<Shown>, Condvar)>,
    reader: Option<JoinHandle<()>>,
    folder: TempDir,
}

impl Terminal {
    /// Runs a command in a terminal of a size.
    pub(crate) fn open(command: &Command, (lines, columns): (u16, u16)) -> Self {
        let folder = TempDir::new().expect("a folder is made");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/agent/terminal.py");
        let mut terminal = Command::new("/usr/bin/python3");
        terminal.arg("-B").arg(script).arg(folder.path());
        terminal.args([lines.to_string(), columns.to_string()]);
        terminal.arg(command.get_program()).args(command.get_args());
        terminal.current_dir(command.get_current_dir().expect("it has one")).env_clear();
        terminal.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        terminal.env("TERM", "xterm-256color").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = terminal.spawn().expect("it starts");
        let (keyboard, mut screen) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let parser = vt100::Parser::new(size(lines), size(columns), 0);
        let shown = Shown { bytes: Vec::new(), screen: parser, has_ended: false };
        let shown = Arc::new((Mutex::new(shown), Condvar::new()));
        let to = Arc::clone(&shown);
        let reader = std::thread::spawn(move || {
            let mut part = vec![0; 65536];
            loop {
                let read = screen.read(&mut part).expect("it can be read");
                let mut shown = to.0.lock().expect("no test panics here");
                shown.bytes.extend_from_slice(&part[..read]);
                shown.screen.process(&part[..read]);
                shown.has_ended = read == 0;
                to.1.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        Self { child, keyboard, shown, reader: Some(reader), folder }
    }

    fn tell(&mut self, what: &Value) {
        let keyboard = self.keyboard.as_mut().expect("it is open");
        writeln!(keyboard, "{what}").expect("the terminal is there");
    }

    /// Types.
    pub(crate) fn keys(&mut self, keys: &str) {
        self.tell(&json!({ "keys": keys }));
    }

    /// Pastes, as a terminal does.
    pub(crate) fn paste(&mut self, text: &str) {
        self.keys(&format!("\x1b[200~{text}\x1b[201~"));
    }

    /// Changes the size.
    pub(crate) fn resize(&mut self, lines: u16, columns: u16) {
        self.shown
            .0
            .lock()
            .expect("it holds")
            .screen
            .screen_mut()
            .set_size(size(lines), size(columns));
        self.tell(&json!({ "size": [lines, columns] }));
    }

    pub(crate) fn signal(&mut self, signal: rustix::process::Signal) {
        self.tell(&json!({ "signal": signal.as_raw() }));
    }

    /// What a person sees.
    pub(crate) fn screen(&self) -> String {
        self.shown.0.lock().expect("it holds").screen.screen().contents()
    }

    /// A part of what is on the screen, as this terminal has it.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.shown.0.lock().expect("it holds").screen.screen())
    }

    /// The bytes that came.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.shown.0.lock().expect("it holds").bytes.clone()
    }

    /// Waits until the screen shows something.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut shown = self.shown.0.lock().expect("it holds");
        loop {
            let screen = shown.screen.screen().contents();
            if holds(&screen) {
                return;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it never came to this: {what}\n{screen}");
            assert!(!shown.has_ended, "it ended before this: {what}\n{screen}");
            shown = self.shown.1.wait_timeout(shown, left).expect("it holds").0;
        }
    }

    /// Waits until the screen shows a text.
    #[track_caller]
    pub(crate) fn until_shows(&self, text: &str) {
        self.until(text, |screen| screen.contains(text));
    }

    /// The ID of the program's process.
    pub(crate) fn process(&self) -> u32 {
        let path = self.folder.path().join("pid");
        let id = std::fs::read_to_string(path).expect("it runs");
        id.parse().expect("it is a number")
    }

    /// Waits for the end. Returns the exit code, or the negative number of a signal.
    #[track_caller]
    pub(crate) fn end(mut self) -> (i32, Vec<u8>, String) {
        let end = Instant::now() + PATIENCE;
        let mut shown = self.shown.0.lock().expect("it holds");
        while !shown.has_ended {
            let left = end.saturating_duration_since(Instant::now());
            let screen = shown.screen.screen().contents();
            assert!(!left.is_zero(), "it doesn't end:\n{screen}");
            shown = self.shown.1.wait_timeout(shown, left).expect("it holds").0;
        }
        let (bytes, screen) = (shown.bytes.clone(), shown.screen.screen().contents());
        drop(shown);
        self.child.wait().expect("it ends");
        let code = std::fs::read_to_string(self.folder.path().join("code")).expect("it ended");
        (code.parse().expect("it is a number"), bytes, screen)
    }
}

fn size(number: u16) -> NonZero<u16> {
    NonZero::new(number).expect("no terminal is that small")
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Without a keyboard, the terminal kills what runs in it.
        drop(self.keyboard.take());
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
