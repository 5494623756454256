//! `read`: reads a text file as numbered lines, or an image.

mod kind;
mod window;

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_sdk::{Call, Content, Failure, Output, Promises, Subject, Tool, add_notice};

use crate::nearby;
use crate::notices::{plural, size};
use crate::paths::open_failure;
use kind::Kind;
use window::{Range, Window};

/// The largest image that is returned. A larger one would fill an answer alone.
const MAX_IMAGE: u64 = 4 << 20;

/// Reads a text file as numbered lines.
pub(crate) struct Read;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    path: String,
    /// First line, from 1.
    #[schemars(range(min = 1))]
    offset: Option<u64>,
    /// Lines to show.
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

/// The answer for programs.
#[derive(Serialize)]
struct Answer {
    /// The first line shown.
    start: u64,
    /// The last line shown; less than `start` if no line is shown.
    end: u64,
    /// The number of lines of the file, if they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_lines: Option<u64>,
    /// The size of the file.
    bytes: u64,
}

impl Tool for Read {
    const NAME: &str = "read";
    const TITLE: Option<&str> = Some("Read file");
    const DESCRIPTION: &str = "\
        Reads a text file and shows its lines, each after its number and a tab: without offset and \
        limit the first 2,000. The last line of the answer says where to continue. Images (PNG, \
        JPEG, GIF, WebP) are returned as images. Use grep to find text in many files.";
    const PROMISES: Promises = Promises { cacheable: true, ..Promises::READ_ONLY };
    const SUBJECTS: &[Subject] = &[Subject::reads_path("/path")];
    const ALIASES: &[&str] = &["file_read"];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] = &[("path", &["file_path"])];
    type Arguments = Arguments;

    fn call(arguments: Arguments, _call: &Call) -> Result<Output, Failure> {
        let Arguments { path, offset, limit } = arguments;
        let range = Range::new(offset, limit);
        let mut file = open(&path)?;
        let meta =
            file.metadata().map_err(|error| Failure::io(format!("reading {path}"), &error))?;
        if meta.is_dir() {
            return Err(directory_failure(&path));
        }
        let mut buffer = vec![0; window::buffer(meta.len())];
        let filled = file.read(&mut buffer).map_err(|error| not_read(&path, &error))?;
        match kind::detect(&buffer[..filled]) {
            Kind::Text => {
                let window = window::read(&mut buffer, filled, &mut file, meta.len(), range)
                    .map_err(|error| not_read(&path, &error))?;
                describe_window(window, range)
            }
            Kind::Image(media_type) => {
                buffer.truncate(filled);
                image(file, buffer, meta.len(), media_type, &path)
            }
            Kind::Binary(what) => {
                let failure = Failure::permanent(
                    "binary",
                    format!("{path} is binary ({what}, {}), not text", size(meta.len())),
                );
                Err(failure.with_suggestion("Only text and images can be read."))
            }
        }
    }
}

/// Makes the answer: the lines, then a notice about the file.
fn describe_window(window: Window, range: Range) -> Result<Output, Failure> {
    let Window { mut text, lines, total_lines, bytes, lossy, crlf, .. } = window;
    let end = range.offset + lines - 1;
    let length = match total_lines {
        Some(total) => format!("{}, {}", plural(total, "line"), size(bytes)),
        None => format!("{}, lines not counted", size(bytes)),
    };
    let all = range.offset == 1 && total_lines == Some(lines);
    let notice = match total_lines {
        _ if bytes == 0 => "The file is empty.".to_owned(),
        _ if all => format!("All of the file: {length}."),
        Some(_) if lines == 0 => format!("No line {}: the file has {length}.", range.offset),
        Some(total) if end == total => {
            format!("Lines {}-{end} of the file: {length}. This is its end.", range.offset)
        }
        _ => format!(
            "Lines {}-{end} of the file: {length}. Continue with offset {}.",
            range.offset,
            end + 1
        ),
    };
    add_notice(&mut text, &notice);
    if crlf {
        add_notice(&mut text, "Lines end in CRLF, which edit keeps.");
    }
    if lossy {
        add_notice(&mut text, "The file is not valid UTF-8: invalid bytes are shown as \u{fffd}.");
    }
    Output::text(text).with_structured(&Answer { start: range.offset, end, total_lines, bytes })
}

fn image(
    mut file: File,
    mut bytes: Vec<u8>,
    length: u64,
    media_type: &str,
    path: &str,
) -> Result<Output, Failure> {
    if length > MAX_IMAGE {
        return Err(large_image_failure(path, length));
    }
    // One byte more than the limit shows whether the file has grown since its size was read.
    (&mut file)
        .take(MAX_IMAGE + 1 - bytes.len() as u64)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::io(format!("reading {path}"), &error))?;
    if bytes.len() as u64 > MAX_IMAGE {
        return Err(large_image_failure(path, length));
    }
    let caption = Content::text(format!("{path}: {media_type}, {}", size(bytes.len() as u64)));
    Ok(Output::from(caption).with(Content::bytes(bytes, media_type)))
}

fn large_image_failure(path: &str, length: u64) -> Failure {
    let failure = Failure::permanent(
        "too-large",
        format!("{path} is an image of {}; the limit is 4 MiB", size(length)),
    );
    failure.with_suggestion("Reduce its size first.")
}

fn not_read(path: &str, error: &io::Error) -> Failure {
    if is_directory(error) {
        directory_failure(path)
    } else {
        Failure::io(format!("reading {path}"), error)
    }
}

fn open(path: &str) -> Result<File, Failure> {
    File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => nearby::suggest_names(Failure::io(path, &error), path),
        ErrorKind::IsADirectory => directory_failure(path),
        _ => open_failure("opening", path, &error),
    })
}

fn is_directory(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::IsADirectory
}

fn directory_failure(path: &str) -> Failure {
    Failure::permanent("is-a-directory", format!("{path} is a directory"))
        .with_suggestion("Use list_directory to see its entries.")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolhold_sdk::testing;

    use super::*;

    struct Sample {
        dir: tempfile::TempDir,
    }

    impl Sample {
        fn new(name: &str, bytes: impl AsRef<[u8]>) -> Self {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(name), bytes).unwrap();
            Self { dir }
        }

        fn read(&self, name: &str) -> Result<Output, Failure> {
            testing::call::<Read>(json!({ "path": self.dir.path().join(name) }))
        }
    }

    #[test]
    fn lines_are_numbered_and_counted() {
        let sample = Sample::new("a", "one\ntwo\n");
        let output = sample.read("a").unwrap();
        assert_eq!(
            output.joined_text(),
            "   1\tone\n   2\ttwo\n[All of the file: 2 lines, 8 B.]\n"
        );
        assert_eq!(
            output.structured,
            Some(json!({ "start": 1, "end": 2, "total_lines": 2, "bytes": 8 }))
        );
    }

    #[test]
    fn window_names_the_next_offset() {
        let text: String = (1..=5000).map(|line| format!("line {line}\n")).collect();
        let sample = Sample::new("a", &text);
        let whole = sample.read("a").unwrap().joined_text();
        assert!(whole.starts_with("   1\tline 1\n"), "{whole}");
        assert!(
            whole.ends_with("2000\tline 2000\n[Lines 1-2000 of the file: 5000 lines, 47.7 KiB. Continue with offset 2001.]\n"),
            "{whole}"
        );
        let path = sample.dir.path().join("a");
        let read = |offset, limit| {
            testing::call::<Read>(json!({ "path": path, "offset": offset, "limit": limit }))
                .unwrap()
                .joined_text()
        };
        assert_eq!(
            read(4999, 9),
            "4999\tline 4999\n5000\tline 5000\n[Lines 4999-5000 of the file: 5000 lines, 47.7 KiB. This is its end.]\n"
        );
        assert_eq!(read(6000, 9), "[No line 6000: the file has 5000 lines, 47.7 KiB.]\n");
        assert_eq!(
            read(3, 1),
            "   3\tline 3\n[Lines 3-3 of the file: 5000 lines, 47.7 KiB. Continue with offset 4.]\n"
        );
    }

    #[test]
    fn non_utf8_file_is_shown_with_a_notice() {
        let text = Sample::new("a", b"caf\xe9\r\n").read("a").unwrap().joined_text();
        assert!(text.starts_with("   1\tcaf\u{fffd}\n"), "{text}");
        assert!(text.contains("not valid UTF-8") && text.contains("CRLF"), "{text}");
    }

    #[test]
    fn empty_file_is_reported() {
        assert_eq!(Sample::new("a", "").read("a").unwrap().joined_text(), "[The file is empty.]\n");
    }

    #[test]
    fn image_is_returned_as_an_image() {
        let png = [b"\x89PNG\r\n\x1a\n".as_slice(), &[0; 100]].concat();
        let output = Sample::new("a", &png).read("a").unwrap();
        assert_eq!(output.content[1], Content::bytes(png, "image/png"));
        let large = Sample::new("a", [b"GIF89a".as_slice(), &vec![0; MAX_IMAGE as usize]].concat());
        assert_eq!(large.read("a").unwrap_err().code.as_deref(), Some("too-large"));
    }

    #[test]
    fn binary_file_is_described() {
        let failure = Sample::new("a", b"\x7fELF\x02\0\0\0").read("a").unwrap_err();
        assert_eq!(failure.code.as_deref(), Some("binary"));
        assert!(
            failure.message.ends_with("is binary (an ELF executable or library, 8 B), not text"),
            "{failure}"
        );
    }

    #[test]
    fn missing_file_suggests_similar_names() {
        let sample = Sample::new("config.toml", "");
        let failure = sample.read("confg.toml").unwrap_err();
        assert_eq!(failure.code.as_deref(), Some("not-found"));
        assert!(failure.suggestion.unwrap().contains("config.toml"));
    }

    #[test]
    fn directory_is_not_read() {
        let failure = Sample::new("a", "").read("").unwrap_err();
        assert_eq!(failure.code.as_deref(), Some("is-a-directory"));
    }

    #[test]
    fn old_name_of_read_is_an_alias() {
        assert_eq!(testing::definition::<Read>()["aliases"], json!(["file_read"]));
    }
}
