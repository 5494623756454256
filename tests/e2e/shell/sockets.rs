//! Sockets of other programs: with a path, they are as unreachable as files; without one, they
//! don't exist.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use super::{run, scene, there_is};
use crate::support::NEWEST_LANDLOCK;

fn arrived(listener: &UnixListener) -> usize {
    listener.set_nonblocking(true).expect("it can be asked without waiting");
    std::iter::from_fn(|| listener.accept().ok()).count()
}

fn connect(address: &str) -> String {
    format!(
        "/usr/bin/python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect({address}); print(\"through\")'"
    )
}

/// Whether Landlock keeps commands from sockets without a path: from Linux 6.12 on.
fn landlock_covers_sockets() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("it is there");
    let numbers: Vec<u32> = release.split('.').map_while(|number| number.parse().ok()).collect();
    numbers >= vec![6, 12] && std::env::var_os(NEWEST_LANDLOCK).is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_outside_stay_untouched() {
    if !there_is("python3") {
        return;
    }
    for network in ["deny", "allow"] {
        let scene = scene(&[&format!("tools.shell.network={network}")], |_| {}).await;
        // Like those of docker, D-Bus and agents that hold keys.
        let [docker, bus] = ["docker.sock", "bus"].map(|name| scene.root().join(name));
        let listeners =
            [&docker, &bus].map(|path| UnixListener::bind(path).expect("a socket is made"));
        for (path, listener) in [&docker, &bus].into_iter().zip(&listeners) {
            for path in [
                path.display().to_string(),
                format!("/proc/self/root{}", path.display()),
                "../docker.sock".to_owned(),
            ] {
                let ran = run(&scene, &connect(&format!("\"{path}\""))).await;
                assert_ne!(ran.code, 0, "{path}: {ran:?}");
            }
            assert_eq!(arrived(listener), 0, "{}", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_in_the_project_need_a_grant() {
    if !there_is("python3") {
        return;
    }
    for network in ["deny", "allow"] {
        let settings = [
            &format!("tools.shell.network={network}"),
            "tools.shell.sockets=[\"{root}/granted/run/may.sock\"]",
        ];
        let scene = scene(&settings, |root| {
            std::fs::create_dir_all(root.join("granted/run/deep")).expect("folders are made");
        })
        .await;
        let listen =
            |name: &str| UnixListener::bind(scene.granted.join(name)).expect("a socket is made");
        let (hidden, deep, may) =
            (listen("supervisor.sock"), listen("run/deep/tmux.sock"), listen("run/may.sock"));
        std::os::unix::fs::symlink("run/deep/tmux.sock", scene.granted.join("link"))
            .expect("a link is made");
        for path in ["supervisor.sock", "run/deep/tmux.sock", "link"] {
            assert_ne!(run(&scene, &connect(&format!("\"{path}\""))).await.code, 0, "{path}");
        }
        // Moved by one command, used by the next; and the granted socket replaced by a link.
        run(&scene, "mv supervisor.sock other.sock; mv run/deep run/deeper; ln supervisor.sock third.sock; rm -f supervisor.sock").await;
        for path in ["other.sock", "run/deeper/tmux.sock", "third.sock", "supervisor.sock"] {
            assert_ne!(run(&scene, &connect(&format!("\"{path}\""))).await.code, 0, "{path}");
        }
        assert_eq!([arrived(&hidden), arrived(&deep)], [0, 0], "network = {network}");
        if network == "allow" && !landlock_covers_sockets() {
            let ran = run(&scene, &connect("\"run/may.sock\"")).await;
            assert!(ran.stderr.contains("not permitted"), "no command makes a socket: {ran:?}");
            continue;
        }
        assert_eq!(run(&scene, &connect("\"run/may.sock\"")).await.stdout, "through\n");
        assert_eq!(arrived(&may), 1);
        run(&scene, "mv run/may.sock aside; ln -s deep/tmux.sock run/may.sock").await;
        assert_ne!(run(&scene, &connect("\"run/may.sock\"")).await.code, 0);
        assert_eq!(arrived(&deep), 0);
        // A left-over socket is no obstacle, and a command can use its own sockets.
        drop(listen("left.sock"));
        let own = "/usr/bin/python3 -c 'import os, socket; os.unlink(\"left.sock\"); l = socket.socket(socket.AF_UNIX); l.bind(\"left.sock\"); \
                   l.listen(); socket.socket(socket.AF_UNIX).connect(\"left.sock\"); l.accept(); print(\"through\")'";
        assert_eq!(run(&scene, own).await.stdout, "through\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn socket_that_appears_between_two_commands_stays_untouched() {
    if !there_is("python3") {
        return;
    }
    let scene = scene(&[], |root| {
        std::fs::create_dir_all(root.join("granted/old")).expect("a folder is made");
        std::fs::create_dir_all(root.join("outside/folder")).expect("a folder is made");
    })
    .await;
    let outside = scene.root().join("outside");
    let listen = |path: std::path::PathBuf| UnixListener::bind(path).expect("a socket is made");
    // What the search finds is known from now on, also what commands themselves make.
    for command in ["true", "mkdir -p made/deep", "true"] {
        assert_eq!(run(&scene, command).await.code, 0);
    }
    let listeners = [
        listen(scene.granted.join("here.sock")),
        listen(scene.granted.join("made/deep/made.sock")),
        listen(outside.join("linked.sock")),
        listen(outside.join("folder/moved.sock")),
        listen(outside.join("renamed.sock")),
    ];
    std::fs::hard_link(outside.join("linked.sock"), scene.granted.join("old/linked.sock"))
        .expect("a link is made");
    std::fs::rename(outside.join("folder"), scene.granted.join("folder")).expect("it moves");
    std::fs::rename(outside.join("renamed.sock"), scene.granted.join("old/renamed.sock"))
        .expect("it moves");
    for path in [
        "here.sock",
        "made/deep/made.sock",
        "old/linked.sock",
        "folder/moved.sock",
        "old/renamed.sock",
    ] {
        let ran = run(&scene, &connect(&format!("\"{path}\""))).await;
        assert_ne!(ran.code, 0, "{path}: {ran:?}");
    }
    assert_eq!(listeners.each_ref().map(arrived), [0; 5]);
    // A command exchanges directories, and a socket has another path for the next one.
    run(&scene, "mv old older; mv made old; mkdir made; mv older/linked.sock made/again.sock")
        .await;
    for path in ["old/deep/made.sock", "older/renamed.sock", "older/linked.sock", "made/again.sock"]
    {
        let ran = run(&scene, &connect(&format!("\"{path}\""))).await;
        assert_ne!(ran.code, 0, "{path}: {ran:?}");
    }
    assert_eq!(listeners.each_ref().map(arrived), [0; 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_without_a_path_stay_untouched() {
    if !there_is("python3") {
        return;
    }
    let name = format!("toolhold-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("it is a name");
    let listener = UnixListener::bind_addr(&address).expect("a socket is made");
    for network in ["deny", "allow"] {
        let scene = scene(&[&format!("tools.shell.network={network}")], |_| {}).await;
        let ran = run(&scene, &connect(&format!("\"\\0{name}\""))).await;
        assert_ne!(ran.code, 0, "{ran:?}");
        assert_eq!(arrived(&listener), 0, "network = {network}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_to_the_kernel_are_closed() {
    if !there_is("python3") {
        return;
    }
    let scene = scene(&["tools.shell.network=allow"], |_| {}).await;
    // The numbers of a NETLINK socket: sockets, packet filters, audit, devices, generic.
    let netlink = [4, 9, 12, 15, 16].map(|protocol| ("AF_NETLINK", protocol));
    for (family, protocol) in
        [("AF_PACKET", 0), ("AF_VSOCK", 0), ("AF_ALG", 0)].into_iter().chain(netlink)
    {
        let make = format!(
            "/usr/bin/python3 -c 'import socket; socket.socket(socket.{family}, socket.SOCK_RAW, {protocol})'"
        );
        let ran = run(&scene, &make).await;
        assert!(ran.code != 0 && ran.stderr.contains("Error"), "{family}: {ran:?}");
    }
}

/// Asks the kernel for a new network interface, and prints its answer.
const NEW_INTERFACE: &str = r#"/usr/bin/python3 -c '
import socket, struct
kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
def field(kind, value): return struct.pack("HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)
fields = field(3, b"stray0\0") + field(18, field(1, b"dummy"))
body = struct.pack("BBHiII", 0, 0, 0, 0, 0, 0) + fields
kernel.send(struct.pack("IHHII", 16 + len(body), 16, 0x605, 1, 0) + body)
print("answer", struct.unpack("i", kernel.recv(4096)[16:20])[0])
print("interfaces", [name for _, name in socket.if_nameindex()])
'"#;

#[tokio::test(flavor = "multi_thread")]
async fn interfaces_are_listed_and_never_changed() {
    if !there_is("python3") {
        return;
    }
    for network in ["deny", "allow"] {
        let scene = scene(&[&format!("tools.shell.network={network}")], |_| {}).await;
        if there_is("node") {
            let list = "node -p 'Object.keys(require(\"os\").networkInterfaces()).length >= 0'";
            let ran = run(&scene, list).await;
            assert!(ran.code == 0 && ran.stdout.contains("true"), "{network}: {ran:?}");
        }
        let ran = run(&scene, NEW_INTERFACE).await;
        assert!(ran.stdout.contains("answer -1\n"), "{network}: {ran:?}");
        assert!(ran.stdout.contains("interfaces ['lo'"), "{network}: {ran:?}");
        assert!(!ran.stdout.contains("stray0"), "{network}: {ran:?}");
        assert!(!Path::new("/sys/class/net/stray0").exists(), "{network}");
    }
}
