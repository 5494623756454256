//! Saves the changes of one call, and undoes them if its command failed and the rules require this.
//! Also lists the written files that other programs run later.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toolhold_audit::RollbackRecord;
use toolhold_catalogue::CallContext;
use toolhold_config::{Config, Folders};
use toolhold_contract::text::{counted, neutral_line};
use toolhold_contract::{ChangeRecorder, Events, HostError, Report, Rollback, Snapshot};
use toolhold_policy::OwnTable;
use toolhold_policy::planted::{is_unpacked, link_runs_later, runs_later};
use toolhold_undo::{CommandJournal, Journal, SaveRules, SavedChanges, Scope};
use toolhold_undo::{UndoEntry, UndoError, UndoPlan, UndoStore};

use serde_json::Value;

use super::store;

/// Saves the changes of a host's calls according to its configuration.
pub(crate) struct Undo {
    store: UndoStore,
    /// The rules for commands. `None` if the changes of commands aren't saved.
    commands: Option<CommandRules>,
}

/// The rules for what commands change.
struct CommandRules {
    save: SaveRules,
    scope: Option<Scope>,
    /// The exit codes that undo the changes. `None` if no exit code does.
    rollback: Option<Vec<i32>>,
    /// Where `snapshot_required` and `auto_rollback` are set.
    places: [String; 2],
    /// The table of the bound, for remedies.
    table: OwnTable,
}

/// Saves the changes of one call.
pub(crate) struct CallJournal {
    journal: Arc<Journal>,
    about: UndoEntry,
    commands: Option<Arc<dyn ChangeRecorder>>,
    relies: bool,
}

/// The outcome for the changes of a call.
#[derive(Default)]
pub(crate) struct CallChanges {
    /// The saved part of the changes. `None` if the call changed nothing.
    pub(crate) saved: Option<SavedChanges>,
    /// A change that was refused because the old state couldn't be saved.
    pub(crate) refused: Option<(PathBuf, String)>,
    /// The number of paths that the automatic undo restored. `None` if there was no automatic undo.
    pub(crate) undone: Option<Result<usize, UndoError>>,
    /// Files that the call's commands wrote and that run later outside of the sandbox.
    planted: Vec<PathBuf>,
    /// Whether the call relies on undo, and changes more than can be saved.
    is_over: bool,
}

impl Undo {
    /// Makes the store of undo. Returns `None` if no changes are saved.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] for a pattern that isn't a valid glob.
    pub(crate) fn new(config: &Config, folders: &Folders) -> Result<Option<Self>, HostError> {
        let undo = config.values.tools.undo;
        let shell = &config.values.tools.shell;
        if !undo.enabled {
            return Ok(None);
        }
        let scope = config.transaction_scope(folders)?;
        let call_bytes = match shell.max_snapshot_bytes {
            0 => undo.call_mib.get() << 20,
            bytes => bytes,
        };
        let undo_store = store(config, folders);
        if !shell.transactional {
            return Ok(Some(Self { store: undo_store, commands: None }));
        }
        let rollback =
            if shell.auto_rollback { Some(shell.auto_rollback_exit_codes.clone()) } else { None };
        let commands = CommandRules {
            save: SaveRules { required: shell.snapshot_required, call_bytes },
            scope: scope.map(|globs| Arc::new(move |path: &_| globs.covers(path)) as Scope),
            places: ["snapshot_required", "auto_rollback"]
                .map(|key| config.source(&format!("tools.shell.{key}")).to_string()),
            table: config.own_table("tools.undo"),
            rollback,
        };
        Ok(Some(Self { store: undo_store, commands: Some(commands) }))
    }

    /// Makes the journal of a call. Returns `None` if the call can't change anything. `turn` is the
    /// turn of the agent. `relies` means that the call may run only because its changes can be
    /// undone.
    pub(crate) fn journal(
        &self,
        context: &CallContext,
        turn: Option<u64>,
        relies: bool,
    ) -> Option<CallJournal> {
        if !context.acts() {
            return None;
        }
        let name = &context.tool.as_ref()?.definition.name;
        let at = context.started_at;
        let about = UndoEntry::new(&context.id.0, name, &context.session, at).in_turn(turn);
        let journal = Arc::new(self.store.journal(about.clone(), relies));
        let commands = self.commands.as_ref().map(|rules| {
            let journal = Arc::clone(&journal);
            let save = SaveRules { required: rules.save.required || relies, ..rules.save };
            Arc::new(CommandJournal::new(journal, save, rules.scope.clone(), relies)) as _
        });
        Some(CallJournal { journal, about, commands, relies })
    }

    /// Ends the journal of a call. Undoes the changes if the command failed and the rules require
    /// this. Also undoes them if the call relies on undo and a change couldn't be saved.
    pub(crate) async fn finish(&self, call: CallJournal, report: &Report) -> CallChanges {
        if !call.journal.has_changes() {
            return call.unchanged();
        }
        let code = report.entries().exit_code;
        let undoes = code.is_some_and(|code| self.is_undone(code));
        let store = self.store.clone();
        // Ending the journal reads the changed files.
        let finishing = tokio::task::spawn_blocking(move || call.finish(&store, code, undoes));
        finishing.await.unwrap_or_default()
    }

    /// Ends the journal like [`finish`](Self::finish), for a command that continued after its call.
    /// Blocks.
    pub(crate) fn finish_job(&self, call: CallJournal, code: Option<i32>) -> CallChanges {
        if !call.journal.has_changes() {
            return call.unchanged();
        }
        let code = code.unwrap_or(-1);
        call.finish(&self.store, Some(code), self.is_undone(code))
    }

    /// Checks whether the rules undo the changes of a command with this exit code.
    fn is_undone(&self, code: i32) -> bool {
        let Some(rules) = &self.commands else { return false };
        let Some(codes) = &rules.rollback else { return false };
        // An empty list means all codes from 2 on.
        if codes.is_empty() { code >= 2 } else { codes.contains(&code) }
    }
}

/// Finds files that a command wrote and that run later. Also finds folders that the command moved
/// to a path of such files.
fn find_planted(store: &UndoStore, call: &str, saved: &SavedChanges) -> Vec<PathBuf> {
    let has_package = saved.written.iter().any(|path| is_package(path));
    let plan = if has_package { store.plan(call).ok() } else { None };
    let planted = saved.written.iter().filter(|path| is_planted(path, plan.as_ref()));
    planted.cloned().collect()
}

fn is_planted(path: &Path, plan: Option<&UndoPlan>) -> bool {
    if is_unpacked(path) {
        return false;
    }
    if runs_later(path) {
        return true;
    }
    if is_package(path) && has_new_scripts(plan, path) {
        return true;
    }
    let may_contain_files = path.is_symlink() || path.is_dir();
    may_contain_files && link_runs_later(path)
}

fn is_package(path: &Path) -> bool {
    path.ends_with("package.json")
}

/// Checks whether the scripts of a package may have changed.
fn has_new_scripts(plan: Option<&UndoPlan>, path: &Path) -> bool {
    let Some(plan) = plan else { return true };
    let mut changes = plan.changes.iter().filter(|change| change.path == path);
    match changes.find_map(|change| change.texts.as_ref()) {
        Some((now, before)) => scripts(now) != scripts(before),
        None => true,
    }
}

fn scripts(package: &str) -> Option<Value> {
    serde_json::from_str::<Value>(package).ok()?.get("scripts").cloned()
}

impl CallJournal {
    fn unchanged(&self) -> CallChanges {
        let refused = self.journal.refused();
        let is_over = self.relies && refused.is_some();
        CallChanges { refused, is_over, ..CallChanges::default() }
    }

    /// Ends the journal. `undoes` means that the exit code undoes the changes.
    fn finish(self, store: &UndoStore, code: Option<i32>, undoes: bool) -> CallChanges {
        let Self { journal, about, relies, .. } = self;
        let refused = journal.refused();
        let is_over = relies && refused.is_some();
        let saved = journal.finish();
        let has_to_undo = is_over || undoes;
        let undone = if has_to_undo && saved.is_some() {
            Some(store.undo(&about.call).map(|plan| plan.changes.len()))
        } else {
            None
        };
        if is_over && matches!(undone, Some(Ok(_))) {
            // The call may run again.
            store.set_aside(&about.call);
        }
        let planted = match &saved {
            Some(saved) if code.is_some() && undone.is_none() => {
                find_planted(store, &about.call, saved)
            }
            _ => Vec::new(),
        };
        CallChanges { saved, refused, undone, planted, is_over }
    }

    /// Returns the recorder of the changes that the call makes itself.
    pub(crate) fn recorder(&self) -> Arc<dyn ChangeRecorder> {
        Arc::clone(&self.journal) as _
    }

    /// Returns the journal for a command that continues after its call. If the call relies on undo,
    /// a change that can't be saved is denied. Approval isn't possible because the call is over.
    pub(crate) fn for_job(self) -> Self {
        Self { relies: false, ..self }
    }

    /// Returns the recorder for the changes by the call's commands.
    pub(crate) fn command_recorder(&self) -> Option<Arc<dyn ChangeRecorder>> {
        self.commands.as_ref().map(Arc::clone)
    }
}

impl CallChanges {
    /// Returns the reason why the call needs approval. Approval is needed if the call relies on
    /// undo and changes data that can't be saved.
    pub(crate) fn question(&self) -> Option<String> {
        if !self.is_over {
            return None;
        }
        let (path, why) = self.refused.as_ref()?;
        let path = neutral_line(&path.to_string_lossy());
        let undone = match &self.undone {
            Some(Err(error)) => format!("Undoing its earlier changes failed: {error}"),
            Some(Ok(_)) => "Its earlier changes were undone".to_owned(),
            None => "The call had changed nothing before".to_owned(),
        };
        Some(format!("the old state of {path} can't be saved: {why}. {undone}"))
    }

    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        self.saved.as_ref().map(|saved| Snapshot {
            paths: saved.paths,
            bytes: saved.bytes,
            lost: saved.lost.len(),
        })
    }

    /// Reports the changes to the observer of the call.
    pub(crate) fn tell(&self, snapshot: Snapshot, events: &dyn Events) {
        events.snapshot(snapshot);
        if let Some(undone) = &self.undone {
            let paths = undone.as_ref().copied().unwrap_or_default();
            events.rollback(Rollback { paths, succeeded: undone.is_ok() });
        }
    }

    /// Makes the audit record of the automatic undo, if there was one.
    pub(crate) fn rollback_record<'a>(
        &'a self,
        call: &'a str,
        tool: &'a str,
        session: &'a str,
    ) -> Option<RollbackRecord<'a>> {
        self.undone.as_ref().map(|undone| RollbackRecord {
            call,
            tool,
            session,
            by: if self.is_over { "autonomy" } else { "auto_rollback" },
            error: undone.as_ref().err().map(|_| "conflicts"),
        })
    }

    /// Writes the notices for the reader of the answer.
    pub(crate) fn notices(&self, undo: Option<&Undo>) -> Vec<String> {
        let commands = undo.and_then(|undo| undo.commands.as_ref());
        let [required, rollback] =
            commands.map_or(["", ""], |rules| rules.places.each_ref().map(String::as_str));
        let table = commands.map(|rules| rules.table.to_string()).unwrap_or_default();
        let mut notices = Vec::new();
        if let Some((path, why)) = &self.refused {
            notices.push(format!(
                "Not changed, because the old state can't be saved: {}: {why}. The rule: snapshot_required = true ({required}). To save more, raise `call_mib` in {table}.",
                path.display()
            ));
        }
        if let Some((first, others)) = self.planted.split_first() {
            let more = match others.len() {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            notices.push(format!(
                "Check this before you continue: the command wrote {}{more}, which other programs run or obey later, outside the sandbox.",
                neutral_line(&first.to_string_lossy())
            ));
        }
        if let Some(saved) = &self.saved
            && let Some(warning) = &saved.warning
        {
            notices.push(format!("{warning}. To keep more, raise `max_mib` in {table}."));
        }
        match &self.undone {
            Some(Ok(paths)) => notices.push(format!(
                "The command failed, so its changes were undone: {}. The rule: auto_rollback = true ({rollback}).",
                counted(*paths, "path")
            )),
            Some(Err(error)) => notices.push(format!(
                "The command failed, but its changes could not be undone: {error}"
            )),
            None => {}
        }
        notices
    }
}
