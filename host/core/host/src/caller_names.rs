//! Creates the opaque names of user, project and session for plugins.

use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{CallerInfo, CallerSource};

use crate::session::Session;

/// Maximum length of a word about a caller in bytes. A longer word is cut.
const WORD: usize = 64;

/// Returns the opaque name of a working directory. `directory` is its real path.
pub fn project_id(directory: &Path) -> String {
    opaque_name("project", directory.as_os_str().as_encoded_bytes())
}

/// Returns the opaque name of a principal. `None` means the user of this machine.
pub fn user_id(principal: Option<&str>) -> String {
    match principal {
        // The `=` distinguishes a principal with an empty name from the user of this machine.
        Some(name) => opaque_name("user", format!("={name}").as_bytes()),
        None => opaque_name("user", b""),
    }
}

/// Returns the opaque name of a session.
pub fn session_id(name: &str) -> String {
    opaque_name("session", name.as_bytes())
}

fn opaque_name(kind: &str, name: &[u8]) -> String {
    let digest = Sha256::new().chain_update(kind).chain_update([0]).chain_update(name).finalize();
    digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) struct SessionCaller {
    pub(crate) session: Session,
    pub(crate) project: Arc<str>,
    pub(crate) agent: Option<String>,
}

impl CallerSource for SessionCaller {
    fn caller(&self) -> CallerInfo {
        let session_name = self.session.name();
        // The first word of a session's name is its front end.
        let front_end = session_name.split(' ').next().unwrap_or_default();
        CallerInfo {
            user: user_id(self.session.principal()),
            project: self.project.to_string(),
            session: session_id(session_name),
            front_end: short_word(front_end),
            agent: self.agent.as_deref().map(short_word),
            untrusted: self.session.is_untrusted(),
        }
    }
}

fn short_word(text: &str) -> String {
    neutral_line(cut(text, WORD))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(session: &Session) -> CallerInfo {
        let (session, project) = (session.clone(), project_id(Path::new("/a")).into());
        SessionCaller { session, project, agent: None }.caller()
    }

    #[test]
    fn names_are_opaque_and_of_one_kind_each() {
        let all = [
            user_id(None),
            user_id(Some("")),
            user_id(Some("a")),
            session_id("a"),
            project_id(Path::new("a")),
            project_id(Path::new("/a")),
        ];
        for (at, name) in all.iter().enumerate() {
            assert!(name.len() == 32 && !all[..at].contains(name), "{all:?}");
        }
    }

    #[test]
    fn session_that_was_given_untrusted_text_stays_marked() {
        let session = Session::of_principal("mcp anna x", "anna");
        let before = caller(&session);
        assert!(!before.untrusted && before.front_end == "mcp");
        session.mark_untrusted().expect("it is marked");
        session.mark_untrusted().expect("it is marked");
        assert_eq!(caller(&session), CallerInfo { untrusted: true, ..before.clone() });
        assert_ne!(caller(&Session::of_principal("mcp anna x", "berta")).user, before.user);
    }

    #[test]
    fn session_on_disk_is_marked_for_all_processes() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folders = toolhold_config::Folders::inside(root.path());
        Session::on_disk(&folders, "a").mark_untrusted().expect("it is marked");
        assert!(caller(&Session::on_disk(&folders, "a")).untrusted);
        assert!(!caller(&Session::on_disk(&folders, "b")).untrusted);
    }
}
