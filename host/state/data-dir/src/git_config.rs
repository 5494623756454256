//! Reads the entries of git's configuration files, without running git.

/// An entry of a git configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitEntry {
    /// The section in lower case.
    pub section: String,
    /// The second part of the section's title, as written: `[remote "NAME"]`.
    pub subsection: Option<String>,
    /// The name of the variable in lower case.
    pub name: String,
    /// The value without quotes, escapes and a comment.
    pub value: String,
}

/// Returns the entries of a git configuration file. Lines that can't be read are left out.
pub fn git_entries(text: &str) -> Vec<GitEntry> {
    let mut entries = Vec::new();
    let mut title = (String::new(), None);
    let joined_lines = text.replace("\\\r\n", "").replace("\\\n", "");
    for line in joined_lines.lines().map(str::trim) {
        let variable = match line.strip_prefix('[') {
            Some(header) => {
                // A variable may follow in the same line.
                let (written, rest) = header.split_once(']').unwrap_or((header, ""));
                title = read_title(written);
                rest
            }
            None => line,
        };
        let Some((written_name, value)) = variable.split_once('=') else { continue };
        let (section, subsection) = title.clone();
        let name = written_name.trim().to_lowercase();
        entries.push(GitEntry { section, subsection, name, value: unquote(value.trim()) });
    }
    entries
}

/// Returns the section and the second part of a title, such as `remote "NAME"` or `remote.name`.
fn read_title(title: &str) -> (String, Option<String>) {
    match title.split_once(|letter: char| letter.is_whitespace() || letter == '.') {
        Some((section, part)) => {
            (section.to_lowercase(), Some(part.trim().trim_matches('"').to_owned()))
        }
        None => (title.to_lowercase(), None),
    }
}

/// Returns a value without quotes, escapes and a comment.
fn unquote(value: &str) -> String {
    let mut text = String::new();
    let mut is_quoted = false;
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => is_quoted = !is_quoted,
            '#' | ';' if !is_quoted => break,
            '\\' => match letters.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some(escaped) => text.push(escaped),
                // A backslash at the end escapes nothing.
                None => break,
            },
            _ => text.push(letter),
        }
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_their_section_and_value() {
        let text = "[Core]\n\tBare = false ; no\n[url \"https://Mirror.example/\"]\n  insteadOf = \
                    \"https://git.example/\" # all\n[remote.old] url = one\\\n two\n[broken\nx\n";
        let found: Vec<(String, Option<String>, String, String)> = git_entries(text)
            .into_iter()
            .map(|entry| (entry.section, entry.subsection, entry.name, entry.value))
            .collect();
        let expected = [
            ("core", None, "bare", "false"),
            ("url", Some("https://Mirror.example/"), "insteadof", "https://git.example/"),
            ("remote", Some("old"), "url", "one two"),
        ];
        let expected = expected.map(|(section, part, name, value)| {
            (section.to_owned(), part.map(str::to_owned), name.to_owned(), value.to_owned())
        });
        assert_eq!(found, expected);
    }
}
