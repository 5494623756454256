//! Reads here-documents and backticks, which shells and the grammar read differently.

use tree_sitter::Node;

use super::word::DISPUTED;

const NO_END: &str = "the command has a here-document without an end, or a here-document that \
                      shells read differently";

/// Checks that a shell and the grammar read a here-document in the same way. Returns the commands
/// in backticks in the document. The error is the reason why a shell may read it differently.
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

    // A shell reads the document from the line below the delimiter. If the first line continues
    // there, after a backslash or in a text of several lines, a shell may read something else as
    // the document than the grammar.
    let rest_length = source[start.end_byte()..].find('\n').ok_or(NO_END)?;
    let first_line_end = start.end_byte() + rest_length;
    let body_start = first_line_end + 1;
    let line_continues = source[start.end_byte()..first_line_end].ends_with('\\');
    let nodes_before_body = children.iter().take_while(|child| child.id() != body.id());
    let mut first_line_nodes = nodes_before_body.filter(|child| child.kind() != "\n");
    let node_continues = first_line_nodes.any(|child| child.end_byte() > body_start);
    if line_continues || node_continues {
        return Err(NO_END);
    }

    let (text_length, whole_length) =
        split_lengths(&source[body_start..], &delimiter, tabs, !quoted).ok_or(NO_END)?;
    let whole = source[body_start..body_start + whole_length].trim_end_matches('\n');
    // `split_lengths` reads the document like a shell.
    let end_for_shell = body_start + whole.len();
    let end_for_grammar = end.end_byte();
    if end_for_shell != end_for_grammar {
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

/// Returns the word that ends a here-document, without its quotes. Returns `None` if the word
/// contains a character that shells treat specially.
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
                Some(escaped) => text.push(escaped),
            },
            // Shells treat these characters specially in the end word.
            ('\\' | '\n', _) | ('$' | '`' | '(' | ')' | ';' | '&' | '|' | '<' | '>', None) => {
                return None;
            }
            (c, _) => text.push(c),
        }
    }
    let is_closed = quote.is_none();
    if is_closed { Some(text) } else { None }
}

/// Returns the length of a here-document, first without and then with its last line `delimiter`.
/// Returns `None` if no line is `delimiter`. `skips_tabs` means that shells ignore tabs at the
/// start of a line. `joins_lines` means that a backslash at the end of a line continues the line.
fn split_lengths(
    text: &str,
    delimiter: &str,
    skips_tabs: bool,
    joins_lines: bool,
) -> Option<(usize, usize)> {
    let mut physical_end = 0;
    let mut line_start = 0;
    let mut line = String::new();
    for physical in text.split_inclusive('\n') {
        physical_end += physical.len();
        let bare = physical.strip_suffix('\n').unwrap_or(physical);
        let is_line_start = line.is_empty();
        let content =
            if skips_tabs && is_line_start { bare.trim_start_matches('\t') } else { bare };
        // Two backslashes are an escaped backslash, so only an odd number continues the line.
        let backslashes = bare.len() - bare.trim_end_matches('\\').len();
        let is_continued = backslashes % 2 == 1 && physical.ends_with('\n');
        if joins_lines && is_continued {
            let without_backslash = &content[..content.len() - 1];
            line.push_str(without_backslash);
            continue;
        }
        line.push_str(content);
        if line == delimiter {
            return Some((line_start, physical_end));
        }
        line.clear();
        line_start = physical_end;
    }
    None
}

/// Returns the commands in backticks in a here-document. `offset` is the position of `text` in the
/// source. `spans` are the positions of the expansions that the grammar found.
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
            // Shells read quotes in `${…}` differently.
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
            // The grammar missed an expansion.
            '$' if text[at..].starts_with(['(', '{', '[']) => return Err(DISPUTED),
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

/// Returns the text in backticks, the text after the second backtick, and the reason why shells may
/// read the text differently. `source` starts after the first backtick. `quoted` means that the
/// backticks are in double quotes.
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
            '\\' => {
                let (_, escaped) = letters.next()?;
                match escaped {
                    '$' | '`' | '\\' => script.push(escaped),
                    '"' if quoted => {
                        why = Some("the command has quotes in backticks in quotes");
                        script.push('"');
                    }
                    // The backslash isn't special before other characters.
                    _ => script.extend(['\\', escaped]),
                }
            }
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
        let lengths = |text, tabs, joins_lines| split_lengths(text, "EOF", tabs, joins_lines);
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
