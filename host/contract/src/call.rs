//! One call of a tool as the host gives it to a source, and the events of a running call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{
    CallerSource, ChangeRecorder, CommandApprover, Content, Inquirer, JobServers, JobStarter,
    OutputRecorder, PathRules, Report, ServiceKeeper, ShellSession, TaskBook,
};

/// One call of a tool, as the host passes it to a provider.
#[derive(Clone)]
pub struct Call {
    /// The ID of this call in logs and in the audit.
    pub id: CallId,
    /// The tool's full name, resolved.
    pub tool: String,
    /// A JSON object that matches the tool's input schema. Paths in subjects are absolute.
    pub arguments: Arc<Value>,
    /// Large or binary arguments. The JSON refers to them as `{"$attachment": 0}`.
    pub attachments: Vec<Content>,
    /// Data that the caller sends with the arguments: a JSON object of at most 64 KiB.
    pub meta: Option<Arc<Map<String, Value>>>,
    /// The time limit that the arguments set. If it is missing, the provider's default applies. The
    /// provider adds time for the answer.
    pub time: Option<Duration>,
    /// The agent that calls. `None` means the primary agent.
    pub caller: Option<String>,
    /// The session of the call. All calls of one caller share a session, and other callers have
    /// other sessions.
    pub session: Arc<str>,
    /// The caller, for plugins that request it. `None` means that the caller is unknown.
    pub caller_info: Option<Arc<dyn CallerSource>>,
    /// Whether the call only reads. Its requests are then `GET` and `HEAD`, and its directories are
    /// read-only.
    pub read_only: bool,
    /// The rules about calls, which apply to the paths that this call reaches. With `None`, only
    /// the grants apply.
    pub path_rules: Option<Arc<dyn PathRules>>,
    /// Saves the files that the call changes, so that the call can be undone. With `None`, no file
    /// is saved.
    pub changes: Option<Arc<dyn ChangeRecorder>>,
    /// The commands of the call.
    pub commands: CallCommands,
    /// The requests of the call.
    pub requests: CallRequests,
    /// The tasks that the call's plugin has created. With `None`, the plugin may create no tasks.
    pub tasks: Option<Arc<dyn TaskBook>>,
    /// Asks the person the provider's own questions. With `None`, nobody can be asked.
    pub inquirer: Option<Arc<dyn Inquirer>>,
    /// Receives the provider's report of the call, in addition to its outcome.
    pub report: Arc<Report>,
    /// Receives progress and partial output.
    pub events: Arc<dyn Events>,
    /// Set when the caller stops waiting.
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

/// The commands that a call may run, and the recorders of their output and changes. By default, a
/// shell may run no commands, and nothing is recorded.
#[derive(Clone, Default)]
pub struct CallCommands {
    /// The commands that the call contains and that the host has allowed. A shell may run only
    /// these commands.
    pub lines: Vec<String>,
    /// Whether processes may use the network.
    pub network: bool,
    /// Variables that the session adds to the processes' environment.
    pub variables: Vec<(String, String)>,
    /// Decides on the commands that the provider chooses itself. With `None`, it may choose no
    /// commands.
    pub approver: Option<Arc<dyn CommandApprover>>,
    /// Saves the files that the commands change. With `None`, no file is saved.
    pub changes: Option<Arc<dyn ChangeRecorder>>,
    /// Stores the whole output of the commands. With `None`, no output is stored.
    pub output: Option<Arc<dyn OutputRecorder>>,
    /// Starts commands that continue after the call. With `None`, the call may start no such
    /// commands.
    pub jobs: Option<Arc<dyn JobStarter>>,
    /// Stores programs that keep running after the call. With `None`, all programs end with the
    /// call.
    pub services: Option<Arc<dyn ServiceKeeper>>,
    /// The shell state with which the commands start, and which later commands get. With `None`, no
    /// state is carried over.
    pub shell: Option<Arc<dyn ShellSession>>,
}

/// The destinations to which a call may send requests in addition to the grants.
#[derive(Clone, Default)]
pub struct CallRequests {
    /// The origins (`https://example.com`) of the URLs that the call contains and that the host has
    /// allowed.
    pub origins: Vec<String>,
    /// The servers that run as jobs of the session. With `None`, the session has no jobs.
    pub job_servers: Option<Arc<dyn JobServers>>,
}

/// The ID of a call: an opaque, unique string of at most 64 characters.
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

/// The progress of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// From 0 to 1, if known.
    pub fraction: Option<f64>,
    /// The current activity. A message of a plugin has at most 200 characters and no control
    /// characters.
    pub message: String,
    /// Whether the message is untrusted text. The host also sets this field if the answer will be
    /// untrusted.
    pub untrusted: bool,
}

/// Receives the events of a running call.
///
/// Its functions run on the thread of the tool and use the tool's time, so they must not block. If
/// handling events is slow, send them to a channel.
pub trait Events: Send + Sync + 'static {
    /// Receives the progress of the call. A plugin's call reports at most ten times a second.
    fn progress(&self, progress: Progress);

    /// Receives a part of the answer. The answer repeats the part only in two cases: the call
    /// fails, or the tool says that its answer begins with the emitted parts.
    fn emitted(&self, part: &Content);

    /// Returns a recorder for the output of a command that starts now. By default, there is no
    /// recorder.
    ///
    /// The recorder is dropped when the command ends. It sometimes gets an empty write, so that it
    /// can pass on buffered text. The host implements this function and passes the text on as
    /// [`emitted`](Self::emitted).
    fn command(&self) -> Option<Box<dyn OutputRecorder>> {
        None
    }

    /// Receives the amount that was saved of the files that the call changed. By default ignored.
    fn snapshot(&self, _snapshot: Snapshot) {}

    /// Receives the result of undoing the call's changes in files after its command failed. The
    /// default does nothing.
    fn rollback(&self, _rollback: Rollback) {}
}

/// The amount that was saved of a call's changes in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Paths that the call changed.
    pub paths: usize,
    /// Bytes that were saved.
    pub bytes: u64,
    /// The number of paths whose old state could not be saved. If the number isn't 0, the call
    /// can't be undone.
    pub lost: usize,
}

/// An automatic undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// The number of paths that were restored to their old state, or 0 if the rollback failed.
    pub paths: usize,
    /// Whether the rollback succeeded.
    pub succeeded: bool,
}

/// Ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl Events for NoEvents {
    fn progress(&self, _progress: Progress) {}
    fn emitted(&self, _part: &Content) {}
}
