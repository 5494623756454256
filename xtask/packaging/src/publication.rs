//! The files that a release has once for all kinds of machines: the script that downloads and
//! installs it, a formula for Homebrew, its entry for the registry of MCP, and the checksums, which
//! are signed.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{Architecture, NAME, Package, Repository, SUMMARY};

/// The schema of the registry's entries.
const SCHEMA: &str = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json";

/// The files of a release, of all kinds of machines.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The version.
    pub version: String,
    /// Where the release will be.
    pub repository: Repository,
    /// The public key that verifies its signature, as minisign writes it.
    pub key: String,
    /// Names and contents.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Publication {
    /// Makes the further files. The last one is the list of the checksums of all others.
    ///
    /// # Errors
    ///
    /// Fails with the name of a missing file.
    pub fn further(&self) -> Result<Vec<Package>, String> {
        let mut further = vec![
            package("install.sh", self.script()),
            package(&format!("{NAME}.rb"), self.formula()?),
            package("server.json", format!("{:#}\n", self.server()?)),
        ];
        let new = further.iter().map(|file| (&file.file_name, &file.bytes));
        let all: BTreeMap<_, _> = self.files.iter().chain(new).collect();
        let sums = all.iter().map(|(name, bytes)| format!("{}  {name}\n", sha256(bytes)));
        let sums = sums.collect();
        further.push(package("SHA256SUMS", sums));
        Ok(further)
    }

    fn script(&self) -> String {
        include_str!("get.sh")
            .replace("@VERSION@", &self.version)
            .replace("@URL@", &self.repository.release_url(&self.version))
            .replace("@KEY@", &self.key)
    }

    fn formula(&self) -> Result<String, String> {
        let mut formula = include_str!("formula.rb")
            .replace("@REPOSITORY@", &self.repository.to_string())
            .replace("@VERSION@", &self.version)
            .replace("@URL@", &self.repository.release_url(&self.version));
        for machine in Architecture::ALL.map(Architecture::name) {
            let archive = format!("{NAME}-{}-{machine}-linux.tar.gz", self.version);
            formula = formula
                .replace(&format!("@{machine} sum@"), &self.checksum(&archive)?)
                .replace(&format!("@{machine}@"), &archive);
        }
        Ok(formula)
    }

    fn server(&self) -> Result<Value, String> {
        let version = &self.version;
        let mut packages = Vec::new();
        for (registry, runtime) in [("npm", "npx"), ("pypi", "uvx")] {
            packages.push(json!({
                "registryType": registry,
                "identifier": NAME,
                "version": version,
                "runtimeHint": runtime,
                "packageArguments": [{ "type": "positional", "value": "serve" }],
                "transport": { "type": "stdio" },
            }));
        }
        for machine in Architecture::ALL.map(Architecture::name) {
            let bundle = format!("{NAME}-{version}-{machine}-linux.mcpb");
            packages.push(json!({
                "registryType": "mcpb",
                "identifier": format!("{}/{bundle}", self.repository.release_url(version)),
                "fileSha256": self.checksum(&bundle)?,
                "transport": { "type": "stdio" },
            }));
        }
        Ok(json!({
            "$schema": SCHEMA,
            "name": self.repository.mcp_name(),
            "title": "Toolhold",
            "description": SUMMARY,
            "repository": { "url": self.repository.to_string(), "source": "github" },
            "version": version,
            "packages": packages,
        }))
    }

    fn checksum(&self, name: &str) -> Result<String, String> {
        self.files.get(name).map(|bytes| sha256(bytes)).ok_or_else(|| format!("{name} is missing"))
    }
}

fn package(name: &str, text: String) -> Package {
    Package { file_name: name.to_owned(), bytes: text.into_bytes() }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
