//! Recognises a program in the cache of `npx` or `uvx`, and names the command that installs it.

use std::path::Path;

/// Returns the command that installs a program, if the program's path is in a cache of `npx` or
/// `uvx`. Returns `None` for other paths.
///
/// A client's configuration can't name a program in a cache, because the cache may be emptied. The
/// configuration can't name the package either, because the owner of that name in the registry
/// could then decide which program the client starts.
pub fn install_command(program: &Path) -> Option<&'static str> {
    let folders: Vec<&str> =
        program.parent()?.iter().filter_map(|folder| folder.to_str()).collect();
    // npx uses paths such as …/_npx/HASH/node_modules/PACKAGE/bin.
    if let Some(npx) = folders.iter().position(|folder| *folder == "_npx")
        && folders.get(npx + 2) == Some(&"node_modules")
    {
        return Some("npm install --global PACKAGE");
    }
    // uvx uses a Python environment in a folder of uv's cache: …/archive-v0/HASH/bin.
    let is_environment = program.ancestors().nth(2)?.join("pyvenv.cfg").is_file();
    if is_environment && folders.iter().any(|folder| is_cache_of_uv(folder)) {
        return Some("uv tool install PACKAGE");
    }
    None
}

/// Checks whether a folder's name is the name of a folder in uv's cache, such as `archive-v0` or
/// `environments-v2`.
fn is_cache_of_uv(folder: &str) -> bool {
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
