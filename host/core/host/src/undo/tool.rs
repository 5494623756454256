//! The tool `undo`: restores files that an earlier call of the session changed.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use toolhold_audit::EntryOrigin;
use toolhold_config::{Config, Folders};
use toolhold_contract::text::counted;
use toolhold_contract::{
    Annotations, BoxFuture, Call, Category, Definition, Failure, Outcome, Output, ToolSource,
};
use toolhold_jobs::Jobs;
use toolhold_undo::{ChangeKind, UndoEntry, UndoError, UndoPlan, UndoStore};

use super::{record_by, store};

const TOOL_NAME: &str = "undo";

const DESCRIPTION: &str = "Restores the files that an earlier call of this session changed. A \
                           later change of a file is kept if the changes don't overlap; otherwise \
                           the file stays unchanged, and the answer names the file.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    call: Option<String>,
    #[serde(default)]
    turn: bool,
}

pub(crate) struct UndoTool {
    shared: Arc<Shared>,
    tool: Arc<Definition>,
}

struct Shared {
    store: UndoStore,
    config: Config,
    folders: Folders,
    origin: EntryOrigin,
    jobs: Arc<Jobs>,
}

impl UndoTool {
    /// Creates the tool. `origin` is recorded in the audit log. Running `jobs` may still change
    /// files.
    pub(crate) fn new(
        config: &Config,
        folders: &Folders,
        origin: EntryOrigin,
        jobs: Arc<Jobs>,
    ) -> Self {
        let call = "The call's id. Default: the latest call that changed files and is not undone.";
        let turn = "Undo all calls of the same turn.";
        let schema = json!({
            "type": "object",
            "properties": {
                "call": { "type": "string", "description": call },
                "turn": { "type": "boolean", "description": turn },
            },
            "additionalProperties": false,
        });
        let annotations = Annotations {
            read_only: false,
            destructive: true,
            idempotent: false,
            open_world: false,
            cacheable: false,
        };
        let title = Some("Undo a call".to_owned());
        let tool = Arc::new(Definition {
            title,
            annotations,
            ..Definition::new(TOOL_NAME, DESCRIPTION, schema)
        });
        let shared = Shared {
            store: store(config, folders),
            config: config.clone(),
            folders: folders.clone(),
            origin,
            jobs,
        };
        Self { shared: Arc::new(shared), tool }
    }
}

impl Shared {
    fn is_running(&self, entry: &UndoEntry) -> bool {
        self.jobs.is_running(&entry.call)
    }

    fn undo(&self, call: &Call) -> Outcome {
        let arguments = Arguments::deserialize(&*call.arguments)
            .map_err(|error| Failure::new(Category::InvalidParameters, error.to_string()))?;
        let saved = self.store.list().map_err(unreadable)?;
        let mut entries_of_session =
            saved.into_iter().filter(|entry| *entry.session == *call.session);
        let entry = match &arguments.call {
            Some(id) => entries_of_session.find(|entry| entry.call == *id),
            None => entries_of_session.find(|entry| entry.is_next() && !self.is_running(entry)),
        };
        let Some(entry) = entry else {
            let message = match &arguments.call {
                Some(id) => format!(
                    "no changes of the call {:?} are saved in this session",
                    toolhold_contract::text::cut(id, 64)
                ),
                None => {
                    "this session has no call left to undo; calls that changed only timestamps are \
                     skipped"
                        .to_owned()
                }
            };
            return Err(Failure::new(Category::PermanentFailure, message).with_code("not-found"));
        };
        if self.is_running(&entry) {
            let message = format!("a job of the call {} still runs", entry.call);
            return Err(Failure::new(Category::PermanentFailure, message)
                .with_code("running")
                .with_suggestion("Stop the job with job_stop first, or wait for its end."));
        }

        let calls = if arguments.turn {
            self.store.turn_of(&entry).map_err(unreadable)?
        } else {
            vec![entry]
        };
        let mut text = String::new();
        let mut last_failure = None;
        for entry in calls.iter().filter(|entry| !self.is_running(entry)) {
            match self.undo_one(call, entry) {
                Ok(description) => text.push_str(&description),
                // The other calls are still undone.
                Err(failure) => last_failure = Some(failure),
            }
        }
        match last_failure {
            Some(failure) if text.is_empty() => Err(failure),
            Some(failure) => Ok(Output::text(format!("{text}{}\n", failure.message))),
            None => Ok(Output::text(text)),
        }
    }

    /// Undoes a call, and records the undo in the audit log.
    fn undo_one(&self, call: &Call, entry: &UndoEntry) -> Result<String, Failure> {
        let result = self.store.undo(&entry.call);
        let error = result.as_ref().err().map(ToString::to_string);
        let by = format!("call {}", call.id);
        // A failed undo is recorded, too.
        let origin = self.origin.clone();
        record_by(&self.config, &self.folders, entry, &by, error.as_deref(), origin).map_err(
            |error| Failure::new(Category::PermanentFailure, error.to_string()).with_code("audit"),
        )?;
        match result {
            Ok(plan) => Ok(describe(entry, &plan)),
            Err(UndoError::Unreadable(error)) => Err(unreadable(error)),
            Err(error) => Err(Failure::new(Category::PermanentFailure, error.to_string())),
        }
    }
}

fn unreadable(error: std::io::Error) -> Failure {
    let message = format!("the saved changes can't be read: {error}");
    Failure::new(Category::PermanentFailure, message).with_code("host")
}

fn describe(entry: &UndoEntry, plan: &UndoPlan) -> String {
    /// Maximum number of paths in the answer of one call.
    const MAX_LISTED: usize = 200;
    let mut text = format!("Undone: {} (call {})\n", entry.tool, entry.call);
    for change in plan.changes.iter().take(MAX_LISTED) {
        let _ = write!(text, "{}: {}", change.path.display(), change.what.as_str());
        if let ChangeKind::MovedBack(from) = &change.what {
            let _ = write!(text, " {}", from.display());
        }
        text.push('\n');
    }
    if plan.changes.len() > MAX_LISTED {
        let _ = writeln!(text, "{}", counted(plan.changes.len() - MAX_LISTED, "more path"));
    }
    text
}

impl ToolSource for UndoTool {
    fn name(&self) -> &str {
        "undo"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        vec![Arc::clone(&self.tool)]
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            match tokio::task::spawn_blocking(move || shared.undo(&call)).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    Err(Failure::new(Category::PermanentFailure, error.to_string())
                        .with_code("host"))
                }
            }
        })
    }
}
