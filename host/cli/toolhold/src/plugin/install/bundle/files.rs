//! Plans and checks the installation of a bundle's filter rules and ceiling.

use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode};
use toolhold_core::config::{Config, Folders, Inputs};
use toolhold_core::text::{counted, neutral_line};
use toolhold_core::{FilePlace, HostError, config};
use toolhold_data_dir::PrivateFolder;

use super::{BundleContents, CEILING, FILTERS, refused};

/// The most shown lines of a file. More lines are only counted.
const SHOWN: usize = 60;

/// The file with the keys that may sign the ceiling.
const CEILING_KEYS: &str = "ceiling.pub";

/// The most bytes of an existing file that are read and compared.
const MAX_BEFORE: u64 = 4 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedFile {
    pub(crate) place: FilePlace,
    pub(crate) content: Vec<u8>,
    /// The current content, or `None` if the file doesn't exist.
    pub(crate) before: Option<Vec<u8>>,
}

impl PlannedFile {
    fn new(folder: &Path, name: &str, content: Vec<u8>) -> Result<Self, HostError> {
        let place = FilePlace { folder: folder.to_owned(), name: name.to_owned() };
        let before = read(&place)?;
        Ok(Self { place, content, before })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.place.folder.join(&self.place.name)
    }

    pub(crate) fn is_same(&self) -> bool {
        self.before.as_ref() == Some(&self.content)
    }

    /// Fails if another process has changed the file since the user saw the plan.
    pub(super) fn check_unchanged(&self) -> Result<(), HostError> {
        if read(&self.place)? == self.before {
            return Ok(());
        }
        Err(HostError::Load {
            plugin: neutral_line(&self.path().display().to_string()),
            reason: "another process changed the file in the meantime; try again".to_owned(),
        })
    }
}

impl fmt::Display for PlannedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effect = if self.before.is_some() { "replaces the existing file" } else { "is new" };
        writeln!(f, "{} {effect}", neutral_line(&self.path().display().to_string()))?;
        let text = String::from_utf8_lossy(&self.content);
        for line in text.lines().take(SHOWN) {
            writeln!(f, "  {}", neutral_line(line))?;
        }
        let count = text.lines().count();
        if count > SHOWN {
            writeln!(f, "  and {}", counted(count - SHOWN, "more line"))?;
        }
        Ok(())
    }
}

/// Reads the start of the file at `place`, or returns `None` if the file doesn't exist.
fn read(place: &FilePlace) -> Result<Option<Vec<u8>>, HostError> {
    let path = place.folder.join(&place.name);
    let mut bytes = Vec::new();
    let result = PrivateFolder::open(&place.folder)
        .and_then(|folder| folder.file(&place.name))
        .and_then(|file| file.take(MAX_BEFORE).read_to_end(&mut bytes));
    match result {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(HostError::io(path.display().to_string())(error)),
    }
}

/// Plans to write the bundle's filter rules, if it has rules.
pub(super) fn plan_filters(
    contents: &BundleContents,
    folders: &Folders,
    loaded: &Config,
    working_directory: &Path,
) -> Result<Option<PlannedFile>, HostError> {
    let Some(filters) = contents.filters.clone() else { return Ok(None) };
    let is_toml = match std::str::from_utf8(&filters) {
        Ok(text) => toml::from_str::<toml::Table>(text).is_ok(),
        Err(_) => false,
    };
    if !is_toml {
        return Err(refused(&contents.path, "the bundle's `filters.toml` isn't TOML"));
    }
    // Rules in other folders aren't replaced, because tools may be able to change other folders.
    let usual_path = folders.config.join(FILTERS);
    if loaded.filter_rules_path(folders, working_directory) != usual_path {
        return Err(refused(
            &contents.path,
            "the bundle has filters, but your filter rules are in another file than `filters.toml` \
             in your configuration's folder; leave out the bundle's filters with `--without \
             filters`",
        ));
    }
    PlannedFile::new(&folders.config, FILTERS, filters).map(Some)
}

/// Plans to write the bundle's ceiling, if it has a ceiling.
pub(super) fn plan_ceiling(
    contents: &BundleContents,
    folders: &Folders,
    inputs: &Inputs,
) -> Result<Option<PlannedFile>, HostError> {
    let Some(ceiling) = contents.ceiling.clone() else { return Ok(None) };
    let no_place = "the bundle has a ceiling, but this process uses no ceiling file";
    let Some(path) = &inputs.ceiling else { return Err(refused(&contents.path, no_place)) };
    let Some(folder) = path.parent() else { return Err(refused(&contents.path, no_place)) };
    if !may_write(folder) {
        let why = format!(
            "the bundle has a ceiling, but this user can't write {}; run the command as root, or \
             leave out the ceiling with `--without ceiling`",
            path.display()
        );
        return Err(refused(&contents.path, why));
    }

    // At each later start, the ceiling must be valid with this machine's keys, so it is loaded with
    // a copy of these keys.
    let private = contents.bundle.path();
    let keys = FilePlace { folder: folder.to_owned(), name: CEILING_KEYS.to_owned() };
    if let Some(keys) = read(&keys)? {
        PrivateFolder::open(private)
            .and_then(|private| private.put(CEILING_KEYS, &keys))
            .map_err(HostError::io(private.display().to_string()))?;
    }
    load_with(Inputs { ceiling: Some(private.join(CEILING)), ..inputs.clone() }, folders)?;
    PlannedFile::new(folder, CEILING, ceiling).map(Some)
}

/// Checks whether this process is root, and can write to `folder` or create it.
fn may_write(folder: &Path) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    match check_write(folder) {
        Err(rustix::io::Errno::NOENT) => match folder.parent() {
            Some(parent) => check_write(parent).is_ok(),
            None => false,
        },
        result => result.is_ok(),
    }
}

fn check_write(path: &Path) -> rustix::io::Result<()> {
    rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)
}

/// Creates the missing folders for the filters and the ceiling. All users can read the ceiling's
/// folder.
pub(super) fn make_folders(
    filters: Option<&PlannedFile>,
    ceiling: Option<&PlannedFile>,
) -> Result<(), HostError> {
    if let Some(PlannedFile { place, .. }) = filters {
        PrivateFolder::make(&place.folder).map_err(creating(&place.folder))?;
    }
    if let Some(PlannedFile { place, .. }) = ceiling {
        make_public_folder(&place.folder).map_err(|error| creating(&place.folder)(error.into()))?;
    }
    Ok(())
}

/// Creates a missing folder that all users can read.
fn make_public_folder(folder: &Path) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode(0o755);
    match rustix::fs::mkdirat(CWD, folder, mode) {
        // `mkdirat` applies the umask, but `chmod` doesn't.
        Ok(()) => rustix::fs::chmod(folder, mode),
        Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

fn creating(folder: &Path) -> impl FnOnce(std::io::Error) -> HostError {
    HostError::io(format!("creating {}", folder.display()))
}

/// Checks that the configuration can be loaded with the new ceiling. With an invalid ceiling, no
/// command of Toolhold starts.
pub(super) fn check_ceiling(
    path: &Path,
    folders: &Folders,
    inputs: &Inputs,
) -> Result<(), HostError> {
    // The new ceiling replaces the current ceilings.
    let mut inputs = Inputs { ceiling: None, ..inputs.clone() };
    inputs.variables.retain(|(name, _)| name != "TOOLHOLD_CEILING");
    inputs.variables.push(("TOOLHOLD_CEILING".into(), path.into()));
    load_with(inputs, folders)
}

fn load_with(inputs: Inputs, folders: &Folders) -> Result<(), HostError> {
    match config::load(folders, &inputs) {
        Ok(_) => Ok(()),
        Err(problems) => Err(HostError::Load {
            plugin: "the ceiling can't be used".to_owned(),
            reason: HostError::from(problems).to_string(),
        }),
    }
}
