//! Links that lead to what decides: no tool exchanges them. Each test looks at the link afterwards,
//! and at what the next start does.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::{Cli, Ended, wait_until};

/// A folder `dot` in the working directory, with `current`, a link to `v1` in it.
struct Scene {
    cli: Cli,
    dot: PathBuf,
}

impl Scene {
    fn new(settings: &str) -> Self {
        let cli = Cli::new();
        let dot = cli.work().join("dot");
        for folder in ["v1/config", "v1/data", "v1/secrets", "v2/config", "v2/secrets"] {
            fs::create_dir_all(dot.join(folder)).expect("folders are made");
        }
        symlink("v1", dot.join("current")).expect("a link is made");
        fs::write(dot.join("v1/config/toolhold.toml"), settings).expect("it is written");
        for version in ["v1", "v2"] {
            fs::write(dot.join(version).join("secrets/s"), "DENIED").expect("it is written");
        }
        Self { cli, dot }
    }

    /// Runs with the folders of Toolhold behind the link.
    fn run(&self, line: &[&str]) -> Ended {
        let mut command = self.cli.command(line);
        for (variable, folder) in [("TOOLHOLD_CONFIG_DIR", "config"), ("TOOLHOLD_DATA_DIR", "data")]
        {
            command.env(variable, self.dot.join("current").join(folder));
        }
        Ended::from_output(command.output().expect("toolhold starts"))
    }

    fn bash(&self, command: &str) -> Ended {
        self.run(&["call", "--yes", "bash", &format!("command={command}")])
    }

    #[track_caller]
    fn is_as_it_was(&self, tried: &str) {
        let target = fs::read_link(self.dot.join("current")).expect(tried);
        assert_eq!(target, Path::new("v1"), "{tried}");
        assert!(!self.dot.join("current/own").exists(), "{tried}");
    }

    /// All ways to exchange the link.
    #[track_caller]
    fn withstands_everything(&self) {
        for command in [
            "rm dot/current; ln -s v2 dot/current",
            "ln -sfn v2 dot/current",
            "ln -s v2 dot/new; mv -T dot/new dot/current",
            "mv dot/current dot/other; ln -s v2 dot/current",
            "mv dot gone; mkdir dot; ln -s v2 dot/current; touch dot/v2/own",
            "cp -P dot/v2 dot/current",
        ] {
            self.bash(command);
            self.is_as_it_was(command);
        }
        for (tool, arguments) in [
            ("delete_path", r#"{"path": "dot/current"}"#),
            ("move_path", r#"{"source": "dot/current", "destination": "dot/other"}"#),
            ("move_path", r#"{"source": "dot", "destination": "gone"}"#),
        ] {
            self.run(&["call", "--yes", tool, arguments]);
            self.is_as_it_was(tool);
        }
        // Other links are the tools' own.
        self.bash("ln -s v1 dot/free; rm dot/free; touch dot/control").ends(0);
        assert!(self.dot.join("control").exists());
    }
}

#[test]
fn links_to_the_configuration_and_to_the_data_stay() {
    let scene = Scene::new("[tools.file]\ndeny_read = [\"notes.txt\"]\n");
    scene.run(&["call", "read", "path=notes.txt"]).ends(3);
    scene.withstands_everything();
    // The configuration is the one that it was.
    scene.run(&["call", "read", "path=notes.txt"]).ends(3);
}

#[test]
fn links_to_what_is_denied_stay() {
    let home = |scene: &Scene| scene.cli.work().join("dot/current/secrets/**");
    let scene = Scene::new("");
    for settings in [
        format!("[tools.file]\ndeny_read = [\"{}\"]\n", home(&scene).display()),
        format!(
            "[[tools.policy.rules]]\neffect = \"deny\"\ntools = [\"*\"]\npaths = [\"{}\"]\n",
            home(&scene).display()
        ),
    ] {
        let scene = Scene::new(&settings.replace(&*scene.cli.work().to_string_lossy(), "~/work"));
        // Toolhold's own folders are elsewhere, so that this is the rule's own link.
        let config =
            fs::read_to_string(scene.dot.join("v1/config/toolhold.toml")).expect("it is read");
        scene.cli.configure(&config);
        let run = |line: &[&str]| scene.cli.run(line);
        run(&["call", "read", "path=dot/v1/secrets/s"]).ends(3);
        for command in ["ln -sfn v2 dot/current", "rm dot/current", "mv dot gone"] {
            run(&["call", "--yes", "bash", &format!("command={command}")]);
            scene.is_as_it_was(command);
        }
        run(&["call", "--yes", "delete_path", "path=dot/current"]);
        scene.is_as_it_was("delete_path");
        run(&["call", "read", "path=dot/v1/secrets/s"]).ends(3);
        let seen =
            run(&["call", "--yes", "bash", "command=cat dot/v1/secrets/s dot/current/secrets/s"]);
        assert!(!seen.stdout.contains("DENIED"), "{}", seen.stdout);
        assert!(
            run(&["call", "--yes", "bash", "command=cat dot/v2/secrets/s"])
                .stdout
                .contains("DENIED")
        );
    }
}

#[test]
fn link_to_a_repository_stays() {
    let scene = Scene::new("");
    let work = scene.cli.work();
    fs::create_dir_all(work.join("store/hooks")).expect("folders are made");
    symlink("store", work.join(".git")).expect("a link is made");
    for command in [
        "rm .git; mkdir -p .git/hooks; echo x > .git/config",
        "ln -sfn dot .git",
        "mv .git other",
        "mv store other; mkdir -p store/hooks; touch store/hooks/own",
        "touch .git/hooks/own",
    ] {
        scene.cli.run(&["call", "--yes", "bash", &format!("command={command}")]);
        assert_eq!(fs::read_link(work.join(".git")).expect(command), Path::new("store"));
        assert!(!work.join("store/hooks/own").exists(), "{command}");
    }
    // What isn't there needs no place.
    fs::remove_file(work.join(".git")).expect("it is removed");
    symlink("gone/../store", work.join(".git")).expect("a link is made");
    scene.cli.run(&["call", "--yes", "bash", "command=touch free"]).ends(0);
    assert!(work.join("free").exists());
}

/// What isn't there yet counts as soon as somebody makes it.
#[test]
fn no_tool_makes_what_would_be_toolhold_s_own() {
    let home = || {
        let cli = Cli::new();
        let root = cli.work().with_file_name("");
        fs::create_dir_all(root.join("work/evil/skills/s")).expect("folders are made");
        fs::write(root.join("work/evil/skills/s/SKILL.md"), "---\nname: s\n---\nx")
            .expect("it is written");
        symlink("work/evil", root.join("link")).expect("a link is made");
        (cli, root)
    };
    // A link or a file in the place of a folder above.
    for (tool, arguments) in [
        ("move_path", r#"{"source": "link", "destination": ".config"}"#),
        ("move_path", r#"{"source": "link", "destination": ".claude"}"#),
        ("move_path", r#"{"source": "work/evil", "destination": ".claude"}"#),
        ("copy_path", r#"{"source": "work/evil", "destination": ".claude"}"#),
        ("write", r#"{"path": ".claude", "content": "x"}"#),
        ("write", r#"{"path": ".config", "content": "x"}"#),
    ] {
        let (cli, root) = home();
        let mut call = cli.command(&["call", "--yes", tool, arguments]);
        let ended = Ended::from_output(call.current_dir(&root).output().expect("it starts"));
        assert_ne!(ended.code, 0, "{tool} {arguments}");
        for name in [".config", ".claude"] {
            assert!(fs::symlink_metadata(root.join(name)).is_err(), "{tool} {arguments}");
        }
    }
    // A file that somebody else left there: nothing starts.
    let (cli, root) = home();
    fs::write(root.join(".claude"), "x").expect("it is written");
    let line = "command=rm .claude; mkdir -p .claude/skills/s";
    let mut call = cli.command(&["call", "--yes", "bash", line]);
    let ended = Ended::from_output(call.current_dir(&root).output().expect("it starts"));
    assert_ne!(ended.code, 0, "{}", ended.stdout);
    assert!(root.join(".claude").is_file());
    // A folder whose name looks like that of a file.
    let (cli, root) = home();
    cli.configure("[skills]\nfolders = [\"~/my.skills\"]\n");
    for line in [
        "command=mkdir -p my.skills/s; cp evil/skills/s/SKILL.md my.skills/s",
        "command=cp -r work/evil/skills my.skills",
    ] {
        let mut call = cli.command(&["call", "--yes", "bash", line]);
        call.current_dir(&root).output().expect("it starts");
        assert!(!root.join("my.skills/s").exists(), "{line}");
        assert!(!root.join("my.skills/skills").exists(), "{line}");
    }
    // A folder that `..` leaves, as a link.
    let (cli, root) = home();
    cli.configure("[skills]\nfolders = [\"~/gone/../skills\"]\n");
    for line in ["ln -s work/evil/skills/s gone", "rmdir gone; ln -s work/evil/skills/s gone"] {
        let line = format!("command={line}");
        let mut call = cli.command(&["call", "--yes", "bash", &line]);
        call.current_dir(&root).output().expect("it starts");
        assert!(!root.join("gone").is_symlink(), "{line}");
    }
    // Nothing is left of what kept the places.
    let (cli, root) = home();
    let names = || {
        let entries = fs::read_dir(&root).expect("it is listed").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with('.')).collect::<BTreeSet<_>>()
    };
    let before = names();
    let mut call = cli.command(&["call", "--yes", "bash", "command=touch free"]);
    call.current_dir(&root).output().expect("it starts");
    assert!(fs::remove_file(root.join("free")).is_ok());
    assert_eq!(names(), before);
}

/// `..` leaves a folder: a link in its place would lead elsewhere.
#[test]
fn folder_on_the_way_that_dots_leave_stays() {
    let scene = Scene::new("[tools.file]\ndeny_read = [\"notes.txt\"]\n");
    let work = scene.cli.work();
    fs::create_dir_all(work.join("x")).expect("a folder is made");
    fs::remove_file(scene.dot.join("current")).expect("it is removed");
    symlink("../x/../dot/v1", scene.dot.join("current")).expect("a link is made");
    for line in ["mkdir -p e/s e/dot/v1/config; mv x y; ln -s e/s x", "rmdir x; ln -s e/s x"] {
        scene.bash(line);
        assert!(fs::symlink_metadata(work.join("x")).expect("it is there").is_dir(), "{line}");
    }
    for (tool, arguments) in [
        ("move_path", r#"{"source": "x", "destination": "y"}"#),
        ("delete_path", r#"{"path": "x"}"#),
    ] {
        scene.run(&["call", "--yes", tool, arguments]);
        assert!(work.join("x").is_dir(), "{tool}");
    }
    scene.bash("touch x/free").ends(0);
    assert!(work.join("x/free").exists(), "its content is the tools' own");
    scene.run(&["call", "read", "path=notes.txt"]).ends(3);
}

/// Git runs hooks and what its configuration names, outside of any sandbox.
#[test]
fn what_git_runs_later_is_found_by_its_links() {
    let plain = |work: &Path, git: &Path| {
        fs::create_dir_all(git.join("hooks")).expect("folders are made");
        fs::write(git.join("config"), "[core]\n").expect("it is written");
        fs::create_dir_all(work.join("shared")).expect("a folder is made");
    };
    type Make = fn(&Path, &dyn Fn(&Path, &Path));
    let ways: [(&str, Make); 4] = [
        ("ln -sfn other a; touch store/hooks/own; echo own >> store/config", |work, plain| {
            plain(work, &work.join("store"));
            symlink("store", work.join("a")).expect("a link is made");
            symlink("a", work.join(".git")).expect("a link is made");
        }),
        ("touch shared/own .git/hooks/own; ln -sfn other .git/hooks", |work, plain| {
            plain(work, &work.join(".git"));
            fs::remove_dir(work.join(".git/hooks")).expect("it is removed");
            symlink("../shared", work.join(".git/hooks")).expect("a link is made");
        }),
        ("echo own >> cfg; ln -sfn other .git/config", |work, plain| {
            plain(work, &work.join(".git"));
            fs::rename(work.join(".git/config"), work.join("cfg")).expect("it is moved");
            symlink("../cfg", work.join(".git/config")).expect("a link is made");
        }),
        ("touch store/hooks/own; echo own >> store/config; rm .git; mkdir .git", |work, plain| {
            plain(work, &work.join("store"));
            fs::write(work.join(".git"), "gitdir: store\n").expect("it is written");
        }),
    ];
    for (command, make) in ways {
        let scene = Scene::new("");
        let work = scene.cli.work();
        make(&work, &plain);
        let state = || {
            let mut found = Vec::new();
            for name in [".git", "a", "store/hooks", "shared", ".git/hooks"] {
                let link = fs::read_link(work.join(name)).ok();
                let names = fs::read_dir(work.join(name)).map(Iterator::count).unwrap_or_default();
                found.push((name, link, if name == ".git" { 0 } else { names }));
            }
            let texts = ["cfg", "store/config", ".git/config", ".git"];
            (found, texts.map(|name| fs::read_to_string(work.join(name)).ok()))
        };
        let before = state();
        for part in command.split("; ") {
            scene.cli.run(&["call", "--yes", "bash", &format!("command={part}")]);
            assert_eq!(state(), before, "{part}");
        }
        scene.cli.run(&["call", "--yes", "bash", "command=touch free"]).ends(0);
        assert!(work.join("free").exists());
    }
}

/// What git would run later and isn't there yet: no command makes it.
#[test]
fn what_git_would_run_later_is_not_made() {
    type Make = fn(&Path);
    let ways: [(Make, &str, &str, Option<&str>); 4] = [
        (
            |work| symlink("../tools/githooks", work.join(".git/hooks")).expect("a link is made"),
            "mkdir -p tools/githooks; touch tools/githooks/own; mv tools x; ln -s x tools",
            "tools/githooks",
            None,
        ),
        (
            |_| (),
            "mkdir .git/hooks; touch .git/hooks/own; ln -s ../x .git/hooks",
            ".git/hooks",
            None,
        ),
        (|_| (), "echo own >> .git/config; ln -sfn ../x .git/config", ".git/config", Some("")),
        (
            |work| symlink("../a/cfg", work.join(".git/config")).expect("a link is made"),
            "mkdir a; echo own >> a/cfg; mv a b; rm -r a",
            "a/cfg",
            Some(""),
        ),
    ];
    for (make, command, path, text) in ways {
        let scene = Scene::new("");
        let work = scene.cli.work();
        fs::create_dir(work.join(".git")).expect("a folder is made");
        fs::write(work.join(".git/HEAD"), "ref: refs/heads/main\n").expect("it is written");
        make(&work);
        for part in command.split("; ") {
            scene.cli.run(&["call", "--yes", "bash", &format!("command={part}")]);
            let there = work.join(path);
            assert_eq!(fs::read_to_string(&there).ok().as_deref(), text, "{part}");
            assert_eq!(fs::symlink_metadata(there).is_ok(), text.is_some(), "{part}");
        }
    }
    // A place that can't be kept: nothing starts.
    let scene = Scene::new("");
    let work = scene.cli.work();
    fs::create_dir(work.join(".git")).expect("a folder is made");
    fs::write(work.join("tools"), "x").expect("it is written");
    symlink("../tools/githooks", work.join(".git/hooks")).expect("a link is made");
    let said = scene.cli.run(&["call", "--yes", "bash", "command=rm tools"]);
    assert!(said.stderr.contains("tools/githooks"), "{}", said.stderr);
    assert!(work.join("tools").is_file());
}

/// A command that ends doesn't take the place from another one.
#[test]
fn place_is_kept_until_the_last_command_has_ended() {
    let cli = Cli::new();
    let root = cli.work().with_file_name("");
    fs::create_dir(root.join(".git")).expect("a folder is made");
    let spawn = |line: &str| {
        let mut call = cli.command(&["call", "--yes", "bash", &format!("command={line}")]);
        call.current_dir(&root).stdout(Stdio::piped()).spawn().expect("it starts")
    };
    let mut first = spawn("touch one; while ! test -e two; do sleep 0.05; done");
    wait_until("the first command runs", || root.join("one").exists());
    let mut second = spawn(
        "touch two; while ! test -e three; do sleep 0.05; done; mkdir -p .claude/skills/s .config/toolhold .git/hooks; touch .claude/skills/s/SKILL.md .config/toolhold/toolhold.toml .git/hooks/own; touch tried",
    );
    assert!(first.wait().expect("it ends").success());
    assert!(root.join(".claude/skills").is_dir() && root.join(".git/hooks").is_dir());
    fs::write(root.join("three"), "").expect("it is written");
    second.wait().expect("it ends");
    assert!(root.join("tried").exists(), "it tried");
    for name in [".claude/skills", ".agents/skills", ".config/toolhold", ".git/hooks"] {
        assert!(!root.join(name).exists(), "{name}");
    }
}

/// A link in the place of a folder of `PATH` would show commands any other folder.
#[test]
fn folder_of_path_that_a_tool_can_exchange_is_not_seen() {
    let cli = Cli::new();
    let outside = cli.work().with_file_name("outside");
    fs::create_dir(&outside).expect("a folder is made");
    fs::write(outside.join("id"), "OUTSIDE").expect("it is written");
    let bash = |line: &str| {
        let path = format!("{}/bin:/usr/bin:/bin", cli.work().display());
        let mut call = cli.command(&["call", "--yes", "bash", &format!("command={line}")]);
        Ended::from_output(call.env("PATH", path).output().expect("it starts"))
    };
    bash(&format!("ln -s {} bin", outside.display()));
    assert!(cli.work().join("bin").is_symlink());
    let seen = bash(&format!("cat {}/id; cat bin/id", outside.display()));
    assert!(!seen.stdout.contains("OUTSIDE"), "{}", seen.stdout);
    fs::remove_file(cli.work().join("bin")).expect("it is removed");
    fs::create_dir(cli.work().join("bin")).expect("a folder is made");
    fs::write(cli.work().join("bin/own"), "#!/bin/sh\necho ran").expect("it is written");
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(cli.work().join("bin/own"), mode).expect("its mode is set");
    assert!(bash("own").stdout.contains("ran"));
}

/// Toolhold runs the program of a secret with the rights of the user.
#[test]
fn program_of_a_secret_is_made_by_no_tool() {
    let cli = Cli::new();
    let (work, ran) = (cli.work(), cli.work().with_file_name("ran"));
    cli.configure(
        "[tools.web.secrets.s]\ncommand = [\"printer\"]\nhosts = [\"localhost\"]\nheader = \"authorization\"\n",
    );
    let path = format!("{}/early:{}/late:/usr/bin:/bin", work.display(), work.display());
    let program = |text: &str| format!("#!/bin/sh\ntouch {}\necho {text}\n", ran.display());
    fs::create_dir(work.join("late")).expect("a folder is made");
    let late = work.join("late/printer");
    fs::write(&late, program("theirs")).expect("it is written");
    fs::set_permissions(&late, fs::Permissions::from_mode(0o755)).expect("its mode is set");
    let run = |line: &[&str]| {
        let mut call = cli.command(line);
        Ended::from_output(call.env("PATH", &path).output().expect("it starts"))
    };
    fs::write(work.join("own"), program("own")).expect("it is written");
    for command in [
        "mkdir -p early; cp own early/printer; chmod +x early/printer",
        "mkdir early; ln -s ../own early/printer",
        "cp own late/printer",
        "ln -s late early",
    ] {
        run(&["call", "--yes", "bash", &format!("command={command}")]);
        assert!(!work.join("early/printer").is_file(), "{command}");
        assert_eq!(fs::read_to_string(&late).expect("it is there"), program("theirs"));
    }
    for name in ["early", "late"] {
        let to = format!("destination={name}/printer");
        run(&["call", "--yes", "copy_path", "source=own", &to, "overwrite=true"]);
        assert!(!work.join("early/printer").exists(), "{name}");
        assert_eq!(fs::read_to_string(&late).expect("it is there"), program("theirs"));
    }
    assert!(!ran.exists());
}

/// Whatever grants a folder in one of Toolhold's own.
#[test]
fn folder_in_one_of_toolhold_s_own_is_not_written() {
    let cli = Cli::new();
    let root = cli.work().with_file_name("");
    for folder in ["config/dev", "data/memory"] {
        fs::create_dir_all(root.join(folder)).expect("folders are made");
    }
    cli.configure("[tools.shell]\nallowed_paths = [\".\", \"~/data/memory\", \"~/config/dev\"]\n");
    let line = "command=touch own; touch ~/data/memory/own ~/config/dev/own; touch free";
    for folder in ["work", "config/dev", "data/memory"] {
        let mut call = cli.command(&["call", "--yes", "bash", line]);
        call.current_dir(root.join(folder)).output().expect("it starts");
        for own in ["config/dev/own", "data/memory/own"] {
            assert!(!root.join(own).exists(), "{folder}: {own}");
        }
    }
    assert!(root.join("work/free").exists());
}

/// What git runs is denied to file tools where it really is.
#[test]
fn file_tools_leave_a_repository_that_is_elsewhere() {
    type Make = fn(&Path);
    let ways: [(Make, &[&str]); 4] = [
        (
            |work| fs::write(work.join(".git"), "gitdir: store\n").expect("it is written"),
            &["store/config", "store/hooks/own", "store/HEAD", ".git"],
        ),
        (
            |work| symlink("store", work.join(".git")).expect("a link is made"),
            &["store/config", "store/hooks/own", ".git/config", ".git"],
        ),
        (
            |work| {
                fs::create_dir(work.join(".git")).expect("a folder is made");
                symlink("../cfg", work.join(".git/config")).expect("a link is made");
                symlink("../shared", work.join(".git/hooks")).expect("a link is made");
            },
            &["cfg", "shared/own", ".git/config", ".git/hooks/own"],
        ),
        (
            |work| fs::write(work.join(".git"), b"gitdir: st\xffre\n").expect("it is written"),
            &[".git"],
        ),
    ];
    for (make, paths) in ways {
        let cli = Cli::new();
        let work = cli.work();
        fs::create_dir_all(work.join("store/hooks")).expect("folders are made");
        make(&work);
        for path in paths {
            let before = fs::read(work.join(path)).ok();
            let path_is = format!("path={path}");
            cli.run(&["call", "--yes", "write", &path_is, "content=own"]);
            assert_eq!(fs::read(work.join(path)).ok(), before, "{path}");
        }
        cli.run(&["call", "--yes", "write", "path=store2/config", "content=x"]).ends(0);
    }
}

/// A repository that a link or a file names, and that isn't there yet.
#[test]
fn repository_that_something_leads_to_is_not_made() {
    type Make = fn(&Path);
    let ways: [(Make, &str, &str); 5] = [
        (
            |work| fs::write(work.join(".git"), "gitdir: ./none/gd").expect("it is written"),
            "mkdir -p none/gd; touch none/gd/config",
            "none/gd/config",
        ),
        (
            |work| symlink("none", work.join(".git")).expect("a link is made"),
            "mkdir -p none; touch none/config; mkdir none/hooks",
            "none/config",
        ),
        (
            |work| symlink("gone/../store", work.join(".git")).expect("a link is made"),
            "mkdir -p e/s e/store; touch e/store/config; ln -s e/s gone",
            ".git/config",
        ),
        (
            |work| {
                fs::create_dir(work.join("meta")).expect("a folder is made");
                fs::create_dir(work.join("store")).expect("a folder is made");
                fs::write(work.join("meta/file"), "gitdir: store").expect("it is written");
                symlink("meta/file", work.join(".git")).expect("a link is made");
            },
            "mkdir store/hooks; touch store/hooks/own",
            "store/hooks/own",
        ),
        (
            |work| {
                fs::create_dir_all(work.join("tools/hooks")).expect("folders are made");
                fs::create_dir(work.join(".git")).expect("a folder is made");
                symlink("../tools/hooks", work.join(".git/hooks")).expect("a link is made");
            },
            "touch tools/hooks/own",
            "tools/hooks/own",
        ),
    ];
    for (make, command, made) in ways {
        let cli = Cli::new();
        cli.configure("[tools.shell]\nallowed_paths = [\".\", \"~/work/tools\"]\n");
        let work = cli.work();
        make(&work);
        fs::create_dir_all(work.join("tools")).expect("folders are made");
        let command = format!("command={command}; touch tried");
        cli.run(&["call", "--yes", "bash", &command]);
        assert!(work.join("tried").exists(), "{command}");
        assert!(!work.join(made).exists(), "{command}");
    }
}

/// A repository of a command's own isn't prevented, but said.
#[test]
fn repository_that_a_command_puts_there_is_named() {
    for command in ["mkdir store; mv store .git", "echo 'gitdir: store' > .git"] {
        let cli = Cli::new();
        let said = cli.run(&["call", "--yes", "bash", &format!("command={command}")]);
        let said = said.stdout + &said.stderr;
        assert!(said.contains("Check these files") && said.contains("/.git"), "{command}: {said}");
    }
}

#[test]
fn fifo_that_a_git_link_leads_to_is_not_opened() {
    let cli = Cli::new();
    let fifo = cli.work().with_file_name("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("it is made");
    symlink(&fifo, cli.work().join(".git")).expect("a link is made");
    cli.run(&["call", "--yes", "bash", "command=true"]);
    // Nobody has it open for reading, and nobody had since: a writer that doesn't wait fails.
    let writer = std::thread::spawn(move || fs::OpenOptions::new().write(true).open(fifo));
    cli.run(&["call", "--yes", "bash", "command=true"]);
    assert!(!writer.is_finished(), "nobody let the writer go");
    drop(fs::OpenOptions::new().read(true).open(cli.work().with_file_name("fifo")));
    let _ = writer.join();
}
