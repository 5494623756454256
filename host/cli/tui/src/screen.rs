//! Draws the screen and handles its input, on a separate thread.

use std::io::{self, BufWriter, Stdout, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{Event, KeyCode};
use ratatui::layout::Rect;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use toolhold_agent::RunEvent;
use toolhold_core::CancellationToken;
use toolhold_terminal::interrupt::{self, Interrupts};

use crate::effect::ScreenEffect;
use crate::inbox::{
    FoundPaths, FromSession, Inbox, InboxItem, PendingQuestions, ScreenApprover, SessionEvents,
};
use crate::state::ScreenState;
use crate::terminal;
use crate::view::draw;

/// The time between two pictures, unless a key was pressed.
const FRAME: Duration = Duration::from_millis(16);

/// The bytes of the buffer for output to the terminal.
const OUTPUT_BUFFER: usize = 64 * 1024;

/// The fewest columns to which the text of a conversation is wrapped.
const MIN_TEXT: u16 = 20;

/// The exit code after a second signal. As in shells, it is 128 plus the number of SIGTERM.
const ENDED: i32 = 143;

#[derive(Default)]
struct Running {
    token: Option<CancellationToken>,
    /// Whether the person interrupted before the work started.
    is_interrupted: bool,
}

/// The open screen.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    state: ScreenState,
    inbox: Arc<Inbox>,
    pending: Arc<PendingQuestions>,
    effects: UnboundedSender<ScreenEffect>,
    running: Arc<Mutex<Running>>,
    opened_at: Instant,
    /// Whether the normal screen shows the conversation.
    is_outside: bool,
    /// Whether the chat was asked to end.
    is_ending: bool,
}

/// The session's handle to its screen. Dropping the handle restores the terminal.
pub struct ScreenHandle {
    inbox: Arc<Inbox>,
    running: Arc<Mutex<Running>>,
    thread: Option<JoinHandle<()>>,
}

impl Screen {
    /// Opens the screen, which shows the questions of `approver`. Returns the session's handle, and
    /// the receiver of the effects, which is closed with the screen. SIGINT, SIGTERM and SIGHUP now
    /// end the chat.
    ///
    /// # Errors
    ///
    /// Returns the terminal's error.
    pub fn open(
        state: ScreenState,
        approver: &ScreenApprover,
        interrupts: &Interrupts,
    ) -> io::Result<(ScreenHandle, UnboundedReceiver<ScreenEffect>)> {
        let inbox = Arc::<Inbox>::default();
        let running = Arc::<Mutex<Running>>::default();
        let pending = Arc::clone(&approver.pending);
        let (effects, receiver) = unbounded_channel();
        terminal::open()?;
        // After this line, dropping `handle` restores the terminal.
        let mut handle =
            ScreenHandle { inbox: Arc::clone(&inbox), running: Arc::clone(&running), thread: None };
        terminal::catch_stderr(&inbox)?;
        let signal_inbox = Arc::clone(&inbox);
        interrupts.pass_to(move || signal_inbox.signal())?;
        terminal::read_keys(&inbox)?;

        let out = BufWriter::with_capacity(OUTPUT_BUFFER, io::stdout());
        let screen = Self {
            terminal: Terminal::new(CrosstermBackend::new(out))?,
            state,
            inbox,
            pending,
            effects,
            running,
            opened_at: Instant::now(),
            is_outside: false,
            is_ending: false,
        };
        let thread = thread::Builder::new().name("screen".to_owned()).spawn(move || screen.run());
        handle.thread = Some(thread?);
        Ok((handle, receiver))
    }

    fn run(mut self) {
        let mut needs_drawing = true;
        let mut drawn_at = None;
        loop {
            let items = self.inbox.take(self.timeout(needs_drawing, drawn_at));
            let now = self.opened_at.elapsed();

            // If there is no item, the wait for the next picture has ended.
            if items.is_empty() {
                needs_drawing = true;
            }
            let mut has_input = false;
            for item in items {
                if let InboxItem::Terminal(event) = &item {
                    // Focus and mouse events change nothing visible.
                    if terminal::is_visible(event) {
                        needs_drawing = true;
                        has_input = true;
                    }
                } else {
                    needs_drawing = true;
                }
                if !self.handle(item, now) {
                    return;
                }
            }

            let is_frame_over = drawn_at.is_none_or(|drawn_at| now >= drawn_at + FRAME);
            let may_draw = !self.is_outside && (has_input || is_frame_over);
            if needs_drawing && may_draw {
                drawn_at = Some(self.draw_picture(now));
                needs_drawing = false;
            }
        }
    }

    /// Returns the longest wait for an item, or `None` if only an item changes the picture.
    fn timeout(&self, needs_drawing: bool, drawn_at: Option<Duration>) -> Option<Duration> {
        let now = self.opened_at.elapsed();
        if needs_drawing && !self.is_outside {
            let Some(drawn_at) = drawn_at else { return Some(Duration::ZERO) };
            return Some((drawn_at + FRAME).saturating_sub(now));
        }
        let next_change = self.state.next_change(now)?;
        Some(next_change.saturating_sub(now))
    }

    /// Draws the state, and returns the time after drawing.
    fn draw_picture(&mut self, now: Duration) -> Duration {
        let state = &mut self.state;
        if self.terminal.draw(|frame| draw(state, frame, now)).is_err() {
            self.end();
        }
        let drawn_at = self.opened_at.elapsed();
        self.state.was_drawn(drawn_at);
        drawn_at
    }

    /// Handles an item of the inbox. Returns `false` if the screen must end.
    fn handle(&mut self, item: InboxItem, now: Duration) -> bool {
        let effects = match item {
            InboxItem::Terminal(Event::Key(key)) if self.is_outside => {
                if matches!(key.code, KeyCode::Enter | KeyCode::Esc) {
                    self.is_outside = false;
                    // The terminal's next output must start on a new line.
                    let _ = write!(io::stdout(), "\r\n");
                    let _ = terminal::enter().and_then(|()| self.redraw());
                }
                Vec::new()
            }
            InboxItem::Terminal(event) => self.state.input(event, now),
            InboxItem::Session(event) => self.state.apply(*event, now),
            InboxItem::Log(text) => self.state.apply(RunEvent::Notice { text }, now),
            InboxItem::Message(FromSession::End) => return false,
            InboxItem::Message(message) => self.handle_message(message, now),
            InboxItem::Signal => {
                // After a second signal, the process ends immediately.
                if self.is_ending {
                    terminal::restore();
                    std::process::exit(ENDED);
                }
                self.end();
                Vec::new()
            }
            InboxItem::Gone => {
                self.end();
                Vec::new()
            }
        };
        for effect in effects {
            self.carry_out(effect);
        }
        true
    }

    fn handle_message(&mut self, message: FromSession, now: Duration) -> Vec<ScreenEffect> {
        match message {
            FromSession::CommandEnded(text) => {
                if !text.is_empty() {
                    self.state.transcript.push_output(&text);
                }
                return self.state.end_command();
            }
            FromSession::Other(state) => {
                let previous = std::mem::replace(&mut self.state, *state);
                self.state.continue_from(previous, now);
                return self.state.end_command();
            }
            FromSession::Choose { text, choices, is_sudden } => {
                self.state.open_dialog(&text, choices, is_sudden);
            }
            FromSession::Status { text, model } => {
                self.state.about.status = text;
                self.state.ask_model(&model);
            }
            FromSession::Paths(path_start, paths) => self.state.offer(&path_start, &paths),
            FromSession::End => {}
        }
        Vec::new()
    }

    /// Carries out the effect of a key, or passes it to the session.
    fn carry_out(&mut self, effect: ScreenEffect) {
        // `InboxItem::Gone` reports a closed terminal, so errors are ignored here.
        match effect {
            ScreenEffect::Interrupt => self.interrupt(),
            ScreenEffect::Reply(id, reply) => self.pending.reply(&id, reply),
            ScreenEffect::Inform(text, answer) => self.pending.inform(&text, answer),
            ScreenEffect::Notify => {
                let _ = terminal::notify();
            }
            ScreenEffect::ShowTranscript => {
                let _ = self.show_transcript();
            }
            ScreenEffect::Suspend => {
                terminal::restore();
                let _ = interrupt::stop();
                let _ = terminal::open().and_then(|()| terminal::catch_stderr(&self.inbox));
                let _ = self.redraw();
            }
            ScreenEffect::Leave => {
                self.interrupt();
                let _ = self.effects.send(ScreenEffect::Leave);
            }
            effect => {
                // A new message isn't interrupted by an earlier interruption.
                if matches!(effect, ScreenEffect::Send(_)) {
                    let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                    running.is_interrupted = false;
                }
                let _ = self.effects.send(effect);
            }
        }
    }

    /// Lets the next picture draw the whole screen. `Terminal::clear` asks the terminal for the
    /// cursor position, and could take typed keys for the answer.
    fn redraw(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    fn interrupt(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        match &running.token {
            Some(token) => token.cancel(),
            None => running.is_interrupted = true,
        }
    }

    fn end(&mut self) {
        if !self.is_ending {
            self.is_ending = true;
            self.carry_out(ScreenEffect::Leave);
        }
    }

    /// Prints the whole conversation on the normal screen, where the terminal keeps it.
    fn show_transcript(&mut self) -> io::Result<()> {
        self.is_outside = true;
        terminal::leave()?;
        let width = usize::from(self.terminal.size()?.width.max(MIN_TEXT));
        let text = self.state.transcript_text(width).replace('\n', "\r\n");
        let mut out = io::stdout().lock();
        write!(out, "\r\n{text}\r\nPress Enter to go back to the chat.")?;
        out.flush()
    }
}

impl ScreenHandle {
    /// Returns the receiver of the session's events.
    pub fn events(&self) -> SessionEvents {
        SessionEvents(Arc::clone(&self.inbox))
    }

    /// Returns the receiver of found paths.
    pub fn paths(&self) -> FoundPaths {
        FoundPaths(Arc::clone(&self.inbox))
    }

    /// Sends a message to the screen.
    pub fn tell(&self, message: FromSession) {
        self.inbox.add_message(message);
    }

    /// Makes a token that is cancelled when the person interrupts.
    pub fn arm(&self) -> CancellationToken {
        let token = CancellationToken::new();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // If the person interrupted before the work started, cancel it at once.
        if running.is_interrupted {
            running.is_interrupted = false;
            token.cancel();
        }
        running.token = Some(token.clone());
        token
    }

    /// Forgets the token, because the work has ended.
    pub fn disarm(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).token = None;
    }
}

impl Drop for ScreenHandle {
    fn drop(&mut self) {
        self.inbox.add_message(FromSession::End);
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic.
            let _ = thread.join();
        }
        terminal::restore();
    }
}
