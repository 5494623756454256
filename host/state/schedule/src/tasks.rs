//! Stores the scheduled tasks of an owner: creates, changes, lists, pauses and removes them, within
//! quotas.

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

/// The file in the folder.
const FILE: &str = "tasks.db";

/// The lock of the process that runs the tasks.
const RUNNER: &str = "runner.lock";

/// The owner of tasks. An owner only sees and changes its own tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// The plugin that creates the tasks.
    pub plugin: String,
    /// The principal of the calls that create the tasks.
    pub principal: String,
    /// The real path of the working directory where the tasks are created and run. UTF-8.
    pub directory: String,
}

impl Owner {
    /// The principal of the user who runs this process.
    pub const USER: &'static str = "user";

    /// Returns the principal if it is a caller of a server. Returns `None` for the user of this
    /// machine.
    pub fn served(&self) -> Option<&str> {
        let is_user = self.principal == Self::USER;
        if is_user { None } else { Some(self.principal.as_str()) }
    }
}

/// The limits on the number of tasks, in addition to [`MAX_TASKS`], and on how often they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Tasks of the plugin, for all principals.
    pub of_plugin: u64,
    /// Tasks of the principal, from all plugins.
    pub of_principal: u64,
    /// The shortest time between two runs of a task, in seconds.
    pub interval: u64,
}

/// A task that was stored.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptTask {
    /// The task.
    pub state: TaskState,
    /// Whether the task replaced another one with the same name.
    pub has_replaced: bool,
    /// Finished tasks that were removed to make room for the new task, because a quota was reached.
    pub gave_way: Vec<Listed>,
}

/// A task with its owner, for the operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listed {
    /// A number that no other task ever has.
    pub id: i64,
    /// The owner of the task.
    #[serde(flatten)]
    pub owner: Owner,
    /// The task.
    #[serde(flatten)]
    pub state: TaskState,
}

impl Listed {
    /// Checks whether the task has a next time.
    pub fn is_waiting(&self) -> bool {
        !self.state.paused && self.state.next.is_some()
    }
}

/// The process that runs the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RunnerProcess {
    /// The process ID. `None` while the process takes over.
    pub id: Option<u32>,
}

/// `process 4711`.
impl fmt::Display for RunnerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "process {id}"),
            None => f.write_str("another process"),
        }
    }
}

/// The tasks of a user. The file is opened, or created, by the first operation. All operations
/// block.
pub struct Schedule {
    folder: PathBuf,
    connection: Mutex<Option<Connection>>,
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schedule").field(&self.folder).finish()
    }
}

/// The columns that [`state_of`] reads, after the ID.
pub(crate) const COLUMNS: &str = "id, owner, principal, directory, name, maker, made, kind, spec, zone, missed, action, next, paused";

/// The SQL condition for the tasks of an owner.
const OF_OWNER: &str = "owner = ?1 AND principal = ?2 AND directory = ?3";

impl Schedule {
    /// Makes the schedule in Toolhold's data folder. Opens no file.
    pub fn in_data(data: &Path) -> Self {
        Self { folder: data.join("schedule"), connection: Mutex::new(None) }
    }

    /// Waits to become the only process of the user that runs the tasks. Dropping the result ends
    /// this role. If the process dies, another one takes over.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder can't be used.
    pub fn become_runner(&self) -> Result<File, ScheduleError> {
        let mut lock = self.private()?.lock(RUNNER).map_err(|error| self.unusable(&error))?;
        // A process that finds the file locked reads the process ID of the runner from it.
        let number = std::process::id().to_string();
        lock.set_len(0)
            .and_then(|()| lock.write_all(number.as_bytes()))
            .map_err(|error| self.unusable(&error))?;
        Ok(lock)
    }

    /// Returns the process that runs the tasks at this moment, or `None` if there is no such
    /// process. Creates no file.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder can't be used.
    pub fn runner(&self) -> Result<Option<RunnerProcess>, ScheduleError> {
        let file = PrivateFolder::open(&self.folder).and_then(|folder| folder.file(RUNNER));
        let mut file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.unusable(&error)),
        };
        // The lock is shared, so that two processes that check at the same time don't take each
        // other for the runner.
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::Error(error)) => Err(self.unusable(&error)),
            Err(TryLockError::WouldBlock) => {
                let mut number = String::new();
                (&mut file)
                    .take(20)
                    .read_to_string(&mut number)
                    .map_err(|error| self.unusable(&error))?;
                Ok(Some(RunnerProcess { id: number.parse().ok() }))
            }
        }
    }

    /// Checks whether the user has ever had a task.
    pub fn is_there(&self) -> bool {
        // The file isn't opened, because closing it would end the locks of this process's
        // connection.
        self.folder.join(FILE).exists()
    }

    /// Makes the alarm that wakes the runner.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder can't be watched, or the system has no such timer.
    pub fn alarm(&self) -> Result<Alarm, ScheduleError> {
        self.private()?;
        Alarm::new(&self.folder).map_err(|error| self.unusable(&error))
    }

    /// Stores a task. Replaces the owner's task with the same name, but not its runs. If a quota is
    /// reached, finished tasks of the plugin and the principal are removed.
    ///
    /// # Errors
    ///
    /// Returns an error if the task isn't valid, a quota is reached, or the database can't be
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

    /// Changes only the times of a task. Its maker, its action and its bounds don't change, and a
    /// paused task stays paused. Only the name and the times of the order are used.
    ///
    /// # Errors
    ///
    /// Returns an error if the owner has no such task, the times aren't valid, or the database
    /// can't be written.
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

    /// Removes a task with its runs. Returns false if the owner has no task with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the database can't be written.
    pub fn remove(&self, owner: &Owner, name: &str) -> Result<bool, ScheduleError> {
        let removed = self.run(|connection| {
            let mut statement = connection
                .prepare_cached(&format!("DELETE FROM tasks WHERE {OF_OWNER} AND name = ?4"))?;
            let parameters = params![owner.plugin, owner.principal, owner.directory, name];
            Ok(statement.execute(parameters)? > 0)
        })?;
        self.ring();
        Ok(removed)
    }

    /// Pauses or resumes a task. Times during the pause are skipped. Returns false if the owner has
    /// no task with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the database can't be written.
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
            if !paused && listed.state.paused {
                // A task that runs once runs late rather than never.
                if let Ok(repeating @ (When::Every { .. } | When::Cron(..))) =
                    when(&transaction, listed.id)?
                {
                    let next = repeating.next(now);
                    transaction
                        .prepare_cached("UPDATE tasks SET next = ?2 WHERE id = ?1")?
                        .execute(params![listed.id, next.map(Timestamp::as_millisecond)])?;
                }
            }
            transaction.commit()?;
            Ok(true)
        })?;
        self.ring();
        Ok(changed)
    }

    /// Requests one additional run of a task as soon as possible. Returns false if the owner has no
    /// task with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the database can't be written.
    pub fn run_soon(&self, owner: &Owner, name: &str) -> Result<bool, ScheduleError> {
        let changed = self.run(|connection| {
            let mut statement = connection.prepare_cached(&format!(
                "UPDATE tasks SET asked = 1 WHERE {OF_OWNER} AND name = ?4"
            ))?;
            let parameters = params![owner.plugin, owner.principal, owner.directory, name];
            Ok(statement.execute(parameters)? > 0)
        })?;
        self.ring();
        Ok(changed)
    }

    /// Returns the tasks of an owner, or of all owners, sorted by name.
    ///
    /// # Errors
    ///
    /// The file can't be read.
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
                    listed_of,
                )?,
                None => statement.query_map([], listed_of)?,
            };
            let mut tasks = rows.collect::<Result<Vec<_>, _>>()?;
            for task in &mut tasks {
                task.state.last = runs(connection, task.id, 1)?.pop();
            }
            Ok(tasks)
        })
    }

    /// Returns the last runs of a task, the latest first.
    ///
    /// # Errors
    ///
    /// The file can't be read.
    pub fn runs_of(&self, owner: &Owner, name: &str) -> Result<Vec<TaskRun>, ScheduleError> {
        self.run(|connection| match find(connection, owner, name)? {
            Some(listed) => runs(connection, listed.id, MAX_RUNS),
            None => Ok(Vec::new()),
        })
    }

    /// Wakes the runner, because the tasks have changed or a run has ended.
    pub fn ring(&self) {
        // An error is harmless: the change is stored, and the runner checks from time to time
        // anyway.
        let _ = self.private().map(|folder| Alarm::ring(&folder));
    }

    /// Opens the folder. Creates it if it doesn't exist.
    fn private(&self) -> Result<PrivateFolder, ScheduleError> {
        let private = PrivateFolder::make(&self.folder).map_err(|error| self.unusable(&error))?;
        // SQLite opens the file by its path. No other user can enter the folder, so no other user
        // can exchange the file.
        private.check_closed().map_err(|error| self.unusable(&error))?;
        Ok(private)
    }

    fn unusable(&self, error: &io::Error) -> ScheduleError {
        ScheduleError::Unavailable { path: self.folder.clone(), reason: error.to_string() }
    }

    /// Runs an operation on the file.
    pub(crate) fn run<T>(
        &self,
        operation: impl FnOnce(&mut Connection) -> Result<T, ScheduleError>,
    ) -> Result<T, ScheduleError> {
        // An operation that panicked has rolled back.
        let mut opened = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let path = self.folder.join(FILE);
        let connection = match &mut *opened {
            Some(connection) => connection,
            none => {
                self.private()?;
                let new_connection = connection::open(&path).map_err(|error| error.at(&path))?;
                none.insert(new_connection)
            }
        };
        operation(connection).map_err(|error| error.at(&path))
    }
}

/// Checks a task, and returns its first time. Replaces a duration by a time, and a missing zone by
/// the machine's zone.
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
    if !["once", "all", "skip"].contains(&&*order.missed) {
        let shown = neutral_line(cut(&order.missed, MAX_NAME));
        return Err(TaskOrderError::Missed(shown).into());
    }
    // The process that runs or shows the task may have another time zone.
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

fn check_name(name: &str) -> Result<(), TaskOrderError> {
    let count = name.chars().count();
    let is_allowed = name.chars().all(|c| c.is_ascii_alphanumeric() || "._- ".contains(c));
    if count == 0 || count > MAX_NAME || !is_allowed || name.trim() != name {
        return Err(TaskOrderError::Name);
    }
    Ok(())
}

/// Removes finished tasks of the plugin and the principal until a new task is within the quotas. A
/// task with a next time or an unfinished run is never removed.
///
/// Tasks whose last run was denied are removed last, because a person may still allow it.
/// Otherwise, tasks of the same directory are removed first, in the order in which they ended.
fn make_room(
    connection: &Connection,
    owner: &Owner,
    quotas: Quotas,
) -> Result<Vec<Listed>, ScheduleError> {
    let mut gave_way = Vec::new();
    loop {
        let limit = match check_quotas(connection, owner, quotas) {
            Ok(()) => return Ok(gave_way),
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
            .query_row([&owner.plugin, &owner.principal, &owner.directory], listed_of)
            .optional()?
            // The caller rolls back, so that no task is removed if the new task isn't stored.
            .ok_or(ScheduleError::Limit(limit))?;
        connection.prepare_cached("DELETE FROM tasks WHERE id = ?1")?.execute([oldest.id])?;
        gave_way.push(oldest);
    }
}

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
    Ok(statement.query_row(parameters, listed_of).optional()?)
}

/// Reads the times of a task. Returns the inner error if the stored zone or expression is no longer
/// valid.
pub(crate) fn when(
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

/// Formats a moment for people, in the time zone and with seconds.
fn shown(milliseconds: i64, zone: &TimeZone) -> String {
    let moment = moment(milliseconds.div_euclid(1000).saturating_mul(1000));
    moment.display_with_offset(zone.to_offset(moment)).to_string()
}

/// Returns a text of a row, or an empty text for `NULL`. A text that isn't UTF-8 must not hide or
/// stop the other tasks.
pub(crate) fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(optional_text(row, column)?.unwrap_or_default())
}

fn optional_text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    let bytes = row.get_ref(column)?.as_bytes_or_null().map_err(rusqlite::Error::from)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

pub(crate) fn listed_of(row: &Row<'_>) -> rusqlite::Result<Listed> {
    let zone = optional_text(row, 9)?;
    let next: Option<i64> = row.get(12)?;
    let in_zone = find_zone(zone.as_deref()).unwrap_or(TimeZone::UTC);
    let kind = text(row, 7)?;
    let mut when = text(row, 8)?;
    // The time is stored in UTC.
    if kind == "once"
        && let Ok(at) = when.parse::<Timestamp>()
    {
        when = shown(at.as_millisecond(), &in_zone);
    }
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

fn runs(connection: &Connection, task: i64, most: usize) -> Result<Vec<TaskRun>, ScheduleError> {
    let zone = connection
        .prepare_cached("SELECT zone FROM tasks WHERE id = ?1")?
        .query_row([task], |row| optional_text(row, 0))?;
    let zone = find_zone(zone.as_deref()).unwrap_or(TimeZone::UTC);
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
