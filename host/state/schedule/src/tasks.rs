//! Stores the scheduled tasks of an owner within quotas.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rusqlite::{Connection, OptionalExtension as _, Row, TransactionBehavior, params};
use serde::Serialize;
use toolhold_contract::text::{cut, neutral_line};
use toolhold_contract::{TaskAction, TaskOrder, TaskRun, TaskState};
use toolhold_data_dir::PrivateFolder;

use crate::alarm::Alarm;
use crate::error::{ScheduleError, TaskLimitError, TaskOrderError, TaskQuotaError};
use crate::maker::Maker;
use crate::when::{When, WhenError, find_zone, machine_zone};
use crate::{MAX_ARGUMENTS, MAX_NAME, MAX_PROMPT, MAX_RUNS, MAX_TASKS, connection};

const FILE: &str = "tasks.db";

/// Bytes of the longest process ID in the lock file.
const MAX_PROCESS_ID: u64 = 20;

/// The lock of the process that runs the tasks.
const RUNNER: &str = "runner.lock";

/// The owner of tasks. An owner sees and changes only its own tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// The plugin that created the tasks.
    pub plugin: String,
    /// The principal of the calls that created the tasks.
    pub principal: String,
    /// The real path of the working directory of the tasks.
    pub directory: String,
}

impl Owner {
    /// The principal for the user of this process.
    pub const USER: &'static str = "user";

    /// Returns the principal if it is a caller of a server. Returns `None` for the user.
    pub fn served(&self) -> Option<&str> {
        let is_user = self.principal == Self::USER;
        if is_user { None } else { Some(self.principal.as_str()) }
    }
}

/// Limits of an owner's tasks, in addition to [`MAX_TASKS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// The most tasks of the plugin, for all principals.
    pub of_plugin: u64,
    /// The most tasks of the principal, from all plugins.
    pub of_principal: u64,
    /// The shortest time between two runs of a task, in seconds.
    pub interval: u64,
}

/// A task that was just stored.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptTask {
    /// The task.
    pub state: TaskState,
    /// Whether the task replaced a task with the same name.
    pub has_replaced: bool,
    /// Finished tasks that were removed because a quota was reached.
    pub gave_way: Vec<Listed>,
}

/// A task with its owner.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listed {
    /// The number of the task. It is never used for another task.
    pub id: i64,
    /// The owner of the task.
    #[serde(flatten)]
    pub owner: Owner,
    /// The task.
    #[serde(flatten)]
    pub state: TaskState,
}

impl Listed {
    /// Checks whether the task isn't paused and has a next time.
    pub fn is_waiting(&self) -> bool {
        !self.state.paused && self.state.next.is_some()
    }
}

/// The process that runs the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RunnerProcess {
    /// The process ID. `None` while a new runner hasn't written it yet.
    pub id: Option<u32>,
}

impl fmt::Display for RunnerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "process {id}"),
            None => f.write_str("another process"),
        }
    }
}

/// The tasks of a user. The first operation opens or creates the file. All operations block.
pub struct Schedule {
    folder: PathBuf,
    connection: Mutex<Option<Connection>>,
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schedule").field(&self.folder).finish()
    }
}

/// The columns that [`read_listed`] reads.
pub(crate) const COLUMNS: &str = "id, owner, principal, directory, name, maker, made, kind, spec, zone, missed, action, next, paused";

const OF_OWNER: &str = "owner = ?1 AND principal = ?2 AND directory = ?3";

impl Schedule {
    /// Makes the schedule in Toolhold's data folder. Opens no file.
    pub fn in_data(data: &Path) -> Self {
        Self { folder: data.join("schedule"), connection: Mutex::new(None) }
    }

    /// Waits until this process is the only process of the user that runs tasks. Dropping the
    /// returned file ends this role. If the process dies, another process takes over.
    ///
    /// # Errors
    ///
    /// Fails if the folder can't be used.
    pub fn become_runner(&self) -> Result<File, ScheduleError> {
        let mut lock =
            self.open_private_folder()?.lock(RUNNER).map_err(|error| self.unusable(&error))?;
        let number = std::process::id().to_string();
        lock.set_len(0)
            .and_then(|()| lock.write_all(number.as_bytes()))
            .map_err(|error| self.unusable(&error))?;
        Ok(lock)
    }

    /// Returns the process that runs the tasks, if there is one. Creates no file.
    ///
    /// # Errors
    ///
    /// Fails if the folder can't be used.
    pub fn runner(&self) -> Result<Option<RunnerProcess>, ScheduleError> {
        let file = PrivateFolder::open(&self.folder).and_then(|folder| folder.file(RUNNER));
        let mut file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.unusable(&error)),
        };
        // The lock is shared, because two processes that check at the same time must not take each
        // other for the runner.
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::Error(error)) => Err(self.unusable(&error)),
            Err(TryLockError::WouldBlock) => {
                let mut number = String::new();
                (&mut file)
                    .take(MAX_PROCESS_ID)
                    .read_to_string(&mut number)
                    .map_err(|error| self.unusable(&error))?;
                Ok(Some(RunnerProcess { id: number.parse().ok() }))
            }
        }
    }

    /// Checks whether the database exists.
    pub fn is_there(&self) -> bool {
        // The file isn't opened, because closing it releases the locks of this process's
        // connection.
        self.folder.join(FILE).exists()
    }

    /// Makes the alarm that wakes the runner.
    ///
    /// # Errors
    ///
    /// Fails if the folder can't be watched, or if the system has no such timer.
    pub fn alarm(&self) -> Result<Alarm, ScheduleError> {
        self.open_private_folder()?;
        Alarm::new(&self.folder).map_err(|error| self.unusable(&error))
    }

    /// Stores a task. A task of the owner with the same name is replaced, and its runs stay. At a
    /// quota, finished tasks of the plugin and the principal are removed.
    ///
    /// # Errors
    ///
    /// Returns an error if the task isn't valid, a quota is exhausted, or the database can't be
    /// written.
    pub fn put(
        &self,
        owner: &Owner,
        maker: &Maker,
        mut order: TaskOrder,
        quotas: Quotas,
        now: Timestamp,
    ) -> Result<KeptTask, ScheduleError> {
        let next = check(&mut order, quotas, now)?;
        let action = serde_json::to_string(&order.action).map_err(TaskOrderError::from)?;
        let maker = serde_json::to_string(maker).map_err(TaskOrderError::from)?;
        let kept = self.run(|connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let is_new = !transaction
                .prepare_cached(&format!("SELECT 1 FROM tasks WHERE {OF_OWNER} AND name = ?4"))?
                .exists(params![owner.plugin, owner.principal, owner.directory, order.name])?;
            let gave_way =
                if is_new { make_room(&transaction, owner, quotas)? } else { Vec::new() };
            transaction
                .prepare_cached(
                    "INSERT INTO tasks
                         (owner, principal, directory, name, maker, made, kind, spec, zone, missed,
                          action, next)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
                     ON CONFLICT (owner, principal, directory, name) DO UPDATE SET
                         maker = excluded.maker, made = excluded.made, kind = excluded.kind,
                         spec = excluded.spec, zone = excluded.zone, missed = excluded.missed,
                         action = excluded.action, next = excluded.next, last = NULL,
                         paused = 0, asked = 0",
                )?
                .execute(params![
                    owner.plugin,
                    owner.principal,
                    owner.directory,
                    order.name,
                    maker,
                    now.as_millisecond(),
                    order.kind,
                    order.when,
                    order.zone,
                    order.missed,
                    action,
                    next.as_millisecond(),
                ])?;
            let listed = find(&transaction, owner, &order.name)?;
            transaction.commit()?;
            let state = listed.ok_or(ScheduleError::RemovedMeanwhile)?.state;
            Ok(KeptTask { state, has_replaced: !is_new, gave_way })
        })?;
        self.ring();
        Ok(kept)
    }

    /// Changes only the times of a task. The maker, the action, the bounds and a pause stay. Only
    /// the name and the times of `order` are used.
    ///
    /// # Errors
    ///
    /// Fails if the owner has no such task, if the times aren't valid, or if the database can't be
    /// written.
    pub fn change_times(
        &self,
        owner: &Owner,
        mut order: TaskOrder,
        quotas: Quotas,
        now: Timestamp,
    ) -> Result<TaskState, ScheduleError> {
        let next = check(&mut order, quotas, now)?;
        let state = self.run(|connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction
                .prepare_cached(&format!(
                    "UPDATE tasks SET made = ?5, kind = ?6, spec = ?7, zone = ?8, next = ?9,
                         last = NULL WHERE {OF_OWNER} AND name = ?4"
                ))?
                .execute(params![
                    owner.plugin,
                    owner.principal,
                    owner.directory,
                    order.name,
                    now.as_millisecond(),
                    order.kind,
                    order.when,
                    order.zone,
                    next.as_millisecond(),
                ])?;
            let listed = find(&transaction, owner, &order.name)?;
            transaction.commit()?;
            Ok(listed.ok_or(ScheduleError::RemovedMeanwhile)?.state)
        })?;
        self.ring();
        Ok(state)
    }

    /// Removes a task with its runs. Returns `false` if the owner has no task with this name.
    ///
    /// # Errors
    ///
    /// Fails if the database can't be written.
    pub fn remove(&self, owner: &Owner, name: &str) -> Result<bool, ScheduleError> {
        let removed = self.run(|connection| {
            let mut statement = connection
                .prepare_cached(&format!("DELETE FROM tasks WHERE {OF_OWNER} AND name = ?4"))?;
            let parameters = params![owner.plugin, owner.principal, owner.directory, name];
            let removed_rows = statement.execute(parameters)?;
            Ok(removed_rows > 0)
        })?;
        self.ring();
        Ok(removed)
    }

    /// Pauses or resumes a task. Times during the pause are skipped. Returns `false` if the owner
    /// has no task with this name.
    ///
    /// # Errors
    ///
    /// Fails if the database can't be written.
    pub fn pause(
        &self,
        owner: &Owner,
        name: &str,
        paused: bool,
        now: Timestamp,
    ) -> Result<bool, ScheduleError> {
        let changed = self.run(|connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(listed) = find(&transaction, owner, name)? else { return Ok(false) };
            transaction
                .prepare_cached("UPDATE tasks SET paused = ?2 WHERE id = ?1")?
                .execute(params![listed.id, paused])?;
            let is_resumed = !paused && listed.state.paused;
            if is_resumed {
                skip_paused_times(&transaction, listed.id, now)?;
            }
            transaction.commit()?;
            Ok(true)
        })?;
        self.ring();
        Ok(changed)
    }

    /// Requests an additional run of a task as soon as possible. Returns `false` if the owner has
    /// no task with this name.
    ///
    /// # Errors
    ///
    /// Fails if the database can't be written.
    pub fn run_soon(&self, owner: &Owner, name: &str) -> Result<bool, ScheduleError> {
        let changed = self.run(|connection| {
            let mut statement = connection.prepare_cached(&format!(
                "UPDATE tasks SET asked = 1 WHERE {OF_OWNER} AND name = ?4"
            ))?;
            let parameters = params![owner.plugin, owner.principal, owner.directory, name];
            let changed_rows = statement.execute(parameters)?;
            Ok(changed_rows > 0)
        })?;
        self.ring();
        Ok(changed)
    }

    /// Returns the tasks of an owner, or of all owners, sorted by name. Each task has its last run.
    ///
    /// # Errors
    ///
    /// Returns an error if the database can't be read.
    pub fn tasks(&self, owner: Option<&Owner>) -> Result<Vec<Listed>, ScheduleError> {
        self.run(|connection| {
            let condition = if owner.is_some() { OF_OWNER } else { "true" };
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM tasks WHERE {condition}
                 ORDER BY name, directory, owner, principal"
            ))?;
            let rows = match owner {
                Some(owner) => statement.query_map(
                    params![owner.plugin, owner.principal, owner.directory],
                    read_listed,
                )?,
                None => statement.query_map([], read_listed)?,
            };
            let mut tasks = rows.collect::<Result<Vec<_>, _>>()?;
            let only_last = 1;
            for task in &mut tasks {
                task.state.last = runs(connection, task.id, only_last)?.pop();
            }
            Ok(tasks)
        })
    }

    /// Returns the last runs of a task, the latest first.
    ///
    /// # Errors
    ///
    /// Returns an error if the database can't be read.
    pub fn runs_of(&self, owner: &Owner, name: &str) -> Result<Vec<TaskRun>, ScheduleError> {
        self.run(|connection| match find(connection, owner, name)? {
            Some(listed) => runs(connection, listed.id, MAX_RUNS),
            None => Ok(Vec::new()),
        })
    }

    /// Wakes the runner after a change of the tasks or the end of a run.
    pub fn ring(&self) {
        // The change is already stored. If this signal fails, the runner notices the change within
        // an hour.
        let _ = self.open_private_folder().map(|folder| Alarm::ring(&folder));
    }

    fn open_private_folder(&self) -> Result<PrivateFolder, ScheduleError> {
        let private = PrivateFolder::make(&self.folder).map_err(|error| self.unusable(&error))?;
        // SQLite opens the file by its path. No other user must be able to enter the folder and
        // replace the file.
        private.check_closed().map_err(|error| self.unusable(&error))?;
        Ok(private)
    }

    fn unusable(&self, error: &io::Error) -> ScheduleError {
        ScheduleError::Unavailable { path: self.folder.clone(), reason: error.to_string() }
    }

    /// Runs an operation on the database. The first operation opens the database.
    pub(crate) fn run<T>(
        &self,
        operation: impl FnOnce(&mut Connection) -> Result<T, ScheduleError>,
    ) -> Result<T, ScheduleError> {
        // A panicked operation was rolled back, so the lock can still be used.
        let mut open_connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.folder.join(FILE);
        let connection = match &mut *open_connection {
            Some(connection) => connection,
            none => {
                self.open_private_folder()?;
                let new_connection = connection::open(&path).map_err(|error| error.at(&path))?;
                none.insert(new_connection)
            }
        };
        operation(connection).map_err(|error| error.at(&path))
    }
}

/// Checks a task and returns its first time. Replaces a duration in `order` by the time at which it
/// ends, and a missing zone by the machine's zone.
fn check(
    order: &mut TaskOrder,
    quotas: Quotas,
    now: Timestamp,
) -> Result<Timestamp, ScheduleError> {
    check_name(&order.name)?;
    match &order.action {
        TaskAction::Call { arguments, .. } => {
            let size = arguments.to_string().len();
            if size > MAX_ARGUMENTS {
                return Err(TaskOrderError::LongArguments(size).into());
            }
        }
        TaskAction::Prompt(text) if text.trim().is_empty() => {
            return Err(TaskOrderError::EmptyPrompt.into());
        }
        TaskAction::Prompt(text) if text.len() > MAX_PROMPT => {
            return Err(TaskOrderError::LongPrompt(text.len()).into());
        }
        TaskAction::Prompt(_) => {}
    }
    if !matches!(order.missed.as_str(), "once" | "all" | "skip") {
        let shown = neutral_line(cut(&order.missed, MAX_NAME));
        return Err(TaskOrderError::Missed(shown).into());
    }
    // The process that runs or shows the task may have another time zone, so this zone is stored.
    order.zone = order.zone.take().or_else(machine_zone);
    let zone = order.zone.as_deref();
    let when = When::parse(&order.kind, &order.when, zone, now).map_err(TaskOrderError::from)?;
    match &when {
        When::Once(at) => order.when = at.to_string(),
        _ => {
            let least = i64::try_from(quotas.interval).unwrap_or(i64::MAX);
            if let Some(period) = when.shortest_period(now)
                && period.as_secs() < least
            {
                return Err(TaskLimitError::Period { period: period.as_secs(), least }.into());
            }
        }
    }
    when.next(now).ok_or_else(|| TaskOrderError::NeverRuns(order.when.trim().to_owned()).into())
}

/// Sets the next time of a resumed task to a time after `now`.
fn skip_paused_times(
    connection: &Connection,
    id: i64,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    let repeating = match read_when(connection, id)? {
        // A task that runs once keeps its time, so that it runs late instead of never. The runner
        // reports unreadable times.
        Ok(When::Once(_)) | Err(_) => return Ok(()),
        Ok(repeating) => repeating,
    };
    let next = repeating.next(now);
    connection
        .prepare_cached("UPDATE tasks SET next = ?2 WHERE id = ?1")?
        .execute(params![id, next.map(Timestamp::as_millisecond)])?;
    Ok(())
}

/// Checks the length and the characters of a task's name. A space at the start or the end isn't
/// allowed.
fn check_name(name: &str) -> Result<(), TaskOrderError> {
    let has_valid_length = (1..=MAX_NAME).contains(&name.chars().count());
    let has_valid_characters =
        name.chars().all(|c| c.is_ascii_alphanumeric() || "._- ".contains(c));
    if !has_valid_length || !has_valid_characters || name.trim() != name {
        return Err(TaskOrderError::Name);
    }
    Ok(())
}

/// Removes finished tasks of the plugin and the principal until a new task is within the quotas.
/// Returns the removed tasks. A task with a next time or an unfinished run is never removed.
///
/// Tasks of the same directory are removed first, in the order in which they ended. Tasks whose
/// last run was denied are removed last, because a person may still allow them.
fn make_room(
    connection: &Connection,
    owner: &Owner,
    quotas: Quotas,
) -> Result<Vec<Listed>, ScheduleError> {
    let mut removed_tasks = Vec::new();
    loop {
        let limit = match check_quotas(connection, owner, quotas) {
            Ok(()) => return Ok(removed_tasks),
            Err(ScheduleError::Limit(limit)) => limit,
            Err(error) => return Err(error),
        };
        let oldest = connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS} FROM tasks
                 WHERE owner = ?1 AND principal = ?2 AND kind = 'once' AND next IS NULL
                     AND asked = 0 AND NOT EXISTS
                         (SELECT 1 FROM runs WHERE task = tasks.id AND ended IS NULL)
                 ORDER BY
                     (SELECT state FROM runs WHERE task = tasks.id ORDER BY id DESC LIMIT 1)
                         = 'denied',
                     directory != ?3,
                     (SELECT max(ended) FROM runs WHERE task = tasks.id), last, id LIMIT 1"
            ))?
            .query_row([&owner.plugin, &owner.principal, &owner.directory], read_listed)
            .optional()?
            // The caller rolls back, so no task is removed if the new task isn't stored.
            .ok_or(ScheduleError::Limit(limit))?;
        connection.prepare_cached("DELETE FROM tasks WHERE id = ?1")?.execute([oldest.id])?;
        removed_tasks.push(oldest);
    }
}

/// Checks whether a further task of the owner is within the quotas. The error also has the number
/// of tasks in the owner's directory.
fn check_quotas(
    connection: &Connection,
    owner: &Owner,
    quotas: Quotas,
) -> Result<(), ScheduleError> {
    let (all, of_plugin, of_principal, here): (u64, u64, u64, u64) = connection
        .prepare_cached(&format!(
            "SELECT count(*), count(*) FILTER (WHERE owner = ?1),
                 count(*) FILTER (WHERE principal = ?2), count(*) FILTER (WHERE {OF_OWNER})
                 FROM tasks"
        ))?
        .query_row([&owner.plugin, &owner.principal, &owner.directory], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?;
    let quota = if all >= MAX_TASKS {
        TaskQuotaError::All(all)
    } else if of_plugin >= quotas.of_plugin {
        let plugin = owner.plugin.clone();
        TaskQuotaError::Plugin { plugin, tasks: of_plugin, limit: quotas.of_plugin }
    } else if of_principal >= quotas.of_principal {
        TaskQuotaError::Principal { tasks: of_principal, limit: quotas.of_principal }
    } else {
        return Ok(());
    };
    Err(TaskLimitError::Tasks { quota, here }.into())
}

fn find(
    connection: &Connection,
    owner: &Owner,
    name: &str,
) -> Result<Option<Listed>, ScheduleError> {
    let mut statement = connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM tasks WHERE {OF_OWNER} AND name = ?4"))?;
    let parameters = params![owner.plugin, owner.principal, owner.directory, name];
    Ok(statement.query_row(parameters, read_listed).optional()?)
}

/// Reads the times of a task. The outer error means that the database failed. The inner error means
/// that the stored zone or expression isn't valid any more.
pub(crate) fn read_when(
    connection: &Connection,
    id: i64,
) -> Result<Result<When, WhenError>, ScheduleError> {
    let (kind, spec, zone, made) = connection
        .prepare_cached("SELECT kind, spec, zone, made FROM tasks WHERE id = ?1")?
        .query_row([id], |row| {
            Ok((text(row, 0)?, text(row, 1)?, optional_text(row, 2)?, row.get(3)?))
        })?;
    Ok(When::parse(&kind, &spec, zone.as_deref(), moment(made)))
}

pub(crate) fn moment(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn shown(milliseconds: i64, zone: &TimeZone) -> String {
    let moment = moment(milliseconds.div_euclid(1000).saturating_mul(1000));
    moment.display_with_offset(zone.to_offset(moment)).to_string()
}

/// Returns the text of a column. Other bytes than UTF-8 are replaced, so that they don't make the
/// other tasks unreadable.
pub(crate) fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(optional_text(row, column)?.unwrap_or_default())
}

fn optional_text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    let bytes = row.get_ref(column)?.as_bytes_or_null().map_err(rusqlite::Error::from)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

/// Reads a row with the columns of [`COLUMNS`]. The last run isn't read.
pub(crate) fn read_listed(row: &Row<'_>) -> rusqlite::Result<Listed> {
    let zone = optional_text(row, 9)?;
    let next: Option<i64> = row.get(12)?;
    // A zone that no longer exists is shown as UTC.
    let in_zone = find_zone(zone.as_deref()).unwrap_or(TimeZone::UTC);
    let kind = text(row, 7)?;
    let mut when = text(row, 8)?;
    // The time is stored in UTC, but shown in the zone of the task.
    if kind == "once"
        && let Ok(at) = when.parse::<Timestamp>()
    {
        when = shown(at.as_millisecond(), &in_zone);
    }
    // An unreadable action is shown as an empty prompt.
    let action =
        serde_json::from_str(&text(row, 11)?).unwrap_or_else(|_| TaskAction::Prompt(String::new()));
    Ok(Listed {
        id: row.get(0)?,
        owner: Owner { plugin: text(row, 1)?, principal: text(row, 2)?, directory: text(row, 3)? },
        state: TaskState {
            order: TaskOrder {
                name: text(row, 4)?,
                kind,
                when,
                zone,
                missed: text(row, 10)?,
                action,
            },
            next: next.map(|next| shown(next, &in_zone)),
            paused: row.get(13)?,
            last: None,
        },
    })
}

/// Returns at most `most` last runs of a task, the latest first.
fn runs(connection: &Connection, task: i64, most: usize) -> Result<Vec<TaskRun>, ScheduleError> {
    let zone_name = connection
        .prepare_cached("SELECT zone FROM tasks WHERE id = ?1")?
        .query_row([task], |row| optional_text(row, 0))?;
    // A zone that no longer exists is shown as UTC.
    let zone = find_zone(zone_name.as_deref()).unwrap_or(TimeZone::UTC);
    let mut statement = connection.prepare_cached(
        "SELECT due, started, ended, state, missed, output FROM runs
         WHERE task = ?1 ORDER BY id DESC LIMIT ?2",
    )?;
    let rows = statement.query_map(params![task, most], |row| {
        Ok(TaskRun {
            due: shown(row.get(0)?, &zone),
            started: row.get::<_, Option<i64>>(1)?.map(|moment| shown(moment, &zone)),
            ended: row.get::<_, Option<i64>>(2)?.map(|moment| shown(moment, &zone)),
            state: text(row, 3)?,
            missed: u32::try_from(row.get::<_, i64>(4)?).unwrap_or(u32::MAX),
            output: text(row, 5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
