use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{Content, PathRules, Report};

/// One invocation of a tool, as the host hands it to a provider.
#[derive(Clone)]
pub struct Call {
    /// Names this call in logs and in the audit.
    pub id: CallId,
    /// The tool's full name, resolved.
    pub tool: String,
    /// A JSON object that fits the tool's input schema; path subjects are absolute.
    pub arguments: Arc<Value>,
    /// Large or binary arguments, which the JSON names `{"$attachment": 0}`.
    pub attachments: Vec<Content>,
    /// How long the tool may take, where its arguments say so; otherwise the provider's default.
    /// The provider adds its grace for the answer.
    pub time: Option<Duration>,
    /// Who calls, where that is not the primary agent.
    pub caller: Option<String>,
    /// The session that the call belongs to: what one caller's calls share, and no other's.
    pub session: Arc<str>,
    /// The commands among what the call acts on, which were decided on: a shell may run these, to
    /// the letter.
    pub commands: Vec<String>,
    /// Whether what the call starts may reach the network.
    pub network: bool,
    /// The origins (`https://example.com`) of the URLs among what the call acts on, which were
    /// decided on: its requests may go there.
    pub origins: Vec<String>,
    /// Whether the call is one that only reads: its requests are `GET` and `HEAD`, and its
    /// directories are read-only.
    pub read_only: bool,
    /// What the rules about calls say of the paths that it reaches. `None`: nothing that the grants
    /// don't say.
    pub path_rules: Option<Arc<dyn PathRules>>,
    /// Where the provider puts what it has to tell of the call beside its outcome.
    pub report: Arc<Report>,
    /// Where progress and partial output go.
    pub events: Arc<dyn Events>,
    /// Set when the caller no longer waits.
    pub cancel: CancellationToken,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call")
            .field("id", &self.id)
            .field("tool", &self.tool)
            .finish_non_exhaustive()
    }
}

/// Names a call: opaque, unique, at most 64 characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct CallId(pub Arc<str>);

impl From<String> for CallId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl From<CallId> for String {
    fn from(CallId(id): CallId) -> Self {
        (*id).to_owned()
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How far a call is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// From 0 to 1, where that is known.
    pub fraction: Option<f64>,
    /// What is being done. Of a plugin: at most 200 characters, without control characters.
    pub message: String,
}

/// Takes what a call tells while it runs.
///
/// Its functions are called on the thread that runs the tool, whose time they take: they must not
/// block. Pass on what they hear to a channel where that is not quick.
pub trait Events: Send + Sync + 'static {
    /// The call got further. Of a plugin's call, ten times a second at most.
    fn progress(&self, progress: Progress);

    /// A part of the answer is there already. It comes again in the answer only where the call
    /// fails.
    fn emitted(&self, part: &Content);
}

/// Listens to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl Events for NoEvents {
    fn progress(&self, _progress: Progress) {}
    fn emitted(&self, _part: &Content) {}
}
