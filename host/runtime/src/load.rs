//! Loads a plugin: reads it, checks its imports, compiles it, and asks for its tools. A plugin that
//! fails is not loaded in part.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use berth_contract::text::{cut, neutral, neutral_json, neutral_line};
use berth_contract::{Access, Annotations, Definition, HostError, Subject, SubjectKind};
use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::compile::MAX_COMPONENT;
use crate::compiled::Precompiled;
use crate::filters::{self, Filters};
use crate::guest::bindings::PluginIndices;
use crate::guest::bindings::exports::berth::tool::tools;
use crate::guest::convert::MAX_META;
use crate::guest::linking;
use crate::manifest::{self, Manifest};
use crate::plugin::{Builtin, Loaded, Origin, Plugin, PluginInfo, Tool};
use crate::policy::PluginPolicy;
use crate::warm_pool::WarmPool;
use crate::{Runtime, filter, run, schema};

/// Most tools of one plugin.
const MAX_TOOLS: usize = 128;
/// Most characters of a tool's own name.
const MAX_TOOL_NAME: usize = 38;
/// Most bytes of a description.
const MAX_DESCRIPTION: usize = 4096;
/// Most subjects of one tool.
const MAX_SUBJECTS: usize = 32;

/// A component that was read and checked. None of its code has run.
pub struct Candidate {
    wasm: Cow<'static, [u8]>,
    compiled: Option<Precompiled>,
    info: Arc<PluginInfo>,
}

impl Candidate {
    /// A built-in plugin.
    ///
    /// # Errors
    ///
    /// [`HostError::Load`] if it isn't a component, or has no manifest.
    pub fn built_in(builtin: &Builtin) -> Result<Self, HostError> {
        Self::new(builtin.wasm.into(), builtin.compiled, Origin::BuiltIn)
    }

    /// Reads a component's file. Blocks.
    ///
    /// # Errors
    ///
    /// [`HostError::Load`] if it can't be read, is too large, isn't a component, or has no
    /// manifest.
    pub fn file(path: &Path) -> Result<Self, HostError> {
        // NONBLOCK: opening a FIFO must not wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| unreadable(path, format!("it can't be read: {errno}")))?;
        Self::opened(opened.into(), path)
    }

    /// Like [`file`](Self::file), for an open file. `path`: the file's path.
    ///
    /// # Errors
    ///
    /// Like [`file`](Self::file).
    pub fn opened(file: File, path: &Path) -> Result<Self, HostError> {
        let wasm = read_component(file).map_err(|reason| unreadable(path, reason))?;
        Self::new(wasm.into(), None, Origin::File(path.to_owned()))
    }

    fn new(
        wasm: Cow<'static, [u8]>,
        compiled: Option<Precompiled>,
        origin: Origin,
    ) -> Result<Self, HostError> {
        let name = || match &origin {
            Origin::BuiltIn => "a built-in plugin".into(),
            Origin::File(path) => path.display().to_string(),
        };
        let manifest =
            Manifest::read(&wasm).map_err(|reason| HostError::Load { plugin: name(), reason })?;
        let imports = manifest::imports(&wasm)
            .map_err(|reason| HostError::Load { plugin: name(), reason })?;
        let digest = Sha256::digest(&wasm).iter().map(|byte| format!("{byte:02x}")).collect();
        let info = PluginInfo { manifest, origin, digest, size: wasm.len(), imports };
        Ok(Self { wasm, compiled, info: Arc::new(info) })
    }

    /// Facts that are read without running the component.
    pub fn info(&self) -> &Arc<PluginInfo> {
        &self.info
    }

    /// The component's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.wasm
    }
}

fn unreadable(path: &Path, reason: String) -> HostError {
    HostError::Load { plugin: path.display().to_string(), reason }
}

fn read_component(file: File) -> Result<Vec<u8>, String> {
    let metadata = file.metadata().map_err(|error| format!("it can't be read: {error}"))?;
    if !metadata.is_file() {
        return Err("it isn't a file".into());
    }
    let mut wasm = Vec::new();
    file.take(MAX_COMPONENT as u64 + 1)
        .read_to_end(&mut wasm)
        .map_err(|error| format!("it can't be read: {error}"))?;
    if wasm.len() > MAX_COMPONENT {
        return Err(format!("it is larger than {} MiB, which is the limit", MAX_COMPONENT >> 20));
    }
    Ok(wasm)
}

impl Runtime {
    /// Loads a plugin: checks its imports, compiles it, and asks it for its tools and filters
    /// without grants.
    ///
    /// # Errors
    ///
    /// [`HostError::Load`]. No part of the plugin stays loaded.
    pub async fn load(
        self: &Arc<Self>,
        candidate: Candidate,
        granted: PluginPolicy,
    ) -> Result<Plugin, HostError> {
        let Candidate { wasm, compiled, info } = candidate;
        let name: Arc<str> = info.manifest.name.as_str().into();
        let fail = |reason: String| HostError::Load { plugin: name.to_string(), reason };
        let policy = effective(&info.manifest, granted).map_err(fail)?;
        if let Some(reason) =
            info.imports.iter().find_map(|import| linking::refusal(import, &info.manifest, &policy))
        {
            return Err(fail(reason));
        }

        let (runtime, digest) = (Arc::clone(self), info.digest.clone());
        let compile = move || {
            let component =
                runtime.compiler.component(&runtime.engine.wasm, &wasm, &digest, compiled)?;
            runtime
                .engine
                .linker
                .instantiate_pre(&component)
                .map_err(|error| format!("linking it failed: {error:#}"))
        };
        let compiled = tokio::task::spawn_blocking(compile).await;
        let pre = compiled.map_err(|_| fail("compiling it failed".into()))?.map_err(fail)?;

        let unknown = |interface: &str, error| {
            format!(
                "it does not export `berth:tool/{interface}@0.1.0` as this host defines it: {error:#}"
            )
        };
        let filters =
            Filters::from_exports(&pre).map_err(|error| fail(unknown("filter", error)))?;
        let exports = match PluginIndices::new(&pre) {
            Ok(exports) => Some(exports),
            Err(_) if filters.is_some() && !filters::has_export(&pre, "berth:tool/tools") => None,
            Err(error) => return Err(fail(unknown("tools", error))),
        };
        let warm_pool = WarmPool::new(&pre);
        let (runtime, name) = (Arc::clone(self), Arc::clone(&name));
        let mut loaded = Loaded {
            runtime,
            name,
            info,
            pre,
            policy,
            exports,
            tools: Vec::new(),
            filters,
            warm_pool,
        };
        if let Some(exports) = loaded.exports.clone() {
            let definitions = run::list_tools(&loaded, exports).await.map_err(fail)?;
            loaded.tools = convert_tools(&loaded, definitions).map_err(fail)?;
        }
        filter::list(&mut loaded).await.map_err(fail)?;
        Ok(Plugin(Arc::new(loaded)))
    }
}

/// The policy that counts: a plugin gets what it asks for and was granted, both.
fn effective(manifest: &Manifest, granted: PluginPolicy) -> Result<PluginPolicy, String> {
    let mut effective = granted;
    let request = manifest.asks_for("files");
    if request.is_none() {
        effective.files = None;
    }
    if manifest.asks_for("process").is_none() {
        effective.process = None;
    }
    if manifest.asks_for("http").is_none() {
        effective.egress = None;
    }
    if request.is_some_and(|request| request.access.as_deref() != Some("read-write")) {
        effective.read_only = true;
    }
    if let Some(grants) = &effective.files
        && let Some(root) = grants.roots().iter().find(|root| root.path.to_str().is_none())
    {
        return Err(format!(
            "{} can't be granted to a plugin, since its name isn't UTF-8",
            root.path.display()
        ));
    }
    let limits = &mut effective.limits;
    if let Some(mib) = manifest.limits.memory_mib {
        limits.memory =
            limits.memory.min(usize::try_from(mib).unwrap_or(usize::MAX).saturating_mul(1 << 20));
    }
    if let Some(secs) = manifest.limits.timeout_secs {
        limits.call = limits.call.min(std::time::Duration::from_secs(secs.into()));
    }
    Ok(effective)
}

fn convert_tools(
    plugin: &Loaded,
    definitions: Vec<tools::Definition>,
) -> Result<Vec<Tool>, String> {
    if definitions.len() > MAX_TOOLS {
        return Err(format!("it offers {} tools; the limit is {MAX_TOOLS}", definitions.len()));
    }
    let mut tools: Vec<Tool> = Vec::new();
    for definition in definitions {
        let guest_name = definition.name.clone();
        let shown = neutral_line(cut(&guest_name, 80));
        let tool = convert_tool(plugin, definition)
            .map_err(|reason| format!("its tool `{shown}`: {reason}"))?;
        if tools.iter().any(|other| other.guest_name == tool.guest_name) {
            return Err(format!("it offers the tool `{shown}` twice"));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn convert_tool(plugin: &Loaded, definition: tools::Definition) -> Result<Tool, String> {
    let guest_name = definition.name;
    let well_formed = (1..=MAX_TOOL_NAME).contains(&guest_name.len())
        && guest_name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-');
    if !well_formed {
        return Err(format!("its name has to be 1 to {MAX_TOOL_NAME} characters of [a-z0-9_-]"));
    }
    if definition.description.len() > MAX_DESCRIPTION {
        return Err(format!(
            "its description is {} bytes; the limit is {MAX_DESCRIPTION}",
            definition.description.len()
        ));
    }
    if definition.subjects.len() > MAX_SUBJECTS {
        return Err(format!(
            "it has {} subjects; the limit is {MAX_SUBJECTS}",
            definition.subjects.len()
        ));
    }
    let input_schema = schema::parse(&definition.input_schema)
        .map_err(|reason| format!("its input schema {reason}"))?;
    if input_schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(
            "its input schema isn't the schema of an object: it needs `\"type\": \"object\"`"
                .into(),
        );
    }
    let output_schema = definition.output_schema.as_deref().map(schema::parse).transpose();
    let meta: Option<Value> = definition
        .meta
        .as_deref()
        .filter(|text| text.len() <= MAX_META)
        .and_then(|text| serde_json::from_str(text).ok())
        .map(neutral_json);
    let bare = plugin.info.origin == Origin::BuiltIn || plugin.policy.replaces_built_in;
    let name = if bare { guest_name.clone() } else { format!("{}__{guest_name}", plugin.name) };
    let definition = Definition {
        name,
        title: definition.title.map(|title| neutral_line(cut(&title, 128))),
        description: neutral(&definition.description).into_owned(),
        input_schema,
        output_schema: output_schema.map_err(|reason| format!("its output schema {reason}"))?,
        annotations: Annotations {
            read_only: definition.annotations.read_only,
            destructive: definition.annotations.destructive,
            idempotent: definition.annotations.idempotent,
            open_world: definition.annotations.open_world,
            cacheable: definition.annotations.cacheable,
        },
        subjects: definition.subjects.into_iter().map(convert_subject).collect::<Result<_, _>>()?,
        fence: definition.fence.map(|tag| neutral_line(cut(&tag, 38))),
        // Only built-in plugins may have aliases. A third-party alias could take calls of a tool
        // that is missing today.
        aliases: if bare { aliases(meta.as_ref()) } else { Vec::new() },
        meta,
    };
    Ok(Tool { definition: Arc::new(definition), guest_name })
}

fn convert_subject(subject: tools::Subject) -> Result<Subject, String> {
    if !subject.pointer.starts_with('/') || subject.pointer.len() > 256 {
        return Err(
            "a subject's pointer has to begin with `/` (RFC 6901) and have at most 256 bytes"
                .into(),
        );
    }
    let kind = match subject.kind.as_str() {
        "path" => SubjectKind::Path,
        "name" => SubjectKind::Name,
        "url" => SubjectKind::Url,
        "command" => SubjectKind::Command,
        _ => SubjectKind::Text,
    };
    // Every access except `read` counts as a write.
    let access = if subject.access == "read" { Access::Read } else { Access::Write };
    Ok(Subject { pointer: subject.pointer, kind, access })
}

fn aliases(meta: Option<&Value>) -> Vec<String> {
    let names = meta.and_then(|meta| meta.get("berth:aliases")).and_then(Value::as_array);
    names.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
