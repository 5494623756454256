//! Programs in the sandbox get terminals of their own, and reach no other.

use super::{run, scene, there_is};
use crate::support::Cli;

/// Python, which isn't the user's own version.
const PYTHON: &str = "/usr/bin/python3";

/// Runs a script of Python in a sandbox, and returns what it prints.
async fn python(script: &str) -> Option<String> {
    if !there_is("python3") {
        return None;
    }
    let script = script.to_owned();
    let scene = scene(&[], |root| {
        std::fs::write(root.join("granted/script.py"), script).expect("a file is written");
    })
    .await;
    let ran = run(&scene, &format!("{PYTHON} script.py")).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    Some(ran.stdout)
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_make_terminals_of_their_own() {
    let Some(said) = python(
        "import os, pty, sys\n\
         leader, follower = os.openpty()\n\
         print(os.ttyname(follower), os.isatty(follower), sorted(os.listdir('/dev/pts')))\n\
         pid, terminal = pty.fork()\n\
         if pid == 0:\n    open('/dev/tty', 'w').write('through /dev/tty')\n    os._exit(0)\n\
         print(os.read(terminal, 100).decode()); os.waitpid(pid, 0)\n\
         sys.stdout.flush()\n\
         assert pty.spawn(['/usr/bin/tty'], lambda fd: os.read(fd, 100)) == 0\n",
    )
    .await
    else {
        return;
    };
    let expected = "/dev/pts/0 True ['0', 'ptmx']\nthrough /dev/tty\n/dev/pts/";
    assert!(said.starts_with(expected), "{said}");
    if there_is("script") {
        let scene = scene(&[], |_| {}).await;
        let ran = run(&scene, "script -qec 'tty; exit 3' /dev/null").await;
        assert_eq!((ran.code, ran.stdout.trim()), (3, "/dev/pts/0"), "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_terminals_is_bounded() {
    let Some(said) = python(
        "import os\nkept = []\n\
         try:\n    while len(kept) < 500: kept.append(os.openpty())\n\
         except OSError as error: print(error.strerror)\n\
         print(len(kept))\n",
    )
    .await
    else {
        return;
    };
    assert_eq!(said, "No space left on device\n64\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn terminal_can_not_be_typed_into_or_given_another_protocol() {
    let Some(said) = python(
        "import fcntl, os\n\
         leader, follower = os.openpty()\n\
         for request in [0x5412, 0x541c, 0x5423]:\n\
         \x20   for fd in [leader, follower]:\n\
         \x20       try: fcntl.ioctl(fd, request, b'\\0' * 8); print('done')\n\
         \x20       except OSError as error: print(error.strerror)\n\
         import ctypes\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         for request in [0x5412, 0x700005412, 0x5423, 0x700005423]:\n\
         \x20   print(libc.ioctl(follower, ctypes.c_ulong(request), b'x'), \
         os.strerror(ctypes.get_errno()))\n",
    )
    .await
    else {
        return;
    };
    let (refused, raw) = ("Operation not permitted\n", "-1 Operation not permitted\n");
    assert_eq!(said, refused.repeat(6) + &raw.repeat(4));
}

#[test]
fn command_does_not_reach_the_terminal_of_its_caller() {
    let cli = Cli::new();
    // The caller's terminal has one of the names, and shows what is written to it.
    let command = "command=ls /dev/pts; for at in /dev/tty /dev/console /dev/tty0 /dev/tty1 \
                   /dev/pts/* /dev/pts/0 /dev/pts/1 /dev/pts/2 /dev/pts/3 /proc/1/fd/* \
                   /proc/self/fd/0; do test -t 0 <> $at && echo reached $at; \
                   echo ty''ped > $at; done 2> /dev/null; mkdir p; \
                   mount -t devpts none p 2> /dev/null && echo mounted; \
                   mknod t c 136 0 2> /dev/null && echo made; tty; echo end";
    let line = ["call", "--yes", "--set", "tools.autonomy=full", "bash", command];
    let Some(ended) =
        cli.typed(&line.map(|word| word.replace('\'', "'\\''")).each_ref().map(String::as_str), "")
    else {
        return;
    };
    let shown = ended.stdout.replace('\r', "");
    assert!(shown.contains("ptmx\nnot a tty\nend\n"), "{shown}");
    assert!(!shown.contains("typed"), "{shown}");
}
