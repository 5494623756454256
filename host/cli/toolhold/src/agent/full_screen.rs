//! `toolhold chat` on a full screen: carries out the person's input (messages, other sessions,
//! undo) and shows the events.

use std::collections::VecDeque;
use std::io::Write;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use toolhold_agent::{
    Agent, AgentStart, FileFinder, RecordedSession, RunEvent, RunEvents, SessionStore,
};
use toolhold_core::text::{neutral, neutral_line};
use toolhold_core::{Approver, CancellationToken, Host, HostError, Questions};
use toolhold_models::Part;
use toolhold_terminal::error::CommandError;
use toolhold_terminal::exit::Exit;
use toolhold_terminal::interrupt::Interrupts;
use toolhold_terminal::shown::summary;
use toolhold_terminal::style::FAINT;
use toolhold_tui::{
    About, FromSession, Screen, ScreenApprover, ScreenEffect, ScreenHandle, ScreenState, Theme,
};

use crate::agent::lenient::write_lenient;
use crate::agent::run::{Opened, open, open_named, remove_old};
use crate::agent::{MakeHost, Surroundings, failed, history, undo};
use crate::arguments::agent::ChatArguments;

/// Sessions that `/resume` searches.
const MAX_SEARCHED: usize = 500;

/// Sessions that `/resume` offers.
const MAX_OFFERED: usize = 50;

/// Runs a chat on a full screen until the person ends it.
pub(crate) async fn chat_on_screen(
    arguments: &ChatArguments,
    around: &Surroundings<'_>,
    host: impl MakeHost,
    interrupts: &Interrupts,
) -> Result<Exit, CommandError> {
    let screen_approver = Arc::new(ScreenApprover::new(Questions::open(around.folders)));
    let approver: Arc<dyn Approver> = if arguments.yes() {
        Arc::clone(&around.approver)
    } else {
        Arc::clone(&screen_approver) as _
    };
    let is_resumed = arguments.session.session.is_some() || arguments.session.last;
    let opened = open(&arguments.session, around, Arc::clone(&approver), host).await?;
    let state = screen_state(&opened, is_resumed, around).await?;
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
        is_offered: false,
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
    // The terminal is restored before slow work starts.
    drop(chat);
    if !answer.is_empty() {
        writeln!(anstream::stdout(), "{}", neutral(&answer))?;
        let resume = format!("toolhold chat --session {}", neutral_line(&id));
        writeln!(anstream::stderr(), "{FAINT}To go on: {resume}{FAINT:#}")?;
    }
    remove_old(around);
    Ok(exit)
}

/// Makes the state of a session's screen, with the earlier messages of the session.
async fn screen_state(
    opened: &Opened,
    is_resumed: bool,
    around: &Surroundings<'_>,
) -> Result<ScreenState, CommandError> {
    let about = About {
        status: status(&opened.agent, around),
        tools: tools(&opened.agent)?,
        history: history::read(around.folders, around.directory)?,
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
    let replay = tokio::task::spawn_blocking(move || {
        let recorded = RecordedSession::open(&folders, &id)?;
        recorded.replay(
            &mut |event: RunEvent| drop(state.apply(event, Duration::ZERO)),
            &CancellationToken::new(),
        )?;
        Ok(state)
    });
    match replay.await.map_err(|error| HostError::Config(error.to_string()))? {
        Ok(state) => Ok(state),
        Err(error) => Err(failed(error, around)),
    }
}

/// Describes the model, the limits and the rules that apply.
fn status(agent: &Agent, around: &Surroundings<'_>) -> String {
    let settings = agent.settings();
    let config = &around.config.values;
    let mut text = String::new();
    let model = neutral_line(&format!("{}/{}", settings.provider, settings.model));
    add_line(&mut text, "model", &model);
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
        let project = "and the toolhold.toml of this directory, as far as it applies";
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

/// A chat that runs.
struct Chat<'a> {
    agent: Agent,
    id: String,
    host: Arc<Host>,
    approver: Arc<dyn Approver>,
    screen: ScreenHandle,
    effects: UnboundedReceiver<ScreenEffect>,
    /// The effects that arrived during a task and wait for its end.
    delayed: VecDeque<ScreenEffect>,
    /// Whether the person was asked about calls as JSON alone.
    is_offered: bool,
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

    /// Ends a command with a message for the person.
    fn end_command(&self, text: String) {
        self.screen.tell(FromSession::CommandEnded(text));
    }

    async fn carry_out(&mut self, effect: ScreenEffect) -> Result<(), CommandError> {
        match effect {
            ScreenEffect::Send(text) => {
                let cancel = self.screen.arm();
                let mut events = self.screen.events();
                let task = vec![Part::Text(text)];
                let agent = &mut self.agent;
                let finder = agent.finder();
                let work = agent.run(task, &mut events, &cancel);
                let side_work = SideWork::new(&self.screen, self.around, finder, &cancel);
                side_work.run_until(work, &mut self.effects, &mut self.delayed).await;
                self.screen.disarm();
                self.screen.tell(FromSession::Status(status(&self.agent, self.around)));
                self.offer_lenient().await?;
            }
            ScreenEffect::Compact => {
                let cancel = self.screen.arm();
                let mut events = self.screen.events();
                let finder = self.agent.finder();
                let work = self.agent.compact(&mut events, &cancel);
                let side_work = SideWork::new(&self.screen, self.around, finder, &cancel);
                side_work.run_until(work, &mut self.effects, &mut self.delayed).await;
                self.screen.disarm();
                self.end_command(String::new());
            }
            ScreenEffect::Clear => self.change_session(None).await?,
            ScreenEffect::Resume => self.resume().await?,
            ScreenEffect::Undo => self.undo().await?,
            ScreenEffect::Model(name) => self.change_model(&name).await?,
            ScreenEffect::Complete(_) | ScreenEffect::Remember(_) => {
                let cancel = CancellationToken::new();
                let finder = self.agent.finder();
                SideWork::new(&self.screen, self.around, finder, &cancel).start(effect);
            }
            _ => {}
        }
        Ok(())
    }

    /// Opens the session of an ID, or a new session if `id` is `None`.
    async fn change_session(&mut self, id: Option<&str>) -> Result<(), CommandError> {
        let approver = Arc::clone(&self.approver);
        let host = Arc::clone(&self.host);
        let arguments = &self.arguments.session;
        let opened = open_named(id, arguments, self.around, approver, async || Ok(host)).await?;
        let state = screen_state(&opened, id.is_some(), self.around).await?;
        self.agent = opened.agent;
        self.id = opened.id;
        self.screen.tell(FromSession::Other(Box::new(state)));
        Ok(())
    }

    /// Sends the next messages to another model.
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
        self.screen.tell(FromSession::Status(status(&self.agent, self.around)));
        let settings = self.agent.settings();
        let model = neutral_line(&format!("{}/{}", settings.provider, settings.model));
        self.end_command(format!("The next message goes to {model}."));
        Ok(())
    }

    /// Lets the person choose. Returns the index of the choice, or `None` if the person chose
    /// nothing.
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
                    self.delayed.push_back(ScreenEffect::Leave);
                    return None;
                }
                Some(effect) => self.delayed.push_back(effect),
            }
        }
    }

    async fn resume(&mut self) -> Result<(), CommandError> {
        let store = SessionStore::new(self.around.folders);
        let listing = tokio::task::spawn_blocking(move || store.list(MAX_SEARCHED)).await;
        let mut sessions = match listing.map_err(|error| HostError::Config(error.to_string()))? {
            Ok(sessions) => sessions,
            Err(error) => return Err(failed(error, self.around)),
        };
        let directory = self.around.directory.display().to_string();
        sessions.retain(|session| {
            session.directory == directory
                && session.id != self.id
                && !session.title.is_empty()
                && session.within.is_none()
        });
        sessions.truncate(MAX_OFFERED);
        if sessions.is_empty() {
            self.end_command("There is no other session in this directory.".to_owned());
            return Ok(());
        }

        let choices =
            sessions.iter().map(|session| format!("{}  {}", session.id, session.title)).collect();
        let text = "Which session do you want to continue? Enter selects, Esc cancels.".to_owned();
        let choice = self.choose(text, choices, false).await;
        match choice.and_then(|index| sessions.get(index)) {
            Some(session) => self.change_session(Some(&session.id)).await,
            None => {
                self.end_command(String::new());
                Ok(())
            }
        }
    }

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
        let choices = vec!["No".to_owned(), "Yes".to_owned()];
        if self.choose(text, choices, false).await != Some(1) {
            self.end_command("Nothing was changed.".to_owned());
            return Ok(());
        }

        let config = self.around.config.clone();
        let folders = self.around.folders.clone();
        let front_end = self.around.front_end;
        let message = tokio::task::spawn_blocking(move || {
            undo::carry_out(&config, &folders, &calls, front_end)
        })
        .await
        .map_err(|error| HostError::Config(error.to_string()))??;
        let note = format!("The person undid the changes of your last turn:\n{message}");
        if let Err(error) = self.agent.note(note).await {
            return Err(failed(error, self.around));
        }
        self.end_command(message);
        Ok(())
    }

    /// Offers to accept a model's JSON texts as calls.
    async fn offer_lenient(&mut self) -> Result<(), CommandError> {
        if self.is_offered {
            return Ok(());
        }
        let Some(model) = self.agent.wants_lenient() else { return Ok(()) };
        self.is_offered = true;
        let text = format!(
            "{} writes calls as JSON alone, as some models on a machine of one's own do.\n\
             If they count, whatever such a call does beside reading needs your approval.\n\
             Let them count from now on?",
            neutral_line(&model)
        );
        if self.choose(text, vec!["No".to_owned(), "Yes".to_owned()], true).await == Some(1) {
            let text = write_lenient(model, self.around).await?;
            self.agent.be_lenient();
            self.screen.events().event(RunEvent::Notice { text });
        }
        Ok(())
    }
}

/// Work that runs at the same time as a task: completing paths and saving messages.
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

    /// Runs the work of a task until it ends. Effects with side work start immediately, and other
    /// effects are delayed.
    async fn run_until<T>(
        &self,
        work: impl Future<Output = T>,
        effects: &mut UnboundedReceiver<ScreenEffect>,
        delayed: &mut VecDeque<ScreenEffect>,
    ) {
        let mut work = pin!(work);
        loop {
            let effect = tokio::select! {
                // If both are ready, the end of the work comes first.
                biased;
                _ = &mut work => return,
                effect = effects.recv() => effect,
            };
            match effect {
                Some(effect @ (ScreenEffect::Complete(_) | ScreenEffect::Remember(_))) => {
                    self.start(effect);
                }
                Some(ScreenEffect::Leave) | None => {
                    self.cancel.cancel();
                    delayed.push_back(ScreenEffect::Leave);
                    drop(work.await);
                    return;
                }
                Some(effect) => delayed.push_back(effect),
            }
        }
    }

    /// Starts the side work of an effect.
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
