//! The code of a plugin. It is mapped at the plugin's first use: a host knows what its plugins
//! offer without their code ([`offer`](crate::offer)), and most plugins aren't called.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;
use wasmtime::component::{ComponentExportIndex, InstancePre};

use crate::compiled::Precompiled;
use crate::filters::{self, Filters};
use crate::foreign::Foreign;
use crate::guest::bindings::PluginIndices;
use crate::guest::state::CallState;
use crate::known_files::ComponentFile;
use crate::warm_pool::WarmPool;
use crate::{Runtime, component_file, known_files};

/// Code that can be instantiated, and its instances that wait for work.
pub(crate) struct Code {
    pub(crate) pre: InstancePre<CallState>,
    /// The indices of its exports for tools. `None` if it exports no tools.
    pub(crate) exports: Option<PluginIndices>,
    /// The export that calls a tool. A call looks up only that: the types of an export are compared
    /// for each instance.
    pub(crate) call_tool: Option<ComponentExportIndex>,
    /// `None` if it exports no filters.
    pub(crate) filters: Option<Filters>,
    /// What it exports if it doesn't know Berth.
    pub(crate) foreign: Option<Foreign>,
    pub(crate) warm_pool: WarmPool,
}

/// Where the bytes of a component are. They are needed only if its code has to be compiled.
#[derive(Clone)]
pub(crate) enum Source {
    BuiltIn(&'static [u8], Option<Precompiled>),
    File(ComponentFile),
}

/// Code that is mapped once.
pub(crate) struct LazyCode {
    source: Source,
    made: OnceCell<Arc<Code>>,
    /// Whether the component's file is another one, though its stamp says that it isn't.
    differs: AtomicBool,
}

impl LazyCode {
    /// `made`: the code, if something has needed it already.
    pub(crate) fn new(source: Source, made: Option<Arc<Code>>) -> Self {
        let (made, differs) = (OnceCell::new_with(made), AtomicBool::new(false));
        Self { source, made, differs }
    }

    /// The code, if something has needed it already.
    pub(crate) fn get(&self) -> Option<&Arc<Code>> {
        self.made.get()
    }

    /// Where the component's bytes are.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Whether a first use has found that the file has another component than its stamp says.
    pub(crate) fn differs(&self) -> bool {
        self.differs.load(Ordering::Relaxed)
    }

    /// The code, which is made at its first use. `digest`: the component's.
    ///
    /// # Errors
    ///
    /// Why there is no code.
    pub(crate) async fn make_once(
        &self,
        runtime: &Arc<Runtime>,
        digest: &str,
    ) -> Result<Arc<Code>, String> {
        let make = async || {
            let wasm = match &self.source {
                Source::BuiltIn(..) => None,
                Source::File(file) => known_files::check(runtime, file, digest)
                    .await
                    .inspect_err(|_| self.differs.store(true, Ordering::Relaxed))?,
            };
            Code::make(runtime, self.source.clone(), wasm, digest).await
        };
        self.made.get_or_try_init(make).await.cloned()
    }
}

impl Code {
    /// Maps the code, and compiles it before that where there is none. `wasm`: the component's
    /// bytes, if they were just read.
    ///
    /// # Errors
    ///
    /// Why there is no code.
    pub(crate) async fn make(
        runtime: &Arc<Runtime>,
        source: Source,
        wasm: Option<Cow<'static, [u8]>>,
        digest: &str,
    ) -> Result<Arc<Self>, String> {
        let (runtime, digest) = (Arc::clone(runtime), digest.to_owned());
        let make = move || {
            let compiled = match source {
                Source::BuiltIn(_, compiled) => compiled,
                Source::File(_) => None,
            };
            let wasm = || match (wasm, source) {
                (Some(wasm), _) => Ok(wasm),
                (None, Source::BuiltIn(wasm, _)) => component_file::unpacked(wasm),
                (None, Source::File(file)) => file.read_again(&digest).map(Cow::Owned),
            };
            let engine = &runtime.engine;
            let component = runtime.compiler.component(&engine.wasm, wasm, &digest, compiled)?;
            let pre = engine.linker.instantiate_pre(&component);
            Self::new(pre.map_err(|error| format!("linking it failed: {error:#}"))?)
        };
        let made = tokio::task::spawn_blocking(make).await;
        made.map_err(|_| "compiling it failed".to_owned())?.map(Arc::new)
    }

    fn new(pre: InstancePre<CallState>) -> Result<Self, String> {
        let unknown = |interface: &str, error| {
            format!(
                "it does not export `berth:tool/{interface}@0.1.0` as this host defines it: {error:#}"
            )
        };
        if !["berth:tool/tools", "berth:tool/filter"]
            .iter()
            .any(|name| filters::has_export(&pre, name))
        {
            let foreign = Some(Foreign::from_component(pre.component())?);
            let warm_pool = WarmPool::new(&pre);
            return Ok(Self {
                pre,
                exports: None,
                call_tool: None,
                filters: None,
                foreign,
                warm_pool,
            });
        }
        let filters = Filters::from_exports(&pre).map_err(|error| unknown("filter", error))?;
        let exports = match PluginIndices::new(&pre) {
            Ok(exports) => Some(exports),
            Err(_) if filters.is_some() && !filters::has_export(&pre, "berth:tool/tools") => None,
            Err(error) => return Err(unknown("tools", error)),
        };
        let component = pre.component();
        let call_tool = component
            .get_export_index(None, "berth:tool/tools@0.1.0")
            .and_then(|tools| component.get_export_index(Some(&tools), "call-tool"));
        let warm_pool = WarmPool::new(&pre);
        Ok(Self { pre, exports, call_tool, filters, foreign: None, warm_pool })
    }
}
