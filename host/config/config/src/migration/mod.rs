//! Moves the keys of a Zeph or ZeroClaw configuration to their places in a `toolhold.toml`, with
//! their comments.

mod foreign;

use toml_edit::{Array, DocumentMut, InlineTable, Item, Key, Table, TableLike, TomlError, Value};

use foreign::{ALWAYS_ASK, AUTO_APPROVE, Form, Instead, instead};

pub use foreign::{KeyInstead, advice, keys_instead};

/// The result of a migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The text before the migration.
    pub before: String,
    /// The valid text of the `toolhold.toml`.
    pub after: String,
    /// The old and the new names of renamed keys.
    pub moved: Vec<(String, String)>,
    /// The keys that were left out completely or in part, with the reasons. Keys have their old
    /// names.
    pub left_out: Vec<(String, String)>,
}

const TOOLS: [(&str, &str); 42] = [
    ("bash", "bash"),
    ("shell", "bash"),
    ("read", "read"),
    ("file_read", "read"),
    ("write", "write"),
    ("file_write", "write"),
    ("edit", "edit"),
    ("file_edit", "edit"),
    ("grep", "grep"),
    ("content_search", "grep"),
    ("find_path", "find_path"),
    ("glob", "find_path"),
    ("glob_search", "find_path"),
    ("list_directory", "list_directory"),
    ("create_directory", "create_directory"),
    ("copy_path", "copy_path"),
    ("move_path", "move_path"),
    ("delete_path", "delete_path"),
    ("fetch", "fetch"),
    ("web_fetch", "fetch"),
    ("web_scrape", "web_scrape"),
    ("http_request", "http_request"),
    ("memory_save", "memory_save"),
    ("memory_store", "memory_save"),
    ("memory_search", "memory_search"),
    ("memory_recall", "memory_search"),
    ("memory_forget", "memory_forget"),
    ("search_code", "search_code"),
    ("diagnostics", "diagnostics"),
    ("load_skill", "load_skill"),
    ("delegate", "delegate"),
    ("read_overflow", "read_overflow"),
    ("undo", "undo"),
    ("schedule", "schedule"),
    ("schedule_periodic", "schedule_periodic"),
    ("cron_add", "schedule_periodic"),
    ("schedule_deferred", "schedule_deferred"),
    ("list_tasks", "list_tasks"),
    ("cron_list", "list_tasks"),
    ("cancel_task", "cancel_task"),
    ("cron_remove", "cancel_task"),
    ("cron_run", "schedule"),
];

/// System folders that people list as forbidden. The migration leaves them out, because tools can't
/// reach them without a grant anyway, and commands that need some of them would fail with a denial.
const SYSTEM: [&str; 14] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/opt", "/proc", "/root", "/sbin",
    "/sys", "/usr", "/var",
];

/// The keys of the caller's configuration.
pub struct KnownKeys<'a> {
    /// Checks whether a path is a key.
    pub is_key: &'a dyn Fn(&[String]) -> bool,
    /// The new name of a renamed key.
    pub new_name: &'a dyn Fn(&str) -> Option<&'static str>,
    /// Returns advice about an unknown key.
    pub advice: &'a dyn Fn(&[String]) -> String,
    /// Returns a path as a dotted key.
    pub dotted: &'a dyn Fn(&[String]) -> String,
}

/// A value that isn't valid.
#[derive(Clone, Debug)]
pub struct WrongValue {
    /// The key of the value.
    pub path: Vec<String>,
    /// The index of the wrong element. `None` if the whole value is wrong.
    pub element: Option<usize>,
    /// The value as messages show it.
    pub shown: String,
    /// The reason why the value is wrong.
    pub why: String,
}

impl Migration {
    /// Removes values. If a list has several wrong elements, the last element must come first.
    /// Returns whether a value was removed.
    pub fn leave_out(&mut self, wrong: Vec<WrongValue>) -> bool {
        let Ok(mut document) = self.after.parse::<DocumentMut>() else { return false };
        let mut has_removed = false;
        for value in wrong {
            if remove(document.as_table_mut(), &value.path, value.element) {
                has_removed = true;
            }
            self.left_out.push((value.shown, value.why));
        }
        prune(document.as_table_mut());
        self.after = document.to_string();
        self.keep_head();
        has_removed
    }

    fn keep_head(&mut self) {
        let head = head(&self.before);
        if !self.after.starts_with(head) {
            self.after = format!("{head}{}", self.after.trim_start());
        }
    }
}

/// Returns the comment at the start of a text, which is about the whole file.
fn head(text: &str) -> &str {
    let mut length = 0;
    for line in text.split_inclusive('\n') {
        let is_comment = line.trim_start().starts_with('#');
        let is_empty = line.trim().is_empty();
        if !is_comment && !is_empty {
            break;
        }
        length += line.len();
    }
    &text[..length]
}

/// Moves every key to its place in a `toolhold.toml`. Values aren't checked.
///
/// # Errors
///
/// Fails if the text isn't TOML.
pub fn rewrite(text: &str, known: &KnownKeys<'_>) -> Result<Migration, TomlError> {
    let mut document: DocumentMut = text.parse()?;
    let root = document.as_table_mut();
    let mut keys = Vec::new();
    collect(root, &mut Vec::new(), &mut keys);

    let mut moved = Vec::new();
    let mut left_out = Vec::new();
    let policy_switch = get(root, &["tools", "policy", "enabled"]);
    let is_policy_off = policy_switch.and_then(Item::as_bool) == Some(false);
    for old in keys {
        let mut reasons = Vec::new();
        if is_policy_off && (known.dotted)(&old) == "tools.policy.rules" {
            take(root, &old);
            let why = "`tools.policy.enabled` was `false`, so the rules did not apply";
            reasons.push(why.to_owned());
        } else {
            place_key(root, &old, known, &mut moved, &mut reasons);
        }
        left_out.extend(reasons.into_iter().map(|why| ((known.dotted)(&old), why)));
    }

    prune(root);
    let after = document.to_string();
    let mut migration = Migration { before: text.to_owned(), after, moved, left_out };
    migration.keep_head();
    Ok(migration)
}

/// Moves one key to its place in a `toolhold.toml`, or removes the key. `moved` receives the old
/// and the new name. `reasons` receives the reasons why the value is lost completely or in part.
fn place_key(
    root: &mut Table,
    old: &[String],
    known: &KnownKeys<'_>,
    moved: &mut Vec<(String, String)>,
    reasons: &mut Vec<String>,
) {
    let name = (known.dotted)(old);
    if [AUTO_APPROVE, ALWAYS_ASK].contains(&name.as_str()) {
        if let Some((_, item)) = take(root, old) {
            let action = if name == ALWAYS_ASK { "ask" } else { "allow" };
            write_permission_rules(root, &item, action, reasons);
            moved.push((name, "tools.permissions".to_owned()));
        }
        return;
    }
    if let Some(new) = (known.new_name)(&name) {
        // `allow_network` has a form of its own: `true` becomes "allow".
        let form = if name.ends_with("allow_network") { None } else { Some(Form::Same) };
        return shift(root, old, new, form, moved, reasons);
    }
    // The other agents have some tables with the same names and keys as Toolhold.
    if (known.is_key)(old) {
        return adapt_value(root, old, reasons);
    }
    match instead(old) {
        Some(Instead::Key(new, _, form)) => shift(root, old, new, Some(form), moved, reasons),
        Some(Instead::Nothing(why)) => {
            take(root, old);
            reasons.push(why.to_owned());
        }
        None => {
            take(root, old);
            reasons.push((known.advice)(old));
        }
    }
}

/// Adapts the value of a key that has the same name in Toolhold. Other agents have other levels of
/// autonomy, and other keys in rules.
fn adapt_value(root: &mut Table, key: &[String], reasons: &mut Vec<String>) {
    let name = key.join(".");
    let parts: Vec<&str> = key.iter().map(String::as_str).collect();
    let Some(item) = get_mut(root, &parts) else { return };
    if name == "tools.autonomy" {
        if let Some(value) = item.as_value_mut()
            && let Ok(Some(new)) = convert(value, Form::Autonomy, reasons)
        {
            replace(value, new);
        }
        return;
    }
    let is_rule_list = name == "tools.policy.rules" || name == "tools.authorization.rules";
    if is_rule_list && let Some(rules) = item.as_array_of_tables_mut() {
        for rule in rules.iter_mut() {
            if let Some(tool) = rule.remove("tool") {
                let tools: Array = tool.as_str().into_iter().collect();
                rule.insert("tools", toml_edit::value(tools));
            }
            if let Some(trust) = rule.remove("trust_level") {
                rule.insert("trust", trust);
            }
        }
    }
}

/// Moves a value to the key `new`, and converts it by `form`. `form` is `None` for `allow_network`,
/// where `true` becomes `"allow"`.
fn shift(
    root: &mut Table,
    old: &[String],
    new: &str,
    form: Option<Form>,
    moved: &mut Vec<(String, String)>,
    reasons: &mut Vec<String>,
) {
    let Some((key, item)) = take(root, old) else { return };
    let Ok(mut value) = item.into_value() else {
        return reasons.push("the key has no value".to_owned());
    };
    let converted = match form {
        Some(form) => convert(&value, form, reasons),
        None => match value.as_bool() {
            Some(allow) => Ok(Some(if allow { "allow" } else { "deny" }.into())),
            None => Err(ConvertError::Bool),
        },
    };
    match converted {
        Ok(Some(new)) => replace(&mut value, new),
        Ok(None) => return,
        Err(error) => return reasons.push(error.to_string()),
    }
    let parts: Vec<&str> = new.split('.').collect();
    let Some((name, tables)) = parts.split_last() else { return };
    let Some(table) = find_or_add_table(root, tables) else {
        return reasons.push(format!("`{new}` has a form that can't take another key"));
    };
    match table.get_mut(name).map(|item| item.as_array_mut()) {
        None => {
            let key = Key::new(*name).with_leaf_decor(key.leaf_decor().clone());
            table.entry_format(&key).or_insert(Item::Value(value));
        }
        Some(Some(list)) => {
            for element in value.as_array().into_iter().flatten() {
                let is_known =
                    list.iter().any(|known| known.to_string().trim() == element.to_string().trim());
                if !is_known {
                    let mut element = element.clone();
                    element.decor_mut().clear();
                    list.push(element);
                }
            }
        }
        Some(None) => return reasons.push(format!("`{new}` is also set, and its value stays")),
    }
    moved.push((old.join("."), new.to_owned()));
}

/// Writes a permission rule with `action` for each tool in the list `tools`.
fn write_permission_rules(root: &mut Table, tools: &Item, action: &str, reasons: &mut Vec<String>) {
    // The first matching rule decides. A rule that asks therefore comes first.
    let comes_first = action == "ask";
    let mut unknown = Vec::new();
    for tool in tools.as_array().into_iter().flatten().filter_map(Value::as_str) {
        let Some((_, name)) = TOOLS.iter().find(|(other, _)| *other == tool) else {
            unknown.push(format!("`{tool}`"));
            continue;
        };
        let Some(table) = find_or_add_table(root, &["tools", "permissions"]) else { continue };
        let mut rule = InlineTable::new();
        rule.insert("pattern", "*".into());
        rule.insert("action", action.into());
        let list = table.entry(name).or_insert(Item::Value(Array::new().into()));
        if let Some(list) = list.as_array_mut() {
            let index = if comes_first { 0 } else { list.len() };
            list.insert(index, rule);
        } else if let Some(list) = list.as_array_of_tables_mut() {
            let mut rules: Vec<Table> = list.iter().cloned().collect();
            let index = if comes_first { 0 } else { rules.len() };
            rules.insert(index, rule.into_table());
            *list = rules.into_iter().collect();
        }
    }
    if !unknown.is_empty() {
        reasons.push(format!("Toolhold has no built-in tool of this name: {}", unknown.join(", ")));
    }
}

#[derive(Debug, thiserror::Error)]
enum ConvertError {
    #[error("the value isn't `true` or `false`")]
    Bool,
    #[error("the value isn't a number")]
    Number,
    #[error("the value isn't a list")]
    List,
    #[error("the value isn't a list of strings")]
    Texts,
    #[error("the levels are \"read-only\", \"ask\", \"sandboxed\" and \"full\"")]
    Autonomy,
}

/// Converts the value of another agent's key. Returns `None` if nothing has to be written.
fn convert(
    value: &Value,
    form: Form,
    reasons: &mut Vec<String>,
) -> Result<Option<Value>, ConvertError> {
    Ok(Some(match form {
        Form::Same => value.clone(),
        Form::Autonomy => {
            let word = value.as_str().unwrap_or_default().to_ascii_lowercase().replace('_', "-");
            match word.as_str() {
                "readonly" | "read-only" => "read-only".into(),
                "supervised" | "ask" => "ask".into(),
                "sandboxed" => "sandboxed".into(),
                "full" => "full".into(),
                _ => return Err(ConvertError::Autonomy),
            }
        }
        Form::OnDenial => match value.as_bool() {
            Some(true) => "deny".into(),
            Some(false) => {
                reasons.push(
                    "Toolhold can't allow and log a denied call: the call needs \
                     approval"
                        .to_owned(),
                );
                "ask".into()
            }
            None => return Err(ConvertError::Bool),
        },
        Form::Hours => number(value)?.saturating_mul(24).into(),
        Form::Kibibytes => match number(value)? {
            0 => 1_048_576.into(),
            bytes => bytes.saturating_add(1023).div_euclid(1024).into(),
        },
        Form::Programs => {
            let programs = texts(value)?;
            if programs.contains(&"*") {
                reasons.push("\"*\" means any program, which is also the default".to_owned());
                return Ok(None);
            }
            programs.into_iter().collect::<Array>().into()
        }
        Form::Domains => {
            let mut domains = Array::new();
            for domain in texts(value)? {
                if domain == "*" {
                    reasons.push("\"*\" means any host: write `other_domains = \"allow\"` in [tools.web] if you want that".to_owned());
                    continue;
                }
                domains.push(domain);
                // In the other agent's file, a name includes all names below it.
                let is_address = domain.parse::<std::net::IpAddr>().is_ok();
                let is_name = domain.contains('.') && !domain.starts_with('*');
                if is_name && !is_address {
                    domains.push(format!("*.{domain}"));
                }
            }
            if domains.is_empty() {
                return Ok(None);
            }
            domains.into()
        }
        Form::Directories => std::iter::once(".").chain(texts(value)?).collect::<Array>().into(),
        Form::Denied => {
            let all = texts(value)?.into_iter();
            let (system, paths): (Vec<&str>, Vec<&str>) =
                all.partition(|path| SYSTEM.contains(path) || is_temporary_folder(path));
            if !system.is_empty() {
                reasons.push(format!(
                    "tools can't use these paths unless you grant the paths (commands can read \
                     some of these): {}",
                    system.join(", ")
                ));
            }
            if paths.is_empty() {
                return Ok(None);
            }
            paths.into_iter().collect::<Array>().into()
        }
    }))
}

fn is_temporary_folder(path: &str) -> bool {
    path == "/tmp" || path == "/tmp/"
}

fn number(value: &Value) -> Result<i64, ConvertError> {
    match value.as_integer() {
        Some(number) if number >= 0 => Ok(number),
        _ => Err(ConvertError::Number),
    }
}

fn texts(value: &Value) -> Result<Vec<&str>, ConvertError> {
    let list = value.as_array().ok_or(ConvertError::List)?;
    list.iter().map(|item| item.as_str().ok_or(ConvertError::Texts)).collect()
}

/// Replaces a value, but keeps the comment after it.
fn replace(value: &mut Value, new: impl Into<Value>) {
    let decor = value.decor().clone();
    *value = new.into();
    *value.decor_mut() = decor;
}

/// Adds the paths of all values in a table to `keys`.
fn collect(table: &dyn TableLike, path: &mut Vec<String>, keys: &mut Vec<Vec<String>>) {
    for (name, item) in table.iter() {
        path.push(name.to_owned());
        match item.as_table_like() {
            Some(inner_table) if !inner_table.is_empty() => collect(inner_table, path, keys),
            _ => keys.push(path.clone()),
        }
        path.pop();
    }
}

fn get<'a>(root: &'a Table, path: &[&str]) -> Option<&'a Item> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(root.get(first)?, |item, part| item.as_table_like()?.get(part))
}

fn get_mut<'a>(root: &'a mut Table, path: &[&str]) -> Option<&'a mut Item> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(root.get_mut(first)?, |item, part| item.as_table_like_mut()?.get_mut(part))
}

/// Removes a value, and returns the value with its key. The key contains the comments above the
/// value. Returns `None` if there is no such value.
fn take(root: &mut Table, path: &[String]) -> Option<(Key, Item)> {
    let (name, tables) = path.split_last()?;
    let parts: Vec<&str> = tables.iter().map(String::as_str).collect();
    let table: &mut dyn TableLike = match parts.as_slice() {
        [] => root,
        parts => get_mut(root, parts)?.as_table_like_mut()?,
    };
    let key = table.key(name)?.clone();
    Some((key, table.remove(name)?))
}

/// Removes a value, or one element of a list. Returns whether something was removed.
fn remove(root: &mut Table, path: &[String], element: Option<usize>) -> bool {
    let Some(index) = element else { return take(root, path).is_some() };
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    let Some(item) = get_mut(root, &parts) else { return false };
    if let Some(list) = item.as_array_of_tables_mut()
        && index < list.len()
    {
        list.remove(index);
        return true;
    }
    if let Some(list) = item.as_array_mut()
        && index < list.len()
    {
        list.remove(index);
        return true;
    }
    false
}

/// Returns the table at a path. Creates missing tables.
fn find_or_add_table<'a>(root: &'a mut Table, path: &[&str]) -> Option<&'a mut dyn TableLike> {
    let mut table: &mut dyn TableLike = root;
    for (index, name) in path.iter().enumerate() {
        let mut missing = Table::new();
        // Only the last table gets a line with its name. The other tables are implicit.
        let is_last = index + 1 == path.len();
        missing.set_implicit(!is_last);
        table = table.entry(name).or_insert(Item::Table(missing)).as_table_like_mut()?;
    }
    Some(table)
}

/// Removes empty tables and lists.
fn prune(table: &mut dyn TableLike) {
    let names: Vec<String> = table.iter().map(|(name, _)| name.to_owned()).collect();
    for name in names {
        let Some(item) = table.get_mut(&name) else { continue };
        let is_empty = if let Some(list) = item.as_array_of_tables() {
            list.is_empty()
        } else if let Some(inner_table) = item.as_table_like_mut() {
            prune(inner_table);
            inner_table.is_empty()
        } else {
            false
        };
        if is_empty {
            table.remove(&name);
        }
    }
}
