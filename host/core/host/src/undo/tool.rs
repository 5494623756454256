//! `undo`: restores files that an earlier call of the session changed.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use toolhold_config::{Config, Folders};
use toolhold_contract::text::counted;
use toolhold_contract::{
    Annotations, BoxFuture, Call, Category, Definition, Failure, Outcome, Output, ToolSource,
};
use toolhold_jobs::Jobs;
use toolhold_undo::{ChangeKind, UndoEntry, UndoError, UndoPlan, UndoStore};

use super::{record, store};

const NAME: &str = "undo";

const DESCRIPTION: &str = "\
    Restores the files that an earlier call of this session changed. A later change that \
    doesn't overlap is kept; otherwise the file stays as it is, and the answer names it.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    call: Option<String>,
    #[serde(default)]
    turn: bool,
}

/// Offers the tool.
pub(crate) struct UndoTool {
    shared: Arc<Shared>,
    tool: Arc<Definition>,
}

struct Shared {
    store: UndoStore,
    config: Config,
    folders: Folders,
    front_end: String,
    jobs: Arc<Jobs>,
}

impl UndoTool {
    /// Makes the tool for calls whose changes were saved under this configuration. `front_end` is
    /// for the audit log. `jobs` are the commands that may still change files.
    pub(crate) fn new(
        config: &Config,
        folders: &Folders,
        front_end: &str,
        jobs: Arc<Jobs>,
    ) -> Self {
        let call = "Its id. Default: the latest that changed files and is not undone.";
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
            ..Definition::new(NAME, DESCRIPTION, schema)
        });
        let shared = Shared {
            store: store(config, folders),
            config: config.clone(),
            folders: folders.clone(),
            front_end: front_end.to_owned(),
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
        let mut own = saved.into_iter().filter(|entry| *entry.session == *call.session);
        let entry = match &arguments.call {
            Some(id) => own.find(|entry| entry.call == *id),
            None => own.find(|entry| entry.is_next() && !self.is_running(entry)),
        };
        let Some(entry) = entry else {
            let message = match &arguments.call {
                Some(id) => format!(
                    "no changes of the call {:?} are saved in this session",
                    toolhold_contract::text::cut(id, 64)
                ),
                None => "no call of this session is left to undo; changes of timestamps alone are skipped".to_owned(),
            };
            return Err(Failure::new(Category::PermanentFailure, message).with_code("not-found"));
        };
        if self.is_running(&entry) {
            let message = format!("the job that call {} started still runs", entry.call);
            return Err(Failure::new(Category::PermanentFailure, message)
                .with_code("running")
                .with_suggestion("Stop it with job_stop first, or wait for its end."));
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
                // The other calls are undone nevertheless.
                Err(failure) => last_failure = Some(failure),
            }
        }
        match last_failure {
            Some(failure) if text.is_empty() => Err(failure),
            Some(failure) => Ok(Output::text(format!("{text}{}\n", failure.message))),
            None => Ok(Output::text(text)),
        }
    }

    fn undo_one(&self, call: &Call, entry: &UndoEntry) -> Result<String, Failure> {
        let result = self.store.undo(&entry.call);
        let error = result.as_ref().err().map(ToString::to_string);
        let by = format!("call {}", call.id);
        record(&self.config, &self.folders, entry, &by, error.as_deref(), &self.front_end)
            .map_err(|error| {
                Failure::new(Category::PermanentFailure, error.to_string()).with_code("audit")
            })?;
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

/// Describes an undo, with the paths of its changes.
fn describe(entry: &UndoEntry, plan: &UndoPlan) -> String {
    /// Paths that are named.
    const SHOWN: usize = 200;
    let mut text = format!("Undone: {} (call {})\n", entry.tool, entry.call);
    for change in plan.changes.iter().take(SHOWN) {
        let path = change.path.display();
        let _ = match &change.what {
            ChangeKind::MovedBack(from) => {
                writeln!(text, "{path}: {} {}", change.what.as_str(), from.display())
            }
            what => writeln!(text, "{path}: {}", what.as_str()),
        };
    }
    if plan.changes.len() > SHOWN {
        let _ = writeln!(text, "{}", counted(plan.changes.len() - SHOWN, "more path"));
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
