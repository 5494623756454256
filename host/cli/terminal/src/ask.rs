//! Asks the person at the terminal and reads the answer, such as yes or no.

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

/// Asks questions on one stream and reads the answers from the other.
pub struct Dialogue<R, W> {
    input: R,
    output: W,
    /// The consequence if the input ends without an answer.
    ended: &'static str,
    /// Drops the input that was typed before the question.
    drop_pending: fn(&mut R) -> io::Result<()>,
    /// Waits a moment for input.
    has_input: fn(&R) -> io::Result<bool>,
    /// Set when nobody waits for an answer any more.
    is_over: Arc<AtomicBool>,
}

/// Number of times that pending input is dropped before a question.
const MOST_PASTED: usize = 100;

/// Opens a dialogue with the person at the terminal. Returns `None` without a terminal, because
/// input from a pipe wasn't typed by a person. `ended`: the consequence to report if the input ends
/// without an answer.
pub fn open_dialogue(ended: &'static str) -> Option<Dialogue<impl BufRead, impl Write>> {
    if !is_watched() {
        return None;
    }
    // The buffer of the standard library's stdin couldn't be dropped.
    let input = io::stdin().as_fd().try_clone_to_owned().ok()?;
    // Questions go to stderr, so that the output of a command can be redirected.
    let output = anstream::stderr();
    Some(Dialogue {
        input: BufReader::new(File::from(input)),
        output,
        ended,
        drop_pending,
        has_input,
        is_over: Arc::default(),
    })
}

/// Time that is waited for input.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

fn has_input(terminal: &BufReader<File>) -> io::Result<bool> {
    let mut polled = [PollFd::new(terminal.get_ref(), PollFlags::IN)];
    match poll(&mut polled, Some(&MOMENT)) {
        // Ctrl-C also interrupts the system call.
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
        Ok(ready) => Ok(ready > 0),
    }
}

/// Discards input that was typed before. A terminal buffers a few thousand characters of a paste,
/// and accepts more when these are read. Therefore the input is empty only if nothing arrives for a
/// moment.
fn drop_pending(terminal: &mut BufReader<File>) -> io::Result<()> {
    terminal.consume(terminal.buffer().len());
    for _ in 0..MOST_PASTED {
        tcflush(terminal.get_ref(), QueueSelector::IFlush)?;
        let mut polled = [PollFd::new(terminal.get_ref(), PollFlags::IN)];
        if poll(&mut polled, Some(&MOMENT))? == 0 {
            return Ok(());
        }
    }
    Err(io::Error::other("input arrives without end"))
}

/// Checks whether a person is at the terminal.
pub fn is_watched() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

impl<R: BufRead, W: Write> Dialogue<R, W> {
    /// Makes a dialogue that reads `input` and writes `output`.
    pub fn between(input: R, output: W) -> Self {
        Self {
            input,
            output,
            ended: "nothing was done",
            drop_pending: |_| Ok(()),
            has_input: |_| Ok(true),
            is_over: Arc::default(),
        }
    }

    /// Ends the dialogue when `is_over` is set. A waiting question then ends without an answer, and
    /// doesn't read later input.
    #[must_use]
    pub fn until(mut self, is_over: Arc<AtomicBool>) -> Self {
        self.is_over = is_over;
        self
    }

    /// Prints a message.
    pub fn print(&mut self, text: &str) -> Result<(), CommandError> {
        writeln!(self.output, "{text}")?;
        Ok(())
    }

    /// Asks a question. Returns the answer without surrounding spaces. The answer is empty if the
    /// person only presses Enter. Earlier input is discarded, because it wasn't meant for the
    /// question.
    pub fn ask(&mut self, question: &str) -> Result<String, CommandError> {
        (self.drop_pending)(&mut self.input)
            .map_err(HostError::io("clearing what was typed before"))?;
        write!(self.output, "{STRONG}{question}{STRONG:#} ")?;
        self.output.flush()?;
        self.wait_for_input()?;

        let mut line = String::new();
        let bytes = self.input.read_line(&mut line).map_err(HostError::io("reading the answer"))?;
        if bytes == 0 {
            writeln!(self.output)?;
            return Err(CommandError::Usage(format!(
                "the input ended before all questions were answered; {}",
                self.ended
            )));
        }
        Ok(line.trim().to_owned())
    }

    /// Waits until there is input.
    ///
    /// # Errors
    ///
    /// Returns an error if the dialogue is over.
    fn wait_for_input(&self) -> Result<(), CommandError> {
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                let message = format!("the call no longer waits for the answer; {}", self.ended);
                return Err(CommandError::Usage(message));
            }
            if (self.has_input)(&self.input).map_err(HostError::io("reading the answer"))? {
                return Ok(());
            }
        }
    }

    /// Asks until the answer is yes or no. Enter means `default`.
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
