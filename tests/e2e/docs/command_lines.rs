//! Command lines in the documents: every subcommand and option of `toolhold` in them exists.

use std::collections::BTreeMap;
use std::fs;

use super::markdown::{blocks, code_spans, document, documents, root};

/// Documents besides those with examples that the tests run.
const OTHERS: [&str; 5] = [
    "CONTRIBUTING.md",
    "SECURITY.md",
    "plugins/sdk/README.md",
    "plugins/samples/README.md",
    "plugins/examples/rust/README.md",
];

/// The options of a command, and whether each takes a value.
type Options = BTreeMap<String, bool>;

/// The options of every command, by its name after `toolhold`.
struct Commands(BTreeMap<String, Options>);

impl Commands {
    /// The commands of docs/cli.md, which is compared with the help.
    fn from_page(page: &str) -> Self {
        let sections = page.split("\n## `toolhold").skip(1);
        let commands = sections.map(|section| {
            let (name, help) = section.split_once('`').expect("a heading is a command");
            (name.trim().to_owned(), help.lines().flat_map(options).collect())
        });
        Self(commands.collect())
    }

    /// What is wrong with the words after `toolhold`. `None` if nothing is.
    fn fault(&self, words: &[String]) -> Option<String> {
        let mut name = String::new();
        let mut words = words.iter();
        while let Some(word) = words.next().filter(|word| *word != "--") {
            if word.starts_with('-') && word != "-" {
                let option = word.split('=').next().unwrap_or_default();
                let own = self.0[&name].get(option);
                let Some(takes_value) = own.or_else(|| self.0[""].get(option)) else {
                    return Some(format!("`toolhold {name}` has no option {option}"));
                };
                if *takes_value && !word.contains('=') {
                    words.next();
                }
                continue;
            }
            let longer = format!("{name} {word}").trim_start().to_owned();
            if self.0.contains_key(&longer) {
                name = longer;
            } else if self.has_subcommands(&name)
                && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
                && !["help", "-"].contains(&word.as_str())
            {
                return Some(format!("`toolhold {name}` has no subcommand {word}"));
            }
        }
        None
    }

    fn has_subcommands(&self, name: &str) -> bool {
        let start = format!("{name} ");
        name.is_empty() || self.0.keys().any(|other| other.starts_with(&start))
    }
}

/// The options that a line of a help describes, as in `  -o, --output <FILE>`. The value in
/// `--trusted[=<HASH>]` is never the next word.
fn options(line: &str) -> Vec<(String, bool)> {
    let names = line.trim_start().split([' ', ',', '[', '=']).filter(|word| !word.is_empty());
    names
        .take_while(|word| word.starts_with('-') && *word != "-")
        .map(|name| (name.to_owned(), line.contains(" <")))
        .collect()
}

/// The lines of a document that may be commands.
fn lines(document: &str) -> Vec<String> {
    let mut lines = code_spans(document);
    for block in blocks(document) {
        let text = block.text.replace("\\\n", " ");
        match block.language.as_str() {
            "sh" | "bash" | "yaml" | "ini" => lines.extend(text.lines().map(str::to_owned)),
            "console" | "text" | "" => {
                lines.extend(
                    text.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned),
                );
            }
            _ => {}
        }
    }
    lines
}

/// The options of other programs that take the name of a user. The server of the page for
/// administrators has a user with the name `toolhold`.
const USER_OPTIONS: [&str; 4] = ["-o", "-g", "--reuid", "--regid"];

/// The words after each `toolhold` in a line.
fn calls(line: &str) -> Vec<Vec<String>> {
    let starts = line.match_indices("toolhold ").filter(|(start, _)| {
        let before = &line[..*start];
        let is_user =
            before.split(' ').rev().nth(1).is_some_and(|word| USER_OPTIONS.contains(&word));
        let last = before.chars().next_back();
        !is_user && last.is_none_or(|c| [' ', '"', '\'', '('].contains(&c))
    });
    starts.map(|(start, name)| words(&line[start + name.len()..])).collect()
}

/// The words of a shell up to the end of a command.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut last = ' ';
    for c in line.chars() {
        let is_end = "|;&<>)".contains(c) || (last, c) == ('$', '(') || (last, c) == (' ', '#');
        match quote {
            Some(open) if open == c => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if is_end => break,
            None if c == ' ' => words.push(String::new()),
            _ => words.last_mut().expect("there is a word").push(c),
        }
        last = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn commands_in_the_documents_exist() {
    let commands = Commands::from_page(&document("docs/cli.md"));
    let decisions = fs::read_dir(root().join("docs/decisions")).expect("there are decisions");
    let decisions =
        decisions.flatten().map(|page| format!("docs/decisions/{}", page.file_name().display()));
    let pages = documents().into_iter().chain(decisions).chain(OTHERS.map(str::to_owned));
    let mut count = 0;
    let mut faults = Vec::new();
    for path in pages.filter(|path| path != "docs/cli.md") {
        for line in lines(&document(&path)) {
            for call in calls(&line) {
                count += 1;
                faults
                    .extend(commands.fault(&call).map(|fault| format!("{path}: {fault}: {line}")));
            }
        }
    }
    assert!(count >= 400, "only {count} commands were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn unknown_subcommands_and_options_are_found() {
    let page = "# X\n\n## `toolhold`\n\n      --set <KEY=VALUE>\n\n## `toolhold call`\n\n  -o, --output <FILE>\n      --json\n      --trusted[=<HASH>]\n\n## `toolhold plugin`\n\n## `toolhold plugin add`\n";
    let commands = Commands::from_page(page);
    let cases = [
        ("toolhold --set call call --json x --output=y", None),
        ("toolhold 'set the port'", None),
        ("toolhold call --trusted --json", None),
        ("x | toolhold call bash command='ls -la; x' -o y && z --more", None),
        ("$(toolhold call --json -- --other)", None),
        ("toolhold plugin NAME", None),
        ("toolhold plugin remove my", Some("`toolhold plugin` has no subcommand remove")),
        ("toolhold call -x", Some("`toolhold call` has no option -x")),
        ("/usr/bin/toolhold other", None),
    ];
    for (line, expected) in cases {
        let found = calls(line).iter().find_map(|call| commands.fault(call));
        assert_eq!(found.as_deref(), expected, "{line}");
    }
}
