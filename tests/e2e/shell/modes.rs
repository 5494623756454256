//! Mode bits that would give the owner's rights to whoever runs the file outside.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::{run, scene, there_is};

/// Every way to set such a bit, each with the program that it needs.
const WAYS: [(&str, &str); 15] = [
    ("chmod", "chmod u+s FILE"),
    ("chmod", "chmod g+s FILE"),
    ("chmod", "chmod 6755 FILE"),
    ("install", "install -m 4755 FILE made"),
    ("python3", "/usr/bin/python3 -c 'import os; os.chmod(\"FILE\", 0o4755)'"),
    ("python3", "/usr/bin/python3 -c 'import os; os.fchmod(os.open(\"FILE\", 0), 0o4755)'"),
    (
        "python3",
        "/usr/bin/python3 -c 'import os; os.chmod(\"FILE\", 0o2755, dir_fd=os.open(\".\", 0))'",
    ),
    (
        "python3",
        "/usr/bin/python3 -c 'import os; os.open(\"made\", os.O_CREAT | os.O_WRONLY, 0o4755)'",
    ),
    (
        "python3",
        "/usr/bin/python3 -c 'import os; os.open(\"made\", os.O_CREAT | os.O_WRONLY, 0o2755)'",
    ),
    ("python3", "/usr/bin/python3 -c 'import os; os.mknod(\"made\", 0o104755)'"),
    // No name at first, and one that it gets later.
    (
        "python3",
        "/usr/bin/python3 -c 'import os; f = os.open(\".\", os.O_TMPFILE | os.O_WRONLY, 0o4755); os.link(f\"/proc/self/fd/{f}\", \"made\", \
         src_dir_fd=0, follow_symlinks=True)'",
    ),
    // By their numbers: openat2, fchmodat2, and open and chmod as old programs call them.
    (
        "python3",
        "/usr/bin/python3 -c 'import ctypes, struct; c = ctypes.CDLL(None); c.syscall(437, -100, b\"made\", struct.pack(\"QQQ\", 0o101, \
         0o4755, 0), 24)'",
    ),
    (
        "python3",
        "/usr/bin/python3 -c 'import ctypes; ctypes.CDLL(None).syscall(452, -100, b\"FILE\", 0o4755, 0)'",
    ),
    (
        "python3",
        "/usr/bin/python3 -c 'import ctypes; c = ctypes.CDLL(None); c.syscall(2, b\"made\", 0o101, 0o4755)'",
    ),
    (
        "python3",
        "/usr/bin/python3 -c 'import ctypes; c = ctypes.CDLL(None); c.syscall(90, b\"FILE\", 0o4755)'",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn setuid_files_lend_no_rights() {
    let scene = scene(&[], |root| {
        fs::write(root.join("granted/program"), "#!/bin/sh\n").expect("a file is written");
    })
    .await;
    for (_, way) in WAYS.iter().filter(|(program, _)| there_is(program)) {
        run(&scene, &format!("umask 0; {}; true", way.replace("FILE", "program"))).await;
        for entry in fs::read_dir(&scene.granted).expect("it is there").flatten() {
            let mode = entry.metadata().expect("it is there").permissions().mode();
            assert_eq!(mode & 0o6000, 0, "{way}: {:o} {}", mode, entry.path().display());
        }
        let _ = fs::remove_file(scene.granted.join("made"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_modes_are_set_as_ever() {
    let scene = scene(&[], |root| {
        fs::write(root.join("granted/program"), "#!/bin/sh\n").expect("a file is written");
    })
    .await;
    let ran =
        run(&scene, "chmod 755 program && ./program && mkdir -m 1777 shared && install -m 700 program other && cp -p program third").await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let mode = |name: &str| {
        fs::metadata(scene.granted.join(name)).expect("it is there").permissions().mode() & 0o7777
    };
    assert_eq!(
        [mode("program"), mode("shared"), mode("other"), mode("third")],
        [0o755, 0o1777, 0o700, 0o755]
    );
    // The mode argument is ignored if no file is created.
    if there_is("python3") {
        let ran = run(&scene, "/usr/bin/python3 -c 'import os; print(os.read(os.open(\"program\", os.O_RDONLY, 0o6777), 2))'").await;
        assert_eq!(ran.stdout, "b'#!'\n", "{ran:?}");
    }
}
