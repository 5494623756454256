//! Attacks that access files that aren't granted, or in a way that isn't granted.

use std::fs;
use std::io::Write as _;

use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{
    Descriptor, DescriptorFlags, ErrorCode, NewTimestamp, OpenFlags, PathFlags,
};

use crate::arguments::Arguments;
use crate::attempts::Attempts;
use crate::exhaustion::scope;
use hostile_support::Loot;
use hostile_support::host::search;

/// The flags to read and to write.
pub(crate) fn read_write() -> DescriptorFlags {
    DescriptorFlags::READ | DescriptorFlags::WRITE
}

/// A handle of each granted directory with each spelling that might name `path`: without the
/// directory's name, and unchanged.
pub(crate) fn spellings(path: &str) -> Vec<(Descriptor, String)> {
    let mut spelled = Vec::new();
    for (index, (_, name)) in get_directories().iter().enumerate() {
        let relative =
            path.strip_prefix(name.as_str()).map(|rest| rest.trim_start_matches('/').to_owned());
        for spelling in [relative, Some(path.to_owned())].into_iter().flatten() {
            // Descriptors can't be copied, so each spelling gets a new one.
            spelled.push((get_directories().swap_remove(index).0, spelling));
        }
    }
    spelled
}

/// Opens a path below any granted directory, in any spelling.
pub(crate) fn open(
    path: &str,
    open: OpenFlags,
    flags: DescriptorFlags,
) -> Result<Descriptor, ErrorCode> {
    let mut error = ErrorCode::NoEntry;
    for (directory, path) in spellings(path) {
        match directory.open_at(PathFlags::SYMLINK_FOLLOW, &path, open, flags) {
            Ok(file) => return Ok(file),
            Err(other) => error = other,
        }
    }
    Err(error)
}

/// Opens a directory below a handle.
pub(crate) fn open_folder(directory: &Descriptor, path: &str) -> Result<Descriptor, ErrorCode> {
    directory.open_at(
        PathFlags::empty(),
        path,
        OpenFlags::DIRECTORY,
        DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY,
    )
}

pub(crate) fn read_outside(arguments: &Arguments) -> Loot {
    let mut attempts = Attempts::default();
    attempts.note("std", fs::read(&arguments.path).map(text));
    attempts.note("std listing", fs::read_dir(&arguments.path).map(names));
    for (directory, path) in spellings(&arguments.path) {
        for follow in [PathFlags::SYMLINK_FOLLOW, PathFlags::empty()] {
            for flags in [
                DescriptorFlags::READ,
                DescriptorFlags::empty(),
                read_write(),
                DescriptorFlags::WRITE,
            ] {
                for how in [OpenFlags::empty(), OpenFlags::DIRECTORY] {
                    attempts.note(
                        &path,
                        directory.open_at(follow, &path, how, flags).and_then(contents),
                    );
                }
            }
        }
    }
    attempts.loot()
}

/// The content of a handle: the bytes of a file, or the names in a directory.
fn contents(handle: Descriptor) -> Result<String, ErrorCode> {
    if let Ok((bytes, _)) = handle.read(1 << 16, 0) {
        return Ok(text(bytes));
    }
    if let Ok(stream) = handle.read_via_stream(0)
        && let Ok(bytes) = stream.blocking_read(1 << 16)
    {
        return Ok(text(bytes));
    }
    let entries = handle.read_directory()?;
    let mut names = Vec::new();
    while let Ok(Some(entry)) = entries.read_directory_entry() {
        names.push(entry.name);
    }
    Ok(names.join("\n"))
}

pub(crate) fn look_outside(arguments: &Arguments) -> Loot {
    let mut attempts = Attempts::default();
    attempts.note("std", fs::metadata(&arguments.path).map(|metadata| metadata.len()));
    attempts.note(
        "std link",
        fs::read_link(&arguments.path).map(|target| target.display().to_string()),
    );
    attempts.note(
        "exists",
        if fs::exists(&arguments.path).unwrap_or(false) { Ok("yes") } else { Err("no") },
    );
    for (directory, path) in spellings(&arguments.path) {
        let follow = PathFlags::SYMLINK_FOLLOW;
        attempts.note("stat", directory.stat_at(follow, &path).map(|stat| stat.size));
        attempts.note("hash", directory.metadata_hash_at(follow, &path).map(|hash| hash.lower));
    }
    attempts.loot()
}

pub(crate) fn search_outside(arguments: &Arguments) -> Loot {
    let mut attempts = Attempts::default();
    let scope = scope(&arguments.path);
    let pattern = search::LinePattern {
        regex: arguments.text.clone(),
        case_sensitive: true,
        multiline: false,
        before: 0,
        after: 0,
        meta: None,
    };
    let seen =
        |names: Vec<String>| if names.is_empty() { Err("nothing") } else { Ok(names.join("\n")) };
    let found = search::find(&scope, 1000)
        .map(|found| found.items.into_iter().map(|entry| entry.path).collect());
    attempts.note("find", found.map_or(Err("refused"), seen));
    let lines = search::grep(&scope, &pattern, 1000)
        .map(|found| found.items.into_iter().map(|line| line.text).collect());
    attempts.note("grep", lines.map_or(Err("refused"), seen));
    let counts = search::count(&scope, &pattern, 1000)
        .map(|found| found.items.into_iter().map(|(path, _)| path).collect());
    attempts.note("count", counts.map_or(Err("refused"), seen));
    attempts.loot()
}

pub(crate) fn write_outside(arguments: &Arguments) -> Loot {
    let mut attempts = Attempts::default();
    attempts.note("std", fs::write(&arguments.path, "overwritten").map(|()| "written"));
    let append = fs::OpenOptions::new().append(true).open(&arguments.path);
    attempts.note(
        "std append",
        append.and_then(|mut file| file.write_all(b"appended")).map(|()| "written"),
    );
    for (directory, path) in spellings(&arguments.path) {
        for follow in [PathFlags::SYMLINK_FOLLOW, PathFlags::empty()] {
            let hows = [
                OpenFlags::empty(),
                OpenFlags::CREATE,
                OpenFlags::TRUNCATE,
                OpenFlags::CREATE | OpenFlags::EXCLUSIVE,
            ];
            for how in hows.into_iter().chain([OpenFlags::CREATE | OpenFlags::TRUNCATE]) {
                for flags in [
                    DescriptorFlags::WRITE,
                    read_write(),
                    DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY,
                ] {
                    if how == OpenFlags::empty()
                        && flags & DescriptorFlags::WRITE == DescriptorFlags::empty()
                    {
                        continue;
                    }
                    let opened = directory.open_at(follow, &path, how, flags);
                    attempts.note("open", opened.and_then(|file| file.write(b"overwritten", 0)));
                }
            }
        }
    }
    attempts.loot()
}

pub(crate) fn change_outside(arguments: &Arguments) -> Loot {
    let mut attempts = Attempts::default();
    let (path, to) = (arguments.path.as_str(), arguments.to.as_str());
    attempts.note("std mkdir", fs::create_dir(path).map(|()| "made"));
    attempts.note("std unlink", fs::remove_file(path).map(|()| "removed"));
    attempts.note("std rmdir", fs::remove_dir(path).map(|()| "removed"));
    attempts.note("std rename from", fs::rename(path, to).map(|()| "moved"));
    attempts.note("std rename to", fs::rename(to, path).map(|()| "moved"));
    attempts.note("std link from", fs::hard_link(path, to).map(|()| "linked"));
    attempts.note("std link to", fs::hard_link(to, path).map(|()| "linked"));
    for (directory, path) in spellings(path) {
        attempts.note("mkdir", directory.create_directory_at(&path).map(|()| "made"));
        attempts.note("unlink", directory.unlink_file_at(&path).map(|()| "removed"));
        attempts.note("rmdir", directory.remove_directory_at(&path).map(|()| "removed"));
        attempts.note("symlink", directory.symlink_at("x", &path).map(|()| "linked"));
        for follow in [PathFlags::SYMLINK_FOLLOW, PathFlags::empty()] {
            let times = directory.set_times_at(follow, &path, NewTimestamp::Now, NewTimestamp::Now);
            attempts.note("times", times.map(|()| "set"));
            for (other, to) in spellings(to) {
                attempts.note(
                    "link from",
                    directory.link_at(follow, &path, &other, &to).map(|()| "linked"),
                );
                attempts.note(
                    "link to",
                    other.link_at(follow, &to, &directory, &path).map(|()| "linked"),
                );
            }
        }
        for (other, to) in spellings(to) {
            attempts.note("rename from", directory.rename_at(&path, &other, &to).map(|()| "moved"));
            attempts.note("rename to", other.rename_at(&to, &directory, &path).map(|()| "moved"));
        }
    }
    attempts.loot()
}

pub(crate) fn write_what_is_open_for_reading(arguments: &Arguments) -> Loot {
    let mut attempts = Attempts::default();
    let file = open(&arguments.path, OpenFlags::empty(), DescriptorFlags::READ)?;
    attempts.note("write", file.write(b"overwritten", 0));
    attempts.note("size", file.set_size(0).map(|()| "cut"));
    attempts.note("times", file.set_times(NewTimestamp::Now, NewTimestamp::Now).map(|()| "set"));
    attempts.note("stream", file.write_via_stream(0).map(|_| "open"));
    attempts.note("append", file.append_via_stream().map(|_| "open"));
    for (directory, path) in spellings(&arguments.path) {
        for flags in [DescriptorFlags::READ, DescriptorFlags::empty()] {
            let cut =
                directory.open_at(PathFlags::SYMLINK_FOLLOW, &path, OpenFlags::TRUNCATE, flags);
            attempts.note("truncate", cut.map(|_| "cut"));
        }
    }
    attempts.loot()
}

pub(crate) fn list_names(arguments: &Arguments) -> Loot {
    Ok(names(fs::read_dir(&arguments.path)?).into())
}

pub(crate) fn climb_from_a_handle(arguments: &Arguments) -> Loot {
    let folder = open(&arguments.path, OpenFlags::DIRECTORY, DescriptorFlags::READ)?;
    climb(&folder, &arguments.to)
}

pub(crate) fn climb_from_a_moved_folder(arguments: &Arguments) -> Loot {
    let folder = open(&arguments.path, OpenFlags::DIRECTORY, DescriptorFlags::READ)?;
    fs::rename(&arguments.path, &arguments.to)?;
    climb(&folder, &arguments.text)
}

fn climb(folder: &Descriptor, name: &str) -> Loot {
    let mut attempts = Attempts::default();
    for height in 0..12 {
        for path in [
            format!("{}{name}", "../".repeat(height)),
            format!("./{}.//{name}", "x/../../".repeat(height)),
        ] {
            let opened = folder.open_at(
                PathFlags::SYMLINK_FOLLOW,
                &path,
                OpenFlags::empty(),
                DescriptorFlags::READ,
            );
            attempts.note(&path, opened.and_then(contents));
        }
    }
    attempts.loot()
}

pub(crate) fn touch_special_file(arguments: &Arguments) -> Loot {
    let mut attempts = Attempts::default();
    attempts.note("std", fs::read(&arguments.path).map(text));
    attempts.note("std write", fs::write(&arguments.path, "x").map(|()| "written"));
    for (directory, path) in spellings(&arguments.path) {
        for how in
            [OpenFlags::empty(), OpenFlags::CREATE, OpenFlags::TRUNCATE, OpenFlags::DIRECTORY]
        {
            for flags in [
                DescriptorFlags::empty(),
                DescriptorFlags::READ,
                DescriptorFlags::WRITE,
                read_write(),
            ] {
                let opened = directory.open_at(PathFlags::SYMLINK_FOLLOW, &path, how, flags);
                attempts.note("open", opened.map(|_| "opened"));
            }
        }
    }
    attempts.loot()
}

/// Answers with every content that isn't `text`. If there is none, fails with the number of reads
/// that were `text`.
pub(crate) fn race_reads(arguments: &Arguments) -> Loot {
    let mut other = Attempts::default();
    let mut expected = 0;
    for _ in 0..arguments.count {
        match fs::read_to_string(&arguments.path) {
            Ok(found) if found == arguments.text => expected += 1,
            Ok(found) if !found.is_empty() => other.note::<_, ()>("read", Ok(found)),
            _ => {}
        }
    }
    other.note::<String, _>("expected", Err(expected));
    other.loot()
}

/// Answers with every found line that isn't `text`. If there is none, fails with the number of
/// lines that were `text`.
pub(crate) fn race_searches(arguments: &Arguments) -> Loot {
    let pattern = search::LinePattern {
        regex: ".".into(),
        case_sensitive: true,
        multiline: false,
        before: 0,
        after: 0,
        meta: None,
    };
    let scope = scope(&arguments.path);
    let mut other = Attempts::default();
    let mut expected = 0;
    for _ in 0..arguments.count {
        for line in search::grep(&scope, &pattern, 100).map(|found| found.items).unwrap_or_default()
        {
            if line.text == arguments.text {
                expected += 1;
            } else {
                other.note::<_, ()>("found", Ok(line.text));
            }
        }
    }
    other.note::<String, _>("expected", Err(expected));
    other.loot()
}

/// Renames the directory `path` to `to` and back. Answers with the secrets that it reads there. If
/// there is none, fails with the number of renames.
pub(crate) fn race_renames(arguments: &Arguments) -> Loot {
    let mut other = Attempts::default();
    let mut expected = 0;
    for _ in 0..arguments.count {
        if fs::rename(&arguments.path, &arguments.to).is_ok() {
            expected += 1;
            if let Ok(found) = fs::read_to_string(format!("{}/secret.txt", arguments.to)) {
                other.note::<_, ()>("read", Ok(found));
            }
            // A directory with a planted file can't be renamed back for a moment.
            while fs::rename(&arguments.to, &arguments.path).is_err() {}
        }
    }
    other.note::<String, _>("expected", Err(expected));
    other.loot()
}

/// Fails with the number of successful writes.
pub(crate) fn race_writes(arguments: &Arguments) -> Loot {
    let written = (0..arguments.count)
        .filter(|_| fs::write(&arguments.path, &arguments.text).is_ok())
        .count();
    Err(format!("expected: {written}").into())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

fn names(entries: fs::ReadDir) -> String {
    let names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.join("\n")
}
