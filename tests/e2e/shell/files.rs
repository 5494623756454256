//! Files that a command can't read or change, with any program.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use super::bounds::as_an_ordinary_user;
use super::{run, scene, there_is};
use crate::support::{Cli, Ended, Scene};

const SECRET: &str = "the-planted-secret";

/// Ways to read a file, by the program that each needs.
const READERS: [(&str, &str); 12] = [
    ("cat", "cat FILE"),
    ("bash", "echo \"$(< FILE)\""),
    ("dd", "dd if=FILE status=none"),
    ("python3", "/usr/bin/python3 -c 'print(open(\"FILE\").read())'"),
    ("perl", "perl -pe 1 FILE"),
    ("tar", "tar -cf - FILE | cat"),
    ("cp", "cp FILE copy.txt && cat copy.txt"),
    ("mv", "mv FILE moved.txt && cat moved.txt"),
    ("ln", "ln FILE linked.txt && cat linked.txt"),
    ("ln", "ln -s \"$PWD/FILE\" link.txt && cat link.txt"),
    ("chmod", "chmod 644 FILE; cat FILE"),
    ("cat", "cat /proc/self/root/$PWD/FILE /proc/self/cwd/FILE /proc/1/root/$PWD/FILE"),
];

/// Ways to write a file.
const WRITERS: [(&str, &str); 10] = [
    ("bash", "echo gone > FILE"),
    ("bash", "echo gone >> FILE"),
    ("tee", "echo gone | tee FILE"),
    ("dd", "echo gone | dd of=FILE conv=notrunc"),
    ("python3", "/usr/bin/python3 -c 'open(\"FILE\", \"w\").write(\"gone\")'"),
    ("rm", "rm -f FILE"),
    ("mv", "echo gone > new.txt; mv -f new.txt FILE"),
    ("truncate", "truncate -s 0 FILE"),
    ("chmod", "chmod 777 FILE"),
    ("touch", "touch -d 2001-01-01 FILE"),
];

async fn each(scene: &Scene, ways: &[(&str, &str)], file: &str) {
    for (program, way) in ways.iter().filter(|(program, _)| there_is(program)) {
        let ran = run(scene, &way.replace("FILE", file)).await;
        assert!(
            !ran.stdout.contains(SECRET) && !ran.stderr.contains(SECRET),
            "{program}: {way}: {ran:?}"
        );
        scene.assert_untouched();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_writes_nothing_outside() {
    let scene = scene(&[], |root| {
        symlink(root.join("outside/secret.txt"), root.join("granted/to-file"))
            .expect("a link is made");
        symlink(root.join("outside"), root.join("granted/to-folder")).expect("a link is made");
    })
    .await;
    let outside = scene.secret_file.display().to_string();
    for file in [
        &*outside,
        "../outside/secret.txt",
        "to-file",
        "to-folder/secret.txt",
        &format!("/proc/self/root{outside}"),
    ] {
        for (_, way) in WRITERS.iter().filter(|(program, _)| there_is(program)) {
            run(&scene, &way.replace("FILE", file)).await;
            scene.assert_untouched();
        }
    }
    // The same ways work where they are allowed.
    run(&scene, "echo first > own.txt; echo second >> own.txt").await;
    assert_eq!(
        fs::read_to_string(scene.granted.join("own.txt")).expect("it was written"),
        "first\nsecond\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn file_in_a_directory_for_reading_stays_unchanged() {
    let paths = "tools.shell.allowed_paths=[\".\", { path = \"{outside}\", access = \"read\" }]";
    let scene = scene(&[paths], |_| {}).await;
    assert_eq!(run(&scene, "cat ../outside/secret.txt").await.stdout, scene.secret);
    let emptied = "/usr/bin/python3 -c 'import os; os.open(\"FILE\", os.O_TRUNC)'";
    let linked = "ln FILE here.txt && echo gone > here.txt";
    for way in WRITERS.iter().chain(&[("python3", emptied), ("ln", linked)]) {
        let (program, way) = way;
        if there_is(program) {
            run(&scene, &way.replace("FILE", "../outside/secret.txt")).await;
            scene.assert_untouched();
        }
    }
}

/// A read-only mount doesn't keep a pipe from being written to.
#[tokio::test(flavor = "multi_thread")]
async fn pipe_that_a_command_may_not_write_gets_nothing() {
    let paths =
        "tools.shell.allowed_paths=[\".\", { path = \"{root}/shared\", access = \"read\" }]";
    let scene = scene(&[paths, "tools.file.deny_write=[\"locked\"]"], |root| {
        fs::create_dir(root.join("shared")).expect("a folder is made");
        for pipe in ["shared/pipe", "granted/locked", "granted/open"] {
            mknodat(CWD, root.join(pipe), FileType::Fifo, Mode::RWXU, 0).expect("a pipe is made");
        }
    })
    .await;
    for (pipe, gets) in [("shared/pipe", ""), ("granted/locked", ""), ("granted/open", "said\n")] {
        let path = scene.root().join(pipe);
        // For writing too, so that opening it waits for nobody.
        let mut ours = fs::File::options()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(&path)
            .expect("it opens");
        run(&scene, &format!("echo said > {}", path.display())).await;
        let mut heard = [0; 16];
        let heard = ours
            .read(&mut heard)
            .map_or(String::new(), |read| String::from_utf8_lossy(&heard[..read]).into_owned());
        assert_eq!(heard, gets, "{pipe}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_reads_nothing_outside() {
    let scene = scene(&[], |root| {
        fs::write(root.join("outside/other.txt"), SECRET).expect("a secret is written");
        symlink(root.join("outside/other.txt"), root.join("granted/to-file"))
            .expect("a link is made");
    })
    .await;
    let outside = scene.outside.join("other.txt").display().to_string();
    for file in [&*outside, "../outside/other.txt", "to-file"] {
        each(&scene, &READERS, file).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn denied_files_are_unreadable_for_programs() {
    let plant = |root: &Path| {
        let granted = root.join("granted");
        fs::create_dir_all(granted.join("deep/secrets/keys")).expect("folders are made");
        for file in [".env", "deep/.env", "deep/secrets/keys/key.pem"] {
            fs::write(granted.join(file), SECRET).expect("a secret is written");
        }
        fs::set_permissions(granted.join(".env"), fs::Permissions::from_mode(0o666))
            .expect("its mode is set");
    };
    let scene = scene(&["tools.file.deny_read=[\"**/.env\", \"secrets/**\"]"], plant).await;
    for file in [".env", "deep/.env", "deep/secrets/keys/key.pem"] {
        each(&scene, &READERS, file).await;
        assert_eq!(
            fs::read_to_string(scene.granted.join(file)).expect("it is still there"),
            SECRET,
            "{file}"
        );
    }
    // A directory above denied files, moved by one call and read by the next.
    run(&scene, "mv deep elsewhere; mv deep/secrets shown; mkdir -p new; mv deep new/").await;
    let ran = run(&scene, "cat elsewhere/.env shown/keys/key.pem new/deep/.env").await;
    assert!(!ran.stdout.contains(SECRET), "{ran:?}");
    let ran = run(&scene, "grep -r planted . ; find . -type f -exec cat {} + ; mv deep elsewhere && cat elsewhere/.env").await;
    assert!(!ran.stdout.contains(SECRET) && !ran.stderr.contains(SECRET), "{ran:?}");
    // Without the rule, the same file is read.
    let open = super::scene(&[], |root| {
        fs::write(root.join("granted/.env"), SECRET).expect("a secret is written");
    })
    .await;
    assert_eq!(run(&open, "cat .env").await.stdout, SECRET);
}

#[tokio::test(flavor = "multi_thread")]
async fn protected_files_stay_unchanged() {
    let files = [
        "locked.txt",
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/modules/deep/sub/config",
        ".git/worktrees/one/commondir",
        ".git/worktrees/one/gitdir",
        "toolhold.toml",
    ];
    let plant = |root: &Path| {
        let granted = root.join("granted");
        for folder in ["hooks", "modules/deep/sub", "worktrees/one"] {
            fs::create_dir_all(granted.join(".git").join(folder)).expect("folders are made");
        }
        for file in
            files.into_iter().chain([".git/modules/deep/sub/HEAD", ".git/worktrees/one/HEAD"])
        {
            fs::write(granted.join(file), "").expect("a file is written");
        }
    };
    let scene = scene(&["tools.file.deny_write=[\"locked.txt\"]"], plant).await;
    for file in files {
        for (_, way) in WRITERS.iter().filter(|(program, _)| there_is(program)) {
            run(&scene, &way.replace("FILE", file)).await;
            let path = scene.granted.join(file);
            assert_eq!(fs::read_to_string(&path).expect("it is still there"), "", "{way} {file}");
            assert_eq!(
                fs::metadata(&path).expect("it is still there").permissions().mode() & 0o777,
                0o644,
                "{way} {file}"
            );
        }
    }
    assert_ne!(run(&scene, "echo x > .git/hooks/post-commit").await.code, 0);
    assert!(!scene.granted.join(".git/hooks/post-commit").exists());
    let hooks = ".git/modules/deep/sub/hooks";
    assert_ne!(run(&scene, &format!("mkdir -p {hooks}; echo x > {hooks}/update")).await.code, 0);
    assert!(!scene.granted.join(hooks).exists());
    run(&scene, "mv .git .old; mkdir -p .git/hooks; echo x > .git/config; echo x > .git/hooks/pre-commit; rm -rf .git").await;
    assert!(!scene.granted.join(".old").exists());
    assert_eq!(
        fs::read_to_string(scene.granted.join(".git/config")).expect("it is still there"),
        ""
    );
    run(&scene, "echo x > .git/HEAD").await;
    assert_eq!(
        fs::read_to_string(scene.granted.join(".git/HEAD")).expect("git itself writes there"),
        "x\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn toolholds_own_folders_are_out_of_reach() {
    // The folders are below the granted one.
    let scene = scene(&["tools.shell.allowed_paths=[\"{root}\"]"], |_| {}).await;
    let data = scene.root().join("toolhold/data");
    // The first call is recorded, and makes the folder.
    run(&scene, "true").await;
    fs::write(data.join("planted"), SECRET).expect("a secret is written");
    let ran = run(
        &scene,
        &format!("cat {0}/planted; ls {0}; echo x > {0}/planted; rm -rf {0}", data.display()),
    )
    .await;
    assert!(!ran.stdout.contains(SECRET), "{ran:?}");
    assert_eq!(fs::read_to_string(data.join("planted")).expect("it is still there"), SECRET);
    let config = scene.root().join("toolhold/config");
    run(
        &scene,
        &format!(
            "mkdir -p {0}; echo 'tools.autonomy = \"full\"' > {0}/toolhold.toml",
            config.display()
        ),
    )
    .await;
    assert!(!config.join("toolhold.toml").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn kernel_interfaces_lead_nowhere() {
    let scene = scene(&[], |_| {}).await;
    let root = scene.root().display().to_string();
    for command in [
        "unshare -Ur true",
        "unshare -m true",
        "mount -t tmpfs none /mnt",
        "mount --bind / /mnt",
        "umount -l /etc/shadow",
        "chroot / true",
        "nsenter -t 1 -m true",
        "mknod device b 254 0",
        &format!("ls {root}/outside"),
        "cat /proc/1/environ",
        "cat /etc/shadow",
        "echo 1 > /proc/sys/kernel/core_uses_pid",
        "echo x > /proc/sysrq-trigger",
        "echo x > /sys/devices/system/cpu/online",
        "echo x > /usr/bin/toolhold-was-here",
        "echo x > /etc/toolhold-was-here",
        // What isn't granted isn't there, and can't be made either.
        "mkdir /toolhold-was-here",
        "rm /bin",
        &format!("mv {root} {root}-moved"),
    ] {
        let ran = run(&scene, command).await;
        assert_ne!(ran.code, 0, "{command}: {ran:?}");
    }
    assert!(
        !Path::new("/usr/bin/toolhold-was-here").exists()
            && !Path::new("/etc/toolhold-was-here").exists()
    );
    // The process that watches isn't ended or stopped.
    let ran =
        run(&scene, "kill -9 1; kill -STOP 1; kill -SEGV 1; kill -SEGV 1; echo goes on").await;
    assert_eq!((ran.code, &*ran.stdout), (0, "goes on\n"), "{ran:?}");
    let ran = run(&scene, "grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status").await;
    assert_eq!(
        ran.stdout,
        "CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nNoNewPrivs:\t1\n"
    );
}

#[test]
fn open_descriptors_are_not_inherited() {
    let cli = Cli::new();
    let outside = cli.root.path().join("secret.txt");
    let line = [
        "call",
        "--yes",
        "--json",
        "--set",
        "tools.autonomy=full",
        "bash",
        "command=cat <&7; echo gone >&8; ls -l /proc/self/fd",
    ];
    let toolhold = cli.command(&line);
    let mut shell = Command::new("bash");
    shell.args(["-c", "exec 7<\"$0\" 8>>\"$0\" 9</; shift 0; exec \"$@\""]).arg(&outside);
    shell
        .arg(toolhold.get_program())
        .args(toolhold.get_args())
        .env_clear()
        .current_dir(cli.work())
        .stdin(Stdio::null());
    shell
        .envs(toolhold.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .env("PATH", "/usr/bin:/bin");
    let ended = Ended::from_output(shell.output().expect("it starts"));
    assert!(
        ended.stdout.contains("/proc/self/fd") || ended.stdout.contains("Bad file descriptor"),
        "it ran: {}",
        ended.stdout
    );
    assert!(!ended.stdout.contains("the secret"), "{}", ended.stdout);
    assert_eq!(fs::read_to_string(outside).expect("it is there"), "the secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_in_place_of_protected_files_do_not_stop_a_command() {
    let plant = |root: &Path| {
        let granted = root.join("granted");
        fs::create_dir_all(granted.join("repository/hooks")).expect("folders are made");
        fs::write(granted.join("repository/config"), "").expect("a file is written");
        for (link, target) in [
            ("toolhold.toml", "nowhere"),
            (".env", "public.txt"),
            ("locked.txt", "public.txt"),
            (".git", "repository"),
        ] {
            symlink(target, granted.join(link)).expect("a link is made");
        }
    };
    let scene = scene(
        &["tools.file.deny_read=[\".env\"]", "tools.file.deny_write=[\"locked.txt\"]"],
        plant,
    )
    .await;
    assert_eq!(run(&scene, "echo works").await.stdout, "works\n");
    // The repository at the link's target is protected.
    assert_ne!(run(&scene, "echo x > repository/config").await.code, 0);
    assert_eq!(
        fs::read_to_string(scene.granted.join("repository/config")).expect("it is there"),
        ""
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_files_are_not_created_and_leave_no_stub() {
    let plant = |root: &Path| {
        fs::create_dir_all(root.join("granted/.git")).expect("folders are made");
        fs::create_dir_all(root.join("granted/sub")).expect("folders are made");
        fs::write(root.join("granted/sub/toolhold.toml"), "tools.call = 5\n")
            .expect("a file is written");
    };
    let scene = scene(&[], plant).await;
    run(&scene, "echo x > .git/hooks/pre-commit; mkdir -p .git/hooks; rmdir .git/hooks; ln -s /tmp .git/hooks").await;
    assert!(fs::symlink_metadata(scene.granted.join(".git/hooks")).is_err());
    run(&scene, "echo x > sub/toolhold.toml; rm -f sub/toolhold.toml; mv sub other").await;
    assert_eq!(
        fs::read_to_string(scene.granted.join("sub/toolhold.toml")).expect("it is still there"),
        "tools.call = 5\n"
    );
    // While one command runs, another ends: the first stays confined.
    let slow = run(&scene, "sleep 1; echo x > .git/hooks/pre-commit");
    let quick = async {
        for _ in 0..5 {
            run(&scene, "true").await;
        }
    };
    tokio::join!(slow, quick);
    let left: Vec<_> =
        fs::read_dir(scene.granted.join(".git")).expect("it is there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn new_configuration_of_the_project_only_narrows_and_is_told() {
    let cli = Cli::new();
    // Nothing stands in its place that a program could find.
    let listed = cli.run(&["call", "bash", "find . -name toolhold.toml"]).ends(0).stdout;
    assert!(!listed.contains("toolhold.toml"), "{listed}");
    let wider = "command=printf '[tools.shell]\\nnetwork = \"allow\"\\n' > toolhold.toml";
    let told = cli.run(&["call", "bash", wider]).ends(0).stdout;
    assert!(told.contains("toolhold.toml. Other programs run or obey these files later"), "{told}");
    assert!(cli.work().join("toolhold.toml").exists());
    let refused = cli.run(&["call", "bash", "command=cat < /dev/null", "network=true"]);
    assert!(refused.code == 3 && refused.stderr.contains("is ignored"), "{}", refused.stderr);
    // One that nobody can read stops no undo.
    cli.run(&["call", "bash", "echo '][' > toolhold.toml"]);
    cli.run(&["undo", "--yes"]).ends(0);
    assert!(!cli.work().join("toolhold.toml").exists());
}

#[test]
fn settings_of_ssh_that_root_owns_are_covered_for_an_ordinary_user() {
    let folder = Path::new("/etc/ssh/ssh_config.d");
    if !there_is("ssh") || !folder.is_dir() {
        return;
    }
    let command = "ssh -G example.org > /dev/null && echo it works; ls /etc/ssh/ssh_config.d";
    let Some((_, ended)) = as_an_ordinary_user(&[], command) else { return };
    let shown = ended.stdout + &ended.stderr;
    assert!(shown.contains("it works") && shown.contains("Permission denied"), "{shown}");
}
