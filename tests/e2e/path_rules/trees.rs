//! Random numbers, and random trees of files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

pub(super) const FOLDERS: [&str; 4] = ["a", "b", "Cc", "d.d"];
pub(super) const FILES: [&str; 4] = ["x.txt", "y.env", "Z.txt", "a"];

/// Reproducible numbers from a seed.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).expect("it is small"))
            .expect("it is small")
    }

    pub(super) fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// The object at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    Folder,
    File(String),
    Link(PathBuf),
}

pub(super) type Tree = BTreeMap<PathBuf, Thing>;

/// Everything below a folder, by relative path.
pub(super) fn tree(folder: &Path) -> Tree {
    let mut all = Tree::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(&path).expect("it is readable") {
            let (path, kind) =
                entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))).expect("an entry");
            let thing = match () {
                () if kind.is_dir() => Thing::Folder,
                () if kind.is_symlink() => Thing::Link(fs::read_link(&path).expect("it is a link")),
                () => Thing::File(fs::read_to_string(&path).expect("it is text")),
            };
            if kind.is_dir() {
                pending.push(path.clone());
            }
            all.insert(path.strip_prefix(folder).expect("it is below").to_owned(), thing);
        }
    }
    all
}

/// Fills an empty folder. Each file holds its own mark.
pub(super) fn plant(random: &mut Random, folder: &Path) {
    fn fill(random: &mut Random, root: &Path, at: &Path, depth: usize, marks: &mut usize) {
        for name in FILES {
            if random.one_in(2) && !root.join(at).join(name).exists() {
                *marks += 1;
                fs::write(root.join(at).join(name), format!("mark<{marks}>\n"))
                    .expect("a file is written");
            }
        }
        for name in FOLDERS.iter().filter(|_| depth < 3) {
            if random.one_in(depth + 2) && !root.join(at).join(name).exists() {
                fs::create_dir(root.join(at).join(name)).expect("a folder is made");
                fill(random, root, &at.join(name), depth + 1, marks);
            }
        }
    }
    let mut marks = 0;
    fill(random, folder, Path::new(""), 0, &mut marks);
    let known: Vec<PathBuf> = tree(folder).into_keys().collect();
    for number in 0..random.below(3).min(known.len()) {
        let target = folder.join(random.pick(&known));
        symlink(target, folder.join(format!("link{number}"))).expect("a link is made");
    }
}
