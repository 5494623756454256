//! Returns the URLs in the settings of tools. The texts may be damaged, or in another format: what
//! can't be read has no URLs.

use toolhold_data_dir::git_entries;

/// Keys of `pip.conf`, as pip spells them, and the variables with the same meaning.
const PIP_KEYS: [(&str, &str); 2] =
    [("index-url", "PIP_INDEX_URL"), ("extra-index-url", "PIP_EXTRA_INDEX_URL")];

/// Returns the URLs of `registry=` and of `@SCOPE:registry=` in an `.npmrc`.
pub(super) fn npm(text: &str) -> Vec<String> {
    npm_entries(text).into_iter().map(|(_, url)| url.to_owned()).collect()
}

/// Returns the variable for the registry in an `.npmrc`. The last line applies.
pub(super) fn npm_registries(text: &str) -> Vec<(&'static str, String)> {
    let mut entries = npm_entries(text);
    entries.retain(|(key, _)| *key == "registry");
    entries.last().map(|(_, url)| ("npm_config_registry", (*url).to_owned())).into_iter().collect()
}

fn npm_entries(text: &str) -> Vec<(&str, &str)> {
    let mut entries = Vec::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let key = key.trim();
        let is_of_scope = key.starts_with('@') && key.ends_with(":registry");
        if key == "registry" || is_of_scope {
            entries.push((key, value.trim().trim_matches(['"', '\''])));
        }
    }
    entries
}

/// Returns the URLs of `index-url` and `extra-index-url` in any section of a `pip.conf`.
pub(super) fn pip(text: &str) -> Vec<String> {
    pip_entries(text).into_iter().map(|(_, url)| url).collect()
}

/// Returns the variables for the indexes in a `pip.conf`.
pub(super) fn pip_registries(text: &str) -> Vec<(&'static str, String)> {
    let entries = pip_entries(text);
    let mut registries = Vec::new();
    for (_, variable) in PIP_KEYS {
        let of_variable = entries.iter().filter(|(name, _)| *name == variable);
        let urls: Vec<&str> = of_variable.map(|(_, url)| url.as_str()).collect();
        if !urls.is_empty() {
            registries.push((variable, urls.join(" ")));
        }
    }
    registries
}

/// Returns the URLs of a `pip.conf`, each with its variable. A key may have several URLs, each in
/// an indented line.
fn pip_entries(text: &str) -> Vec<(&'static str, String)> {
    let mut entries = Vec::new();
    let mut variable = None;
    for line in text.lines() {
        let mut urls = line.trim();
        if urls.is_empty() || urls.starts_with(['#', ';']) {
            continue;
        }
        if !line.starts_with(char::is_whitespace) {
            let (key, value) = line.split_once(['=', ':']).unwrap_or((line, ""));
            let key = key.trim().to_ascii_lowercase().replace('_', "-");
            let known = PIP_KEYS.iter().find(|(name, _)| *name == key);
            variable = known.map(|(_, variable)| *variable);
            urls = value;
        }
        if let Some(name) = variable {
            entries.extend(words(urls).into_iter().map(|url| (name, url)));
        }
    }
    entries
}

/// Returns the URLs of registries, and of the sources that replace other sources, in a
/// configuration of cargo.
pub(super) fn cargo(text: &str) -> Vec<String> {
    let Ok(config) = toml::from_str::<toml::Table>(text) else { return Vec::new() };
    let mut urls = Vec::new();
    if let Some(registry) = config.get("registry") {
        urls.extend(url_at(registry, "index"));
    }
    for (table, keys) in [("registries", &["index"][..]), ("source", &["registry", "git"])] {
        let Some(named) = config.get(table).and_then(toml::Value::as_table) else { continue };
        for settings in named.values() {
            urls.extend(keys.iter().filter_map(|key| url_at(settings, key)));
        }
    }
    urls
}

fn url_at(table: &toml::Value, key: &str) -> Option<String> {
    Some(table.get(key)?.as_str()?.to_owned())
}

/// Returns the URLs of `GOPROXY` and `GOSUMDB` in the file that `go env -w` writes.
pub(super) fn go(text: &str) -> Vec<String> {
    let mut urls = Vec::new();
    for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
        if ["GOPROXY", "GOSUMDB"].contains(&name) {
            urls.extend(variable(name, value));
        }
    }
    urls
}

/// Returns the URLs of remotes, and of the places that replace others by `insteadOf`, in a
/// configuration of git.
pub(super) fn git(text: &str) -> Vec<String> {
    let mut urls = Vec::new();
    for entry in git_entries(text) {
        match (entry.section.as_str(), entry.name.as_str()) {
            ("url", "insteadof" | "pushinsteadof") => urls.extend(entry.subsection),
            ("remote", "url" | "pushurl") => urls.push(entry.value),
            _ => {}
        }
    }
    urls
}

/// Returns the URLs in the value of a variable.
pub(super) fn variable(name: &str, value: &str) -> Vec<String> {
    if name != "GOSUMDB" {
        return words(value);
    }
    // The value is the server's name and its key, and perhaps a URL of another server.
    let mut urls = words(value);
    let is_off = value.trim() == "off";
    if urls.iter().all(|word| !word.contains("://")) && !is_off {
        let server = urls.first().and_then(|word| word.split('+').next());
        urls = server.into_iter().map(|server| format!("https://{server}")).collect();
    }
    urls
}

/// Splits a list of URLs. The words `direct` and `off`, which go accepts in place of a URL, stay in
/// the list, because `url::entry` finds no host in them.
fn words(value: &str) -> Vec<String> {
    let words = value.split(|letter: char| letter.is_whitespace() || matches!(letter, ',' | '|'));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn npm_names_its_registry_and_those_of_scopes() {
        let text = "; registry=https://no.example\n#registry=https://no.example\n\
                    registry = https://a.example/npm/\n@corp:registry=\"https://b.example\"\n\
                    //a.example/npm/:_authToken=secret\nother-registry=https://no.example\n";
        assert_eq!(npm(text), ["https://a.example/npm/", "https://b.example"]);
        let registry = ("npm_config_registry", "https://a.example/npm/".to_owned());
        assert_eq!(npm_registries(text), [registry]);
    }

    #[test]
    fn pip_names_its_indexes_in_all_lines_of_a_value() {
        let text = "[global]\nindex-url = https://a.example/simple\nextra_index_url =\n    \
                    https://b.example/simple\n    # no\n\n    https://c.example/simple\ntimeout = 60\n    \
                    https://no.example\n[install]\nindex-url: https://d.example https://e.example\n";
        let hosts = ["a", "b", "c"].map(|host| format!("https://{host}.example/simple"));
        let more = ["d", "e"].map(|host| format!("https://{host}.example"));
        assert_eq!(pip(text), [&hosts[..], &more].concat());
        let [(first, index), (second, extra)] = &pip_registries(text)[..] else { panic!("{text}") };
        assert_eq!((*first, *second), ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"));
        assert_eq!(extra, "https://b.example/simple https://c.example/simple");
        assert!(index.starts_with("https://a.example/simple "), "{index}");
    }

    #[test]
    fn cargo_names_its_registries_and_sources() {
        let text = "[registry]\nindex = 'https://a.example/'\n[registries.corp]\nindex = \
                    'sparse+https://b.example/'\ntoken = 'secret'\n[source.crates-io]\nreplace-with = \
                    'mirror'\n[source.mirror]\nregistry = 'https://c.example'\n[source.git]\ngit = \
                    'ssh://d.example/x'\n[http]\nproxy = 'https://no.example'\n";
        let expected = [
            "https://a.example/",
            "sparse+https://b.example/",
            "https://c.example",
            "ssh://d.example/x",
        ];
        let mut found = cargo(text);
        found.sort_by_key(|url| url.find("example").map(|at| url.as_bytes()[at - 2]));
        assert_eq!(found, expected);
        for damaged in ["registries = 5", "[registries]\na = 5", "[source.x]\ngit = 5", "[", "\0"] {
            assert!(cargo(damaged).is_empty(), "{damaged}");
        }
        assert!(cargo(&"[".repeat(100_000)).is_empty());
        assert!(cargo(&format!("a = {}", "[".repeat(100_000))).is_empty());
    }

    #[test]
    fn go_names_its_proxies_and_the_server_of_checksums() {
        let text = "GOPROXY=https://a.example|https://b.example,direct\nGOSUMDB=sum.example+key\n\
                    GOFLAGS=https://no.example\n";
        assert_eq!(
            go(text),
            ["https://a.example", "https://b.example", "direct", "https://sum.example"]
        );
        assert_eq!(
            variable("GOSUMDB", "sum.example https://s.example").last().map(String::as_str),
            Some("https://s.example")
        );
        assert!(variable("GOSUMDB", "off").iter().all(|word| !word.contains("://")));
    }

    #[test]
    fn git_names_its_remotes_and_replacements() {
        let text = "[url \"https://a.example/\"]\n\tinsteadOf = https://no.example/\n[remote \"x\"]\n\
                    url = git@b.example:x\n[credential \"https://no.example\"]\nhelper = store\n";
        assert_eq!(git(text), ["https://a.example/", "git@b.example:x"]);
    }
}
