//! One-time links to stored questions, for a person with a browser. The holder of a link may answer
//! its question.

use std::time::SystemTime;

use sha2::{Digest, Sha256};
use toolhold_config::Folders;
use toolhold_contract::HostError;
use toolhold_data_dir::state;

use super::posted::{PRINCIPAL_DIGITS, PostedQuestion, Questions, file_name, is_hexadecimal};
use crate::session::seconds;

/// The path of links at a server. The key of the link follows.
pub const LINK_PATH: &str = "/approvals/";

/// Hexadecimal digits of a question's ID. The key of its link starts with this ID, or with the ID of
/// the principal of its call.
const ID_DIGITS: usize = 16;

/// Hexadecimal digits of the secret that follows the ID.
const SECRET_DIGITS: usize = 64;

impl Questions {
    /// Makes a link to a question. `server` is the URL of the server that shows the question. The
    /// link is valid until the question has an answer, has expired, or gets another link.
    ///
    /// # Errors
    ///
    /// * [`HostError::Config`] if the question isn't open.
    /// * [`HostError::Io`] if the link can't be stored.
    pub fn link(&self, posted: &PostedQuestion, server: &str) -> Result<String, HostError> {
        let secret = new_secret()?;
        self.update_open(posted, |stored| {
            stored.link = Some(digest(&secret));
            Ok(())
        })?;
        Ok(self.url(server, posted, &secret))
    }

    /// Makes a link to the oldest open question without a link, of the user of this machine or of a
    /// principal. Of several processes, only one gets the link. Returns `None` if there is no such
    /// question. `folders` are the operator's.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::link`]. Questions that can't be read are omitted.
    pub fn link_next(
        folders: &Folders,
        server: &str,
    ) -> Result<Option<(PostedQuestion, String)>, HostError> {
        let mut oldest: Option<(Self, PostedQuestion)> = None;
        for questions in Self::all(folders)? {
            let Ok((open, _errors)) = questions.read_open() else { continue };
            let unlinked = open.into_iter().find(|posted| posted.link.is_none());
            if let Some(posted) = unlinked
                && oldest.as_ref().is_none_or(|(_, earlier)| posted.asked < earlier.asked)
            {
                oldest = Some((questions, posted));
            }
        }
        let Some((questions, posted)) = oldest else { return Ok(None) };

        let secret = new_secret()?;
        let is_first = questions.update_open(&posted, |stored| {
            let is_first = stored.link.is_none();
            if is_first {
                stored.link = Some(digest(&secret));
            }
            Ok(is_first)
        })?;
        if !is_first {
            return Ok(None);
        }
        let link = questions.url(server, &posted, &secret);
        Ok(Some((posted, link)))
    }

    /// Returns the open question of the link with this key, and the questions that it belongs to.
    /// Returns `None` if the link isn't valid, or if the file in the question has changed.
    /// `folders` are the operator's.
    ///
    /// # Errors
    ///
    /// [`HostError::Io`] if the question can't be read.
    pub fn of_link(
        folders: &Folders,
        key: &str,
    ) -> Result<Option<(Self, PostedQuestion)>, HostError> {
        // The IDs become parts of a path, and come from anybody who can reach the server.
        if !is_hexadecimal(key) {
            return Ok(None);
        }
        let principal_digits = match key.len().checked_sub(ID_DIGITS + SECRET_DIGITS) {
            Some(digits @ (0 | PRINCIPAL_DIGITS)) => digits,
            _ => return Ok(None),
        };
        let (principal, key_of_question) = key.split_at(principal_digits);
        let (id, secret) = key_of_question.split_at(ID_DIGITS);
        let questions = if principal.is_empty() {
            Self::open(folders)
        } else {
            Self::of_principal(folders, principal)
        };

        let stored: Option<PostedQuestion> = state::read(&questions.folder, &file_name(id))?;
        let now = seconds(SystemTime::now());
        let link = Some(digest(secret));
        let found = stored.filter(|posted| {
            posted.is_open(now) && posted.link == link && !posted.question.is_outdated()
        });
        Ok(found.map(|posted| (questions, posted)))
    }

    fn url(&self, server: &str, posted: &PostedQuestion, secret: &str) -> String {
        let server = server.trim_end_matches('/');
        let principal = self.principal.as_deref().unwrap_or_default();
        format!("{server}{LINK_PATH}{principal}{}{secret}", posted.id)
    }
}

fn new_secret() -> Result<String, HostError> {
    state::random_digits().map_err(HostError::io("making a link"))
}

/// Only this digest is stored, so that a copy of the data folder contains no valid link.
fn digest(secret: &str) -> String {
    format!("{:x}", Sha256::digest(secret))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use toolhold_answers::Scope;
    use toolhold_config::Who;

    use super::super::{Question, Reply};
    use super::*;

    const SERVER: &str = "https://toolhold.example.org/";
    const LASTING: Duration = Duration::from_secs(600);

    fn question(number: u8) -> Question {
        let decision = json!({ "verdict": "ask", "gate": "permissions", "rule": "a rule", "place": "a place", "remedy": "" });
        let question = json!({
            "id": "1", "session": "s", "fingerprint": format!("{number:064x}"), "tool": "write", "provider": "file", "subjects": [],
            "arguments": {}, "decision": decision, "always": { "unavailable": "no" },
        });
        serde_json::from_value(question).expect("it is a question")
    }

    fn posted(questions: &Questions, number: u8) -> PostedQuestion {
        let id = questions
            .post(question(number), Duration::ZERO, LASTING)
            .expect("it can be kept")
            .expect("there is a place");
        let (waiting, _) = questions.waiting().expect("they can be read");
        waiting.into_iter().find(|posted| posted.id == id).expect("it waits")
    }

    fn key(link: &str) -> String {
        let start = format!("https://toolhold.example.org{LINK_PATH}");
        link.strip_prefix(&start).expect("it is at the server").to_owned()
    }

    fn opened(folders: &Folders, key: &str) -> Option<String> {
        let found = Questions::of_link(folders, key).expect("it can be read");
        found.map(|(_, posted)| posted.id)
    }

    #[test]
    fn link_opens_its_question_until_the_answer() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folders = Folders::inside(root.path());
        let questions = Questions::open(&folders);
        let [one, other] = [1, 2].map(|number| posted(&questions, number));
        let [key_of_one, key_of_other] =
            [&one, &other].map(|posted| key(&questions.link(posted, SERVER).expect("it is made")));
        assert_eq!(opened(&folders, &key_of_one), Some(one.id.clone()));
        assert_eq!(Questions::link_next(&folders, SERVER).expect("they can be read"), None);
        // The same call again is the same question.
        let again = posted(&questions, 1);
        assert_eq!(opened(&folders, &key_of_one), Some(one.id.clone()));

        let swapped = format!("{}{}", one.id, &key_of_other[ID_DIGITS..]);
        let shorter = &key_of_one[..key_of_one.len() - 1];
        let upper = key_of_one.to_uppercase();
        let outside = format!("../{}", &key_of_one[3..]);
        let of_nobody = format!("{}{key_of_one}", "0".repeat(PRINCIPAL_DIGITS));
        for wrong in ["", &one.id, &swapped, shorter, &upper, &outside, &of_nobody, &"é".repeat(40)]
        {
            assert_eq!(opened(&folders, wrong), None, "{wrong}");
        }
        let stored = std::fs::read_to_string(questions.folder.join(file_name(&one.id)));
        assert!(!stored.expect("it is there").contains(&key_of_one[ID_DIGITS..]));

        let newer = key(&questions.link(&again, SERVER).expect("it is made"));
        assert_eq!(opened(&folders, &key_of_one), None, "another link replaced it");
        let yes = Reply::Yes { scope: Scope::Once, by: "a test".to_owned() };
        questions.answer(&again, yes, LASTING).expect("it waits");
        assert_eq!(opened(&folders, &newer), None, "it has an answer");
        questions.take(&question(1)).expect("it can be read").expect("it has an answer");
        questions.link(&again, SERVER).expect_err("it isn't open");

        posted(&questions, 1);
        assert_eq!(opened(&folders, &newer), None, "it is another question");
        let made = Questions::link_next(&folders, SERVER).expect("they can be read");
        let (next, link) = made.expect("it has no link");
        assert_eq!(opened(&folders, &key(&link)), Some(next.id));
        assert_eq!(Questions::link_next(&folders, SERVER).expect("they can be read"), None);
    }

    #[test]
    fn link_to_the_question_of_a_principal_opens_no_other() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folders = Folders::inside(root.path());
        let [anna, ben] = ["anna", "ben"].map(|subject| {
            let who = Who {
                issuer: "https://login.example.org".to_owned(),
                subject: subject.to_owned(),
                groups: Vec::new(),
                client: None,
                token: None,
            };
            who.id()
        });
        let of_anna = Questions::open(&folders.of_principal(&anna));
        let id = posted(&of_anna, 1).id;
        posted(&Questions::open(&folders.of_principal(&ben)), 1);
        posted(&Questions::open(&folders), 1);

        let mut keys = Vec::new();
        while let Some((_, link)) =
            Questions::link_next(&folders, SERVER).expect("they can be read")
        {
            keys.push(key(&link));
        }
        assert_eq!(keys.len(), 3);
        let key_of_anna =
            keys.iter().find(|key| key.starts_with(anna.as_str())).expect("she has a link");
        let found = Questions::of_link(&folders, key_of_anna).expect("it can be read");
        let (questions, posted) = found.expect("it waits");
        assert_eq!((questions.folder, posted.id), (of_anna.folder, id));

        let rest = &key_of_anna[PRINCIPAL_DIGITS..];
        for wrong in [rest.to_owned(), format!("{ben}{rest}")] {
            assert_eq!(opened(&folders, &wrong), None, "{wrong}");
        }
    }
}
