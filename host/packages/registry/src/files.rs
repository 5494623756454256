//! Reads a component and its signature from a path on this machine.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use toolhold_component::file;
use toolhold_contract::text::{cut, neutral_line};

use crate::bounded::read_if_there;
use crate::error::FetchError;
use crate::fetched::{Fetched, MAX_SIGNATURE};
use crate::source::Source;

/// Most entries of a folder. A folder with more entries is refused.
const MAX_ENTRIES: usize = 1000;

/// Most names that an error lists. Further names are left out.
const LISTED: usize = 5;

/// Reads a component, and the signature next to it if there is one. `path` is the component's file
/// or a project's folder. Blocks.
pub(crate) fn read(path: &Path) -> Result<Fetched, FetchError> {
    let metadata =
        fs::metadata(path).map_err(|error| file_error(path, explain_missing(path, &error)))?;
    let component_path = if metadata.is_dir() { find_component(path)? } else { path.to_owned() };
    let bytes = file::open(&component_path)
        .and_then(file::read)
        .map_err(|error| file_error(&component_path, error.to_string()))?;

    let mut signature_name = component_path.clone().into_os_string();
    signature_name.push(".minisig");
    let signature_path = PathBuf::from(signature_name);
    let signature = read_if_there(&signature_path, MAX_SIGNATURE)
        .map_err(|error| file_error(&signature_path, error.to_string()))?;

    let exact_path = fs::canonicalize(&component_path)
        .map_err(|error| file_error(&component_path, error.to_string()))?;
    Fetched::new(bytes, Source::Path(exact_path), signature.into_iter().collect())
}

fn file_error(path: &Path, why: String) -> FetchError {
    FetchError::File { path: path.display().to_string(), why }
}

fn find_component(folder: &Path) -> Result<PathBuf, FetchError> {
    let entries = fs::read_dir(folder).map_err(|error| file_error(folder, error.to_string()))?;
    let mut components: Vec<PathBuf> = Vec::new();
    for (index, entry) in entries.enumerate() {
        if index == MAX_ENTRIES {
            let why = format!(
                "the folder has too many entries; the limit is {MAX_ENTRIES}. Name the component's \
                 file"
            );
            return Err(file_error(folder, why));
        }
        let path = entry.map_err(|error| file_error(folder, error.to_string()))?.path();
        if path.extension().is_some_and(|extension| extension == "wasm") && path.is_file() {
            components.push(path);
        }
    }
    components.sort();
    match components.as_slice() {
        [component] => Ok(component.clone()),
        [] => {
            let why = "the folder has no `.wasm` file: run `toolhold plugin build` in the folder \
                       first";
            Err(file_error(folder, why.to_owned()))
        }
        several => {
            let names: Vec<String> = several
                .iter()
                .take(LISTED)
                .filter_map(|path| path.file_name())
                .map(|name| neutral_line(cut(&name.to_string_lossy(), 64)))
                .collect();
            let why = format!(
                "the folder has {} `.wasm` files ({}…): name one of these files",
                several.len(),
                names.join(", ")
            );
            Err(file_error(folder, why))
        }
    }
}

/// Describes why a path can't be read. If the path looks like a registry or a URL without its
/// scheme, the message proposes a scheme.
fn explain_missing(path: &Path, error: &std::io::Error) -> String {
    if error.kind() == ErrorKind::NotFound && starts_with_host(&path.to_string_lossy()) {
        format!("{error}. For a registry or a web server, write oci://… or https://…")
    } else {
        error.to_string()
    }
}

fn starts_with_host(path: &str) -> bool {
    let Some((first, below)) = path.split_once('/') else { return false };
    !below.is_empty() && first.trim_matches('.').contains(['.', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const WASM: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn file_and_folder_give_the_component_and_its_signature() {
        let folder = tempfile::tempdir().expect("there is a folder");
        let path = folder.path().join("one.wasm");
        fs::write(&path, WASM).expect("it is written");
        fs::write(folder.path().join("one.wasm.minisig"), "signed").expect("it is written");
        for from in [&path, &folder.path().to_owned()] {
            let fetched = read(from).expect("it is read");
            assert_eq!(fetched.bytes, WASM);
            assert_eq!(fetched.digest, file::digest(WASM));
            assert_eq!(fetched.signatures, [b"signed".to_vec()]);
            let exact = fs::canonicalize(&path).expect("it exists");
            assert_eq!(fetched.resolved, Source::Path(exact));
        }
    }

    #[test]
    fn other_files_and_folders_are_refused_with_what_to_do() {
        let folder = tempfile::tempdir().expect("there is a folder");
        let path = |name: &str| folder.path().join(name);
        let told = |name: &str| read(&path(name)).expect_err(name).to_string();
        fs::create_dir(path("empty")).expect("it is made");
        assert!(told("empty").contains("toolhold plugin build"));
        fs::create_dir(path("two")).expect("it is made");
        for name in ["two/a.wasm", "two/b.wasm"] {
            fs::write(path(name), WASM).expect("it is written");
        }
        assert!(told("two").contains("a.wasm, b.wasm"));
        fs::write(path("page.wasm"), "<html>").expect("it is written");
        assert!(told("page.wasm").contains("isn't WebAssembly"));
        fs::write(path("signed.wasm"), WASM).expect("it is written");
        fs::write(path("signed.wasm.minisig"), vec![b'x'; 100_000]).expect("it is written");
        assert!(told("signed.wasm").contains("too large"));
        let fifo = path("fifo.wasm");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).expect("it is made");
        assert!(told("fifo.wasm").contains("isn't a file"));
        let host = read(Path::new("registry.example/name:1")).expect_err("there is none");
        assert!(host.to_string().contains("oci://"), "{host}");
    }
}
