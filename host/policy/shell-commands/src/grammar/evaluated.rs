//! Finds texts in a syntax tree that bash evaluates although they aren't commands. The module
//! `calculated` decides whether they can start a command.

use tree_sitter::Node;

use super::super::calculated::{CALCULATED, Rule, is_name};
use super::super::variables;
use super::super::word::{DISPUTED, Word, word};
use super::Walk;
use super::nodes::is_word;

/// Operators of `[[ … ]]` that evaluate both sides as arithmetic.
const COMPARISONS: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

impl<'t> Walk<'t> {
    /// Checks `((…))` and `$((…))`. A shell reads the text as arithmetic or as nested subshells,
    /// depending on where the brackets close.
    pub(super) fn arithmetic(&mut self, node: Node<'t>) {
        let mut texts = String::new();
        let mut at = node.start_byte();
        let mut cursor = node.walk();
        'all: loop {
            let inner = cursor.node();
            let is_body = node.kind() == "c_style_for_statement"
                && matches!(inner.kind(), "do_group" | "compound_statement");
            if is_body {
                texts.push_str(&self.source[at..inner.start_byte()]);
                at = node.end_byte();
                break;
            }
            let has_own_node = inner.id() != node.id()
                && matches!(
                    inner.kind(),
                    "command_substitution"
                        | "expansion"
                        | "simple_expansion"
                        | "string"
                        | "arithmetic_expansion"
                        | "process_substitution"
                );
            if has_own_node {
                texts.push_str(self.source.get(at..inner.start_byte()).unwrap_or_default());
                at = inner.end_byte();
            } else if cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    break 'all;
                }
            }
        }
        texts.push_str(self.source.get(at..node.end_byte()).unwrap_or_default());
        let is_loop = node.kind() == "c_style_for_statement";
        if Rule::Arithmetic.is_enabled() {
            self.add_arithmetic(node, is_loop);
        }
        let is_arithmetic =
            between_brackets(&texts).is_some_and(|inner| is_balanced(inner, is_loop));
        let has_comment = texts.contains(" #") || texts.contains("\t#") || texts.contains("\n#");
        if !is_arithmetic || has_comment {
            self.unclear("the command has arithmetic that some shells read as commands");
        }
    }

    /// Adds the arithmetic of a node. `is_loop` means that the node is `for ((…; …; …))`.
    fn add_arithmetic(&mut self, node: Node<'t>, is_loop: bool) {
        let body = node
            .children(&mut node.walk())
            .find(|child| matches!(child.kind(), "do_group" | "compound_statement"));
        let end = match body {
            Some(body) if is_loop => body.start_byte(),
            _ => node.end_byte(),
        };
        let text = self.source.get(node.start_byte()..end).unwrap_or_default();
        match between_brackets(text) {
            Some(inner) if is_loop => {
                for part in inner.split(';') {
                    self.variables.add_arithmetic(part);
                }
            }
            Some(inner) => self.variables.add_arithmetic(inner),
            None => self.unclear(CALCULATED),
        }
    }

    pub(super) fn index(&mut self, text: &str) {
        let Some((_, index)) = text.split_once('[') else { return };
        let index = index.rsplit_once(']').map_or(index, |(index, _)| index);
        if Rule::Index.is_enabled() && !matches!(index, "@" | "*") {
            self.variables.add_arithmetic(index);
        }
    }

    /// Adds the indexes in a list, such as `([1]=a)`. The shell evaluates an index as arithmetic.
    pub(super) fn add_indexes(&mut self, node: Node<'t>) {
        for child in node.children(&mut node.walk()) {
            let text = self.text(child);
            if text.starts_with('[') && Rule::Index.is_enabled() {
                let index = text.split("]=").next().unwrap_or(text);
                self.variables.add_arithmetic(index);
            }
        }
    }

    pub(super) fn add_for_loop(&mut self, node: Node<'t>) {
        let Some(name_node) = node.child_by_field_name("variable") else { return };
        let values: Vec<Node<'t>> =
            node.children_by_field_name("value", &mut node.walk()).collect();
        let name = self.text(name_node);
        if variables::affects_programs(name) {
            self.unclear(
                "the command sets a variable that changes which programs or which code run",
            );
        }
        match (values.first(), values.last()) {
            (Some(first), Some(last)) => {
                let words =
                    self.source.get(first.start_byte()..last.end_byte()).unwrap_or_default();
                self.variables.add_loop(name, words);
            }
            // Without words, the loop is over the arguments of the script.
            _ => self.variables.add_unknown_value(name),
        }
    }

    /// Adds the texts in `${…}` that bash evaluates, apart from the value of the variable.
    pub(super) fn expanded(&mut self, text: &str) {
        // If the expansion is in quotes, shells read `$'…'` in it differently.
        if text.contains("$'") {
            self.unclear(DISPUTED);
        }
        let braced = text.strip_prefix("${").unwrap_or(text);
        let inner = braced.strip_suffix('}').unwrap_or(braced);
        let indirect = inner.strip_prefix('!');
        let measured = inner.strip_prefix('#').filter(|measured| !measured.is_empty());
        let inner = indirect.or(measured).unwrap_or(inner);
        let end = inner
            .find(|c: char| !c.is_ascii_alphanumeric() && !"_@*#?$!-".contains(c))
            .unwrap_or(inner.len());
        // If this isn't a name, it is a special parameter such as `#`, or contains an operator such
        // as `@`. Then only the letters, digits and underscores at the start are the name.
        let end = if is_name(&inner[..end]) {
            end
        } else {
            inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len())
        };
        let (name, mut after_name) = inner.split_at(end);
        if name.is_empty() {
            after_name = after_name.get(1..).unwrap_or_default();
        }
        // `${!x*}` and `${!x[@]}` only list names and indexes.
        if indirect.is_some() && matches!(after_name, "*" | "@" | "[@]" | "[*]") {
            return;
        }
        if indirect.is_some() && Rule::Indirect.is_enabled() {
            let target = if is_name(name) { name } else { inner };
            self.variables.add_arithmetic(target);
        }
        if after_name.starts_with('[') {
            // `index` checks the index itself, so continue after its closing bracket.
            let mut depth = 0_i32;
            let end = after_name.char_indices().find(|(_, c)| {
                depth += i32::from(*c == '[') - i32::from(*c == ']');
                depth == 0
            });
            after_name = end.map_or("", |(at, _)| &after_name[at + 1..]);
        }
        if after_name.starts_with('@') && after_name.contains('P') && Rule::Prompt.is_enabled() {
            self.unclear("the command evaluates a string that is only known at run time");
        }
        let has_arithmetic = after_name.contains("$((") || after_name.contains("$[");
        if has_arithmetic && Rule::Arithmetic.is_enabled() {
            self.variables.add_arithmetic(
                after_name.trim_start_matches([':', '-', '=', '?', '+', '#', '%', '/', '^', ',']),
            );
        }
        let default = after_name.strip_prefix(":=").or_else(|| after_name.strip_prefix('='));
        if let Some(value) = default {
            if Rule::Default.is_enabled() {
                self.variables.add_value(name, value);
            }
        } else if let Some(slice) = after_name.strip_prefix(':')
            && !slice.starts_with(['-', '?', '+'])
            && Rule::Slice.is_enabled()
        {
            self.variables.add_arithmetic(slice);
        }
    }

    /// Returns the words of a test without its brackets, in the order of the text.
    pub(super) fn words_of_test(&self, node: Node<'t>) -> Vec<Word> {
        let mut words = Vec::new();
        let mut cursor = node.walk();
        loop {
            let inner = cursor.node();
            let is_whole_word = is_word(inner);
            if is_whole_word {
                let (whole_word, _) = word(inner, self.source);
                words.push(whole_word);
            } else if inner.child_count() == 0 {
                words.push(Word::plain(self.text(inner)));
            }
            if !is_whole_word && cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    // The first and the last word are the brackets.
                    words.pop();
                    if !words.is_empty() {
                        words.remove(0);
                    }
                    return words;
                }
            }
        }
    }

    pub(super) fn condition(&mut self, node: Node<'t>) {
        let mut operator_count = 0;
        let mut cursor = node.walk();
        'all: loop {
            let inner = cursor.node();
            let operator = self.text(inner);
            let is_checked = COMPARISONS.contains(&operator) || operator == "-v";
            if is_checked && inner.child_count() == 0 {
                operator_count += 1;
                let parent = inner.parent().unwrap_or(node);
                let left = self.source.get(parent.start_byte()..inner.start_byte());
                let right = self.source.get(inner.end_byte()..parent.end_byte());
                let sides = [left, right].map(|side| side.unwrap_or_default().trim());
                if operator == "-v" {
                    if Rule::ConditionName.is_enabled() {
                        self.variables.add_name(sides[1].trim_end_matches("]]").trim());
                    }
                } else if Rule::Comparison.is_enabled() {
                    for side in sides {
                        let inner = side.trim_start_matches("[[").trim_end_matches("]]");
                        self.variables.add_arithmetic(inner);
                    }
                }
            }
            if cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    break 'all;
                }
            }
        }
        // If the tree has fewer of these operators than the text, a shell may read the text
        // differently.
        let tokens = self.text(node).split(|c: char| c.is_whitespace() || matches!(c, '(' | ')'));
        let written_count =
            tokens.filter(|token| COMPARISONS.contains(token) || *token == "-v").count();
        if written_count != operator_count {
            self.unclear(DISPUTED);
        }
    }
}

/// Returns the text in the brackets of `((…))`, `$((…))`, `$[…]` or `for ((…));`.
fn between_brackets(text: &str) -> Option<&str> {
    let from_bracket = text.trim_start_matches("for").trim_start().trim_start_matches('$');
    let brackets = from_bracket.trim_end().trim_end_matches(';').trim_end();
    if let Some(inner) = brackets.strip_prefix("((").and_then(|inner| inner.strip_suffix("))")) {
        return Some(inner);
    }
    brackets.strip_prefix('[')?.strip_suffix(']')
}

/// Checks whether arithmetic has balanced brackets and starts no command. `is_loop` means that the
/// arithmetic has three parts with `;` between them.
fn is_balanced(arithmetic: &str, is_loop: bool) -> bool {
    let mut depth = 0_i32;
    for c in arithmetic.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ';' if is_loop => {}
            c if !is_inert(c) => return false,
            _ => {}
        }
        if depth < 0 {
            return false;
        }
    }
    depth == 0
}

fn is_inert(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_+-*/%<>=!&|^~?:,.#@[]() \t\n".contains(c)
}
