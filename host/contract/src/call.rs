//! A call of a tool, and the events of a running call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{
    CallerSource, ChangeRecorder, CommandApprover, Content, HostApprover, Inquirer, JobServers,
    JobStarter, OutputRecorder, PathRules, Report, ServiceKeeper, ShellSession, TaskBook,
};

/// One call of a tool, as the host passes it to a source.
#[derive(Clone)]
pub struct Call {
    /// The ID of this call in logs and in the audit log.
    pub id: CallId,
    /// The tool's full name, resolved.
    pub tool: String,
    /// A JSON object that matches the tool's input schema. Paths in subjects are absolute.
    pub arguments: Arc<Value>,
    /// Large or binary arguments. The JSON refers to them as `{"$attachment": 0}`.
    pub attachments: Vec<Content>,
    /// Data that the caller sends with the arguments: a JSON object of at most 64 KiB.
    pub meta: Option<Arc<Map<String, Value>>>,
    /// The time limit from the arguments. With `None`, the source's default applies. The source may
    /// take extra time to pass on the answer.
    pub time: Option<Duration>,
    /// The name of the agent that makes the call. `None` means the primary agent.
    pub caller: Option<String>,
    /// The session of the call. Each caller has one session of its own.
    pub session: Arc<str>,
    /// Finds the caller for plugins that request it. `None` means that the caller is unknown.
    pub caller_info: Option<Arc<dyn CallerSource>>,
    /// Whether the call only reads. Its HTTP requests are then `GET` or `HEAD`, and its directories
    /// are read-only.
    pub read_only: bool,
    /// The rules about calls, applied to each path that this call opens. With `None`, only the
    /// grants apply.
    pub path_rules: Option<Arc<dyn PathRules>>,
    /// Saves files before the call changes them, for undo. With `None`, no file is saved.
    pub changes: Option<Arc<dyn ChangeRecorder>>,
    /// The commands of the call.
    pub commands: CallCommands,
    /// The requests of the call.
    pub requests: CallRequests,
    /// The tasks that the call's plugin has created. With `None`, the plugin may create no tasks.
    pub tasks: Option<Arc<dyn TaskBook>>,
    /// Asks the person questions from the source. With `None`, questions stay unanswered.
    pub inquirer: Option<Arc<dyn Inquirer>>,
    /// Receives details about the call in addition to its outcome.
    pub report: Arc<Report>,
    /// Receives progress and parts of the answer.
    pub events: Arc<dyn Events>,
    /// Cancelled when the caller stops waiting.
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
    /// The allowed commands in the arguments of the call. A shell runs no other commands.
    pub lines: Vec<String>,
    /// Whether processes may use the network.
    pub network: bool,
    /// Variables that the session adds to the processes' environment.
    pub variables: Vec<(String, String)>,
    /// Decides on commands that the source chooses itself. With `None`, these commands are denied.
    pub approver: Option<Arc<dyn CommandApprover>>,
    /// Decides on hosts that no entry grants. With `None`, these hosts are denied.
    pub host_approver: Option<Arc<dyn HostApprover>>,
    /// Saves files before the commands change them. With `None`, no file is saved.
    pub changes: Option<Arc<dyn ChangeRecorder>>,
    /// Stores the whole output of the commands. With `None`, no output is stored.
    pub output: Option<Arc<dyn OutputRecorder>>,
    /// Starts commands that continue after the call. With `None`, no command may continue.
    pub jobs: Option<Arc<dyn JobStarter>>,
    /// Keeps programs running after the call. With `None`, all programs end with the call.
    pub services: Option<Arc<dyn ServiceKeeper>>,
    /// The shell's variables and directory at the start of a command, and the place for their
    /// changes. With `None`, each command starts with a fresh state.
    pub shell: Option<Arc<dyn ShellSession>>,
}

/// The destinations to which a call may send requests in addition to the grants.
#[derive(Clone, Default)]
pub struct CallRequests {
    /// The allowed origins (`https://example.com`) of URLs in the arguments of the call.
    pub origins: Vec<String>,
    /// Finds the servers that run as background jobs of the session. With `None`, the session has
    /// no jobs.
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
    /// Whether the message is untrusted text. The host also sets this field for calls whose answer
    /// will be untrusted.
    pub untrusted: bool,
}

/// Receives the events of a running call.
///
/// The functions run on the thread of the tool and use the tool's time. No function may block, so
/// slow work belongs on another thread.
pub trait Events: Send + Sync + 'static {
    /// Receives the progress of the call. A plugin reports at most ten times a second.
    fn progress(&self, progress: Progress);

    /// Receives a part of the answer before the call ends. The final answer repeats the part if the
    /// call fails, or if the tool declares that its answer begins with the emitted parts.
    fn emitted(&self, part: &Content);

    /// Returns a recorder for the output of a command that starts now. By default, there is no
    /// recorder.
    ///
    /// The recorder is dropped when the command ends. An empty write tells the recorder to pass on
    /// buffered text. The host implements this function and passes the text on as
    /// [`emitted`](Self::emitted).
    fn command(&self) -> Option<Box<dyn OutputRecorder>> {
        None
    }

    /// Receives the amount of data that was saved for undo. By default ignored.
    fn snapshot(&self, _snapshot: Snapshot) {}

    /// Receives the result of undoing the file changes of a failed command. By default ignored.
    fn rollback(&self, _rollback: Rollback) {}
}

/// The amount of data that was saved before a call changed files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Paths that the call changed.
    pub paths: usize,
    /// Bytes that were saved.
    pub bytes: u64,
    /// The number of paths whose old state could not be saved. A call with lost paths can't be
    /// undone.
    pub lost: usize,
}

/// The result of an automatic undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rollback {
    /// The number of restored paths, or 0 if the rollback failed.
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
