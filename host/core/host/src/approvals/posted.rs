//! Posts questions as files, for a person who uses `toolhold approvals` elsewhere. Takes the
//! answers for the call or its next repetition, and removes questions that were answered in another
//! way. The number of questions is limited.

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

/// Maximum number of open questions of all programs of a user, because a person can't answer more.
/// The same number of answers can wait for their calls.
const MAX_POSTED: usize = 64;

/// Maximum number of open questions of one session, so that a session can't take all slots.
const MAX_OF_SESSION: usize = super::MAX_OF_SESSION;

/// Maximum number of names that are read in the folder. These are open questions, the same number
/// of answered questions and of answers, the lock, and files of processes that were killed while
/// writing.
const MAX_NAMES: usize = 4 * MAX_POSTED;

/// Interval between checks for the answer. It is too short for a person to notice.
const LOOK: Duration = Duration::from_millis(200);

/// The questions of a user that wait for an answer, and answered questions whose answer waits for
/// the call. All functions block.
#[derive(Clone, Debug)]
pub struct Questions {
    folder: PathBuf,
}

/// A posted question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PostedQuestion {
    /// The ID of the question: sixteen hexadecimal digits. The same call in the same session has
    /// the same ID.
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
}

impl Questions {
    /// Opens the questions in the data folder.
    pub fn open(folders: &Folders) -> Self {
        Self { folder: folders.data.join("questions") }
    }

    /// Lists the open questions, with the oldest first, and the errors of files that can't be read
    /// or trusted. Omits a question if it shows a change of a file that has changed since.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the folder can't be read or trusted.
    pub fn waiting(&self) -> Result<(Vec<PostedQuestion>, Vec<HostError>), HostError> {
        let now = seconds(SystemTime::now());
        let mut waiting = Vec::new();
        let mut errors = Vec::new();
        for name in self.names()? {
            let posted = match state::read::<Option<PostedQuestion>>(&self.folder, &name) {
                Ok(Some(posted)) => posted,
                Ok(None) => continue,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            if !posted.is_open(now) || file_name(&posted.id) != name {
                continue;
            }
            // An approval of the outdated question wouldn't apply to the call, which would ask
            // again.
            if !posted.question.is_outdated() {
                waiting.push(posted);
            }
        }
        waiting.sort_by(|a, b| (a.asked, &a.id).cmp(&(b.asked, &b.id)));
        Ok((waiting, errors))
    }

    /// Answers a question. The answer is for the call that waits, or for the next identical call of
    /// the same session. An approval is valid for `lasting`.
    ///
    /// A permanent approval is stored only for a call that waits. The rule in the configuration
    /// covers all other calls, and a stored answer would outlive that rule.
    ///
    /// # Errors
    ///
    /// * [`HostError::Config`] if the question has been answered or withdrawn, or has expired.
    /// * [`HostError::Io`] if the answer can't be stored.
    pub fn answer(
        &self,
        posted: &PostedQuestion,
        reply: Reply,
        lasting: Duration,
    ) -> Result<(), HostError> {
        let now = seconds(SystemTime::now());
        let is_permanent = matches!(reply, Reply::Yes { scope, .. } if scope.is_permanent());
        let is_waited_for = state::update_lightly(
            &self.folder,
            &file_name(&posted.id),
            |file: &mut Option<PostedQuestion>| {
                let stored = match file {
                    Some(stored)
                        if stored.is_open(now)
                            && stored.question.shows_the_same(&posted.question) =>
                    {
                        stored
                    }
                    _ => return Err(not_open(&posted.id)),
                };
                stored.reply = Some(reply);
                stored.until = now.saturating_add(lasting.as_secs());
                Ok(stored.waited_until > now)
            },
        )?;
        if is_permanent && !is_waited_for {
            return self.withdraw(&posted.question);
        }
        Ok(())
    }

    /// Takes the answer to a call of a session, if there is an answer. The answer is removed,
    /// because an approval is valid for one call.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the file exists and can't be read or trusted.
    pub fn take(&self, question: &Question) -> Result<Option<Reply>, HostError> {
        Ok(match self.status(question)? {
            QuestionStatus::Answered(reply) => Some(reply),
            QuestionStatus::Waits | QuestionStatus::Gone => None,
        })
    }

    /// Takes the answer like [`take`](Self::take). Also reports whether there is a question without
    /// an answer.
    fn status(&self, question: &Question) -> Result<QuestionStatus, HostError> {
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

    /// Removes the question of this call in its session, and its answer if there is one.
    ///
    /// A front end calls this function after it got the answer in another way. The person then
    /// isn't asked twice, and the next call doesn't find an unused answer.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the question exists and can't be read, trusted or removed.
    pub fn withdraw(&self, question: &Question) -> Result<(), HostError> {
        let name = file_name(&question_id(question));
        let Some(folder) = self.open_folder()? else { return Ok(()) };
        let _lock =
            folder.lock(state::LOCK).map_err(HostError::io(self.folder.display().to_string()))?;
        match state::read::<Option<PostedQuestion>>(&self.folder, &name)? {
            Some(posted) if posted.is_for(question) => folder
                .remove(&name)
                .map_err(HostError::io(self.folder.join(&name).display().to_string())),
            _ => Ok(()),
        }
    }

    /// Posts a question for `lasting`, and returns its ID. A call waits for its answer for `wait`.
    /// An existing question is extended, and an answer that it already has is preserved.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the question can't be stored. If the question gets no slot, the inner
    /// error is the reason.
    fn post(
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
            // The current second is included.
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
                waited_until = waited_until.max(stored.waited_until);
            }
            *file = Some(PostedQuestion {
                id: id.clone(),
                question,
                asked,
                until,
                reply: None,
                waited_until,
            });
            Ok(Ok(id))
        })
    }

    /// Withdraws an unanswered question for which no call waits any more.
    fn take_back(&self, id: &str) {
        let Ok(folder) = PrivateFolder::open(&self.folder) else { return };
        let Ok(_lock) = folder.lock(state::LOCK) else { return };
        let name = file_name(id);
        let stored = state::read::<Option<PostedQuestion>>(&self.folder, &name);
        if let Ok(Some(PostedQuestion { reply: None, .. })) = stored {
            let _ = folder.remove(&name);
        }
    }

    /// Makes room for a question. Removes expired entries, older questions of the same call about
    /// another state of the file, and the oldest answers if there are too many.
    ///
    /// Returns the reason why there is no room if too many other questions are open. The caller
    /// must hold the lock, so that no other question takes the slot before this question is
    /// written.
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
                // The file may be a question, so it is counted as a question.
                unreadable += 1;
                continue;
            };
            if posted.until <= now {
                let _ = folder.remove(&name);
            } else if posted.reply.is_some() {
                answered.push((posted.until, name));
            } else if question.follows(&posted.question) {
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
        if find_shortage(&waiting, unreadable).is_some() {
            // Outdated questions are never shown, so a person couldn't make room by answering them.
            waiting.retain(|other| {
                let is_outdated = other.preview.as_ref().is_some_and(outdated::is_outdated);
                let is_removed = is_outdated && folder.remove(&other.name).is_ok();
                !is_removed
            });
        }
        Ok(find_shortage(&waiting, unreadable))
    }

    fn names(&self) -> Result<Vec<String>, HostError> {
        let Some(folder) = self.open_folder()? else { return Ok(Vec::new()) };
        let names =
            folder.names(MAX_NAMES).map_err(HostError::io(self.folder.display().to_string()))?;
        Ok(names.into_iter().filter(|name| name.ends_with(".json")).collect())
    }

    /// Opens the folder, or returns `None` if it doesn't exist yet.
    fn open_folder(&self) -> Result<Option<PrivateFolder>, HostError> {
        match PrivateFolder::open(&self.folder) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(HostError::io(self.folder.display().to_string())(error)),
        }
    }
}

fn not_open(id: &str) -> HostError {
    HostError::Config(format!(
        "question {id} is not open: it was answered or withdrawn, or it has expired"
    ))
}

/// Returns the reason why there is no room for another question. `unreadable` is the number of
/// files that may be questions.
fn find_shortage(waiting: &[Waiting], unreadable: usize) -> Option<PostError> {
    let of_session = waiting.iter().filter(|other| other.of_session).count();
    if waiting.len() + unreadable >= MAX_POSTED {
        Some(PostError::Full)
    } else if of_session >= MAX_OF_SESSION {
        Some(PostError::SessionFull)
    } else {
        None
    }
}

/// The state of a question.
enum QuestionStatus {
    /// The answer, which was removed so that no other call gets it.
    Answered(Reply),
    Waits,
    Gone,
}

/// The reason why a question isn't posted.
#[derive(Debug, thiserror::Error)]
enum PostError {
    #[error("too many open questions; the limit is {MAX_POSTED}: {ANSWER_THEM}")]
    Full,
    #[error(
        "too many open questions of this session; the limit is {MAX_OF_SESSION}: {ANSWER_THEM}"
    )]
    SessionFull,
    /// Another question has this ID.
    #[error("the ID {0} belongs to the question of another call")]
    OtherCall(String),
}

/// How a person makes room.
const ANSWER_THEM: &str = "run `toolhold approvals` to answer them";

/// A question that takes a slot.
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

    /// Checks whether the question has no answer and hasn't expired.
    fn is_open(&self, now: u64) -> bool {
        self.reply.is_none() && self.until > now
    }
}

fn question_id(question: &Question) -> String {
    let digest =
        Sha256::new_with_prefix(question.fingerprint.0).chain_update(&question.session).finalize();
    format!("{digest:x}")[..16].to_owned()
}

fn file_name(id: &str) -> String {
    format!("{id}.json")
}

/// Posts questions for `toolhold approvals`, for a front end that can't ask by itself.
#[derive(Debug)]
pub struct PostingApprover {
    /// The store of the questions.
    pub questions: Questions,
    /// How long a call waits for its answer. With 0, the call ends at once, and the answer is for
    /// the next identical call.
    ///
    /// A permanent approval isn't stored as an answer. It is a rule in the user's file, which a
    /// running host applies with [`reload_rules`](crate::Host::reload_rules).
    pub wait: Duration,
    /// How long a question stays open. Its answer is then valid for the same time.
    pub lasting: Duration,
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
                    "storing the question for `toolhold approvals` failed: {error}"
                )),
            }
        })
    }

    fn waits(&self) -> bool {
        !self.wait.is_zero()
    }
}

impl PostingApprover {
    /// Makes an approver that posts questions in the data folder and waits as `[approvals]` says.
    pub fn new(folders: &Folders, settings: &Approvals) -> Self {
        let wait = Duration::from_secs(settings.wait_secs.get());
        let lasting = Duration::from_secs(settings.expire_secs.get());
        Self { questions: Questions::open(folders), wait, lasting }
    }

    /// Takes the answer that a person gave at a terminal to the same question of an earlier call.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the folder of the questions can't be read or trusted.
    pub async fn take_answer(&self, question: &Question) -> Result<Option<Reply>, HostError> {
        match self.status(question.clone()).await? {
            QuestionStatus::Answered(reply) => Ok(Some(reply)),
            QuestionStatus::Waits | QuestionStatus::Gone => Ok(None),
        }
    }

    /// Removes the question of an earlier call, because a person has answered it elsewhere.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the question can't be read, trusted or removed.
    pub async fn withdraw(&self, question: Question) -> Result<(), HostError> {
        let questions = self.questions.clone();
        blocking(move || questions.withdraw(&question)).await
    }

    async fn post_and_wait(&self, question: Question) -> Result<Reply, HostError> {
        if let QuestionStatus::Answered(reply) = self.status(question.clone()).await? {
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
        if let QuestionStatus::Answered(reply) = self.status(question.clone()).await? {
            return Ok(reply);
        }
        if self.wait.is_zero() {
            return Ok(unanswered(&id, ""));
        }

        // When this future is dropped, no call waits any more and the question is taken back.
        let mut guard = WithdrawGuard { questions: &self.questions, id: Some(&id) };
        let until = tokio::time::Instant::now() + self.wait;
        while tokio::time::Instant::now() < until {
            tokio::time::sleep(LOOK.min(self.wait)).await;
            let reply = match self.status(question.clone()).await? {
                QuestionStatus::Waits => continue,
                QuestionStatus::Answered(reply) => reply,
                QuestionStatus::Gone => {
                    Reply::Unasked(format!("question {id} is no longer open: {GONE}"))
                }
            };
            guard.id = None;
            return Ok(reply);
        }
        guard.id = None;
        Ok(unanswered(&id, &format!("no answer within {} s; ", self.wait.as_secs())))
    }

    async fn status(&self, question: Question) -> Result<QuestionStatus, HostError> {
        let questions = self.questions.clone();
        blocking(move || questions.status(&question)).await
    }
}

/// Creates the reply for a question that stays open. `reason` is the beginning of its text.
fn unanswered(id: &str, reason: &str) -> Reply {
    Reply::Unasked(format!("{reason}run `toolhold approvals allow {id}`, then repeat the call"))
}

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
            self.questions.take_back(id);
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
                .contains("too many open questions of this session; the limit is 16"),
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
