//! Loads a plugin: reads it, checks its imports, compiles it, and asks for its tools. A plugin that
//! fails is not loaded in part.

use std::borrow::Cow;
use std::fmt::Display;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use toolhold_compiler::typed::{ComponentKind, Docs, Outline, name_from};
use toolhold_component::file as component_file;
use toolhold_component::{Capability, Manifest, PluginConfig, is_name, refusal, version_refusal};
use toolhold_contract::HostError;
use toolhold_system::watch::FileStamp;

use crate::code::{Code, LazyCode, Source};
use crate::definition::convert_tools;
use crate::guest::capability::PluginGrants;
use crate::known_files::{ComponentFile, ReadError};
use crate::offer::Offer;
use crate::plugin::{Builtin, LoadedPlugin, Origin, Plugin, PluginInfo};
use crate::{Runtime, filter, foreign, known_files, parts, run};

/// A component that was read and checked, or recalled. None of its code has run.
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
    /// [`HostError::Load`] if it can't be read, is too large, isn't a component, or exports
    /// Toolhold's interfaces without a manifest.
    pub fn file(path: &Path) -> Result<Self, HostError> {
        let opened = component_file::open(path).map_err(not_loaded(&path.display()))?;
        Self::opened(opened, path)
    }

    /// Like [`file`](Self::file), for an open file. `path`: the file's path.
    ///
    /// # Errors
    ///
    /// Like [`file`](Self::file).
    pub fn opened(file: File, path: &Path) -> Result<Self, HostError> {
        Self::read(file, ComponentFile::read_always(path))
    }

    fn read(opened: File, file: ComponentFile) -> Result<Self, HostError> {
        let wasm = component_file::read(opened).map_err(not_loaded(&file.path.display()))?;
        Self::new(wasm.into(), Source::File(file), None)
    }

    /// `digest`: the component's, if it is known.
    fn new(
        wasm: Cow<'static, [u8]>,
        source: Source,
        digest: Option<&str>,
    ) -> Result<Self, HostError> {
        let origin = match &source {
            Source::BuiltIn(..) => Origin::BuiltIn,
            Source::File(file) => Origin::File(file.path.clone()),
        };
        let plugin: &dyn Display = match &origin {
            Origin::BuiltIn => &"a built-in plugin",
            Origin::File(path) => &path.display(),
        };
        let manifest = Manifest::read_if_any(&wasm).map_err(not_loaded(plugin))?;
        let outline = Outline::read(&wasm).map_err(not_loaded(plugin))?;
        let without_manifest = manifest.is_none();
        let kind = outline.kind;
        let manifest = match (manifest, &origin) {
            (Some(manifest), _) => manifest,
            (None, Origin::File(path)) if kind != ComponentKind::Plugin => {
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                foreign::manifest(&name_from(&stem), &outline, &Docs::read(&wasm))
            }
            // Reports that it is missing.
            (None, _) => Manifest::read(&wasm).map_err(not_loaded(plugin))?,
        };
        let digest = digest.map_or_else(|| component_file::digest(&wasm), str::to_owned);
        let Outline { imports, exports, .. } = outline;
        let size = wasm.len();
        let info =
            PluginInfo { manifest, origin, digest, size, imports, exports, kind, without_manifest };
        Ok(Self { content: Content::Read(wasm), source, info: Arc::new(info) })
    }

    /// Facts that are read without running the component.
    pub fn info(&self) -> &Arc<PluginInfo> {
        &self.info
    }

    /// The component under a plugin's name, if it has no manifest that names it.
    #[must_use]
    pub fn under(mut self, name: &str) -> Self {
        if self.info.without_manifest && is_name(name) {
            Arc::make_mut(&mut self.info).manifest.name = name.to_owned();
        }
        self
    }

    /// The component's bytes. `None` if its file wasn't read, see
    /// [`Runtime::candidate`](Runtime::candidate).
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Read(wasm) => Some(wasm),
            Content::Recalled(_) => None,
        }
    }
}

/// For `map_err`: a reason why a plugin isn't loaded, with its name or its path.
fn not_loaded<E: Display>(plugin: &(impl Display + ?Sized)) -> impl FnOnce(E) -> HostError {
    move |reason| HostError::Load { plugin: plugin.to_string(), reason: reason.to_string() }
}

impl Runtime {
    /// The component of an open file with this path and stamp. It is read, unless a component that
    /// has served on this machine was read from it under the same stamp. Blocks.
    ///
    /// # Errors
    ///
    /// Like [`Candidate::file`].
    pub fn candidate(
        &self,
        opened: File,
        path: &Path,
        stamp: FileStamp,
    ) -> Result<Candidate, HostError> {
        let file = ComponentFile {
            path: path.to_owned(),
            stamp: stamp.is_settled().then_some(stamp),
            recalled: false,
        };
        let recalled = known_files::recall(self, path, &stamp).and_then(|digest| {
            Some((Offer::read_kept(self, &digest, &PluginConfig::default())?, digest))
        });
        let Some((offer, digest)) = recalled else {
            return Candidate::read(opened, file);
        };
        let info = Arc::new(offer.info(&digest, Origin::File(path.to_owned())));
        let source = Source::File(ComponentFile { stamp: Some(stamp), recalled: true, ..file });
        Ok(Candidate { content: Content::Recalled(offer.into()), source, info })
    }

    /// Loads a plugin: checks its imports, compiles it, and asks it for its tools and filters
    /// without grants. If it has served on this machine before, nothing is compiled or asked: its
    /// code is mapped at its first use.
    ///
    /// # Errors
    ///
    /// [`HostError::Load`]. No part of the plugin stays loaded.
    pub async fn load(
        self: &Arc<Self>,
        candidate: Candidate,
        granted: PluginGrants,
    ) -> Result<Plugin, HostError> {
        let Candidate { content, source, info } = candidate;
        let wasm = match content {
            // The offer was kept when the plugin had no settings.
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
        let found = tokio::task::spawn_blocking(move || {
            if let Some(offer) = Offer::read_kept(&runtime, &digest, &config) {
                return Ok(Content::Recalled(offer.into()));
            }
            wasm.map_or_else(|| file.read(&digest), Ok).map(Content::Read)
        })
        .await
        .unwrap_or_else(|error| Err(ReadError::from(error)))
        .map_err(not_loaded(&info.manifest.name))?;
        match found {
            Content::Recalled(offer) => self.load_known(info, source, granted, *offer),
            Content::Read(wasm) => self.load_unknown(wasm, source, info, granted).await,
        }
    }

    /// Loads a built-in plugin, as [`load`](Self::load) does.
    ///
    /// # Errors
    ///
    /// [`HostError::Load`] if it isn't a component, has no manifest, or doesn't load.
    pub async fn load_built_in(
        self: &Arc<Self>,
        builtin: &Builtin,
        granted: PluginGrants,
    ) -> Result<Plugin, HostError> {
        let source = Source::BuiltIn(builtin.wasm, builtin.compiled);
        // A small file, which is read before the host serves.
        let kept = builtin.digest.and_then(|digest| {
            let offer = Offer::read_kept(self, digest, &granted.config)?;
            Some((Arc::new(offer.info(digest, Origin::BuiltIn)), offer))
        });
        let parts = parts::of_build(builtin.parts);
        match kept {
            Some((mut info, offer)) => {
                Arc::make_mut(&mut info).manifest.parts = parts;
                self.load_known(info, source, granted, offer)
            }
            None => {
                let wasm = builtin.wasm.read().map_err(not_loaded(builtin.name))?;
                let Candidate { source, mut info, .. } =
                    Candidate::new(wasm.clone(), source, builtin.digest)?;
                Arc::make_mut(&mut info).manifest.parts = parts;
                self.load_unknown(wasm, source, info, granted).await
            }
        }
    }

    /// Loads a plugin that hasn't served on this machine: makes its code, and asks it what it
    /// offers.
    async fn load_unknown(
        self: &Arc<Self>,
        wasm: Cow<'static, [u8]>,
        source: Source,
        info: Arc<PluginInfo>,
        granted: PluginGrants,
    ) -> Result<Plugin, HostError> {
        let name = &info.manifest.name;
        let policy = allowed(&info, granted)?;
        let docs =
            if info.kind == ComponentKind::Plugin { Docs::default() } else { Docs::read(&wasm) };
        let code = Code::make(self, source.clone(), Some(wasm), &info.digest)
            .await
            .map_err(not_loaded(name))?;
        let mut loaded = self.loaded(&info, policy, LazyCode::new(source, Some(Arc::clone(&code))));
        if let Some(foreign) = &code.foreign {
            let offer = foreign::offer(foreign, &docs, &info.manifest, &loaded.policy);
            let (tools, left_out) = offer.map_err(not_loaded(name))?;
            loaded.tools = tools.into_iter().map(|tool| loaded.named(tool)).collect();
            loaded.left_out = left_out;
            return Ok(Plugin(Arc::new(loaded)));
        }
        let definitions = run::list_tools(&loaded, &code).await.map_err(not_loaded(name))?;
        loaded.tools = convert_tools(&loaded, definitions).map_err(not_loaded(name))?;
        filter::list(&mut loaded, &code).await.map_err(not_loaded(name))?;
        Ok(Plugin(Arc::new(loaded)))
    }

    /// Loads a plugin that has served on this machine before.
    fn load_known(
        self: &Arc<Self>,
        info: Arc<PluginInfo>,
        source: Source,
        granted: PluginGrants,
        offer: Offer,
    ) -> Result<Plugin, HostError> {
        let policy = allowed(&info, granted)?;
        let mut loaded = self.loaded(&info, policy, LazyCode::new(source, None));
        let Offer { mut tools, filters, filter_problems, left_out, .. } = offer;
        if info.kind == ComponentKind::Command {
            // The operator's table makes the tool, and it may have changed.
            tools = foreign::command(&info.manifest, &loaded.policy)
                .map_err(not_loaded(&info.manifest.name))?;
        }
        loaded.tools = tools.into_iter().map(|tool| loaded.named(tool)).collect();
        loaded.filters = filters.into_iter().map(Arc::new).collect();
        Ok(Plugin(Arc::new(LoadedPlugin { filter_problems, left_out, known: true, ..loaded })))
    }

    /// A plugin that offers nothing yet.
    fn loaded(
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
            parts: parts::of_plugin(info),
            instances: self.sessions.add_plugin(),
        }
    }
}

/// The policy that counts for a plugin.
///
/// # Errors
///
/// The plugin imports what isn't granted, or the grants can't be given to it.
fn allowed(info: &PluginInfo, granted: PluginGrants) -> Result<PluginGrants, HostError> {
    let plugin = &info.manifest.name;
    if let Some(refusal) = info.exports.iter().find_map(|name| version_refusal(name)) {
        return Err(not_loaded(plugin)(refusal));
    }
    let policy = effective(&info.manifest, granted)?;
    foreign::check_kind(info.kind, &policy).map_err(not_loaded(plugin))?;
    for import in &info.imports {
        let refusal = refusal(import, &info.manifest, &policy.table, &|capability| {
            policy.capabilities.has(capability)
                || policy.inspect_only && info.manifest.asks_for(capability).is_some()
        });
        if let Some(refusal) = refusal {
            return Err(not_loaded(plugin)(refusal));
        }
    }
    Ok(policy)
}

/// The policy that counts: a plugin gets what it asks for, as far as that was granted.
fn effective(manifest: &Manifest, granted: PluginGrants) -> Result<PluginGrants, HostError> {
    let mut effective = granted;
    effective.capabilities.keep_requested(manifest);
    let request = manifest.asks_for(Capability::Files);
    if request.is_none() {
        effective.files = None;
    }
    if manifest.asks_for(Capability::Session).is_none() {
        effective.session = false;
    }
    if request.is_some_and(|request| request.access.as_deref() != Some("read-write")) {
        effective.read_only = true;
    }
    if let Some(grants) = &effective.files
        && let Some(root) = grants.roots().iter().find(|root| root.path.to_str().is_none())
    {
        return Err(not_loaded(&manifest.name)(format_args!(
            "{} can't be granted to a plugin, since its name isn't UTF-8",
            root.path.display()
        )));
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
