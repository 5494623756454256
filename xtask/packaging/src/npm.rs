//! The packages for npm: one with the program for one kind of machine, the one that people name,
//! which starts the program, and the SDK for plugins in JavaScript.
//!
//! The command is a script of the shell that becomes the program. So Node isn't started, and
//! nothing stands between the program and its caller: not its streams, its signals or its exit
//! code. No script runs when the packages are installed.

use std::io;

use serde_json::{Value, json};

use crate::archive::{Entry, gzip, tar};
use crate::{Architecture, NAME, Package, Release, SUMMARY};

/// Starts the program of this machine. Looks in two folders, because npm and pnpm put the package
/// with the program beside this package or inside it.
const LAUNCHER: &str = r#"#!/bin/sh
case "$(uname -s)-$(uname -m)" in
Linux-x86_64) package=@NAME@-linux-x64 ;;
Linux-aarch64) package=@NAME@-linux-arm64 ;;
*)
    echo "@NAME@: there is no package for $(uname -s) on $(uname -m)" >&2
    exit 1
    ;;
esac
here=$(dirname "$(readlink -f "$0")")
for folder in "$here/../$package" "$here/node_modules/$package"; do
    if [ -x "$folder/bin/@NAME@" ]; then
        exec "$folder/bin/@NAME@" "$@"
    fi
done
echo "@NAME@: the package $package is missing: install without --omit=optional" >&2
exit 1
"#;

/// The package with the program, and the one that starts it.
pub(crate) fn packages(release: &Release) -> io::Result<[Package; 2]> {
    let version = &release.version;
    let name = of_machine(release.architecture);
    let mut machine = about(release, &name, SUMMARY);
    machine["os"] = json!(["linux"]);
    machine["cpu"] = json!([release.architecture.of_node()]);
    // This package has no `bin`, because the other package has the command.
    let machine = text(&machine);
    let mut entries = vec![
        Entry::file("package/package.json", machine.as_bytes()),
        Entry::file("package/README.md", &release.readme),
    ];
    entries.extend(licences(&release.licences));
    entries.push(Entry::program(format!("package/bin/{NAME}"), &release.program));
    entries.extend(release.parts_in("package/"));
    entries.push(Entry::file("package/sbom.cdx.json", &release.sbom));
    let program = packed(release, &name, &entries)?;

    let mut about = about(release, NAME, SUMMARY);
    about["bin"] = json!({ NAME: format!("{NAME}.sh") });
    about["os"] = json!(["linux"]);
    about["optionalDependencies"] =
        Architecture::ALL.iter().map(|machine| (of_machine(*machine), json!(version))).collect();
    if let Some(repository) = &release.repository {
        // By this name, the registry of MCP checks that the package belongs to the same project.
        about["mcpName"] = json!(repository.mcp_name());
    }
    let about = text(&about);
    let launcher = LAUNCHER.replace("@NAME@", NAME);
    // This package is the same for every kind of machine, so it has nothing that depends on the
    // program.
    let mut entries = vec![
        Entry::file("package/package.json", about.as_bytes()),
        Entry::file("package/README.md", &release.readme),
    ];
    entries.extend(licences(release.own_licences()));
    entries.push(Entry::program(format!("package/{NAME}.sh"), launcher.as_bytes()));
    Ok([program, packed(release, NAME, &entries)?])
}

/// The package of the SDK for plugins in JavaScript.
pub(crate) fn sdk(release: &Release) -> io::Result<Package> {
    let name = format!("{NAME}-sdk");
    let mut about = about(release, &name, "What a Toolhold plugin in JavaScript needs");
    about["type"] = json!("module");
    about["main"] = json!(format!("{NAME}.js"));
    let about = text(&about);
    let mut entries = vec![Entry::file("package/package.json", about.as_bytes())];
    let sources = release.sdk_javascript.iter();
    let sources = sources.filter(|(path, _)| path.ends_with(".js"));
    entries.extend(sources.map(|(path, content)| Entry::file(format!("package/{path}"), content)));
    entries.extend(licences(release.own_licences()));
    packed(release, &name, &entries)
}

/// The fields that each package has.
fn about(release: &Release, name: &str, description: &str) -> Value {
    let mut about = json!({
        "name": name,
        "version": release.version,
        "description": description,
        "license": "(MIT OR Apache-2.0)",
        "keywords": ["mcp", "agents", "sandbox", "wasi"],
    });
    if let Some(repository) = &release.repository {
        // npm compares it with the repository whose workflow publishes the package.
        about["repository"] = json!({ "type": "git", "url": format!("git+{repository}.git") });
    }
    about
}

/// The name of the package with the program for one kind of machine.
fn of_machine(architecture: Architecture) -> String {
    format!("{NAME}-linux-{}", architecture.of_node())
}

fn licences(files: &[(String, Vec<u8>)]) -> impl Iterator<Item = Entry<'_>> {
    files.iter().map(|(name, text)| Entry::file(format!("package/{name}"), text))
}

fn packed(release: &Release, name: &str, entries: &[Entry<'_>]) -> io::Result<Package> {
    let file_name = format!("{name}-{}.tgz", release.version);
    Ok(Package { file_name, bytes: gzip(release, &tar(release, entries)?)? })
}

fn text(value: &Value) -> String {
    format!("{value:#}\n")
}
