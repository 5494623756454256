//! The path layer on real directories: what it allows, and the state outside after everything that
//! it refuses.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, Mode, Timestamps};
use rustix::io::Errno;
use tempfile::TempDir;
use toolhold_contract::Access;
use toolhold_policy::files::{Grant, OwnFolder, PathGlobs};
use toolhold_system::files::{
    FileError, FileView, Grants, LastLink, OpenOptions, ResolvedPath, with_its_links,
};

/// A granted folder `in`, with `secrets/**` and `.env` refused for reading and `locked/**` for
/// writing, and a folder `out` beside it.
struct World {
    _temp: TempDir,
    inside: PathBuf,
    outside: PathBuf,
    view: FileView,
}

const READ: OpenOptions = OpenOptions {
    read: true,
    write: false,
    create: false,
    exclusive: false,
    truncate: false,
    directory: false,
    no_follow: false,
    sync: false,
};
const CREATE: OpenOptions = OpenOptions { write: true, create: true, ..READ };
const TRUNCATE: OpenOptions = OpenOptions { write: true, truncate: true, ..READ };

impl World {
    fn new() -> Self {
        Self::with(|inside| vec![(inside.to_owned(), Access::Write)])
    }

    fn with(grants: impl FnOnce(&Path) -> Vec<(PathBuf, Access)>) -> Self {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let root = temp.path().canonicalize().expect("is there");
        let (inside, outside) = (root.join("in"), root.join("out"));
        for dir in ["in/sub", "in/secrets/deep", "in/locked", "in/ro", "in/own", "out"] {
            fs::create_dir_all(root.join(dir)).expect("made");
        }
        for (file, text) in [
            ("in/a.txt", "a"),
            ("in/.env", "TOKEN"),
            ("in/secrets/key", "KEY"),
            ("in/locked/f", "locked"),
            ("in/ro/f", "ro"),
            ("in/own/f", "own"),
            ("out/secret", "OUTSIDE"),
        ] {
            fs::write(root.join(file), text).expect("written");
        }
        let view = FileView::new(open(grants(&inside), &inside), false);
        Self { _temp: temp, inside, outside, view }
    }

    fn dir(&self) -> BorrowedFd<'_> {
        self.view.grants().roots()[0].dir.as_fd()
    }

    fn read(&self, path: &str) -> Result<String, FileError> {
        let opened = self.view.open_at(self.dir(), path, READ)?;
        let mut buffer = vec![0; 100];
        let read = rustix::io::pread(&opened.handle, &mut buffer, 0)?;
        Ok(String::from_utf8_lossy(&buffer[..read]).into_owned())
    }

    #[track_caller]
    fn outside_is_untouched(&self) {
        assert_eq!(fs::read_to_string(self.outside.join("secret")).expect("is there"), "OUTSIDE");
        assert_eq!(fs::read_dir(&self.outside).expect("is there").count(), 1);
        assert_eq!(fs::metadata(self.outside.join("secret")).expect("is there").nlink(), 1);
    }
}

fn open(grants: Vec<(PathBuf, Access)>, inside: &Path) -> Arc<Grants> {
    let grants = grants
        .into_iter()
        .map(|(path, access)| Grant { path, access, place: "[tools.file]".into() })
        .collect();
    let own = |name| OwnFolder { path: inside.join(name), secret: true };
    let own = ["own", "later/own"].map(own).into_iter().flat_map(with_its_links).collect();
    let globs = |patterns: &[&str]| {
        let patterns =
            patterns.iter().map(|pattern| ((*pattern).to_owned(), "[tools.file]".to_owned()));
        PathGlobs::new(patterns.collect()).expect("globs")
    };
    let opened = Grants::open(grants, own, |rules| {
        rules.with_globs(globs(&["secrets/**", ".env"]), globs(&[]), globs(&["locked/**"]))
    });
    Arc::new(opened.expect("granted"))
}

#[track_caller]
fn denied<T: std::fmt::Debug>(result: Result<T, FileError>, rule: &str) {
    match result {
        Err(FileError::Denied(denial)) => assert!(denial.to_string().contains(rule), "{denial}"),
        other => panic!("not denied by {rule}: {other:?}"),
    }
}

#[track_caller]
fn errno<T: std::fmt::Debug>(result: Result<T, FileError>, expected: Errno) {
    match result {
        Err(FileError::Errno(errno)) => assert_eq!(errno, expected),
        other => panic!("not {expected:?}: {other:?}"),
    }
}

#[test]
fn granted_paths_can_be_used() {
    let world = World::new();
    assert_eq!(world.read("a.txt").expect("is read"), "a");
    assert_eq!(world.read("sub/../a.txt").expect("is read"), "a");
    symlink("a.txt", world.inside.join("link")).expect("linked");
    assert_eq!(world.read("link").expect("is read"), "a");
    let made = world.view.open_at(world.dir(), "sub/new", CREATE).expect("is made");
    assert_eq!((made.kind, made.path), (FileType::RegularFile, world.inside.join("sub/new")));
    world.view.create_directory(world.dir(), "sub/dir/").expect("is made");
    world.view.rename((world.dir(), "sub/new"), (world.dir(), "sub/dir/moved")).expect("is moved");
    world.view.link((world.dir(), "sub/dir/moved"), (world.dir(), "twin")).expect("is linked");
    world.view.unlink(world.dir(), "twin").expect("is removed");
    world.view.unlink(world.dir(), "sub/dir/moved").expect("is removed");
    world.view.remove_directory(world.dir(), "sub/dir").expect("is removed");
    world.view.symlink("../a.txt", world.dir(), "sub/up").expect("is linked");
    assert_eq!(world.view.read_link(world.dir(), "sub/up").expect("is a link"), "../a.txt");
    assert_eq!(world.read("sub/up").expect("is read"), "a");
}

#[test]
fn no_spelling_leads_out_of_the_grant() {
    let world = World::new();
    symlink("../out", world.inside.join("dir-link")).expect("linked");
    symlink("../out/secret", world.inside.join("file-link")).expect("linked");
    symlink(&world.outside, world.inside.join("absolute-link")).expect("linked");
    symlink("dir-link", world.inside.join("chain")).expect("linked");
    symlink("/proc/self/root", world.inside.join("magic")).expect("linked");
    let outside = world.outside.to_str().expect("UTF-8").to_owned();
    let paths = [
        "../out/secret".to_owned(),
        "sub/../../out/secret".to_owned(),
        "./../out/secret".to_owned(),
        "../out/secret/".to_owned(),
        format!("{outside}/secret"),
        format!("/{outside}/secret"),
        "dir-link/secret".to_owned(),
        "dir-link//secret".to_owned(),
        "file-link".to_owned(),
        "file-link/".to_owned(),
        "absolute-link/secret".to_owned(),
        "chain/secret".to_owned(),
        format!("magic{outside}/secret"),
    ];
    for path in &paths {
        for how in [READ, CREATE, TRUNCATE] {
            denied(world.view.open_at(world.dir(), path, how), "allowed_paths");
        }
        denied(world.view.find_at(world.dir(), path, true), "allowed_paths");
        denied(world.view.set_times(world.dir(), path, true, &now()), "allowed_paths");
    }
    for path in ["../out/x", "dir-link/x", "absolute-link/x", "chain/x", "../out/x/"] {
        denied(world.view.create_directory(world.dir(), path), "allowed_paths");
        denied(world.view.open_at(world.dir(), path, CREATE), "allowed_paths");
        denied(world.view.rename((world.dir(), "a.txt"), (world.dir(), path)), "allowed_paths");
        denied(world.view.link((world.dir(), "a.txt"), (world.dir(), path)), "allowed_paths");
        denied(world.view.symlink("a.txt", world.dir(), path), "allowed_paths");
    }
    for path in ["../out/secret", "dir-link/secret", "chain/secret"] {
        denied(world.view.unlink(world.dir(), path), "allowed_paths");
        denied(world.view.rename((world.dir(), path), (world.dir(), "stolen")), "allowed_paths");
        denied(world.view.link((world.dir(), path), (world.dir(), "stolen")), "allowed_paths");
    }
    assert!(!world.inside.join("stolen").exists());
    world.outside_is_untouched();
}

#[test]
fn links_of_a_guest_stay_in_the_grant() {
    let world = World::new();
    for target in ["/etc", "../out", "sub/../../out", "..", "secrets/key", ".env"] {
        match world.view.symlink(target, world.dir(), "made") {
            Err(FileError::Denied(_)) => {
                assert!(fs::symlink_metadata(world.inside.join("made")).is_err(), "{target}");
            }
            other => panic!("{target}: {other:?}"),
        }
    }
}

#[test]
fn denied_paths_can_be_neither_read_nor_renamed_into_reach() {
    let world = World::new();
    symlink(".env", world.inside.join("alias")).expect("linked");
    symlink("secrets", world.inside.join("alias-dir")).expect("linked");
    for path in [
        ".env",
        "./.env",
        "sub/../.env",
        "secrets/key",
        "alias",
        "alias-dir/key",
        "secrets",
        "secrets/missing",
    ] {
        denied(world.view.open_at(world.dir(), path, READ), "deny_read");
        denied(world.view.open_at(world.dir(), path, TRUNCATE), "deny_read");
        denied(world.view.find_at(world.dir(), path, true), "deny_read");
    }
    denied(world.view.rename((world.dir(), ".env"), (world.dir(), "x")), "deny_read");
    denied(world.view.link((world.dir(), ".env"), (world.dir(), "x")), "deny_read");
    denied(world.view.rename((world.dir(), "secrets"), (world.dir(), "x")), "deny_read");
    denied(world.view.rename((world.dir(), "a.txt"), (world.dir(), ".env")), "deny_read");
    denied(world.view.unlink(world.dir(), ".env"), "deny_read");
    assert!(!world.inside.join("x").exists());
    assert_eq!(fs::read_to_string(world.inside.join(".env")).expect("is there"), "TOKEN");
}

#[test]
fn wide_folder_is_checked_with_few_handles() {
    let world = World::new();
    for index in 0..3_000 {
        fs::create_dir_all(world.inside.join(format!("wide/{index}/deep"))).expect("made");
    }
    world.view.rename((world.dir(), "wide"), (world.dir(), "moved")).expect("is moved");
    fs::write(world.inside.join("moved/2999/deep/.env"), "DEEP").expect("written");
    denied(world.view.rename((world.dir(), "moved"), (world.dir(), "moved")), "deny_read");
}

/// Objects under a temporary name are removed with the view, with everything below, and nothing
/// else is.
#[test]
fn only_leftover_temporary_files_are_removed() {
    let world = World::new();
    let name = |number: u64| format!(".toolhold-{number:016x}.tmp");
    let at = |name: &str| world.inside.join(name);
    let make = |path: &str| world.view.create_directory(world.dir(), path).expect("is made");
    fs::create_dir_all(at(&name(9))).expect("made by somebody else");
    symlink(&world.outside, at("away")).expect("made");
    for number in 0..4 {
        make(&name(number));
        world
            .view
            .open_at(world.dir(), &format!("{}/file", name(number)), CREATE)
            .expect("is made");
    }
    // One gets its final name, one is removed, one is replaced by another's file, and one holds a
    // link.
    world.view.rename((world.dir(), &name(0)), (world.dir(), "named")).expect("is named");
    fs::rename(at(&name(1)), at("taken")).expect("renamed");
    fs::rename(at("sub"), at(&name(1))).expect("renamed");
    fs::rename(at("away"), at(&format!("{}/away", name(2)))).expect("renamed");
    // A protected file stays, wherever it came from.
    fs::write(at(&format!("{}/.env", name(3))), "TOKEN").expect("written");
    errno(
        world.view.rename((world.dir(), "a.txt"), (world.dir(), &format!("{}/a", name(2)))),
        Errno::PERM,
    );
    errno(world.view.rename((world.dir(), "ro"), (world.dir(), &name(5))), Errno::PERM);
    errno(
        world.view.link((world.dir(), "a.txt"), (world.dir(), &format!("{}/a", name(2)))),
        Errno::PERM,
    );
    world.view.remove_temporary();
    for there in
        ["named/file", "taken/file", &name(1), &name(9), &format!("{}/.env", name(3)), "a.txt"]
    {
        assert!(at(there).exists(), "{there}");
    }
    assert!(!at(&name(2)).exists());
    world.outside_is_untouched();
    // A directory that gets its final name keeps its content, whatever the names in it are.
    make(&name(6));
    make(&format!("{}/{}", name(6), name(7)));
    world.view.rename((world.dir(), &name(6)), (world.dir(), "whole")).expect("is named");
    world.view.remove_temporary();
    assert!(at("whole").join(name(7)).exists());
    // Its place is free again.
    for number in 0..16 {
        make(&name(100 + number));
    }
    errno(world.view.create_directory(world.dir(), &name(200)), Errno::MFILE);
    world.view.remove_temporary();
    assert!((100..116).all(|number| !at(&name(number)).exists()) && !at(&name(200)).exists());
}

/// The globs decide on the final name of a file that is written under a temporary one.
#[test]
fn globs_do_not_match_the_temporary_name_of_a_call() {
    let temporary = ".toolhold-0123456789abcdef.tmp";
    for (deny_read, allow_read, deny_write) in [
        (vec![], vec!["*.txt", "tree"], vec![]),
        (vec!["*.tmp"], vec![], vec![]),
        (vec![], vec![], vec!["*.tmp"]),
    ] {
        let world = World::new();
        let globs = |patterns: &[&str]| {
            let patterns = patterns.iter().map(|glob| (glob.to_string(), "here")).collect();
            PathGlobs::new(patterns).expect("valid globs")
        };
        let grant = Grant { path: world.inside.clone(), access: Access::Write, place: "p".into() };
        let grants = Grants::open(vec![grant], Vec::new(), |rules| {
            rules.with_globs(globs(&deny_read), globs(&allow_read), globs(&deny_write))
        });
        let view = FileView::new(Arc::new(grants.expect("granted")), false);
        let dir = || world.dir();
        // A file of somebody else keeps its rules, whatever its name is.
        fs::write(world.inside.join(temporary), "PRIVATE").expect("written");
        let refused = view.rename((dir(), temporary), (dir(), "taken.txt"));
        assert!(matches!(refused, Err(FileError::Denied(_))), "{refused:?}");
        assert!(!world.inside.join("taken.txt").exists());
        fs::remove_file(world.inside.join(temporary)).expect("removed");

        let file = view.open_at(dir(), temporary, CREATE).expect("is made");
        rustix::io::write(&file.handle, b"new").expect("written");
        view.rename((dir(), temporary), (dir(), "final.txt")).expect("gets its name");
        assert_eq!(fs::read_to_string(world.inside.join("final.txt")).expect("there"), "new");
        view.create_directory(dir(), temporary).expect("is made");
        view.open_at(dir(), &format!("{temporary}/f"), CREATE).expect("is made");
        view.rename((dir(), temporary), (dir(), "tree")).expect("gets its name");
        assert!(world.inside.join("tree/f").exists());
        // The final name is decided on.
        view.open_at(dir(), temporary, CREATE).expect("is made");
        let to = if allow_read.is_empty() { "x.tmp" } else { "x.bin" };
        let refused = view.rename((dir(), temporary), (dir(), to));
        assert!(matches!(refused, Err(FileError::Denied(_))), "{refused:?}");
        view.remove_temporary();
        assert!(!world.inside.join(to).exists() && !world.inside.join(temporary).exists());
    }
}

#[test]
fn folder_with_denied_content_can_t_move() {
    let world = World::new();
    fs::create_dir_all(world.inside.join("box/a/b")).expect("made");
    fs::write(world.inside.join("box/a/b/.env"), "DEEP").expect("written");
    denied(world.view.rename((world.dir(), "box"), (world.dir(), "moved")), "deny_read");
    // Its new name is denied.
    fs::create_dir(world.inside.join("plain")).expect("made");
    denied(world.view.rename((world.dir(), "plain"), (world.dir(), "locked/plain")), "deny_write");
    fs::create_dir_all(world.inside.join("later")).expect("made");
    denied(world.view.rename((world.dir(), "later"), (world.dir(), "moved")), "Toolhold's own");
    fs::create_dir(world.inside.join("crowd")).expect("made");
    for index in 0..100_001 {
        fs::write(world.inside.join(format!("crowd/{index}")), "").expect("written");
    }
    denied(world.view.rename((world.dir(), "crowd"), (world.dir(), "moved")), "100,000");
    assert!(!world.inside.join("moved").exists());
    world.view.rename((world.dir(), "plain"), (world.dir(), "moved")).expect("is moved");
}

#[test]
fn own_folders_and_files_are_unreachable() {
    let world = World::new();
    denied(world.read("own/f"), "Toolhold's own");
    denied(world.view.open_at(world.dir(), "own/new", CREATE), "Toolhold's own");
    denied(world.view.open_at(world.dir(), "sub/toolhold.toml", CREATE), "Toolhold's own");
    // A protected name can't change, even if it is a link.
    symlink("a.txt", world.inside.join("named")).expect("linked");
    let own = OwnFolder { path: world.inside.join("named"), secret: false };
    let grant =
        Grant { path: world.inside.clone(), access: Access::Write, place: "[tools.file]".into() };
    let own = with_its_links(own).collect();
    let grants = Grants::open(vec![grant], own, |rules| rules).expect("granted");
    let view = FileView::new(Arc::new(grants), false);
    denied(view.rename((world.dir(), "locked/f"), (world.dir(), "named")), "Toolhold's own");
    denied(view.unlink(world.dir(), "named"), "Toolhold's own");
    denied(view.open_at(world.dir(), "a.txt", TRUNCATE), "Toolhold's own");
    denied(
        world.view.rename((world.dir(), "a.txt"), (world.dir(), "filters.toml")),
        "Toolhold's own",
    );
    denied(
        world.view.link((world.dir(), "a.txt"), (world.dir(), "sub/Toolhold.TOML")),
        "Toolhold's own",
    );
    denied(world.view.symlink("a.txt", world.dir(), "toolhold.toml"), "Toolhold's own");
    assert!(!world.inside.join("sub/toolhold.toml").exists());
}

#[test]
fn read_only_grants_and_calls_change_nothing() {
    let world = World::with(|inside| vec![(inside.to_owned(), Access::Read)]);
    let writable = open(vec![(world.inside.clone(), Access::Write)], &world.inside);
    let read_only_call = FileView::new(Arc::clone(&writable), true);
    let reading_plugin = FileView::new(Arc::clone(&writable), false).of_reading_plugin();
    for (view, rule) in [
        (&world.view, "read-only grant"),
        (&read_only_call, "only reads"),
        (&reading_plugin, "asks for files only to read"),
    ] {
        let dir = view.grants().roots()[0].dir.as_fd();
        denied(view.open_at(dir, "a.txt", TRUNCATE), rule);
        denied(view.open_at(dir, "a.txt", OpenOptions { truncate: true, ..READ }), rule);
        denied(view.open_at(dir, "a.txt", OpenOptions { create: true, ..READ }), rule);
        denied(view.open_at(dir, "new", CREATE), rule);
        denied(view.create_directory(dir, "new"), rule);
        denied(view.unlink(dir, "a.txt"), rule);
        denied(view.rename((dir, "a.txt"), (dir, "new")), rule);
        denied(view.link((dir, "a.txt"), (dir, "new")), rule);
        denied(view.symlink("a.txt", dir, "new"), rule);
        denied(view.set_times(dir, "a.txt", true, &now()), rule);
        denied(view.remove_directory(dir, "sub"), rule);
    }
    assert_eq!(fs::read_to_string(world.inside.join("a.txt")).expect("is there"), "a");
    assert!(!world.inside.join("new").exists());
    assert_eq!(world.read("a.txt").expect("is read"), "a");
}

#[test]
fn overlapping_grants_keep_their_own_access() {
    let world = World::with(|inside| {
        vec![(inside.to_owned(), Access::Write), (inside.join("ro"), Access::Read)]
    });
    denied(world.view.open_at(world.dir(), "ro/f", TRUNCATE), "read-only grant");
    denied(world.view.rename((world.dir(), "ro"), (world.dir(), "rw")), "read-only grant");
    denied(world.view.rename((world.dir(), "ro/f"), (world.dir(), "f")), "read-only grant");
    denied(world.view.link((world.dir(), "ro/f"), (world.dir(), "f")), "read-only grant");
    assert_eq!(world.read("ro/f").expect("is read"), "ro");

    let world = World::with(|inside| {
        vec![(inside.to_owned(), Access::Read), (inside.join("sub"), Access::Write)]
    });
    denied(world.view.open_at(world.dir(), "a.txt", TRUNCATE), "read-only grant");
    denied(
        world.view.rename((world.dir(), "a.txt"), (world.dir(), "sub/a.txt")),
        "read-only grant",
    );
    denied(world.view.link((world.dir(), "a.txt"), (world.dir(), "sub/a.txt")), "read-only grant");
    world.view.open_at(world.dir(), "sub/new", CREATE).expect("is made");
}

#[test]
fn special_files_are_not_opened() {
    let world = World::new();
    let dir = fs::File::open(&world.inside).expect("is there");
    rustix::fs::mknodat(&dir, "fifo", FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
    let _socket =
        std::os::unix::net::UnixListener::bind(world.inside.join("socket")).expect("bound");
    for path in ["fifo", "socket"] {
        errno(world.view.open_at(world.dir(), path, READ), Errno::NOTSUP);
        errno(world.view.open_at(world.dir(), path, TRUNCATE), Errno::NOTSUP);
        errno(world.view.link((world.dir(), path), (world.dir(), "twin")), Errno::PERM);
    }
    for path in [".", "sub/..", "/.."] {
        assert!(world.view.create_directory(world.dir(), path).is_err(), "{path}");
    }
    errno(world.view.create_directory(world.dir(), "."), Errno::EXIST);
    symlink("loop", world.inside.join("loop")).expect("linked");
    errno(world.read("loop"), Errno::LOOP);
    symlink("nowhere", world.inside.join("dangling")).expect("linked");
    errno(world.view.open_at(world.dir(), "dangling", CREATE), Errno::LOOP);
    assert!(!world.inside.join("nowhere").exists());
    for path in ["", ".", "..", "sub/..", "/"] {
        assert!(world.view.unlink(world.dir(), path).is_err(), "{path}");
        assert!(world.view.remove_directory(world.dir(), path).is_err(), "{path}");
        assert!(world.view.rename((world.dir(), path), (world.dir(), "x")).is_err(), "{path}");
    }
    errno(world.view.open_at(world.dir(), "a\0b", READ), Errno::INVAL);
    errno(world.view.open_at(world.dir(), &"x/".repeat(5000), READ), Errno::NAMETOOLONG);
}

#[test]
fn replaced_file_keeps_its_mode_if_this_call_made_the_new_one() {
    let world = World::new();
    let script = world.inside.join("run.sh");
    fs::write(&script, "old").expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o4750)).expect("set");
    world.view.open_at(world.dir(), "run.tmp", CREATE).expect("is made");
    world.view.rename((world.dir(), "run.tmp"), (world.dir(), "run.sh")).expect("is moved");
    assert_eq!(fs::metadata(&script).expect("is there").mode() & 0o7777, 0o750);

    fs::write(world.inside.join("theirs"), "x").expect("written");
    fs::set_permissions(world.inside.join("theirs"), fs::Permissions::from_mode(0o600))
        .expect("set");
    world.view.rename((world.dir(), "theirs"), (world.dir(), "run.sh")).expect("is moved");
    assert_eq!(fs::metadata(&script).expect("is there").mode() & 0o7777, 0o600);
}

#[test]
fn listings_leave_out_denied_entries() {
    let world = World::new();
    let mut listing = world.view.list(world.dir()).expect("is listed");
    let mut names: Vec<String> =
        listing.by_ref().map(|entry| entry.expect("is read").name).collect();
    names.sort();
    assert_eq!(names, ["a.txt", "locked", "ro", "sub"]);
    assert_eq!(listing.hidden(), 3);
}

#[test]
fn usual_spellings_of_paths_are_located() {
    let world = World::new();
    let alias = world.inside.parent().expect("has one").join("alias");
    symlink(&world.inside, &alias).expect("linked");
    let locate = |path: PathBuf, access| world.view.locate(&path, access, LastLink::Followed);
    for path in [world.inside.join("a.txt"), alias.join("a.txt"), world.inside.join("../in/a.txt")]
    {
        let located = locate(path.clone(), Access::Write).expect("is located");
        assert_eq!(
            (located.given, located.real),
            (world.inside.join("a.txt"), world.inside.join("a.txt")),
            "{}",
            path.display()
        );
    }
    let new = world.inside.join("not/there/yet");
    assert_eq!(
        locate(new.clone(), Access::Write).expect("is located"),
        ResolvedPath { given: new.clone(), real: new }
    );
    denied(locate(world.inside.join("secrets/not/yet"), Access::Write), "deny_read");
    denied(locate(world.inside.join("locked/not/yet"), Access::Write), "deny_write");
    denied(locate(world.inside.join("not/../../out/secret"), Access::Read), "allowed_paths");
    denied(locate(world.outside.join("secret"), Access::Read), "allowed_paths");
    denied(locate(world.outside.join("missing"), Access::Read), "allowed_paths");
}

#[test]
fn real_path_of_a_missing_file_is_known() {
    let world = World::new();
    fs::create_dir_all(world.inside.join("deep/er")).expect("made");
    for (target, name) in [
        ("deep/er", "short"),
        ("deep/new.txt", "dangling"),
        ("dangling", "twice"),
        ("secrets/new", "bad"),
        ("loop", "loop"),
    ] {
        symlink(target, world.inside.join(name)).expect("linked");
    }
    let real = |path: &str| {
        let path = world.inside.join(path);
        let located =
            world.view.locate(&path, Access::Write, LastLink::Followed).expect("is located");
        assert_eq!(located.given, path);
        located.real.strip_prefix(&world.inside).expect("is inside").display().to_string()
    };
    for (path, expected) in [
        ("short/x", "deep/er/x"),
        ("short/../x", "deep/x"),
        ("dangling", "deep/new.txt"),
        ("twice", "deep/new.txt"),
        ("dangling/below", "deep/new.txt/below"),
        ("a.txt/below", "a.txt/below"),
        ("loop", "loop"),
    ] {
        assert_eq!(real(path), expected, "{path}");
    }
    denied(
        world.view.locate(&world.inside.join("bad"), Access::Write, LastLink::Followed),
        "deny_read",
    );
    // The link itself is meant, so it isn't followed.
    let meant = world
        .view
        .locate(&world.inside.join("dangling"), Access::Write, LastLink::Meant)
        .expect("is located");
    assert_eq!(meant.real, world.inside.join("dangling"));
}

#[test]
fn swapped_names_never_lead_out() {
    let world = World::new();
    fs::create_dir_all(world.inside.join("swap")).expect("made");
    fs::write(world.inside.join("swap/secret"), "inside").expect("written");
    symlink("../out", world.inside.join("trap")).expect("linked");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let [swap, trap, aside] = ["swap", "trap", "aside"].map(|name| world.inside.join(name));
            while !done.load(Ordering::Relaxed) {
                for (from, to) in [(&swap, &aside), (&trap, &swap), (&swap, &trap), (&aside, &swap)]
                {
                    fs::rename(from, to).expect("renamed");
                }
            }
        });
        for _ in 0..10_000 {
            if let Ok(text) = world.read("swap/secret") {
                assert_eq!(text, "inside");
            }
            let _ = world.view.open_at(world.dir(), "swap/new", CREATE);
            let _ = world.view.unlink(world.dir(), "swap/new");
        }
        done.store(true, Ordering::Relaxed);
    });
    world.outside_is_untouched();
}

#[test]
fn denied_file_stays_unread_while_names_are_swapped() {
    let world = World::new();
    fs::write(world.inside.join("public"), "public").expect("written");
    fs::create_dir(world.inside.join("open")).expect("made");
    fs::write(world.inside.join("open/key"), "public").expect("written");
    fs::create_dir(world.inside.join("swap")).expect("made");
    for (target, link) in
        [("../.env", "a"), ("../public", "b"), ("../secrets", "c"), ("../open", "d")]
    {
        symlink(target, world.inside.join("swap").join(link)).expect("linked");
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = |name: &str| world.inside.join("swap").join(name);
            while !done.load(Ordering::Relaxed) {
                for (one, other) in [("a", "b"), ("c", "d")] {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(
                        rustix::fs::CWD,
                        at(one),
                        rustix::fs::CWD,
                        at(other),
                        flags,
                    )
                    .expect("exchanged");
                }
            }
        });
        for _ in 0..10_000 {
            for name in ["swap/a", "swap/b", "swap/c/key", "swap/d/key"] {
                if let Ok(text) = world.read(name) {
                    assert!(text.is_empty() || text == "public", "{name}: {text}");
                }
                let _ = world.view.open_at(world.dir(), name, TRUNCATE);
            }
            let made = fs::write(world.inside.join("public"), "public")
                .and_then(|()| fs::write(world.inside.join("open/key"), "public"));
            made.expect("written");
        }
        done.store(true, Ordering::Relaxed);
    });
    for (file, text) in [(".env", "TOKEN"), ("secrets/key", "KEY")] {
        assert_eq!(fs::read_to_string(world.inside.join(file)).expect("is there"), text);
    }
}

#[test]
fn denied_file_without_a_name_is_not_read() {
    let world = World::new();
    // It has another name elsewhere, like a backup by hard links, so it stays when its name here is
    // removed.
    let (denied, elsewhere) = (world.inside.join(".env"), world.outside.join("kept"));
    fs::hard_link(&denied, &elsewhere).expect("linked");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::remove_file(&denied).expect("removed");
                fs::hard_link(&elsewhere, &denied).expect("linked");
            }
        });
        let read = (0..20_000).find_map(|_| world.read(".env").ok());
        done.store(true, Ordering::Relaxed);
        assert_eq!(read, None);
    });
}

#[test]
fn name_that_ends_like_a_deleted_one_is_usable() {
    let world = World::new();
    fs::write(world.inside.join("x (deleted)"), "x").expect("written");
    fs::create_dir(world.inside.join("d (deleted)")).expect("made");
    fs::write(world.inside.join("d (deleted)/.env"), "TOKEN").expect("written");
    fs::write(world.inside.join("d (deleted)/y"), "y").expect("written");
    assert_eq!(world.read("x (deleted)").expect("it is read"), "x");
    assert_eq!(world.read("d (deleted)/y").expect("it is read"), "y");
    denied(world.read("d (deleted)/.env"), "deny_read");
}

#[test]
fn file_with_a_second_name_takes_over_no_owner_or_mode() {
    let world = World::new();
    let make = |name: &str| world.view.open_at(world.dir(), name, CREATE).expect("made");
    drop(make("made"));
    // As if its inode number were reused by another's file that has a name outside too.
    fs::hard_link(world.inside.join("made"), world.outside.join("other")).expect("linked");
    fs::set_permissions(world.inside.join("made"), fs::Permissions::from_mode(0o600)).expect("set");
    fs::set_permissions(world.inside.join("a.txt"), fs::Permissions::from_mode(0o666))
        .expect("set");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(world.inside.join("a.txt"), Some(1234), Some(1234))
            .expect("given away");
    }
    let own = fs::metadata(world.outside.join("other")).expect("is there").uid();
    world.view.rename((world.dir(), "made"), (world.dir(), "a.txt")).expect("renamed");
    let after = fs::metadata(world.outside.join("other")).expect("is there");
    assert_eq!((after.mode() & 0o777, after.uid()), (0o600, own));
}

fn now() -> Timestamps {
    let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    Timestamps { last_access: now, last_modification: now }
}

#[test]
fn look_up_at_once_finds_no_more_than_one_that_may_block() {
    let world = World::with(|inside| {
        vec![
            (inside.to_owned(), Access::Write),
            (format!("/proc/{}", std::process::id()).into(), Access::Read),
            ("/dev".into(), Access::Read),
        ]
    });
    symlink("../out/secret", world.inside.join("out")).expect("made");
    symlink("secrets/key", world.inside.join("key")).expect("made");
    rustix::fs::mknodat(world.dir(), "fifo", FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .expect("made");
    let at_once = |path: &str, how| world.view.open_at_once(world.dir(), path, how);
    // Some file systems never answer from the cache alone, so only other names are sure to fail.
    match at_once("a.txt", READ) {
        Ok(opened) => assert_eq!(opened.path, world.inside.join("a.txt")),
        Err(FileError::Errno(Errno::AGAIN)) => eprintln!("not tried: a look-up that is found"),
        Err(other) => panic!("{other:?}"),
    }
    for path in [".env", "secrets/key", "key", "out", "../out/secret", "/etc/passwd", "missing"] {
        errno(at_once(path, READ), Errno::AGAIN);
        errno(
            world.view.find_at_once(world.dir(), path, true).map_err(FileError::from),
            Errno::AGAIN,
        );
    }
    for how in [CREATE, TRUNCATE, OpenOptions { sync: true, ..READ }] {
        errno(at_once("a.txt", how), Errno::AGAIN);
        errno(at_once("new", how), Errno::AGAIN);
    }
    assert!(!world.inside.join("new").exists());
    assert!(at_once("fifo", READ).is_err());
    // A kind of file system that may have to compute or to wait.
    assert!(!world.view.grants().roots()[1].prompt);
    // A mount below a directory is another file system, and may be one that doesn't answer.
    let above = &world.view.grants().roots()[2].dir;
    match world.view.find_at(above.as_fd(), "shm", true) {
        Ok(shm) if shm.stat.st_dev != rustix::fs::fstat(above).expect("it is there").st_dev => {
            errno(
                world.view.find_at_once(above.as_fd(), "shm", true).map_err(FileError::from),
                Errno::AGAIN,
            );
        }
        _ => eprintln!("not tried: a mount in /dev"),
    }
    world.outside_is_untouched();
}
