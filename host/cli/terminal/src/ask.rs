//! Asks the person at the terminal.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{QueueSelector, tcflush};
use toolhold_core::HostError;

use crate::error::CommandError;
use crate::style::STRONG;

/// Asks questions on one stream, and reads the answers from another stream.
pub struct Dialogue<R, W> {
    input: R,
    output: W,
    /// The end of the error for input that ends without an answer, such as "nothing was done".
    consequence: &'static str,
    /// Discards input that was typed before the question.
    drop_pending: fn(&mut R) -> io::Result<()>,
    /// Waits up to [`MOMENT`] for input.
    has_input: fn(&R) -> io::Result<bool>,
    /// Set when the answer is no longer needed.
    is_over: Arc<AtomicBool>,
}

/// The most times that pending input is discarded. If input still arrives then, asking fails.
const MAX_DISCARDS: usize = 100;

/// Opens a dialogue at the terminal. Returns `None` if there is no terminal, because the input of a
/// pipe isn't typed by a person. If the input ends without an answer, the error ends with
/// `consequence`, such as "nothing was done".
pub fn open_dialogue(consequence: &'static str) -> Option<Dialogue<impl BufRead, impl Write>> {
    if !is_watched() {
        return None;
    }
    // `io::stdin` isn't used, because its buffer can't be emptied.
    let input = io::stdin().as_fd().try_clone_to_owned().ok()?;
    // Questions go to stderr, because stdout may be redirected.
    let output = anstream::stderr();
    Some(Dialogue {
        input: BufReader::new(File::from(input)),
        output,
        consequence,
        drop_pending,
        has_input,
        is_over: Arc::default(),
    })
}

/// The longest wait for input, a tenth of a second.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Checks whether the person has typed. Waits up to [`MOMENT`].
fn has_input(terminal: &BufReader<File>) -> io::Result<bool> {
    let mut polled = [PollFd::new(terminal.get_ref(), PollFlags::IN)];
    match poll(&mut polled, Some(&MOMENT)) {
        // Ctrl-C interrupts the system call. The caller then checks whether the dialogue is over.
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
        Ok(ready) => Ok(ready > 0),
    }
}

/// Discards input that was typed before the question. The terminal only stores a few thousand
/// characters of a paste, and delivers more of it while we read. We therefore discard input until
/// nothing arrives within [`MOMENT`].
fn drop_pending(terminal: &mut BufReader<File>) -> io::Result<()> {
    terminal.consume(terminal.buffer().len());
    for _ in 0..MAX_DISCARDS {
        tcflush(terminal.get_ref(), QueueSelector::IFlush)?;
        let mut polled = [PollFd::new(terminal.get_ref(), PollFlags::IN)];
        if poll(&mut polled, Some(&MOMENT))? == 0 {
            return Ok(());
        }
    }
    Err(io::Error::other("the input doesn't end"))
}

/// Checks whether stdin and stderr are a terminal, so that a person can answer.
pub fn is_watched() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

impl<R: BufRead, W: Write> Dialogue<R, W> {
    /// Makes a dialogue on streams other than the terminal.
    pub fn between(input: R, output: W) -> Self {
        Self {
            input,
            output,
            consequence: "nothing was done",
            drop_pending: |_| Ok(()),
            has_input: |_| Ok(true),
            is_over: Arc::default(),
        }
    }

    /// Sets the flag that ends the dialogue. A waiting question then fails, and reads no later
    /// input.
    #[must_use]
    pub fn until(mut self, is_over: Arc<AtomicBool>) -> Self {
        self.is_over = is_over;
        self
    }

    /// Prints a line.
    pub fn print(&mut self, text: &str) -> Result<(), CommandError> {
        writeln!(self.output, "{text}")?;
        Ok(())
    }

    /// Returns the answer without surrounding spaces. Earlier input is discarded, because the
    /// person didn't type it for this question.
    pub fn ask(&mut self, question: &str) -> Result<String, CommandError> {
        (self.drop_pending)(&mut self.input).map_err(HostError::io("discarding earlier input"))?;
        write!(self.output, "{STRONG}{question}{STRONG:#} ")?;
        self.output.flush()?;
        self.wait_for_input()?;

        let mut line = String::new();
        let bytes = self.input.read_line(&mut line).map_err(HostError::io("reading the answer"))?;
        if bytes == 0 {
            writeln!(self.output)?;
            return Err(CommandError::Usage(format!(
                "the input ended before all questions were answered; {}",
                self.consequence
            )));
        }
        Ok(line.trim().to_owned())
    }

    /// Waits until the person types. Fails if the answer is no longer needed.
    fn wait_for_input(&self) -> Result<(), CommandError> {
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                let message =
                    format!("the call no longer waits for the answer; {}", self.consequence);
                return Err(CommandError::Usage(message));
            }
            // This loop doesn't spin, because `has_input` waits up to `MOMENT`.
            if (self.has_input)(&self.input).map_err(HostError::io("reading the answer"))? {
                return Ok(());
            }
        }
    }

    /// Asks until the answer is yes or no. Enter stands for `default`.
    pub fn yes_or_no(&mut self, question: &str, default: bool) -> Result<bool, CommandError> {
        let choice = if default { "[Y/n]" } else { "[y/N]" };
        loop {
            let answer = self.ask(&format!("{question} {choice}"))?;
            match answer.to_ascii_lowercase().as_str() {
                "" => return Ok(default),
                "y" | "yes" => return Ok(true),
                "n" | "no" => return Ok(false),
                _ => self.print("  Please answer y or n.")?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(input: &str, default: bool) -> (Result<bool, CommandError>, String) {
        let mut output = Vec::new();
        let answer = Dialogue::between(input.as_bytes(), &mut output).yes_or_no("Sure?", default);
        (answer, anstream::adapter::strip_str(&String::from_utf8_lossy(&output)).to_string())
    }

    #[test]
    fn question_that_nobody_waits_for_leaves_what_is_typed() {
        let (is_over, mut input) = (Arc::new(AtomicBool::new(false)), &b"y\nhello\n"[..]);
        let mut dialogue = Dialogue::between(&mut input, Vec::new()).until(Arc::clone(&is_over));
        assert_eq!(dialogue.ask("Sure?").ok().as_deref(), Some("y"));
        is_over.store(true, Ordering::Relaxed);
        let (_, why) = dialogue.ask("And this?").expect_err("it is over").end();
        assert!(why.is_some_and(|why| why.contains("no longer waits")));
        assert_eq!(input, b"hello\n");
    }

    #[test]
    fn question_is_repeated_until_answered() {
        for (input, default, expected) in [
            ("\n", true, true),
            ("\n", false, false),
            ("y\n", false, true),
            ("NO\n", true, false),
            ("  yes \n", false, true),
        ] {
            assert_eq!(answer(input, default).0.ok(), Some(expected), "{input:?}");
        }
        let (again, shown) = answer("perhaps\nn\n", true);
        assert_eq!(again.ok(), Some(false));
        assert_eq!(shown, "Sure? [Y/n]   Please answer y or n.\nSure? [Y/n] ");
    }

    #[test]
    fn end_of_input_is_no_answer() {
        let (_, message) = answer("", true).0.expect_err("nobody answered").end();
        assert_eq!(
            message.as_deref(),
            Some("the input ended before all questions were answered; nothing was done")
        );
        assert!(answer("what\n", true).0.is_err());
    }
}
