//! Random commands in random trees, by real processes: what they changed comes back, as root and as
//! an ordinary user, below `/` and elsewhere, after kills of the call and of the undo.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::{Thing, state};
use crate::shell::there_is;
use crate::support::{not_tried, toolhold};

/// A user without any rights of its own.
const NOBODY: u32 = 65_534;

/// Commands that change files, each with the program that it needs. `P`, `Q` and `F` are paths.
const COMMANDS: &[(&str, &str)] = &[
    ("rm", "rm -rf P"),
    ("rm", "rm -f F"),
    ("rm", "rm -rf ./* .[a-z]*"),
    ("rm", "rm -rf \"$PWD\""),
    ("rm", "rm -rf .git"),
    ("mv", "mv P Q"),
    ("mv", "mv -f P Q/"),
    ("mv", "mkdir -p x/y && mv P x/y && mv x z"),
    ("mv", "mv a swap && mv c a && mv swap c"),
    ("mv", "mv * c/"),
    ("bash", "echo more >> F"),
    ("bash", "echo new > Q"),
    ("bash", ": > F"),
    ("bash", "for file in $(find . -type f); do : > $file; done"),
    ("bash", "for i in 1 2 3 4; do (echo $i > n$i; mv n$i a/n$i; rm a/n$i) & done; wait"),
    ("bash", "exec 3>>F; rm -f F; echo gone >&3"),
    ("bash", "mv a a2; echo in > a2/new.txt; mv a2 a; rm -f a/one.txt"),
    ("bash", "echo x > F; kill -9 $$"),
    ("truncate", "truncate -s 3 F"),
    ("truncate", "truncate -s 100000 F"),
    ("fallocate", "fallocate -p -o 0 -l 2 F"),
    ("shred", "shred -u F"),
    ("sed", "sed -i s/o/0/ F"),
    ("sed", "find . -type f -not -path './.git/*' -exec sed -i s/e/3/ {} +"),
    ("perl", "perl -pi -e s/e/3/ F"),
    ("sort", "sort -r -o F F"),
    ("tee", "echo x | tee -a a/*.txt c/*"),
    ("cp", "cp -a P Q"),
    ("cp", "cp F Q"),
    ("cp", "cp --remove-destination F Q"),
    ("chmod", "chmod 700 P"),
    ("chmod", "chmod -R u+x,g-r P"),
    ("chmod", "chmod -R 000 P"),
    ("chmod", "chmod -R a-w ."),
    ("chmod", "chmod -R 000 ."),
    ("chmod", "chmod 000 a/b; rm -rf a"),
    ("touch", "touch P"),
    ("touch", "touch ."),
    ("touch", "touch -d 2001-02-03 P"),
    ("touch", "touch -h -d 2001-02-03 link"),
    ("ln", "ln -sfn P Q"),
    ("ln", "ln -f F Q"),
    ("ln", "ln -f F c/again; echo both >> c/again; rm -f F"),
    ("mkdir", "mkdir -p P/x/y && echo z > P/x/y/z"),
    ("mkfifo", "rm -f F; mkfifo F"),
    ("rmdir", "rmdir a/b c"),
    ("find", "find . -name '*.txt' -delete"),
    ("find", "find . -delete"),
    ("tar", "tar cf t.tar a c && rm -r a && tar xf t.tar"),
    ("dd", "dd if=/dev/zero of=F bs=10 count=3 conv=notrunc"),
    ("dd", "dd if=/dev/urandom of=F bs=1000 count=30"),
    ("install", "install -m 600 F Q"),
    ("git", "git init -q . && git add -A && git commit -qm more"),
    ("git", "git reset -q --hard HEAD~1"),
    ("git", "git clean -qfdx"),
    ("git", "git checkout -q -f main~1 -- . ; git rm -q --cached -r ."),
    ("git", "git stash -q -u; git stash drop -q"),
    (
        "git",
        "git add -A; git commit -qm all --amend; git reflog expire --expire=now --all; git gc -q --prune=now",
    ),
    ("git", "git mv F Q; git branch -D side; git tag -f t"),
    (
        "bash",
        "mkdir -p target; echo built > target/out; mv target/out target/out2; rm -f target/old",
    ),
    ("bash", "cp F target/old; mv -f F target/kept; rm -rf target"),
    (
        "python3",
        "/usr/bin/python3 -c \"import os, shutil; shutil.rmtree('a'); os.replace('four.txt', 'c/three.sh')\"",
    ),
    (
        "python3",
        "/usr/bin/python3 -c \"import mmap; f = open('F', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0] = 88\"",
    ),
];

const FOLDERS: [&str; 6] = ["a", "a/b", "c", "c/empty", "target", "a/b/deep"];
const PATHS: [&str; 9] =
    ["a", "a/b", "c", "a/one.txt", "a/b/two.txt", "c/three.sh", "four.txt", "link", "target"];
const FILES: [&str; 6] =
    ["a/one.txt", "a/b/two.txt", "c/three.sh", "four.txt", "a/b/deep/five", "target/old"];
const TARGETS: [&str; 6] = ["new", "a/new", "c", "a/b/new", "four.txt", "link"];
const MODES: [u32; 6] = [0o400, 0o444, 0o600, 0o640, 0o700, 0o755];

/// Numbers by chance, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("it fits") % most
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// A project of a user, and the user's own folders beside it.
struct Project {
    own: TempDir,
    work: TempDir,
    user: u32,
}

impl Project {
    /// `is_top`: the project is a directory in `/`.
    fn new(user: u32, is_top: bool) -> Self {
        let own = TempDir::new().expect("a temporary folder is made");
        let work = if is_top {
            TempDir::with_prefix_in("toolhold-undo-", "/")
        } else {
            TempDir::new_in(own.path())
        };
        let work = work.expect("a temporary folder is made");
        let project = Self { own, work, user };
        for folder in [project.own.path(), project.work.path()] {
            chown(folder, Some(user), Some(user)).expect("root gives things away");
        }
        project
    }

    fn as_user(&self, mut command: Command) -> Command {
        let home = self.own.path();
        command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home).stdin(Stdio::null());
        for (name, value) in [("AUTHOR", "u"), ("COMMITTER", "u")] {
            command.env(format!("GIT_{name}_NAME"), value).env(format!("GIT_{name}_EMAIL"), value);
        }
        if rustix::process::geteuid().is_root() {
            command.uid(self.user).gid(self.user);
        }
        command
    }

    /// A command of `toolhold` in the project; from `/`, if the user may not go there.
    fn toolhold(&self, line: &[&str]) -> Command {
        self.start(Command::new(toolhold()), line)
    }

    /// Runs a command of `toolhold`, and kills it if it takes longer.
    fn kill_after(&self, milliseconds: usize, line: &[&str]) {
        let mut timeout = Command::new("timeout");
        timeout.arg("--signal=KILL").arg(format!("0.{milliseconds:03}")).arg(toolhold());
        self.start(timeout, line).output().expect("`timeout` runs");
    }

    fn start(&self, program: Command, line: &[&str]) -> Command {
        let mut command = self.as_user(program);
        let may_enter =
            self.user == 0 || fs::metadata(self.work.path()).is_ok_and(|it| it.mode() & 0o100 != 0);
        let folder = if may_enter { self.work.path() } else { Path::new("/") };
        command.args(line).current_dir(folder);
        for (name, folder) in [("CONFIG", "config"), ("DATA", "data"), ("CACHE", "cache")] {
            command.env(format!("TOOLHOLD_{name}_DIR"), self.own.path().join(folder));
        }
        command
    }

    /// Fills the project: files, modes, links, and in most cases a repository with a cache.
    fn fill(&self, random: &mut Random) {
        let root = self.work.path();
        for folder in FOLDERS {
            fs::create_dir_all(root.join(folder)).expect("a folder is made");
        }
        for file in FILES {
            let lines: String = (0..random.below(20)).map(|line| format!("one {line}\n")).collect();
            fs::write(root.join(file), lines).expect("a file is written");
            if random.below(4) == 0 {
                let mode = Permissions::from_mode(random.one(&MODES));
                fs::set_permissions(root.join(file), mode).expect("the mode is set");
            }
        }
        symlink(random.one(&FILES), root.join("link")).expect("a link is made");
        if random.below(2) == 0 {
            fs::hard_link(root.join("a/one.txt"), root.join("c/same")).expect("a link is made");
        }
        let tag = "Signature: 8a477f597d28d172789f06886806bc55\n";
        fs::write(root.join("target/CACHEDIR.TAG"), tag).expect("a file is written");
        fs::write(root.join(".gitignore"), "target/\n").expect("a file is written");
        self.give(root);
        if random.below(3) > 0 && there_is("git") {
            let script = "git init -q -b main . && git add -A && git commit -qm one && echo 2 >> four.txt; git add -A; git commit -qm two; git branch side; echo dirty >> a/b/two.txt; true";
            let mut git = self.as_user(Command::new("bash"));
            let made = git.args(["-c", script]).current_dir(root).output().expect("bash runs");
            assert!(made.status.success(), "{made:?}");
        }
    }

    fn give(&self, path: &Path) {
        std::os::unix::fs::lchown(path, Some(self.user), Some(self.user)).expect("it is given");
        if fs::symlink_metadata(path).is_ok_and(|it| it.is_dir()) {
            for entry in fs::read_dir(path).expect("it is readable").flatten() {
                self.give(&entry.path());
            }
        }
    }

    /// What a person sees in the project, and which names are one file.
    fn seen(&self) -> BTreeMap<PathBuf, (Thing, u32, PathBuf)> {
        let root = self.work.path();
        let mut first = BTreeMap::new();
        let all = state(root).into_iter().map(|(path, mut thing)| {
            // The time of a cache changes with what calls make in it.
            if path == Path::new("target") {
                thing.3 = (0, 0);
            }
            let there = fs::symlink_metadata(root.join(&path)).expect("it is there");
            let same = if there.is_file() {
                first.entry(there.ino()).or_insert(path.clone()).clone()
            } else {
                path.clone()
            };
            (path, (thing, there.uid(), same))
        });
        all.collect()
    }

    /// The calls that can be undone and aren't, the newest first.
    fn open_calls(&self) -> Result<Vec<String>, String> {
        let output = self.toolhold(&["undo", "--list", "--json"]).output().expect("toolhold runs");
        let said = String::from_utf8_lossy(&output.stderr);
        let list: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("undo --list: {error}: {said}"))?;
        let open = list.as_array().into_iter().flatten().filter(|it| it["undone"] != true);
        Ok(open.filter_map(|it| Some(it["call"].as_str()?.to_owned())).collect())
    }
}

fn line(usable: &[&str], random: &mut Random) -> String {
    let mut one = || {
        let words: Vec<String> = random
            .one(usable)
            .split(' ')
            .map(|word| match word {
                "P" => random.one(&PATHS).to_owned(),
                "Q" => random.one(&TARGETS).to_owned(),
                "Q/" => format!("{}/", random.one(&TARGETS)),
                "F" | "F;" => word.replace('F', random.one(&FILES)),
                word => word
                    .replace("P/x", &format!("{}/x", random.one(&PATHS)))
                    .replace("3>>F", &format!("3>>{}", random.one(&FILES)))
                    .replace("of=F", &format!("of={}", random.one(&FILES)))
                    .replace("'F'", &format!("'{}'", random.one(&FILES))),
            })
            .collect();
        words.join(" ")
    };
    let count = 1 + usize::from(one().len() % 3 == 0);
    (0..count).map(|_| one()).collect::<Vec<_>>().join("; ")
}

/// Returns whether something was changed and came back.
fn case(seed: u64, usable: &[&str]) -> Result<bool, String> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let user = if seed.is_multiple_of(2) { 0 } else { NOBODY };
    let project = Project::new(user, seed % 5 < 2);
    project.fill(&mut random);
    let mut before = project.seen();
    let mut lines = Vec::new();
    let mut said = String::new();
    for _ in 0..=random.below(2) {
        let line = line(usable, &mut random);
        let argument = format!("command={line}");
        let call = ["call", "bash", &argument, "timeout=20"];
        if random.below(6) == 0 {
            project.kill_after(1 + random.below(150), &call);
            lines.push(format!("{line} (killed)"));
        } else {
            let output = project.toolhold(&call).output().expect("toolhold runs");
            said.push_str(&String::from_utf8_lossy(&output.stderr));
            lines.push(line);
        }
    }
    let has_changed = project.seen() != before;
    let mut is_cut = false;
    for call in project.open_calls()? {
        if random.below(6) == 0 {
            is_cut = true;
            project.kill_after(1 + random.below(60), &["undo", "--yes", &call]);
        }
        let undo = project.toolhold(&["undo", "--yes", &call]).output().expect("toolhold runs");
        said.push_str(&String::from_utf8_lossy(&undo.stderr));
    }
    let mut after = project.seen();
    if is_cut {
        // An undo that is killed has changed the times of directories.
        for all in [&mut before, &mut after] {
            all.values_mut().filter(|it| it.0.0 == "folder").for_each(|it| it.0.3 = (0, 0));
        }
    }
    // What calls made in a cache may stay there.
    let paths = before.keys().chain(
        after.keys().filter(|path| !before.contains_key(*path) && !path.starts_with("target")),
    );
    let differ: Vec<String> = paths
        .filter(|path| before.get(*path) != after.get(*path))
        .map(|path| {
            let [old, new] = [&before, &after].map(|all| all.get(path).map(shown));
            format!("{}: {old:?} → {new:?}", path.display())
        })
        .collect();
    if differ.is_empty() {
        return Ok(has_changed);
    }
    let (place, lines) = (project.work.path().display(), lines.join("\n  "));
    Err(format!("seed {seed}, user {user}, {place}: {lines}\n{said}{}", differ.join("\n")))
}

fn shown((thing, owner, same): &(Thing, u32, PathBuf)) -> String {
    let (kind, bytes, mode, times) = thing;
    let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(20)]);
    format!("{kind} {} {begin:?} {mode:o} {times:?} {owner} {}", bytes.len(), same.display())
}

#[test]
fn soak_random_commands_come_back() {
    if !rustix::process::geteuid().is_root() {
        not_tried("root");
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let is_soak = std::env::var_os("TOOLHOLD_SOAK").is_some();
    let cases = number("TOOLHOLD_CASES").unwrap_or(if is_soak { 4_000 } else { 50 });
    let start = match (number("TOOLHOLD_SEED"), is_soak) {
        (Some(seed), _) => seed,
        (None, true) => u64::from(std::process::id()) << 32,
        (None, false) => 1,
    };
    let usable: Vec<_> =
        COMMANDS.iter().filter(|(program, _)| there_is(program)).map(|(_, line)| *line).collect();
    let (mut failed, mut changed) = (Vec::new(), 0);
    for seed in start..start + cases {
        match case(seed, &usable) {
            Ok(has_changed) => changed += u64::from(has_changed),
            Err(why) => failed.push(why),
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {cases}:\n{}",
        failed.len(),
        failed[..failed.len().min(20)].join("\n\n")
    );
    assert!(changed > cases / 2, "only {changed} of {cases} changed something");
}
