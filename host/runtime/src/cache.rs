//! Compiled code kept from one run to the next.

use std::io::{self, ErrorKind};
use std::path::Path;

use berth_system::private::PrivateFolder;
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::compiled;

/// A folder that only this user can change. Compiled code can't be checked, so it is mapped from nowhere else.
#[derive(Debug)]
pub(crate) struct Cache(PrivateFolder);

impl Cache {
    /// Opens the folder, making it where it is missing. `Err` says why it can't be trusted; the caller compiles anew instead.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        PrivateFolder::make(folder).map(Self)
    }

    /// The component of a key, where it was kept by a compatible engine.
    pub(crate) fn get(&self, engine: &Engine, key: &str) -> Option<Component> {
        let file = match self.0.file(key) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!("not used from the compile cache: {key}: {error}");
                return None;
            }
        };
        compiled::of_the_cache(engine, &file).map_err(|error| tracing::warn!("not used from the compile cache: {key}: {error:#}")).ok()
    }

    /// Keeps code under a key. A file that is mapped must never change, and is not: the new one only takes its name.
    pub(crate) fn put(&self, key: &str, code: &[u8]) -> io::Result<()> {
        self.0.put(key, code)
    }
}
