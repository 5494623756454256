//! The syntax nodes with a known meaning, and harmless text between nodes.

use tree_sitter::Node;

use super::super::word::expands;

pub(super) const KNOWN: [&str; 59] = [
    "ansi_c_string",
    "arithmetic_expansion",
    "array",
    "binary_expression",
    "brace_expression",
    "c_style_for_statement",
    "case_item",
    "case_statement",
    "command",
    "command_name",
    "command_substitution",
    "comment",
    "compound_statement",
    "concatenation",
    "declaration_command",
    "do_group",
    "elif_clause",
    "else_clause",
    "expansion",
    "extglob_pattern",
    "file_descriptor",
    "file_redirect",
    "for_statement",
    "function_definition",
    "heredoc_body",
    "heredoc_content",
    "heredoc_end",
    "heredoc_redirect",
    "heredoc_start",
    "herestring_redirect",
    "if_statement",
    "list",
    "negated_command",
    "number",
    "parenthesized_expression",
    "pipeline",
    "postfix_expression",
    "process_substitution",
    "program",
    "raw_string",
    "redirected_statement",
    "regex",
    "simple_expansion",
    "special_variable_name",
    "string",
    "string_content",
    "subscript",
    "subshell",
    "ternary_expression",
    "test_command",
    "test_operator",
    "translated_string",
    "unary_expression",
    "unset_command",
    "variable_assignment",
    "variable_assignments",
    "variable_name",
    "while_statement",
    "word",
];

/// Checks that a text has no character that starts or ends a command or a quote. `in_braces` means
/// that the text is in `${…}`, which only a closing brace ends.
pub(super) fn is_inert_text(text: &str, in_braces: bool) -> bool {
    let mut letters = text.chars().peekable();
    let mut depth = 0_i32;
    while let Some(c) = letters.next() {
        let next = letters.peek().copied();
        let is_before_name = next.is_some_and(|next| expands(next) && !"$?!*@#-".contains(next));
        match c {
            '\\' if next == Some('\n') => return false,
            // A backslash makes the next character ordinary.
            '\\' => {
                letters.next();
            }
            '\'' | '"' | '`' => return false,
            '$' if in_braces && is_before_name => return false,
            '$' | '<' | '>' if next == Some('(') => return false,
            '{' | '}' if in_braces => return false,
            ';' | '&' | '\n' if !in_braces => return false,
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth < 0 && !in_braces {
            return false;
        }
    }
    depth == 0 || in_braces
}

pub(super) fn is_word(node: Node<'_>) -> bool {
    let kind = node.kind();
    node.is_named()
        && matches!(
            kind,
            "word"
                | "number"
                | "string"
                | "raw_string"
                | "ansi_c_string"
                | "translated_string"
                | "concatenation"
                | "simple_expansion"
                | "expansion"
                | "command_substitution"
                | "process_substitution"
                | "arithmetic_expansion"
                | "brace_expression"
                | "variable_name"
                | "special_variable_name"
                | "test_operator"
                | "regex"
                | "variable_assignment"
                | "array"
        )
}

/// Checks whether a path is a device that stores nothing.
pub(in super::super) fn is_harmless(path: &str) -> bool {
    if let Some(number) = path.strip_prefix("/dev/fd/") {
        return !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    }
    matches!(
        path,
        "/dev/null" | "/dev/stdout" | "/dev/stderr" | "/dev/stdin" | "/dev/zero" | "/dev/tty"
    )
}
