//! The saved calls of the user, and their undo.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::caches;
use super::files::Place;
use super::folder::{Folder, UndoEntry, UndoLimits};
use super::journal::{Journal, SaveRules};
use super::plan::{Task, UndoConflict, UndoPlan, copy_of};
use super::saved::SavedCall;
use super::state::State;

/// Why an undo was not done, or not to its end.
#[derive(Debug)]
pub enum UndoError {
    /// No changes of that call are saved.
    NotSaved,
    /// The call is undone already.
    AlreadyUndone,
    /// These paths stop it. Nothing was changed.
    Conflicts(Vec<UndoConflict>),
    /// What was saved can't be read. Nothing was changed.
    Unreadable(io::Error),
    /// It stopped in the middle. Each path is either as before the call or as after it; another
    /// undo of the call goes on from here.
    Partial {
        /// Paths that are as before the call.
        done: Vec<PathBuf>,
        /// The path that failed.
        failed: PathBuf,
        /// Why.
        why: io::Error,
        /// Paths that are left.
        left: Vec<PathBuf>,
    },
}

impl fmt::Display for UndoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Paths that are shown.
        const SHOWN: usize = 20;
        let list = |f: &mut fmt::Formatter<'_>, paths: &[PathBuf]| {
            paths.iter().take(SHOWN).try_for_each(|path| write!(f, "\n  {}", path.display()))
        };
        match self {
            Self::NotSaved => f.write_str("no changes of this call are saved"),
            Self::AlreadyUndone => f.write_str("this call is undone already"),
            Self::Conflicts(conflicts) => {
                f.write_str("nothing was changed, because not everything can be restored:")?;
                conflicts.iter().take(SHOWN).try_for_each(|one| write!(f, "\n  {one}"))
            }
            Self::Unreadable(error) => write!(f, "nothing was changed: {error}"),
            Self::Partial { done, failed, why, left } => {
                write!(f, "stopped at {}: {why}; fix that and run it again", failed.display())?;
                f.write_str("\nas before the call:")?;
                list(f, done)?;
                f.write_str("\nleft:")?;
                list(f, left)
            }
        }
    }
}

impl std::error::Error for UndoError {}

/// All saved calls of the user.
#[derive(Clone, Debug)]
pub struct UndoStore(Arc<Folder>);

impl UndoStore {
    /// The store in a folder, which is created at the first change.
    pub fn in_folder(path: PathBuf, bounds: UndoLimits) -> Self {
        Self(Arc::new(Folder { path, bounds }))
    }

    /// The journal of a call that begins. `required`: a change whose old state can't be saved is
    /// refused.
    pub fn journal(&self, about: UndoEntry, required: bool) -> Journal {
        let rules = SaveRules { required, call_bytes: self.0.bounds.call_bytes };
        Journal::new(Arc::clone(&self.0), about, rules)
    }

    /// The saved calls, the newest first.
    ///
    /// # Errors
    ///
    /// The system's, if the folder can't be read or trusted.
    pub fn list(&self) -> io::Result<Vec<UndoEntry>> {
        self.0.list()
    }

    /// What an undo of the call would do.
    ///
    /// # Errors
    ///
    /// [`UndoError::NotSaved`], [`UndoError::AlreadyUndone`] and [`UndoError::Unreadable`].
    pub fn plan(&self, call: &str) -> Result<UndoPlan, UndoError> {
        UndoPlan::new(&self.saved(call)?).map_err(UndoError::Unreadable)
    }

    /// Restores what the call changed: all of it, or nothing.
    ///
    /// # Errors
    ///
    /// [`UndoError`].
    pub fn undo(&self, call: &str) -> Result<UndoPlan, UndoError> {
        let _lock = self.0.lock().map_err(UndoError::Unreadable)?;
        let read = self.saved(call)?;
        let mut plan = UndoPlan::new(&read).map_err(UndoError::Unreadable)?;
        if !plan.conflicts.is_empty() {
            return Err(UndoError::Conflicts(std::mem::take(&mut plan.conflicts)));
        }
        let mut progress = read.progress().map_err(UndoError::Unreadable)?;
        let begin = progress.metadata().map_err(UndoError::Unreadable)?.len();
        let begin = usize::try_from(begin).unwrap_or(usize::MAX).min(plan.tasks.len());
        for (at, task) in plan.tasks.iter().enumerate().skip(begin) {
            let done = task.run(&read).and_then(|()| progress.write_all(b"."));
            if let Err(why) = done {
                let paths = |tasks: &[Task]| {
                    let mut paths: Vec<_> =
                        tasks.iter().map(|task| task.path().to_owned()).collect();
                    paths.sort();
                    paths.dedup();
                    paths
                };
                let failed = task.path().to_owned();
                let (done, left) = (paths(&plan.tasks[..at]), paths(&plan.tasks[at + 1..]));
                return Err(UndoError::Partial { done, failed, why, left });
            }
        }
        read.mark_undone().map_err(UndoError::Unreadable)?;
        Ok(plan)
    }

    /// Removes what is saved of a call.
    pub fn forget(&self, call: &str) {
        if let Err(error) = self.0.remove(call) {
            tracing::warn!("what the call {call} changed can't be removed: {error}");
        }
    }

    fn saved(&self, call: &str) -> Result<SavedCall, UndoError> {
        let read = SavedCall::read(&self.0, call)
            .map_err(UndoError::Unreadable)?
            .ok_or(UndoError::NotSaved)?;
        if read.about.undone { Err(UndoError::AlreadyUndone) } else { Ok(read) }
    }
}

impl Task {
    /// Does it. What is done already is done again without harm.
    fn run(&self, read: &SavedCall) -> io::Result<()> {
        match self {
            Self::Restore { path, before, merged } => restore(read, path, before, merged.as_ref()),
            Self::Clear { path } => caches::clear(path),
            Self::Meta { path, before } => {
                let place = Place::find(path)?;
                match before {
                    State::File { meta, .. } | State::Directory { meta } => place.set_meta(meta),
                    State::Link { modified, .. } => place.set_times(*modified, *modified),
                    State::Missing | State::Other => Ok(()),
                }
            }
            // What was moved may have been made anew by now: its contents are what they were.
            Self::MoveBack(made) => {
                let (there, back) = (Place::find(&made.to)?, Place::find(&made.from)?);
                if there.stat()?.is_none() && back.stat()?.is_some() {
                    return Ok(());
                }
                there.rename_new(&back)
            }
        }
    }
}

fn restore(
    read: &SavedCall,
    path: &Path,
    before: &State,
    merged: Option<&Vec<u8>>,
) -> io::Result<()> {
    let now = State::at(path)?;
    if merged.is_none() && before.same_contents(&now) {
        return Ok(());
    }
    let place = match Place::find(path) {
        Err(error) if *before == State::Missing && error.kind() == io::ErrorKind::NotFound => {
            return Ok(());
        }
        place => place?,
    };
    // The other names of the same file have to get its content too.
    if let (State::File { shared: Some(inode), .. }, Some(stat)) = (before, place.stat()?)
        && stat.st_ino == *inode
        && stat.st_nlink > 1
        && let Some(bytes) =
            merged.cloned().map_or_else(|| copy_of(read, before), |it| Ok(Some(it)))?
    {
        let mut file = place.overwrite()?;
        file.write_all(&bytes)?;
        return file.sync_data();
    }
    // Only a directory can't be replaced by a rename, and can't replace anything.
    match (&now, before) {
        (State::Directory { .. }, _) => place.remove_directory()?,
        (State::Missing, _) => {}
        (_, State::Missing | State::Directory { .. }) => place.remove()?,
        _ => {}
    }
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    let beside = place.beside(&format!(".toolhold-{:016x}.tmp", u64::from_ne_bytes(bytes)))?;
    match before {
        State::Missing | State::Other => return Ok(()),
        State::Directory { .. } => return place.make_directory(),
        State::Link { target, .. } => beside.link(target)?,
        State::File { .. } => {
            let saved = copy_of(read, before)?;
            let written = beside.create().and_then(|mut file| {
                file.write_all(merged.or(saved.as_ref()).map_or(&[][..], Vec::as_slice))?;
                file.sync_data()
            });
            written.inspect_err(|_| drop(beside.remove()))?;
        }
    }
    beside.rename(&place).inspect_err(|_| drop(beside.remove()))
}
