//! Claims due runs, handles missed times, and records the start and the end of runs. Only the
//! process that holds the runner's lock may call these functions.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};
use thiserror::Error;
use toolhold_contract::TaskAction;
use toolhold_contract::text::{counted, cut, neutral};

use crate::error::ScheduleError;
use crate::maker::Maker;
use crate::tasks::{Owner, Schedule, moment, read_listed, read_when, text};
use crate::when::Pending;
use crate::{INTERRUPTED, MAX_MISSED, MAX_OUTPUT, MAX_RUNS};

/// A run is missed if it is later than this.
const LATE: SignedDuration = SignedDuration::from_secs(60);

/// If the last run of a task is further in the future than this, the clock was wrong when the task
/// ran. The task then gets a new time, because it must not wait until the wrong time. If the
/// difference is smaller, for example after a manual end of summer time, the task keeps its time,
/// so that no run is repeated.
const CORRECTION: SignedDuration = SignedDuration::from_hours(3);

/// A claimed run that hasn't started.
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
    /// The maker and the bounds of the task.
    pub maker: Maker,
    /// The action of the task.
    pub action: TaskAction,
    /// The time for which the run is due.
    pub due: Timestamp,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The run succeeded.
    Done,
    /// The run failed.
    Failed,
    /// A rule denied the run, or the run needed approval.
    Denied,
    /// The run was interrupted. It isn't repeated, because its progress is unknown.
    Interrupted,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunResult {
    /// How the run ended.
    pub end: RunEnd,
    /// The answer or the reason of the failure. Long text is cut, and control characters are
    /// neutralised.
    pub output: String,
}

impl RunEnd {
    /// Returns the name for lists of runs.
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
    /// Ends the runs of an earlier runner that died, and returns their number. These runs aren't
    /// repeated, because their progress is unknown.
    ///
    /// # Errors
    ///
    /// Fails if the database can't be written.
    pub fn take_over(&self, now: Timestamp) -> Result<usize, ScheduleError> {
        self.run(|connection| {
            let mut statement = connection.prepare_cached(
                "UPDATE runs SET state = 'interrupted', ended = ?1, output = ?2
                     WHERE state = 'running'",
            )?;
            let ended_runs = statement.execute(params![now.as_millisecond(), INTERRUPTED])?;
            Ok(ended_runs)
        })
    }

    /// Claims the next due run. Skips the tasks in `busy`, which run now, because a task must not
    /// run twice at the same time.
    ///
    /// A run that an earlier runner claimed but didn't start comes first, then requested runs, then
    /// due times. The next time of the task is on disk when this function returns. Returns `None`
    /// if no run is due.
    ///
    /// # Errors
    ///
    /// Fails if the database can't be written.
    pub fn claim(&self, now: Timestamp, busy: &[i64]) -> Result<Option<ClaimedRun>, ScheduleError> {
        self.run(|connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            correct_future_tasks(&transaction, now)?;
            let run = claim_readable(&transaction, now, busy)?;
            transaction.commit()?;
            Ok(run)
        })
    }

    /// Marks a claimed run as started. A started run is never started again. Returns `false` if the
    /// task was removed in the meantime.
    ///
    /// # Errors
    ///
    /// Returns an error if the database can't be written. The caller must then not start the run.
    pub fn start(&self, run: &ClaimedRun, now: Timestamp) -> Result<bool, ScheduleError> {
        self.run(|connection| {
            let mut statement = connection.prepare_cached(
                "UPDATE runs SET state = 'running', started = ?2
                 WHERE id = ?1 AND state = 'waiting'",
            )?;
            let changed_rows = statement.execute(params![run.id, now.as_millisecond()])?;
            Ok(changed_rows > 0)
        })
    }

    /// Records the end of a run, and removes the oldest runs above the limit.
    ///
    /// # Errors
    ///
    /// Fails if the database can't be written.
    pub fn end(
        &self,
        run: &ClaimedRun,
        result: &RunResult,
        now: Timestamp,
    ) -> Result<(), ScheduleError> {
        // Neutralising can lengthen the text, so the text is cut again.
        let neutral_output = neutral(cut(&result.output, MAX_OUTPUT));
        let output = cut(&neutral_output, MAX_OUTPUT);
        let state = result.end.as_str();
        self.run(|connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction
                .prepare_cached(
                    "UPDATE runs SET state = ?2, ended = ?3, output = ?4 WHERE id = ?1",
                )?
                .execute(params![run.id, state, now.as_millisecond(), output])?;
            prune(&transaction, run.task)?;
            transaction.commit()?;
            Ok(())
        })
    }

    /// Returns the tasks in `tasks` that were removed.
    ///
    /// # Errors
    ///
    /// Fails if the database can't be read.
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

    /// Returns the next due time of a task that isn't in `busy`.
    ///
    /// # Errors
    ///
    /// Fails if the database can't be read.
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

/// Sets new times for tasks whose last run is in the far future, because the clock was wrong when
/// such a task ran.
fn correct_future_tasks(connection: &Connection, now: Timestamp) -> Result<(), ScheduleError> {
    let correction_millis = CORRECTION.as_secs().saturating_mul(1000);
    let far_future = now.as_millisecond().saturating_add(correction_millis);
    let mut statement =
        connection.prepare_cached("SELECT id FROM tasks WHERE last > ?1 AND next IS NOT NULL")?;
    let ids =
        statement.query_map([far_future], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
    for id in ids {
        // A task that can't be read has no next time.
        let next = read_when(connection, id)?.ok().and_then(|when| when.next(now));
        connection
            .prepare_cached("UPDATE tasks SET next = ?2, last = NULL WHERE id = ?1")?
            .execute(params![id, next.map(Timestamp::as_millisecond)])?;
    }
    Ok(())
}

/// Claims the next run of a readable task. Pauses unreadable tasks.
fn claim_readable(
    connection: &Connection,
    now: Timestamp,
    busy: &[i64],
) -> Result<Option<ClaimedRun>, ScheduleError> {
    while let Some((id, task)) = claim_next(connection, now, busy)? {
        match read_claimed(connection, id, task)? {
            Ok(run) => return Ok(Some(run)),
            Err(error) => pause_unreadable(connection, id, task, &error, now)?,
        }
    }
    Ok(None)
}

/// Claims the next run. Returns the ID of the run and of its task.
fn claim_next(
    connection: &Connection,
    now: Timestamp,
    busy: &[i64],
) -> Result<Option<(i64, i64)>, ScheduleError> {
    let no_limit = None;
    let waiting = "SELECT id, task FROM runs WHERE state = 'waiting' ORDER BY id";
    if let Some(run) = first_free(connection, waiting, no_limit, busy)? {
        return Ok(Some(run));
    }

    let requested = "SELECT id, id FROM tasks WHERE asked = 1 ORDER BY id";
    if let Some((task, _)) = first_free(connection, requested, no_limit, busy)? {
        connection.prepare_cached("UPDATE tasks SET asked = 0 WHERE id = ?1")?.execute([task])?;
        let missed = 0;
        let id = insert_waiting(connection, task, now, missed)?;
        return Ok(Some((id, task)));
    }

    let due = "SELECT next, id FROM tasks WHERE next <= ?1 AND paused = 0 ORDER BY next, id";
    let until = Some(now.as_millisecond());
    while let Some((next, task)) = first_free(connection, due, until, busy)? {
        // If `claim_due` skipped the time, the task now has a later time or none, so it is not
        // found again.
        if let Some(id) = claim_due(connection, task, moment(next), now)? {
            return Ok(Some((id, task)));
        }
    }
    Ok(None)
}

/// Returns the first row of a query whose task isn't in `busy`. The second number of a row is the
/// task. `until` is the parameter of the query, if there is one.
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

/// Claims a run of a due task, by the task's policy for missed times. Returns `None` if all times
/// are skipped, or if the task's times can't be read.
fn claim_due(
    connection: &Connection,
    task: i64,
    first: Timestamp,
    now: Timestamp,
) -> Result<Option<i64>, ScheduleError> {
    let when = match read_when(connection, task)? {
        Ok(when) => when,
        Err(error) => {
            set_next(connection, task, None, now)?;
            let missed = 0;
            let why = error.to_string();
            record_unstarted(connection, task, first, now, "failed", missed, &why)?;
            return Ok(None);
        }
    };
    let missed_policy = connection
        .prepare_cached("SELECT missed FROM tasks WHERE id = ?1")?
        .query_row([task], |row| text(row, 0))?;
    let Pending { mut times, more } = when.pending(first, now);
    if times.is_empty() {
        // The expression may only give later times now, for example because the rules of the time
        // zone have changed. In this case, the run is due at the stored time.
        times.push(first);
    }
    let earliest = times[0];
    let latest = times[times.len() - 1];
    if missed_policy == "all" {
        let next = times.get(1).copied().or_else(|| when.next(earliest));
        set_next(connection, task, next, earliest)?;
        let missed = 0;
        return insert_waiting(connection, task, earliest, missed).map(Some);
    }

    set_next(connection, task, when.next(now.max(latest)), latest)?;
    if missed_policy == "skip" {
        return claim_latest(connection, task, &times, more, now);
    }
    insert_waiting(connection, task, latest, count_missed(&times, more)).map(Some)
}

/// Returns the number of times before the latest time. `more` means that earlier times were left
/// out.
fn count_missed(times: &[Timestamp], more: bool) -> u32 {
    u32::try_from(times.len() - 1).unwrap_or(u32::MAX) + u32::from(more)
}

/// Records the earlier times as skipped, and claims a run for the latest time. If the latest time
/// is late too, all times are skipped.
fn claim_latest(
    connection: &Connection,
    task: i64,
    times: &[Timestamp],
    more: bool,
    now: Timestamp,
) -> Result<Option<i64>, ScheduleError> {
    let latest = times[times.len() - 1];
    let earlier_times = count_missed(times, more);
    let is_late = now.duration_since(latest) > LATE;
    let skipped = if is_late { earlier_times + 1 } else { earlier_times };
    if skipped > 0 {
        let last_skipped = if is_late { latest } else { times[times.len() - 2] };
        let passed =
            if more { format!("{MAX_MISSED} times or more") } else { counted(skipped, "time") };
        let why = format!("no process ran tasks, so {passed} passed without a run");
        record_unstarted(connection, task, last_skipped, now, "skipped", skipped - 1, &why)?;
    }
    if is_late {
        return Ok(None);
    }
    let missed = 0;
    insert_waiting(connection, task, latest, missed).map(Some)
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

/// Adds a waiting run, and returns its ID. `missed` is the number of times that the run replaces.
fn insert_waiting(
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

/// Records a skipped run, or a run that failed before its start. `why` becomes the run's output.
fn record_unstarted(
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

/// Removes the oldest ended runs of a task above the limit.
fn prune(connection: &Connection, task: i64) -> Result<(), ScheduleError> {
    connection
        .prepare_cached(
            "DELETE FROM runs WHERE task = ?1 AND ended IS NOT NULL AND id NOT IN
                 (SELECT id FROM runs WHERE task = ?1 ORDER BY id DESC LIMIT ?2)",
        )?
        .execute(params![task, MAX_RUNS])?;
    Ok(())
}

/// The error for a stored task that can't be read.
#[derive(Debug, Error)]
enum KeptTaskError {
    #[error("the stored creator of the task can't be read: {0}")]
    Maker(#[source] serde_json::Error),
    #[error("the stored action of the task can't be read: {0}")]
    Action(#[source] serde_json::Error),
}

/// Reads a claimed run. The outer error means that the database failed. The inner error means that
/// the task can't be read.
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
    let maker_column = 5;
    let action_column = 11;
    let row = statement
        .query_row([task], |row| {
            Ok((read_listed(row)?, text(row, maker_column)?, text(row, action_column)?))
        })
        .optional()?;
    let Some((listed, stored_maker, stored_action)) = row else {
        return Err(ScheduleError::Removed);
    };
    let (maker, action) = match read_kept(&stored_maker, &stored_action) {
        Ok(read) => read,
        Err(error) => return Ok(Err(error)),
    };
    Ok(Ok(ClaimedRun {
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

/// Pauses an unreadable task. Its claimed run `id` ends as failed, with the reason.
fn pause_unreadable(
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
