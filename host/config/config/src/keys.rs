//! The known keys of the configuration, from its schema. Gives advice about unknown keys.

use std::sync::LazyLock;

use serde_json::Value;

use toolhold_config_keys::Narrowing;

use super::ConfigValues;

/// The table of the configuration with the principals' tables.
pub(crate) const PRINCIPALS: &str = "principals";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The path from the root. `*` stands for a name that the operator chooses, or for an element
    /// of a list.
    pub(super) path: Vec<String>,
    pub(super) table: bool,
    pub(super) in_list: bool,
}

/// Returns every key, including tables. The list is made only if it is needed, because most starts
/// don't use it.
pub(super) fn known() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(from_schema);
    &KEYS
}

/// Reads all keys from the schema of the configuration.
fn from_schema() -> Vec<Key> {
    let settings = schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true);
    let schema = settings.into_generator().into_root_schema_for::<ConfigValues>().to_value();
    let mut keys = Vec::new();
    let in_list = false;
    walk(&schema, &mut Vec::new(), in_list, &mut keys);
    keys
}

/// Adds the keys below a schema. `path` is the key of the schema. `in_list` says whether this key
/// is inside a list.
fn walk(schema: &Value, path: &mut Vec<String>, in_list: bool, keys: &mut Vec<Key>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk_key(name, property, path, in_list, keys);
    }
    if schema["additionalProperties"].is_object() {
        walk_key("*", &schema["additionalProperties"], path, in_list, keys);
    }
    if schema["items"].is_object() {
        let in_list = true;
        walk_key("*", &schema["items"], path, in_list, keys);
    }
    for form in schema["anyOf"].as_array().into_iter().flatten() {
        walk(form, path, in_list, keys);
    }
}

/// Adds the key `name` and the keys below it.
fn walk_key(
    name: &str,
    schema: &Value,
    path: &mut Vec<String>,
    in_list: bool,
    keys: &mut Vec<Key>,
) {
    path.push(name.to_owned());
    keys.push(Key { path: path.clone(), table: schema["type"] == "object", in_list });
    walk(schema, path, in_list, keys);
    path.pop();
}

/// Returns advice with the key of the same table that is most similar to `unknown`.
pub(super) fn similar_key(unknown: &[String]) -> Option<String> {
    let (last, table) = unknown.split_last()?;
    let similar = nearest(last, siblings(known(), table).into_iter())?;
    Some(format!("did you mean `{similar}`?"))
}

fn siblings<'k>(keys: &'k [Key], table: &[String]) -> Vec<&'k str> {
    keys.iter()
        .filter_map(|key| key.path.split_last())
        .filter(|(name, above)| *name != "*" && fits(above, table))
        .map(|(name, _)| name.as_str())
        .collect()
}

/// Names of tables that people write by mistake, and the tables that they mean.
const MISTAKEN: [(&str, &[&str]); 4] = [
    ("tools.bash", &["tools.shell"]),
    ("tools.code", &["index"]),
    ("tools.index", &["index"]),
    ("tools.search_code", &["index", "tools.code"]),
];

/// Returns advice about an unknown key: the most similar key in its table, the right table for the
/// key, or all keys of its table.
pub(super) fn advice(unknown: &[String]) -> String {
    let Some((last, table)) = unknown.split_last() else {
        return String::new();
    };
    if let Some(similar) = similar_key(unknown) {
        return similar;
    }
    let keys = known();
    for (written, meant) in MISTAKEN {
        if written == dotted(unknown) {
            let tables: Vec<String> = meant.iter().map(|table| format!("[{table}]")).collect();
            return format!("the keys of this table are in {}", tables.join(" and "));
        }
        if written != dotted(table) {
            continue;
        }
        for table in meant {
            let path: Vec<String> = table.split('.').map(str::to_owned).collect();
            match nearest(last, siblings(keys, &path).into_iter()) {
                Some(key) if key == last => return format!("`{last}` belongs in [{table}]"),
                Some(key) => return format!("did you mean `{key}` in [{table}]?"),
                None => {}
            }
        }
    }
    let siblings = siblings(keys, table);
    let elsewhere = keys.iter().filter(|key| key.path.last() == Some(last) && !key.in_list);
    let tables: Vec<String> = elsewhere
        .map(|key| match &key.path[..key.path.len() - 1] {
            [] => "no table: put the key above the first [table]".to_owned(),
            table => format!("[{}]", dotted(table).replace('*', "NAME")),
        })
        .collect();
    if !tables.is_empty() {
        return format!("`{last}` belongs in {}", tables.join(" or "));
    }
    if siblings.is_empty() {
        "this table has no keys".to_owned()
    } else {
        format!("the keys of this table are: {}", siblings.join(", "))
    }
}

/// Returns the candidate of which `word` is probably a misspelling. Returns `None` if no candidate
/// is similar.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    // About one letter in three may be wrong. In a short word, one letter may be wrong.
    let max_distance = (word.chars().count() / 3).max(1);
    let (distance, candidate) = candidates
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .min()?;
    if distance <= max_distance { Some(candidate) } else { None }
}

/// Returns the JSON Schema (2020-12) of [`ConfigValues`], for editors and `toolhold config schema`.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(ConfigValues).to_value();
    if let Some(object) = schema.as_object_mut() {
        object.insert("title".to_owned(), "toolhold.toml".into());
    }
    schema
}

/// Returns the rule for the key at `path`, or `None` if the key doesn't exist.
pub(super) fn rule(path: &[String]) -> Option<Narrowing> {
    // Only the operator's own configuration limits principals.
    if split_limit(path).is_some() {
        return Some(Narrowing::Ignored);
    }
    let mut rule = Narrowing::Table(ConfigValues::RULES);
    for part in path {
        rule = match rule {
            Narrowing::Table(keys) => {
                let (_, key_rule) = keys.iter().find(|(key, _)| key == part)?;
                *key_rule
            }
            // The part is a name that the user chose. The table below the name has the keys.
            Narrowing::Named(keys) => Narrowing::Table(keys),
            Narrowing::Each(rule) => *rule,
            Narrowing::Free => Narrowing::Free,
            // The other rules are for values, which have no keys.
            _ => return None,
        };
    }
    Some(rule)
}

/// Returns a name as a part of a dotted key. Quotes it if needed.
pub fn dotted_name(name: &str) -> String {
    dotted(&[name.to_owned()])
}

/// Joins a path to a dotted key of TOML.
pub(super) fn dotted(path: &[String]) -> String {
    let parts: Vec<String> = path
        .iter()
        .map(|part| if is_bare(part) { part.clone() } else { format!("{part:?}") })
        .collect();
    parts.join(".")
}

/// Checks whether a part of a key needs no quotation marks. A `*` alone stands for any name, so it
/// isn't quoted either.
fn is_bare(part: &str) -> bool {
    let is_name = part.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    part == "*" || !part.is_empty() && is_name
}

fn fits(pattern: &[String], path: &[String]) -> bool {
    pattern.len() == path.len()
        && pattern.iter().zip(path).all(|(pattern, part)| pattern == "*" || pattern == part)
}

/// Splits the path of a principal's limit, such as `principals.dev.tools.call`, into the name of the
/// principal's table and the path of the limited key. Returns `None` for other keys.
pub(crate) fn split_limit(path: &[String]) -> Option<(&str, &[String])> {
    let [first, name, limited @ ..] = path else { return None };
    let table = limited.first()?;
    let is_limit = first == PRINCIPALS && ConfigValues::RULES.iter().any(|(key, _)| key == table);
    if is_limit { Some((name, limited)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(key: &str) -> Vec<String> {
        key.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn schema_has_every_key() {
        let keys = known();
        let has = |key: &str, table: bool| {
            keys.iter().any(|known| known.path == path(key) && known.table == table)
        };
        assert!(has("tools.file.allowed_paths", false), "{keys:?}");
        assert!(has("tools.file", true), "{keys:?}");
        assert!(has("plugins.*.limits.memory_mib", false), "{keys:?}");
        assert!(has("tools.file.allowed_paths.*.access", false), "{keys:?}");
    }

    #[test]
    fn advice_names_the_intended_key() {
        let check = |unknown: &str, expected: &str| {
            assert_eq!(advice(&path(unknown)), expected, "{unknown}");
        };
        check("tools.file.allowed_path", "did you mean `allowed_paths`?");
        check("tolls", "did you mean `tools`?");
        check("plugins.x.limits.memroy_mib", "did you mean `memory_mib`?");
        check("tools.file.allowed_paths.0.acess", "did you mean `access`?");
        check("tools.deny_read", "`deny_read` belongs in [tools.file]");
        check("tools.code.max_files", "`max_files` belongs in [index]");
        check("tools.code.enabled", "`enabled` belongs in [index]");
        check("tools.code.max_fles", "did you mean `max_files` in [index]?");
        check("tools.search_code", "the keys of this table are in [index] and [tools.code]");
        check("tools.index", "the keys of this table are in [index]");
        check(
            "tools.memory_mib",
            "`memory_mib` belongs in [tools.shell.limits] or [tools.limits] or [plugins.NAME.limits]",
        );
        check(
            "tools.file.zzz",
            "the keys of this table are: enabled, allowed_paths, deny_read, allow_read, deny_write",
        );
        check(
            "tools.plugins",
            "`plugins` belongs in no table: put the key above the first [table]",
        );
        check("a.b.zzz", "this table has no keys");
    }

    #[test]
    fn every_key_has_a_rule_and_every_table_a_table_rule() {
        for key in known().iter().filter(|key| !key.in_list) {
            let table = matches!(
                rule(&key.path),
                Some(
                    Narrowing::Table(_)
                        | Narrowing::Named(_)
                        | Narrowing::Each(_)
                        | Narrowing::Free
                )
            );
            assert!(
                rule(&key.path).is_some() && table == key.table,
                "{key:?}: {:?}",
                rule(&key.path)
            );
        }
    }
}
