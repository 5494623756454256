//! The parts of a plugin: where their files are, and their code.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use toolhold_component::{Part, file};
use wasmtime::component::{ComponentExportIndex, InstancePre};

use crate::parts::engine::{PartEngine, PartState};
use crate::parts::job::{PartError, PartErrorKind};
use crate::{CompileError, Compiler};

/// The interface that a part exports, and the function of this interface.
const INTERFACE: &str = "toolhold:tool/part@0.1.0";
const FUNCTION: &str = "run";

/// The parts that a plugin brings along.
pub struct Parts {
    /// The parts. Each has its code if it was used.
    list: Vec<(Part, Mutex<Option<Code>>)>,
    folders: Vec<PathBuf>,
}

/// The code of a part, ready for instances.
#[derive(Clone)]
pub(crate) struct Code {
    pub(crate) pre: InstancePre<PartState>,
    pub(crate) run: ComponentExportIndex,
}

/// A reason why a part can't be used.
#[derive(Debug, thiserror::Error)]
enum PartCodeError {
    #[error(transparent)]
    Compile(#[from] CompileError<PartFileError>),
    #[error("linking it failed: {0:#}")]
    Link(wasmtime::Error),
    #[error("it doesn't export `{INTERFACE}`")]
    NoInterface,
}

/// The error if no folder has the file with the part's digest. The message doesn't list the
/// folders, because the list is long and the same for each part.
#[derive(Debug, thiserror::Error)]
#[error("its file is missing, or is of another build")]
struct PartFileError;

impl Parts {
    /// Makes the list of the parts that a manifest names. Their files are `NAME.wasm` in one of the
    /// folders.
    pub fn new(parts: &[Part], folders: Vec<PathBuf>) -> Self {
        let list = parts.iter().map(|part| (part.clone(), Mutex::default())).collect();
        Self { list, folders }
    }

    /// Returns the code of a part. The first use on a machine reads and compiles the file. Blocks.
    pub(crate) fn code(
        &self,
        engine: &PartEngine,
        compiler: &Compiler,
        name: &str,
    ) -> Result<Code, PartError> {
        let Some((part, slot)) = self.list.iter().find(|(part, _)| part.name == name) else {
            let names: Vec<&str> = self.list.iter().map(|(part, _)| part.name.as_str()).collect();
            let message = if names.is_empty() {
                "the plugin has no parts".to_owned()
            } else {
                format!("the plugin has no such part; it has: {}", names.join(", "))
            };
            return Err(PartError { kind: PartErrorKind::Invalid, message });
        };
        // Other calls wait for this lock, so that a part is compiled only once.
        let mut stored = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = &*stored {
            return Ok(code.clone());
        }
        // A failure isn't stored, because the missing file may be added while the host runs.
        let code = self.make_code(engine, compiler, part).map_err(|error| PartError {
            kind: PartErrorKind::Unavailable,
            message: format!("the part `{name}` can't be used: {error}"),
        })?;
        Ok(stored.insert(code).clone())
    }

    fn make_code(
        &self,
        engine: &PartEngine,
        compiler: &Compiler,
        part: &Part,
    ) -> Result<Code, PartCodeError> {
        let component = compiler.component(
            &engine.wasm,
            || self.read(part).map(Cow::Owned),
            &part.sha256,
            None,
        )?;
        let linker = engine.linker(&component).map_err(PartCodeError::Link)?;
        let run = component
            .get_export_index(None, INTERFACE)
            .and_then(|interface| component.get_export_index(Some(&interface), FUNCTION))
            .ok_or(PartCodeError::NoInterface)?;
        let pre = linker.instantiate_pre(&component).map_err(PartCodeError::Link)?;
        Ok(Code { pre, run })
    }

    /// Reads the component with the part's digest from the first folder that contains it.
    fn read(&self, part: &Part) -> Result<Vec<u8>, PartFileError> {
        for folder in &self.folders {
            let path = folder.join(format!("{}.wasm", part.name));
            let Ok(wasm) = file::open(&path).and_then(file::read) else { continue };
            if file::digest(&wasm) == part.sha256 {
                return Ok(wasm);
            }
        }
        Err(PartFileError)
    }

    /// Returns the names of the parts whose files are missing or have another digest. Blocks.
    pub fn missing(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for (part, _) in &self.list {
            if self.read(part).is_err() {
                names.push(part.name.as_str());
            }
        }
        names
    }

    /// Returns the folders in which the files of parts are searched for.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }
}
