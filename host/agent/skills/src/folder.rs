//! Reads files in the folder of a skill. Files are opened from the folder's handle without
//! following links, and their sizes and owners are checked.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RawMode, Stat, fstat, openat, statat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

/// A skill with more files and folders is refused.
pub(crate) const MAX_FILES: usize = 2000;

/// A skill with more bytes is refused.
pub(crate) const MAX_TREE: u64 = 50_000_000;

const MAX_DEPTH: usize = 16;

const MAX_PATH: usize = 1024;

/// The reason why a skill's folder or file can't be read.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The owner of the file is neither the current user nor root.
    #[error("the owner is user {0}, neither you nor root")]
    Owner(u32),
    /// Other users can write to the file.
    #[error(
        "other users can write to the skill; check the skill's files, then run `chmod -R go-w` on \
         the folder"
    )]
    Writable,
    /// The file is a link.
    #[error("this is a link, and links aren't followed")]
    Link,
    /// The file doesn't exist.
    #[error("the file or folder doesn't exist")]
    Missing,
    /// The file is neither a regular file nor a link.
    #[error("this isn't a regular file")]
    NotAFile,
    /// The system's error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A path is too long or contains a NUL byte.
    #[error("the path has more than {MAX_PATH} bytes or a NUL byte")]
    InvalidPath,
    /// A path may lead out of the folder.
    #[error(
        "the path has to stay in the skill's folder, without `..` and without `/` at the start"
    )]
    Outside,
    /// A path has no file name.
    #[error("the path names no file")]
    EmptyPath,
    /// Folders are nested too deeply.
    #[error("the folder has more than {MAX_DEPTH} levels of folders, the limit")]
    TooDeep,
    /// There are too many files.
    #[error("the folder has more than {MAX_FILES} files and folders, the limit")]
    TooManyFiles,
    /// The files are too large together.
    #[error("the folder's files have more than {MAX_TREE} bytes, the limit")]
    TooLarge,
    /// A file has a name that isn't text.
    #[error("a file name in the folder isn't UTF-8")]
    NotUtf8,
    /// One of the files can't be read.
    #[error("{path}: {error}")]
    File {
        /// The path of the file in the folder.
        path: String,
        /// The reason.
        error: Box<Self>,
    },
}

impl From<Errno> for FolderError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::LOOP => Self::Link,
            Errno::NOENT => Self::Missing,
            error => Self::Io(error.into()),
        }
    }
}

/// The bits of a file's mode that let the group and all users write.
const WRITABLE_BY_OTHERS: RawMode = 0o022;

/// The bits of a file's mode that let the owner, the group or all users execute.
const EXECUTABLE: RawMode = 0o111;

/// The users who may own and write a skill's files.
#[derive(Clone, Copy, Debug)]
pub enum Owners {
    /// The current user and root.
    User,
    /// Every user, because the digest makes sure that a person has seen the bytes.
    Any,
}

impl Owners {
    /// Checks that only the allowed users can write a file or folder.
    fn check(self, stat: &Stat) -> Result<(), FolderError> {
        if let Self::Any = self {
            return Ok(());
        }
        let user = rustix::process::geteuid().as_raw();
        let root = 0;
        if stat.st_uid != user && stat.st_uid != root {
            return Err(FolderError::Owner(stat.st_uid));
        }
        let is_writable_by_others = stat.st_mode & WRITABLE_BY_OTHERS != 0;
        if is_writable_by_others { Err(FolderError::Writable) } else { Ok(()) }
    }
}

/// An open folder.
#[derive(Debug)]
pub struct SkillFolder {
    dir: OwnedFd,
    /// The real path of the folder.
    pub path: PathBuf,
    owners: Owners,
}

/// The content of a file.
#[derive(Debug)]
pub struct FileBytes {
    /// The bytes, cut at the limit of the reader.
    pub bytes: Vec<u8>,
    /// Whether the file has more bytes.
    pub is_truncated: bool,
}

/// A file of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFile {
    /// The path of the file in the folder.
    pub path: String,
    /// The size in bytes.
    pub size: u64,
    /// Whether the owner of the file may execute it.
    pub is_executable: bool,
    /// The SHA-256 of the content. Empty if the content wasn't read.
    pub digest: Vec<u8>,
}

/// The files of a folder, sorted by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileTree {
    /// The regular files.
    pub files: Vec<TreeFile>,
    /// Links and other entries that aren't regular files.
    pub others: Vec<String>,
    /// The files that other users may have written, each with the reason.
    pub foreign: Vec<String>,
}

impl FileTree {
    /// Returns the SHA-256 of all paths, sizes, rights and contents, in hexadecimal digits.
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new_with_prefix("skill");
        for file in &self.files {
            // Without its length, the path could run into the fields after it.
            hasher.update((file.path.len() as u64).to_le_bytes());
            hasher.update(&file.path);
            hasher.update(file.size.to_le_bytes());
            hasher.update([u8::from(file.is_executable)]);
            hasher.update(&file.digest);
        }
        format!("{:x}", hasher.finalize())
    }

    pub(crate) fn has(&self, path: &str, bytes: &[u8]) -> bool {
        let digest = Sha256::digest(bytes);
        self.files.iter().any(|file| file.path == path && file.digest == digest[..])
    }
}

impl SkillFolder {
    /// Opens a folder by its real path.
    pub fn open(path: &Path, owners: Owners) -> Result<Self, FolderError> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        owners.check(&fstat(&dir)?)?;
        Ok(Self { dir, path: path.to_owned(), owners })
    }

    /// Opens a subfolder. Returns `None` if there is no subfolder with this name.
    pub fn folder(&self, name: &str) -> Option<Result<Self, FolderError>> {
        let dir = match open_folder(self.dir.as_fd(), name) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return None,
            Err(error) => return Some(Err(error.into())),
        };
        Some(self.check_child(dir, name))
    }

    fn check_child(&self, dir: OwnedFd, name: &str) -> Result<Self, FolderError> {
        self.owners.check(&fstat(&dir)?)?;
        Ok(Self { dir, path: self.path.join(name), owners: self.owners })
    }

    /// Returns at most `max_names` sorted names in the folder, and whether the folder has more
    /// names. Hidden names and names that aren't UTF-8 are left out.
    pub fn names(&self, max_names: usize) -> Result<(Vec<String>, bool), FolderError> {
        let mut names = Vec::new();
        let mut is_truncated = false;
        for entry in Dir::read_from(&self.dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name.starts_with('.') {
                continue;
            }
            if names.len() == max_names {
                is_truncated = true;
                break;
            }
            names.push(name.to_owned());
        }
        names.sort_unstable();
        Ok((names, is_truncated))
    }

    /// Checks whether the folder has an entry with this name, even if the entry is a link to a
    /// missing target.
    pub fn has(&self, name: &str) -> bool {
        statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Reads the first `max_bytes` bytes of the file at `path` in the folder. Each folder on the
    /// path is opened from its parent, so that no link leads out of the folder.
    pub(crate) fn read(&self, path: &str, max_bytes: u64) -> Result<FileBytes, FolderError> {
        let path = plain_path(path)?;
        let (folders, file_name) = path.rsplit_once('/').unwrap_or(("", &path));

        // The last opened folder on the path, or `None` if this is the skill's folder itself.
        let mut innermost: Option<OwnedFd> = None;
        for name in folders.split_terminator('/') {
            let parent = innermost.as_ref().map_or(self.dir.as_fd(), AsFd::as_fd);
            let child = open_folder(parent, name)?;
            self.owners.check(&fstat(&child)?)?;
            innermost = Some(child);
        }

        let parent = innermost.as_ref().map_or(self.dir.as_fd(), AsFd::as_fd);
        let mut file = self.open_file(parent, file_name)?;
        let mut bytes = Vec::new();
        // Read one byte more, to see whether the file is longer.
        (&mut file).take(max_bytes + 1).read_to_end(&mut bytes)?;
        let is_truncated = bytes.len() as u64 > max_bytes;
        bytes.truncate(usize::try_from(max_bytes).unwrap_or(usize::MAX));
        Ok(FileBytes { bytes, is_truncated })
    }

    /// Opens a regular file. Fails without blocking if the name belongs to a pipe or a device.
    fn open_file(&self, dir: BorrowedFd<'_>, name: &str) -> Result<File, FolderError> {
        // Opening a device may have an effect, so the type is checked first.
        check_regular(&statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?)?;

        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::RDONLY;
        let file = openat(dir, name, flags, Mode::empty())?;
        // Another process may have replaced the file since the first check, so check again.
        let stat = fstat(&file)?;
        check_regular(&stat)?;
        self.owners.check(&stat)?;
        Ok(File::from(file))
    }

    /// Lists all files below the folder, with digests of their contents if `reads_files` is set.
    /// Fails if there are too many files, bytes or levels, or if a file can't be read.
    pub(crate) fn tree(&self, reads_files: bool) -> Result<FileTree, FolderError> {
        let mut builder =
            TreeBuilder { tree: FileTree::default(), entries: 0, bytes: 0, reads_files };
        let top_path = "";
        let depth = 0;
        self.walk(self.dir.as_fd(), top_path, depth, &mut builder)?;
        builder.tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        builder.tree.others.sort_unstable();
        Ok(builder.tree)
    }

    /// Adds the files below the folder `dir` to `builder`. Their paths start with `parent`, the
    /// path of this folder.
    fn walk(
        &self,
        dir: BorrowedFd<'_>,
        parent: &str,
        depth: usize,
        builder: &mut TreeBuilder,
    ) -> Result<(), FolderError> {
        if depth > MAX_DEPTH {
            return Err(FolderError::TooDeep);
        }
        for entry in Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_str().map_err(|_| FolderError::NotUtf8)?;
            if matches!(name, "." | "..") {
                continue;
            }
            let path = if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") };

            builder.entries += 1;
            if builder.entries > MAX_FILES {
                return Err(FolderError::TooManyFiles);
            }

            let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let file_type = FileType::from_raw_mode(stat.st_mode);
            // Links aren't followed, so it doesn't matter who owns them.
            let is_link = file_type.is_symlink();
            if !is_link && let Err(error) = self.owners.check(&stat) {
                builder.tree.foreign.push(format!("{path}: {error}"));
                continue;
            }
            match file_type {
                FileType::Directory => {
                    let child = open_folder(dir, name)?;
                    self.walk(child.as_fd(), &path, depth + 1, builder)?;
                }
                FileType::RegularFile => match self.open_file(dir, name) {
                    Ok(file) => builder.add(file, path)?,
                    Err(error) => return Err(FolderError::File { path, error: error.into() }),
                },
                _ => builder.tree.others.push(path),
            }
        }
        Ok(())
    }
}

struct TreeBuilder {
    tree: FileTree,
    entries: usize,
    bytes: u64,
    reads_files: bool,
}

impl TreeBuilder {
    /// Adds a file to the tree. With `reads_files`, makes the file's digest, unless the file is too
    /// large for the limit. Fails if the tree has more bytes than the limit.
    fn add(&mut self, mut file: File, path: String) -> Result<(), FolderError> {
        let stat = fstat(&file)?;
        let mut size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        let mut digest = Vec::new();
        let remaining = MAX_TREE - self.bytes;
        if self.reads_files && size <= remaining {
            let mut hasher = Sha256::new();
            // The file may have grown since `fstat`. Read up to one byte more than the limit
            // allows, so that the check below notices this.
            let mut bounded = (&mut file).take(remaining + 1);
            size = io::copy(&mut bounded, &mut hasher)?;
            digest = hasher.finalize().to_vec();
        }

        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > MAX_TREE {
            return Err(FolderError::TooLarge);
        }
        let is_executable = stat.st_mode & EXECUTABLE != 0;
        self.tree.files.push(TreeFile { path, size, is_executable, digest });
        Ok(())
    }
}

/// Returns the path of a file without empty parts and `.`. Fails if the path may lead out of the
/// folder.
pub(crate) fn plain_path(path: &str) -> Result<String, FolderError> {
    if path.len() > MAX_PATH || path.contains('\0') {
        return Err(FolderError::InvalidPath);
    }
    let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    if path.starts_with('/') || names.contains(&"..") {
        return Err(FolderError::Outside);
    }
    if names.is_empty() { Err(FolderError::EmptyPath) } else { Ok(names.join("/")) }
}

fn open_folder(above: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    openat(above, name, flags, Mode::empty())
}

fn check_regular(stat: &Stat) -> Result<(), FolderError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(FolderError::Link),
        _ => Err(FolderError::NotAFile),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn world() -> (tempfile::TempDir, SkillFolder) {
        let root = tempfile::tempdir().expect("a temporary folder");
        let path = root.path().canonicalize().expect("it is there").join("skill");
        fs::create_dir_all(path.join("scripts")).expect("a folder is made");
        fs::write(path.join("SKILL.md"), "text").expect("a file is written");
        fs::write(path.join("scripts/a.sh"), "echo").expect("a file is written");
        fs::write(root.path().join("secret"), "secret").expect("a file is written");
        let folder = SkillFolder::open(&path, Owners::User).expect("it is the user's");
        (root, folder)
    }

    #[test]
    fn reading_stays_in_the_folder() {
        let (_root, folder) = world();
        symlink("../secret", folder.path.join("link")).expect("a link is made");
        symlink("..", folder.path.join("up")).expect("a link is made");
        let read = |path: &str| folder.read(path, 100).map(|read| read.bytes);
        assert_eq!(read("./scripts//a.sh").expect("it is there"), b"echo");
        let outside = folder.path.join("../secret");
        let outside = outside.to_str().expect("it is text");
        for path in
            ["../secret", "scripts/../../secret", "link", "up/secret", outside, "", ".", "x"]
        {
            read(path).expect_err(path);
        }
        read("scripts").expect_err("it is a folder");
        read(&"x/".repeat(600)).expect_err("it is long");
        let cut = folder.read("SKILL.md", 3).expect("it is there");
        assert_eq!((cut.bytes.as_slice(), cut.is_truncated), (&b"tex"[..], true));
    }

    #[test]
    fn digest_is_of_names_sizes_bytes_and_rights() {
        let (_root, folder) = world();
        let mut digests = vec![folder.tree(true).expect("it is small").digest()];
        let mut differs = |what: &str| {
            let digest = folder.tree(true).expect("it is small").digest();
            assert!(!digests.contains(&digest), "{what}");
            digests.push(digest);
        };
        fs::write(folder.path.join("SKILL.md"), "tExt").expect("a file is written");
        differs("bytes");
        fs::rename(folder.path.join("scripts/a.sh"), folder.path.join("scripts/b.sh"))
            .expect("it is renamed");
        differs("a name");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path.join("scripts/b.sh"), mode).expect("its mode is set");
        differs("a right");
        fs::write(folder.path.join("new"), "").expect("a file is written");
        differs("a file");
    }

    #[test]
    fn trees_are_bounded() {
        let (_root, folder) = world();
        let large = fs::File::create(folder.path.join("large")).expect("a file is made");
        large.set_len(MAX_TREE + 1).expect("it grows");
        for reads in [true, false] {
            let error = folder.tree(reads).expect_err("it is large");
            assert!(matches!(error, FolderError::TooLarge), "{error}");
        }
        fs::remove_file(folder.path.join("large")).expect("it is removed");
        let deep = folder.path.join("d/".repeat(MAX_DEPTH + 2));
        fs::create_dir_all(deep).expect("folders are made");
        let error = folder.tree(true).expect_err("it is deep");
        assert!(matches!(error, FolderError::TooDeep), "{error}");
        fs::remove_dir_all(folder.path.join("d")).expect("they are removed");
        for number in 0..MAX_FILES {
            fs::write(folder.path.join(number.to_string()), "").expect("a file is written");
        }
        let error = folder.tree(true).expect_err("it has many");
        assert!(matches!(error, FolderError::TooManyFiles), "{error}");
    }

    #[test]
    fn what_others_may_write_is_not_the_users() {
        let (_root, folder) = world();
        let file = folder.path.join("SKILL.md");
        for mode in [0o666, 0o662, 0o620] {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("its mode is set");
            folder.read("SKILL.md", 10).expect_err("others may write");
            let tree = folder.tree(false).expect("it is small");
            assert!(tree.foreign.len() == 1 && tree.files.len() == 1, "{tree:?}");
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("its mode is set");
        fs::set_permissions(&folder.path, fs::Permissions::from_mode(0o777)).expect("it is set");
        SkillFolder::open(&folder.path, Owners::User).expect_err("others may write");
        SkillFolder::open(&folder.path, Owners::Any).expect("its digest counts");
    }
}
