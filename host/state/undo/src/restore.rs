//! Performs an undo: restores the paths one by one.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::access::Access;
use super::caches::is_made_in_cache;
use super::changes::UndoConflict;
use super::files::{DirEntryRef, Meta};
use super::folder::Folder;
use super::journal::{KeptFile, is_full};
use super::lines::Move;
use super::plan::UndoPlan;
use super::progress::{self, Step};
use super::rules::Rule;
use super::saved::SavedCall;
use super::state::{Identity, State, kept_name};
use super::tasks::{Action, Task};

/// Entries of a directory that are looked at for another name of a file.
const MAX_LOOKED_AT: usize = 10_000;

/// An undo that goes on.
pub(crate) struct Restoration<'a> {
    access: &'a Access,
    all: &'a Folder,
    read: &'a SavedCall,
    plan: &'a UndoPlan,
    /// The paths of each file that had several paths.
    names: HashMap<Identity, Vec<&'a Path>>,
    /// The path at which each of these files is created again.
    made: HashMap<Identity, PathBuf>,
    /// The restored names of files whose later contents are kept.
    renamed: HashSet<PathBuf>,
    /// Whether later changes are lost.
    is_forced: bool,
}

impl<'a> Restoration<'a> {
    pub(crate) fn new(
        access: &'a Access,
        all: &'a Folder,
        read: &'a SavedCall,
        plan: &'a UndoPlan,
        is_forced: bool,
    ) -> Self {
        let mut names: HashMap<Identity, Vec<&Path>> = HashMap::new();
        for task in &plan.tasks {
            if let Action::Restore { path, before: State::File { identity, .. }, .. } = &task.action
                && let Some(identity) = identity
            {
                names.entry(*identity).or_default().push(path);
            }
        }
        Self {
            access,
            all,
            read,
            plan,
            names,
            made: HashMap::new(),
            renamed: HashSet::new(),
            is_forced,
        }
    }

    /// Does the open tasks of the plan, except those of conflicting paths. Returns further paths
    /// that couldn't be restored.
    pub(crate) fn run(mut self) -> Vec<UndoConflict> {
        let open: HashSet<usize> = self.plan.open.iter().copied().collect();
        let mut conflicts = Vec::new();
        let mut failed: HashSet<&Path> = self.plan.left.iter().map(PathBuf::as_path).collect();
        // Each path has the name of the time that the undo has come to.
        let mut waiting: Vec<&Path> = Vec::new();
        let mut unmoved: Vec<&Path> = Vec::new();
        let mut needless = Vec::new();
        for (at, Task { after, action }) in self.plan.tasks.iter().enumerate() {
            let is_stuck = match action {
                Action::MoveBack(made) => {
                    is_below(&made.to, &unmoved)
                        || is_below(&made.from, &unmoved)
                        || waiting.iter().any(|path| path.starts_with(&made.to))
                }
                action => is_below(action.path(), &unmoved),
            };
            if open.contains(&at) && !failed.contains(&**after) && !is_stuck {
                progress::note(&self.read.folder, at, Step::Begun);
                match self.act(after, action) {
                    Ok(()) => {
                        progress::note(&self.read.folder, at, Step::Done);
                        continue;
                    }
                    Err(error) => {
                        progress::note(&self.read.folder, at, Step::Open);
                        failed.insert(after);
                        conflicts.push(UndoConflict::from_error(action.path(), &error));
                    }
                }
            } else if is_stuck && open.contains(&at) && failed.insert(after) {
                conflicts.push(UndoConflict::stuck(after));
            } else if !failed.contains(&**after) {
                if !self.is_forced && !open.contains(&at) {
                    needless.push(at);
                }
                continue;
            }
            match action {
                // The objects that have these paths now aren't the objects from before the move.
                Action::MoveBack(made) => unmoved.extend([&*made.from, &*made.to]),
                action => waiting.push(action.path()),
            }
        }
        // The undo of another call may check whether these paths are restored.
        for at in needless {
            progress::note(&self.read.folder, at, Step::Done);
        }
        conflicts
    }

    /// Does one task. Repeating a finished task is harmless.
    fn act(&mut self, after: &Path, action: &Action) -> io::Result<()> {
        match action {
            Action::Restore { path, before, merged } => {
                self.restore(path, before, merged.as_deref())
            }
            Action::Meta { path, before } => {
                let place = DirEntryRef::find(self.access, path)?;
                match before {
                    State::File { .. }
                        if !self.plan.explained.contains(after)
                            && self.is_given_since(&place, before)? =>
                    {
                        Ok(())
                    }
                    State::File { meta, .. } | State::Directory { meta, .. } => {
                        place.set_meta(meta)
                    }
                    State::Link { modified, owner, .. } => {
                        place.set_owner(*owner);
                        place.set_times(*modified, *modified)
                    }
                    State::Missing | State::Other => Ok(()),
                }
            }
            Action::MoveBack(made) => self.move_back(made),
        }
    }

    fn move_back(&self, made: &Move) -> io::Result<()> {
        let current = DirEntryRef::find(self.access, &made.to);
        let exists = match &current {
            Ok(current) => current.stat()?.is_some(),
            Err(_) => false,
        };
        let original = DirEntryRef::find(self.access, &made.from)?;
        // The moved object may have been created again with its earlier contents.
        if !exists && original.stat()?.is_some() {
            return Ok(());
        }
        let current = current?;
        match current.rename_new(&original) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // A file that a call made in a cache may be replaced.
                let Some(file) = Identity::at(&original.handle()?) else { return Err(error) };
                if !is_made_in_cache(self.all, self.access, &made.from, &file) {
                    return Err(error);
                }
                original.remove()?;
                current.rename_new(&original)
            }
            result => result,
        }
    }

    /// Restores a path's earlier state, or writes the merged contents.
    fn restore(&mut self, path: &Path, before: &State, merged: Option<&[u8]>) -> io::Result<()> {
        let now = State::at(self.access, path, before.depth())?;
        if merged.is_none() && before.same_contents(&now) && !self.is_another(before, &now) {
            return Ok(());
        }
        let place = match DirEntryRef::find(self.access, path) {
            Err(error) if *before == State::Missing && error.kind() == io::ErrorKind::NotFound => {
                return Ok(());
            }
            place => place?,
        };
        if let State::File { .. } = before
            && is_in_place(before, &now)
        {
            if self.renamed.contains(path) {
                return Ok(());
            }
            return self.write_over(&place, before, merged);
        }
        // Only a directory can't be replaced by a rename, and can't replace anything.
        let mut directory_times = None;
        match (&now, before) {
            (State::Directory { .. }, _) => place.remove_directory()?,
            (State::Missing, _) => {}
            (_, State::Missing | State::Directory { .. }) => place.remove()?,
            _ => directory_times = Some(place.directory_times()?),
        }
        match before {
            State::Missing | State::Other => {}
            State::Directory { .. } => place.make_directory()?,
            State::Link { target, .. } => {
                let aside = self.beside(&place)?;
                aside.link(target)?;
                put(&aside, &place)?;
            }
            State::File { .. } => self.make_file(path, &place, before, merged)?,
        }
        // Replacing an object doesn't change the directory's names, so the directory's times are
        // restored.
        match directory_times {
            Some(times) => place.set_directory_times(&times),
            None => Ok(()),
        }
    }

    /// Creates a file again: as another name of the same file if the file still has a name,
    /// otherwise from the saved copy.
    fn make_file(
        &mut self,
        path: &Path,
        place: &DirEntryRef<'_>,
        before: &State,
        merged: Option<&[u8]>,
    ) -> io::Result<()> {
        let aside = self.beside(place)?;
        let mut has_name = self.is_kept(&aside, before);
        if !has_name && let Some(other) = self.other_name(path, before) {
            has_name = aside.name_of(&other).is_ok();
        }
        if has_name {
            let is_own = self.is_forced || self.is_as_left(before);
            if !is_own && self.is_written(before) && !self.has_kept(before) {
                aside.remove()?;
                return Err(io::Error::other(
                    "the contents of the file were changed later under another name",
                ));
            }
            put(&aside, place)?;
            if merged.is_some() || (is_own && !self.has_contents(path, before)) {
                return self.write_over(place, before, merged);
            }
            // The file may have got contents by its other names since. They don't belong to the
            // call.
            self.renamed.insert(path.to_owned());
            return Ok(());
        }
        // The file gets its permissions before its name, since an undo may be killed between two
        // steps.
        match self.write_aside(&aside, before, merged) {
            Ok(()) => match put(&aside, place) {
                // The file itself is a mount, as in a container.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    self.write_over(place, before, merged)?;
                }
                result => result?,
            },
            Err(error) => {
                let _ = aside.remove();
                if !is_full(&error) {
                    return Err(error);
                }
                self.make_without_room(place, before, merged)?;
            }
        }
        if let State::File { identity: Some(identity), .. } = before {
            self.made.insert(*identity, path.to_owned());
        }
        Ok(())
    }

    /// Writes a file with its permissions under a temporary name in the same directory.
    fn write_aside(
        &self,
        aside: &DirEntryRef<'_>,
        before: &State,
        merged: Option<&[u8]>,
    ) -> io::Result<()> {
        let mut file = aside.create()?;
        self.write(&mut file, before, merged)?;
        match before.meta() {
            Some(meta) => aside.set_meta(meta),
            None => Ok(()),
        }
    }

    /// Creates a file on a full disk. The saved copy itself becomes the file, or the existing file
    /// is overwritten.
    fn make_without_room(
        &self,
        place: &DirEntryRef<'_>,
        before: &State,
        merged: Option<&[u8]>,
    ) -> io::Result<()> {
        if let (State::File { copy: Some(copy), .. }, None) = (before, merged)
            && !Rule::Room.is_off()
        {
            let aside = self.beside(place)?;
            if aside.take(&self.read.folder, &copy.to_string()).is_ok() {
                return put(&aside, place);
            }
        }
        self.write_over(place, before, merged)
    }

    /// Returns a temporary name in the same directory, for an object that gets its real name when
    /// it is complete. Each undo of the call uses the same name and removes an object with this
    /// name. So a killed undo leaves no file behind.
    fn beside(&self, place: &DirEntryRef<'a>) -> io::Result<DirEntryRef<'a>> {
        let aside = place.beside(&format!(".toolhold-undo-{}.tmp", self.read.about.call))?;
        let _ = aside.remove();
        Ok(aside)
    }

    /// Returns the state of a file with several names at the end of the call. Returns `None` if the
    /// state is unknown.
    fn left(&self, before: &State) -> Option<&KeptFile> {
        let State::File { copy: Some(copy), .. } = before else { return None };
        self.read.after.as_ref()?.kept.get(copy)
    }

    /// Checks whether the preserved file has the contents from the end of the call.
    fn is_as_left(&self, before: &State) -> bool {
        let State::File { copy: Some(copy), .. } = before else { return true };
        if self.read.after.is_none() {
            return true;
        }
        match (self.left(before), KeptFile::read(self.access, &self.read.folder, *copy)) {
            (Some(left), Ok(now)) => left.digest == now.digest,
            // The file isn't preserved. Such a file is not written by its other names.
            (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => false,
            // The call left a file that can't be read.
            _ => true,
        }
    }

    /// Checks whether the preserved file has its earlier contents again.
    fn has_kept(&self, before: &State) -> bool {
        let State::File { copy: Some(copy), digest, .. } = before else { return false };
        KeptFile::read(self.access, &self.read.folder, *copy).is_ok_and(|now| now.digest == *digest)
    }

    /// Checks whether the call has changed the contents of a file with several names.
    fn is_written(&self, before: &State) -> bool {
        let State::File { digest, .. } = before else { return false };
        self.left(before).is_some_and(|left| left.digest != *digest)
    }

    /// Checks whether others have changed the permissions or the owner of a file with several names
    /// since.
    fn is_given_since(&self, place: &DirEntryRef<'_>, before: &State) -> io::Result<bool> {
        if self.is_forced {
            return Ok(false);
        }
        let Some(left) = self.left(before) else { return Ok(false) };
        let Some(stat) = place.stat()? else { return Ok(false) };
        let mode = self.access.own_mode(&stat);
        let owner = Meta::from_stat(&stat).owner;
        Ok((mode, owner) != left.meta.permissions())
    }

    /// Checks whether the file itself is preserved, and has a name again.
    fn is_kept(&self, aside: &DirEntryRef<'_>, before: &State) -> bool {
        let State::File { copy: Some(copy), is_shared, .. } = before else { return false };
        *is_shared
            && !Rule::Names.is_off()
            && aside.name_of_kept(&self.read.folder, &kept_name(*copy)).is_ok()
    }

    /// Finds another name of the file that a path had. The name may be an existing name or a
    /// restored one. Returns `None` if there is no other name.
    fn other_name(&self, path: &Path, before: &State) -> Option<DirEntryRef<'a>> {
        let State::File { identity: Some(identity), is_shared, .. } = before else { return None };
        if Rule::Names.is_off() {
            return None;
        }
        let group = self.names.get(identity).map_or(&[][..], Vec::as_slice);
        if !is_shared && group.iter().all(|name| *name == path) {
            return None;
        }
        if let Some(made) = self.made.get(identity).filter(|made| *made != path) {
            return DirEntryRef::find(self.access, made).ok();
        }
        let others = group.iter().filter(|name| **name != path);
        let known = others.filter_map(|name| DirEntryRef::find(self.access, name).ok());
        if let Some(place) = known.into_iter().find(|place| is_name_of(place, identity)) {
            return Some(place);
        }
        let here = DirEntryRef::find(self.access, path.parent()?).ok()?;
        let entries = here.entries().ok()?.into_iter().take(MAX_LOOKED_AT);
        let others = entries.map(|name| path.with_file_name(name)).filter(|other| other != path);
        let mut siblings = others.filter_map(|other| DirEntryRef::find(self.access, &other).ok());
        siblings.find(|place| is_name_of(place, identity))
    }

    /// Checks whether two states are of different files, and one of the files has other names.
    /// Their contents are then equal only at the moment.
    fn is_another(&self, before: &State, now: &State) -> bool {
        let (
            State::File { identity: Some(one), is_shared, .. },
            State::File { identity: Some(other), is_shared: is_shared_now, .. },
        ) = (before, now)
        else {
            return false;
        };
        one != other && (*is_shared || *is_shared_now) && self.made_again(one) != Some(*other)
    }

    /// Returns the file that was created again in place of an earlier one.
    fn made_again(&self, file: &Identity) -> Option<Identity> {
        let place = DirEntryRef::find(self.access, self.made.get(file)?).ok()?;
        Identity::at(&place.handle().ok()?)
    }

    fn has_contents(&self, path: &Path, before: &State) -> bool {
        State::at(self.access, path, before.depth()).is_ok_and(|now| before.same_contents(&now))
    }

    /// Writes the contents into the existing file, so that all of its names have them. The owner
    /// doesn't change.
    fn write_over(
        &self,
        place: &DirEntryRef<'_>,
        before: &State,
        merged: Option<&[u8]>,
    ) -> io::Result<()> {
        let size = match (before, merged) {
            (_, Some(merged)) => merged.len() as u64,
            (State::File { size, .. }, None) => *size,
            _ => 0,
        };
        let mut file = place.overwrite()?;
        // If the disk has no room for the file, no part is written.
        if matches!(make_room(&file, size), Err(error) if is_full(&error)) {
            self.all.use_reserve();
            make_room(&file, size)?;
        }
        self.write(&mut file, before, merged)?;
        file.set_len(size)
    }

    fn write(&self, file: &mut File, before: &State, merged: Option<&[u8]>) -> io::Result<()> {
        match (before, merged) {
            (_, Some(merged)) => file.write_all(merged)?,
            (State::File { copy: Some(copy), .. }, None) => {
                let mut saved = self.read.folder.file(&copy.to_string())?;
                io::copy(&mut Read::by_ref(&mut saved), file)?;
            }
            _ => {}
        }
        file.sync_data()
    }
}

fn is_below(path: &Path, ends: &[&Path]) -> bool {
    ends.iter().any(|end| path.starts_with(end))
}

fn is_name_of(place: &DirEntryRef<'_>, file: &Identity) -> bool {
    place.handle().is_ok_and(|handle| Identity::at(&handle) == Some(*file))
}

/// Checks whether a file must be overwritten in place, because it has other names or another user
/// owns it.
fn is_in_place(before: &State, now: &State) -> bool {
    match (before, now) {
        (
            State::File { identity: Some(one), .. },
            State::File { identity: Some(other), is_shared, .. },
        ) => one == other && (*is_shared || !now.is_restorable()) && !Rule::InPlace.is_off(),
        _ => false,
    }
}

/// Reserves the blocks for a file of this size. The contents stay.
fn make_room(file: &File, size: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, size.max(1)) {
        // File systems that copy on write don't reserve.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        result => Ok(result?),
    }
}

/// Gives an object its real name.
fn put(aside: &DirEntryRef<'_>, place: &DirEntryRef<'_>) -> io::Result<()> {
    let result = aside.rename(place);
    // A rename does nothing if both names belong to one file, so the temporary name is removed
    // here.
    let _ = aside.remove();
    result
}
