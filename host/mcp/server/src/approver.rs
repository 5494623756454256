//! Asks the user of an MCP client for approval, by elicitation or by a sealed ticket that the
//! client sends back.
//!
//! Before revision 2026-07-28, the client is asked while the call waits. In this revision, the
//! server can't send requests, so the call ends with the question. The client repeats the call with
//! the answer and a sealed ticket. A ticket belongs to one question and is valid once.

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

use crate::parked::{ANSWER_FIELD, OpenQuestion, ParkedCalls};
use crate::tasks::{StartedTask, Task, owner};

const ONCE: &str = "once";
const SESSION: &str = "session";
const TOOL: &str = "tool";
const ALL: &str = "all";
const NO: &str = "no";

/// Maximum length of a client's error in bytes. Longer errors are cut.
const MAX_ERROR: usize = 200;

/// Maximum length of a client's name in bytes. Longer names are cut.
const MAX_NAME_BYTES: usize = 100;

/// The folder of this crate's files in the data folder.
pub(crate) const FOLDER: &str = "mcp";
/// The file with the key that seals tickets and the IDs of HTTP connections.
pub(crate) const KEY: &str = "key";

/// A person needs at least this time to read and decline a question. Clients without a person, such
/// as `codex exec`, decline each question at once, so an earlier decline isn't a person's answer.
const SHORTEST_READING: Duration = Duration::from_secs(1);

/// Maximum number of used tickets of a caller that haven't expired. More tickets are refused.
const MAX_USED_TICKETS: usize = 4096;

pub(crate) struct QuestionMeans {
    pub(crate) mcp: McpApprovals,
    /// Asks at a terminal if the client can't ask or must not be asked.
    pub(crate) posting: PostingApprover,
    /// Calls that wait for the answer to an elicitation of their tool.
    pub(crate) parked: ParkedCalls,
}

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
    #[error("the ticket was already used, or too many newer tickets were used")]
    Used,
}

/// Seals tickets and stores the used tickets. All servers of a user share them, because a client
/// may repeat its call at another server.
pub(crate) struct Tickets {
    codec: RequestStateCodec,
    folder: PathBuf,
    lifetime: Duration,
}

impl Tickets {
    /// Creates `Tickets` with the key in the data folder. A missing key is created.
    pub(crate) fn new(folders: &Folders, lifetime: Duration) -> Result<Self, HostError> {
        let folder = folders.data.join(FOLDER);
        let key = state::secret(&folder, KEY)?;
        let codec = RequestStateCodec::try_new(key.into_bytes())
            .map_err(std::io::Error::other)
            .map_err(HostError::io(KEY))?;
        Ok(Self { codec, folder, lifetime })
    }

    fn seal(&self, session: &str, fingerprint: Fingerprint) -> Result<String, TicketError> {
        let ticket = json!([fingerprint, state::random_digits()?, milliseconds()]);
        let options = SealOptions::new().associated_data(session.as_bytes()).ttl(self.lifetime);
        Ok(self.codec.seal_json_with(&ticket, &options)?)
    }

    /// Opens a sealed ticket and marks it as used. Returns the fingerprint of the question and the
    /// time since the question was asked.
    fn open(&self, session: &str, sealed: &str) -> Result<(Fingerprint, Duration), TicketError> {
        let ticket: Value = self.codec.open_json_with(sealed, session.as_bytes())?;
        // `seal` wrote these three parts, so all of them exist.
        let fingerprint = serde_json::from_value(ticket[0].clone())?;
        let nonce = ticket[1].as_str().unwrap_or_default().to_owned();
        let asked_at_ms = ticket[2].as_u64().unwrap_or_default();
        let reading_time = Duration::from_millis(milliseconds().saturating_sub(asked_at_ms));

        // A used ticket must be remembered until it expires. The added second makes up for the
        // fraction of a second that `seconds` drops.
        let now = seconds();
        let forget_at = now + self.lifetime.as_secs() + 1;
        let is_first_use =
            state::update(&self.folder, &used_by(session), |used: &mut BTreeMap<String, u64>| {
                used.retain(|_nonce, forget_at| *forget_at > now);
                if used.len() >= MAX_USED_TICKETS {
                    return Ok(false);
                }
                let earlier_use = used.insert(nonce, forget_at);
                Ok(earlier_use.is_none())
            })?;
        if is_first_use { Ok((fingerprint, reading_time)) } else { Err(TicketError::Used) }
    }
}

/// Names the file with a caller's used tickets. Each caller has its own file, because a caller
/// could fill a shared file up to [`MAX_USED_TICKETS`] and so lock out all other callers.
fn used_by(session: &str) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, owner(session).as_bytes());
    let digest: String = hash.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("used-{digest}.json")
}

pub(crate) fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn milliseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) struct CallApprover {
    pub(crate) ask_mode: AskMode,
    pub(crate) asking: Arc<QuestionMeans>,
    /// The client that is asked, if it names itself.
    client: Option<Implementation>,
    /// Whether the client's revision supports titles for choices (since 2025-11-25).
    has_titles: bool,
    /// Set if the client supports MCP tasks.
    pub(crate) started_task: Option<Arc<StartedTask>>,
    /// Whether the client can open a URL for its user.
    pub(crate) can_visit: bool,
    /// Receives the elicitations of the call's tool. Set if an elicitation ends the request.
    questions: Mutex<Option<mpsc::Receiver<OpenQuestion>>>,
}

pub(crate) enum AskMode {
    /// Asks while the call waits.
    Elicit(Peer<RoleServer>),
    /// Ends the call with the question. The client repeats the call.
    Return(Box<TicketAnswer>),
    /// Asks at a terminal.
    Elsewhere,
    /// Doesn't ask, because the configuration forbids questions.
    Nobody,
}

/// A question that the client shows. Dropping this value tells the client to close the question.
struct CloseOnDrop(Option<(Peer<RoleServer>, RequestId)>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        let Some((peer, id)) = self.0.take() else { return };
        // Without a runtime, no notification can be sent.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let reason = "the call has ended".to_owned();
            let cancelled = CancelledNotificationParam::new(Some(id), Some(reason));
            let _ = peer.notify_cancelled(cancelled).await;
        });
    }
}

pub(crate) struct TicketAnswer {
    /// Receives the elicitations of the call's tool.
    pub(crate) questions: mpsc::Sender<OpenQuestion>,
    tickets: Arc<Tickets>,
    session: Arc<str>,
    /// The client's answer to an earlier question.
    answer: Option<TicketedAnswer>,
    required: Mutex<Option<InputRequiredResult>>,
}

struct TicketedAnswer {
    fingerprint: Fingerprint,
    /// The time between the question and its answer.
    reading_time: Duration,
    result: ElicitResult,
}

impl CallApprover {
    /// Creates the approver of one call. `asks` says how the client can ask its user, and
    /// `ticket_and_responses` are the client's answer to an earlier question.
    ///
    /// # Errors
    ///
    /// Returns an error if the ticket is invalid or was used before.
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
        let ask_mode = match (asking.mcp, asks.forms) {
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
        let client = match ask_mode {
            AskMode::Elicit(_) | AskMode::Return(_) => context.client_info(),
            AskMode::Elsewhere | AskMode::Nobody => None,
        };
        Ok(Self {
            ask_mode,
            asking: Arc::clone(asking),
            client,
            has_titles,
            started_task,
            can_visit: asks.addresses,
            questions: Mutex::new(questions),
        })
    }

    pub(crate) fn take_questions(&self) -> Option<mpsc::Receiver<OpenQuestion>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes the question for the client, if there is one.
    pub(crate) fn required(&self) -> Option<InputRequiredResult> {
        let AskMode::Return(returned) = &self.ask_mode else { return None };
        returned.required.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn reply(&self, question: Question) -> Reply {
        if let Some(reason) = question.too_large() {
            return Reply::Unasked(reason);
        }
        // The question may already have an answer from a terminal.
        if matches!(self.ask_mode, AskMode::Elicit(_) | AskMode::Return(_))
            && let Ok(Some(reply)) = self.asking.posting.take_answer(&question).await
        {
            return reply;
        }
        match &self.ask_mode {
            AskMode::Nobody => Reply::Unasked(
                "MCP clients may not ask for approval: `mcp = \"deny\"` in [approvals]".to_owned(),
            ),
            AskMode::Elsewhere => self.ask_elsewhere(question).await,
            AskMode::Elicit(peer) => {
                let asked_at = Instant::now();
                match self.elicit_form(peer, self.form(&question)).await {
                    Ok(result) => self.reply_of(question, &result, asked_at.elapsed()).await,
                    Err(error) => Reply::Unasked(format!(
                        "the client could not ask: {}",
                        neutral_line(cut(&error.to_string(), MAX_ERROR))
                    )),
                }
            }
            AskMode::Return(ticket_answer) => {
                if let Some(answer) = &ticket_answer.answer
                    && answer.fingerprint == question.fingerprint
                {
                    return self.reply_of(question, &answer.result, answer.reading_time).await;
                }
                let task =
                    self.started_task.as_ref().and_then(|started| started.task_for_question());
                match task {
                    Some(task) => self.ask_in_task(&task, question).await,
                    // A question about a host comes up while the call is running. The client must
                    // not repeat a running call, so the call waits for the answer.
                    None if question.host.is_some() => {
                        self.ask_while_parked(ticket_answer, question).await
                    }
                    None => self.return_question(ticket_answer, &question),
                }
            }
        }
    }

    /// Ends the request with the question, and lets the running call wait for the answer.
    async fn ask_while_parked(&self, ticket_answer: &TicketAnswer, question: Question) -> Reply {
        let Ok(id) = state::random_digits() else {
            return Reply::Unasked("the system has no random bytes".to_owned());
        };
        let asked_at = Instant::now();
        let form = self.form(&question);
        let asking = self.asking.parked.ask(id, form, &ticket_answer.questions);
        match tokio::time::timeout(self.asking.posting.lasting, asking).await {
            Ok(Some(result)) => self.reply_of(question, &result, asked_at.elapsed()).await,
            Ok(None) | Err(_) => Reply::Unasked("the client did not answer".to_owned()),
        }
    }

    /// Stores the question and a new ticket for the client. The request then ends with the
    /// question.
    fn return_question(&self, ticket_answer: &TicketAnswer, question: &Question) -> Reply {
        let sealed = ticket_answer.tickets.seal(&ticket_answer.session, question.fingerprint);
        let ticket = match sealed {
            Ok(ticket) => ticket,
            Err(error) => return Reply::Unasked(format!("the client can't be asked: {error}")),
        };
        let request = InputRequest::Elicitation(ElicitRequest::new(self.form(question)));
        let requests = [(ANSWER_FIELD.to_owned(), request)].into();
        let required = InputRequiredResult::new(Some(requests), Some(ticket));
        *ticket_answer.required.lock().unwrap_or_else(PoisonError::into_inner) = Some(required);
        Reply::Unasked("the client got the question".to_owned())
    }

    /// Asks the user with a form in the client, while the call waits. If the returned future is
    /// dropped, the client is told to close the form.
    pub(crate) async fn elicit_form(
        &self,
        peer: &Peer<RoleServer>,
        form: ElicitRequestParams,
    ) -> Result<ElicitResult, ServiceError> {
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(form));
        let handle =
            peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
        let mut close_on_drop = CloseOnDrop(Some((peer.clone(), handle.id.clone())));
        let answer = handle.await_response().await;
        // The client has answered, so it must not be told to close the question.
        close_on_drop.0 = None;
        match answer? {
            ClientResult::ElicitResult(result) => Ok(result),
            _ => Err(ServiceError::UnexpectedResponse),
        }
    }

    /// Asks at a terminal. Meanwhile, the status message of the task says so.
    async fn ask_elsewhere(&self, question: Question) -> Reply {
        self.set_task_message("waits for approval: `toolhold approvals`");
        let reply = self.asking.posting.ask(question).await;
        self.set_task_message("");
        reply
    }

    /// Asks at a terminal, because no person answered in the client.
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

    fn set_task_message(&self, text: &str) {
        if let Some(started_task) = &self.started_task {
            started_task.set_status_message(text);
        }
    }

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
                neutral_line(cut(&error.to_string(), MAX_ERROR))
            )),
        }
    }

    fn form(&self, question: &Question) -> ElicitRequestParams {
        let choice = choice_schema(choices(question), self.has_titles);
        let properties =
            [(ANSWER_FIELD.to_owned(), PrimitiveSchemaDefinition::Enum(choice))].into();
        let mut requested_schema = ElicitationSchema::new(properties);
        requested_schema.required = Some(vec![ANSWER_FIELD.to_owned()]);
        ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: question.to_text(),
            requested_schema,
        }
    }

    /// Describes the client for the audit log.
    pub(crate) fn by(&self) -> String {
        let Some(client) = &self.client else { return "MCP client".to_owned() };
        let name = format!("{} {}", client.name, client.version);
        format!("MCP client {}", neutral_line(cut(&name, MAX_NAME_BYTES)))
    }

    /// Converts the client's answer to a reply. `reading_time` is the time between question and
    /// answer. A client without a person cancels each question or declines it at once, so the
    /// question is asked again at a terminal after such an answer.
    async fn reply_of(
        &self,
        question: Question,
        result: &ElicitResult,
        reading_time: Duration,
    ) -> Reply {
        let offers_whole_tools = question.wider.is_some();
        let by = self.by();
        let field = result.content.as_ref().and_then(|content| content.get(ANSWER_FIELD));
        let choice = field.and_then(Value::as_str);
        let reply = match (&result.action, choice) {
            (ElicitationAction::Accept, Some(ONCE)) => Reply::Yes { scope: Scope::Once, by },
            (ElicitationAction::Accept, Some(SESSION)) => Reply::Yes { scope: Scope::Session, by },
            (ElicitationAction::Accept, Some(TOOL)) if offers_whole_tools => {
                Reply::Yes { scope: Scope::SessionTool, by }
            }
            (ElicitationAction::Accept, Some(ALL)) if offers_whole_tools => {
                Reply::Yes { scope: Scope::SessionSource, by }
            }
            (ElicitationAction::Accept, Some(NO)) => Reply::No { by, reason: String::new() },
            (ElicitationAction::Decline, _) if reading_time >= SHORTEST_READING => {
                Reply::No { by, reason: String::new() }
            }
            (ElicitationAction::Decline | ElicitationAction::Cancel, _) => {
                return self.ask_elsewhere_instead(question).await;
            }
            _ => {
                return Reply::Unasked(format!(
                    "the client's answer has no `{ANSWER_FIELD}` among \"{ONCE}\", \
                     \"{SESSION}\" and \"{NO}\""
                ));
            }
        };
        // If this fails, the question stays at the terminal until it expires.
        let _ = self.asking.posting.withdraw(question).await;
        reply
    }
}

/// Returns each choice with its title. Permanent approval isn't offered, because the client may run
/// on another machine and must not change the user's configuration.
fn choices(question: &Question) -> Vec<(&'static str, String)> {
    if question.host.is_some() {
        return vec![
            (ONCE, "Allow this host for this call".to_owned()),
            (SESSION, "Allow this host in this session".to_owned()),
            (NO, "Deny".to_owned()),
        ];
    }
    let mut choices = vec![
        (ONCE, "Allow this call".to_owned()),
        (SESSION, "Allow identical calls in this session".to_owned()),
    ];
    let offers_whole_tools = question.wider.is_some();
    if offers_whole_tools {
        let tool = neutral_line(cut(&question.tool, MAX_NAME_BYTES));
        let source = neutral_line(cut(question.source(), MAX_NAME_BYTES));
        choices.push((TOOL, format!("Allow any call of {tool} in this session")));
        choices.push((
            ALL,
            format!(
                "Allow every tool of {source} in this session, except tools that say that they may \
                 destroy something"
            ),
        ));
    }
    choices.push((NO, "Deny this call".to_owned()));
    choices
}

/// Creates the schema of the field with the choices. `has_titles` is false for clients with an
/// older revision of the protocol, which know only `enumNames`.
fn choice_schema(choices: Vec<(&'static str, String)>, has_titles: bool) -> EnumSchema {
    let title = Some("Allow it?".into());
    if has_titles {
        let mut schema = TitledSingleSelectEnumSchema::new(
            choices.into_iter().map(|(value, title)| ConstTitle::new(value, title)).collect(),
        );
        schema.title = title;
        return EnumSchema::Single(SingleSelectEnumSchema::Titled(schema));
    }
    let values = choices.iter().map(|(value, _title)| (*value).to_owned()).collect();
    let mut schema = LegacyEnumSchema::new(values);
    schema.enum_names = Some(choices.into_iter().map(|(_value, title)| title).collect());
    schema.title = title;
    EnumSchema::Legacy(schema)
}

impl Approver for CallApprover {
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        Box::pin(self.reply(question))
    }

    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        Box::pin(self.ask_user(inquiry))
    }

    fn waits(&self) -> bool {
        match &self.ask_mode {
            AskMode::Elicit(_) => true,
            AskMode::Elsewhere => self.asking.posting.waits(),
            AskMode::Return(_) => {
                self.started_task.as_ref().is_some_and(|started| started.is_task())
            }
            AskMode::Nobody => false,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientAsks {
    /// Whether the client can show a form. Also true for a client that supports elicitation but
    /// names no mode.
    forms: bool,
    /// Whether the client can open a URL for its user.
    addresses: bool,
}

impl ClientAsks {
    pub(crate) fn new(client: &ClientCapabilities) -> Self {
        let Some(elicitation) = &client.elicitation else { return Self::default() };
        let addresses = elicitation.url.is_some();
        Self { forms: elicitation.form.is_some() || !addresses, addresses }
    }
}

/// Opens the ticket and parses the client's answer. Returns `None` without a ticket.
async fn parse_answer(
    tickets: &Arc<Tickets>,
    session: &Arc<str>,
    (ticket, responses): (Option<String>, Option<InputResponses>),
) -> Result<Option<TicketedAnswer>, ErrorData> {
    let Some(ticket) = ticket else { return Ok(None) };
    let mut responses = responses.unwrap_or_default();
    let response = responses.remove(ANSWER_FIELD).ok_or_else(|| {
        ErrorData::invalid_params(format!("`inputResponses` has no `{ANSWER_FIELD}`"), None)
    })?;
    let result = serde_json::from_value(response).map_err(wrong_ticket)?;
    let tickets = Arc::clone(tickets);
    let session = Arc::clone(session);
    let joined = tokio::task::spawn_blocking(move || tickets.open(&session, &ticket)).await;
    let opened = joined.map_err(wrong_ticket)?;
    let (fingerprint, reading_time) = opened.map_err(wrong_ticket)?;
    Ok(Some(TicketedAnswer { fingerprint, reading_time, result }))
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
