//! Servers and plugins that an organisation approves once, for every user of a machine.

use std::fs;

use sha2::{Digest, Sha256};

use crate::mounts::in_namespaces;
use crate::servers::Scene;
use crate::support::{Cli, version};

/// An empty folder of the organisation.
const FOLDER: &str = "set +e; umask 022; mount -t tmpfs tmpfs /etc; mkdir -p /etc/toolhold/servers";

#[test]
fn server_of_the_organisation_needs_no_approval() {
    let scene = Scene::new(41, "");
    let root = scene.cli.root.path().canonicalize().expect("it is there").display().to_string();
    // The administrator's approval. The user has none.
    fs::rename(scene.cli.root.path().join("data/servers/evil.json"), format!("{root}/evil.json"))
        .expect("it was approved");
    scene.put("go");
    let script = format!(
        "{FOLDER}; organisation=/etc/toolhold/servers/evil.json
        toolhold=$(echo TOOLHOLD | cut -d' ' -f1)
        TOOLHOLD evil__echo_text text=early; echo unapproved ends $?; ls {root}/server
        cp {root}/evil.json $organisation
        TOOLHOLD evil__echo_text text=hello; echo approved ends $?
        $toolhold mcp list
        TOOLHOLD --set mcp.servers.evil.network=true evil__echo_text text=wider; echo wider ends $?
        touch {root}/server/changed
        TOOLHOLD evil__slow; echo changed ends $?
        $toolhold mcp approve evil --yes
        TOOLHOLD evil__slow; echo stored ends $?
        cp {root}/data/servers/evil.json $organisation
        TOOLHOLD evil__slow; echo replaced ends $?
        chmod 666 $organisation
        TOOLHOLD evil__echo_text text=open; echo open ends $?"
    );
    let Some(ended) = in_namespaces(&scene.cli, &script) else { return };
    let said = format!("{}{}", ended.stdout, ended.stderr);
    let out = &ended.stdout;
    assert!(
        out.contains("unapproved ends 2\ndeclared\ngo\nserver.py\n"),
        "it isn't started: {said}"
    );
    assert!(out.contains("hello") && out.contains("approved ends 0\n"), "{said}");
    assert!(out.contains("for every user, in /etc/toolhold/servers/evil.json"), "{said}");
    assert!(out.contains("wider ends 2\n") && !out.contains("changed ends 0\n"), "{said}");
    assert!(said.contains("changed since the approval"), "{said}");
    assert!(out.contains("Stored, with") && !out.contains("stored ends 0\n"), "{said}");
    assert!(out.contains("replaced ends 0\n") && !out.contains("open ends 0\n"), "{said}");
    assert!(said.contains("others can write to the file"), "{said}");
}

#[test]
fn plugin_pinned_by_the_organisation_needs_no_approval() {
    let cli = Cli::new();
    let root = cli.root.path().canonicalize().expect("it is there").display().to_string();
    let put = |file: &str, name, answer| {
        let component = version(name, "1.0.0", answer).encode();
        fs::write(format!("{root}/{file}"), &component).expect("it is written");
        format!("{:x}", Sha256::digest(&component))
    };
    let digest = put("pinned.wasm", "word", "the-pinned-one");
    put("other.wasm", "word", "another-one");
    let installed = put("installed.wasm", "acme", "the-installed-one");
    cli.configure(&format!("[plugins.word]\npath = \"{root}/word.wasm\"\n"));
    let pins = format!(
        "[plugins.word]\ndigest = \"{digest}\"\n[plugins.acme]\nsource = \
         \"{root}/installed.wasm\"\ndigest = \"sha256:{installed}\"\n"
    );
    fs::write(format!("{root}/pin.toml"), pins).expect("it is written");
    let script = format!(
        "{FOLDER}; cp {root}/pinned.wasm {root}/word.wasm
        TOOLHOLD --set plugins.word.digest=sha256:{digest} word__say; echo own ends $?
        cp {root}/pin.toml /etc/toolhold/toolhold.toml
        TOOLHOLD word__say; echo pinned ends $?
        $(echo TOOLHOLD | cut -d' ' -f1) plugin install; echo install ends $?
        TOOLHOLD acme__say
        cp {root}/other.wasm {root}/word.wasm
        TOOLHOLD word__say; echo other ends $?
        $(echo TOOLHOLD | cut -d' ' -f1) plugin approve word --yes
        TOOLHOLD word__say; echo another ends $?"
    );
    let Some(ended) = in_namespaces(&cli, &script) else { return };
    let said = format!("{}{}", ended.stdout, ended.stderr);
    let out = &ended.stdout;
    assert!(!out.contains("own ends 0\n"), "the user's digest approves nothing: {said}");
    assert!(out.contains("the-pinned-one") && out.contains("pinned ends 0\n"), "{said}");
    assert_eq!(out.matches("the-pinned-one").count(), 1, "{said}");
    assert!(out.contains("install ends 0\n") && out.contains("the-installed-one"), "{said}");
    assert!(!out.contains("another-one"), "{said}");
    assert!(!out.contains("other ends 0\n") && !out.contains("another ends 0\n"), "{said}");
}
