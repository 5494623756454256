//! Runs the loop that draws the screen and reads the keys, on a thread of its own.

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
use crate::inbox::{Came, Desk, FoundPaths, FromSession, Inbox, ScreenApprover, SessionEvents};
use crate::state::ScreenState;
use crate::terminal;
use crate::view::draw;

/// Time between two pictures. Typed text is shown at once.
const FRAME: Duration = Duration::from_millis(16);

/// A shell's exit code for an ended command: 128 plus the number of SIGTERM.
const ENDED: i32 = 143;

/// The work that the person can interrupt.
#[derive(Default)]
struct Running {
    token: Option<CancellationToken>,
    /// Whether a sent message was interrupted before its work started.
    is_interrupted: bool,
}

/// The screen.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    state: ScreenState,
    inbox: Arc<Inbox>,
    desk: Arc<Desk>,
    effects: UnboundedSender<ScreenEffect>,
    running: Arc<Mutex<Running>>,
    began: Instant,
    /// Whether the conversation is shown on the normal screen.
    is_outside: bool,
    is_ending: bool,
}

/// The screen, for the session that it shows. If it is dropped, the terminal is given back.
pub struct ScreenHandle {
    inbox: Arc<Inbox>,
    running: Arc<Mutex<Running>>,
    thread: Option<JoinHandle<()>>,
}

impl Screen {
    /// Opens the screen with a state. It answers the questions of `approver`. The effects come out
    /// of the receiver, which ends with the screen. SIGINT, SIGTERM and SIGHUP end the chat from
    /// now on.
    ///
    /// # Errors
    ///
    /// The error of the terminal.
    pub fn open(
        state: ScreenState,
        approver: &ScreenApprover,
        interrupts: &Interrupts,
    ) -> io::Result<(ScreenHandle, UnboundedReceiver<ScreenEffect>)> {
        let inbox = Arc::<Inbox>::default();
        let running = Arc::<Mutex<Running>>::default();
        let desk = Arc::clone(&approver.desk);
        let (effects, wanted) = unbounded_channel();
        terminal::open()?;
        let mut handle =
            ScreenHandle { inbox: Arc::clone(&inbox), running: Arc::clone(&running), thread: None };
        terminal::catch_stderr(&inbox)?;
        let ended = Arc::clone(&inbox);
        interrupts.pass_to(move || ended.signal())?;
        terminal::read_keys(&inbox)?;
        let out = BufWriter::with_capacity(64 * 1024, io::stdout());
        let terminal = Terminal::new(CrosstermBackend::new(out))?;
        let began = Instant::now();
        let is_outside = false;
        let is_ending = false;
        let screen =
            Self { terminal, state, inbox, desk, effects, running, began, is_outside, is_ending };
        let thread = thread::Builder::new().name("screen".to_owned()).spawn(move || screen.run());
        handle.thread = Some(thread?);
        Ok((handle, wanted))
    }

    fn run(mut self) {
        let mut is_old = true;
        let mut drawn = None::<Duration>;
        loop {
            let now = self.began.elapsed();
            let limit = match (is_old && !self.is_outside, drawn) {
                (true, Some(drawn)) => Some((drawn + FRAME).saturating_sub(now)),
                (true, None) => Some(Duration::ZERO),
                (false, _) => self.state.next_change(now).map(|at| at.saturating_sub(now)),
            };
            let came = self.inbox.take(limit);
            let now = self.began.elapsed();
            // Nothing came in time: the picture changes by itself.
            is_old |= came.is_empty();
            let mut is_typed = false;
            for came in came {
                if let Came::Terminal(event) = &came {
                    is_typed |= terminal::is_visible(event);
                    is_old |= is_typed;
                } else {
                    is_old = true;
                }
                if !self.take(came, now) {
                    return;
                }
            }
            let is_time = drawn.is_none_or(|drawn| now >= drawn + FRAME);
            if is_old && !self.is_outside && (is_typed || is_time) {
                let state = &mut self.state;
                if self.terminal.draw(|frame| draw(state, frame, now)).is_err() {
                    self.end();
                }
                let now = self.began.elapsed();
                (is_old, drawn) = (false, Some(now));
                self.state.was_drawn(now);
            }
        }
    }

    /// Takes the items that came. `false`: the screen ends.
    fn take(&mut self, came: Came, now: Duration) -> bool {
        let effects = match came {
            Came::Terminal(Event::Key(key)) if self.is_outside => {
                if matches!(key.code, KeyCode::Enter | KeyCode::Esc) {
                    self.is_outside = false;
                    // The next output of the shell starts on its own line.
                    let _ = write!(io::stdout(), "\r\n");
                    let _ = terminal::enter().and_then(|()| self.draw_anew());
                }
                Vec::new()
            }
            Came::Terminal(event) => self.state.input(event, now),
            Came::Session(event) => self.state.apply(event, now),
            Came::Log(text) => self.state.apply(RunEvent::Notice { text }, now),
            Came::Told(FromSession::End) => return false,
            Came::Told(told) => self.take_told(told, now),
            Came::Signal => {
                if self.is_ending {
                    terminal::restore();
                    std::process::exit(ENDED);
                }
                self.end();
                Vec::new()
            }
            Came::Gone => {
                self.end();
                Vec::new()
            }
        };
        for effect in effects {
            self.carry_out(effect);
        }
        true
    }

    fn take_told(&mut self, told: FromSession, now: Duration) -> Vec<ScreenEffect> {
        match told {
            FromSession::CommandEnded(text) => {
                if !text.is_empty() {
                    self.state.transcript.push_told(&text);
                }
                return self.state.command_ended();
            }
            FromSession::Other(state) => {
                let before = std::mem::replace(&mut self.state, *state);
                self.state.goes_on_from(before, now);
                return self.state.command_ended();
            }
            FromSession::Choose { text, choices, is_sudden } => {
                self.state.open_dialog(&text, choices, is_sudden);
            }
            FromSession::Status(status) => self.state.about.status = status,
            FromSession::Paths(wanted, paths) => self.state.offer(&wanted, &paths),
            FromSession::End => {}
        }
        Vec::new()
    }

    fn carry_out(&mut self, effect: ScreenEffect) {
        // If the terminal is gone, its reader says so.
        match effect {
            ScreenEffect::Interrupt => self.interrupt(),
            ScreenEffect::Reply(id, reply) => self.desk.reply(&id, reply),
            ScreenEffect::Inform(text, answer) => self.desk.inform(&text, answer),
            ScreenEffect::Notify => drop(terminal::notify()),
            ScreenEffect::ShowTranscript => drop(self.show_transcript()),
            ScreenEffect::Suspend => {
                terminal::restore();
                let _ = interrupt::stop();
                let _ = terminal::open().and_then(|()| terminal::catch_stderr(&self.inbox));
                let _ = self.draw_anew();
            }
            ScreenEffect::Leave => {
                self.interrupt();
                let _ = self.effects.send(ScreenEffect::Leave);
            }
            effect => {
                if matches!(effect, ScreenEffect::Send(_)) {
                    let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                    running.is_interrupted = false;
                }
                let _ = self.effects.send(effect);
            }
        }
    }

    /// Has the next picture drawn as a whole. `Terminal::clear` would ask the terminal where its
    /// cursor is, and take keys for the answer.
    fn draw_anew(&mut self) -> io::Result<()> {
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

    /// Ends the running work as interrupted, and then the chat.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.carry_out(ScreenEffect::Leave);
        }
    }

    fn show_transcript(&mut self) -> io::Result<()> {
        self.is_outside = true;
        terminal::leave()?;
        let width = usize::from(self.terminal.size()?.width.max(20));
        let text = self.state.transcript_text(width).replace('\n', "\r\n");
        let mut out = io::stdout().lock();
        write!(out, "\r\n{text}\r\nPress Enter to go back to the chat.")?;
        out.flush()
    }
}

impl ScreenHandle {
    /// The sink for the session's events.
    pub fn events(&self) -> SessionEvents {
        SessionEvents(Arc::clone(&self.inbox))
    }

    /// The sink for found paths.
    pub fn paths(&self) -> FoundPaths {
        FoundPaths(Arc::clone(&self.inbox))
    }

    /// Sends another message to the screen.
    pub fn tell(&self, told: FromSession) {
        self.inbox.tell(told);
    }

    /// A token that is cancelled when the person interrupts.
    pub fn arm(&self) -> CancellationToken {
        let token = CancellationToken::new();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut running.is_interrupted) {
            token.cancel();
        }
        running.token = Some(token.clone());
        token
    }

    /// Tells that nothing runs.
    pub fn disarm(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).token = None;
    }
}

impl Drop for ScreenHandle {
    fn drop(&mut self) {
        self.inbox.tell(FromSession::End);
        if let Some(thread) = self.thread.take() {
            // A panic was reported.
            let _ = thread.join();
        }
        terminal::restore();
    }
}
