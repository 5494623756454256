use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use toolhold_core::{Builtin, EmbeddedFile};

use super::not_tried;

/// The component of a plugin.
pub(crate) fn plugin(name: &str) -> PathBuf {
    built(&format!("../plugins/{name}.wasm"))
}

/// The `toolhold` binary, which is also the helper that compiles components.
pub(crate) fn toolhold() -> PathBuf {
    built("toolhold")
}

/// An example of the library.
pub(crate) fn example(name: &str) -> PathBuf {
    built(&format!("examples/{name}"))
}

/// The folder of third-party clients in a language. `None`, with a notice, if this machine couldn't
/// fetch them.
pub(crate) fn fetched(language: &str) -> Option<PathBuf> {
    let folder = built("").join(format!("../clients/{language}"));
    if !folder.join("fetched").exists() {
        not_tried(&format!("clients/{language}"));
        return None;
    }
    Some(folder)
}

/// Where compilers keep what they compiled: beside them, so that only the first build is long.
pub(crate) fn compiler_caches(tools: &Path) -> [(&'static str, PathBuf); 2] {
    let cache = tools.with_file_name("cache");
    [("ZIG_GLOBAL_CACHE_DIR", cache.clone()), ("GOCACHE", cache)]
}

/// Lets one test at a time use Go's compiler: with an empty cache, each would compile everything.
pub(crate) fn go_compiler() -> MutexGuard<'static, ()> {
    static COMPILER: Mutex<()> = Mutex::new(());
    COMPILER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A component as the plugin that comes with the program.
pub(crate) fn builtin(name: &'static str) -> Builtin {
    static READ: OnceLock<Mutex<Vec<Builtin>>> = OnceLock::new();
    let mut read =
        READ.get_or_init(Default::default).lock().expect("no test panics while it reads a plugin");
    if let Some(known) = read.iter().find(|known| known.name == name) {
        return *known;
    }
    let wasm = std::fs::read(plugin(name)).expect("the plugin is readable");
    let wasm = EmbeddedFile::Plain(wasm.leak());
    let builtin = Builtin { name, wasm, digest: None, parts: &[], compiled: None };
    read.push(builtin);
    builtin
}

/// Files that were built beside this program, in `target/debug`.
pub(crate) fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its program");
    let folder = program.parent().and_then(Path::parent).expect("a test lies in target/debug/deps");
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{} is missing: `cargo xtask test` builds it and runs the tests",
        path.display()
    );
    path
}
