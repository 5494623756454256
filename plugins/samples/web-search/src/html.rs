//! As much of HTML as a list of links needs. It goes through a page once.

/// A link with its content.
pub(crate) struct Link<'p> {
    /// The text between `<a` and `>`.
    attributes: &'p str,
    /// The content before `</a>`.
    pub(crate) inner: &'p str,
}

impl Link<'_> {
    /// The value of an attribute, without its entities.
    pub(crate) fn attribute(&self, name: &str) -> Option<String> {
        let mut rest = self.attributes;
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
            let end =
                rest.find(|c: char| c.is_ascii_whitespace() || c == '=').unwrap_or(rest.len());
            if rest.is_empty() {
                return None;
            }
            let found = rest[..end].eq_ignore_ascii_case(name);
            rest = rest[end..].trim_start();
            let Some(value) = rest.strip_prefix('=') else { continue };
            let value = value.trim_start();
            let (value, after) = match value.chars().next() {
                Some(quote @ ('"' | '\'')) => value[1..].split_once(quote).unwrap_or((value, "")),
                _ => value.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((value, "")),
            };
            if found {
                return Some(decode(value));
            }
            rest = after;
        }
    }

    pub(crate) fn has_class(&self, class: &str) -> bool {
        let classes = self.attribute("class").unwrap_or_default();
        classes.split_ascii_whitespace().any(|one| one == class)
    }
}

/// The links of a page, in their order.
pub(crate) fn links(page: &str) -> impl Iterator<Item = Link<'_>> {
    let mut rest = page;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find('<')?;
            rest = &rest[start + 1..];
            if let Some(comment) = rest.strip_prefix("!--") {
                rest = &comment[comment.find("-->")?..];
                continue;
            }
            let end = tag_end(rest)?;
            let tag = &rest[..end];
            let after = &rest[end + 1..];
            rest = after;
            let Some(attributes) = tag.strip_prefix(['a', 'A']) else { continue };
            if !attributes.starts_with(|c: char| c.is_ascii_whitespace()) {
                continue;
            }
            // Without an end, what follows is no list of links either.
            let close = after.find("</a>")?;
            rest = &after[close..];
            return Some(Link { attributes, inner: &after[..close] });
        }
    })
}

/// Where a tag ends: at the first `>` outside of quotes.
fn tag_end(tag: &str) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in tag.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return Some(at),
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            _ => {}
        }
    }
    None
}

/// HTML as one line of plain text, of at most so many characters. A cut one ends in `…`.
pub(crate) fn text(html: &str, most: usize) -> String {
    let mut plain = String::new();
    let mut rest = html;
    // Entities and spaces become shorter, so more than is kept is read, but not all.
    while plain.len() < 16 * most {
        let Some(start) = rest.find('<') else {
            plain.push_str(cut(rest, 16 * most));
            break;
        };
        plain.push_str(cut(&rest[..start], 16 * most));
        let after = &rest[start + 1..];
        // A sign without a tag's name behind it is only a sign: `a < b`.
        let is_tag = after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '!');
        match is_tag.then(|| tag_end(after)) {
            Some(Some(end)) => rest = &after[end + 1..],
            Some(None) => {
                // No later tag ends either.
                plain.push_str(cut(&rest[start..], 16 * most));
                break;
            }
            None => {
                plain.push('<');
                rest = after;
            }
        }
    }
    let line = decode(&plain).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= most {
        return line;
    }
    line.chars().take(most).chain(['…']).collect()
}

/// At most so many bytes of a text, in whole characters.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Replaces the usual entities.
fn decode(text: &str) -> String {
    /// Bytes of the longest that is known: `&#1114111;`.
    const MAX_ENTITY: usize = 10;
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        decoded.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        let name = cut(rest, MAX_ENTITY).split_once(';').map(|(name, _)| name);
        match name.and_then(|name| Some((name, character(name)?))) {
            Some((name, character)) => {
                decoded.push(character);
                rest = &rest[name.len() + 1..];
            }
            None => decoded.push('&'),
        }
    }
    decoded + rest
}

fn character(entity: &str) -> Option<char> {
    match entity {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "nbsp" => Some(' '),
        _ => {
            let number = entity.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_one_plain_line() {
        for (html, plain) in [
            ("a <b>b</b>\n  c", "a b c"),
            ("1 &lt; 2 &amp;&amp; &#39;x&#x27; &unknown; &", "1 < 2 && 'x' &unknown; &"),
            ("a < b <i title='>'>c</i>", "a < b c"),
            ("&amp;lt;", "&lt;"),
            ("&#0000000000065;", "&#0000000000065;"),
            ("<unclosed", "<unclosed"),
            ("", ""),
        ] {
            assert_eq!(text(html, 100), plain);
        }
        assert_eq!(text("üüüü", 3), "üüü…");
    }

    #[test]
    fn attributes_are_found() {
        let page = "<abbr class=x><!-- <a class=c>no</a> --><A HREF='a>b' class = \"x  y\" data-class=z z=1/>in</a>";
        let links: Vec<Link> = links(page).collect();
        assert_eq!(links.len(), 1);
        let link = &links[0];
        assert_eq!(link.inner, "in");
        assert_eq!(link.attribute("href").as_deref(), Some("a>b"));
        assert!(link.has_class("x") && link.has_class("y") && !link.has_class("z"));
        assert_eq!(link.attribute("none"), None);
    }
}
