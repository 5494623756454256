//! The origin of entries: the front end, and the user who calls through it.

use std::borrow::Cow;
use std::sync::LazyLock;

use toolhold_config::{Folders, Who};

use super::line::Line;

/// Maximum length of a name in bytes. A longer name is cut.
const MAX_NAME: usize = 256;

/// Maximum number of recorded groups.
const MAX_GROUPS: usize = 64;

/// The names of this machine's users.
const PASSWD: &str = "/etc/passwd";

static LOCAL_USER: LazyLock<User> = LazyLock::new(|| {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let passwd = std::fs::read(PASSWD).unwrap_or_default();
    let name = match name_of(&String::from_utf8_lossy(&passwd), &uid) {
        Some(name) => name.to_owned(),
        None => format!("uid:{uid}"),
    };
    User { name, issuer: None, groups: Vec::new() }
});

/// The origin of entries.
#[derive(Clone, Debug)]
pub struct EntryOrigin {
    /// The front end.
    pub front_end: Cow<'static, str>,
    /// The user. `None` means that several users share the front end.
    pub user: Option<User>,
}

/// A user who makes calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name of the user of this machine, or the name at the issuer.
    pub name: String,
    /// The issuer of the token. `None` means the user of this machine.
    pub issuer: Option<String>,
    /// The groups that the token names.
    pub groups: Vec<String>,
}

impl EntryOrigin {
    /// Creates the origin of the entries that a program makes for the owner of `folders`. The
    /// folders of a principal don't have its name.
    pub fn new(front_end: impl Into<Cow<'static, str>>, folders: &Folders) -> Self {
        let is_of_principal = folders.operator.is_some();
        let user = if is_of_principal { None } else { Some(User::local()) };
        Self { front_end: front_end.into(), user }
    }

    pub(super) fn write(&self, line: &mut Line<'_>) {
        line.plain("front_end", &self.front_end, MAX_NAME);
        let Some(User { name, issuer, groups }) = &self.user else { return };
        line.plain("user", name, MAX_NAME);
        line.optional("user_issuer", issuer.as_deref(), MAX_NAME);
        line.words("groups", groups.iter().map(String::as_str).take(MAX_GROUPS), MAX_NAME);
    }
}

impl User {
    /// Returns the user of this machine who runs this process.
    pub fn local() -> Self {
        LOCAL_USER.clone()
    }

    /// Returns the user's unique name. It includes the issuer, as [`Who::name`] does.
    pub fn unique_name(&self) -> String {
        match &self.issuer {
            Some(issuer) => serde_json::json!([issuer, self.name]).to_string(),
            None => self.name.clone(),
        }
    }
}

impl From<&Who> for User {
    fn from(who: &Who) -> Self {
        let Who { issuer, subject, groups, .. } = who;
        Self { name: subject.clone(), issuer: Some(issuer.clone()), groups: groups.clone() }
    }
}

/// Returns the name of the user with the ID `uid` in the text of [`PASSWD`].
fn name_of<'p>(passwd: &'p str, uid: &str) -> Option<&'p str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let _password = fields.next()?;
        if fields.next()? == uid { Some(name) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::chain::Key;
    use crate::kind::Kind;

    fn written(user: Option<User>) -> Value {
        let key = Key::new(&[7; 32]);
        let mut line = Line::new(Kind::Outcome, &key);
        EntryOrigin { front_end: "toolhold test".into(), user }.write(&mut line);
        let mut bytes = line.into_bytes();
        bytes.push(b'}');
        serde_json::from_slice(&bytes).expect("it is JSON")
    }

    #[test]
    fn name_of_user_is_found_by_the_id() {
        let passwd = "root:x:0:0::/root:/bin/sh\n\nbroken\n:x:7:7\nanna:1000:1001:100::/:\n";
        assert_eq!(name_of(passwd, "0"), Some("root"));
        assert_eq!(name_of(passwd, "1001"), Some("anna"));
        for unknown in ["1000", "100", "7", "", "x"] {
            assert_eq!(name_of(passwd, unknown), None, "{unknown}");
        }
    }

    #[test]
    fn entry_names_the_user_and_the_groups() {
        let nobody = written(None);
        assert!(nobody["front_end"] == "toolhold test" && nobody.get("user").is_none());
        let local = written(Some(User::local()));
        assert_eq!(local["user"], json!(User::local().unique_name()));
        assert!(local.get("groups").is_none() && local.get("user_issuer").is_none(), "{local}");
    }

    #[test]
    fn names_of_a_token_are_neutral_and_bounded() {
        let who = Who {
            issuer: "https://login.example.org".into(),
            subject: "anna\u{202e}\u{1b}[2J\",\"kind\":\"note".into(),
            groups: (0..1000).map(|number| format!("\n{number}{}", "x".repeat(1000))).collect(),
            client: None,
            token: None,
        };
        assert_eq!(User::from(&who).unique_name(), who.name());
        let entry = written(Some(User::from(&who)));
        assert_eq!(entry["kind"], "outcome", "{entry}");
        assert_eq!(entry["user"], "anna\u{fffd}\u{fffd}[2J\",\"kind\":\"note");
        assert_eq!(entry["user_issuer"], "https://login.example.org");
        let groups = entry["groups"].as_array().expect("it has groups");
        assert_eq!(groups.len(), MAX_GROUPS);
        assert!(entry.to_string().len() < (MAX_GROUPS + 4) * MAX_NAME * 2);
    }
}
