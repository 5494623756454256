//! Decides which checkers fit a folder, and which other projects lie below it.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::checker::{Checker, Language, MAX_ENTRIES, has_ending, up};
use crate::finding::one_line;

/// How far below a folder other projects are looked for: levels, folders, and bytes of the file
/// with ignored names.
const MAX_LEVELS: usize = 3;
const MAX_FOLDERS: usize = 100;
const MAX_IGNORED: u64 = 64 << 10;

/// Most projects that are named, and bytes of a name.
const MAX_NAMED: usize = 8;
const MAX_NAME: usize = 200;

/// Folders with third-party files, or with files of a build.
const FOREIGN: &[&str] =
    &["node_modules", "target", "dist", "build", "out", "vendor", "venv", "__pycache__"];

/// A project below the folder, and what would check it.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Other {
    /// Its folder, relative to the working directory.
    pub(crate) path: String,
    /// The checkers that fit it.
    pub(crate) checkers: Vec<&'static str>,
}

/// Of `wanted`, the checkers that fit, each with the folder that it runs in: the nearest one that
/// is for it, from `folder` upwards.
pub(crate) fn roots(folder: &Path, top: &Path, wanted: &[Checker]) -> Vec<(Checker, PathBuf)> {
    wanted.iter().filter_map(|checker| Some((*checker, checker.root(folder, top)?))).collect()
}

/// Of these, the ones that fit the nearest project: its folder decides of which languages they are,
/// so that a project within another one isn't checked with what is outside.
pub(crate) fn fitting(folder: &Path, top: &Path, wanted: &[Checker]) -> Vec<(Checker, PathBuf)> {
    let languages = languages(folder, top, wanted);
    // Files of a language in the folder itself fit in any case.
    roots(folder, top, wanted)
        .into_iter()
        .filter(|(checker, root)| {
            languages.is_empty() || languages.contains(&checker.language()) || root == folder
        })
        .collect()
}

/// The languages of the nearest folder with a project for which a checker is wanted.
pub(crate) fn languages(folder: &Path, top: &Path, wanted: &[Checker]) -> Vec<Language> {
    for at in up(folder, top) {
        let languages: Vec<Language> = Language::ALL
            .into_iter()
            .filter(|language| wanted.iter().any(|one| one.language() == *language))
            .filter(|language| {
                language.files().any(|name| at.join(name).is_file())
                    || *language == Language::Python && at == folder && is_of_python(at)
            })
            .collect();
        if !languages.is_empty() {
            return languages;
        }
    }
    Vec::new()
}

/// Whether a folder has sources of Python, and of no other language. It needs no file that marks
/// it.
fn is_of_python(folder: &Path) -> bool {
    const OTHERS: [&str; 5] = [".rs", ".go", ".js", ".ts", ".tsx"];
    has_ending(folder, ".py") && !OTHERS.iter().any(|ending| has_ending(folder, ending))
}

/// The projects below `folder` for these checkers: the first ones, and whether there are more.
pub(crate) fn others(folder: &Path, top: &Path, checkers: &[Checker]) -> (Vec<Other>, bool) {
    let mut others = Vec::new();
    if checkers.is_empty() {
        return (others, false);
    }
    let ignored = ignored(folder);
    let mut waiting = VecDeque::from([(folder.to_owned(), 0)]);
    let mut left = MAX_FOLDERS;
    while let Some((at, level)) = waiting.pop_front() {
        if left == 0 {
            break;
        }
        left -= 1;
        let mut names = Vec::new();
        let mut folders = Vec::new();
        for entry in fs::read_dir(&at).into_iter().flatten().take(MAX_ENTRIES).flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // A link isn't followed.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(name),
                _ => names.push(name),
            }
        }
        let fitting: Vec<&str> = match level {
            0 => Vec::new(),
            _ => checkers
                .iter()
                .filter(|checker| names.iter().any(|name| checker.is_marked_by(name)))
                .map(|checker| checker.name())
                .collect(),
        };
        if !fitting.is_empty() {
            if others.len() == MAX_NAMED {
                return (others, true);
            }
            let path = at.strip_prefix(top).unwrap_or(&at).to_string_lossy();
            others.push(Other { path: one_line(&path, MAX_NAME), checkers: fitting });
        } else if level < MAX_LEVELS {
            folders.retain(|name| {
                !name.starts_with('.') && !FOREIGN.contains(&&**name) && !ignored.contains(name)
            });
            folders.sort();
            // More can't be looked at.
            folders.truncate(left);
            waiting.extend(folders.into_iter().map(|name| (at.join(name), level + 1)));
        }
    }
    (others, false)
}

/// `front (tsc, eslint), tools (go) and others`.
pub(crate) fn named((others, has_more): &(Vec<Other>, bool)) -> String {
    let names: Vec<String> = others
        .iter()
        .map(|other| format!("{} ({})", other.path, other.checkers.join(", ")))
        .collect();
    names.join(", ") + if *has_more { " and others" } else { "" }
}

/// The folders that `.gitignore` names without a pattern.
fn ignored(folder: &Path) -> Vec<String> {
    let file = folder.join(".gitignore");
    let is_short = fs::metadata(&file).is_ok_and(|meta| meta.len() <= MAX_IGNORED);
    let text = if is_short { fs::read_to_string(&file).unwrap_or_default() } else { String::new() };
    text.lines().map(|line| line.trim().trim_matches('/').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        dir
    }

    #[track_caller]
    fn fits(dir: &tempfile::TempDir, path: &str, wanted: &[Checker], expected: &[(Checker, &str)]) {
        let top = dir.path();
        let found = fitting(&top.join(path), top, wanted);
        let expected: Vec<(Checker, PathBuf)> =
            expected.iter().map(|(checker, root)| (*checker, top.join(root))).collect();
        let same = found.iter().map(|(_, root)| root.components().collect::<PathBuf>());
        let roots = expected.iter().map(|(_, root)| root.components().collect::<PathBuf>());
        assert!(same.eq(roots), "{path}: {found:?}");
        assert!(found.iter().map(|one| one.0).eq(expected.iter().map(|one| one.0)), "{found:?}");
    }

    #[test]
    fn nearest_project_decides_which_checkers_fit() {
        use Checker::{Cargo, Eslint, Mypy, Ruff, Tsc};
        let dir = with(&[
            "Cargo.toml",
            "eslint.config.js",
            "src/lib.rs",
            "src/gen.py",
            "tools/gen.py",
            "front/tsconfig.json",
            "front/src/a.ts",
            "web/package.json",
            "docs/a.txt",
        ]);
        fits(&dir, "", &Checker::ALL, &[(Cargo, ""), (Eslint, "")]);
        fits(&dir, "front/src", &Checker::ALL, &[(Tsc, "front"), (Eslint, "")]);
        fits(&dir, "web", &Checker::ALL, &[(Eslint, "")]);
        fits(&dir, "web", &[Cargo, Tsc], &[]);
        fits(&dir, "docs", &Checker::ALL, &[(Cargo, ""), (Eslint, "")]);
        let here = [(Cargo, ""), (Eslint, ""), (Ruff, "src"), (Mypy, "src")];
        fits(&dir, "src", &Checker::ALL, &here);
        fits(&dir, "tools", &Checker::ALL, &[(Ruff, "tools"), (Mypy, "tools")]);
        fits(&dir, "tools", &[Cargo], &[(Cargo, "")]);
        // What is named is looked for by itself.
        let named = roots(&dir.path().join("front"), dir.path(), &[Cargo, Tsc]);
        assert_eq!(named, [(Cargo, dir.path().join("")), (Tsc, dir.path().join("front"))]);
    }

    #[test]
    fn projects_below_are_named_and_what_is_foreign_is_not() {
        let dir = with(&[
            "Cargo.toml",
            "front/tsconfig.json",
            "front/inner/tsconfig.json",
            "a/b/c/go.mod",
            "a/b/c/d/e/go.mod",
            "deep/1/2/3/go.mod",
            "node_modules/x/tsconfig.json",
            "target/x/tsconfig.json",
            ".git/tsconfig.json",
            "made/tsconfig.json",
            "crates/one/Cargo.toml",
        ]);
        fs::write(dir.path().join(".gitignore"), "*.log\n/made/\n").unwrap();
        std::os::unix::fs::symlink("front", dir.path().join("link")).unwrap();
        let found = others(dir.path(), dir.path(), &[Checker::Tsc, Checker::Go]);
        assert_eq!(named(&found), "front (tsc), a/b/c (go)");
        assert_eq!(others(dir.path(), dir.path(), &[]), (Vec::new(), false));
    }

    #[test]
    fn search_below_is_bounded() {
        let files: Vec<String> = (0..30).map(|n| format!("p{n:02}\n[x/tsconfig.json")).collect();
        let dir = with(&files.iter().map(String::as_str).collect::<Vec<_>>());
        let found = others(dir.path(), dir.path(), &[Checker::Tsc]);
        assert_eq!((found.0.len(), found.1), (MAX_NAMED, true));
        assert!(!named(&found).contains('\n'), "a name can't add a line");
        let files: Vec<String> = (0..300).map(|n| format!("p{n:03}/a")).collect();
        let dir = with(&files.iter().map(String::as_str).collect::<Vec<_>>());
        fs::write(dir.path().join("p299/tsconfig.json"), "").unwrap();
        assert!(others(dir.path(), dir.path(), &[Checker::Tsc]).0.is_empty());
    }
}
