//! Decides which runs of tasks are due and which times were missed, and records the start and end
//! of runs. Only the process with the runner's lock does this.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use thiserror::Error;
use toolhold_contract::TaskAction;
use toolhold_contract::text::{counted, cut, neutral};

use crate::error::ScheduleError;
use crate::maker::Maker;
use crate::tasks::{Owner, Schedule, listed_of, moment, text, when};
use crate::when::Pending;
use crate::{INTERRUPTED, MAX_MISSED, MAX_OUTPUT, MAX_RUNS};

/// The longest delay of a run that isn't missed yet.
const LATE: SignedDuration = SignedDuration::from_secs(60);

/// The smallest clock change that is treated as a correction. Without the correction, no task would
/// run until the clock reaches the last run again. After a smaller change, such as a manual end of
/// summer time, no run is repeated.
const CORRECTION: SignedDuration = SignedDuration::from_hours(3);

/// A claimed run, which may be started.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedRun {
    /// The number of the run.
    pub id: i64,
    /// The number of the task.
    pub task: i64,
    /// The owner of the task.
    pub owner: Owner,
    /// The task's name.
    pub name: String,
    /// The maker of the task, and its bounds.
    pub maker: Maker,
    /// The action of the task.
    pub action: TaskAction,
    /// The time for which the run is due.
    pub due: Timestamp,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The run succeeded.
    Done,
    /// The run failed.
    Failed,
    /// A rule denied the run, or the run needed approval.
    Denied,
    /// The run was told to end. It isn't repeated, because its progress is unknown.
    Interrupted,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunResult {
    /// How the run ended.
    pub end: RunEnd,
    /// The answer, or the reason of the failure. The store cuts and neutralises this text.
    pub output: String,
}

impl RunEnd {
    /// Returns the name in the list of runs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Interrupted => "interrupted",
        }
    }
}

impl Schedule {
    /// Ends the runs that were running when an earlier runner died. They aren't repeated, because
    /// their progress is unknown. Returns the number of these runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the database can't be written.
    pub fn take_over(&self, now: Timestamp) -> Result<usize, ScheduleError> {
        self.run(|connection| {
            Ok(connection
                .prepare_cached(
                    "UPDATE runs SET state = 'interrupted', ended = ?1, output = ?2
                     WHERE state = 'running'",
                )?
                .execute(params![now.as_millisecond(), INTERRUPTED])?)
        })
    }

    /// Claims the next due run. `busy`: tasks that already run, since a task never runs twice at a
    /// time.
    ///
    /// The run may have been claimed by an earlier runner that didn't start it, may have been
    /// requested, or its time has come. When this function returns, the next time of the task is on
    /// disk.
    ///
    /// # Errors
    ///
    /// Returns an error if the database can't be written.
    pub fn claim(&self, now: Timestamp, busy: &[i64]) -> Result<Option<ClaimedRun>, ScheduleError> {
        self.run(|connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            correct(&transaction, now)?;
            let run = claim(&transaction, now, busy)?;
            transaction.commit()?;
            Ok(run)
        })
    }

    /// Marks a claimed run as started, so that it is never started again. Returns false if its task
    /// was removed meanwhile.
    ///
    /// # Errors
    ///
    /// Returns an error if the database can't be written. The run must then not begin.
    pub fn start(&self, run: &ClaimedRun, now: Timestamp) -> Result<bool, ScheduleError> {
        self.run(|connection| {
            let mut statement = connection.prepare_cached(
                "UPDATE runs SET state = 'running', started = ?2
                 WHERE id = ?1 AND state = 'waiting'",
            )?;
            Ok(statement.execute(params![run.id, now.as_millisecond()])? > 0)
        })
    }

    /// Records the end of a run, and removes runs that are too old.
    ///
    /// # Errors
    ///
    /// Returns an error if the database can't be written.
    pub fn end(
        &self,
        run: &ClaimedRun,
        result: &RunResult,
        now: Timestamp,
    ) -> Result<(), ScheduleError> {
        let output = neutral(cut(&result.output, MAX_OUTPUT)).into_owned();
        let state = result.end.as_str();
        self.run(|connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction
                .prepare_cached(
                    "UPDATE runs SET state = ?2, ended = ?3, output = ?4 WHERE id = ?1",
                )?
                .execute(params![run.id, state, now.as_millisecond(), cut(&output, MAX_OUTPUT)])?;
            prune(&transaction, run.task)?;
            transaction.commit()?;
            Ok(())
        })
    }

    /// Returns the removed tasks among `tasks`.
    ///
    /// # Errors
    ///
    /// Returns an error if the database can't be read.
    pub fn removed(&self, tasks: &[i64]) -> Result<Vec<i64>, ScheduleError> {
        self.run(|connection| {
            let mut statement = connection.prepare_cached("SELECT 1 FROM tasks WHERE id = ?1")?;
            let mut removed = Vec::new();
            for task in tasks {
                if !statement.exists([task])? {
                    removed.push(*task);
                }
            }
            Ok(removed)
        })
    }

    /// Returns the time when the next task that isn't `busy` is due. Returns `None` if no task has
    /// a time.
    ///
    /// # Errors
    ///
    /// Returns an error if the database can't be read.
    pub fn next_due(&self, busy: &[i64]) -> Result<Option<Timestamp>, ScheduleError> {
        self.run(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, next FROM tasks WHERE next IS NOT NULL AND paused = 0 ORDER BY next",
            )?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                if !busy.contains(&row.get(0)?) {
                    return Ok(Some(moment(row.get(1)?)));
                }
            }
            Ok(None)
        })
    }
}

/// Finds new times for tasks whose last run is in the far future, because the clock was wrong then.
fn correct(connection: &Connection, now: Timestamp) -> Result<(), ScheduleError> {
    let far = now.as_millisecond().saturating_add(CORRECTION.as_secs().saturating_mul(1000));
    let mut statement =
        connection.prepare_cached("SELECT id FROM tasks WHERE last > ?1 AND next IS NOT NULL")?;
    let ids = statement.query_map([far], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
    for id in ids {
        let next = when(connection, id)?.ok().and_then(|when| when.next(now));
        connection
            .prepare_cached("UPDATE tasks SET next = ?2, last = NULL WHERE id = ?1")?
            .execute(params![id, next.map(Timestamp::as_millisecond)])?;
    }
    Ok(())
}

fn claim(
    connection: &Connection,
    now: Timestamp,
    busy: &[i64],
) -> Result<Option<ClaimedRun>, ScheduleError> {
    while let Some((id, task)) = claim_next(connection, now, busy)? {
        match read_claimed(connection, id, task)? {
            Ok(run) => return Ok(Some(run)),
            Err(error) => set_aside(connection, id, task, &error, now)?,
        }
    }
    Ok(None)
}

/// Claims the next run. Returns the number of the run and the number of its task.
fn claim_next(
    connection: &Connection,
    now: Timestamp,
    busy: &[i64],
) -> Result<Option<(i64, i64)>, ScheduleError> {
    let waiting = "SELECT id, task FROM runs WHERE state = 'waiting' ORDER BY id";
    if let Some(run) = first_free(connection, waiting, None, busy)? {
        return Ok(Some(run));
    }

    let requested = "SELECT id, id FROM tasks WHERE asked = 1 ORDER BY id";
    if let Some((task, _)) = first_free(connection, requested, None, busy)? {
        connection.prepare_cached("UPDATE tasks SET asked = 0 WHERE id = ?1")?.execute([task])?;
        let id = insert(connection, task, now, 0)?;
        return Ok(Some((id, task)));
    }

    let due = "SELECT next, id FROM tasks WHERE next <= ?1 AND paused = 0 ORDER BY next, id";
    let until = now.as_millisecond();
    while let Some((first, task)) = first_free(connection, due, Some(until), busy)? {
        if let Some(id) = claim_due(connection, task, moment(first), now)? {
            return Ok(Some((id, task)));
        }
    }
    Ok(None)
}

/// Returns the first row of a query for two numbers, whose second number must be a task that isn't
/// busy.
fn first_free(
    connection: &Connection,
    query: &str,
    until: Option<i64>,
    busy: &[i64],
) -> Result<Option<(i64, i64)>, ScheduleError> {
    let mut statement = connection.prepare_cached(query)?;
    let mut rows = match until {
        Some(until) => statement.query([until])?,
        None => statement.query([])?,
    };
    while let Some(row) = rows.next()? {
        let first = row.get(0)?;
        let task = row.get(1)?;
        if !busy.contains(&task) {
            return Ok(Some((first, task)));
        }
    }
    Ok(None)
}

/// Claims a run of a due task, by its policy for missed times. Returns `None` if all of its times
/// are skipped, or its times can't be read.
fn claim_due(
    connection: &Connection,
    task: i64,
    first: Timestamp,
    now: Timestamp,
) -> Result<Option<i64>, ScheduleError> {
    let when = match when(connection, task)? {
        Ok(when) => when,
        Err(error) => {
            // A task with an unknown time doesn't run.
            set_next(connection, task, None, now)?;
            note(connection, task, first, now, "failed", 0, &error.to_string())?;
            return Ok(None);
        }
    };
    let missed_policy = connection
        .prepare_cached("SELECT missed FROM tasks WHERE id = ?1")?
        .query_row([task], |row| text(row, 0))?;
    let Pending { mut times, more } = when.pending(first, now);
    if times.is_empty() {
        // The expression gives another time than the stored one, for example because the rules of
        // the time zone changed. The stored time is used.
        times.push(first);
    }
    let earliest = times[0];
    let latest = times[times.len() - 1];
    if missed_policy == "all" {
        let next = times.get(1).copied().or_else(|| when.next(earliest));
        set_next(connection, task, next, earliest)?;
        return insert(connection, task, earliest, 0).map(Some);
    }

    set_next(connection, task, when.next(now.max(latest)), latest)?;
    let others = u32::try_from(times.len() - 1).unwrap_or(u32::MAX) + u32::from(more);
    if missed_policy != "skip" {
        return insert(connection, task, latest, others).map(Some);
    }

    let is_late = now.duration_since(latest) > LATE;
    let skipped = if is_late { others + 1 } else { others };
    if skipped > 0 {
        // The note is for the last skipped time.
        let last = if is_late { latest } else { times[times.len() - 2] };
        let passed =
            if more { format!("{MAX_MISSED} times or more") } else { counted(skipped, "time") };
        let why = format!("no process ran tasks, and {passed} passed");
        note(connection, task, last, now, "skipped", skipped - 1, &why)?;
    }
    if is_late {
        return Ok(None);
    }
    insert(connection, task, latest, 0).map(Some)
}

fn set_next(
    connection: &Connection,
    task: i64,
    next: Option<Timestamp>,
    last: Timestamp,
) -> Result<(), ScheduleError> {
    connection
        .prepare_cached("UPDATE tasks SET next = ?2, last = ?3 WHERE id = ?1")?
        .execute(params![task, next.map(Timestamp::as_millisecond), last.as_millisecond()])?;
    Ok(())
}

fn insert(
    connection: &Connection,
    task: i64,
    due: Timestamp,
    missed: u32,
) -> Result<i64, ScheduleError> {
    connection
        .prepare_cached(
            "INSERT INTO runs (task, due, state, missed, output) VALUES (?1, ?2, 'waiting', ?3, '')",
        )?
        .execute(params![task, due.as_millisecond(), missed])?;
    Ok(connection.last_insert_rowid())
}

/// Records a run that was skipped or failed before it began.
fn note(
    connection: &Connection,
    task: i64,
    due: Timestamp,
    now: Timestamp,
    state: &str,
    missed: u32,
    why: &str,
) -> Result<(), ScheduleError> {
    connection
        .prepare_cached(
            "INSERT INTO runs (task, due, ended, state, missed, output)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            task,
            due.as_millisecond(),
            now.as_millisecond(),
            state,
            missed,
            cut(why, MAX_OUTPUT)
        ])?;
    prune(connection, task)
}

/// Removes the runs of a task that are too old.
fn prune(connection: &Connection, task: i64) -> Result<(), ScheduleError> {
    connection
        .prepare_cached(
            "DELETE FROM runs WHERE task = ?1 AND ended IS NOT NULL AND id NOT IN
                 (SELECT id FROM runs WHERE task = ?1 ORDER BY id DESC LIMIT ?2)",
        )?
        .execute(params![task, MAX_RUNS])?;
    Ok(())
}

/// A reason why a stored task can't be read.
#[derive(Debug, Error)]
enum KeptTaskError {
    #[error("its maker: {0}")]
    Maker(#[source] serde_json::Error),
    #[error("its action: {0}")]
    Action(#[source] serde_json::Error),
}

/// Reads a claimed run. Returns the inner error if its task can't be read.
fn read_claimed(
    connection: &Connection,
    id: i64,
    task: i64,
) -> Result<Result<ClaimedRun, KeptTaskError>, ScheduleError> {
    let due: i64 = connection
        .prepare_cached("SELECT due FROM runs WHERE id = ?1")?
        .query_row([id], |row| row.get(0))?;
    let mut statement = connection
        .prepare_cached(&format!("SELECT {} FROM tasks WHERE id = ?1", crate::tasks::COLUMNS))?;
    let row = statement
        .query_row([task], |row| Ok((listed_of(row)?, text(row, 5)?, text(row, 11)?)))
        .optional()?;
    let Some((listed, maker, action)) = row else {
        return Err(ScheduleError::Removed);
    };
    Ok(read_kept(&maker, &action).map(|(maker, action)| ClaimedRun {
        id,
        task,
        owner: listed.owner,
        name: listed.state.order.name,
        maker,
        action,
        due: moment(due),
    }))
}

fn read_kept(maker: &str, action: &str) -> Result<(Maker, TaskAction), KeptTaskError> {
    let maker = serde_json::from_str(maker).map_err(KeptTaskError::Maker)?;
    let action = serde_json::from_str(action).map_err(KeptTaskError::Action)?;
    Ok((maker, action))
}

/// Pauses a task that can't be read, and records why. The other tasks go on.
fn set_aside(
    connection: &Connection,
    id: i64,
    task: i64,
    error: &KeptTaskError,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    let why = format!("the task can't be read, so it is paused; create the task again: {error}");
    connection
        .prepare_cached("UPDATE runs SET state = 'failed', ended = ?2, output = ?3 WHERE id = ?1")?
        .execute(params![id, now.as_millisecond(), cut(&neutral(&why), MAX_OUTPUT)])?;
    connection.prepare_cached("UPDATE tasks SET paused = 1 WHERE id = ?1")?.execute([task])?;
    prune(connection, task)
}
