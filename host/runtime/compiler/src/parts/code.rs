//! The files and the code of a plugin's parts.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use toolhold_component::{Part, file};
use wasmtime::component::{ComponentExportIndex, InstancePre};

use crate::parts::engine::{PartEngine, PartState};
use crate::parts::job::{PartError, PartErrorKind};
use crate::{CompileError, Compiler};

/// The interface of a part, and its function.
const INTERFACE: &str = "toolhold:tool/part@0.1.0";
const FUNCTION: &str = "run";

/// The parts of a plugin.
pub struct Parts {
    /// The code is set at the first use of a part.
    list: Vec<(Part, Mutex<Option<Code>>)>,
    folders: Vec<PathBuf>,
}

#[derive(Clone)]
pub(crate) struct Code {
    pub(crate) pre: InstancePre<PartState>,
    pub(crate) run: ComponentExportIndex,
}

#[derive(Debug, thiserror::Error)]
enum PartCodeError {
    #[error(transparent)]
    Compile(#[from] CompileError<PartFileError>),
    #[error("linking the module failed: {0:#}")]
    Link(wasmtime::Error),
    #[error("the module doesn't export `{INTERFACE}`")]
    NoInterface,
}

/// No folder has a file with the part's digest. The message doesn't list the folders, because all
/// parts have the same long list.
#[derive(Debug, thiserror::Error)]
#[error("the module's file is missing or belongs to another build")]
struct PartFileError;

impl Parts {
    /// Makes the parts of a manifest. The file of a part is `NAME.wasm` in one of the folders.
    pub fn new(parts: &[Part], folders: Vec<PathBuf>) -> Self {
        let list = parts.iter().map(|part| (part.clone(), Mutex::default())).collect();
        Self { list, folders }
    }

    /// Returns the code of a part. The first use on a machine compiles the part. Blocks.
    pub(crate) fn code(
        &self,
        engine: &PartEngine,
        compiler: &Compiler,
        name: &str,
    ) -> Result<Code, PartError> {
        let (part, slot) = self.find(name)?;
        // The lock is held during the compilation, so that a part is compiled only once.
        let mut stored_code = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = &*stored_code {
            return Ok(code.clone());
        }
        match self.make_code(engine, compiler, part) {
            Ok(code) => Ok(stored_code.insert(code).clone()),
            // A failure isn't stored, because a missing file may be added later.
            Err(error) => Err(PartError {
                kind: PartErrorKind::Unavailable,
                message: format!("the module `{name}` can't be used: {error}"),
            }),
        }
    }

    /// Finds a part by its name. The error lists the names of all parts.
    fn find(&self, name: &str) -> Result<&(Part, Mutex<Option<Code>>), PartError> {
        if let Some(entry) = self.list.iter().find(|(part, _)| part.name == name) {
            return Ok(entry);
        }
        let names: Vec<&str> = self.list.iter().map(|(part, _)| part.name.as_str()).collect();
        let message = if names.is_empty() {
            "the plugin has no modules".to_owned()
        } else {
            format!("the plugin has no such module; its modules are: {}", names.join(", "))
        };
        Err(PartError { kind: PartErrorKind::Invalid, message })
    }

    fn make_code(
        &self,
        engine: &PartEngine,
        compiler: &Compiler,
        part: &Part,
    ) -> Result<Code, PartCodeError> {
        // No part has built-in code.
        let precompiled = None;
        let component = compiler.component(
            &engine.wasm,
            || self.read(part).map(Cow::Owned),
            &part.sha256,
            precompiled,
        )?;
        let linker = engine.linker(&component).map_err(PartCodeError::Link)?;
        let Some(interface) = component.get_export_index(None, INTERFACE) else {
            return Err(PartCodeError::NoInterface);
        };
        let Some(run) = component.get_export_index(Some(&interface), FUNCTION) else {
            return Err(PartCodeError::NoInterface);
        };
        let pre = linker.instantiate_pre(&component).map_err(PartCodeError::Link)?;
        Ok(Code { pre, run })
    }

    /// Reads the part from the first folder that has a file with its digest.
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

    /// Returns the parts whose files are missing or have another digest. Blocks.
    pub fn missing(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for (part, _) in &self.list {
            if self.read(part).is_err() {
                names.push(part.name.as_str());
            }
        }
        names
    }

    /// Returns the folders in which parts are searched.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }
}
