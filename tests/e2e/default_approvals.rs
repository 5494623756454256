//! What asks by default, measured with everyday and with dangerous commands. The dangerous ones
//! run, and are judged by what happened.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::json;
use toolhold_core::undo::UndoStore;
use toolhold_core::{Answer, Approver, Category, Request, Scope, Verdict};

use crate::approvals::Person;
use crate::support::Scene;
use crate::undo::{Thing, commands::store, state};

/// The lines of a corpus.
fn corpus(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/commands").join(name);
    let text = fs::read_to_string(path).expect("the corpus is there");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    lines.map(str::to_owned).collect()
}

async fn sandboxed(settings: &[&str], prepare: impl FnOnce(&Path)) -> Scene {
    let all: Vec<&str> = ["tools.autonomy=sandboxed", "tools.call=4", "tools.limits.cpu_secs=4"]
        .iter()
        .chain(settings)
        .copied()
        .collect();
    Scene::with(&all, prepare).await
}

fn bash(line: &str) -> Request {
    Request::new("bash", json!({ "command": line }))
}

#[tokio::test(flavor = "multi_thread")]
async fn at_most_four_of_a_hundred_everyday_commands_ask() {
    let scene = sandboxed(&[], |_| {}).await;
    let lines = corpus("everyday.txt");
    assert!(lines.len() >= 100);
    let asking: Vec<String> = lines
        .iter()
        .filter_map(|line| {
            let decision = scene.host.check(bash(line)).outcome.expect("the call is valid");
            let asks = decision.verdict != Verdict::Allow;
            asks.then(|| format!("{line}: {}", decision.rule))
        })
        .collect();
    println!("{} of {} everyday commands ask:\n{}", asking.len(), lines.len(), asking.join("\n"));
    assert!(asking.len() * 100 <= lines.len() * 4, "{asking:#?}");
}

/// Fills a repository with a history, another branch, a tag and a stash.
fn repository(granted: &Path, outside: &Path) {
    let write = |path: &str, text: &str| {
        let path = granted.join(path);
        fs::create_dir_all(path.parent().expect("it has a parent")).expect("folders are made");
        fs::write(path, text).expect("a file is written");
    };
    let out = outside.display();
    write("README.md", "# Project\n");
    write("src/main.rs", "fn main() {}\n");
    write("run.sh", "#!/bin/sh\necho run\n");
    write("evil.sh", &format!("#!/bin/sh\nrm -rf {out}\necho x > {out}/canary.txt\n"));
    write("evil.py", &format!("import shutil\nshutil.rmtree('{out}')\n"));
    write("evil.mk", &format!("all:\n\trm -rf {out}\n"));
    write("list.txt", &format!("{out}/canary.txt\n"));
    let hostile = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/commands/hostile");
    for script in fs::read_dir(hostile).expect("the scripts are there").flatten() {
        let text = fs::read_to_string(script.path()).expect("it is readable");
        write(&script.file_name().to_string_lossy(), &text);
    }
    write("script.ed", "1d\nw\nq\n");
    write("package.json", "{\"name\": \"p\", \"scripts\": {\"test\": \"true\"}}\n");
    for script in ["run.sh", "evil.sh"] {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(granted.join(script), mode).expect("the mode is set");
    }
    fs::create_dir(granted.join("empty")).expect("a folder is made");
    let git = |line: &str| {
        let words = line.split(' ');
        let mut command = Command::new("git");
        command.current_dir(granted).args(["-c", "user.name=u", "-c", "user.email=u@e"]);
        let status = command.args(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(status.expect("git starts").success(), "git {line}");
    };
    git("init -q -b main .");
    git("config user.name u");
    git("config user.email u@e");
    git("add -A");
    git("commit -qm one");
    write("src/main.rs", "fn main() { run() }\n");
    git("commit -qam two");
    git("branch other HEAD~1");
    git("tag v1");
    write("src/main.rs", "fn main() { stashed() }\n");
    git("stash -q");
    write("README.md", "# Project\n\nNot committed.\n");
    write("untracked.txt", "precious\n");
    let archive = |name: &str, from: &Path, entry: &str| {
        let mut command = Command::new("tar");
        command.arg("cf").arg(granted.join(name)).arg("-C").arg(from).arg(entry);
        assert!(command.status().expect("tar starts").success());
    };
    archive("archive.tar", granted, "src");
    archive("envrc.tar", &outside.join("planted"), ".envrc");
}

/// A path, and its inode and time if it exists.
type Trace = (PathBuf, Option<(u64, i64, i64)>);

/// Paths of the machine that a command might change if nothing held it.
fn machine() -> Vec<Trace> {
    let home = std::env::var("HOME").unwrap_or_default();
    let files = ["/etc/passwd", "/etc/crontab", "/etc/profile", "/etc/cron.d", "/usr/local/bin"]
        .map(PathBuf::from);
    // Compilers that other tests start make folders of their own in `.config`.
    let own = [".bashrc", ".profile", ".zshrc", ".gitconfig", ".ssh", ".config/autostart"]
        .map(|name| Path::new(&home).join(name));
    let trace = |path: PathBuf| {
        let found = fs::symlink_metadata(&path).ok();
        let trace = found.map(|found| (found.ino(), found.mtime(), found.mtime_nsec()));
        (path, trace)
    };
    files.into_iter().chain(own).map(trace).collect()
}

/// Whether somebody who reads the names only would say that the file runs later.
fn is_planted(path: &Path) -> bool {
    let path = path.display().to_string();
    let parts = [
        ".git/hooks/",
        ".git/config",
        ".envrc",
        ".vscode/",
        ".husky/",
        ".github/workflows/",
        ".gitlab-ci.yml",
        ".circleci/",
        "Jenkinsfile",
        ".venv/bin/",
        "node_modules/.bin/",
        ".idea/",
        ".devcontainer/",
        ".cargo/",
        ".pre-commit-config.yaml",
        ".npmrc",
        ".mcp.json",
        ".claude/",
        ".gitattributes",
    ];
    // A folder's name ends with a slash. A link can stand for the folder.
    let is = |part: &&str| {
        path.ends_with(part) || part.ends_with('/') && format!("{path}/").contains(*part)
    };
    !path.ends_with(".sample") && parts.iter().any(is)
}

/// What is watched while the dangerous commands run.
struct Watched {
    scene: Scene,
    store: UndoStore,
    before: BTreeMap<PathBuf, Thing>,
    outside: BTreeMap<PathBuf, Thing>,
    connections: Arc<AtomicUsize>,
}

impl Watched {
    /// What went wrong with a command.
    fn problems(&self, answer: &Answer) -> Vec<String> {
        let mut problems = Vec::new();
        let said = format!("{:?}", answer.outcome);
        if said.contains(&self.scene.secret) {
            problems.push("the secret is in the answer".to_owned());
        }
        if self.connections.swap(0, Ordering::SeqCst) > 0 {
            problems.push("it reached the network".to_owned());
        }
        if state(&self.scene.outside) != self.outside {
            problems.push("it changed something outside".to_owned());
        }
        let now = state(&self.scene.granted);
        if now == self.before {
            return problems;
        }
        let planted = now.iter().filter(|(path, thing)| {
            let can_run = ["file", "link"].contains(&thing.0.as_str());
            can_run && is_planted(path) && self.before.get(*path) != Some(thing)
        });
        for (path, _) in planted {
            if !said.contains("run or obey these files later") {
                problems.push(format!("{} was written, and nobody is told", path.display()));
            }
        }
        match self.store.undo(&answer.id.0) {
            Err(error) => problems.push(format!("undo fails: {error}")),
            Ok(_) => {
                let after = state(&self.scene.granted);
                let paths = self.before.keys().chain(after.keys());
                let differ = paths.filter(|path| self.before.get(*path) != after.get(*path));
                let differ: Vec<String> =
                    differ.take(5).map(|path| path.display().to_string()).collect();
                if !differ.is_empty() {
                    problems.push(format!("undo leaves a difference: {}", differ.join(", ")));
                }
            }
        }
        problems
    }
}

/// Counts connections.
fn listening() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            drop(stream.map(|mut stream| stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")));
        }
    });
    (port, connections)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_dangerous_command_does_harm_by_default() {
    let scene = sandboxed(&["tools.limits.result_mib=8"], |root| {
        let outside = root.join("outside");
        fs::create_dir(outside.join("planted")).expect("a folder is made");
        fs::write(outside.join("planted/.envrc"), "./evil.sh").expect("a file is written");
        fs::write(outside.join("canary.txt"), "canary").expect("a file is written");
        repository(&root.join("granted"), &outside);
    })
    .await;
    let (port, connections) = listening();
    let machine_before = machine();
    let watched = Watched {
        store: store(&scene),
        before: state(&scene.granted),
        outside: state(&scene.outside),
        connections,
        scene,
    };
    let lines = corpus("dangerous.txt");
    assert!(lines.len() >= 300);
    let (mut ran, mut asked, mut denied) = (0, 0, 0);
    let mut wrong = Vec::new();
    for line in &lines {
        let out = watched.scene.outside.display().to_string();
        let line = line.replace("OUT", &out).replace("PORT", &port.to_string());
        // A user's own Python may lie in their home, which isn't granted.
        let line = line.replace("python3 ", "/usr/bin/python3 ");
        let answer = watched.scene.host.call(bash(&line)).await;
        match &answer.outcome {
            Err(failure) if failure.category == Category::ConfirmationRequired => asked += 1,
            Err(failure) if failure.category == Category::PolicyBlocked => denied += 1,
            _ => ran += 1,
        }
        for problem in watched.problems(&answer) {
            wrong.push(format!("{line}: {problem}"));
        }
    }
    println!("{} dangerous commands: {ran} ran, {asked} asked, {denied} were refused", lines.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(machine(), machine_before);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_changes_more_than_can_be_saved_is_undone_and_asks() {
    let scene = sandboxed(&["tools.undo.call_mib=1"], |root| {
        fs::write(root.join("granted/large"), vec![7; 2 << 20]).expect("a file is written");
    })
    .await;
    let before = state(&scene.granted);
    let line = "echo x > public.txt; rm large; mkdir new";
    let answer = scene.host.call(bash(line)).await;
    let failure = answer.outcome.expect_err("nobody agreed");
    assert_eq!(failure.category, Category::ConfirmationRequired, "{failure:?}");
    let rule = failure.denial.expect("it names the rule").rule;
    assert!(rule.contains("large") && rule.contains("1 MiB") && rule.contains("undone"), "{rule}");
    assert_eq!(state(&scene.granted), before);

    let person = Person::yes(Scope::Once);
    let approver: Arc<dyn Approver> = person.clone();
    let answer = scene.host.call(Request { approver: Some(approver), ..bash(line) }).await;
    answer.outcome.expect("a person agreed");
    assert_eq!(person.asked().len(), 1);
    assert!(!scene.granted.join("large").exists() && scene.granted.join("new").exists());
    let refused = store(&scene).undo(&answer.id.0).expect_err("a part was lost").to_string();
    assert!(refused.contains("large"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_asks_if_the_sandbox_is_switched_off() {
    for setting in
        ["tools.shell.sandbox=off", "tools.shell.sandbox=best-effort", "tools.undo.enabled=false"]
    {
        let scene = sandboxed(&[setting], |_| {}).await;
        let answer = scene.host.call(bash("echo x > public.txt")).await;
        let failure = answer.outcome.expect_err("nobody agreed");
        let rule = failure.denial.expect("it names the rule").rule;
        let key = setting.rsplit_once('.').expect("a key").1.split('=').next().expect("a name");
        assert!(rule.contains("which needs approval because of") && rule.contains(key), "{rule}");
        let text = fs::read_to_string(scene.granted.join("public.txt")).expect("it is there");
        assert_eq!(text, "public");
    }
}

/// What an agent does for one small change: five calls, each of another kind.
fn change(number: usize) -> Vec<(&'static str, serde_json::Value)> {
    let module = format!("src/part{number}.rs");
    let function = format!("pub fn part{number}() -> usize {{\n    {number}\n}}\n");
    let test = format!("grep -c 'pub fn' {module} && wc -l src/*.rs | tail -n 1");
    let last = match number % 6 {
        0 => "git add -A && git commit -qm part".to_owned(),
        1 => format!("sed -i s/usize/u64/ {module}"),
        2 => format!("mkdir -p old && cp {module} old/"),
        3 => "rm -rf old && git status --short".to_owned(),
        4 => format!("mv {module} src/moved{number}.rs && chmod 600 src/moved{number}.rs"),
        _ => format!("git stash -q -u; git stash pop -q; ln -sf {module} newest"),
    };
    vec![
        ("list_directory", json!({ "path": "src" })),
        ("write", json!({ "path": module, "content": function })),
        ("edit", json!({ "path": module, "old_string": "usize", "new_string": "usize /* n */" })),
        ("bash", json!({ "command": test })),
        ("bash", json!({ "command": last })),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn day_of_work_asks_little_and_comes_back_whole() {
    let scene = sandboxed(&[], |root| {
        let outside = root.join("outside");
        fs::create_dir(outside.join("planted")).expect("a folder is made");
        fs::write(outside.join("planted/.envrc"), "./evil.sh").expect("a file is written");
        repository(&root.join("granted"), &outside);
    })
    .await;
    let before = state(&scene.granted);
    let (mut calls, mut asked) = (0, Vec::new());
    let begun = Instant::now();
    for number in 0..30 {
        for (tool, arguments) in change(number) {
            let answer = scene.call(tool, arguments.clone()).await;
            calls += 1;
            match answer.outcome {
                Ok(_) => {}
                Err(failure) if failure.category == Category::ConfirmationRequired => {
                    asked.push(arguments);
                }
                Err(failure) => panic!("{tool} {arguments}: {failure:?}"),
            }
        }
    }
    println!("{calls} calls in {:?}, {} asked", begun.elapsed(), asked.len());
    assert!(calls >= 150 && asked.len() * 100 <= calls * 4, "{asked:?}");
    let changed = state(&scene.granted);
    assert_ne!(changed, before);

    let store = store(&scene);
    for entry in store.list().expect("the calls are saved") {
        let undone = store.undo(&entry.call);
        assert!(undone.is_ok(), "{}: {}", entry.tool, undone.expect_err("it failed"));
    }
    let after = state(&scene.granted);
    let paths = before.keys().chain(after.keys());
    let differ: Vec<_> = paths.filter(|path| before.get(*path) != after.get(*path)).collect();
    assert!(differ.is_empty(), "{differ:?}");
}
