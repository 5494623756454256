//! Compiled code kept from one run to the next.

use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use rustix::fs::{Mode, OFlags};
use wasmtime::Engine;
use wasmtime::component::Component;

use crate::compiled;

/// A folder that only this user can change. Compiled code can't be checked, so it is mapped from nowhere else.
#[derive(Debug)]
pub(crate) struct Cache(Dir);

impl Cache {
    /// Opens the folder, making it where it is missing. `Err` says why it can't be trusted; the caller compiles anew instead.
    pub(crate) fn open(folder: &Path) -> Result<Self, String> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| error.to_string())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::open(folder, flags, Mode::empty()).map_err(|errno| errno.to_string())?;
        private(&handle, 0o077)?;
        Ok(Self(Dir::from_std_file(File::from(handle))))
    }

    /// The component of a key, where it was kept by a compatible engine.
    pub(crate) fn get(&self, engine: &Engine, key: &str) -> Option<Component> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0));
        let file = self.0.open_with(key, &options).ok()?.into_std();
        if let Err(reason) = private(&file, 0o022) {
            tracing::warn!("not used from the compile cache: {key}: {reason}");
            return None;
        }
        compiled::of_the_cache(engine, &file).map_err(|error| tracing::warn!("not used from the compile cache: {key}: {error:#}")).ok()
    }

    /// Keeps code under a key: written aside, then renamed, since a file that is mapped must never change.
    pub(crate) fn put(&self, key: &str, code: &[u8]) -> std::io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let aside = format!("{key}.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let written = self.0.open_with(&aside, &options).and_then(|mut file| {
            std::io::Write::write_all(&mut file, code)?;
            file.sync_all()
        });
        let kept = written.and_then(|()| self.0.rename(&aside, &self.0, key));
        if kept.is_err() {
            let _ = self.0.remove_file(&aside);
        }
        kept
    }
}

/// Whether something belongs to this user, and no one else may do what `others` says.
fn private(handle: &impl std::os::fd::AsFd, others: u32) -> Result<(), String> {
    let stat = rustix::fs::fstat(handle).map_err(|errno| errno.to_string())?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(format!("it belongs to user {}, not to the one who runs Berth", stat.st_uid));
    }
    if stat.st_mode & others != 0 {
        return Err(format!("others may use it (mode {:o}); `chmod go-rwx` it", stat.st_mode & 0o7777));
    }
    Ok(())
}
