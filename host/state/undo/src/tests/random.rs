//! Random trees and random calls: what calls changed comes back, as root and as an ordinary user.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, FileType, Mode};
use rustix::process::Uid;

use super::not_tried::not_tried;
use super::{changed, handle};
use crate::folder::TICK;
use crate::progress::NOTES_LEFT;
use crate::rules::Rule;
use crate::*;
use toolhold_contract::ChangeRecorder;

/// A file system in memory.
const MEMORY: &str = "/dev/shm";

/// A user without any rights of its own.
const NOBODY: u32 = 65_534;

const NAMES: [&str; 14] = [
    "a",
    "b",
    "c",
    "d",
    "d/x",
    "d/y",
    "d/e",
    "d/e/z",
    "src",
    "src/m",
    "target/o",
    "target/p",
    "target/n",
    "target/n/o",
];
const FILES: [&str; 6] = ["a", "b", "d/x", "d/e/z", "src/m", "target/o"];
const MODES: [u32; 9] = [0, 0o200, 0o400, 0o500, 0o555, 0o600, 0o644, 0o700, 0o755];

/// Numbers by chance, the same for the same seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % most as u64).expect("it is small")
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(12))
            .map(|_| b'a' + u8::try_from(self.below(26)).expect("a letter"))
            .collect()
    }
}

/// A tree as a person sees it: kinds, contents, modes, owners, and which names are one file.
type Seen = BTreeMap<PathBuf, (FileType, Vec<u8>, u32, u32, PathBuf)>;

fn seen(root: &Path, is_shown: impl Fn(&Path) -> bool) -> Seen {
    let mut all = Seen::new();
    let mut first = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    let mut paths = Vec::new();
    while let Some(path) = left.pop() {
        if fs::symlink_metadata(&path).expect("it is there").is_dir() {
            let entries = fs::read_dir(&path).expect("root reads everything");
            left.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
        paths.push(path);
    }
    paths.sort();
    for path in paths {
        let there = fs::symlink_metadata(&path).expect("it is there");
        let kind = FileType::from_raw_mode(there.mode());
        let contents = match kind {
            FileType::RegularFile => fs::read(&path).expect("root reads everything"),
            FileType::Symlink => {
                fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
            }
            _ => Vec::new(),
        };
        let relative = path.strip_prefix(root).expect("it is below").to_owned();
        if !is_shown(&relative) {
            continue;
        }
        let same = match kind {
            FileType::RegularFile => first.entry(there.ino()).or_insert(relative.clone()).clone(),
            _ => relative.clone(),
        };
        all.insert(relative, (kind, contents, there.mode() & 0o7777, there.uid(), same));
    }
    all
}

/// Does something as a user.
fn as_user<T: Send>(user: u32, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if user != 0 {
                let user = Uid::from_raw(user);
                rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
            }
            act()
        });
        thread.join().expect("it ends")
    })
}

pub(super) fn make(root: &Path, random: &mut Random) {
    for folder in ["d", "d/e", "src", "target", ".git"] {
        fs::create_dir(root.join(folder)).expect("a folder is made");
    }
    fs::write(root.join(".gitignore"), "target/\n").expect("it is written");
    let tag = "Signature: 8a477f597d28d172789f06886806bc55\n";
    fs::write(root.join("target/CACHEDIR.TAG"), tag).expect("it is written");
    for file in FILES {
        if random.below(4) > 0 {
            fs::write(root.join(file), random.bytes()).expect("it is written");
        }
    }
    for (link, target) in [("b", "c"), ("src/m", "d/y"), ("src/m", "target/p")] {
        if random.below(3) == 0 {
            let _ = fs::hard_link(root.join(link), root.join(target));
        }
    }
    for file in NAMES {
        if random.below(3) == 0
            && fs::symlink_metadata(root.join(file)).is_ok_and(|it| it.is_file())
        {
            let mode = Permissions::from_mode(random.one(&MODES));
            fs::set_permissions(root.join(file), mode).expect("it is set");
        }
    }
}

/// The path itself changes, not its name.
fn before_object(recorder: &dyn ChangeRecorder, path: &Path) -> Option<()> {
    let handles = [Some(handle(path)?), None];
    recorder.before_change(&changed(path, &handles)).ok()
}

fn before_name(recorder: &dyn ChangeRecorder, path: &Path) -> Option<()> {
    let found = fs::symlink_metadata(path);
    if found.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {
        return None;
    }
    let parent = handle(path.parent()?)?;
    recorder.before_change(&changed(path, &[handle(path), Some(parent)])).ok()
}

fn is(path: &Path, kind: FileType) -> bool {
    let found = fs::symlink_metadata(path);
    found.is_ok_and(|found| FileType::from_raw_mode(found.mode()) == kind)
}

/// Whether no link is on the way, as in a real path.
fn is_real(root: &Path, path: &Path) -> bool {
    let above = path.parent().expect("it is below the root");
    above.ancestors().take_while(|it| *it != root).all(|it| is(it, FileType::Directory))
}

pub(super) fn write(
    recorder: &dyn ChangeRecorder,
    path: &Path,
    bytes: &[u8],
    append: bool,
) -> Option<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).append(append).truncate(!append);
    if is(path, FileType::RegularFile) {
        before_object(recorder, path)?;
    } else if fs::symlink_metadata(path).is_err() {
        before_name(recorder, path)?;
    } else {
        return None;
    }
    options.open(path).ok()?.write_all(bytes).ok()
}

pub(super) fn link(recorder: &dyn ChangeRecorder, from: &Path, to: &Path) -> Option<()> {
    let found = fs::symlink_metadata(to);
    if found.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {
        return None;
    }
    let from_handles = [Some(handle(from)?), None];
    let to_handles = [handle(to), Some(handle(to.parent()?)?)];
    recorder.before_link(&changed(from, &from_handles), &changed(to, &to_handles)).ok()?;
    fs::hard_link(from, to).ok()
}

pub(super) fn rename(recorder: &dyn ChangeRecorder, from: &Path, to: &Path) -> Option<()> {
    if to.starts_with(from) {
        return None;
    }
    let found = fs::symlink_metadata(to);
    if found.is_err_and(|error| error.kind() != std::io::ErrorKind::NotFound) {
        return None;
    }
    let from_handles = [Some(handle(from)?), handle(from.parent()?)];
    let to_handles = [handle(to), Some(handle(to.parent()?)?)];
    recorder.before_rename(&changed(from, &from_handles), &changed(to, &to_handles)).ok()?;
    fs::rename(from, to).ok()
}

pub(super) fn remove(recorder: &dyn ChangeRecorder, path: &Path) -> Option<()> {
    if is(path, FileType::Directory) {
        for entry in fs::read_dir(path).ok()?.flatten() {
            remove(recorder, &entry.path());
        }
        before_name(recorder, path)?;
        return fs::remove_dir(path).ok();
    }
    fs::symlink_metadata(path).ok()?;
    before_name(recorder, path)?;
    fs::remove_file(path).ok()
}

/// One change, as a program makes it: the recorder hears of each step before.
fn change(recorder: &dyn ChangeRecorder, root: &Path, random: &mut Random) -> Option<()> {
    let path = root.join(random.one(&NAMES));
    let other = root.join(random.one(&NAMES));
    if !is_real(root, &path) || !is_real(root, &other) {
        return None;
    }
    match random.below(12) {
        0 | 1 => write(recorder, &path, &random.bytes(), false),
        2 => write(recorder, &path, &random.bytes(), true),
        3 => {
            let aside = path.with_extension("tmp");
            write(recorder, &aside, &random.bytes(), false)?;
            if is(&path, FileType::Directory) {
                return remove(recorder, &aside);
            }
            rename(recorder, &aside, &path)
        }
        4 => remove(recorder, &path),
        5 => {
            before_name(recorder, &path)?;
            fs::create_dir(&path).ok()
        }
        6 => {
            before_name(recorder, &path)?;
            symlink(random.one(&NAMES), &path).ok()
        }
        7 if is(&path, FileType::RegularFile) => link(recorder, &path, &other),
        8 | 9 => rename(recorder, &path, &other),
        10 if !is(&path, FileType::Symlink) => {
            before_object(recorder, &path)?;
            fs::set_permissions(&path, Permissions::from_mode(random.one(&MODES))).ok()
        }
        11 => {
            before_name(recorder, &path)?;
            rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).ok()
        }
        _ => None,
    }
}

pub(super) fn recorder(store: &UndoStore, call: &str) -> (Arc<Journal>, CommandJournal) {
    let entry = UndoEntry::new(call, "bash", "s", SystemTime::now());
    let journal = Arc::new(store.journal(entry, true));
    let rules = SaveRules { required: true, call_bytes: 1 << 20 };
    (Arc::clone(&journal), CommandJournal::new(journal, rules, None, true))
}

/// A tree without owners and without which names are one file.
fn contents(seen: &Seen) -> Vec<(PathBuf, FileType, Vec<u8>, u32)> {
    seen.iter().map(|(path, it)| (path.clone(), it.0, it.1.clone(), it.2)).collect()
}

/// The paths that differ.
fn differences(before: &Seen, after: &Seen) -> Vec<String> {
    let paths = before.keys().chain(after.keys().filter(|path| !before.contains_key(*path)));
    paths
        .filter(|path| before.get(*path) != after.get(*path))
        .map(|path| format!("{}: {:?} → {:?}", path.display(), before.get(path), after.get(path)))
        .collect()
}

/// How a case differs from a call that ends and is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Whole,
    /// The store is on another disk, so it keeps no names of files.
    OtherDisk,
    /// The disk is full when it is undone.
    FullDisk,
    /// The process of the call is killed before the call ends.
    Killed,
    /// The process of the undo is killed, and the undo is run again.
    KilledUndo,
}

/// A case after which something differs.
#[derive(Debug, thiserror::Error)]
enum UnrestoredError {
    #[error("seed {seed}, user {user}, {kind:?}: {left}\n{}", .differences.join("\n"))]
    OneCall { seed: u64, user: u32, kind: Kind, left: String, differences: Vec<String> },
    #[error("seed {seed}, user {user}, two callers, {left} left:\n{}", .differences.join("\n"))]
    TwoCallers { seed: u64, user: u32, left: usize, differences: Vec<String> },
}

fn case(seed: u64, user: u32, kind: Kind, disk: Option<&Path>) -> Result<(), UnrestoredError> {
    let mut random = Random(seed);
    let folder = as_user(user, || match disk {
        Some(disk) => tempfile::tempdir_in(disk).expect("a temporary folder"),
        None => tempfile::tempdir().expect("a temporary folder"),
    });
    let root = folder.path().join("tree");
    let other = as_user(user, || match kind {
        Kind::OtherDisk => tempfile::tempdir_in(MEMORY).expect("a temporary folder"),
        _ => tempfile::tempdir_in(folder.path()).expect("a temporary folder"),
    });
    let store = UndoStore::in_folder(other.path().join("undo"), UndoLimits::default());
    as_user(user, || {
        fs::create_dir(&root).expect("a folder is made");
        make(&root, &mut random);
    });
    // A file of root in a folder of the user, who may replace and remove it.
    if random.below(3) == 0 {
        let _ = lchown(root.join(random.one(&FILES)), Some(0), Some(0));
    }
    let before = seen(&root, |_| true);
    await_tick();
    as_user(user, || {
        let (journal, commands) = recorder(&store, "1-1");
        let most = number("TOOLHOLD_CHANGES").unwrap_or(14);
        for _ in 0..=random.below(usize::try_from(most).expect("it is small")) {
            match kind {
                Kind::OtherDisk => change_in_place(&commands, &root, &mut random),
                _ => change(&commands, &root, &mut random),
            };
        }
        drop(commands);
        if kind == Kind::Killed {
            journal.kill();
        } else {
            journal.finish();
        }
    });
    if kind == Kind::FullDisk {
        fill(&folder.path().join("filler"));
    }
    let notes = if kind == Kind::KilledUndo { 1 + random.below(30) } else { usize::MAX };
    let left = as_user(user, || {
        NOTES_LEFT.set(notes);
        let undone = catch_unwind(AssertUnwindSafe(|| store.undo("1-1")));
        NOTES_LEFT.set(usize::MAX);
        match undone.unwrap_or_else(|_| store.undo("1-1")) {
            Ok(_) | Err(UndoError::NotSaved) => String::new(),
            Err(error) => error.to_string(),
        }
    });
    // What calls made in a cache may stay there.
    let after = seen(&root, |path| before.contains_key(path) || !path.starts_with("target"));
    let is_same = match kind {
        Kind::OtherDisk => contents(&before) == contents(&after),
        _ => before == after,
    };
    if is_same && left.is_empty() {
        return Ok(());
    }
    let differences = differences(&before, &after);
    Err(UnrestoredError::OneCall { seed, user, kind, left, differences })
}

/// A call takes files for new that are hardly older than itself.
fn await_tick() {
    let over = Instant::now() + Duration::from_nanos(TICK);
    while Instant::now() < over {
        std::thread::yield_now();
    }
}

/// A change that leaves all names where they are.
fn change_in_place(recorder: &dyn ChangeRecorder, root: &Path, random: &mut Random) -> Option<()> {
    let path = root.join(random.one(&FILES));
    if random.below(3) > 0 {
        return write(recorder, &path, &random.bytes(), random.below(2) == 0);
    }
    before_object(recorder, &path)?;
    fs::set_permissions(&path, Permissions::from_mode(random.one(&MODES))).ok()
}

/// A change of what a file contains.
fn change_contents(recorder: &dyn ChangeRecorder, root: &Path, random: &mut Random) -> Option<()> {
    let path = root.join(random.one(&FILES));
    match random.below(4) {
        0 => write(recorder, &path, &random.bytes(), false),
        1 => write(recorder, &path, &random.bytes(), true),
        2 => {
            let aside = path.with_extension("tmp");
            write(recorder, &aside, &random.bytes(), false)?;
            rename(recorder, &aside, &path)
        }
        _ => remove(recorder, &path),
    }
}

/// Two calls that change the same files in turn. What the undo of one leaves, because the other
/// changed it too, is restored path by path. Returns whether some path can't be restored: undo told
/// so.
fn two_callers(seed: u64, user: u32) -> Result<bool, UnrestoredError> {
    let mut random = Random(seed);
    let folder = as_user(user, || tempfile::tempdir().expect("a temporary folder"));
    let (root, data) = (folder.path().join("tree"), folder.path().join("undo"));
    let store = UndoStore::in_folder(data, UndoLimits::default());
    as_user(user, || {
        fs::create_dir(&root).expect("a folder is made");
        make(&root, &mut random);
    });
    let before = seen(&root, |_| true);
    await_tick();
    let left = as_user(user, || {
        let mut callers = Vec::from(["1-1", "2-1"].map(|call| recorder(&store, call)));
        let first = random.below(2);
        for one_is_over in [false, true] {
            for _ in 0..=random.below(10) {
                let (_, commands) = random.one(&callers.iter().collect::<Vec<_>>());
                match seed % 4 / 2 {
                    0 => change_contents(commands, &root, &mut random),
                    _ => change(commands, &root, &mut random),
                };
            }
            let at = if one_is_over { 0 } else { first };
            let (journal, commands) = callers.remove(at);
            drop(commands);
            journal.finish();
        }
        // The later call may have changed a path first.
        for call in ["2-1", "1-1", "2-1"] {
            let _ = store.undo(call);
        }
        let mut left = 0;
        for call in ["1-1", "2-1"] {
            if let Err(UndoError::Partial { left: paths, .. }) = store.undo(call) {
                left += paths.len();
                for conflict in paths {
                    let _ = store.undo_only(call, Some(&conflict.path));
                }
            }
        }
        left
    });
    let after = seen(&root, |path| before.contains_key(path) || !path.starts_with("target"));
    let [expected, found] = [&before, &after].map(contents);
    let has_moves = seed % 4 / 2 == 1;
    if expected == found || has_moves && left > 0 {
        return Ok(expected != found);
    }
    let differences = differences(&before, &after);
    Err(UnrestoredError::TwoCallers { seed, user, left, differences })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Takes all the room of a disk.
pub(super) fn fill(path: &Path) {
    let mut file = fs::File::create(path).expect("a file is made");
    for size in [64 * 1024, 4096, 1] {
        let bytes = vec![0; size];
        while file.write_all(&bytes).is_ok() {}
    }
}

/// Only root may act as another user, mount a disk, and read what has no permissions.
pub(super) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        not_tried("root");
    }
    is_root
}

/// The variable that names the folder with a mount, in the process that has one.
const DISK: &str = "TOOLHOLD_TEST_DISK";

/// The folder with a mount. `None`: a process that has one runs this test.
pub(super) fn mounted(mount: &str, test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(DISK).map(PathBuf::from);
    if folder.is_none() && is_root() {
        run_with_mount(mount, test);
    }
    folder
}

#[test]
fn soak_calls_come_back_on_a_full_disk() {
    let cases = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 1000 } else { 20 };
    let test = "random::soak_calls_come_back_on_a_full_disk";
    let Some(disk) = mounted(SMALL_DISK, test) else { return };
    let mut failed = Vec::new();
    for seed in 1..=cases {
        let user = if seed % 2 == 0 { 0 } else { NOBODY };
        failed.extend(case(seed, user, Kind::FullDisk, Some(&disk)).err());
    }
    assert!(failed.is_empty(), "{}", report(&failed));
}

fn report(failed: &[UnrestoredError]) -> String {
    failed.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n")
}

/// Makes a small disk of a folder.
pub(super) const SMALL_DISK: &str = "mount -t tmpfs -o size=1m,mode=1777 tmpfs \"$1\"";

/// Runs a test in another process, which has a mount in a folder of its own.
fn run_with_mount(mount: &str, test: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let own = std::env::current_exe().expect("it runs");
    let ended = std::process::Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            &format!("{mount} && exec \"$2\" --exact tests::{test}"),
            "sh",
        ])
        .args([folder.path(), &own])
        .env(DISK, folder.path())
        .output()
        .expect("`unshare` runs");
    let said = [ended.stdout, ended.stderr].concat();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn soak_random_calls_come_back() {
    let is_soak = std::env::var_os("TOOLHOLD_SOAK").is_some();
    let cases = if is_soak { 20_000 } else { number("TOOLHOLD_CASES").unwrap_or(100) };
    if !is_root() {
        return;
    }
    let start = match (number("TOOLHOLD_SEED"), is_soak) {
        (Some(seed), _) => seed,
        (None, true) => u64::from(std::process::id()) << 32,
        (None, false) => 1,
    };
    let has_memory = Path::new(MEMORY).is_dir();
    if !has_memory {
        not_tried(MEMORY);
    }
    let (mut failed, mut told) = (Vec::new(), 0);
    for seed in start..start + cases {
        let user = if seed % 2 == 0 { 0 } else { NOBODY };
        failed.extend(match seed % 7 {
            0 => case(seed, user, Kind::Killed, None).err(),
            3 => case(seed, user, Kind::KilledUndo, None).err(),
            1 | 2 => match two_callers(seed, user) {
                Ok(is_told) => {
                    told += u64::from(is_told);
                    None
                }
                Err(unrestored) => Some(unrestored),
            },
            6 if has_memory => case(seed, user, Kind::OtherDisk, None).err(),
            _ => case(seed, user, Kind::Whole, None).err(),
        });
    }
    assert!(
        failed.is_empty(),
        "{} of {cases}:\n{}",
        failed.len(),
        report(&failed[..failed.len().min(5)])
    );
    assert!(told <= cases / 500, "{told} of {cases} can't be restored, and undo says so");
}

/// Removes each rule, and expects that the cases find that.
#[test]
fn soak_finds_each_missing_rule() {
    // It runs all cases once for each rule.
    if std::env::var_os("TOOLHOLD_SOAK").is_none() || !is_root() {
        return;
    }
    for rule in Rule::ALL {
        let test = match rule {
            Rule::Room => "tests::random::soak_calls_come_back_on_a_full_disk",
            _ => "tests::random::soak_random_calls_come_back",
        };
        let ended = std::process::Command::new(std::env::current_exe().expect("it runs"))
            .args(["--exact", test])
            .env(Rule::OFF, format!("{rule:?}"))
            .env("TOOLHOLD_CASES", "2000")
            .env_remove("TOOLHOLD_SOAK")
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(said.contains("1 failed"), "{rule:?} isn't missed: {said}");
    }
}
