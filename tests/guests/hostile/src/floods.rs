//! Attacks that make the host hold, copy or write too much.

use std::io::Write;

use wasip2::filesystem::types::{Descriptor, DescriptorFlags, OpenFlags};

use crate::arguments::Arguments;
use crate::attempts::Attempts;
use crate::exhaustion::scope;
use crate::outside::{open, read_write};
use hostile_support::host::{call, log, search};
use hostile_support::{Failure, Loot, Output, part};

/// The number of buckets of a flood. Together they are 64 MiB.
const ROUNDS: usize = 1024;

/// The number of bytes of a bucket.
const BUCKET: usize = 64 * 1024;

pub(crate) fn flood_output(_: &Arguments) -> Loot {
    pour(std::io::stdout().lock())
}

pub(crate) fn flood_stderr(_: &Arguments) -> Loot {
    pour(std::io::stderr().lock())
}

fn pour(mut into: impl Write) -> Loot {
    let bucket = vec![b'x'; BUCKET];
    for _ in 0..ROUNDS {
        into.write_all(&bucket)?;
    }
    into.flush()?;
    Err("everything was written".into())
}

pub(crate) fn flood_the_log(arguments: &Arguments) -> Loot {
    let line = "l".repeat(BUCKET);
    for _ in 0..arguments.count {
        log::write(log::Level::Error, &line);
    }
    Err("everything was logged".into())
}

pub(crate) fn flood_progress(arguments: &Arguments) -> Loot {
    let line = "p".repeat(BUCKET);
    for _ in 0..arguments.count {
        call::progress(Some(f64::NAN), &line);
    }
    Err("everything was reported".into())
}

pub(crate) fn flood_emitted_parts(arguments: &Arguments) -> Loot {
    let bucket = "e".repeat(BUCKET);
    let kept = (0..arguments.count).filter(|_| call::emit(&part(&bucket))).count();
    Err(format!("kept {kept}").into())
}

pub(crate) fn emit_and_loop(arguments: &Arguments) -> Loot {
    call::emit(&part(&arguments.text));
    crate::exhaustion::loop_forever(arguments)
}

pub(crate) fn answer_too_much(arguments: &Arguments) -> Loot {
    Ok("a".repeat(arguments.size() << 20).into())
}

pub(crate) fn answer_too_many_parts(arguments: &Arguments) -> Loot {
    Ok(Output {
        content: vec![part(""); arguments.size()],
        structured: None,
        after_emitted: false,
        meta: None,
    })
}

pub(crate) fn fail_with_too_much(arguments: &Arguments) -> Loot {
    Err(Failure {
        content: vec![part(&"f".repeat(arguments.size() << 20))],
        ..Failure::from("much")
    })
}

pub(crate) fn pass_a_huge_string(arguments: &Arguments) -> Loot {
    log::write(log::Level::Error, &"s".repeat(arguments.size() << 20));
    Ok("it was taken".into())
}

pub(crate) fn pass_many_globs(arguments: &Arguments) -> Loot {
    let globs = (0..arguments.count).map(|number| format!("{{a,b}}*{number}/**/[a-z]?")).collect();
    search::find(&search::Scope { globs, ..scope(&arguments.path) }, 10)
        .map_err(|error| format!("{error:?}").into())
        .map(count_entries)
}

/// Searches `path` by the ignore files in it.
pub(crate) fn search_under_ignore_files(arguments: &Arguments) -> Loot {
    let scope = search::Scope { ignore_rules: true, ..scope(&arguments.path) };
    let found = search::find(&scope, 10_000)
        .map_err(|error| Failure::from(format!("{error:?}").as_str()))?;
    Ok(format!("{} unreadable, {} entries", found.skipped.unreadable, found.items.len()).into())
}

pub(crate) fn poll_one_thing_often(arguments: &Arguments) -> Loot {
    let never = wasip2::clocks::monotonic_clock::subscribe_duration(0);
    let ready = wasip2::io::poll::poll(&vec![&never; arguments.size()]);
    Ok(format!("{} are ready", ready.len()).into())
}

pub(crate) fn search_with_a_regex_bomb(arguments: &Arguments) -> Loot {
    grep(&arguments.path, "((((((a{100}){100}){100}){100}){100}){100})", true)
}

pub(crate) fn search_with_a_slow_regex(arguments: &Arguments) -> Loot {
    grep(&arguments.path, "(a+)+$|(a|aa)+b|(.*)*x", true)
}

fn grep(root: &str, regex: &str, multiline: bool) -> Loot {
    let pattern = search::LinePattern {
        regex: regex.into(),
        case_sensitive: true,
        multiline,
        before: u32::MAX,
        after: u32::MAX,
        meta: None,
    };
    match search::grep(&scope(root), &pattern, u32::MAX) {
        Ok(lines) => Ok(format!("{} lines", lines.items.len()).into()),
        Err(error) => Err(format!("{error:?}").into()),
    }
}

fn count_entries(entries: search::Entries) -> Output {
    format!("{} entries", entries.items.len()).into()
}

pub(crate) fn ask_for_endless_random(arguments: &Arguments) -> Loot {
    let mut got = Attempts::default();
    let insecure = || wasip2::random::insecure::get_insecure_random_bytes(arguments.count).len();
    let secure = || wasip2::random::random::get_random_bytes(arguments.count).len();
    got.note::<_, ()>(
        "random",
        Ok(if arguments.text == "insecure" { insecure() } else { secure() }),
    );
    got.loot()
}

/// Answers with the greatest number of bytes that one read returned.
pub(crate) fn read_with_huge_lengths(arguments: &Arguments) -> Loot {
    let file = open(&arguments.path, OpenFlags::empty(), DescriptorFlags::READ)?;
    let mut most = file.read(u64::MAX, 0)?.0.len();
    let stream = file.read_via_stream(0)?;
    for read in [stream.read(u64::MAX), stream.blocking_read(u64::MAX)] {
        most = most.max(read.map_err(|error| Failure::from(format!("{error:?}").as_str()))?.len());
    }
    let _ = file.read_via_stream(u64::MAX)?.blocking_skip(u64::MAX);
    Ok(most.to_string().into())
}

pub(crate) fn write_huge_zeroes(arguments: &Arguments) -> Loot {
    let file = create(&arguments.path)?;
    let stream = file.write_via_stream(0)?;
    stream
        .write_zeroes(arguments.count)
        .map_err(|error| Failure::from(format!("{error:?}").as_str()))?;
    Ok("they were taken".into())
}

/// Fails with the number of bytes that were written.
pub(crate) fn fill_the_disk(arguments: &Arguments) -> Loot {
    let file = create(&arguments.path)?;
    let bucket = vec![b'd'; BUCKET];
    let mut written = 0;
    while let Ok(more) = file.write(&bucket, written) {
        written += more;
    }
    // Other ways to write may not be refused.
    let _ = file.append_via_stream()?.blocking_write_and_flush(&bucket[..4096]);
    let _ = file.write_via_stream(written)?.blocking_write_zeroes_and_flush(4096);
    let source = file.read_via_stream(0)?;
    let _ = file.write_via_stream(written)?.splice(&source, u64::MAX);
    let _ = file.set_size(u64::MAX / 4);
    Err(format!("wrote {written}").into())
}

pub(crate) fn blow_up_a_file(arguments: &Arguments) -> Loot {
    create(&arguments.path)?.set_size(arguments.count)?;
    Ok("it is large now".into())
}

fn create(path: &str) -> Result<Descriptor, Failure> {
    Ok(open(path, OpenFlags::CREATE, read_write())?)
}
