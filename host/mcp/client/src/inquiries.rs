//! Passes elicitations of an upstream server to the user while a call of the server runs.
//!
//! In revisions with a handshake, an elicitation doesn't name its call, and so goes to the caller
//! of the newest call. If calls of several sessions run, the elicitation is refused: its text could
//! be about another user's work.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, InputRequest, InputRequests,
    InputResponses,
};
use serde_json::{Map, Value};
use toolhold_core::text::{cut, neutral_owned};
use toolhold_core::{BoxFuture, Call, Inquirer, Inquiry, InquiryAnswer, Wanted};

use crate::form::{self, FormError};

/// Most elicitations of a call. Further ones are refused.
pub(crate) const MAX_QUESTIONS: u32 = 8;

/// Longest message in bytes. Longer messages are cut.
const MAX_MESSAGE: usize = 2 * 1024;

/// Longest address in bytes. Longer addresses are refused.
const MAX_ADDRESS: usize = 2 * 1024;

/// The reason why a question is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuestionError {
    #[error("a server can only ask questions while a call runs")]
    NoCall,
    #[error(
        "calls of several callers are running, and the server doesn't say which call asks, so \
         nobody can be asked"
    )]
    SeveralCallers,
    #[error("a call may ask at most {MAX_QUESTIONS} questions")]
    TooMany,
    #[error("the server asks for a model or for directories, and Toolhold passes on neither")]
    NotAQuestion,
    #[error("Toolhold doesn't pass on questions of this mode")]
    UnknownMode,
    #[error(transparent)]
    Form(#[from] FormError),
    #[error(transparent)]
    Address(#[from] AddressError),
}

/// The running calls of a connection, the newest last.
#[derive(Clone, Default)]
pub(crate) struct RunningCalls(Arc<Mutex<Vec<Arc<RunningCall>>>>);

pub(crate) struct RunningCall {
    /// The server, in words for the user.
    asker: String,
    session: Arc<str>,
    inquirer: Option<Arc<dyn Inquirer>>,
    question_count: AtomicU32,
    /// Locked while an elicitation is open. Further elicitations of the call wait.
    question: tokio::sync::Mutex<()>,
}

impl RunningCalls {
    /// Lets the server send elicitations until the guard is dropped.
    pub(crate) fn add(&self, call: &Call) -> RunningGuard {
        self.start(&call.tool, &call.session, call.inquirer.clone())
    }

    fn start(
        &self,
        tool: &str,
        session: &Arc<str>,
        inquirer: Option<Arc<dyn Inquirer>>,
    ) -> RunningGuard {
        // The name of a tool is `SERVER__TOOL`.
        let server = tool.split_once("__").map_or(tool, |(server, _tool)| server);
        let running = Arc::new(RunningCall {
            asker: format!("The server `{server}`"),
            session: Arc::clone(session),
            inquirer,
            question_count: AtomicU32::new(0),
            question: tokio::sync::Mutex::default(),
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&running));
        RunningGuard { calls: self.clone(), running }
    }

    /// Passes an elicitation to the caller of the newest call, and returns the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if no call is running, if calls of several sessions are running, or if the
    /// caller gives no answer.
    pub(crate) async fn ask(
        &self,
        params: ElicitRequestParams,
    ) -> Result<ElicitResult, QuestionError> {
        let newest_call = {
            let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let last_call = calls.last().ok_or(QuestionError::NoCall)?;
            // The server doesn't name the call for which it asks, so all callers must be the same.
            if calls.iter().any(|call| call.session != last_call.session) {
                return Err(QuestionError::SeveralCallers);
            }
            Arc::clone(last_call)
        };
        newest_call.ask(params).await
    }
}

pub(crate) struct RunningGuard {
    calls: RunningCalls,
    running: Arc<RunningCall>,
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        let mut calls = self.calls.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|call| !Arc::ptr_eq(call, &self.running));
    }
}

impl RunningGuard {
    /// Asks the questions with which the server answered a request. Returns the answers.
    pub(crate) async fn answers(
        &self,
        requests: InputRequests,
    ) -> Result<InputResponses, QuestionError> {
        let mut answers = BTreeMap::new();
        for (name, request) in requests {
            let InputRequest::Elicitation(request) = request else {
                return Err(QuestionError::NotAQuestion);
            };
            let answer = self.running.ask(request.params).await?;
            // An answer can always be converted to JSON.
            answers.insert(name, serde_json::to_value(answer).unwrap_or_default());
        }
        Ok(answers)
    }
}

impl RunningCall {
    /// Asks the caller a question of the server. Without an inquirer, nobody can be asked, and the
    /// question is cancelled.
    async fn ask(&self, params: ElicitRequestParams) -> Result<ElicitResult, QuestionError> {
        if self.question_count.fetch_add(1, Ordering::Relaxed) >= MAX_QUESTIONS {
            return Err(QuestionError::TooMany);
        }
        let (raw_message, wanted) = check_question(params)?;
        let Some(inquirer) = &self.inquirer else {
            return Ok(ElicitResult::new(ElicitationAction::Cancel));
        };
        let message = neutral_owned(cut(&raw_message, MAX_MESSAGE).to_owned());
        let schema = match &wanted {
            Wanted::Form(schema) => Some(schema.clone()),
            Wanted::Visit(_) => None,
        };

        // A person gets one question at a time.
        let _question_guard = self.question.lock().await;
        let answer = inquirer.inquire(Inquiry { asker: self.asker.clone(), message, wanted }).await;
        let result = match answer {
            InquiryAnswer::Accepted { content, .. } => self.accept(schema.as_ref(), content),
            InquiryAnswer::Declined { .. } => ElicitResult::new(ElicitationAction::Decline),
            InquiryAnswer::Unanswered(_) => ElicitResult::new(ElicitationAction::Cancel),
        };
        Ok(result)
    }

    /// Makes the result of an accepted question. With a form, the user's answer is checked, and an
    /// invalid answer becomes a cancelled elicitation.
    fn accept(&self, schema: Option<&Value>, content: Map<String, Value>) -> ElicitResult {
        let result = ElicitResult::new(ElicitationAction::Accept);
        let Some(schema) = schema else { return result };
        match form::check_answer(schema, &content) {
            Ok(()) => result.with_content(Value::Object(content)),
            Err(error) => {
                tracing::warn!("the answer to {} isn't passed on: {error}", self.asker);
                ElicitResult::new(ElicitationAction::Cancel)
            }
        }
    }
}

/// The reason why an address is refused.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum AddressError {
    #[error("the address is {0} bytes; the limit is {MAX_ADDRESS}")]
    TooLong(usize),
    #[error("the address has spaces, or characters that aren't ASCII")]
    Letters,
    #[error("the address doesn't start with https:// and a host")]
    NoHost,
    #[error("the address has a user name before the host")]
    UserName,
}

/// Checks the form or the address of a question. Also returns the question's message.
fn check_question(params: ElicitRequestParams) -> Result<(String, Wanted), QuestionError> {
    match params {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            Ok((message, Wanted::Form(form::check_form(&requested_schema)?)))
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            check_address(&url)?;
            Ok((message, Wanted::Visit(url)))
        }
        _ => Err(QuestionError::UnknownMode),
    }
}

/// Checks that a person who reads an address sees the host to which the address leads.
fn check_address(address: &str) -> Result<(), AddressError> {
    if address.len() > MAX_ADDRESS {
        return Err(AddressError::TooLong(address.len()));
    }
    if !address.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(AddressError::Letters);
    }
    let after_scheme = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"));
    let Some(after_scheme) = after_scheme else { return Err(AddressError::NoHost) };
    let host_length = after_scheme.find(['/', '?', '#', '\\']).unwrap_or(after_scheme.len());
    let host = &after_scheme[..host_length];
    if host.is_empty() {
        return Err(AddressError::NoHost);
    }
    if host.contains('@') {
        return Err(AddressError::UserName);
    }
    Ok(())
}

/// Measures how long a call has waited for a person.
#[derive(Default)]
pub(crate) struct WaitClock(Mutex<WaitTimes>);

#[derive(Default)]
struct WaitTimes {
    /// The time of closed questions.
    past: Duration,
    open_since: Option<Instant>,
}

impl WaitClock {
    fn lock(&self) -> MutexGuard<'_, WaitTimes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waited(&self) -> Duration {
        let times = self.lock();
        times.past + times.open_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Stops the clock when dropped.
struct OpenWait<'a>(&'a WaitClock);

impl Drop for OpenWait<'_> {
    fn drop(&mut self) {
        let mut times = self.0.lock();
        if let Some(since) = times.open_since.take() {
            times.past += since.elapsed();
        }
    }
}

pub(crate) struct MeasuringInquirer {
    pub(crate) inquirer: Arc<dyn Inquirer>,
    pub(crate) clock: Arc<WaitClock>,
}

impl Inquirer for MeasuringInquirer {
    fn inquire(&self, inquiry: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
        Box::pin(async move {
            // A call has at most one open elicitation, so the clock stores a single start.
            self.clock.lock().open_since = Some(Instant::now());
            let _wait = OpenWait(&self.clock);
            self.inquirer.inquire(inquiry).await
        })
    }
}

/// Runs a future for at most `time`, without the time that `clock` measures meanwhile. Returns
/// `None` if the future takes longer.
pub(crate) async fn within<T>(
    time: Duration,
    clock: &WaitClock,
    run: impl Future<Output = T>,
) -> Option<T> {
    /// Shortest wait. While a question is open, `time_left` stays the same and may be almost zero.
    const SHORTEST_WAIT: Duration = Duration::from_millis(50);
    let started = Instant::now();
    let mut run = std::pin::pin!(run);
    let mut time_left = time;
    while !time_left.is_zero() {
        if let Ok(result) = tokio::time::timeout(time_left, &mut run).await {
            return Some(result);
        }
        let spent = started.elapsed().saturating_sub(clock.waited());
        time_left = time.saturating_sub(spent);
        if !time_left.is_zero() {
            time_left = time_left.max(SHORTEST_WAIT);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_where_they_seem_to() {
        for good in ["https://example.com/a?b=c#d", "http://127.0.0.1:8000/", "https://a"] {
            assert_eq!(check_address(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "javascript:alert(1)",
            "file:///etc/passwd",
            "https://",
            "https:///path",
            "https://example.com@evil.example/",
            "https://example.com\\@evil.example/ x",
            "https://ex\u{430}mple.com/",
            "https://example.com/\u{202e}",
            "https://example.com/\u{1b}[2J",
        ] {
            assert!(check_address(bad).is_err(), "{bad}");
        }
        assert!(check_address(&format!("https://a/{}", "x".repeat(MAX_ADDRESS))).is_err());
    }

    #[tokio::test]
    async fn question_never_reaches_another_session() {
        let calls = RunningCalls::default();
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let ask = || async {
            calls
                .ask(ElicitRequestParams::UrlElicitationParams {
                    meta: None,
                    message: "x".to_owned(),
                    url: "https://example.com".to_owned(),
                    elicitation_id: "1".to_owned(),
                })
                .await
                .map(|answer| answer.action)
        };
        assert!(ask().await.is_err(), "no call runs");
        let first = calls.start("s__a", &one, None);
        let _second = calls.start("s__b", &one, None);
        assert_eq!(ask().await.ok(), Some(ElicitationAction::Cancel), "it would be asked");
        let stranger = calls.start("s__a", &other, None);
        assert!(ask().await.is_err(), "whose question is it?");
        drop(first);
        assert!(ask().await.is_err(), "two sessions still");
        drop(stranger);
        assert_eq!(ask().await.ok(), Some(ElicitationAction::Cancel));
    }

    /// Answers when it is told to.
    #[derive(Default)]
    struct Late(tokio::sync::Notify);

    impl Inquirer for Late {
        fn inquire(&self, _: Inquiry) -> BoxFuture<'_, InquiryAnswer> {
            Box::pin(async {
                self.0.notified().await;
                InquiryAnswer::Unanswered(String::new())
            })
        }
    }

    #[tokio::test]
    async fn waiting_for_a_person_doesnt_count() {
        let (clock, late) = (Arc::new(WaitClock::default()), Arc::new(Late::default()));
        let inquirer: Arc<dyn Inquirer> = Arc::clone(&late) as _;
        let inquirer = MeasuringInquirer { inquirer, clock: Arc::clone(&clock) };
        let inquiry = Inquiry {
            asker: String::new(),
            message: String::new(),
            wanted: Wanted::Visit(String::new()),
        };
        let limit = Duration::from_millis(50);
        let asks = async {
            inquirer.inquire(inquiry).await;
            7
        };
        let person = async {
            while clock.waited() < 4 * limit {
                tokio::task::yield_now().await;
            }
            late.0.notify_one();
        };
        assert_eq!(tokio::join!(within(limit, &clock, asks), person).0, Some(7));
        assert_eq!(within(limit, &clock, std::future::pending::<()>()).await, None);
    }
}
