//! Sockets of other programs: where they have a path, they are as far away as files; where they have none, they aren't there.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::{run, scene, there_is};

fn arrived(listener: &UnixListener) -> usize {
    listener.set_nonblocking(true).expect("it can be asked without waiting");
    std::iter::from_fn(|| listener.accept().ok()).count()
}

fn connect(address: &str) -> String {
    format!("/usr/bin/python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect({address}); print(\"through\")'")
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_outside_stay_untouched() {
    if !there_is("python3") {
        return;
    }
    for network in ["deny", "allow"] {
        let scene = scene(&[&format!("tools.shell.network={network}")], |_| {}).await;
        // As those of docker, D-Bus and agents that hold keys lie.
        let [docker, bus] = ["docker.sock", "bus"].map(|name| scene.root().join(name));
        let listeners = [&docker, &bus].map(|path| UnixListener::bind(path).expect("a socket is made"));
        for (path, listener) in [&docker, &bus].into_iter().zip(&listeners) {
            for path in [path.display().to_string(), format!("/proc/self/root{}", path.display()), "../docker.sock".to_owned()] {
                let ran = run(&scene, &connect(&format!("\"{path}\""))).await;
                assert_ne!(ran.code, 0, "{path}: {ran:?}");
            }
            assert_eq!(arrived(listener), 0, "{}", path.display());
        }
        let own = UnixListener::bind(scene.granted.join("own.sock")).expect("a socket is made");
        assert_eq!(run(&scene, &connect("\"own.sock\"")).await.stdout, "through\n");
        assert_eq!(arrived(&own), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_without_a_path_stay_untouched() {
    if !there_is("python3") {
        return;
    }
    let name = format!("berth-test-{}", std::process::id());
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
async fn there_are_no_sockets_to_the_kernel() {
    if !there_is("python3") {
        return;
    }
    let scene = scene(&["tools.shell.network=allow"], |_| {}).await;
    for family in ["AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_ALG"] {
        let make = format!("/usr/bin/python3 -c 'import socket; socket.socket(socket.{family}, socket.SOCK_RAW)'");
        let ran = run(&scene, &make).await;
        assert!(ran.code != 0 && ran.stderr.contains("Error"), "{family}: {ran:?}");
    }
}
