//! The bundle for clients of MCP that install a server from one file (`.mcpb`): a zip with the
//! program, and a manifest that says how to start it.

use std::io;

use serde_json::json;

use crate::archive::{Entry, zip};
use crate::{MAINTAINER, NAME, Package, Release, SUMMARY};

/// The bundle of a release.
pub(crate) fn mcpb(release: &Release) -> io::Result<Package> {
    let version = &release.version;
    let program = format!("bin/{NAME}");
    let mut manifest = json!({
        "manifest_version": "0.3",
        "name": NAME,
        "display_name": "Toolhold",
        "version": version,
        "description": SUMMARY,
        "author": { "name": MAINTAINER },
        "server": {
            "type": "binary",
            "entry_point": program,
            "mcp_config": {
                "command": format!("${{__dirname}}/{program}"),
                // It is unknown in which directory a client starts the program. So the tools get
                // the directory that the user chose, and not the current directory.
                "args": ["serve", "--set", "tools.file.allowed_paths=['${user_config.directory}']"],
            },
        },
        "tools_generated": true,
        "license": "MIT OR Apache-2.0",
        "compatibility": { "platforms": ["linux"] },
        "user_config": {
            "directory": {
                "type": "directory",
                "title": "Directory",
                "description": "The directory that the tools read and change",
                "required": true,
            },
        },
    });
    if let Some(repository) = &release.repository {
        manifest["repository"] = json!({ "type": "git", "url": repository.to_string() });
    }
    let manifest = format!("{manifest:#}\n");
    let mut entries = vec![
        Entry::file("manifest.json", manifest.as_bytes()),
        Entry::program(program, &release.program),
    ];
    entries.extend(release.parts_in(""));
    let licences = release.licences.iter();
    entries.extend(licences.map(|(name, text)| Entry::file(format!("licenses/{name}"), text)));
    entries.push(Entry::file("sbom.cdx.json", &release.sbom));
    Ok(Package {
        file_name: format!("{NAME}-{version}-{}-linux.mcpb", release.architecture.name()),
        bytes: zip(release, &entries)?,
    })
}
