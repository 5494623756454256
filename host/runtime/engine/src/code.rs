//! Maps the code of a plugin at its first use. A host knows the offers of its plugins without their
//! code ([`offer`](crate::offer)), and most plugins aren't called.

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

/// A reason why there is no code of a component.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CodeError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Compile(#[from] CompileError<ReadError>),
    /// All imports are granted, so one of them differs from the import of this version.
    #[error(
        "linking it failed: {0:#}. It was built for a newer contract: update Toolhold, or build it with an SDK of this version"
    )]
    Link(wasmtime::Error),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    NoFunctions(#[from] NoFunctionsError),
    #[error("compiling it failed")]
    Thread(#[from] JoinError),
}

/// Code that can be instantiated, and its idle instances.
pub(crate) struct Code {
    pub(crate) pre: InstancePre<CallState>,
    /// The exports for tools. `None` if the component exports no tools.
    pub(crate) tools: Option<ToolExports>,
    /// The exports for filters. `None` if the component exports no filters.
    pub(crate) filters: Option<FilterExports>,
    /// The exports of a component that doesn't know Toolhold.
    pub(crate) foreign: Option<Foreign>,
    pub(crate) warm_pool: WarmPool,
}

/// The place of a component's bytes. The bytes are needed only if the code must be compiled.
#[derive(Clone)]
pub(crate) enum Source {
    BuiltIn(EmbeddedFile, Option<Precompiled>),
    File(ComponentFile),
}

impl Source {
    /// Reads the component's bytes. Blocks. `digest` is the digest of the component.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes can't be read, or if they belong to another component.
    pub(crate) fn read(&self, digest: &str) -> Result<Cow<'static, [u8]>, ReadError> {
        match self {
            Self::BuiltIn(wasm, _) => Ok(wasm.read().map_err(ComponentFileError::from)?),
            Self::File(file) => file.read_again(digest).map(Cow::Owned),
        }
    }
}

/// Code that is mapped once.
pub(crate) struct LazyCode {
    source: Source,
    code: OnceCell<Arc<Code>>,
    /// Whether the component's file was found to be another component, although its stamp is
    /// unchanged.
    differs: AtomicBool,
}

impl LazyCode {
    /// Makes the code of a source. `code` is the code if it was already made.
    pub(crate) fn new(source: Source, code: Option<Arc<Code>>) -> Self {
        Self { source, code: OnceCell::new_with(code), differs: AtomicBool::new(false) }
    }

    /// Returns the code. Returns `None` if the code wasn't needed yet.
    pub(crate) fn get(&self) -> Option<&Arc<Code>> {
        self.code.get()
    }

    /// Returns the place of the component's bytes.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Checks whether the first use has found that the file contains another component, although
    /// its stamp is unchanged.
    pub(crate) fn differs(&self) -> bool {
        self.differs.load(Ordering::Relaxed)
    }

    /// Returns the code. Makes it at its first use. `digest` is the digest of the component.
    ///
    /// # Errors
    ///
    /// Returns the reason if there is no code.
    pub(crate) async fn make_once(
        &self,
        runtime: &Arc<Runtime>,
        digest: &str,
    ) -> Result<Arc<Code>, CodeError> {
        self.code.get_or_try_init(|| self.make(runtime, digest)).await.cloned()
    }

    async fn make(&self, runtime: &Arc<Runtime>, digest: &str) -> Result<Arc<Code>, CodeError> {
        let wasm = match &self.source {
            Source::BuiltIn(..) => None,
            Source::File(file) => {
                let checked = known_files::check(runtime, file, digest).await;
                if checked.is_err() {
                    self.differs.store(true, Ordering::Relaxed);
                }
                checked?
            }
        };
        Code::make(runtime, self.source.clone(), wasm, digest).await
    }
}

impl Code {
    /// Maps the code of a component. If there is no compiled code, the component is compiled first.
    /// `wasm` are the component's bytes if they were just read.
    ///
    /// # Errors
    ///
    /// Returns the reason if there is no code.
    pub(crate) async fn make(
        runtime: &Arc<Runtime>,
        source: Source,
        wasm: Option<Cow<'static, [u8]>>,
        digest: &str,
    ) -> Result<Arc<Self>, CodeError> {
        let runtime = Arc::clone(runtime);
        let digest = digest.to_owned();
        tokio::task::spawn_blocking(move || {
            let compiled = match source {
                Source::BuiltIn(_, compiled) => compiled,
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
                compiled,
            )?;
            let pre = engine.linker.instantiate_pre(&component).map_err(CodeError::Link)?;
            Self::new(pre)
        })
        .await?
        .map(Arc::new)
    }

    fn new(pre: InstancePre<CallState>) -> Result<Self, CodeError> {
        let tools = ToolExports::find(&pre)?;
        let filters = FilterExports::find(&pre)?;
        let foreign = if tools.is_none() && filters.is_none() {
            Some(Foreign::from_component(pre.component())?)
        } else {
            None
        };
        let warm_pool = WarmPool::new(&pre);
        Ok(Self { pre, tools, filters, foreign, warm_pool })
    }
}
