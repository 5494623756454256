//! `toolhold plugin publish` to a registry that others wrote, with TLS and a password.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;

use crate::plugin_install::{kill, toolhold};
use crate::signing::{new_key, text};
use crate::support::{Living, ends, fetched, version};

#[allow(dead_code, reason = "shared with the tests of toolhold-registry, which use more of it")]
#[path = "../../host/packages/registry/tests/fetching/docker_registry.rs"]
mod docker_registry;

use docker_registry::{AUTH, DockerRegistry};

/// Writes a private file.
fn write(path: &Path, content: &[u8]) {
    let folder = path.parent().expect("it has a folder");
    fs::create_dir_all(folder).expect("a folder is made");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("it is private");
    fs::write(path, content).expect("it is written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is private");
}

/// A person who can reach the registry. `more`: further lines of the configuration.
fn person(registry: &DockerRegistry, more: &str) -> Living {
    let living = Living::new();
    let authority = registry.authority();
    let config = format!("[network]\nauthorities = [{authority:?}]\n{more}");
    write(&living.folders.config_file(), config.as_bytes());
    living
}

/// Stores the person's login for the registry.
fn log_in(living: &Living, registry: &DockerRegistry) {
    let host = format!("localhost:{}", registry.port);
    let logins = json!({ "auths": { host: { "auth": AUTH } } });
    write(&living.root().join(".docker/config.json"), logins.to_string().as_bytes());
}

/// A signed component of the author, in the version of a round.
fn component(author: &Living, round: u32) -> PathBuf {
    let file = author.root().join("author/word.wasm");
    write(&file, &version("word", &format!("1.0.{round}"), "one").encode());
    ends(&author.toolhold(&["plugin", "sign", text(&file)]), 0);
    file
}

/// Ends the program at random moments of publishing. Each time, users get the signed component or
/// nothing, and the author publishes it again.
#[test]
fn soak_killed_publish_leaves_no_part_in_a_real_registry() {
    let Some(debian) = fetched("debian") else { return };
    let rounds: u32 = if std::env::var_os("TOOLHOLD_SOAK").is_some() { 100 } else { 3 };
    let registry = DockerRegistry::start(&debian.join("usr/bin/docker-registry"));
    let author = person(&registry, "");
    let key = new_key(&author, "default");
    let trust = format!(
        "[installing]\nrequire_signature = true\n\
         [[installing.keys]]\nname = \"acme\"\nkey = \"{key}\"\nplugins = [\"word\"]\n"
    );

    let file = component(&author, rounds);
    let destination = format!("oci://localhost:{}/tools/word:first", registry.port);
    let publish = ["plugin", "publish", text(&file), &destination];
    let told = ends(&author.toolhold(&publish), 4);
    assert!(told.contains("needs a login"), "{told}");
    log_in(&author, &registry);
    // How long a whole run takes here.
    let began = Instant::now();
    let told = ends(&author.toolhold(&publish), 0);
    let whole = began.elapsed();
    assert!(told.contains("is published, signed by key `default`"), "{told}");

    let (mut killed, mut missing) = (0, 0);
    for round in 0..rounds {
        let file = component(&author, round);
        let destination = format!("oci://localhost:{}/tools/word:1.0.{round}", registry.port);
        let publish = ["plugin", "publish", text(&file), &destination];
        let mut child = toolhold(&author).args(publish).spawn().expect("it starts");
        // The first is killed at once.
        let moment = Instant::now() + whole.mul_f64(f64::from(round * 37 % 100) / 90.0);
        while Instant::now() < moment && child.try_wait().expect("it is there").is_none() {
            std::thread::yield_now();
        }
        killed += u32::from(kill(child));

        let user = person(&registry, &trust);
        log_in(&user, &registry);
        let add = ["plugin", "add", &destination, "--yes"];
        let added = user.toolhold(&add);
        if added.status.code() != Some(0) {
            missing += 1;
            // Something else than a missing tag would be a part.
            let told = ends(&added, 4);
            assert!(told.contains("404"), "{round}: {told}");
            ends(&author.toolhold(&publish), 0);
            ends(&user.toolhold(&add), 0);
        }
        let told = ends(&author.toolhold(&publish), 0);
        assert!(told.contains("is already published"), "{round}: {told}");
        let told = ends(&user.toolhold(&["plugin", "verify"]), 0);
        assert!(told.contains("1 verified"), "{round}: {told}");
    }
    assert!(killed > 0 && missing > 0, "{killed} {missing}");
}
