//! Attacks with temporary names: the host removes entries that a call leaves under such names.

use std::fs;
use std::path::{Path, PathBuf};

use crate::arguments::Arguments;
use crate::attempts::Attempts;
use crate::exhaustion;
use crate::outside::spellings;
use hostile_support::Loot;

fn name(number: u64) -> String {
    format!(".toolhold-{number:016x}.tmp")
}

/// Creates a file, a tree and a link, then ends as `text` says.
pub(crate) fn leave_temporary(arguments: &Arguments) -> Loot {
    let at = |number| Path::new(&arguments.path).join(name(number));
    let deep = at(1).join("deep/deeper");
    fs::create_dir_all(&deep)?;
    for number in 0..100 {
        fs::write(deep.join(number.to_string()), "half")?;
    }
    fs::write(at(2), "half")?;
    for (points_to, place) in [(name(2), name(3)), ("../..".into(), name(1) + "/deep/link")] {
        let place = Path::new(&arguments.path).join(place);
        for (directory, place) in spellings(place.to_str().unwrap_or_default()) {
            let _ = directory.symlink_at(&points_to, &place);
        }
    }
    let open = fs::File::open(at(2))?;
    let ended = match arguments.text.as_str() {
        "loop" => exhaustion::loop_forever(arguments),
        "sleep" => exhaustion::sleep_forever(arguments),
        "memory" => exhaustion::memory_bomb(arguments),
        "trap" => exhaustion::trap(arguments),
        "exit" => exhaustion::exit(arguments),
        "fail" => Err("as asked".into()),
        _ => Ok("left".into()),
    };
    drop(open);
    ended
}

/// Tries in every way to make the host remove entries that the guest didn't create. `path` is a
/// directory with files, and has to stay.
pub(crate) fn forge_temporary(arguments: &Arguments) -> Loot {
    let victim = PathBuf::from(&arguments.path);
    let beside = |name: String| victim.with_file_name(name);
    let mut attempts = Attempts::default();
    let mut number = 0x100;
    let mut fresh = |directory: bool| {
        number += 1;
        let path = beside(name(number));
        let made = if directory { fs::create_dir(&path) } else { fs::write(&path, "made") };
        made.map(|()| path)
    };
    let moved = |from: &Path, to: &Path| fs::rename(from, to).map(|()| "moved");

    let folder = fresh(true)?;
    attempts.note("into a folder", moved(&victim, &folder.join("in")));
    attempts.note("a file into a folder", moved(&victim.join("file"), &folder.join("file")));
    attempts.note(
        "a second name in a folder",
        fs::hard_link(victim.join("file"), folder.join("second")).map(|()| "linked"),
    );
    for (directory, link) in spellings(folder.join("link").to_str().unwrap_or_default()) {
        let leaf = victim.file_name().unwrap_or_default().to_string_lossy();
        let _ = directory.symlink_at(&format!("../{leaf}"), &link);
    }
    let emptied = fresh(true)?;
    fs::remove_dir(&emptied)?;
    attempts.note("in its place", moved(&victim, &emptied));
    let removed = fresh(false)?;
    fs::remove_file(&removed)?;
    attempts.note("a file in its place", moved(&victim.join("file"), &removed));
    attempts.note(
        "a second name in its place",
        fs::hard_link(victim.join("file"), &removed).map(|()| "linked"),
    );
    let over = fresh(false)?;
    attempts.note("over it", moved(&victim.join("file"), &over));
    // While the folder has another name, files may be moved into it.
    let renamed = fresh(true)?;
    let other = beside("other".to_owned());
    fs::rename(&renamed, &other)?;
    fs::rename(victim.join("file"), other.join("file"))?;
    attempts.note("back again", moved(&other, &renamed));
    let handle = fresh(true)?;
    for (directory, path) in spellings(handle.to_str().unwrap_or_default()) {
        let Ok(opened) = crate::outside::open_folder(&directory, &path) else { continue };
        for (from, victim) in spellings(&arguments.path) {
            attempts
                .note("by its handle", from.rename_at(&victim, &opened, "in").map(|()| "moved"));
        }
    }
    attempts.loot()
}

/// Creates as many temporary directories as it may, and answers with their number.
pub(crate) fn hoard_temporary(arguments: &Arguments) -> Loot {
    let mut count = 0;
    while count < 10_000 && fs::create_dir(Path::new(&arguments.path).join(name(count))).is_ok() {
        count += 1;
    }
    Ok(count.to_string().into())
}
