//! Reads here-documents and backticks, because the grammar has no suitable nodes for them.

use tree_sitter::Node;

use super::word::{DISPUTED, expands};

/// The reason if a here-document may be longer or shorter than the grammar shows.
const NO_END: &str = "it has a here-document without an end, or one that shells read differently";

/// Checks that a shell reads a here-document in the same way as the grammar. Returns the commands
/// in backticks in the here-document.
///
/// # Errors
///
/// Returns the reason if this isn't certain.
pub(super) fn check(node: Node<'_>, source: &str) -> Result<Vec<String>, &'static str> {
    let children: Vec<Node<'_>> = node.children(&mut node.walk()).collect();
    let (Some(start), Some(body), Some(end)) = (
        child(&children, "heredoc_start"),
        child(&children, "heredoc_body"),
        child(&children, "heredoc_end"),
    ) else {
        return Err(NO_END);
    };
    let tabs = child(&children, "<<-").is_some();
    let written_delimiter = &source[start.byte_range()];
    let quoted = written_delimiter.contains(['\'', '"', '\\']);
    let delimiter = without_quotes(written_delimiter).ok_or(NO_END)?;
    if delimiter.is_empty() {
        return Err(NO_END);
    }

    // The document begins on the line after `<<`.
    let body_start = source[start.end_byte()..].find('\n').ok_or(NO_END)? + start.end_byte() + 1;
    let line_continues = source[start.end_byte()..body_start - 1].ends_with('\\');
    let before_body = children.iter().take_while(|child| child.id() != body.id());
    let mut signs = before_body.filter(|child| child.kind() != "\n");
    if line_continues || signs.any(|child| child.end_byte() > body_start) {
        return Err(NO_END);
    }

    let (text_length, whole_length) =
        lines(&source[body_start..], &delimiter, tabs, !quoted).ok_or(NO_END)?;
    let whole = source[body_start..body_start + whole_length].trim_end_matches('\n');
    if body_start + whole.len() != end.end_byte() {
        return Err(NO_END);
    }
    if quoted {
        return Ok(Vec::new());
    }

    let text = &source[body_start..body_start + text_length];
    let mut cursor = body.walk();
    let mut spans = body
        .children(&mut cursor)
        .filter(|child| child.kind() != "heredoc_content")
        .map(|child| child.byte_range());
    expanded(text, body_start, &mut spans)
}

fn child<'t>(children: &[Node<'t>], kind: &str) -> Option<Node<'t>> {
    children.iter().find(|child| child.kind() == kind).copied()
}

/// Returns the word that ends a here-document, without its quotes. Returns `None` if it has
/// characters that shells treat specially.
fn without_quotes(raw: &str) -> Option<String> {
    let mut text = String::new();
    let mut letters = raw.chars();
    let mut quote = None;
    while let Some(c) = letters.next() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            ('\\', None) => match letters.next() {
                None | Some('\n') => return None,
                Some(c) => text.push(c),
            },
            ('\\' | '\n', _) | ('$' | '`' | '(' | ')' | ';' | '&' | '|' | '<' | '>', None) => {
                return None;
            }
            (c, _) => text.push(c),
        }
    }
    quote.is_none().then_some(text)
}

/// Returns the length of a here-document's text, without and with the line that ends it.
/// `joins_lines` means that a backslash at the end of a line continues the line.
fn lines(text: &str, delimiter: &str, tabs: bool, joins_lines: bool) -> Option<(usize, usize)> {
    let mut at = 0;
    let mut line_start = 0;
    let mut line = String::new();
    for physical in text.split_inclusive('\n') {
        at += physical.len();
        let bare = physical.strip_suffix('\n').unwrap_or(physical);
        let slashes = bare.len() - bare.trim_end_matches('\\').len();
        let first = if line.is_empty() && tabs { bare.trim_start_matches('\t') } else { bare };
        if joins_lines && slashes % 2 == 1 && physical.ends_with('\n') {
            line.push_str(&first[..first.len() - 1]);
            continue;
        }
        line.push_str(first);
        if line == delimiter {
            return Some((line_start, at));
        }
        line.clear();
        line_start = at;
    }
    None
}

/// Returns the commands in backticks in the text of a here-document. In this text, only expansions
/// are special. `spans` are the expansions that the grammar found.
fn expanded(
    text: &str,
    offset: usize,
    spans: &mut dyn Iterator<Item = std::ops::Range<usize>>,
) -> Result<Vec<String>, &'static str> {
    let mut scripts = Vec::new();
    let mut at = 0;
    let mut spans = spans.peekable();
    while let Some(c) = text[at..].chars().next() {
        while spans.peek().is_some_and(|span| span.end <= at + offset) {
            spans.next();
        }
        if let Some(span) = spans.peek()
            && span.start == at + offset
        {
            // Shells interpret quotes inside of an expansion differently.
            let inner = &text[at..(span.end - offset).min(text.len())];
            if inner.starts_with("${") && inner.contains(['\'', '"', '\\', '`']) {
                return Err(DISPUTED);
            }
            at += inner.len();
            continue;
        }
        at += c.len_utf8();
        match c {
            '\\' => at += text[at..].chars().next().map_or(0, char::len_utf8),
            '$' if text[at..].chars().next().is_some_and(|c| expands(c) && "({[".contains(c)) => {
                return Err(DISPUTED);
            }
            '`' => {
                let (script, rest, why) = in_backticks(&text[at..], false).ok_or(NO_END)?;
                if let Some(why) = why {
                    return Err(why);
                }
                scripts.push(script);
                at = text.len() - rest.len();
            }
            _ => {}
        }
    }
    Ok(scripts)
}

/// Returns the text in backticks, the text after them, and the reason why shells may read it
/// differently. `source` is the text after the first backtick.
pub(super) fn in_backticks(
    source: &str,
    quoted: bool,
) -> Option<(String, &str, Option<&'static str>)> {
    let mut script = String::new();
    let mut why = None;
    let mut letters = source.char_indices();
    while let Some((at, c)) = letters.next() {
        match c {
            '`' => return Some((script, &source[at + 1..], why)),
            '\\' => match letters.next()?.1 {
                c @ ('$' | '`' | '\\') => script.push(c),
                '"' if quoted => {
                    why = Some("it has quotes in backticks in quotes");
                    script.push('"');
                }
                // Any other backslash belongs to the inner command.
                c => script.extend(['\\', c]),
            },
            c => script.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn here_document_ends_where_a_shell_ends_it() {
        let lengths = |text, tabs, joins_lines| lines(text, "EOF", tabs, joins_lines);
        assert_eq!(lengths("a\nEOF\nb", false, true), Some((2, 6)));
        assert_eq!(lengths("a\n EOF\nEOF", false, true), Some((7, 10)));
        assert_eq!(lengths("\tEOF\n", true, true), Some((0, 5)));
        assert_eq!(lengths("\tEOF\n", false, true), None);
        assert_eq!(lengths("a\\\nEOF\nb\nEOF\n", false, true), Some((9, 13)), "the line continues");
        assert_eq!(
            lengths("a\\\nEOF\nb\nEOF\n", false, false),
            Some((3, 7)),
            "with quotes, it doesn't"
        );
        assert_eq!(lengths("EO\\\nF\nb", false, true), Some((0, 6)));
        assert_eq!(lengths("a\\\\\nEOF\n", false, true), Some((4, 8)));
        assert_eq!(lengths("EOF x\n", false, true), None);
    }

    #[test]
    fn delimiter_loses_its_quotes() {
        assert_eq!(without_quotes("'E F'").as_deref(), Some("E F"));
        assert_eq!(without_quotes("\\EOF").as_deref(), Some("EOF"));
        assert_eq!(without_quotes("E\"O\"F").as_deref(), Some("EOF"));
        for unclear in ["$A", "'E", "E`x`", "a;"] {
            assert_eq!(without_quotes(unclear), None, "{unclear}");
        }
    }
}
