//! The temporary environment of `toolhold plugin test`: the host, a granted directory, and a
//! directory without a grant.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use toolhold_core::config::{self, Config, Folders, Inputs, SYSTEM_CEILING};
use toolhold_core::{
    Approver, BoxFuture, Capability, CapabilityRequest, Host, HostBuilder, HostError, Manifest,
    Question, Reply, Resolve, Scope,
};

use crate::conformance::values::Maker;

/// Two names in the granted directory. Only the first file exists.
pub(crate) const EXISTING: &str = "notes.txt";
pub(crate) const NEW: &str = "made.txt";

/// A file without a grant. The path is relative to the folder of both directories.
pub(crate) const OUTSIDE: &str = "outside/secret.txt";

/// The content of [`OUTSIDE`], which no tool may get.
pub(crate) const SECRET: &str = "kept-outside-5d1e0a7c";

/// A program that doesn't exist. A component that starts programs needs a granted program to load.
const NO_PROGRAM: &str = "toolhold-plugin-test-has-no-programs";

/// A host that can't exist, because names that end in `.invalid` are reserved.
const NO_HOST: &str = "plugin-test.invalid";

/// The most bytes in the granted directory after a call. A larger directory is emptied.
const MAX_LEFT: u64 = 64 << 20;
const MAX_ENTRIES: usize = 10_000;

/// The bytes of a block, as the operating system counts the blocks of a file.
const BLOCK: u64 = 512;

/// The variable that names an additional ceiling.
const CEILING: &str = "TOOLHOLD_CEILING";

/// The temporary files, which are removed with this value.
pub(crate) struct World {
    root: TempDir,
    /// The paths and contents of files outside the granted directory, before the first call.
    before: Vec<(PathBuf, Vec<u8>)>,
}

impl World {
    pub(crate) fn new() -> Result<Self, HostError> {
        Self::make().map_err(HostError::io("making a temporary directory"))
    }

    fn make() -> io::Result<Self> {
        let root = tempfile::Builder::new().prefix("toolhold-plugin-test-").tempdir()?;
        fs::create_dir(root.path().join("work"))?;
        fs::create_dir(root.path().join("outside"))?;
        fs::write(root.path().join(OUTSIDE), SECRET)?;
        let mut world = Self { root, before: Vec::new() };
        world.restore()?;
        world.before = world.read_outside();
        Ok(world)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    /// Restores the files of the granted directory. Files that the tool made stay, unless they are
    /// too large. Links aren't followed, because the tool may have made them.
    pub(crate) fn restore(&self) -> io::Result<()> {
        let work = self.work();
        if is_too_large(&work) {
            remove_entries(&work)?;
        }

        let folder = work.join("folder");
        let is_folder = folder.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
        if !is_folder {
            // The tool may have put a file or link in place of the folder.
            let _ = fs::remove_file(&folder);
            fs::create_dir(&folder)?;
            File::create_new(folder.join("inner.txt"))?.write_all(b"inner\n")?;
        }

        let file = work.join(EXISTING);
        if let Ok(metadata) = file.symlink_metadata() {
            if metadata.is_dir() {
                fs::remove_dir_all(&file)?;
            } else {
                fs::remove_file(&file)?;
            }
        }
        File::create_new(file)?.write_all(b"one two\nthree\n")
    }

    /// Returns the path of a file outside the granted directory that was added, changed or removed.
    pub(crate) fn changed_outside(&self) -> Option<String> {
        let now = self.read_outside();
        let mut old_files = self.before.iter();
        let mut changed = old_files.find(|file| !now.contains(file));
        if changed.is_none() {
            changed = now.iter().find(|file| !self.before.contains(file));
        }
        let (path, _) = changed?;
        Some(path.display().to_string())
    }

    /// Reads the files outside the granted directory, for a later comparison.
    fn read_outside(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut paths = Vec::new();
        for folder in [self.root.path(), &self.root.path().join("outside")] {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            paths.extend(entries.map(|entry| entry.path()));
        }
        paths.sort();
        // The host changes its own folder.
        paths.retain(|path| !path.starts_with(self.root.path().join("toolhold")));

        let mut files = Vec::new();
        for path in paths {
            // A folder has no content.
            let content = fs::read(&path).unwrap_or_default();
            files.push((path, content));
        }
        files
    }

    /// Returns temporary folders for the host. Each test needs new folders, because a host doesn't
    /// check a component again that was approved in the same folders before.
    pub(crate) fn folders(&self) -> Folders {
        let temporary = Folders::inside(&self.root.path().join("toolhold"));
        Folders { home: Some(self.root.path().join("home")), ..temporary }
    }

    pub(crate) fn builder(&self, config: Config) -> HostBuilder {
        Host::builder()
            .config(config)
            .folders(self.folders())
            .working_directory(self.work())
            .resolver(Arc::new(NoNames))
            .front_end("toolhold plugin test")
    }

    /// Returns a configuration that grants the requests of `manifest`, within an organisation's
    /// ceiling.
    pub(crate) fn config(
        &self,
        manifest: Option<&Manifest>,
        time: Duration,
    ) -> Result<Config, HostError> {
        let seconds = time.as_secs().max(1);
        let mut settings = vec![
            "audit.enabled=false".to_owned(),
            "tools.undo.enabled=false".to_owned(),
            "tools.result_cache.enabled=false".to_owned(),
            "tools.retry.max_attempts=0".to_owned(),
            format!("tools.call={seconds}"),
            format!("tools.max_call={seconds}"),
            format!("tools.limits.cpu_secs={seconds}"),
            // Each of hundreds of calls may write only little.
            "tools.limits.written_mib=16".to_owned(),
            // Scheduled tasks are stored, but never run.
            "tools.scheduler.enabled=true".to_owned(),
            // The capability `embeddings` needs a model, which is never asked.
            "providers.ollama.model=none".to_owned(),
        ];
        if let Some(manifest) = manifest {
            let grants = manifest.capabilities.iter().filter_map(|request| self.grant(request));
            let own_settings = manifest.config_schema.as_ref().and_then(own_settings);
            let lines = grants.chain(own_settings);
            settings.extend(lines.map(|line| format!("plugins.{}.{line}", manifest.name)));
        }
        let variables = std::env::vars_os().filter(|(name, _)| name == CEILING).collect();
        let ceiling = Some(PathBuf::from(SYSTEM_CEILING));
        let inputs = Inputs { settings, ceiling, variables, ..Inputs::default() };
        config::load(&self.folders(), &inputs).map_err(HostError::from)
    }

    /// Returns the setting that grants a request, or `None` if no setting is needed or the
    /// capability is unknown.
    fn grant(&self, request: &CapabilityRequest) -> Option<String> {
        let capability = Capability::named(&request.name)?;
        Some(match capability {
            Capability::Files => {
                let is_write = request.access.as_deref() == Some("read-write");
                let access = if is_write { "read-write" } else { "read" };
                let work = config::inline(&Value::String(self.work().display().to_string()));
                format!("allowed_paths=[{{ path = {work}, access = \"{access}\" }}]")
            }
            // `search` uses the directories of `files`.
            Capability::Search => return None,
            Capability::Process => format!("programs=[\"{NO_PROGRAM}\"]"),
            Capability::Http => format!("hosts=[\"{NO_HOST}\"]"),
            // A line of the file has spaces around `=`, but a setting has none.
            _ => capability.facts().line.replacen(" = ", "=", 1),
        })
    }
}

/// Removes everything in a folder. Doesn't follow links.
fn remove_entries(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn is_too_large(root: &Path) -> bool {
    let mut bytes = 0;
    let mut entries = 0;
    let mut pending = vec![root.to_owned()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            entries += 1;
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                pending.push(entry.path());
            }
            // Count blocks, because a file with holes needs less space than its length.
            bytes += metadata.blocks() * BLOCK;
            if bytes > MAX_LEFT || entries > MAX_ENTRIES {
                return true;
            }
        }
    }
    false
}

/// Returns the smallest valid settings of the plugin, or `None` if the plugin needs no settings.
fn own_settings(schema: &Value) -> Option<String> {
    let settings = Maker::minimal(schema).value();
    if settings.as_object()?.is_empty() {
        return None;
    }
    Some(format!("config={}", config::inline(&settings)))
}

/// Resolves no name, so that no server gets a request.
#[derive(Debug)]
struct NoNames;

impl Resolve for NoNames {
    fn resolve<'r>(
        &'r self,
        _name: &'r str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'r>> {
        Box::pin(async { Err(io::ErrorKind::NotFound.into()) })
    }
}

/// Approves every call, because calls reach only the temporary environment.
pub(crate) struct Anybody;

impl Approver for Anybody {
    fn ask(&self, _question: Question) -> BoxFuture<'_, Reply> {
        Box::pin(async { Reply::Yes { scope: Scope::Once, by: "toolhold plugin test".to_owned() } })
    }

    fn waits(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use serde_json::json;

    #[test]
    fn changes_outside_are_seen_and_others_are_not() {
        let world = World::new().unwrap();
        fs::write(world.work().join("new"), "").unwrap();
        assert_eq!(world.changed_outside(), None);
        fs::write(world.root.path().join("outside/new"), "").unwrap();
        assert!(world.changed_outside().unwrap().ends_with("outside/new"));
        fs::remove_file(world.root.path().join("outside/new")).unwrap();
        fs::write(world.root.path().join(OUTSIDE), "other").unwrap();
        assert!(world.changed_outside().unwrap().ends_with("secret.txt"));
    }

    #[test]
    fn directory_is_emptied_before_it_fills_the_disk() {
        let world = World::new().unwrap();
        fs::write(world.work().join("little"), "kept").unwrap();
        world.restore().unwrap();
        assert!(world.work().join("little").exists());
        fs::write(world.work().join("folder/much"), vec![1; 65 << 20]).unwrap();
        fs::remove_file(world.work().join(EXISTING)).unwrap();
        fs::create_dir_all(world.work().join(EXISTING).join("deep")).unwrap();
        world.restore().unwrap();
        assert!(world.work().join(EXISTING).is_file());
        assert!(!world.work().join("little").exists());
        assert_eq!(fs::read_to_string(world.work().join("folder/inner.txt")).unwrap(), "inner\n");
    }

    #[test]
    fn links_of_a_tool_are_not_followed() {
        let world = World::new().unwrap();
        let file = world.work().join(EXISTING);
        fs::remove_file(&file).unwrap();
        symlink(world.root.path().join(OUTSIDE), &file).unwrap();
        world.restore().unwrap();
        assert_eq!(world.changed_outside(), None);
        assert_eq!(fs::read_to_string(&file).unwrap(), "one two\nthree\n");
        fs::remove_file(&file).unwrap();
        symlink(world.root.path().join("outside/free"), &file).unwrap();
        world.restore().unwrap();
        assert_eq!(world.changed_outside(), None);
    }

    #[test]
    fn grants_are_those_of_the_manifest_and_no_more() {
        let world = World::new().unwrap();
        let manifest: Manifest = serde_json::from_value(json!({
            "manifest": 1, "name": "sample", "version": "1", "description": "d",
            "capabilities": [{ "name": "files", "access": "read", "reason": "r" }, { "name": "store", "reason": "r" }],
            "config_schema": { "type": "object", "properties": { "a b": { "type": "object", "properties": { "c": { "type": "string" } }, "required": ["c"] } }, "required": ["a b"] },
        }))
        .unwrap();
        let loaded = world.config(Some(&manifest), Duration::from_secs(3)).unwrap();
        let plugin = &loaded.values.plugins["sample"];
        assert_eq!(plugin.allowed_paths.len(), 1);
        assert_eq!(plugin.store_mib.get(), 16);
        assert!(plugin.programs.is_empty() && plugin.hosts.is_empty());
        assert_eq!(plugin.config.0["a b"]["c"].as_str(), Some("a"));
        assert_eq!(loaded.values.tools.call.get(), 3);
    }
}
