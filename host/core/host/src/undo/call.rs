//! Saves the changes of one call, and undoes them if the rules require it. Also finds written files
//! that other programs run later.

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

use super::{MIB, store};

pub(crate) struct Undo {
    store: UndoStore,
    /// The rules for changes by commands. `None` means that they aren't saved.
    commands: Option<CommandRules>,
}

struct CommandRules {
    save: SaveRules,
    scope: Option<Scope>,
    /// The exit codes after which changes are undone. `None` means that changes are never undone
    /// automatically.
    rollback: Option<Vec<i32>>,
    /// Where `snapshot_required` is configured.
    required_place: String,
    /// Where `auto_rollback` is configured.
    rollback_place: String,
    /// The configuration table with the size limit, for remedies.
    table: OwnTable,
}

pub(crate) struct CallJournal {
    journal: Arc<Journal>,
    about: UndoEntry,
    commands: Option<Arc<dyn ChangeRecorder>>,
    /// Whether the call may run only because its changes can be undone.
    relies_on_undo: bool,
}

/// The exit code of a job that a signal ended.
const NO_EXIT_CODE: i32 = -1;

/// The first exit code that undoes changes by default. Many commands use 1 for a negative answer,
/// such as a search without a match.
const FIRST_ERROR_CODE: i32 = 2;

#[derive(Default)]
pub(crate) struct CallChanges {
    /// The saved changes. `None` means that the call changed nothing.
    pub(crate) saved: Option<SavedChanges>,
    /// A change that was refused because the old state couldn't be saved, and the reason.
    pub(crate) refused: Option<(PathBuf, String)>,
    /// The number of paths that the automatic undo restored. `None` means that there was no
    /// automatic undo.
    pub(crate) undone: Option<Result<usize, UndoError>>,
    /// Files that the call's commands wrote, and that other programs run outside of the sandbox.
    planted: Vec<PathBuf>,
    /// Whether the call relies on undo, and a change couldn't be saved.
    lacks_undo: bool,
}

impl Undo {
    /// Creates the undo of calls, or returns `None` if changes aren't saved.
    ///
    /// # Errors
    ///
    /// [`HostError::Config`] if a pattern isn't a valid glob.
    pub(crate) fn new(config: &Config, folders: &Folders) -> Result<Option<Self>, HostError> {
        let undo = config.values.tools.undo;
        let shell = &config.values.tools.shell;
        if !undo.enabled {
            return Ok(None);
        }
        let scope = config.transaction_scope(folders)?;
        let undo_store = store(config, folders);
        if !shell.transactional {
            return Ok(Some(Self { store: undo_store, commands: None }));
        }

        let call_bytes = match shell.max_snapshot_bytes {
            0 => undo.call_mib.get() * MIB,
            bytes => bytes,
        };
        let rollback =
            if shell.auto_rollback { Some(shell.auto_rollback_exit_codes.clone()) } else { None };
        let commands = CommandRules {
            save: SaveRules { required: shell.snapshot_required, call_bytes },
            scope: scope.map(|globs| Arc::new(move |path: &_| globs.covers(path)) as Scope),
            required_place: config.source("tools.shell.snapshot_required").to_string(),
            rollback_place: config.source("tools.shell.auto_rollback").to_string(),
            table: config.own_table("tools.undo"),
            rollback,
        };
        Ok(Some(Self { store: undo_store, commands: Some(commands) }))
    }

    /// Creates the journal of a call, or returns `None` for a call that only reads.
    /// `relies_on_undo` means that the call may run only because its changes can be undone.
    pub(crate) fn journal(
        &self,
        context: &CallContext,
        turn: Option<u64>,
        relies_on_undo: bool,
    ) -> Option<CallJournal> {
        if !context.acts() {
            return None;
        }
        let name = &context.tool.as_ref()?.definition.name;
        let at = context.started_at;
        let about = UndoEntry::new(&context.id.0, name, &context.session, at).in_turn(turn);
        let journal = Arc::new(self.store.journal(about.clone(), relies_on_undo));
        let mut commands: Option<Arc<dyn ChangeRecorder>> = None;
        if let Some(rules) = &self.commands {
            // `required` means that a change is refused if its old state can't be saved.
            let required = rules.save.required || relies_on_undo;
            let save = SaveRules { required, ..rules.save };
            let journal = Arc::clone(&journal);
            let scope = rules.scope.clone();
            commands = Some(Arc::new(CommandJournal::new(journal, save, scope, relies_on_undo)));
        }
        Some(CallJournal { journal, about, commands, relies_on_undo })
    }

    /// Finishes the journal of a call. Undoes the changes if the rules require it, or if the call
    /// relies on undo and a change couldn't be saved.
    pub(crate) async fn finish(&self, call: CallJournal, report: &Report) -> CallChanges {
        if !call.journal.has_changes() {
            return call.unchanged();
        }
        let code = report.entries().exit_code;
        let is_failed_command = code.is_some_and(|code| self.is_undone_after(code));
        let store = self.store.clone();
        let finishing =
            tokio::task::spawn_blocking(move || call.finish(&store, code, is_failed_command));
        // A call whose task panics counts as unchanged.
        finishing.await.unwrap_or_default()
    }

    /// Finishes the journal of a job, and undoes the changes if the rules require it. Blocks.
    pub(crate) fn finish_job(&self, call: CallJournal, code: Option<i32>) -> CallChanges {
        if !call.journal.has_changes() {
            return call.unchanged();
        }
        let exit_code = code.unwrap_or(NO_EXIT_CODE);
        call.finish(&self.store, Some(exit_code), self.is_undone_after(exit_code))
    }

    /// Checks whether the rules undo the changes of a command with this exit code.
    fn is_undone_after(&self, code: i32) -> bool {
        let Some(rules) = &self.commands else { return false };
        let Some(codes) = &rules.rollback else { return false };
        if codes.is_empty() { code >= FIRST_ERROR_CODE } else { codes.contains(&code) }
    }
}

/// Finds written files that other programs run later, and moved folders with such files.
fn find_planted(store: &UndoStore, call: &str, saved: &SavedChanges) -> Vec<PathBuf> {
    let has_package = saved.written.iter().any(|path| is_package(path));
    let plan = if has_package { store.plan(call).ok() } else { None };
    let planted = saved.written.iter().filter(|path| is_planted(path, plan.as_ref()));
    planted.cloned().collect()
}

/// Checks whether other programs run this written file, or files in this folder, later. `plan` has
/// the old content of written files.
fn is_planted(path: &Path, plan: Option<&UndoPlan>) -> bool {
    // Unpacked packages contain many scripts, and a warning about each helps nobody.
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

/// Checks whether the scripts of a `package.json` have changed, or can't be compared.
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
        let lacks_undo = self.relies_on_undo && refused.is_some();
        CallChanges { refused, lacks_undo, ..CallChanges::default() }
    }

    /// Finishes the journal. Undoes the changes of a failed command, and of a call that relies on
    /// undo if a change couldn't be saved. `code` is the exit code of a command.
    fn finish(self, store: &UndoStore, code: Option<i32>, is_failed_command: bool) -> CallChanges {
        let Self { journal, about, relies_on_undo, .. } = self;
        let refused = journal.refused();
        let lacks_undo = relies_on_undo && refused.is_some();
        let saved = journal.finish();

        let mut undone = None;
        if saved.is_some() && (lacks_undo || is_failed_command) {
            let result = store.undo(&about.call).map(|plan| plan.changes.len());
            if lacks_undo && result.is_ok() {
                // The call may run again with the same ID, so the entry of this run is hidden.
                store.set_aside(&about.call);
            }
            undone = Some(result);
        }

        // Warn only about commands, because only they write files unnoticed. Changes that were
        // undone need no warning.
        let needs_warning = code.is_some() && undone.is_none();
        let planted = match &saved {
            Some(saved) if needs_warning => find_planted(store, &about.call, saved),
            _ => Vec::new(),
        };
        CallChanges { saved, refused, undone, planted, lacks_undo }
    }

    pub(crate) fn recorder(&self) -> Arc<dyn ChangeRecorder> {
        Arc::clone(&self.journal) as _
    }

    /// Converts the journal for a job. Nobody can be asked after the call, so a change that can't
    /// be saved is denied.
    pub(crate) fn for_job(self) -> Self {
        Self { relies_on_undo: false, ..self }
    }

    pub(crate) fn command_recorder(&self) -> Option<Arc<dyn ChangeRecorder>> {
        self.commands.as_ref().map(Arc::clone)
    }
}

impl CallChanges {
    /// Returns the reason for approval if the call relies on undo and a change couldn't be saved.
    /// Otherwise returns `None`.
    pub(crate) fn reason_for_approval(&self) -> Option<String> {
        if !self.lacks_undo {
            return None;
        }
        let (path, why) = self.refused.as_ref()?;
        let shown_path = neutral_line(&path.to_string_lossy());
        let undone = match &self.undone {
            Some(Err(error)) => format!("Undoing the call's earlier changes failed: {error}"),
            Some(Ok(_)) => "The call's earlier changes were undone".to_owned(),
            None => "The call had made no earlier changes".to_owned(),
        };
        Some(format!("the old state of {shown_path} can't be saved for undo: {why}. {undone}"))
    }

    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        self.saved.as_ref().map(|saved| Snapshot {
            paths: saved.paths,
            bytes: saved.bytes,
            lost: saved.lost.len(),
        })
    }

    pub(crate) fn send_events(&self, snapshot: Snapshot, events: &dyn Events) {
        events.snapshot(snapshot);
        if let Some(undone) = &self.undone {
            let paths = undone.as_ref().copied().unwrap_or_default();
            events.rollback(Rollback { paths, succeeded: undone.is_ok() });
        }
    }

    /// Returns the audit entry of an undo or a failed undo, or `None` if there was no undo.
    pub(crate) fn rollback_record<'a>(
        &'a self,
        call: &'a str,
        tool: &'a str,
        session: &'a str,
    ) -> Option<RollbackRecord<'a>> {
        let undone = self.undone.as_ref()?;
        let by = if self.lacks_undo { "autonomy" } else { "auto_rollback" };
        let error = if undone.is_err() { Some("conflicts") } else { None };
        Some(RollbackRecord { call, tool, session, by, error })
    }

    pub(crate) fn notices(&self, undo: Option<&Undo>) -> Vec<String> {
        let commands = undo.and_then(|undo| undo.commands.as_ref());
        let required = commands.map_or("", |rules| &rules.required_place);
        let rollback = commands.map_or("", |rules| &rules.rollback_place);
        let table = commands.map(|rules| rules.table.to_string()).unwrap_or_default();
        let mut notices = Vec::new();
        if let Some((path, why)) = &self.refused {
            notices.push(format!(
                "{} was not changed, because its old state can't be saved for undo: {why}. The \
                 rule: snapshot_required = true ({required}). To save more, raise `call_mib` in \
                 {table}.",
                path.display()
            ));
        }
        if let Some((first, others)) = self.planted.split_first() {
            let more = match others.len() {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            notices.push(format!(
                "Check these files before you continue: the command wrote {}{more}. Other programs \
                 run or obey these files later, outside the sandbox.",
                neutral_line(&first.to_string_lossy())
            ));
        }
        if let Some(saved) = &self.saved
            && let Some(warning) = &saved.warning
        {
            notices.push(format!("{warning}. To store more changes, raise `max_mib` in {table}."));
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
