//! Stores questions as files, so that a person can answer them with `toolhold approvals` in another
//! terminal. The waiting call or its next repetition takes the answer.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolhold_config::{Approvals, Folders};
use toolhold_contract::{BoxFuture, HostError};
use toolhold_data_dir::PrivateFolder;
use toolhold_data_dir::state;

use super::{Approver, Preview, Question, Reply, outdated};
use crate::session::seconds;

/// Maximum number of open questions of all processes of a user. Further questions are refused. The
/// same limit applies to answers that wait for their calls.
const MAX_POSTED: usize = 64;

const MAX_OF_SESSION: usize = super::MAX_OF_SESSION;

/// Maximum number of names that are read in the folder. These are questions, answers, the lock, and
/// files of killed processes.
const MAX_NAMES: usize = 4 * MAX_POSTED;

/// The folder of the questions in a data folder.
const FOLDER: &str = "questions";

/// Maximum number of principals whose questions are read.
const MAX_PRINCIPALS: usize = 10_000;

/// Hexadecimal digits of a principal's ID.
pub(super) const PRINCIPAL_DIGITS: usize = 32;

/// Interval between checks for the answer. A person doesn't notice this delay.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The stored questions of a user, with and without an answer. All functions block.
#[derive(Clone, Debug)]
pub struct Questions {
    pub(super) folder: PathBuf,
    /// The ID of the principal of a server. `None` means the user of this machine.
    pub(super) principal: Option<String>,
}

/// A stored question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PostedQuestion {
    /// The ID of the question: sixteen hexadecimal digits. An identical call in the same session
    /// has the same ID.
    pub id: String,
    /// The question itself.
    pub question: Question,
    /// The time of the question, in seconds of Unix time.
    pub asked: u64,
    /// The time at which the question or its answer expires, in seconds of Unix time.
    pub until: u64,
    /// The answer, until the call takes it.
    pub reply: Option<Reply>,
    /// The time until which a call waits for the answer, in seconds of Unix time. 0 means that no
    /// call waits.
    #[serde(default)]
    pub waited_until: u64,
    /// The SHA-256 of the secret in the question's link, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) link: Option<String>,
}

impl Questions {
    /// Opens the questions in the data folder.
    pub fn open(folders: &Folders) -> Self {
        Self { folder: folders.data.join(FOLDER), principal: None }
    }

    /// Opens the questions of the user of this machine, and those of each principal of a server.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the folder of the principals can't be read.
    pub fn all(folders: &Folders) -> Result<Vec<Self>, HostError> {
        let mut all = vec![Self::open(folders)];
        let principals = folders.principals();
        let names = match PrivateFolder::open(&principals) {
            Ok(folder) => folder.names(MAX_PRINCIPALS),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(all),
            Err(error) => Err(error),
        };
        for name in names.map_err(HostError::io(principals.display().to_string()))? {
            if name.len() == PRINCIPAL_DIGITS && is_hexadecimal(&name) {
                all.push(Self::of_principal(folders, &name));
            }
        }
        Ok(all)
    }

    /// Opens the questions of a principal. `folders` are the operator's.
    pub(super) fn of_principal(folders: &Folders, id: &str) -> Self {
        let folder = folders.principals().join(id).join(FOLDER);
        Self { folder, principal: Some(id.to_owned()) }
    }

    /// Checks whether the questions are about calls of a principal of a server.
    pub fn is_of_principal(&self) -> bool {
        self.principal.is_some()
    }

    /// Lists the open questions, the oldest first, and the errors of files that can't be read.
    /// Omits questions whose previewed file has changed.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the folder can't be read.
    pub fn waiting(&self) -> Result<(Vec<PostedQuestion>, Vec<HostError>), HostError> {
        let (mut waiting, errors) = self.read_open()?;
        // Omit an outdated question, because its approval wouldn't apply, and the call would ask
        // again.
        waiting.retain(|posted| !posted.question.is_outdated());
        Ok((waiting, errors))
    }

    /// Reads the questions without an answer, the oldest first, and the errors of files that can't
    /// be read.
    pub(super) fn read_open(&self) -> Result<(Vec<PostedQuestion>, Vec<HostError>), HostError> {
        let now = seconds(SystemTime::now());
        let mut open = Vec::new();
        let mut errors = Vec::new();
        for name in self.names()? {
            let posted = match state::read::<Option<PostedQuestion>>(&self.folder, &name) {
                Ok(Some(posted)) => posted,
                // Another process has removed the question since the folder was listed.
                Ok(None) => continue,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            let is_renamed_file = file_name(&posted.id) != name;
            if posted.is_open(now) && !is_renamed_file {
                open.push(posted);
            }
        }
        open.sort_by(|a, b| (a.asked, &a.id).cmp(&(b.asked, &b.id)));
        Ok((open, errors))
    }

    /// Answers a question. The waiting call gets the answer, or else the next identical call of the
    /// same session. An approval is valid for `lasting`.
    ///
    /// A permanent approval is stored only for a waiting call. Other calls are allowed by the rule
    /// in the configuration, whereas a stored answer would stay valid even after the user removes
    /// the rule.
    ///
    /// # Errors
    ///
    /// * [`HostError::Config`] if the question isn't open.
    /// * [`HostError::Io`] if the answer can't be stored.
    pub fn answer(
        &self,
        posted: &PostedQuestion,
        reply: Reply,
        lasting: Duration,
    ) -> Result<(), HostError> {
        let now = seconds(SystemTime::now());
        let is_permanent = matches!(reply, Reply::Yes { scope, .. } if scope.is_permanent());
        let is_waited_for = self.update_open(posted, |stored| {
            stored.reply = Some(reply);
            stored.until = now.saturating_add(lasting.as_secs());
            Ok(stored.waited_until > now)
        })?;
        if is_permanent && !is_waited_for {
            return self.withdraw(&posted.question);
        }
        Ok(())
    }

    /// Changes a question, if it is still open and shows the same as `posted`.
    pub(super) fn update_open<R>(
        &self,
        posted: &PostedQuestion,
        change: impl FnOnce(&mut PostedQuestion) -> Result<R, HostError>,
    ) -> Result<R, HostError> {
        let now = seconds(SystemTime::now());
        state::update_lightly(
            &self.folder,
            &file_name(&posted.id),
            |file: &mut Option<PostedQuestion>| match file {
                Some(stored)
                    if stored.is_open(now) && stored.question.shows_the_same(&posted.question) =>
                {
                    change(stored)
                }
                _ => Err(not_open(&posted.id)),
            },
        )
    }

    /// Removes and returns the answer to a question, because an answer is valid for one call.
    /// Returns `None` if there is no answer.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the file exists and can't be read.
    pub fn take(&self, question: &Question) -> Result<Option<Reply>, HostError> {
        match self.take_answer_or_status(question)? {
            QuestionStatus::Answered(reply) => Ok(Some(reply)),
            QuestionStatus::Waits | QuestionStatus::Gone => Ok(None),
        }
    }

    /// Removes and returns the answer to a question. If there is no answer, returns whether the
    /// question is still open.
    fn take_answer_or_status(&self, question: &Question) -> Result<QuestionStatus, HostError> {
        let name = file_name(&question_id(question));
        let Some(folder) = self.open_folder()? else { return Ok(QuestionStatus::Gone) };
        let _lock =
            folder.lock(state::LOCK).map_err(HostError::io(self.folder.display().to_string()))?;
        let stored: Option<PostedQuestion> = state::read(&self.folder, &name)?;
        let Some(posted) = stored else { return Ok(QuestionStatus::Gone) };
        let now = seconds(SystemTime::now());
        if !posted.is_for(question) || posted.until <= now {
            return Ok(QuestionStatus::Gone);
        }
        let Some(reply) = posted.reply else { return Ok(QuestionStatus::Waits) };
        folder
            .remove(&name)
            .map_err(HostError::io(self.folder.join(&name).display().to_string()))?;
        Ok(QuestionStatus::Answered(reply))
    }

    /// Removes the question of a call, and its answer.
    ///
    /// A front end calls this function after the person has answered in another way. The person
    /// isn't asked twice, and the next call doesn't find an unused answer.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the question exists and can't be read or removed.
    pub fn withdraw(&self, question: &Question) -> Result<(), HostError> {
        let name = file_name(&question_id(question));
        let Some(folder) = self.open_folder()? else { return Ok(()) };
        let _lock =
            folder.lock(state::LOCK).map_err(HostError::io(self.folder.display().to_string()))?;
        let stored: Option<PostedQuestion> = state::read(&self.folder, &name)?;
        if stored.is_some_and(|posted| posted.is_for(question)) {
            folder
                .remove(&name)
                .map_err(HostError::io(self.folder.join(&name).display().to_string()))?;
        }
        Ok(())
    }

    /// Stores a question for `lasting`, and returns its ID. A call waits for the answer for `wait`.
    /// An existing question is extended and keeps its answer.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the question can't be stored. The inner error is the reason why the
    /// question gets no slot.
    pub(super) fn post(
        &self,
        question: Question,
        wait: Duration,
        lasting: Duration,
    ) -> Result<Result<String, PostError>, HostError> {
        let now = seconds(SystemTime::now());
        let until = now.saturating_add(lasting.as_secs());
        let id = question_id(&question);
        state::update_lightly(&self.folder, &file_name(&id), |file: &mut Option<PostedQuestion>| {
            if let Some(error) = self.make_room(now, &id, &question)? {
                return Ok(Err(error));
            }
            let mut asked = now;
            let mut link = None;
            // `now` is rounded down to a second, so add one second.
            let mut waited_until = if wait.is_zero() {
                0
            } else {
                now.saturating_add(wait.as_secs()).saturating_add(1)
            };
            if let Some(stored) = file
                && stored.until > now
            {
                if !stored.is_for(&question) {
                    return Ok(Err(PostError::OtherCall(id)));
                }
                if stored.reply.is_some() {
                    return Ok(Ok(id));
                }
                asked = stored.asked;
                link = stored.link.take();
                waited_until = waited_until.max(stored.waited_until);
            }
            *file = Some(PostedQuestion {
                id: id.clone(),
                question,
                asked,
                until,
                reply: None,
                waited_until,
                link,
            });
            Ok(Ok(id))
        })
    }

    /// Removes a question, unless it has an answer. Ignores errors, because each question expires.
    fn remove_unanswered(&self, id: &str) {
        let Ok(folder) = PrivateFolder::open(&self.folder) else { return };
        let Ok(_lock) = folder.lock(state::LOCK) else { return };
        let name = file_name(id);
        let stored = state::read::<Option<PostedQuestion>>(&self.folder, &name);
        let Ok(Some(posted)) = stored else { return };
        if posted.reply.is_none() {
            let _ = folder.remove(&name);
        }
    }

    /// Makes room for a question. Removes expired entries, older questions of the same call about
    /// another state of the file, and the oldest answers.
    ///
    /// Returns the reason if there is no room. The caller must hold the lock, so that no other
    /// question takes the slot.
    fn make_room(
        &self,
        now: u64,
        id: &str,
        question: &Question,
    ) -> Result<Option<PostError>, HostError> {
        let Some(folder) = self.open_folder()? else { return Ok(None) };
        let mut waiting = Vec::new();
        let mut answered = Vec::new();
        let mut unreadable = 0;
        for name in self.names()?.into_iter().filter(|name| *name != file_name(id)) {
            let stored = state::read::<Option<PostedQuestion>>(&self.folder, &name);
            let Ok(Some(posted)) = stored else {
                // The file may be a question, so it is counted.
                unreadable += 1;
                continue;
            };
            if posted.until <= now {
                let _ = folder.remove(&name);
            } else if posted.reply.is_some() {
                answered.push((posted.until, name));
            } else if question.is_update_of(&posted.question) {
                let _ = folder.remove(&name);
            } else {
                let of_session = posted.question.session == question.session;
                waiting.push(Waiting { name, of_session, preview: posted.question.preview });
            }
        }

        answered.sort_unstable();
        for (_, name) in &answered[..answered.len().saturating_sub(MAX_POSTED)] {
            let _ = folder.remove(name);
        }
        if exceeded_limit(&waiting, unreadable).is_some() {
            // Outdated questions are never shown, so a person couldn't make room by answering them.
            waiting.retain(|other| {
                let is_outdated = other.preview.as_ref().is_some_and(outdated::is_outdated);
                let is_removed = is_outdated && folder.remove(&other.name).is_ok();
                !is_removed
            });
        }
        Ok(exceeded_limit(&waiting, unreadable))
    }

    fn names(&self) -> Result<Vec<String>, HostError> {
        let Some(folder) = self.open_folder()? else { return Ok(Vec::new()) };
        let names =
            folder.names(MAX_NAMES).map_err(HostError::io(self.folder.display().to_string()))?;
        Ok(names.into_iter().filter(|name| name.ends_with(".json")).collect())
    }

    fn open_folder(&self) -> Result<Option<PrivateFolder>, HostError> {
        match PrivateFolder::open(&self.folder) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let to_host_error = HostError::io(self.folder.display().to_string());
                Err(to_host_error(error))
            }
        }
    }
}

pub(super) fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn not_open(id: &str) -> HostError {
    HostError::Config(format!(
        "the call {id} no longer waits for approval: the question was answered or withdrawn, or \
         has expired"
    ))
}

/// Returns the exceeded limit if there is no room for another question, or else `None`.
/// `unreadable` is the number of unreadable files, which may be questions.
fn exceeded_limit(waiting: &[Waiting], unreadable: usize) -> Option<PostError> {
    let waiting_in_session = waiting.iter().filter(|other| other.of_session).count();
    if waiting.len() + unreadable >= MAX_POSTED {
        Some(PostError::Full)
    } else if waiting_in_session >= MAX_OF_SESSION {
        Some(PostError::SessionFull)
    } else {
        None
    }
}

enum QuestionStatus {
    /// The answer, which is removed from the file.
    Answered(Reply),
    Waits,
    Gone,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    #[error("too many calls wait for approval; the limit is {MAX_POSTED}: {ANSWER_THEM}")]
    Full,
    #[error(
        "too many calls of this session wait for approval; the limit is {MAX_OF_SESSION}: \
         {ANSWER_THEM}"
    )]
    SessionFull,
    #[error("the ID {0} belongs to the question of another call")]
    OtherCall(String),
}

const ANSWER_THEM: &str = "run `toolhold approvals` to approve or deny these calls";

struct Waiting {
    name: String,
    of_session: bool,
    preview: Option<Preview>,
}

/// The possible reasons why a question is missing although a call waits for it.
const GONE: &str = "another call used the answer, a new question replaced it because the file has changed, or the question was withdrawn or has expired";

impl PostedQuestion {
    fn is_for(&self, question: &Question) -> bool {
        self.question.session == question.session
            && self.question.fingerprint == question.fingerprint
    }

    pub(super) fn is_open(&self, now: u64) -> bool {
        self.reply.is_none() && self.until > now
    }
}

fn question_id(question: &Question) -> String {
    let digest =
        Sha256::new_with_prefix(question.fingerprint.0).chain_update(&question.session).finalize();
    format!("{digest:x}")[..16].to_owned()
}

pub(super) fn file_name(id: &str) -> String {
    format!("{id}.json")
}

/// Stores questions for `toolhold approvals`, for a front end that can't ask a person itself.
#[derive(Debug)]
pub struct PostingApprover {
    /// The stored questions.
    pub questions: Questions,
    /// How long a call waits for its answer. With 0, the call fails at once, and the next identical
    /// call takes the answer.
    ///
    /// A permanent approval becomes a rule in the user's file. A running host applies it with
    /// [`reload_rules`](crate::Host::reload_rules).
    pub wait: Duration,
    /// How long a question stays open. Its answer is valid for the same time.
    pub lasting: Duration,
    /// What a person does after the approval, for the reason of an unanswered question.
    next: &'static str,
}

impl Approver for PostingApprover {
    fn ask(&self, question: Question) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            if let Some(reason) = question.too_large() {
                return Reply::Unasked(reason);
            }
            match self.post_and_wait(question).await {
                Ok(reply) => reply,
                Err(error) => Reply::Unasked(format!(
                    "storing the call for `toolhold approvals` failed: {error}"
                )),
            }
        })
    }

    fn waits(&self) -> bool {
        !self.wait.is_zero()
    }
}

impl PostingApprover {
    /// Creates an approver with the data folder and the settings in `[approvals]`.
    pub fn new(folders: &Folders, settings: &Approvals) -> Self {
        let wait = Duration::from_secs(settings.wait_secs.get());
        let lasting = Duration::from_secs(settings.expire_secs.get());
        let next = "repeat the call";
        Self { questions: Questions::open(folders), wait, lasting, next }
    }

    /// Replaces what a person does after the approval, such as `repeat the call`.
    #[must_use]
    pub fn and_then(mut self, next: &'static str) -> Self {
        self.next = next;
        self
    }

    /// Removes and returns the answer to the same question of an earlier call. Returns `None` if
    /// there is no answer.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the folder of the questions can't be read.
    pub async fn take_answer(&self, question: &Question) -> Result<Option<Reply>, HostError> {
        match self.take_answer_or_status(question.clone()).await? {
            QuestionStatus::Answered(reply) => Ok(Some(reply)),
            QuestionStatus::Waits | QuestionStatus::Gone => Ok(None),
        }
    }

    /// Removes the question of an earlier call, because a person has answered it in another way.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the question can't be read or removed.
    pub async fn withdraw(&self, question: Question) -> Result<(), HostError> {
        let questions = self.questions.clone();
        blocking(move || questions.withdraw(&question)).await
    }

    /// Takes the answer of an earlier call, or posts the question and waits for the answer.
    async fn post_and_wait(&self, question: Question) -> Result<Reply, HostError> {
        let status = self.take_answer_or_status(question.clone()).await?;
        if let QuestionStatus::Answered(reply) = status {
            return Ok(reply);
        }
        let questions = self.questions.clone();
        let wait = self.wait;
        let lasting = self.lasting;
        let posted = question.clone();
        let id = match blocking(move || questions.post(posted, wait, lasting)).await? {
            Ok(id) => id,
            Err(error) => return Ok(Reply::Unasked(error.to_string())),
        };
        // Another call may have posted the same question, and a person may have answered it.
        let status = self.take_answer_or_status(question.clone()).await?;
        if let QuestionStatus::Answered(reply) = status {
            return Ok(reply);
        }
        if self.wait.is_zero() {
            return Ok(unanswered(&id, "", self.next));
        }

        // When the caller drops this future, no call waits any more, so the question is withdrawn.
        let mut guard = WithdrawGuard { questions: &self.questions, id: Some(&id) };
        let until = tokio::time::Instant::now() + self.wait;
        while tokio::time::Instant::now() < until {
            tokio::time::sleep(CHECK_INTERVAL.min(self.wait)).await;
            let reply = match self.take_answer_or_status(question.clone()).await? {
                QuestionStatus::Waits => continue,
                QuestionStatus::Answered(reply) => reply,
                QuestionStatus::Gone => {
                    Reply::Unasked(format!("the call {id} no longer waits for approval: {GONE}"))
                }
            };
            guard.id = None;
            return Ok(reply);
        }
        // The question stays, so that a person can still answer it for a later call.
        guard.id = None;
        let reason = format!("nobody answered within {} s; ", self.wait.as_secs());
        Ok(unanswered(&id, &reason, self.next))
    }

    async fn take_answer_or_status(&self, question: Question) -> Result<QuestionStatus, HostError> {
        let questions = self.questions.clone();
        blocking(move || questions.take_answer_or_status(&question)).await
    }
}

/// The start of the remedy for an unanswered question. The ID of the question follows.
const ALLOW: &str = "run `toolhold approvals allow ";

fn unanswered(id: &str, reason: &str, next: &str) -> Reply {
    Reply::Unasked(format!("{reason}{ALLOW}{id}`, then {next}"))
}

impl Reply {
    /// Returns the ID of the stored question if `toolhold approvals` can still answer it.
    pub fn pending_id(&self) -> Option<&str> {
        let Self::Unasked(why) = self else { return None };
        let (_, remedy) = why.split_once(ALLOW)?;
        Some(remedy.split_once('`')?.0)
    }
}

/// Runs blocking work on a separate thread.
///
/// # Errors
///
/// Returns the error of the work. [`HostError::Engine`] if the work panicked.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, HostError> + Send + 'static,
) -> Result<T, HostError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(HostError::Engine(format!("a task of the host ended early: {error}"))),
    }
}

/// Withdraws a question when it is dropped, unless `id` is `None`.
struct WithdrawGuard<'a> {
    questions: &'a Questions,
    id: Option<&'a str>,
}

impl Drop for WithdrawGuard<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.questions.remove_unanswered(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use serde_json::json;

    use super::*;

    /// A question of a session, within the session's limit.
    fn question(number: usize) -> Question {
        let decision = json!({ "verdict": "ask", "gate": "permissions", "rule": "a rule", "place": "a place", "remedy": "" });
        let question = json!({
            "id": "1", "session": format!("s{}", number / MAX_OF_SESSION), "fingerprint": format!("{number:064x}"), "tool": "write", "provider": "file", "subjects": [],
            "arguments": {}, "decision": decision, "always": { "unavailable": "no" },
        });
        serde_json::from_value(question).expect("it is a question")
    }

    #[test]
    fn parallel_questions_stay_within_the_limit() {
        const TOO_MANY: usize = 16;
        let root = tempfile::tempdir().expect("a temporary folder");
        let questions = Questions::open(&Folders::inside(root.path()));
        let post = |number| {
            questions
                .post(question(number), Duration::ZERO, Duration::from_secs(600))
                .expect("it can be kept")
                .is_ok()
        };
        assert!((1..MAX_POSTED).all(post));
        let together = Barrier::new(TOO_MANY);
        let posted = std::thread::scope(|scope| {
            let post = |number| {
                together.wait();
                post(number)
            };
            let threads: Vec<_> = (0..TOO_MANY)
                .map(|number| scope.spawn(move || post(MAX_POSTED + number)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("it does not panic"))
                .filter(|posted| *posted)
                .count()
        });
        let (waiting, wrong) = questions.waiting().expect("they can be read");
        assert_eq!((posted, waiting.len(), wrong.len()), (1, MAX_POSTED, 0));
        assert!(post(1), "one that waits already takes no place of another");
    }

    #[test]
    fn session_leaves_posted_questions_to_others() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let questions = Questions::open(&Folders::inside(root.path()));
        let post = |number, session: &str| {
            let question = Question { session: session.to_owned(), ..question(number) };
            questions
                .post(question, Duration::ZERO, Duration::from_secs(600))
                .expect("it can be kept")
        };
        assert!((0..MAX_OF_SESSION).all(|number| post(number, "greedy").is_ok()));
        let refused = post(MAX_OF_SESSION, "greedy").expect_err("it has as many as it may");
        assert!(
            refused
                .to_string()
                .contains("too many calls of this session wait for approval; the limit is 16"),
            "{refused}"
        );
        post(MAX_OF_SESSION, "other").expect("another session has places of its own");
        assert_eq!(questions.waiting().expect("they can be read").0.len(), MAX_OF_SESSION + 1);
    }

    #[test]
    fn newest_unused_answers_are_kept() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let questions = Questions::open(&Folders::inside(root.path()));
        let lasting = Duration::from_secs(600);
        let answered = |number| {
            questions
                .post(question(number), Duration::ZERO, lasting)
                .expect("it can be kept")
                .expect("there is a place");
            let (waiting, _) = questions.waiting().expect("they can be read");
            let [posted] = &waiting[..] else { panic!("{waiting:?}") };
            questions
                .answer(
                    posted,
                    Reply::No { by: "a test".to_owned(), reason: String::new() },
                    lasting + Duration::from_secs(number as u64),
                )
                .expect("it waits");
        };
        (0..MAX_POSTED + 3).for_each(answered);
        assert_eq!(
            questions.names().expect("they can be read").len(),
            MAX_POSTED + 1,
            "those that were there, and the last"
        );
        let taken = |number| questions.take(&question(number)).expect("it can be read").is_some();
        assert_eq!([0, 1, 2, MAX_POSTED + 2].map(taken), [false, false, true, true]);
    }
}
