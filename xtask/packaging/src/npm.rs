//! The packages for npm: one with the program for one kind of machine, and the one that people
//! name, which starts the program.
//!
//! The command is a script of the shell that becomes the program. So Node isn't started, and
//! nothing stands between the program and its caller: not its streams, its signals or its exit
//! code. No script runs when the packages are installed.

use std::io;

use serde_json::{Value, json};

use crate::archive::{Entry, gzip, tar};
use crate::{Architecture, NAME, Package, Release};

/// Starts the program of this machine. npm and pnpm put packages beside each other or inside.
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
    let common = |name: &str| {
        json!({
            "name": name,
            "version": version,
            "description": "Runs the tools of AI agents, each call in a WebAssembly sandbox of its own",
            "license": "(MIT OR Apache-2.0)",
            "keywords": ["mcp", "agents", "sandbox", "wasi"],
        })
    };

    let name = of_machine(release.architecture);
    let mut about = common(&name);
    about["os"] = json!(["linux"]);
    about["cpu"] = json!([release.architecture.of_node()]);
    // The command is that of the other package.
    let about = text(&about);
    let mut entries = vec![Entry::file("package/package.json", about.as_bytes())];
    entries.extend(documents(release));
    entries.push(Entry::program(format!("package/bin/{NAME}"), &release.program));
    entries.extend(release.parts_in("package/"));
    entries.push(Entry::file("package/sbom.cdx.json", &release.sbom));
    let program = packed(release, &name, &entries)?;

    let mut about = common(NAME);
    about["bin"] = json!({ NAME: format!("{NAME}.sh") });
    about["os"] = json!(["linux"]);
    let machines = [Architecture::X86_64, Architecture::Aarch64];
    about["optionalDependencies"] =
        machines.iter().map(|machine| (of_machine(*machine), json!(version))).collect();
    let (about, launcher) = (text(&about), LAUNCHER.replace("@NAME@", NAME));
    let mut entries = vec![Entry::file("package/package.json", about.as_bytes())];
    entries.extend(documents(release));
    entries.push(Entry::program(format!("package/{NAME}.sh"), launcher.as_bytes()));
    Ok([program, packed(release, NAME, &entries)?])
}

/// The name of the package with the program for one kind of machine.
fn of_machine(architecture: Architecture) -> String {
    format!("{NAME}-linux-{}", architecture.of_node())
}

fn documents(release: &Release) -> impl Iterator<Item = Entry<'_>> {
    let readme = std::iter::once(Entry::file("package/README.md", &release.readme));
    let licences = release.licences.iter();
    readme.chain(licences.map(|(name, text)| Entry::file(format!("package/{name}"), text)))
}

fn packed(release: &Release, name: &str, entries: &[Entry<'_>]) -> io::Result<Package> {
    let file_name = format!("{name}-{}.tgz", release.version);
    Ok(Package { file_name, bytes: gzip(release, &tar(release, entries)?)? })
}

fn text(value: &Value) -> String {
    format!("{value:#}\n")
}
