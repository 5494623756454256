//! Loads plugins: reads a component, checks its imports, compiles it, and asks it for its tools.

use std::borrow::Cow;
use std::fmt::Display;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use toolhold_compiler::typed::{ComponentKind, Docs, Outline, name_from};
use toolhold_component::file as component_file;
use toolhold_component::{
    Capability, Manifest, ManifestError, PluginConfig, is_name, refusal, version_refusal,
};
use toolhold_contract::HostError;
use toolhold_system::watch::FileStamp;

use crate::code::{Code, LazyCode, Source};
use crate::definition::convert_tools;
use crate::guest::capability::PluginGrants;
use crate::known_files::{ComponentFile, ReadError};
use crate::limits::{Limits, MIB};
use crate::offer::Offer;
use crate::plugin::{Builtin, LoadedPlugin, Origin, Plugin, PluginInfo};
use crate::{Runtime, filter, foreign, known_files, parts, run};

/// A component that was read and checked, or is remembered. None of its code has run yet.
pub struct Candidate {
    content: Content,
    source: Source,
    info: Arc<PluginInfo>,
}

enum Content {
    Read(Cow<'static, [u8]>),
    Recalled(Box<Offer>),
}

impl Candidate {
    /// Reads a component's file. Blocks.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Load`] if the file can't be read, is too large, isn't a component, or
    /// is a plugin without a manifest.
    pub fn file(path: &Path) -> Result<Self, HostError> {
        let opened = component_file::open(path).map_err(not_loaded(&path.display()))?;
        Self::opened(opened, path)
    }

    /// Reads an open file with this path. Blocks.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`file`](Self::file).
    pub fn opened(file: File, path: &Path) -> Result<Self, HostError> {
        Self::read(file, ComponentFile::read_always(path))
    }

    fn read(opened: File, file: ComponentFile) -> Result<Self, HostError> {
        let wasm = component_file::read(opened).map_err(not_loaded(&file.path.display()))?;
        Self::new(wasm.into(), Source::File(file), None)
    }

    /// Reads the metadata of a component. `digest` is its digest, if known.
    fn new(
        wasm: Cow<'static, [u8]>,
        source: Source,
        digest: Option<&str>,
    ) -> Result<Self, HostError> {
        let origin = match &source {
            Source::BuiltIn(..) => Origin::BuiltIn,
            Source::File(file) => Origin::File(file.path.clone()),
        };
        let shown_plugin: &dyn Display = match &origin {
            Origin::BuiltIn => &"a built-in plugin",
            Origin::File(path) => &path.display(),
        };
        let own_manifest = Manifest::read_if_any(&wasm).map_err(not_loaded(shown_plugin))?;
        let outline = Outline::read(&wasm).map_err(not_loaded(shown_plugin))?;
        let without_manifest = own_manifest.is_none();
        let kind = outline.kind;
        let manifest = match (own_manifest, &origin) {
            (Some(manifest), _) => manifest,
            (None, Origin::File(path)) if kind != ComponentKind::Plugin => {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                foreign::make_manifest(&name_from(&stem), &outline, &Docs::read(&wasm))
            }
            (None, _) => return Err(load_error(shown_plugin, &ManifestError::Missing)),
        };

        let digest = match digest {
            Some(digest) => digest.to_owned(),
            None => component_file::digest(&wasm),
        };
        let Outline { imports, exports, .. } = outline;
        let size = wasm.len();
        let info =
            PluginInfo { manifest, origin, digest, size, imports, exports, kind, without_manifest };
        Ok(Self { content: Content::Read(wasm), source, info: Arc::new(info) })
    }

    /// Returns the metadata.
    pub fn info(&self) -> &Arc<PluginInfo> {
        &self.info
    }

    /// Gives a plugin without a manifest the name `name`. Ignores an invalid name.
    #[must_use]
    pub fn under(mut self, name: &str) -> Self {
        if self.info.without_manifest && is_name(name) {
            Arc::make_mut(&mut self.info).manifest.name = name.to_owned();
        }
        self
    }

    /// Returns the component's bytes, or `None` if its file wasn't read (see
    /// [`Runtime::candidate`](Runtime::candidate)).
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Read(wasm) => Some(wasm),
            Content::Recalled(_) => None,
        }
    }
}

fn load_error(plugin: &(impl Display + ?Sized), reason: &impl Display) -> HostError {
    HostError::Load { plugin: plugin.to_string(), reason: reason.to_string() }
}

fn not_loaded<E: Display>(plugin: &(impl Display + ?Sized)) -> impl FnOnce(E) -> HostError {
    move |reason| load_error(plugin, &reason)
}

impl Runtime {
    /// Reads a component's open file. Blocks. The file isn't read if this machine has loaded a
    /// component with the same path and stamp before.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Candidate::file`].
    pub fn candidate(
        &self,
        opened: File,
        path: &Path,
        stamp: FileStamp,
    ) -> Result<Candidate, HostError> {
        // A file that changed a moment ago may change again without a new stamp, so its digest
        // isn't remembered.
        let stamp_to_remember = if stamp.is_settled() { Some(stamp) } else { None };
        let file =
            ComponentFile { path: path.to_owned(), stamp: stamp_to_remember, recalled: false };
        let Some(digest) = known_files::recall(self, path, &stamp) else {
            return Candidate::read(opened, file);
        };
        let Some(offer) = Offer::read_kept(self, &digest, &PluginConfig::default()) else {
            return Candidate::read(opened, file);
        };
        let info = Arc::new(offer.info(&digest, Origin::File(path.to_owned())));
        // Keep the stamp even if it isn't settled, because a later check compares the file with it.
        let source = Source::File(ComponentFile { stamp: Some(stamp), recalled: true, ..file });
        Ok(Candidate { content: Content::Recalled(offer.into()), source, info })
    }

    /// Loads a plugin: checks its imports, compiles it, and asks it without grants for its tools
    /// and filters. A remembered plugin is neither compiled nor asked. Its code is mapped at its
    /// first use.
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Load`] if a step fails.
    pub async fn load(
        self: &Arc<Self>,
        candidate: Candidate,
        granted: PluginGrants,
    ) -> Result<Plugin, HostError> {
        let Candidate { content, source, info } = candidate;
        let wasm = match content {
            // The recalled offer is valid only for a plugin without settings.
            Content::Recalled(offer) if granted.config.is_empty() => {
                return self.load_known(info, source, granted, *offer);
            }
            Content::Recalled(_) => None,
            Content::Read(wasm) => Some(wasm),
        };

        let runtime = Arc::clone(self);
        let digest = info.digest.clone();
        let config = Arc::clone(&granted.config);
        let file = source.clone();
        let reading = tokio::task::spawn_blocking(move || {
            if let Some(offer) = Offer::read_kept(&runtime, &digest, &config) {
                return Ok(Content::Recalled(offer.into()));
            }
            match wasm {
                Some(wasm) => Ok(Content::Read(wasm)),
                None => file.read(&digest).map(Content::Read),
            }
        });
        let content = match reading.await {
            Ok(content) => content.map_err(not_loaded(&info.manifest.name))?,
            Err(error) => return Err(load_error(&info.manifest.name, &ReadError::from(error))),
        };
        match content {
            Content::Recalled(offer) => self.load_known(info, source, granted, *offer),
            Content::Read(wasm) => self.load_unknown(wasm, source, info, granted).await,
        }
    }

    /// Loads a built-in plugin like [`load`](Self::load).
    ///
    /// # Errors
    ///
    /// Returns [`HostError::Load`] if the component is invalid or a step of loading fails.
    pub async fn load_built_in(
        self: &Arc<Self>,
        builtin: &Builtin,
        granted: PluginGrants,
    ) -> Result<Plugin, HostError> {
        let source = Source::BuiltIn(builtin.wasm, builtin.compiled);
        let parts = parts::built_in_parts(builtin.parts);
        // The offer is a small file, so reading it needs no blocking thread.
        if let Some(digest) = builtin.digest
            && let Some(offer) = Offer::read_kept(self, digest, &granted.config)
        {
            let mut info = offer.info(digest, Origin::BuiltIn);
            info.manifest.parts = parts;
            return self.load_known(Arc::new(info), source, granted, offer);
        }

        let wasm = builtin.wasm.read().map_err(not_loaded(builtin.name))?;
        let Candidate { source, mut info, .. } =
            Candidate::new(wasm.clone(), source, builtin.digest)?;
        Arc::make_mut(&mut info).manifest.parts = parts;
        self.load_unknown(wasm, source, info, granted).await
    }

    /// Loads a plugin without a stored offer: makes its code, and asks for its tools and filters.
    async fn load_unknown(
        self: &Arc<Self>,
        wasm: Cow<'static, [u8]>,
        source: Source,
        info: Arc<PluginInfo>,
        granted: PluginGrants,
    ) -> Result<Plugin, HostError> {
        let name = &info.manifest.name;
        let policy = check_grants(&info, granted)?;
        let docs = match info.kind {
            // A plugin describes its tools itself.
            ComponentKind::Plugin => Docs::default(),
            ComponentKind::Functions | ComponentKind::Command => Docs::read(&wasm),
        };
        let code = Code::make(self, source.clone(), Some(wasm), &info.digest)
            .await
            .map_err(not_loaded(name))?;
        let lazy_code = LazyCode::new(source, Some(Arc::clone(&code)));
        let mut loaded = self.new_plugin(&info, policy, lazy_code);
        if let Some(foreign) = &code.foreign {
            let offer = foreign::offer(foreign, &docs, &info.manifest, &loaded.policy);
            let (tools, left_out) = offer.map_err(not_loaded(name))?;
            loaded.tools = tools.into_iter().map(|tool| loaded.make_tool(tool)).collect();
            loaded.left_out = left_out;
            return Ok(Plugin(Arc::new(loaded)));
        }

        let definitions = run::list_tools(&loaded, &code).await.map_err(not_loaded(name))?;
        loaded.tools = convert_tools(&loaded, definitions).map_err(not_loaded(name))?;
        filter::list(&mut loaded, &code).await.map_err(not_loaded(name))?;
        Ok(Plugin(Arc::new(loaded)))
    }

    /// Loads a plugin from its stored offer. The code is made at the first use.
    fn load_known(
        self: &Arc<Self>,
        info: Arc<PluginInfo>,
        source: Source,
        granted: PluginGrants,
        offer: Offer,
    ) -> Result<Plugin, HostError> {
        let policy = check_grants(&info, granted)?;
        let mut loaded = self.new_plugin(&info, policy, LazyCode::new(source, None));
        let Offer { mut tools, filters, filter_problems, left_out, .. } = offer;
        if info.kind == ComponentKind::Command {
            // The tool of a command comes from the configuration, which may have changed.
            tools = foreign::command_tools(&info.manifest, &loaded.policy)
                .map_err(not_loaded(&info.manifest.name))?;
        }
        loaded.tools = tools.into_iter().map(|tool| loaded.make_tool(tool)).collect();
        loaded.filters = filters.into_iter().map(Arc::new).collect();
        loaded.filter_problems = filter_problems;
        loaded.left_out = left_out;
        loaded.known = true;
        Ok(Plugin(Arc::new(loaded)))
    }

    fn new_plugin(
        self: &Arc<Self>,
        info: &Arc<PluginInfo>,
        policy: PluginGrants,
        code: LazyCode,
    ) -> LoadedPlugin {
        LoadedPlugin {
            runtime: Arc::clone(self),
            name: info.manifest.name.as_str().into(),
            info: Arc::clone(info),
            policy,
            tools: Vec::new(),
            filters: Vec::new(),
            filter_problems: Vec::new(),
            left_out: Vec::new(),
            known: false,
            code,
            parts: parts::parts_of_plugin(info),
            instances: self.sessions.add_plugin(),
        }
    }
}

/// Returns the effective policy of a plugin. Returns an error if an import has no grant, if an
/// exported interface has an unknown version, or if `granted` doesn't fit the kind of the plugin.
fn check_grants(info: &PluginInfo, granted: PluginGrants) -> Result<PluginGrants, HostError> {
    let manifest = &info.manifest;
    let plugin = &manifest.name;
    for export in &info.exports {
        if let Some(reason) = version_refusal(export) {
            return Err(load_error(plugin, &reason));
        }
    }
    let policy = effective_policy(manifest, granted)?;
    foreign::check_kind(info.kind, &policy).map_err(not_loaded(plugin))?;
    for import in &info.imports {
        let reason = refusal(import, manifest, &policy.table, &|capability| {
            may_import(capability, manifest, &policy)
        });
        if let Some(reason) = reason {
            return Err(load_error(plugin, &reason));
        }
    }
    Ok(policy)
}

fn may_import(capability: Capability, manifest: &Manifest, policy: &PluginGrants) -> bool {
    if policy.capabilities.allow_import(capability) {
        return true;
    }
    policy.inspect_only && manifest.asks_for(capability).is_some()
}

fn effective_policy(manifest: &Manifest, granted: PluginGrants) -> Result<PluginGrants, HostError> {
    let mut effective = granted;
    effective.capabilities.keep_requested(manifest);
    match manifest.asks_for(Capability::Files) {
        None => effective.files = None,
        Some(request) if request.is_read_only() => effective.read_only = true,
        // The plugin requests write access too.
        Some(_) => {}
    }
    if manifest.asks_for(Capability::Session).is_none() {
        effective.session = false;
    }
    if let Some(grants) = &effective.files {
        for root in grants.roots() {
            if root.path.to_str().is_none() {
                let reason = format!(
                    "{} can't be granted to a plugin, because the path isn't UTF-8",
                    root.path.display()
                );
                return Err(load_error(&manifest.name, &reason));
            }
        }
    }
    lower_limits(&mut effective.limits, manifest);
    Ok(effective)
}

fn lower_limits(limits: &mut Limits, manifest: &Manifest) {
    if let Some(mib) = manifest.limits.memory_mib {
        let requested = (mib as usize).saturating_mul(MIB);
        limits.memory = limits.memory.min(requested);
    }
    if let Some(secs) = manifest.limits.timeout_secs {
        limits.call = limits.call.min(std::time::Duration::from_secs(secs.into()));
    }
}
