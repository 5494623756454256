//! A parser for the part of TOML that the manifests of this repository use. So xtask needs no
//! dependency.

/// A parsed `Cargo.toml`.
pub(crate) struct Manifest {
    entries: Vec<Entry>,
}

/// One `key = value`, and its place.
pub(crate) struct Entry {
    /// From 1.
    pub(crate) line: usize,
    /// The table that it is in: `dependencies`, `package`, `target.'cfg(unix)'.dependencies`.
    pub(crate) table: String,
    pub(crate) key: String,
    /// The text of the value. The lines of an array are joined.
    pub(crate) value: String,
}

/// A crate that a package depends on.
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// Whether only tests, examples and benches use it.
    pub(crate) dev: bool,
    /// Whether the version and source come from the root's `[workspace.dependencies]`.
    pub(crate) from_workspace: bool,
}

impl Manifest {
    pub(crate) fn parse(text: &str) -> Manifest {
        let mut entries: Vec<Entry> = Vec::new();
        let mut table = String::new();
        let mut open = 0;
        for (number, line) in text.lines().enumerate() {
            let line = without_comment(line).trim();
            if open > 0 {
                if let Some(last) = entries.last_mut() {
                    last.value.push_str(line);
                }
                open += balance(line);
            } else if let Some(header) = line.strip_prefix('[') {
                table = header.trim_matches(|c| c == '[' || c == ']').trim().to_owned();
            } else if let Some((key, value)) = line.split_once('=') {
                open = balance(value);
                let entry = Entry {
                    line: number + 1,
                    table: table.clone(),
                    key: key.trim().to_owned(),
                    value: value.trim().to_owned(),
                };
                entries.push(entry);
            }
        }
        Manifest { entries }
    }

    /// The value of a key with a string. `None` if the key is missing.
    pub(crate) fn string(&self, table: &str, key: &str) -> Option<String> {
        self.strings(table, key).into_iter().next()
    }

    /// The strings of a key with an array (or with one string).
    pub(crate) fn strings(&self, table: &str, key: &str) -> Vec<String> {
        let value = self
            .entries
            .iter()
            .find(|entry| entry.table == table && entry.key == key)
            .map_or("", |entry| &entry.value);
        // The texts between quotes: every second piece.
        value.split('"').skip(1).step_by(2).map(str::to_owned).collect()
    }

    /// Whether the package takes a table from the workspace: `[lints] workspace = true`.
    pub(crate) fn inherits(&self, table: &str) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.table == table && entry.key == "workspace" && entry.value == "true")
    }

    /// All dependencies of the package, for every purpose and platform.
    pub(crate) fn dependencies(&self) -> Vec<Dependency> {
        let mut found: Vec<Dependency> = Vec::new();
        for entry in &self.entries {
            let Some((kind, named_by_table)) = dependency_table(&entry.table) else { continue };
            let (name, attribute) = match (named_by_table, entry.key.split_once('.')) {
                (Some(name), _) => (name, entry.key.as_str()),
                (None, Some((name, attribute))) => (name, attribute),
                (None, None) => (entry.key.as_str(), ""),
            };
            let from_workspace =
                attribute == "workspace" || entry.value.contains("workspace = true");
            let dev = kind == "dev-dependencies";
            match found.iter_mut().find(|found| found.name == name && found.dev == dev) {
                Some(known) => known.from_workspace |= from_workspace,
                None => found.push(Dependency {
                    name: name.trim_matches('"').to_owned(),
                    line: entry.line,
                    dev,
                    from_workspace,
                }),
            }
        }
        found
    }
}

/// The kind of a table of dependencies, and the crate's name if the table describes a single one.
fn dependency_table(table: &str) -> Option<(&str, Option<&str>)> {
    if table.starts_with("workspace.") {
        return None;
    }
    for kind in ["dev-dependencies", "build-dependencies", "dependencies"] {
        if table == kind || table.ends_with(&format!(".{kind}")) {
            return Some((kind, None));
        }
        if let Some((before, name)) = table.rsplit_once('.')
            && (before == kind || before.ends_with(&format!(".{kind}")))
        {
            return Some((kind, Some(name)));
        }
    }
    None
}

fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

/// The number of opening brackets minus the number of closing ones.
fn balance(value: &str) -> i32 {
    let mut quoted = false;
    let mut open = 0;
    for c in value.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => open += 1,
            ']' | '}' if !quoted => open -= 1,
            _ => {}
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::Manifest;

    const SAMPLE: &str = r#"
[package]
name = "sample" # not "another"
[lib]
crate-type = ["cdylib",
  "lib"]
[lints]
workspace = true
[dependencies]
serde.workspace = true
tokio = { workspace = true, features = ["rt"] }
clap = { version = "4", features = [
    "std", # a comment with ] in it
] }
[dev-dependencies.wat]
version = "1"
[target.'cfg(unix)'.dependencies]
libc = "0.2"
[features]
all = []
"#;

    #[test]
    fn values_are_read() {
        let manifest = Manifest::parse(SAMPLE);
        assert_eq!(manifest.string("package", "name").as_deref(), Some("sample"));
        assert_eq!(manifest.strings("lib", "crate-type"), ["cdylib", "lib"]);
        assert_eq!(manifest.string("package", "description"), None);
        assert!(manifest.inherits("lints"));
        assert!(!manifest.inherits("package"));
    }

    #[test]
    fn dependencies_of_every_form_are_found() {
        let found: Vec<_> = Manifest::parse(SAMPLE)
            .dependencies()
            .into_iter()
            .map(|d| (d.name, d.line, d.dev, d.from_workspace))
            .collect();
        let expected = [
            ("serde", 10, false, true),
            ("tokio", 11, false, true),
            ("clap", 12, false, false),
            ("wat", 16, true, false),
            ("libc", 18, false, false),
        ];
        assert_eq!(
            found,
            expected.map(|(name, line, dev, workspace)| (name.to_owned(), line, dev, workspace))
        );
    }
}
