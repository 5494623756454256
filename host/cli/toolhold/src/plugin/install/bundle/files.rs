//! Plans and checks the bundle's files that aren't plugins: filter rules and a ceiling.

use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, Mode};
use toolhold_core::config::{Config, Folders, Inputs};
use toolhold_core::text::{counted, neutral_line};
use toolhold_core::{FilePlace, HostError, config};
use toolhold_data_dir::PrivateFolder;

use super::{BundleContents, CEILING, CEILING_SIGNATURE, FILTERS, refused};

/// Lines of a file that are shown.
const SHOWN: usize = 60;

/// The file with the keys that sign a ceiling, next to the ceiling.
const CEILING_KEYS: &str = "ceiling.pub";

/// Bytes of a file that would be replaced.
const MAX_BEFORE: u64 = 4 << 20;

/// A file that a bundle installs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedFile {
    /// The place of the file.
    pub(crate) place: FilePlace,
    pub(crate) content: Vec<u8>,
    /// The current content of the file.
    pub(crate) before: Option<Vec<u8>>,
}

impl PlannedFile {
    fn new(folder: &Path, name: &str, content: Vec<u8>) -> Result<Self, HostError> {
        let place = FilePlace { folder: folder.to_owned(), name: name.to_owned() };
        let before = read(&place)?;
        Ok(Self { place, content, before })
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> PathBuf {
        self.place.folder.join(&self.place.name)
    }

    /// Checks whether the file has the content already.
    pub(crate) fn is_same(&self) -> bool {
        self.before.as_ref() == Some(&self.content)
    }

    /// Checks that the file hasn't changed since it was shown.
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

/// The place and the first lines of the file, for people.
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

/// Reads a file that would be replaced. Returns `None` if the file doesn't exist.
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

/// Plans the user's filter rules. Returns `None` if the bundle has no filter rules.
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
    // In any other folder, tools may be able to change the rules.
    if loaded.filter_rules_path(folders, working_directory) != folders.config.join(FILTERS) {
        return Err(refused(
            &contents.path,
            "the bundle has filters, but your filter rules aren't in `filters.toml` in your \
             configuration's folder; leave the bundle's filters out with `--without filters`",
        ));
    }
    PlannedFile::new(&folders.config, FILTERS, filters).map(Some)
}

/// Plans the organisation's ceiling. Its signature comes first. Returns no files if the bundle has
/// no ceiling.
pub(super) fn plan_ceiling(
    contents: &BundleContents,
    folders: &Folders,
    inputs: &Inputs,
) -> Result<Vec<PlannedFile>, HostError> {
    let Some(ceiling) = contents.ceiling.clone() else { return Ok(Vec::new()) };
    let no_place = "the bundle has a ceiling, but this process has no place for a ceiling";
    let Some(path) = &inputs.ceiling else { return Err(refused(&contents.path, no_place)) };
    let Some(folder) = path.parent() else { return Err(refused(&contents.path, no_place)) };
    if !may_write(folder) {
        let why = format!(
            "the bundle has a ceiling, but this user can't write {}; run the command as root, or \
             leave the ceiling out with `--without ceiling`",
            path.display()
        );
        return Err(refused(&contents.path, why));
    }
    let signature = FilePlace { folder: folder.to_owned(), name: CEILING_SIGNATURE.to_owned() };
    if contents.ceiling_signature.is_none() && read(&signature)?.is_some() {
        let why = format!(
            "the bundle's ceiling isn't signed, but {} is the signature of another ceiling; remove \
             that file first",
            folder.join(CEILING_SIGNATURE).display()
        );
        return Err(refused(&contents.path, why));
    }

    // The ceiling is loaded with the keys of this machine, as at every later start.
    let private = contents.bundle.path();
    let keys = FilePlace { folder: folder.to_owned(), name: CEILING_KEYS.to_owned() };
    if let Some(keys) = read(&keys)? {
        PrivateFolder::open(private)
            .and_then(|private| private.put(CEILING_KEYS, &keys))
            .map_err(HostError::io(private.display().to_string()))?;
    }
    load_with(Inputs { ceiling: Some(private.join(CEILING)), ..inputs.clone() }, folders)?;
    let mut planned = Vec::new();
    if let Some(signature) = contents.ceiling_signature.clone() {
        planned.push(PlannedFile::new(folder, CEILING_SIGNATURE, signature)?);
    }
    planned.push(PlannedFile::new(folder, CEILING, ceiling)?);
    Ok(planned)
}

/// Checks whether this process is root and can write to the folder, or make the folder.
fn may_write(folder: &Path) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    match (check_write(folder), folder.parent()) {
        (Err(rustix::io::Errno::NOENT), Some(parent)) => check_write(parent).is_ok(),
        (result, _) => result.is_ok(),
    }
}

fn check_write(path: &Path) -> rustix::io::Result<()> {
    rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)
}

/// Makes the folders that the files need. Every user reads the ceiling.
pub(super) fn make_folders(
    filters: Option<&PlannedFile>,
    ceiling: &[PlannedFile],
) -> Result<(), HostError> {
    if let Some(PlannedFile { place, .. }) = filters {
        PrivateFolder::make(&place.folder).map_err(creating(&place.folder))?;
    }
    if let Some(PlannedFile { place, .. }) = ceiling.first() {
        match rustix::fs::mkdirat(CWD, &place.folder, Mode::from_raw_mode(0o755)) {
            Err(rustix::io::Errno::EXIST) => {}
            // The process's mask for new files doesn't apply to a later change.
            result => result
                .and_then(|()| rustix::fs::chmod(&place.folder, Mode::from_raw_mode(0o755)))
                .map_err(|error| creating(&place.folder)(error.into()))?,
        }
    }
    Ok(())
}

fn creating(folder: &Path) -> impl FnOnce(std::io::Error) -> HostError {
    HostError::io(format!("creating {}", folder.display()))
}

/// Checks that the configuration loads with a ceiling. With a ceiling that doesn't load, Toolhold
/// can't start.
pub(super) fn check_ceiling(
    path: &Path,
    folders: &Folders,
    inputs: &Inputs,
) -> Result<(), HostError> {
    let mut inputs = Inputs { ceiling: None, ..inputs.clone() };
    inputs.variables.retain(|(name, _)| name != "TOOLHOLD_CEILING");
    inputs.variables.push(("TOOLHOLD_CEILING".into(), path.into()));
    load_with(inputs, folders)
}

fn load_with(inputs: Inputs, folders: &Folders) -> Result<(), HostError> {
    config::load(folders, &inputs).map(drop).map_err(|problems| HostError::Load {
        plugin: "the ceiling can't be used".to_owned(),
        reason: HostError::from(problems).to_string(),
    })
}
