//! The changes of one call, from its beginning to its end.

use std::path::PathBuf;
use std::sync::Arc;

use berth_audit::RollbackRecord;
use berth_catalogue::CallContext;
use berth_config::{Folders, Loaded};
use berth_contract::{ChangeRecorder, Events, HostError, Report, Rollback, Snapshot};
use berth_undo::{CommandJournal, Journal, SaveRules, SavedChanges, Scope};
use berth_undo::{UndoEntry, UndoError, UndoStore};

use super::store;

/// Saves what the calls of a host change, by its configuration.
pub(crate) struct Undo {
    store: UndoStore,
    /// `None`: what commands change isn't saved.
    commands: Option<CommandRules>,
}

/// The rules for what commands change.
struct CommandRules {
    save: SaveRules,
    scope: Option<Scope>,
    /// Which exit codes undo the changes. `None`: none.
    rollback: Option<Vec<i32>>,
    /// Where `snapshot_required` and `auto_rollback` are set.
    places: [String; 2],
}

/// Saves what one call changes.
pub(crate) struct CallJournal {
    journal: Arc<Journal>,
    about: UndoEntry,
    commands: Option<Arc<dyn ChangeRecorder>>,
}

/// What became of the changes of a call.
#[derive(Default)]
pub(crate) struct CallChanges {
    /// What is saved of them. `None`: the call changed nothing.
    pub(crate) saved: Option<SavedChanges>,
    /// A change that was refused because the old state couldn't be saved.
    pub(crate) refused: Option<(PathBuf, String)>,
    /// The automatic undo, if there was one: the number of paths.
    pub(crate) undone: Option<Result<usize, UndoError>>,
}

impl Undo {
    /// `None`: no changes are saved.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] for a pattern that isn't a valid glob.
    pub(crate) fn new(config: &Loaded, folders: &Folders) -> Result<Option<Self>, HostError> {
        let (undo, shell) = (config.config.tools.undo, &config.config.tools.shell);
        if !undo.enabled {
            return Ok(None);
        }
        let scope = config.transaction_scope(folders)?;
        let call_bytes = match shell.max_snapshot_bytes {
            0 => undo.call_mib.get() << 20,
            bytes => bytes,
        };
        let commands = shell.transactional.then(|| CommandRules {
            save: SaveRules { required: shell.snapshot_required, call_bytes },
            scope: scope.map(|globs| Arc::new(move |path: &_| globs.covers(path)) as Scope),
            places: ["snapshot_required", "auto_rollback"]
                .map(|key| config.source(&format!("tools.shell.{key}")).to_string()),
            rollback: shell.auto_rollback.then(|| shell.auto_rollback_exit_codes.clone()),
        });
        Ok(Some(Self { store: store(config, folders), commands }))
    }

    /// The journal of a call. `None`: it can't change anything.
    pub(crate) fn journal(&self, context: &CallContext) -> Option<CallJournal> {
        let tool = context.tool.as_ref().filter(|_| context.acts())?;
        let (name, at) = (&tool.definition.name, context.started_at);
        let about = UndoEntry::new(&context.id.0, name, &context.session, at);
        let journal = Arc::new(self.store.journal(about.clone(), false));
        let commands = self.commands.as_ref().map(|rules| {
            let journal = Arc::clone(&journal);
            Arc::new(CommandJournal::new(journal, rules.save, rules.scope.clone())) as _
        });
        Some(CallJournal { journal, about, commands })
    }

    /// Ends the journal of a call, and undoes the call if its command failed and the rules want
    /// that.
    pub(crate) async fn finish(&self, call: CallJournal, report: &Report) -> CallChanges {
        let CallJournal { journal, about, .. } = call;
        let refused = journal.refused();
        if !journal.has_changes() {
            return CallChanges { refused, ..CallChanges::default() };
        }
        let code = report.entries().exit_code;
        let undoes = code.is_some_and(|code| self.is_undone(code));
        let store = self.store.clone();
        // It reads what was changed.
        let finished = tokio::task::spawn_blocking(move || {
            let saved = journal.finish();
            let undone = (undoes && saved.is_some())
                .then(|| store.undo(&about.call).map(|plan| plan.changes.len()));
            CallChanges { saved, refused, undone }
        });
        finished.await.unwrap_or_default()
    }

    fn is_undone(&self, code: i32) -> bool {
        let codes = self.commands.as_ref().and_then(|rules| rules.rollback.as_ref());
        codes.is_some_and(|codes| if codes.is_empty() { code >= 2 } else { codes.contains(&code) })
    }
}

impl CallJournal {
    /// Who saves what the call changes itself.
    pub(crate) fn recorder(&self) -> Arc<dyn ChangeRecorder> {
        Arc::clone(&self.journal) as _
    }

    /// Who saves what its commands change.
    pub(crate) fn command_recorder(&self) -> Option<Arc<dyn ChangeRecorder>> {
        self.commands.as_ref().map(Arc::clone)
    }
}

impl CallChanges {
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        self.saved.as_ref().map(|saved| Snapshot {
            paths: saved.paths,
            bytes: saved.bytes,
            lost: saved.lost.len(),
        })
    }

    /// Tells whoever watches the call.
    pub(crate) fn tell(&self, snapshot: Snapshot, events: &dyn Events) {
        events.snapshot(snapshot);
        if let Some(undone) = &self.undone {
            let paths = undone.as_ref().copied().unwrap_or_default();
            events.rollback(Rollback { paths, succeeded: undone.is_ok() });
        }
    }

    /// The record of the automatic undo.
    pub(crate) fn rollback_record<'a>(
        &'a self,
        context: &'a CallContext,
    ) -> Option<RollbackRecord<'a>> {
        self.undone.as_ref().map(|undone| RollbackRecord {
            call: &context.id.0,
            tool: &context.requested_tool,
            session: &context.session,
            by: "auto_rollback",
            error: undone.as_ref().err().map(|_| "conflicts"),
        })
    }

    /// Notices for whoever reads the answer.
    pub(crate) fn notices(&self, undo: Option<&Undo>) -> Vec<String> {
        let commands = undo.and_then(|undo| undo.commands.as_ref());
        let [required, rollback] =
            commands.map_or(["", ""], |rules| rules.places.each_ref().map(String::as_str));
        let mut notices = Vec::new();
        if let Some((path, why)) = &self.refused {
            notices.push(format!(
                "Not changed, because the old state can't be saved: {}: {why}. The rule: snapshot_required = true ({required}). To save more, raise `call_mib` in [tools.undo] of berth.toml.",
                path.display()
            ));
        }
        match &self.undone {
            Some(Ok(paths)) => notices.push(format!(
                "The command failed, so its changes were undone: {paths} {}. The rule: auto_rollback = true ({rollback}).",
                if *paths == 1 { "path" } else { "paths" }
            )),
            Some(Err(error)) => notices.push(format!(
                "The command failed, but its changes could not be undone: {error}"
            )),
            None => {}
        }
        notices
    }
}
