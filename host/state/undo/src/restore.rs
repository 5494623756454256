//! Performs an undo, one path at a time.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::access::Access;
use super::caches::is_created_in_cache;
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

/// Most entries of a directory that are searched for another name of a file.
const MAX_SIBLINGS: usize = 10_000;

/// A running undo.
pub(crate) struct Restoration<'a> {
    access: &'a Access,
    store: &'a Folder,
    saved_call: &'a SavedCall,
    plan: &'a UndoPlan,
    names: HashMap<Identity, Vec<&'a Path>>,
    /// The path at which each file with several names was created again.
    recreated: HashMap<Identity, PathBuf>,
    /// The restored names of files that keep their later contents.
    renamed: HashSet<PathBuf>,
    /// Whether later changes are overwritten.
    is_forced: bool,
}

impl<'a> Restoration<'a> {
    pub(crate) fn new(
        access: &'a Access,
        store: &'a Folder,
        saved_call: &'a SavedCall,
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
            store,
            saved_call,
            plan,
            names,
            recreated: HashMap::new(),
            renamed: HashSet::new(),
            is_forced,
        }
    }

    pub(crate) fn run(mut self) -> Vec<UndoConflict> {
        let open: HashSet<usize> = self.plan.open.iter().copied().collect();
        let mut conflicts = Vec::new();
        let mut failed: HashSet<&Path> = self.plan.left.iter().map(PathBuf::as_path).collect();
        // A task that isn't done blocks later tasks, because each undone move changes paths.
        // `waiting` has the paths that weren't restored, and `unmoved` has both ends of each move
        // that wasn't undone.
        let mut waiting: Vec<&Path> = Vec::new();
        let mut unmoved: Vec<&Path> = Vec::new();
        let mut needless = Vec::new();
        for (at, Task { after, action }) in self.plan.tasks.iter().enumerate() {
            let is_stuck = match action {
                Action::MoveBack(made_move) => {
                    is_below(&made_move.to, &unmoved)
                        || is_below(&made_move.from, &unmoved)
                        || waiting.iter().any(|path| path.starts_with(&made_move.to))
                }
                action => is_below(action.path(), &unmoved),
            };
            if open.contains(&at) && !failed.contains(&**after) && !is_stuck {
                progress::note(&self.saved_call.folder, at, Step::Begun);
                match self.perform(after, action) {
                    Ok(()) => {
                        progress::note(&self.saved_call.folder, at, Step::Done);
                        continue;
                    }
                    Err(error) => {
                        progress::note(&self.saved_call.folder, at, Step::Open);
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
                // Other objects are at these paths now.
                Action::MoveBack(made_move) => unmoved.extend([&*made_move.from, &*made_move.to]),
                action => waiting.push(action.path()),
            }
        }
        // These tasks had nothing to restore. They count as done, because the undo of another call
        // checks the notes.
        for at in needless {
            progress::note(&self.saved_call.folder, at, Step::Done);
        }
        conflicts
    }

    /// Performs the task for the path `path_after_call`. A task that is done again changes nothing.
    fn perform(&mut self, path_after_call: &Path, action: &Action) -> io::Result<()> {
        match action {
            Action::Restore { path, before, merged } => {
                self.restore(path, before, merged.as_deref())
            }
            Action::Meta { path, before } => {
                let is_explained = self.plan.explained.contains(path_after_call);
                self.restore_meta(path, before, is_explained)
            }
            Action::MoveBack(made_move) => self.move_back(made_move),
        }
    }

    /// Restores the permissions and times of an object. Permissions of a file that have changed
    /// since the call stay, unless another undo made the current state (`is_explained`).
    fn restore_meta(&self, path: &Path, before: &State, is_explained: bool) -> io::Result<()> {
        let place = DirEntryRef::find(self.access, path)?;
        match before {
            State::File { meta, .. } => {
                if !is_explained && self.has_other_permissions(&place, before)? {
                    return Ok(());
                }
                place.set_meta(meta)
            }
            State::Directory { meta, .. } => place.set_meta(meta),
            State::Link { modified, owner, .. } => {
                place.set_owner(*owner);
                place.set_times(*modified, *modified)
            }
            State::Missing | State::Other => Ok(()),
        }
    }

    /// Moves an object back to its original path. Replaces a file there only if a call created the
    /// file in a cache.
    fn move_back(&self, made_move: &Move) -> io::Result<()> {
        let current = DirEntryRef::find(self.access, &made_move.to);
        let exists = match &current {
            Ok(current) => current.stat()?.is_some(),
            Err(_) => false,
        };
        let original = DirEntryRef::find(self.access, &made_move.from)?;
        // An earlier undo may have moved the object back, or created it again.
        if !exists && original.stat()?.is_some() {
            return Ok(());
        }
        // An error of the first search matters only if the original path is free.
        let current = current?;
        match current.rename_new(&original) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let Some(file) = Identity::at(&original.handle()?) else { return Err(error) };
                if !is_created_in_cache(self.store, self.access, &made_move.from, &file) {
                    return Err(error);
                }
                original.remove()?;
                current.rename_new(&original)
            }
            result => result,
        }
    }

    /// Restores the state of a path, except for permissions and times. A file gets the text
    /// `merged` if there is one, or its saved contents.
    fn restore(&mut self, path: &Path, before: &State, merged: Option<&[u8]>) -> io::Result<()> {
        let now = State::at(self.access, path, before.depth())?;
        if merged.is_none()
            && before.same_contents(&now)
            && !self.has_other_shared_file(before, &now)
        {
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
        // A rename can't replace a directory, and a directory can't replace another object, so in
        // these cases the current object is removed first.
        let mut directory_times = None;
        match (&now, before) {
            (State::Directory { .. }, _) => place.remove_directory()?,
            (State::Missing, _) => {}
            (_, State::Missing | State::Directory { .. }) => place.remove()?,
            // Otherwise, the rename below replaces the object.
            _ => directory_times = Some(place.directory_times()?),
        }
        match before {
            State::Missing | State::Other => {}
            State::Directory { .. } => place.make_directory()?,
            State::Link { target, .. } => {
                let aside = self.beside(&place)?;
                aside.link(target)?;
                move_into_place(&aside, &place)?;
            }
            State::File { .. } => self.make_file(path, &place, before, merged)?,
        }
        // After a replacement, the directory has the same names as before, so it gets its earlier
        // times again.
        match directory_times {
            Some(times) => place.set_directory_times(&times),
            None => Ok(()),
        }
    }

    /// Creates a file again. If the file still has another name, `path` becomes a link to it. If
    /// not, the saved copy is used.
    fn make_file(
        &mut self,
        path: &Path,
        place: &DirEntryRef<'_>,
        before: &State,
        merged: Option<&[u8]>,
    ) -> io::Result<()> {
        let aside = self.beside(place)?;
        let mut has_name = self.link_kept(&aside, before);
        if !has_name && let Some(other) = self.other_name(path, before) {
            has_name = aside.link_to(&other).is_ok();
        }
        if has_name {
            let may_overwrite = self.is_forced || self.is_unchanged_since_call(before);
            if !may_overwrite && self.is_written(before) && !self.has_kept(before) {
                aside.remove()?;
                return Err(io::Error::other(
                    "the file was changed later through another hard link",
                ));
            }
            move_into_place(&aside, place)?;
            if merged.is_some() || (may_overwrite && !self.has_contents(path, before)) {
                return self.write_over(place, before, merged);
            }
            // The file may have new contents from its other names, and these contents must stay.
            self.renamed.insert(path.to_owned());
            return Ok(());
        }
        // The permissions are set under a temporary name, because the undo may be killed at any
        // time.
        match self.write_aside(&aside, before, merged) {
            Ok(()) => match move_into_place(&aside, place) {
                // The file itself is a mount point, as in a container, so it can't be replaced.
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
            self.recreated.insert(*identity, path.to_owned());
        }
        Ok(())
    }

    /// Writes a file with its permissions under the temporary name.
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

    /// Creates a file on a full disk. The saved copy becomes the file, or the existing file is
    /// overwritten.
    fn make_without_room(
        &self,
        place: &DirEntryRef<'_>,
        before: &State,
        merged: Option<&[u8]>,
    ) -> io::Result<()> {
        if let (State::File { copy: Some(copy), .. }, None) = (before, merged)
            && !Rule::Room.is_off_in_test()
        {
            let aside = self.beside(place)?;
            if aside.move_from(&self.saved_call.folder, &copy.to_string()).is_ok() {
                return move_into_place(&aside, place);
            }
        }
        self.write_over(place, before, merged)
    }

    /// Returns a free temporary name in the same directory. Each undo of the call uses this name
    /// and first removes the object at this name, so that killed undos leave at most one object
    /// behind.
    fn beside(&self, place: &DirEntryRef<'a>) -> io::Result<DirEntryRef<'a>> {
        let aside = place.beside(&format!(".toolhold-undo-{}.tmp", self.saved_call.entry.call))?;
        let _ = aside.remove();
        Ok(aside)
    }

    /// Returns the state of a file with several names at the end of the call, if the state is
    /// known.
    fn state_after_call(&self, before: &State) -> Option<&KeptFile> {
        let State::File { copy: Some(copy), .. } = before else { return None };
        self.saved_call.after.as_ref()?.kept.get(copy)
    }

    /// Checks whether a file with several names still has its contents from the end of the call.
    /// Returns true if these contents are unknown.
    fn is_unchanged_since_call(&self, before: &State) -> bool {
        let State::File { copy: Some(copy), .. } = before else { return true };
        if self.saved_call.after.is_none() {
            return true;
        }
        let after_call = self.state_after_call(before);
        match KeptFile::read(self.access, &self.saved_call.folder, *copy) {
            Ok(now) => match after_call {
                Some(after_call) => after_call.digest == now.digest,
                // The file was unreadable at the end of the call, so its contents are unknown.
                None => true,
            },
            // The file isn't preserved, so its contents can't be compared. Its other names may have
            // later contents, which must not be overwritten.
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            // The file is unreadable now, so its contents are unknown.
            Err(_) => true,
        }
    }

    fn has_kept(&self, before: &State) -> bool {
        let State::File { copy: Some(copy), digest, .. } = before else { return false };
        KeptFile::read(self.access, &self.saved_call.folder, *copy)
            .is_ok_and(|now| now.digest == *digest)
    }

    fn is_written(&self, before: &State) -> bool {
        let State::File { digest, .. } = before else { return false };
        self.state_after_call(before).is_some_and(|after_call| after_call.digest != *digest)
    }

    /// Checks whether the permissions or the owner of a file have changed since the call.
    fn has_other_permissions(&self, place: &DirEntryRef<'_>, before: &State) -> io::Result<bool> {
        if self.is_forced {
            return Ok(false);
        }
        let Some(after_call) = self.state_after_call(before) else { return Ok(false) };
        let Some(stat) = place.stat()? else { return Ok(false) };
        let mode = self.access.own_mode(&stat);
        let owner = Meta::from_stat(&stat).owner;
        Ok((mode, owner) != after_call.meta.permissions())
    }

    /// Links the preserved file to the temporary name. Returns true if there is a preserved file
    /// and the link was made.
    fn link_kept(&self, aside: &DirEntryRef<'_>, before: &State) -> bool {
        let State::File { copy: Some(copy), is_shared, .. } = before else { return false };
        if !is_shared || Rule::Names.is_off_in_test() {
            return false;
        }
        aside.link_to_kept(&self.saved_call.folder, &kept_name(*copy)).is_ok()
    }

    /// Finds an existing or restored name of the file in the state `before`, other than `path`.
    fn other_name(&self, path: &Path, before: &State) -> Option<DirEntryRef<'a>> {
        let State::File { identity: Some(identity), is_shared, .. } = before else { return None };
        if Rule::Names.is_off_in_test() {
            return None;
        }
        let mut known_names = self.names.get(identity).cloned().unwrap_or_default();
        known_names.retain(|name| *name != path);
        if !is_shared && known_names.is_empty() {
            return None;
        }
        if let Some(name) = self.recreated.get(identity)
            && name != path
        {
            return DirEntryRef::find(self.access, name).ok();
        }
        for name in known_names {
            if let Ok(place) = DirEntryRef::find(self.access, name)
                && is_name_of(&place, identity)
            {
                return Some(place);
            }
        }
        self.other_name_in_directory(path, identity)
    }

    /// Finds a name of a file in the same directory as `path`, other than `path`.
    fn other_name_in_directory(&self, path: &Path, file: &Identity) -> Option<DirEntryRef<'a>> {
        let directory = DirEntryRef::find(self.access, path.parent()?).ok()?;
        for name in directory.entries().ok()?.into_iter().take(MAX_SIBLINGS) {
            let sibling = path.with_file_name(name);
            if sibling == path {
                continue;
            }
            if let Ok(place) = DirEntryRef::find(self.access, &sibling)
                && is_name_of(&place, file)
            {
                return Some(place);
            }
        }
        None
    }

    /// Checks whether a path must be restored although its contents are the same. This is so if the
    /// path has another file now and one of the two files has several names, because a write to
    /// another name could later change the contents.
    fn has_other_shared_file(&self, before: &State, now: &State) -> bool {
        let (
            State::File { identity: Some(earlier_file), is_shared, .. },
            State::File { identity: Some(current_file), is_shared: is_shared_now, .. },
        ) = (before, now)
        else {
            return false;
        };
        let has_several_names = *is_shared || *is_shared_now;
        if earlier_file == current_file || !has_several_names {
            return false;
        }
        // This undo may have created the file again.
        self.made_again(earlier_file) != Some(*current_file)
    }

    fn made_again(&self, file: &Identity) -> Option<Identity> {
        let place = DirEntryRef::find(self.access, self.recreated.get(file)?).ok()?;
        Identity::at(&place.handle().ok()?)
    }

    fn has_contents(&self, path: &Path, before: &State) -> bool {
        State::at(self.access, path, before.depth()).is_ok_and(|now| before.same_contents(&now))
    }

    /// Writes into the existing file, so that its other names get the same contents, and its owner
    /// stays.
    fn write_over(
        &self,
        place: &DirEntryRef<'_>,
        before: &State,
        merged: Option<&[u8]>,
    ) -> io::Result<()> {
        let size = match (before, merged) {
            (_, Some(merged)) => merged.len() as u64,
            (State::File { size, .. }, None) => *size,
            // Only files are written.
            _ => 0,
        };
        let mut file = place.overwrite()?;
        // Space is reserved first, so that nothing is written on a full disk.
        let reserved = make_room(&file, size);
        if reserved.is_err_and(|error| is_full(&error)) {
            self.store.use_reserve();
            make_room(&file, size)?;
        }
        self.write(&mut file, before, merged)?;
        file.set_len(size)
    }

    /// Writes the merged text or the saved copy, and waits for the disk. If there is neither, the
    /// file stays empty.
    fn write(&self, file: &mut File, before: &State, merged: Option<&[u8]>) -> io::Result<()> {
        match (before, merged) {
            (_, Some(merged)) => file.write_all(merged)?,
            (State::File { copy: Some(copy), .. }, None) => {
                let mut saved = self.saved_call.folder.file(&copy.to_string())?;
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

/// Checks whether the contents must be written into the existing file, because a new file lacks its
/// other names or its owner.
fn is_in_place(before: &State, now: &State) -> bool {
    let (
        State::File { identity: Some(earlier_file), .. },
        State::File { identity: Some(current_file), is_shared, .. },
    ) = (before, now)
    else {
        return false;
    };
    let is_irreplaceable = *is_shared || !now.is_restorable();
    earlier_file == current_file && is_irreplaceable && !Rule::InPlace.is_off_in_test()
}

fn make_room(file: &File, size: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, size.max(1)) {
        // Copy-on-write file systems can't reserve space.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        result => Ok(result?),
    }
}

fn move_into_place(aside: &DirEntryRef<'_>, place: &DirEntryRef<'_>) -> io::Result<()> {
    let result = aside.rename(place);
    // A rename does nothing if both names belong to one file. The temporary name then still exists.
    let _ = aside.remove();
    result
}
