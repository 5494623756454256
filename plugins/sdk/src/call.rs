//! The running call for a Rust plugin: its attachments, progress, emitted parts, time and caller.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Content, Failure};

/// The running call: its attachments, and what the host offers to it.
#[derive(Debug, Default)]
pub struct Call {
    attachments: Vec<Content>,
    /// A JSON object as text. It is parsed only on demand, since few tools need it.
    meta: Option<String>,
}

impl Call {
    pub(crate) fn new(attachments: Vec<Content>, meta: Option<String>) -> Self {
        Self { attachments, meta }
    }

    /// The data that the caller sent in addition to the arguments: a JSON object whose keys have a
    /// prefix, such as `example.com/trace`. A model doesn't write it, and no rule of the operator
    /// sees it, so it must not decide what the call acts on.
    pub fn meta(&self) -> Option<Map<String, Value>> {
        serde_json::from_str(self.meta.as_deref()?).ok()
    }

    /// The id of this call: opaque, at most 64 characters. The audit uses the same id.
    pub fn id(&self) -> String {
        host::id()
    }

    /// The time that the tool has left.
    pub fn remaining(&self) -> Duration {
        Duration::from_millis(host::remaining_ms())
    }

    /// Whether the caller has cancelled the call. The host stops the call soon after in any case.
    pub fn cancelled(&self) -> bool {
        host::cancelled()
    }

    /// Reports progress: a fraction from 0 to 1, if it is known, and a message. The host passes on
    /// at most 10 reports a second, and 200 characters of each message.
    pub fn progress(&self, fraction: impl Into<Option<f64>>, message: &str) {
        host::progress(fraction.into(), message);
    }

    /// Sends a part of the answer at once. The caller is shown it, and it becomes the answer if the
    /// call is cut off, or the beginning of the answer with
    /// [`Output::after_emitted`](crate::Output::after_emitted). Returns false if the budget (8 MiB
    /// in all) is spent: nothing more is taken, so stop.
    #[must_use = "false means that the part was dropped"]
    pub fn emit(&self, part: Content) -> bool {
        host::emit(part)
    }

    /// The caller of this call, and its place.
    pub fn caller(&self) -> Caller {
        host::caller()
    }

    /// All attachments of the call.
    pub fn attachments(&self) -> &[Content] {
        &self.attachments
    }

    /// The attachment that an argument names.
    ///
    /// # Errors
    ///
    /// If the call has no such attachment.
    pub fn attachment(&self, argument: Attachment) -> Result<&Content, Failure> {
        self.attachments.get(argument.index).ok_or_else(|| {
            Failure::invalid(format!(
                "the call has no attachment {}; it has {}, counted from 0",
                argument.index,
                self.attachments.len()
            ))
        })
    }
}

/// The caller of a call, and its place. The names of the user, the project and the session are
/// opaque: they can only be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The person, or the principal of a server with several callers.
    pub user: String,
    /// The working directory.
    pub project: String,
    /// The session: the calls of one caller that belong together.
    pub session: String,
    /// The front end of the session: `mcp`, `agent` or another one.
    pub front_end: String,
    /// The agent that calls. `None`: the primary one.
    pub agent: Option<String>,
    /// Whether the session was given untrusted text before: then a model may have written the
    /// arguments because of that text.
    pub untrusted: bool,
}

/// An argument whose content travels beside the JSON because it is large or binary:
/// `{"$attachment": 0}`. [`Call::attachment`] returns the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    #[serde(rename = "$attachment")]
    index: usize,
}

impl JsonSchema for Attachment {
    fn schema_name() -> Cow<'static, str> {
        "Attachment".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "properties": { "$attachment": { "type": "integer", "minimum": 0 } },
            "required": ["$attachment"],
            "additionalProperties": false
        })
    }
}

#[cfg(target_arch = "wasm32")]
mod host {
    use super::Caller;
    use crate::content::Content;
    use crate::contract;
    use crate::contract::bindings::toolhold::host::call;

    pub(super) use call::{cancelled, id, progress, remaining_ms};

    pub(super) fn emit(part: Content) -> bool {
        call::emit(&contract::content_out(part))
    }

    pub(super) fn caller() -> Caller {
        let call::Caller { user, project, session, front_end, agent, untrusted, .. } =
            call::called_by();
        Caller { user, project, session, front_end, agent, untrusted }
    }
}

/// The stand-in for the host in unit tests. There is no deadline, and progress is dropped.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) mod host {
    use std::cell::RefCell;

    use super::Caller;
    use crate::Content;

    pub(super) fn id() -> String {
        "test".to_owned()
    }

    pub(super) fn remaining_ms() -> u64 {
        600_000
    }

    pub(super) fn cancelled() -> bool {
        false
    }

    pub(super) fn progress(_fraction: Option<f64>, _message: &str) {}

    pub(super) fn emit(_part: Content) -> bool {
        true
    }

    thread_local! {
        /// Tests change it with [`testing::set_caller`](crate::testing::set_caller).
        static CALLER: RefCell<Caller> = RefCell::new(Caller {
            user: "user".to_owned(),
            project: "project".to_owned(),
            session: "session".to_owned(),
            front_end: "test".to_owned(),
            agent: None,
            untrusted: false,
        });
    }

    pub(super) fn caller() -> Caller {
        CALLER.with_borrow(Clone::clone)
    }

    pub(crate) fn set_caller(caller: Caller) {
        CALLER.set(caller);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_is_an_object() {
        let meta = |text: Option<&str>| Call::new(Vec::new(), text.map(str::to_owned)).meta();
        assert_eq!(meta(None), None);
        let fields = meta(Some(r#"{"example.com/trace":"a"}"#)).unwrap();
        assert_eq!(fields["example.com/trace"], "a");
    }

    #[test]
    fn attachment_is_found_by_its_index() {
        let call = Call::new(
            vec![Content::text("first"), Content::bytes([1, 2], "application/x-two")],
            None,
        );
        let argument: Attachment = serde_json::from_str(r#"{"$attachment": 1}"#).unwrap();
        assert_eq!(call.attachment(argument).unwrap().as_bytes(), Some(&[1, 2][..]));
        let missing = call.attachment(Attachment { index: 2 }).unwrap_err();
        assert_eq!(missing.message, "the call has no attachment 2; it has 2, counted from 0");
    }
}
