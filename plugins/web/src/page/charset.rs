//! Decodes bytes to text by the encoding that the server names, else the page, else a guess.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// The number of bytes that are searched for a page's encoding, the same as in browsers.
const HEAD: usize = 1024;

/// Decodes any bytes. Invalid bytes become `U+FFFD`. A byte order mark wins over `content_type`,
/// and `content_type` wins over the page.
pub fn decode(bytes: &[u8], content_type: &str) -> String {
    let by_mark = Encoding::for_bom(bytes).map(|(encoding, _)| encoding);
    let encoding = by_mark
        .or_else(|| parameter(content_type))
        .or_else(|| find_declared(bytes))
        .unwrap_or_else(|| guess(bytes));
    encoding.decode(bytes).0.into_owned()
}

/// The encoding in the `charset` of a content type.
fn parameter(content_type: &str) -> Option<&'static Encoding> {
    let lower = content_type.to_ascii_lowercase();
    let (_, value) = lower.split_once("charset=")?;
    let end = value.find([';', ',', ' ']).unwrap_or(value.len());
    Encoding::for_label(value[..end].trim_matches(['"', '\'']).as_bytes())
}

/// The encoding in `<meta charset>`, in its longer form, or in the XML declaration.
fn find_declared(bytes: &[u8]) -> Option<&'static Encoding> {
    let head: String =
        bytes.iter().take(HEAD).map(|byte| char::from(byte.to_ascii_lowercase())).collect();
    let in_meta = head.match_indices("<meta").find_map(|(at, _)| {
        let tag = &head[at..];
        parameter(&tag[..tag.find('>')?])
    });
    let encoding = in_meta.or_else(|| find_in_xml(&head))?;
    // The declaration was readable with one byte for each letter, so it can't be right about
    // UTF-16.
    Some(if encoding.is_ascii_compatible() { encoding } else { UTF_8 })
}

fn find_in_xml(head: &str) -> Option<&'static Encoding> {
    let declaration = head.strip_prefix("<?xml")?;
    let (_, value) = declaration[..declaration.find("?>")?].split_once("encoding=")?;
    Encoding::for_label(value.get(1..)?.split(['"', '\'']).next()?.as_bytes())
}

/// Guesses UTF-8 if the bytes are valid. The last letter may be cut off if there are other letters
/// beyond ASCII. Else guesses the usual encoding of old pages.
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
    fn byte_order_mark_wins_over_server_and_server_over_page() {
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
    fn page_wins_over_the_guess() {
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
    fn undeclared_encoding_is_guessed() {
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
