//! Asks the user of an MCP client for approval, by elicitation or by a sealed ticket that the
//! client sends back.
//!
//! In revisions before 2026-07-28, the client is asked while the call waits. In revision
//! 2026-07-28, the server can't send requests to the client, so the call ends with the question.
//! The client repeats the call with the answer and a sealed ticket. The ticket names the question
//! and is valid once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rmcp::model::{
    CancelledNotificationParam, ClientCapabilities, ClientResult, ConstTitle, ElicitRequest,
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, EnumSchema,
    Implementation, InputRequest, InputRequiredResult, InputResponses, LegacyEnumSchema,
    PrimitiveSchemaDefinition, ProtocolVersion, RequestId, RequestStateCodec, RequestStateError,
    SealOptions, ServerRequest, SingleSelectEnumSchema, TitledSingleSelectEnumSchema,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestContext};
use rmcp::{ErrorData, RoleServer, ServiceError};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use toolhold_core::config::{Folders, McpApprovals};
use toolhold_core::text::{cut, neutral_line};
use toolhold_core::{
    Approver, BoxFuture, Fingerprint, HostError, Inquiry, InquiryAnswer, PostingApprover, Question,
    Reply, Scope, state,
};

use crate::parked::{FIELD, OpenQuestion, ParkedCalls};
use crate::random;
use crate::tasks::{StartedTask, Task, owner};

/// The choices.
const ONCE: &str = "once";
const SESSION: &str = "session";
const TOOL: &str = "tool";
const ALL: &str = "all";
const NO: &str = "no";

/// Bytes of a client's name.
const NAME: usize = 100;

/// The folder in the data folder, and the file in this folder with the key that seals tickets.
pub(crate) const FOLDER: &str = "mcp";
pub(crate) const KEY: &str = "key";

/// The shortest time in which a person reads a question and declines it. A client without a person,
/// such as `codex exec`, declines each question at once.
const SHORTEST_READING: Duration = Duration::from_secs(1);

/// Used tickets that haven't expired. No person answers more in that time.
const MOST_USED: usize = 4096;

/// How a server's clients get approvals.
pub(crate) struct QuestionMeans {
    /// Where questions go.
    pub(crate) mcp: McpApprovals,
    /// Asks if the client can't, or must not.
    pub(crate) posting: PostingApprover,
    /// Calls that wait for the answer to their tool's elicitation.
    pub(crate) parked: ParkedCalls,
}

/// The obstacle to sealing or opening a ticket.
#[derive(Debug, thiserror::Error)]
enum TicketError {
    #[error(transparent)]
    Random(#[from] std::io::Error),
    #[error(transparent)]
    Seal(#[from] RequestStateError),
    #[error(transparent)]
    Fingerprint(#[from] serde_json::Error),
    #[error(transparent)]
    State(#[from] HostError),
    #[error("it was used before, or too many newer ones were used")]
    Used,
}

/// Seals tickets and stores the used tickets. All servers of a user share them, so a client can
/// send its ticket to any of these servers.
pub(crate) struct Tickets {
    codec: RequestStateCodec,
    folder: PathBuf,
    lasting: Duration,
}

impl Tickets {
    /// Uses the key in the data folder. The key is created at the first use.
    ///
    /// # Errors
    ///
    /// Returns an error if the key can't be read or created.
    pub(crate) fn new(folders: &Folders, lasting: Duration) -> Result<Self, HostError> {
        let folder = folders.data.join(FOLDER);
        let key = state::secret(&folder, KEY)?;
        let codec = RequestStateCodec::try_new(key.into_bytes())
            .map_err(|error| HostError::io(KEY)(std::io::Error::other(error)))?;
        Ok(Self { codec, folder, lasting })
    }

    fn seal(&self, session: &str, fingerprint: Fingerprint) -> Result<String, TicketError> {
        let ticket = json!([fingerprint, random::name()?, milliseconds()]);
        let options = SealOptions::new().associated_data(session.as_bytes()).ttl(self.lasting);
        Ok(self.codec.seal_json_with(&ticket, &options)?)
    }

    /// Opens a ticket, and marks it as used. Returns the fingerprint of its question, and the time
    /// since the question was asked.
    ///
    /// # Errors
    ///
    /// The ticket isn't this server's, is for another session, has expired, or was used before.
    fn open(&self, session: &str, sealed: &str) -> Result<(Fingerprint, Duration), TicketError> {
        let ticket: Value = self.codec.open_json_with(sealed, session.as_bytes())?;
        let fingerprint = serde_json::from_value(ticket[0].clone())?;
        let asked_at = ticket[2].as_u64().unwrap_or_default();
        let taken = Duration::from_millis(milliseconds().saturating_sub(asked_at));
        let nonce = ticket[1].as_str().unwrap_or_default().to_owned();
        let now = seconds();
        // A used ticket is removed only after it has expired.
        let forget_at = now + self.lasting.as_secs() + 1;
        let is_first_use =
            state::update(&self.folder, &used_by(session), |used: &mut BTreeMap<String, u64>| {
                used.retain(|_, until| *until > now);
                Ok(used.len() < MOST_USED && used.insert(nonce, forget_at).is_none())
            })?;
        if is_first_use { Ok((fingerprint, taken)) } else { Err(TicketError::Used) }
    }
}

/// Names the file with a caller's used tickets. Each caller has its own file because the number of
/// tickets in a file is limited.
fn used_by(session: &str) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, owner(session).as_bytes());
    let digest: String = hash.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("used-{digest}.json")
}

/// Returns the Unix time in seconds.
pub(crate) fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the Unix time in milliseconds.
fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Asks for approval of one call.
pub(crate) struct CallApprover {
    pub(crate) way: AskMode,
    pub(crate) asking: Arc<QuestionMeans>,
    /// The client that is asked. `None` if the client doesn't name itself, or if it isn't asked.
    client: Option<Implementation>,
    /// Whether the client's revision supports titles for choices. They exist since 2025-11-25.
    has_titles: bool,
    /// The call, if its client supports MCP tasks.
    pub(crate) started_task: Option<Arc<StartedTask>>,
    /// Whether the client shows addresses.
    pub(crate) can_visit: bool,
    /// The elicitations of the call's tool, if they end the request of the call.
    questions: Mutex<Option<mpsc::Receiver<OpenQuestion>>>,
}

pub(crate) enum AskMode {
    /// Asks while the call waits.
    Elicit(Peer<RoleServer>),
    /// The call ends, and the client repeats it.
    Return(Box<TicketAnswer>),
    Elsewhere,
    Nobody,
}

/// A question that the client shows while this is held.
struct Open(Option<(Peer<RoleServer>, RequestId)>);

impl Drop for Open {
    fn drop(&mut self) {
        let Some((peer, id)) = self.0.take() else { return };
        // If the runtime has ended, no notification can be sent.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let reason = "the call has ended".to_owned();
            let cancelled = CancelledNotificationParam::new(Some(id), Some(reason));
            // A client that is gone shows nothing.
            let _ = peer.notify_cancelled(cancelled).await;
        });
    }
}

pub(crate) struct TicketAnswer {
    /// Where questions of the call's tool go.
    pub(crate) questions: mpsc::Sender<OpenQuestion>,
    tickets: Arc<Tickets>,
    session: Arc<str>,
    /// The client's answer to an earlier question.
    answer: Option<TicketedAnswer>,
    /// The question for the client.
    required: Mutex<Option<InputRequiredResult>>,
}

/// The client's answer to a question of an earlier request.
struct TicketedAnswer {
    /// The question.
    fingerprint: Fingerprint,
    /// The time between the question and the answer.
    taken: Duration,
    result: ElicitResult,
}

impl CallApprover {
    /// Makes the approver of a call in a session. `asks` are the client's ways to ask its user.
    /// `ticket_and_responses` are the client's answer to an earlier question.
    ///
    /// # Errors
    ///
    /// Returns an error if the ticket isn't from this server or was already used.
    pub(crate) async fn new(
        asking: &Arc<QuestionMeans>,
        tickets: &Arc<Tickets>,
        session: &Arc<str>,
        context: &RequestContext<RoleServer>,
        asks: ClientAsks,
        ticket_and_responses: (Option<String>, Option<InputResponses>),
        started_task: Option<Arc<StartedTask>>,
    ) -> Result<Self, ErrorData> {
        let version = context.protocol_version();
        let ends_request = version.as_ref().is_some_and(|version| !version.has_initialize());
        let has_titles = version
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2025_11_25.as_str());
        let mut questions = None;
        let way = match (asking.mcp, asks.forms) {
            (McpApprovals::Deny, _) => AskMode::Nobody,
            (McpApprovals::Terminal, _) | (McpApprovals::Client, false) => AskMode::Elsewhere,
            (McpApprovals::Client, true) if ends_request => {
                let tickets = Arc::clone(tickets);
                let session = Arc::clone(session);
                let answer = parse_answer(&tickets, &session, ticket_and_responses).await?;
                let (sender, receiver) = mpsc::channel(1);
                questions = Some(receiver);
                AskMode::Return(Box::new(TicketAnswer {
                    questions: sender,
                    tickets,
                    session,
                    answer,
                    required: Mutex::default(),
                }))
            }
            (McpApprovals::Client, true) => AskMode::Elicit(context.peer.clone()),
        };
        let client = match way {
            AskMode::Elicit(_) | AskMode::Return(_) => context.client_info(),
            AskMode::Elsewhere | AskMode::Nobody => None,
        };
        Ok(Self {
            way,
            asking: Arc::clone(asking),
            client,
            has_titles,
            started_task,
            can_visit: asks.addresses,
            questions: Mutex::new(questions),
        })
    }

    /// Takes the questions of the call's tool, for the code that answers the request.
    pub(crate) fn take_questions(&self) -> Option<mpsc::Receiver<OpenQuestion>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes the question that the client must ask before it repeats the call.
    pub(crate) fn required(&self) -> Option<InputRequiredResult> {
        let AskMode::Return(returned) = &self.way else { return None };
        returned.required.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn reply(&self, question: Question) -> Reply {
        if let Some(reason) = question.too_large() {
            return Reply::Unasked(reason);
        }
        // A person who answered at a terminal isn't asked again in the client.
        if matches!(self.way, AskMode::Elicit(_) | AskMode::Return(_))
            && let Ok(Some(reply)) = self.asking.posting.take_answer(&question).await
        {
            return reply;
        }
        match &self.way {
            AskMode::Nobody => {
                Reply::Unasked("clients can't ask: `mcp = \"deny\"` in [approvals]".to_owned())
            }
            AskMode::Elsewhere => self.ask_elsewhere(question).await,
            AskMode::Elicit(peer) => {
                let asked_at = Instant::now();
                match self.elicit_form(peer, self.form(&question)).await {
                    Ok(result) => self.reply_of(question, &result, asked_at.elapsed()).await,
                    Err(error) => Reply::Unasked(format!(
                        "the client could not ask: {}",
                        neutral_line(cut(&error.to_string(), 200))
                    )),
                }
            }
            AskMode::Return(ticket_answer) => {
                if let Some(answer) = &ticket_answer.answer
                    && answer.fingerprint == question.fingerprint
                {
                    return self.reply_of(question, &answer.result, answer.taken).await;
                }
                match self.started_task.as_ref().and_then(|started| started.asks()) {
                    Some(task) => self.ask_in_task(&task, question).await,
                    None => self.return_question(ticket_answer, &question),
                }
            }
        }
    }

    /// Stores the question for the client. The question ends the request.
    fn return_question(&self, ticket_answer: &TicketAnswer, question: &Question) -> Reply {
        let sealed = ticket_answer.tickets.seal(&ticket_answer.session, question.fingerprint);
        let ticket = match sealed {
            Ok(ticket) => ticket,
            Err(error) => return Reply::Unasked(format!("the client can't be asked: {error}")),
        };
        let request = InputRequest::Elicitation(ElicitRequest::new(self.form(question)));
        let requests = [(FIELD.to_owned(), request)].into();
        let required = InputRequiredResult::new(Some(requests), Some(ticket));
        *ticket_answer.required.lock().unwrap_or_else(PoisonError::into_inner) = Some(required);
        Reply::Unasked("the client was sent the question".to_owned())
    }

    /// Asks while the call waits. If the call stops waiting, the client closes the question.
    pub(crate) async fn elicit_form(
        &self,
        peer: &Peer<RoleServer>,
        form: ElicitRequestParams,
    ) -> Result<ElicitResult, ServiceError> {
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(form));
        let handle =
            peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
        let mut open = Open(Some((peer.clone(), handle.id.clone())));
        let answer = handle.await_response().await;
        open.0 = None;
        match answer? {
            ClientResult::ElicitResult(result) => Ok(result),
            _ => Err(ServiceError::UnexpectedResponse),
        }
    }

    /// Asks at a terminal, and shows this in the task's status message.
    async fn ask_elsewhere(&self, question: Question) -> Reply {
        self.say("waits for approval: `toolhold approvals`");
        let reply = self.asking.posting.ask(question).await;
        self.say("");
        reply
    }

    /// Asks at a terminal, because the client answered without a person.
    async fn ask_elsewhere_instead(&self, question: Question) -> Reply {
        let remedy = match self.ask_elsewhere(question).await {
            Reply::Unasked(remedy) => remedy,
            reply => return reply,
        };
        let mut message = format!("no person answered in the client; {remedy}");
        if !self.asking.posting.waits() {
            message += "; with `wait_secs` in [approvals], the call waits for the answer";
        }
        Reply::Unasked(message)
    }

    /// Sets the status message of the call, if its client supports MCP tasks.
    fn say(&self, text: &str) {
        if let Some(started_task) = &self.started_task {
            started_task.say(text);
        }
    }

    /// Asks after the call's request was answered.
    async fn ask_in_task(&self, task: &Task, question: Question) -> Reply {
        let asked_at = Instant::now();
        let answer =
            tokio::time::timeout(self.asking.posting.lasting, task.ask(self.form(&question))).await;
        task.withdraw_question();
        let value = match answer {
            Ok(Ok(value)) => value,
            Ok(Err(_)) => return Reply::Unasked("the task has ended".to_owned()),
            Err(_) => return Reply::Unasked("the client did not answer in time".to_owned()),
        };
        match serde_json::from_value(value) {
            Ok(result) => self.reply_of(question, &result, asked_at.elapsed()).await,
            Err(error) => Reply::Unasked(format!(
                "the client's answer is invalid: {}",
                neutral_line(cut(&error.to_string(), 200))
            )),
        }
    }

    /// Makes the form that the client shows.
    fn form(&self, question: &Question) -> ElicitRequestParams {
        let choices = choices(question);
        let title = Some("Allow it?".into());
        let choice = if self.has_titles {
            let mut choice = TitledSingleSelectEnumSchema::new(
                choices.into_iter().map(|(value, title)| ConstTitle::new(value, title)).collect(),
            );
            choice.title = title;
            EnumSchema::Single(SingleSelectEnumSchema::Titled(choice))
        } else {
            let values = choices.iter().map(|(value, _)| (*value).to_owned()).collect();
            let mut choice = LegacyEnumSchema::new(values);
            choice.enum_names = Some(choices.into_iter().map(|(_, title)| title).collect());
            choice.title = title;
            EnumSchema::Legacy(choice)
        };
        let properties = [(FIELD.to_owned(), PrimitiveSchemaDefinition::Enum(choice))].into();
        let mut requested_schema = ElicitationSchema::new(properties);
        requested_schema.required = Some(vec![FIELD.to_owned()]);
        ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: question.to_text(),
            requested_schema,
        }
    }

    /// Returns the name of the user who answers, for the record.
    pub(crate) fn by(&self) -> String {
        let Some(client) = &self.client else { return "MCP client".to_owned() };
        let name = format!("{} {}", client.name, client.version);
        format!("MCP client {}", neutral_line(cut(&name, NAME)))
    }

    /// Converts the client's answer, which took this time. A client without a person cancels each
    /// question, or declines it at once. Then the question waits for a person elsewhere.
    async fn reply_of(&self, question: Question, result: &ElicitResult, taken: Duration) -> Reply {
        let offers_wider = question.wider.is_some();
        let by = self.by();
        let field = result.content.as_ref().and_then(|content| content.get(FIELD));
        let choice = field.and_then(Value::as_str);
        let reply = match (&result.action, choice) {
            (ElicitationAction::Accept, Some(ONCE)) => Reply::Yes { scope: Scope::Once, by },
            (ElicitationAction::Accept, Some(SESSION)) => Reply::Yes { scope: Scope::Session, by },
            (ElicitationAction::Accept, Some(TOOL)) if offers_wider => {
                Reply::Yes { scope: Scope::SessionTool, by }
            }
            (ElicitationAction::Accept, Some(ALL)) if offers_wider => {
                Reply::Yes { scope: Scope::SessionSource, by }
            }
            (ElicitationAction::Accept, Some(NO)) => Reply::No { by, reason: String::new() },
            (ElicitationAction::Decline, _) if taken >= SHORTEST_READING => {
                Reply::No { by, reason: String::new() }
            }
            (ElicitationAction::Decline | ElicitationAction::Cancel, _) => {
                return self.ask_elsewhere_instead(question).await;
            }
            _ => {
                return Reply::Unasked(format!(
                    "the client's answer has no `{FIELD}` among \"{ONCE}\", \"{SESSION}\" and \
                     \"{NO}\""
                ));
            }
        };
        // If that fails, the question expires.
        let _ = self.asking.posting.withdraw(question).await;
        reply
    }
}

/// Returns the choices of the form, each with its title. A permanent approval isn't among them: a
/// client, which may be on another machine, doesn't change the user's configuration.
fn choices(question: &Question) -> Vec<(&'static str, String)> {
    let mut choices = vec![
        (ONCE, "Allow this call".to_owned()),
        (SESSION, "Allow identical calls in this session".to_owned()),
    ];
    if question.wider.is_some() {
        let tool = neutral_line(cut(&question.tool, NAME));
        let source = neutral_line(cut(question.source(), NAME));
        choices.push((TOOL, format!("Allow any call of {tool} in this session")));
        choices.push((ALL, format!("Allow every tool of {source} in this session")));
    }
    choices.push((NO, "Don't allow it".to_owned()));
    choices
}

impl Approver for CallApprover {
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        Box::pin(self.reply(question))
    }

    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        Box::pin(self.put(inquiry))
    }

    fn waits(&self) -> bool {
        match &self.way {
            AskMode::Elicit(_) => true,
            AskMode::Elsewhere => self.asking.posting.waits(),
            AskMode::Return(_) => {
                self.started_task.as_ref().is_some_and(|started| started.is_task())
            }
            AskMode::Nobody => false,
        }
    }
}

/// A client's ways to ask its user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientAsks {
    /// Whether the client supports forms. A client that names no mode supports them.
    forms: bool,
    /// To open an address.
    addresses: bool,
}

impl ClientAsks {
    pub(crate) fn new(client: &ClientCapabilities) -> Self {
        let Some(elicitation) = &client.elicitation else { return Self::default() };
        let addresses = elicitation.url.is_some();
        Self { forms: elicitation.form.is_some() || !addresses, addresses }
    }
}

/// Parses the client's answer to an earlier question and opens the ticket. Returns `None` if the
/// client sent no ticket.
async fn parse_answer(
    tickets: &Arc<Tickets>,
    session: &Arc<str>,
    (ticket, responses): (Option<String>, Option<InputResponses>),
) -> Result<Option<TicketedAnswer>, ErrorData> {
    let Some(ticket) = ticket else { return Ok(None) };
    let response =
        responses.and_then(|mut responses| responses.remove(FIELD)).ok_or_else(|| {
            ErrorData::invalid_params(format!("`inputResponses` has no `{FIELD}`"), None)
        })?;
    let result = serde_json::from_value(response).map_err(wrong_ticket)?;
    let tickets = Arc::clone(tickets);
    let session = Arc::clone(session);
    let (fingerprint, taken) = tokio::task::spawn_blocking(move || tickets.open(&session, &ticket))
        .await
        .map_err(wrong_ticket)?
        .map_err(wrong_ticket)?;
    Ok(Some(TicketedAnswer { fingerprint, taken, result }))
}

fn wrong_ticket(why: impl std::error::Error) -> ErrorData {
    ErrorData::invalid_params(
        format!("`requestState` is invalid: {why}; repeat the call without `requestState`"),
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(folder: &std::path::Path, lasting: Duration) -> Tickets {
        Tickets::new(&Folders::inside(folder), lasting).expect("the key is made")
    }

    #[test]
    fn sealed_ticket_is_valid_once_for_its_session_on_any_server() {
        let root = tempfile::tempdir().expect("a folder is made");
        let here = tickets(root.path(), Duration::from_secs(60));
        let fingerprint = Fingerprint([7; 32]);
        let ticket = here.seal("a", fingerprint).expect("is sealed");
        assert!(here.open("b", &ticket).is_err(), "another session's");
        for at in 0..ticket.len() {
            let mut forged = ticket.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert!(here.open("a", &String::from_utf8_lossy(&forged)).is_err(), "byte {at}");
        }
        let there = tickets(root.path(), Duration::from_secs(60));
        let opened = there.open("a", &ticket).expect("another process of the user");
        assert_eq!(opened.0, fingerprint);
        assert!(here.open("a", &ticket).is_err(), "a second time, where it was sealed");
        assert!(there.open("a", &ticket).is_err(), "a second time");
        let other = tempfile::tempdir().expect("a folder is made");
        let other = tickets(other.path(), Duration::from_secs(60));
        assert!(
            other.open("a", &here.seal("a", fingerprint).expect("is sealed")).is_err(),
            "another user's"
        );
    }

    #[test]
    fn owner_of_a_session_is_its_name_without_the_handle() {
        for (session, whose) in [
            ("mcp stdio 00ff", "mcp stdio"),
            ("mcp token", "mcp token"),
            ("mcp token a-b", "mcp token"),
            (
                "mcp [\"https://login.example.com\",\"a ] b\"]",
                "mcp [\"https://login.example.com\",\"a ] b\"]",
            ),
            (
                "mcp [\"https://login.example.com\",\"a ] b\"] handle",
                "mcp [\"https://login.example.com\",\"a ] b\"]",
            ),
        ] {
            assert_eq!(owner(session), whose);
        }
    }

    #[test]
    fn tickets_expire() {
        let root = tempfile::tempdir().expect("a folder is made");
        let tickets = tickets(root.path(), Duration::ZERO);
        let ticket = tickets.seal("a", Fingerprint([7; 32])).expect("is sealed");
        // Its clock has milliseconds.
        let since = std::time::Instant::now();
        while since.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        assert!(tickets.open("a", &ticket).is_err());
    }
}
