//! Programs that lie in the cache of a package runner, and how clients start those.

use std::path::Path;

/// The words that start the package of this name and version again, if its program lies in the
/// cache of `npx` or `uvx`: the cache may be emptied, so the path of the program is no good. It is
/// told by the program's own path.
pub fn runner(program: &Path, name: &str, version: &str) -> Option<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let package = format!("{name}@{version}");
    let folders: Vec<&str> =
        program.parent()?.iter().filter_map(|folder| folder.to_str()).collect();
    // npx: …/_npx/HASH/node_modules/PACKAGE/bin
    if let Some(at) = folders.iter().position(|folder| *folder == "_npx")
        && folders.get(at + 2) == Some(&"node_modules")
    {
        return Some(words(&["npx", "-y", &package]));
    }
    // uvx: an environment of Python in a folder of uv's cache, …/archive-v0/HASH/bin
    let is_environment = program.ancestors().nth(2)?.join("pyvenv.cfg").is_file();
    let is_cache = |folder: &&str| {
        ["archive-v", "environments-v"].iter().any(|kind| {
            folder.strip_prefix(kind).is_some_and(|version| {
                !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
            })
        })
    };
    (is_environment && folders.iter().any(is_cache)).then(|| words(&["uvx", &package]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_in_caches_are_started_by_a_runner() {
        let root = tempfile::tempdir().expect("a folder is made");
        let started = |path: &str| runner(&root.path().join(path), "berth", "1.2.3");
        for folder in ["uv/archive-v0/abc", "uv/tools/berth", "venv"] {
            let folder = root.path().join(folder);
            std::fs::create_dir_all(&folder).expect("it is made");
            std::fs::write(folder.join("pyvenv.cfg"), "").expect("it is written");
        }
        for (path, words) in [
            (".npm/_npx/0a1/node_modules/berth-linux-x64/bin/berth", "npx -y berth@1.2.3"),
            ("uv/archive-v0/abc/bin/berth", "uvx berth@1.2.3"),
        ] {
            assert_eq!(
                started(path).map(|words| words.join(" ")).as_deref(),
                Some(words),
                "{path}"
            );
        }
        for path in [
            "lib/node_modules/berth-linux-x64/bin/berth",
            "project/node_modules/berth-linux-x64/bin/berth",
            "_npx/bin/berth",
            "uv/tools/berth/bin/berth",
            "uv/archive-v0/other/bin/berth",
            "uv/archive-vx/bin/berth",
            "venv/bin/berth",
            ".local/bin/berth",
        ] {
            assert_eq!(started(path), None, "{path}");
        }
    }
}
