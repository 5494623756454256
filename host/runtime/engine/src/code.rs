//! Maps the code of a plugin at its first use. Most plugins are listed but never called.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;
use tokio::task::JoinError;
use toolhold_compiler::typed::NoFunctionsError;
use toolhold_compiler::{CompileError, Precompiled};
use toolhold_component::file::{ComponentFileError, EmbeddedFile};
use wasmtime::component::InstancePre;

use crate::foreign::Foreign;
use crate::guest::CallState;
use crate::guest::contract::{ExportError, FilterExports, ToolExports};
use crate::known_files::{ComponentFile, ReadError};
use crate::warm_pool::WarmPool;
use crate::{Runtime, known_files};

#[derive(Debug, thiserror::Error)]
pub(crate) enum CodeError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Compile(#[from] CompileError<ReadError>),
    /// All imports are granted at this point, so the reason is that an import has another type than
    /// in this version.
    #[error(
        "linking the component failed: {0:#}. The component was built for a newer contract: update \
         Toolhold, or build the component with this version's SDK"
    )]
    Link(wasmtime::Error),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    NoFunctions(#[from] NoFunctionsError),
    #[error("compiling the component failed")]
    Thread(#[from] JoinError),
}

/// Code that can be instantiated, and its warm instances.
pub(crate) struct Code {
    pub(crate) pre: InstancePre<CallState>,
    /// `None` if the component exports no tools.
    pub(crate) tools: Option<ToolExports>,
    /// `None` if the component exports no filters.
    pub(crate) filters: Option<FilterExports>,
    /// Set if the component doesn't export Toolhold's interfaces.
    pub(crate) foreign: Option<Foreign>,
    pub(crate) warm_pool: WarmPool,
}

/// The place of a component's bytes. The bytes are read only if the code must be compiled.
#[derive(Clone)]
pub(crate) enum Source {
    BuiltIn(EmbeddedFile, Option<Precompiled>),
    File(ComponentFile),
}

impl Source {
    /// Reads the bytes. Blocks. Fails if the file's digest isn't `digest`.
    pub(crate) fn read(&self, digest: &str) -> Result<Cow<'static, [u8]>, ReadError> {
        match self {
            Self::BuiltIn(wasm, _) => Ok(wasm.read().map_err(ComponentFileError::from)?),
            Self::File(file) => file.read_again(digest).map(Cow::Owned),
        }
    }
}

pub(crate) struct LazyCode {
    source: Source,
    code: OnceCell<Arc<Code>>,
    /// Whether the content of the file has changed, although its stamp is the same.
    differs_from_file: AtomicBool,
}

impl LazyCode {
    /// `code` is the code if it exists already.
    pub(crate) fn new(source: Source, code: Option<Arc<Code>>) -> Self {
        Self { source, code: OnceCell::new_with(code), differs_from_file: AtomicBool::new(false) }
    }

    /// Returns the code. Returns `None` before the first use.
    pub(crate) fn get(&self) -> Option<&Arc<Code>> {
        self.code.get()
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Checks whether the content of the file has changed, although its stamp is the same.
    pub(crate) fn differs_from_file(&self) -> bool {
        self.differs_from_file.load(Ordering::Relaxed)
    }

    pub(crate) async fn make_once(
        &self,
        runtime: &Arc<Runtime>,
        digest: &str,
    ) -> Result<Arc<Code>, CodeError> {
        self.code.get_or_try_init(|| self.make(runtime, digest)).await.cloned()
    }

    /// Makes the code. Fails if the content of the plugin's file doesn't match `digest`.
    async fn make(&self, runtime: &Arc<Runtime>, digest: &str) -> Result<Arc<Code>, CodeError> {
        let wasm = match &self.source {
            Source::BuiltIn(..) => None,
            Source::File(file) => match known_files::check(runtime, file, digest).await {
                Ok(wasm) => wasm,
                Err(error) => {
                    self.differs_from_file.store(true, Ordering::Relaxed);
                    return Err(error.into());
                }
            },
        };
        Code::make(runtime, self.source.clone(), wasm, digest).await
    }
}

impl Code {
    /// Maps the code of a component, and compiles the code first if necessary. `wasm` are the
    /// component's bytes. If they are missing, they are read from `source` only when they are
    /// needed.
    pub(crate) async fn make(
        runtime: &Arc<Runtime>,
        source: Source,
        wasm: Option<Cow<'static, [u8]>>,
        digest: &str,
    ) -> Result<Arc<Self>, CodeError> {
        let runtime = Arc::clone(runtime);
        let digest = digest.to_owned();
        tokio::task::spawn_blocking(move || {
            let precompiled = match source {
                Source::BuiltIn(_, precompiled) => precompiled,
                Source::File(_) => None,
            };
            let engine = &runtime.engine;
            let component = runtime.compiler.component(
                &engine.wasm,
                || match wasm {
                    Some(wasm) => Ok(wasm),
                    None => source.read(&digest),
                },
                &digest,
                precompiled,
            )?;
            let pre = engine.linker.instantiate_pre(&component).map_err(CodeError::Link)?;
            Self::new(pre)
        })
        .await?
        .map(Arc::new)
    }

    /// Finds the exports of a component. Returns an error if Toolhold can use none of them.
    fn new(pre: InstancePre<CallState>) -> Result<Self, CodeError> {
        let tools = ToolExports::find(&pre)?;
        let filters = FilterExports::find(&pre)?;
        let has_interfaces = tools.is_some() || filters.is_some();
        let foreign =
            if has_interfaces { None } else { Some(Foreign::from_component(pre.component())?) };
        let warm_pool = WarmPool::new(&pre);
        Ok(Self { pre, tools, filters, foreign, warm_pool })
    }
}
