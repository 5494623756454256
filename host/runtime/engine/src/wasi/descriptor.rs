//! The functions of `wasi:filesystem/types`: open, read, write, list, rename and remove.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use rustix::fs::{Advice, FileType, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::Errno;
use toolhold_system::files::{FileError, OpenOptions, ResolvedObject};
use wasmtime::component::Resource;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream};

use wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime;

use super::streams::{
    FileReader, FileWriter, MAX_CHUNK, Position, read_at, read_at_once, write_all_at,
};
use super::{Descriptor, EntryStream, FilesView, FsError, errors};
use crate::wasi::bindings::wasi::filesystem::types::{
    self, Advice as WasiAdvice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry,
    ErrorCode, MetadataHashValue, NewTimestamp, OpenFlags, PathFlags,
};

type FsResult<T> = Result<T, FsError>;

impl types::Host for FilesView<'_> {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        match error {
            FsError::Code(code) => Ok(code),
            FsError::Trap(error) => Err(error),
        }
    }

    async fn filesystem_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        let error = self.table.get(&error)?;
        let errno = error.downcast_ref::<std::io::Error>().and_then(Errno::from_io_error);
        Ok(errno.map(errors::code))
    }
}

// Functions that take a path.
impl FilesView<'_> {
    fn at<T>(&mut self, result: Result<T, FileError>) -> FsResult<T> {
        result.map_err(|error| self.files.error_for_guest(error))
    }
}

impl types::HostDescriptor for FilesView<'_> {
    async fn open_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: PathFlags,
        path: String,
        open: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Resource<Descriptor>> {
        let view = self.view()?;
        let parent = self.table.get(&fd)?;
        let dir = parent.directory()?;
        // Without a flag, reading is allowed, since wasi-libc opens directories without flags.
        let write = flags.contains(DescriptorFlags::WRITE);
        let how = OpenOptions {
            read: flags.contains(DescriptorFlags::READ) || !write,
            write,
            create: open.contains(OpenFlags::CREATE),
            exclusive: open.contains(OpenFlags::EXCLUSIVE),
            truncate: open.contains(OpenFlags::TRUNCATE),
            directory: open.contains(OpenFlags::DIRECTORY),
            no_follow: !path_flags.contains(PathFlags::SYMLINK_FOLLOW),
            sync: flags.intersects(
                DescriptorFlags::FILE_INTEGRITY_SYNC | DescriptorFlags::DATA_INTEGRITY_SYNC,
            ),
        };
        let parent_writable = parent.writable;
        let mut opened = Err(Errno::AGAIN.into());
        let mut prompt = parent.prompt && self.watch.is_borrowed();
        if prompt {
            opened = view.open_at_once(dir, &path, how);
        }
        if matches!(opened, Err(FileError::Errno(Errno::AGAIN))) {
            prompt = false;
            self.watch.may_block().await;
            opened = view.open_at(self.table.get(&fd)?.directory()?, &path, how);
        }
        let opened = self.at(opened)?;
        let directory = opened.kind == FileType::Directory;
        let descriptor = Descriptor {
            handle: Arc::new(opened.handle),
            directory,
            granted: false,
            readable: how.read,
            writable: if directory { parent_writable } else { how.write },
            prompt,
        };
        Ok(self.table.push(descriptor)?)
    }

    async fn stat_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: PathFlags,
        path: String,
    ) -> FsResult<DescriptorStat> {
        Ok(stat_record(&self.find(&fd, path_flags, &path).await?.stat))
    }

    async fn metadata_hash_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: PathFlags,
        path: String,
    ) -> FsResult<MetadataHashValue> {
        Ok(identity(&self.find(&fd, path_flags, &path).await?.stat))
    }

    async fn readlink_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<String> {
        self.watch.may_block().await;
        let view = self.view()?;
        let target = view.read_link(self.table.get(&fd)?.directory()?, &path);
        self.at(target)
    }

    async fn set_times_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: PathFlags,
        path: String,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> FsResult<()> {
        self.watch.may_block().await;
        let view = self.view()?;
        let times = timestamps(accessed, modified)?;
        let dir = self.table.get(&fd)?.directory()?;
        let set =
            view.set_times(dir, &path, path_flags.contains(PathFlags::SYMLINK_FOLLOW), &times);
        self.at(set)
    }

    async fn create_directory_at(
        &mut self,
        fd: Resource<Descriptor>,
        path: String,
    ) -> FsResult<()> {
        self.watch.may_block().await;
        let view = self.view()?;
        let made = view.create_directory(self.table.get(&fd)?.directory()?, &path);
        self.at(made)
    }

    async fn remove_directory_at(
        &mut self,
        fd: Resource<Descriptor>,
        path: String,
    ) -> FsResult<()> {
        self.watch.may_block().await;
        let view = self.view()?;
        let removed = view.remove_directory(self.table.get(&fd)?.directory()?, &path);
        self.at(removed)
    }

    async fn unlink_file_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        self.watch.may_block().await;
        let view = self.view()?;
        let removed = view.unlink(self.table.get(&fd)?.directory()?, &path);
        self.at(removed)
    }

    async fn rename_at(
        &mut self,
        fd: Resource<Descriptor>,
        old: String,
        new_fd: Resource<Descriptor>,
        new: String,
    ) -> FsResult<()> {
        self.watch.may_block().await;
        let view = self.view()?;
        let from = (self.table.get(&fd)?.directory()?, old.as_str());
        let to = (self.table.get(&new_fd)?.directory()?, new.as_str());
        let renamed = view.rename(from, to);
        self.at(renamed)
    }

    async fn link_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: PathFlags,
        old: String,
        new_fd: Resource<Descriptor>,
        new: String,
    ) -> FsResult<()> {
        self.watch.may_block().await;
        if path_flags.contains(PathFlags::SYMLINK_FOLLOW) {
            return Err(ErrorCode::Invalid.into());
        }
        let view = self.view()?;
        let from = (self.table.get(&fd)?.directory()?, old.as_str());
        let to = (self.table.get(&new_fd)?.directory()?, new.as_str());
        let linked = view.link(from, to);
        self.at(linked)
    }

    async fn symlink_at(
        &mut self,
        fd: Resource<Descriptor>,
        points_to: String,
        path: String,
    ) -> FsResult<()> {
        self.watch.may_block().await;
        let view = self.view()?;
        let linked = view.symlink(&points_to, self.table.get(&fd)?.directory()?, &path);
        self.at(linked)
    }

    // Functions that work on open files.

    async fn read_directory(
        &mut self,
        fd: Resource<Descriptor>,
    ) -> FsResult<Resource<EntryStream>> {
        self.watch.may_block().await;
        let view = self.view()?;
        let listing = view.list(self.table.get(&fd)?.directory()?);
        let listing = self.at(listing)?;
        Ok(self.table.push(EntryStream(listing))?)
    }

    async fn read(
        &mut self,
        fd: Resource<Descriptor>,
        length: u64,
        offset: u64,
    ) -> FsResult<(Vec<u8>, bool)> {
        let file = self.table.get(&fd)?.readable_file()?;
        let mut bytes = Err(Errno::AGAIN);
        if self.watch.is_borrowed() {
            bytes = read_at_once(file, length, offset);
        }
        if bytes == Err(Errno::AGAIN) {
            self.watch.may_block().await;
            bytes = read_at(self.table.get(&fd)?.readable_file()?, length, offset);
        }
        let bytes = bytes.map_err(errors::code)?;
        let end = bytes.is_empty() && length > 0;
        Ok((bytes, end))
    }

    async fn write(
        &mut self,
        fd: Resource<Descriptor>,
        bytes: Vec<u8>,
        offset: u64,
    ) -> FsResult<u64> {
        self.watch.may_block().await;
        let file = self.table.get(&fd)?.writable_file()?;
        let chunk = &bytes[..bytes.len().min(MAX_CHUNK)];
        write_all_at(file, chunk, offset, &self.files.write_budget).map_err(errors::code)?;
        Ok(chunk.len() as u64)
    }

    async fn read_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: u64,
    ) -> FsResult<Resource<DynInputStream>> {
        let file = Arc::clone(self.table.get(&fd)?.readable_file()?);
        let reader: DynInputStream =
            Box::new(FileReader::new(file, offset, Arc::clone(self.watch)));
        Ok(self.table.push(reader)?)
    }

    async fn write_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: u64,
    ) -> FsResult<Resource<DynOutputStream>> {
        self.writer(&fd, Position::At(offset))
    }

    async fn append_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
    ) -> FsResult<Resource<DynOutputStream>> {
        self.writer(&fd, Position::End)
    }

    async fn set_size(&mut self, fd: Resource<Descriptor>, size: u64) -> FsResult<()> {
        self.watch.may_block().await;
        let file = self.table.get(&fd)?.writable_file()?;
        let now =
            u64::try_from(rustix::fs::fstat(file).map_err(errors::code)?.st_size).unwrap_or(0);
        // Growing counts as writing. A hole takes no space, but a copy of the file may.
        self.files.write_budget.charge(size.saturating_sub(now)).map_err(errors::code)?;
        Ok(rustix::fs::ftruncate(file, size).map_err(errors::code)?)
    }

    async fn set_times(
        &mut self,
        fd: Resource<Descriptor>,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> FsResult<()> {
        self.watch.may_block().await;
        let times = timestamps(accessed, modified)?;
        let file = self.table.get(&fd)?.writable_file()?;
        Ok(rustix::fs::futimens(file, &times).map_err(errors::code)?)
    }

    async fn sync(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        self.watch.may_block().await;
        Ok(rustix::fs::fsync(self.table.get(&fd)?.fd()).map_err(errors::code)?)
    }

    async fn sync_data(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        self.watch.may_block().await;
        Ok(rustix::fs::fdatasync(self.table.get(&fd)?.fd()).map_err(errors::code)?)
    }

    async fn advise(
        &mut self,
        fd: Resource<Descriptor>,
        offset: u64,
        length: u64,
        advice: WasiAdvice,
    ) -> FsResult<()> {
        self.watch.may_block().await;
        let advice = match advice {
            WasiAdvice::Normal => Advice::Normal,
            WasiAdvice::Sequential => Advice::Sequential,
            WasiAdvice::Random => Advice::Random,
            WasiAdvice::WillNeed => Advice::WillNeed,
            WasiAdvice::DontNeed => Advice::DontNeed,
            WasiAdvice::NoReuse => Advice::NoReuse,
        };
        let file = self.table.get(&fd)?.readable_file()?;
        Ok(rustix::fs::fadvise(file, offset, std::num::NonZero::new(length), advice)
            .map_err(errors::code)?)
    }

    async fn get_flags(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorFlags> {
        let descriptor = self.table.get(&fd)?;
        let mut flags = DescriptorFlags::empty();
        if descriptor.readable {
            flags |= DescriptorFlags::READ;
        }
        if descriptor.directory {
            // A directory may have been opened before the call. The call decides whether its
            // entries may be changed.
            if descriptor.writable && !self.files.is_read_only() {
                flags |= DescriptorFlags::MUTATE_DIRECTORY;
            }
        } else if descriptor.writable {
            flags |= DescriptorFlags::WRITE;
        }
        Ok(flags)
    }

    async fn get_type(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorType> {
        Ok(if self.table.get(&fd)?.directory {
            DescriptorType::Directory
        } else {
            DescriptorType::RegularFile
        })
    }

    async fn stat(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorStat> {
        self.ready_to_ask(&fd).await?;
        let descriptor = self.table.get(&fd)?;
        if descriptor.directory {
            // A granted directory was opened before the call, so that wasn't recorded.
            self.files.record_open(descriptor.fd()).map_err(errors::code)?;
        }
        Ok(stat_record(&rustix::fs::fstat(self.table.get(&fd)?.fd()).map_err(errors::code)?))
    }

    async fn metadata_hash(&mut self, fd: Resource<Descriptor>) -> FsResult<MetadataHashValue> {
        self.ready_to_ask(&fd).await?;
        Ok(identity(&rustix::fs::fstat(self.table.get(&fd)?.fd()).map_err(errors::code)?))
    }

    async fn is_same_object(
        &mut self,
        fd: Resource<Descriptor>,
        other: Resource<Descriptor>,
    ) -> wasmtime::Result<bool> {
        self.watch.may_block().await;
        let a = rustix::fs::fstat(self.table.get(&fd)?.fd())?;
        let b = rustix::fs::fstat(self.table.get(&other)?.fd())?;
        Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
    }

    async fn drop(&mut self, fd: Resource<Descriptor>) -> wasmtime::Result<()> {
        self.table.delete(fd)?;
        Ok(())
    }
}

impl types::HostDirectoryEntryStream for FilesView<'_> {
    async fn read_directory_entry(
        &mut self,
        stream: Resource<EntryStream>,
    ) -> FsResult<Option<DirectoryEntry>> {
        self.watch.may_block().await;
        let entry = self.table.get_mut(&stream)?.0.next().transpose();
        let entry = self.at(entry)?;
        Ok(entry
            .map(|entry| DirectoryEntry { type_: descriptor_type(entry.kind), name: entry.name }))
    }

    async fn drop(&mut self, stream: Resource<EntryStream>) -> wasmtime::Result<()> {
        self.table.delete(stream)?;
        Ok(())
    }
}

impl FilesView<'_> {
    /// Waits until the metadata of an open object may be asked for. For a file in memory, any
    /// thread may ask.
    async fn ready_to_ask(&mut self, fd: &Resource<Descriptor>) -> FsResult<()> {
        let descriptor = self.table.get(fd)?;
        if descriptor.directory || !descriptor.prompt {
            self.watch.may_block().await;
        }
        Ok(())
    }

    async fn find(
        &mut self,
        fd: &Resource<Descriptor>,
        flags: PathFlags,
        path: &str,
    ) -> FsResult<ResolvedObject> {
        let follow = flags.contains(PathFlags::SYMLINK_FOLLOW);
        let view = self.view()?;
        let descriptor = self.table.get(fd)?;
        let dir = descriptor.directory()?;
        if descriptor.prompt
            && self.watch.is_borrowed()
            && let Ok(found) = view.find_at_once(dir, path, follow)
        {
            return Ok(found);
        }
        self.watch.may_block().await;
        let found = view.find_at(self.table.get(fd)?.directory()?, path, follow);
        self.at(found)
    }

    fn writer(
        &mut self,
        fd: &Resource<Descriptor>,
        position: Position,
    ) -> FsResult<Resource<DynOutputStream>> {
        let file = Arc::clone(self.table.get(fd)?.writable_file()?);
        let writer: DynOutputStream =
            Box::new(FileWriter { file, position, budget: Arc::clone(&self.files.write_budget) });
        Ok(self.table.push(writer)?)
    }
}

fn descriptor_type(kind: FileType) -> DescriptorType {
    match kind {
        FileType::RegularFile => DescriptorType::RegularFile,
        FileType::Directory => DescriptorType::Directory,
        FileType::Symlink => DescriptorType::SymbolicLink,
        FileType::Fifo => DescriptorType::Fifo,
        FileType::Socket => DescriptorType::Socket,
        FileType::CharacterDevice => DescriptorType::CharacterDevice,
        FileType::BlockDevice => DescriptorType::BlockDevice,
        FileType::Unknown => DescriptorType::Unknown,
    }
}

#[allow(clippy::useless_conversion, reason = "the count of links is narrower on arm64")]
fn stat_record(stat: &Stat) -> DescriptorStat {
    DescriptorStat {
        type_: descriptor_type(FileType::from_raw_mode(stat.st_mode)),
        link_count: stat.st_nlink.into(),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        data_access_timestamp: datetime(stat.st_atime, stat.st_atime_nsec),
        data_modification_timestamp: datetime(stat.st_mtime, stat.st_mtime_nsec),
        status_change_timestamp: datetime(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// A time for WASI, which can't express times before 1970.
fn datetime(seconds: i64, nanoseconds: u64) -> Option<Datetime> {
    Some(Datetime {
        seconds: u64::try_from(seconds).ok()?,
        nanoseconds: u32::try_from(nanoseconds).ok()?,
    })
}

/// A hash of the file's identity. Guests use it as an inode number. It is stable while the host
/// runs, and reveals nothing about the disk.
fn identity(stat: &Stat) -> MetadataHashValue {
    MetadataHashValue { lower: half_identity(stat, 0), upper: half_identity(stat, 1) }
}

fn half_identity(stat: &Stat, salt: u8) -> u64 {
    let mut hasher = DefaultHasher::new();
    (salt, stat.st_dev, stat.st_ino).hash(&mut hasher);
    hasher.finish()
}

fn timestamps(accessed: NewTimestamp, modified: NewTimestamp) -> FsResult<Timestamps> {
    Ok(Timestamps { last_access: timespec(accessed)?, last_modification: timespec(modified)? })
}

fn timespec(new: NewTimestamp) -> FsResult<Timespec> {
    Ok(match new {
        NewTimestamp::NoChange => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        NewTimestamp::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        NewTimestamp::Timestamp(at) if at.nanoseconds >= 1_000_000_000 => {
            return Err(ErrorCode::Invalid.into());
        }
        NewTimestamp::Timestamp(at) => Timespec {
            tv_sec: i64::try_from(at.seconds).map_err(|_| ErrorCode::Overflow)?,
            tv_nsec: i64::from(at.nanoseconds),
        },
    })
}
