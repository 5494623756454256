//! The functions of `wasi:filesystem/types`.

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
        let stored_error = self.table.get(&error)?;
        let errno = stored_error.downcast_ref::<std::io::Error>().and_then(Errno::from_io_error);
        Ok(errno.map(errors::code))
    }
}

impl FilesView<'_> {
    /// Converts a result of the path layer, and remembers a denial.
    fn convert<T>(&mut self, result: Result<T, FileError>) -> FsResult<T> {
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
        let write = flags.contains(DescriptorFlags::WRITE);
        let options = OpenOptions {
            // wasi-libc opens directories without flags, so no flags mean reading.
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

        // The first attempt uses only cached data, so it doesn't block.
        let mut answers_from_cache = parent.answers_from_cache && self.watch.is_borrowed();
        let mut result = if answers_from_cache {
            view.open_at_once(dir, &path, options)
        } else {
            Err(Errno::AGAIN.into())
        };
        if matches!(result, Err(FileError::Errno(Errno::AGAIN))) {
            answers_from_cache = false;
            self.watch.may_block().await;
            result = view.open_at(self.table.get(&fd)?.directory()?, &path, options);
        }

        let object = self.convert(result)?;
        let directory = object.kind == FileType::Directory;
        let descriptor = Descriptor {
            handle: Arc::new(object.handle),
            directory,
            granted: false,
            readable: options.read,
            writable: if directory { parent_writable } else { options.write },
            answers_from_cache,
        };
        Ok(self.table.push(descriptor)?)
    }

    async fn stat_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: PathFlags,
        path: String,
    ) -> FsResult<DescriptorStat> {
        let object = self.find(&fd, path_flags, &path).await?;
        Ok(stat_record(&object.stat))
    }

    async fn metadata_hash_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: PathFlags,
        path: String,
    ) -> FsResult<MetadataHashValue> {
        let object = self.find(&fd, path_flags, &path).await?;
        Ok(identity(&object.stat))
    }

    async fn readlink_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<String> {
        self.watch.may_block().await;
        let view = self.view()?;
        let dir = self.table.get(&fd)?.directory()?;
        let target = view.read_link(dir, &path);
        self.convert(target)
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
        let follow = path_flags.contains(PathFlags::SYMLINK_FOLLOW);
        let result = view.set_times(dir, &path, follow, &times);
        self.convert(result)
    }

    async fn create_directory_at(
        &mut self,
        fd: Resource<Descriptor>,
        path: String,
    ) -> FsResult<()> {
        self.watch.may_block().await;
        let view = self.view()?;
        let dir = self.table.get(&fd)?.directory()?;
        let result = view.create_directory(dir, &path);
        self.convert(result)
    }

    async fn remove_directory_at(
        &mut self,
        fd: Resource<Descriptor>,
        path: String,
    ) -> FsResult<()> {
        self.watch.may_block().await;
        let view = self.view()?;
        let dir = self.table.get(&fd)?.directory()?;
        let result = view.remove_directory(dir, &path);
        self.convert(result)
    }

    async fn unlink_file_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        self.watch.may_block().await;
        let view = self.view()?;
        let dir = self.table.get(&fd)?.directory()?;
        let result = view.unlink(dir, &path);
        self.convert(result)
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
        let result = view.rename(from, to);
        self.convert(result)
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
        // A hard link to the target of a symbolic link isn't supported.
        if path_flags.contains(PathFlags::SYMLINK_FOLLOW) {
            return Err(ErrorCode::Invalid.into());
        }
        let view = self.view()?;
        let from = (self.table.get(&fd)?.directory()?, old.as_str());
        let to = (self.table.get(&new_fd)?.directory()?, new.as_str());
        let result = view.link(from, to);
        self.convert(result)
    }

    async fn symlink_at(
        &mut self,
        fd: Resource<Descriptor>,
        points_to: String,
        path: String,
    ) -> FsResult<()> {
        self.watch.may_block().await;
        let view = self.view()?;
        let dir = self.table.get(&fd)?.directory()?;
        let result = view.symlink(&points_to, dir, &path);
        self.convert(result)
    }

    // Functions on open files.

    async fn read_directory(
        &mut self,
        fd: Resource<Descriptor>,
    ) -> FsResult<Resource<EntryStream>> {
        self.watch.may_block().await;
        let view = self.view()?;
        let result = view.list(self.table.get(&fd)?.directory()?);
        let listing = self.convert(result)?;
        Ok(self.table.push(EntryStream(listing))?)
    }

    async fn read(
        &mut self,
        fd: Resource<Descriptor>,
        length: u64,
        offset: u64,
    ) -> FsResult<(Vec<u8>, bool)> {
        let file = self.table.get(&fd)?.readable_file()?;
        // A thread that must not block reads only cached data.
        let cached = if self.watch.is_borrowed() {
            read_at_once(file, length, offset)
        } else {
            Err(Errno::AGAIN)
        };
        let result = if cached == Err(Errno::AGAIN) {
            self.watch.may_block().await;
            read_at(self.table.get(&fd)?.readable_file()?, length, offset)
        } else {
            cached
        };
        let bytes = result.map_err(errors::code)?;
        let is_at_end = bytes.is_empty() && length > 0;
        Ok((bytes, is_at_end))
    }

    async fn write(
        &mut self,
        fd: Resource<Descriptor>,
        bytes: Vec<u8>,
        offset: u64,
    ) -> FsResult<u64> {
        self.watch.may_block().await;
        let file = self.table.get(&fd)?.writable_file()?;
        // The guest repeats the call with the rest of the bytes.
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
        let stat = rustix::fs::fstat(file).map_err(errors::code)?;
        // A size is never negative.
        let current_size = u64::try_from(stat.st_size).unwrap_or(0);
        // Growth uses the write budget. The hole takes no space, but a copy of the file may.
        let growth = size.saturating_sub(current_size);
        self.files.write_budget.charge(growth).map_err(errors::code)?;
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
        let kernel_advice = match advice {
            WasiAdvice::Normal => Advice::Normal,
            WasiAdvice::Sequential => Advice::Sequential,
            WasiAdvice::Random => Advice::Random,
            WasiAdvice::WillNeed => Advice::WillNeed,
            WasiAdvice::DontNeed => Advice::DontNeed,
            WasiAdvice::NoReuse => Advice::NoReuse,
        };
        let file = self.table.get(&fd)?.readable_file()?;
        // For the kernel, a length of 0 means the rest of the file.
        let length_or_rest = std::num::NonZero::new(length);
        Ok(rustix::fs::fadvise(file, offset, length_or_rest, kernel_advice)
            .map_err(errors::code)?)
    }

    async fn get_flags(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorFlags> {
        let descriptor = self.table.get(&fd)?;
        let mut flags = DescriptorFlags::empty();
        if descriptor.readable {
            flags |= DescriptorFlags::READ;
        }
        if descriptor.directory {
            // The directory may have been opened for an earlier call. Only the current call's
            // rights say whether its entries may be changed.
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
        self.wait_for_metadata(&fd).await?;
        let descriptor = self.table.get(&fd)?;
        if descriptor.directory {
            // A granted directory was opened before the call, so its use is recorded only here.
            self.files.record_open(descriptor.fd()).map_err(errors::code)?;
        }
        let stat = rustix::fs::fstat(self.table.get(&fd)?.fd()).map_err(errors::code)?;
        Ok(stat_record(&stat))
    }

    async fn metadata_hash(&mut self, fd: Resource<Descriptor>) -> FsResult<MetadataHashValue> {
        self.wait_for_metadata(&fd).await?;
        let stat = rustix::fs::fstat(self.table.get(&fd)?.fd()).map_err(errors::code)?;
        Ok(identity(&stat))
    }

    async fn is_same_object(
        &mut self,
        fd: Resource<Descriptor>,
        other: Resource<Descriptor>,
    ) -> wasmtime::Result<bool> {
        self.watch.may_block().await;
        let stat = rustix::fs::fstat(self.table.get(&fd)?.fd())?;
        let other_stat = rustix::fs::fstat(self.table.get(&other)?.fd())?;
        Ok(stat.st_dev == other_stat.st_dev && stat.st_ino == other_stat.st_ino)
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
        let listing = &mut self.table.get_mut(&stream)?.0;
        let Some(result) = listing.next() else { return Ok(None) };
        let entry = self.convert(result)?;
        Ok(Some(DirectoryEntry { type_: descriptor_type(entry.kind), name: entry.name }))
    }

    async fn drop(&mut self, stream: Resource<EntryStream>) -> wasmtime::Result<()> {
        self.table.delete(stream)?;
        Ok(())
    }
}

impl FilesView<'_> {
    /// Moves to a thread that may block, unless the metadata of an open file is in memory.
    async fn wait_for_metadata(&mut self, fd: &Resource<Descriptor>) -> FsResult<()> {
        let descriptor = self.table.get(fd)?;
        if descriptor.directory || !descriptor.answers_from_cache {
            self.watch.may_block().await;
        }
        Ok(())
    }

    /// Finds the object of a path. Unless the object is in memory, moves to a thread that may
    /// block.
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
        let must_not_block = self.watch.is_borrowed();
        if must_not_block && descriptor.answers_from_cache {
            // An error may only mean that the object isn't in memory, so try again below.
            if let Ok(object) = view.find_at_once(dir, path, follow) {
                return Ok(object);
            }
        }
        self.watch.may_block().await;
        let result = view.find_at(self.table.get(fd)?.directory()?, path, follow);
        self.convert(result)
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
        // A size is never negative.
        size: u64::try_from(stat.st_size).unwrap_or(0),
        data_access_timestamp: datetime(stat.st_atime, stat.st_atime_nsec),
        data_modification_timestamp: datetime(stat.st_mtime, stat.st_mtime_nsec),
        status_change_timestamp: datetime(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// Converts a time. Returns `None` for times before 1970, which WASI can't represent.
fn datetime(seconds: i64, nanoseconds: u64) -> Option<Datetime> {
    let seconds = u64::try_from(seconds).ok()?;
    let nanoseconds = u32::try_from(nanoseconds).ok()?;
    Some(Datetime { seconds, nanoseconds })
}

/// Returns a hash of a file's identity, which guests use as an inode number. The hash reveals
/// nothing about the disk, and is stable while the host runs.
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
    const NANOS_A_SECOND: u32 = 1_000_000_000;
    Ok(match new {
        NewTimestamp::NoChange => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        NewTimestamp::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        NewTimestamp::Timestamp(at) if at.nanoseconds >= NANOS_A_SECOND => {
            return Err(ErrorCode::Invalid.into());
        }
        NewTimestamp::Timestamp(at) => Timespec {
            tv_sec: i64::try_from(at.seconds).map_err(|_| ErrorCode::Overflow)?,
            tv_nsec: i64::from(at.nanoseconds),
        },
    })
}
