//! Bytes to text: what the server says, what the page says, else a guess.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// The number of bytes that are searched for a page's encoding. Browsers search as many.
const HEAD: usize = 1024;

/// Decodes any bytes; those that are no text become `U+FFFD`. A byte order mark wins over
/// `content_type`, which wins over the page.
pub fn decode(bytes: &[u8], content_type: &str) -> String {
    let by_mark = Encoding::for_bom(bytes).map(|(encoding, _)| encoding);
    let encoding = by_mark
        .or_else(|| parameter(content_type))
        .or_else(|| find_declared(bytes))
        .unwrap_or_else(|| guess(bytes));
    encoding.decode(bytes).0.into_owned()
}

/// `charset` of a content type.
fn parameter(content_type: &str) -> Option<&'static Encoding> {
    let lower = content_type.to_ascii_lowercase();
    let (_, value) = lower.split_once("charset=")?;
    let end = value.find([';', ',', ' ']).unwrap_or(value.len());
    Encoding::for_label(value[..end].trim_matches(['"', '\'']).as_bytes())
}

/// `<meta charset>`, the longer form of it, or the XML declaration.
fn find_declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let head: String =
        bytes.iter().take(HEAD).map(|byte| char::from(byte.to_ascii_lowercase())).collect();
    let in_meta = head.match_indices("<meta").find_map(|(at, _)| {
        let tag = &head[at..];
        parameter(&tag[..tag.find('>')?])
    });
    let in_xml = || {
        let declaration = head.strip_prefix("<?xml")?;
        let (_, value) = declaration[..declaration.find("?>")?].split_once("encoding=")?;
        Encoding::for_label(value.get(1..)?.split(['"', '\'']).next()?.as_bytes())
    };
    let encoding = in_meta.or_else(in_xml)?;
    // What could be read so far was read a byte a letter.
    Some(if encoding.is_ascii_compatible() { encoding } else { UTF_8 })
}

/// UTF-8 where it is that, up to where a cut may have gone through a letter, and not its only one;
/// else what old pages are written in.
fn guess(bytes: &[u8]) -> &'static Encoding {
    match std::str::from_utf8(bytes) {
        Ok(_) => UTF_8,
        Err(error) if error.error_len().is_none() && !bytes[..error.valid_up_to()].is_ascii() => {
            UTF_8
        }
        Err(_) => WINDOWS_1252,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], content_type: &str, expected: &str) {
        assert_eq!(decode(bytes, content_type), expected);
    }

    #[test]
    fn the_server_is_believed_before_the_page_and_a_mark_before_both() {
        check(b"\xe9", "text/html; charset=ISO-8859-1", "é");
        check(b"\xe9", "text/html;charset=\"windows-1252\"; x=y", "é");
        check(b"\xef\xbb\xbf\xc3\xa9", "text/html; charset=latin1", "é");
        check(b"\xff\xfee\0", "", "e");
        check(
            b"<meta charset=utf-8>\xe9",
            "text/html; charset=iso-8859-1",
            "<meta charset=utf-8>é",
        );
    }

    #[test]
    fn the_page_is_believed_before_a_guess() {
        check(
            b"<META charset=\"shift_jis\">\x93\xfa",
            "text/html",
            "<META charset=\"shift_jis\">日",
        );
        let meta = "<meta http-equiv=content-type content='text/html; charset=windows-1251'>";
        check(&[meta.as_bytes(), b"\xcf"].concat(), "text/html", &format!("{meta}П"));
        check(
            b"<?xml version='1.0' encoding='iso-8859-1'?>\xe9",
            "text/xml",
            "<?xml version='1.0' encoding='iso-8859-1'?>é",
        );
        check(b"<meta charset=utf-16>\xc3\xa9", "text/html", "<meta charset=utf-16>é");
    }

    #[test]
    fn else_it_is_guessed() {
        check("é".as_bytes(), "text/html", "é");
        check(b"\x93quoted\x94", "text/html", "“quoted”");
        check(b"\xc3\xa9 cut \xc3", "text/html", "é cut \u{fffd}");
        check(b"caf\xe9", "text/html", "café");
        check(b"\xc3\xa9", "text/html; charset=no-such", "é");
        check(b"<meta charset=", "", "<meta charset=");
        check(b"<meta \xff", "", "<meta ÿ");
        check(b"", "", "");
    }
}
