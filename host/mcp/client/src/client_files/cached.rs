//! Recognises programs in the caches of `npx` and `uvx`.

use std::path::Path;

/// Returns the command that installs a program, if `program` is in a cache of `npx` or `uvx`.
///
/// A client's file must not name a program in a cache, because the cache may be emptied. If
/// the file named the package instead, the owner of the package could change the program.
pub fn install_command(program: &Path) -> Option<&'static str> {
    let folders: Vec<&str> =
        program.parent()?.iter().filter_map(|folder| folder.to_str()).collect();
    // npx starts programs in …/_npx/HASH/node_modules/PACKAGE/bin.
    if let Some(npx) = folders.iter().position(|folder| *folder == "_npx")
        && let ["_npx", _hash, "node_modules", ..] = &folders[npx..]
    {
        return Some("npm install --global PACKAGE");
    }
    // uvx starts programs in the `bin` folder of a Python environment, such as
    // …/archive-v0/HASH/bin. The file `pyvenv.cfg` is next to the `bin` folder.
    let environment = program.parent()?.parent()?;
    let is_environment = environment.join("pyvenv.cfg").is_file();
    if is_environment && folders.iter().any(|folder| is_uv_cache(folder)) {
        return Some("uv tool install PACKAGE");
    }
    None
}

/// Checks for the names of folders in uv's cache, such as `archive-v0` and `environments-v2`.
fn is_uv_cache(folder: &str) -> bool {
    let prefixes = ["archive-v", "environments-v"];
    let version = prefixes.iter().find_map(|prefix| folder.strip_prefix(*prefix));
    let Some(version) = version else { return false };
    !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_in_caches_have_an_install_command() {
        let root = tempfile::tempdir().expect("a folder is made");
        let command = |path: &str| install_command(&root.path().join(path));
        for folder in ["uv/archive-v0/abc", "uv/tools/toolhold", "venv"] {
            let folder = root.path().join(folder);
            std::fs::create_dir_all(&folder).expect("it is made");
            std::fs::write(folder.join("pyvenv.cfg"), "").expect("it is written");
        }
        for (path, manager) in [
            (".npm/_npx/0a1/node_modules/toolhold-linux-x64/bin/toolhold", "npm"),
            ("uv/archive-v0/abc/bin/toolhold", "uv"),
        ] {
            assert!(command(path).is_some_and(|command| command.starts_with(manager)), "{path}");
        }
        for path in [
            "lib/node_modules/toolhold-linux-x64/bin/toolhold",
            "project/node_modules/toolhold-linux-x64/bin/toolhold",
            "_npx/bin/toolhold",
            "uv/tools/toolhold/bin/toolhold",
            "uv/archive-v0/other/bin/toolhold",
            "uv/archive-vx/bin/toolhold",
            "venv/bin/toolhold",
            ".local/bin/toolhold",
        ] {
            assert_eq!(command(path), None, "{path}");
        }
    }
}
