//! Detects by its first bytes whether a file is text, an image or other binary data.

use memchr::memchr;

/// The number of first bytes in which a NUL byte marks a file as binary. Git uses the same rule.
const SNIFFED: usize = 8 * 1024;

/// The kind of a file, by its first bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Text, usually in UTF-8.
    Text,
    /// An image with its media type.
    Image(&'static str),
    /// Any other file, with a description.
    Binary(&'static str),
}

/// The kind of a file that starts with `start`.
pub(super) fn detect(start: &[u8]) -> Kind {
    if let Some(media_type) = image(start) {
        return Kind::Image(media_type);
    }
    // A PDF isn't text, but its first NUL byte may come late.
    if start.starts_with(b"%PDF-") {
        return Kind::Binary("a PDF document");
    }
    if memchr(0, &start[..start.len().min(SNIFFED)]).is_none() {
        return Kind::Text;
    }
    let known: [(&[u8], &str); 9] = [
        (b"\x7fELF", "an ELF executable or library"),
        (b"PK\x03\x04", "a ZIP archive, or a document in one"),
        (b"\x1f\x8b", "gzip data"),
        (b"\x28\xb5\x2f\xfd", "zstd data"),
        (b"\xfd7zXZ\0", "xz data"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\0asm", "WebAssembly"),
        (b"\xff\xfe", "UTF-16 text"),
        (b"\xfe\xff", "UTF-16 text"),
    ];
    let what = known
        .iter()
        .find(|(magic, _)| start.starts_with(magic))
        .map_or("it has NUL bytes", |(_, what)| what);
    Kind::Binary(what)
}

fn image(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_decide_the_kind() {
        for (start, kind) in [
            (b"".as_slice(), Kind::Text),
            (b"plain", Kind::Text),
            (b"latin \xe9", Kind::Text),
            (b"\x89PNG\r\n\x1a\n\0", Kind::Image("image/png")),
            (b"\xff\xd8\xff\xe0\0", Kind::Image("image/jpeg")),
            (b"GIF89a\0", Kind::Image("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Kind::Image("image/webp")),
            (b"RIFF\0\0\0\0WAVEfmt ", Kind::Binary("it has NUL bytes")),
            (b"\xff\xfeh\0i\0", Kind::Binary("UTF-16 text")),
            (b"%PDF-1.7\n", Kind::Binary("a PDF document")),
        ] {
            assert_eq!(detect(start), kind, "{start:?}");
        }
    }

    #[test]
    fn late_nul_byte_does_not_make_a_text_binary() {
        let text = [vec![b'a'; SNIFFED], vec![0]].concat();
        assert_eq!(detect(&text), Kind::Text);
        assert_eq!(detect(&text[1..]), Kind::Binary("it has NUL bytes"));
    }
}
