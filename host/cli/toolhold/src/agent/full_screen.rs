//! `toolhold chat` on a full screen: carries out the person's input and shows the events.

use std::collections::VecDeque;
use std::io::Write;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc::UnboundedReceiver;
use toolhold_agent::{
    Agent, AgentStart, EarlierMessage, FileFinder, RecordedSession, RunEvent, RunEvents,
    SessionStore, StoredSession,
};
use toolhold_core::text::{cut, in_words, neutral, neutral_line};
use toolhold_core::undo::UndoEntry;
use toolhold_core::{Approver, CancellationToken, Host, HostError, Questions};
use toolhold_models::Part;
use toolhold_skills::CustomCommands;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::interrupt::Interrupts;
use toolhold_terminal::shown::summary;
use toolhold_terminal::style::FAINT;
use toolhold_tui::{
    About, FromSession, Screen, ScreenApprover, ScreenEffect, ScreenHandle, ScreenState, Theme,
};

use crate::agent::lenient::write_lenient;
use crate::agent::run::{Opened, open, open_named, remove_old_sessions};
use crate::agent::undo::UndoOutcome;
use crate::agent::{MakeHost, Surroundings, failed, history, undo};
use crate::arguments::agent::ChatArguments;

/// The number of sessions that `/resume` reads.
const MAX_SEARCHED: usize = 500;

/// The most sessions that `/resume` offers, and the most messages that `/rewind` offers.
const MAX_OFFERED: usize = 50;

/// The most bytes of a message in the list of `/rewind`.
const MAX_TITLE: usize = 80;

pub(crate) async fn chat_on_screen(
    arguments: &ChatArguments,
    around: &Surroundings<'_>,
    host: impl MakeHost,
    interrupts: &Interrupts,
    commands: CustomCommands,
) -> Result<Exit, CommandError> {
    let screen_approver = Arc::new(ScreenApprover::new(Questions::open(around.folders)));
    let approver: Arc<dyn Approver> = if arguments.yes() {
        Arc::clone(&around.approver)
    } else {
        Arc::clone(&screen_approver) as _
    };
    let is_resumed = arguments.session.session.is_some() || arguments.session.last;
    let opened = open(&arguments.session, around, Arc::clone(&approver), host).await?;
    let mut state = screen_state(&opened, is_resumed, &commands, around).await?;
    for text in commands.notices() {
        state.apply(RunEvent::Notice { text }, Duration::ZERO);
    }
    let (screen, effects) =
        Screen::open(state, &screen_approver, interrupts).map_err(HostError::io("the terminal"))?;

    let Opened { agent, id, host } = opened;
    let mut chat = Chat {
        agent,
        id,
        host,
        approver,
        screen,
        effects,
        delayed: VecDeque::new(),
        has_offered_lenient: false,
        commands,
        arguments,
        around,
    };
    let mut exit = Exit::Host;
    while let Some(effect) = chat.next().await {
        if effect == ScreenEffect::Leave {
            exit = Exit::Success;
            break;
        }
        if let Err(error) = chat.carry_out(effect).await {
            let (_, message) = error.end();
            chat.end_command(message.unwrap_or_default());
        }
    }
    let answer = chat.agent.last_answer();
    let id = chat.id.clone();
    // Dropping the chat restores the terminal, which must not wait for the slow work below.
    drop(chat);
    if !answer.is_empty() {
        writeln!(anstream::stdout(), "{}", neutral(&answer))?;
        let phase = arguments.session.phase_flag();
        let flags = around.options.as_flags();
        let resume = format!("toolhold chat{phase}{flags} --session {}", neutral_line(&id));
        writeln!(anstream::stderr(), "{FAINT}To go on: {resume}{FAINT:#}")?;
    }
    remove_old_sessions(around);
    Ok(exit)
}

/// Makes the state of the screen. For a resumed session, the state contains the earlier events.
async fn screen_state(
    opened: &Opened,
    is_resumed: bool,
    commands: &CustomCommands,
    around: &Surroundings<'_>,
) -> Result<ScreenState, CommandError> {
    let about = About {
        status: status(&opened.agent, around),
        model: model(&opened.agent),
        tools: tools(&opened.agent)?,
        history: history::read(around.folders, around.directory)?,
        commands: commands.clone(),
        notify: around.config.values.agent.screen.notify,
    };
    let mut state = ScreenState::new(Theme::from_environment(), about);
    let id = opened.id.clone();
    let directory = around.directory.display().to_string();
    state.apply(RunEvent::Session { id, directory }, Duration::ZERO);
    if !is_resumed {
        return Ok(state);
    }

    let folders = around.folders.clone();
    let id = opened.id.clone();
    let model = model(&opened.agent);
    let replay = tokio::task::spawn_blocking(move || {
        let recorded = RecordedSession::open(&folders, &id)?;
        recorded.replay(
            &mut |event: RunEvent| drop(state.apply(event, Duration::ZERO)),
            &CancellationToken::new(),
        )?;
        // The next message may go to another model than the last message did.
        state.ask_model(&model);
        Ok(state)
    });
    match replay.await.map_err(|error| HostError::Config(error.to_string()))? {
        Ok(state) => Ok(state),
        Err(error) => Err(failed(error, around)),
    }
}

fn model(agent: &Agent) -> String {
    let settings = agent.settings();
    format!("{}/{}", settings.provider, settings.model)
}

fn status(agent: &Agent, around: &Surroundings<'_>) -> String {
    let settings = agent.settings();
    let config = &around.config.values;
    let mut text = String::new();
    add_line(&mut text, "model", &neutral_line(&model(agent)));
    let tokens = match settings.max_tokens {
        0 => "any".to_owned(),
        tokens => tokens.to_string(),
    };
    let limits = format!(
        "{} answers, {} s, {tokens} tokens for one task",
        settings.max_turns,
        settings.max_time.as_secs()
    );
    add_line(&mut text, "limits", &limits);
    if settings.max_cost > 0.0 {
        add_line(&mut text, "", &format!("cost at most {} for one task", settings.max_cost));
    }
    let autonomy = serde_json::json!(config.tools.autonomy);
    let place = around.config.place("tools.autonomy");
    let autonomy = format!("{} ({place})", autonomy.as_str().unwrap_or_default());
    add_line(&mut text, "autonomy", &autonomy);

    for file in around.config.file.iter().chain(&around.config.defaults) {
        add_line(&mut text, "rules in", &neutral_line(&file.display().to_string()));
    }
    if around.config.project.is_some() {
        let project = "and the restrictions in the toolhold.toml of this directory";
        add_line(&mut text, "", project);
    }
    for ceiling in &around.config.ceilings {
        add_line(&mut text, "below", &neutral_line(&ceiling.path.display().to_string()));
    }
    let judge = &config.tools.adversarial_policy;
    if judge.enabled {
        let provider = &judge.provider;
        let count = judge.policies.len();
        let policies = if count == 1 { "1 policy".to_owned() } else { format!("{count} policies") };
        let outcome = if judge.fail_open { "runs (fail_open)" } else { "is denied" };
        let line = format!("{provider}, by {policies}; a call that isn't judged {outcome}");
        add_line(&mut text, "judge", &line);
    }
    for line in agent.filter_status() {
        text.push_str(&neutral_line(&line));
        text.push('\n');
    }
    text.push_str(
        "`toolhold config show` shows all keys, `toolhold policy check` the decision about a \
         call.\n",
    );
    text
}

fn add_line(text: &mut String, name: &str, value: &str) {
    text.push_str(&format!("{name:9} {value}\n"));
}

fn tools(agent: &Agent) -> Result<String, CommandError> {
    let tools = agent.tools().map_err(|error| HostError::Config(error.to_string()))?;
    let lines =
        tools.iter().map(|tool| format!("{:18} {}\n", neutral_line(&tool.name), summary(tool)));
    Ok(lines.collect())
}

/// Returns the ID of a session, its age, and its first message.
fn session_title(session: &StoredSession) -> String {
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(session.changed);
    let since = in_words(changed.elapsed().unwrap_or_default());
    format!("{}  {since} ago  {}", session.id, session.title)
}

/// Returns the start of a message, on one line.
fn message_title(message: &EarlierMessage) -> String {
    neutral_line(cut(&message.text, MAX_TITLE))
}

struct Chat<'a> {
    agent: Agent,
    id: String,
    host: Arc<Host>,
    approver: Arc<dyn Approver>,
    screen: ScreenHandle,
    effects: UnboundedReceiver<ScreenEffect>,
    /// Effects that arrived during a task, to be carried out after the task.
    delayed: VecDeque<ScreenEffect>,
    /// Whether the person was already asked about calls in plain JSON.
    has_offered_lenient: bool,
    /// The commands of the user and of the project.
    commands: CustomCommands,
    arguments: &'a ChatArguments,
    around: &'a Surroundings<'a>,
}

impl Chat<'_> {
    async fn next(&mut self) -> Option<ScreenEffect> {
        match self.delayed.pop_front() {
            Some(effect) => Some(effect),
            None => self.effects.recv().await,
        }
    }

    fn end_command(&self, text: String) {
        self.screen.tell(FromSession::CommandEnded(text));
    }

    fn tell_status(&self) {
        let text = status(&self.agent, self.around);
        self.screen.tell(FromSession::Status { text, model: model(&self.agent) });
    }

    async fn carry_out(&mut self, effect: ScreenEffect) -> Result<(), CommandError> {
        match effect {
            ScreenEffect::Send(text) => self.send(text).await?,
            ScreenEffect::Compact => self.compact().await,
            ScreenEffect::Clear => self.change_session(None).await?,
            ScreenEffect::Resume => self.resume().await?,
            ScreenEffect::Undo => self.undo().await?,
            ScreenEffect::Rewind => self.rewind().await?,
            ScreenEffect::Model(name) => self.change_model(&name).await?,
            ScreenEffect::Complete(_) | ScreenEffect::Remember(_) => {
                let cancel = CancellationToken::new();
                let finder = self.agent.finder();
                SideWork::new(&self.screen, self.around, finder, &cancel).start(effect);
            }
            // The screen or the chat's loop handles all other effects.
            _ => {}
        }
        Ok(())
    }

    /// Lets the agent work on a message until the task ends or the person interrupts it.
    async fn send(&mut self, text: String) -> Result<(), CommandError> {
        let cancel = self.screen.arm();
        let mut events = self.screen.events();
        let task = vec![Part::Text(text)];
        let finder = self.agent.finder();
        let work = self.agent.run(task, &mut events, &cancel);
        let side_work = SideWork::new(&self.screen, self.around, finder, &cancel);
        side_work.run_until(work, &mut self.effects, &mut self.delayed).await;
        self.screen.disarm();
        self.tell_status();
        self.offer_lenient().await
    }

    async fn compact(&mut self) {
        let cancel = self.screen.arm();
        let mut events = self.screen.events();
        let finder = self.agent.finder();
        let work = self.agent.compact(&mut events, &cancel);
        let side_work = SideWork::new(&self.screen, self.around, finder, &cancel);
        side_work.run_until(work, &mut self.effects, &mut self.delayed).await;
        self.screen.disarm();
        // The events have already informed the person.
        self.end_command(String::new());
    }

    /// Changes to the session `id`, or to a new session with the current model if `id` is `None`.
    async fn change_session(&mut self, id: Option<&str>) -> Result<(), CommandError> {
        let approver = Arc::clone(&self.approver);
        let host = Arc::clone(&self.host);
        let arguments = &self.arguments.session;
        let current_model = model(&self.agent);
        // An existing session has its own model, unless the command line names a model.
        let model = match id {
            Some(_) => arguments.model.as_deref(),
            None => Some(current_model.as_str()),
        };
        let opened =
            open_named(id, model, arguments, self.around, approver, async || Ok(host)).await?;
        let state = screen_state(&opened, id.is_some(), &self.commands, self.around).await?;
        self.agent = opened.agent;
        self.id = opened.id;
        self.screen.tell(FromSession::Other(Box::new(state)));
        Ok(())
    }

    /// Lets the model `name` answer from the next message on.
    async fn change_model(&mut self, name: &str) -> Result<(), CommandError> {
        let start = AgentStart {
            config: self.around.config,
            folders: self.around.folders,
            directory: self.around.directory,
            front_end: self.around.front_end,
            model: Some(name),
            session: None,
            phase: self.arguments.session.phase(),
            instructions: &[],
            skills: "",
        };
        if let Err(error) = start.change_model(&mut self.agent).await {
            return Err(failed(error, self.around));
        }
        self.tell_status();
        let model = neutral_line(&model(&self.agent));
        self.end_command(format!("The next message goes to {model}."));
        Ok(())
    }

    /// Asks the person to choose. Returns the index of the choice, or `None` if nothing was chosen.
    /// `is_sudden` says that the person doesn't expect the question, so a key that they are just
    /// typing must not answer it.
    async fn choose(
        &mut self,
        text: String,
        choices: Vec<String>,
        is_sudden: bool,
    ) -> Option<usize> {
        self.screen.tell(FromSession::Choose { text, choices, is_sudden });
        loop {
            match self.effects.recv().await {
                Some(ScreenEffect::Picked(choice)) => return choice,
                Some(ScreenEffect::Leave) | None => {
                    // The effect is kept, so that the chat ends after this command.
                    self.delayed.push_back(ScreenEffect::Leave);
                    return None;
                }
                Some(effect) => self.delayed.push_back(effect),
            }
        }
    }

    /// Asks a question, and returns whether the person chose "Yes" instead of "No". `is_sudden` has
    /// the same meaning as in `choose`.
    async fn confirm(&mut self, text: String, is_sudden: bool) -> bool {
        let choices = vec!["No".to_owned(), "Yes".to_owned()];
        let index_of_yes = 1;
        self.choose(text, choices, is_sudden).await == Some(index_of_yes)
    }

    /// Lets the person change to another session of this directory.
    async fn resume(&mut self) -> Result<(), CommandError> {
        let store = SessionStore::new(self.around.folders);
        let listing = tokio::task::spawn_blocking(move || store.list(MAX_SEARCHED)).await;
        let listed = listing.map_err(|error| HostError::Config(error.to_string()))?;
        let mut sessions = match listed {
            Ok(sessions) => sessions,
            Err(error) => return Err(failed(error, self.around)),
        };
        let directory = self.around.directory.display().to_string();
        sessions.retain(|session| {
            let is_current = session.id == self.id;
            let is_of_sub_agent = session.within.is_some();
            let is_chat = session.has_answer && !is_of_sub_agent;
            session.directory == directory && is_chat && !is_current
        });
        sessions.truncate(MAX_OFFERED);
        if sessions.is_empty() {
            self.end_command("There is no other session in this directory.".to_owned());
            return Ok(());
        }

        let choices = sessions.iter().map(session_title).collect();
        let text = "Which session do you want to continue? Enter selects, Esc cancels.".to_owned();
        let is_sudden = false;
        let choice = self.choose(text, choices, is_sudden).await;
        match choice.and_then(|index| sessions.get(index)) {
            Some(session) => self.change_session(Some(&session.id)).await,
            None => {
                self.end_command(String::new());
                Ok(())
            }
        }
    }

    /// Undoes the changes of the last turn if the person agrees, and tells the model.
    async fn undo(&mut self) -> Result<(), CommandError> {
        let config = self.around.config.clone();
        let folders = self.around.folders.clone();
        let session = format!("agent {}", self.id);
        let plan = tokio::task::spawn_blocking(move || undo::plan(&config, &folders, &session))
            .await
            .map_err(|error| HostError::Config(error.to_string()))??;
        let Some((calls, text)) = plan else {
            let message = "No call of this session changed files that can be restored.";
            self.end_command(message.to_owned());
            return Ok(());
        };
        let is_sudden = false;
        if !self.confirm(text, is_sudden).await {
            self.end_command("Nothing was changed.".to_owned());
            return Ok(());
        }

        let UndoOutcome { text, .. } = self.carry_out_undo(calls).await?;
        let note = format!("The person undid the changes of your last turn:\n{text}");
        if let Err(error) = self.agent.note(note).await {
            return Err(failed(error, self.around));
        }
        self.end_command(text);
        Ok(())
    }

    async fn carry_out_undo(&self, calls: Vec<UndoEntry>) -> Result<UndoOutcome, CommandError> {
        let config = self.around.config.clone();
        let folders = self.around.folders.clone();
        let front_end = self.around.front_end;
        let undoing = tokio::task::spawn_blocking(move || {
            undo::carry_out(&config, &folders, &calls, front_end)
        });
        let outcome = undoing.await.map_err(|error| HostError::Config(error.to_string()))?;
        Ok(outcome?)
    }

    /// Goes back to before a message that the person chooses, and undoes later changes of files.
    async fn rewind(&mut self) -> Result<(), CommandError> {
        let mut messages = match self.agent.earlier_messages().await {
            Ok(messages) => messages,
            Err(error) => return Err(failed(error, self.around)),
        };
        messages.reverse();
        messages.truncate(MAX_OFFERED);
        if messages.is_empty() {
            self.end_command("There is no earlier message in this conversation.".to_owned());
            return Ok(());
        }
        let text = "Go back to before which message? Enter selects, Esc cancels.".to_owned();
        let choices = messages.iter().map(message_title).collect();
        let is_sudden = false;
        let choice = self.choose(text, choices, is_sudden).await;
        let Some(message) = choice.and_then(|index| messages.get(index)) else {
            self.end_command(String::new());
            return Ok(());
        };

        let config = self.around.config.clone();
        let folders = self.around.folders.clone();
        let session = format!("agent {}", self.id);
        let turn = message.turn;
        let planning = tokio::task::spawn_blocking(move || {
            undo::plan_since(&config, &folders, &session, turn)
        });
        let (calls, changes) =
            planning.await.map_err(|error| HostError::Config(error.to_string()))??;
        let title = message_title(message);
        let text = format!(
            "Go back to before this message, and undo the changes in files since?\n  {title}\n\n{changes}"
        );
        if !self.confirm(text, is_sudden).await {
            self.end_command("Nothing was changed.".to_owned());
            return Ok(());
        }

        let outcome = self.carry_out_undo(calls).await?;
        let notice = format!("the conversation goes on from before the message: {title}");
        let mut events = self.screen.events();
        if let Err(error) = self.agent.rewind(message, notice, &mut events).await {
            return Err(failed(error, self.around));
        }
        if !outcome.is_complete {
            let text = &outcome.text;
            let note = format!("The person undid later changes in files, but not all:\n{text}");
            if let Err(error) = self.agent.note(note).await {
                return Err(failed(error, self.around));
            }
        }
        self.end_command(outcome.text);
        Ok(())
    }

    /// After a call in plain JSON, asks the person once in a chat whether such calls are accepted.
    async fn offer_lenient(&mut self) -> Result<(), CommandError> {
        if self.has_offered_lenient {
            return Ok(());
        }
        let Some(model) = self.agent.suggested_lenient_model() else { return Ok(()) };
        self.has_offered_lenient = true;
        let text = format!(
            "{} writes calls as plain JSON, as some local models do.\nIf you accept such calls, \
             each call that does more than read needs your approval.\nAccept calls in plain JSON \
             from now on?",
            neutral_line(&model)
        );
        let is_sudden = true;
        if self.confirm(text, is_sudden).await {
            let text = write_lenient(model, self.around).await?;
            self.agent.be_lenient();
            self.screen.events().event(RunEvent::Notice { text });
        }
        Ok(())
    }
}

/// Work during a task: completing paths and saving messages.
struct SideWork<'a> {
    screen: &'a ScreenHandle,
    around: &'a Surroundings<'a>,
    finder: FileFinder,
    cancel: &'a CancellationToken,
}

impl<'a> SideWork<'a> {
    fn new(
        screen: &'a ScreenHandle,
        around: &'a Surroundings<'a>,
        finder: FileFinder,
        cancel: &'a CancellationToken,
    ) -> Self {
        Self { screen, around, finder, cancel }
    }

    /// Waits for `work`. Meanwhile, starts side work, and adds all other effects to `delayed`.
    async fn run_until<T>(
        &self,
        work: impl Future<Output = T>,
        effects: &mut UnboundedReceiver<ScreenEffect>,
        delayed: &mut VecDeque<ScreenEffect>,
    ) {
        let mut work = pin!(work);
        loop {
            let effect = tokio::select! {
                // The work is checked first, because effects must stay in the channel once it has
                // ended.
                biased;
                _ = &mut work => return,
                effect = effects.recv() => effect,
            };
            match effect {
                Some(effect @ (ScreenEffect::Complete(_) | ScreenEffect::Remember(_))) => {
                    self.start(effect);
                }
                Some(ScreenEffect::Leave) | None => {
                    // The work is cancelled, and the chat ends after it.
                    self.cancel.cancel();
                    delayed.push_back(ScreenEffect::Leave);
                    drop(work.await);
                    return;
                }
                Some(effect) => delayed.push_back(effect),
            }
        }
    }

    /// Starts the side work of an effect, if there is any, without waiting for its end.
    fn start(&self, effect: ScreenEffect) {
        match effect {
            ScreenEffect::Complete(path_start) => {
                let finder = self.finder.clone();
                let paths = self.screen.paths();
                tokio::spawn(async move {
                    let matches = finder.find(&path_start).await;
                    paths.offer(path_start, matches);
                });
            }
            ScreenEffect::Remember(message) => {
                let folders = self.around.folders.clone();
                let directory = self.around.directory.to_owned();
                tokio::task::spawn_blocking(move || {
                    if let Err(error) = history::add(&folders, &directory, message) {
                        tracing::warn!("the message isn't saved for later chats: {error}");
                    }
                });
            }
            _ => {}
        }
    }
}
