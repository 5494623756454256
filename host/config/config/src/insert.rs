//! Inserts a rule or a grant into the user's `toolhold.toml`. All other content, including
//! comments, stays the same.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, RawString};
use toolhold_contract::HostError;
use toolhold_contract::text::toml;
use toolhold_data_dir::PrivateFolder;

use super::{Folders, HostGrant, PathAccess, Problems, dotted_name, file};

/// An allowing rule of `[[tools.permissions.TOOL]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowRule {
    /// The name of the tool, or a glob such as `git__*`.
    pub tool: String,
    /// The path, command or text that the rule allows.
    pub pattern: String,
    /// Whether `*` and `?` in the pattern are wildcards. If not, the pattern is compared character
    /// by character.
    #[serde(default)]
    pub is_glob: bool,
}

impl AllowRule {
    /// Returns the rule as TOML.
    pub fn text(&self) -> String {
        let name = dotted_name(&self.tool);
        let exact = if self.is_glob { "" } else { "exact = true\n" };
        format!(
            "[[tools.permissions.{name}]]\npattern = {}\n{exact}action = \"allow\"\n",
            toml(&self.pattern)
        )
    }
}

const PRIVATE: u32 = 0o600;

/// The bits of a file's mode that are permissions. The other bits are the file's type.
const PERMISSION_BITS: u32 = 0o7777;

/// The reason why a rule can't be written into the user's file, or wouldn't apply.
#[derive(Debug, thiserror::Error)]
pub enum InsertError {
    /// The configuration wasn't read from files.
    #[error("this program doesn't use a toolhold.toml")]
    NoFile,
    /// The configuration comes from another file.
    #[error("this program uses {} instead of your own toolhold.toml", .0.display())]
    OtherFile(PathBuf),
    /// The configuration is that of a principal, for whom the operator's file is no place of rules.
    #[error("only the administrator of this server can change the rules")]
    Principal,
    /// The real path of the file can't be found.
    #[error("{}: {source}", .path.display())]
    Path {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file can't be replaced.
    #[error("{} can't be written: {source}", .folder.display())]
    Folder {
        /// The folder of the file, or the nearest existing folder above it.
        folder: PathBuf,
        /// The system's error.
        source: Errno,
    },
    /// The configuration isn't valid, with or without the rule.
    #[error(transparent)]
    Problems(#[from] Problems),
    /// Loading the rule would also load other changes, which the user didn't approve.
    #[error("the configuration has changed since this program read it")]
    Changed,
    /// The rule can't be inserted into the text.
    #[error(transparent)]
    Edit(#[from] ConfigEditError),
}

/// The reason why a configuration's text can't be extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigEditError {
    /// The text isn't TOML.
    #[error("the file isn't TOML")]
    Text,
    /// The rule isn't TOML.
    #[error("the rule can't be written as TOML")]
    Rule,
    /// A table is written as a value.
    #[error("the tables of the file have a form that can't be extended")]
    Tables,
    /// The key has a value that isn't a list.
    #[error("the key isn't a list")]
    List,
    /// The rules of the tool are written in another form, or would change their meaning.
    #[error("the rules of the tool have a form that can't be extended")]
    Rules,
    /// The path has no file name.
    #[error("the path isn't a file name")]
    FileName,
}

/// Checks whether the folder of the user's file is writable. Nothing is written.
pub(super) fn check_writable(path: &Path) -> Result<(), InsertError> {
    let real =
        real_path(path).map_err(|source| InsertError::Path { path: path.to_owned(), source })?;
    // Missing folders are created later, so the nearest existing folder has to be writable.
    let mut folders = real.ancestors().skip(1);
    let folder = folders.find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let access = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, folder, access, AtFlags::EACCESS)
        .map_err(|source| InsertError::Folder { folder: folder.to_owned(), source })
}

/// Returns the path of the file to replace. If `path` is a link, this is the target of the link, so
/// that the link stays.
fn real_path(path: &Path) -> std::io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound && file::nothing_is_at(path) => {
            Ok(path.to_owned())
        }
        result => result,
    }
}

/// Writes a rule into `[[tools.permissions.TOOL]]`, and returns the path of the file. The first
/// matching rule decides, so an exact rule is put first. A glob is put last, because the user's
/// rules that ask or deny must decide before it. Blocks.
///
/// # Errors
///
/// Fails with [`HostError::Config`] if the file isn't trusted, or if the rule can't be inserted.
/// Fails with [`HostError::Io`] if the file can't be changed.
pub fn permission(folders: &Folders, rule: &AllowRule) -> Result<PathBuf, HostError> {
    let place = if rule.is_glob { "after" } else { "before" };
    let by_hand = format!(
        "add this rule yourself, {place} the other rules of `{}`:\n{}",
        rule.tool,
        rule.text()
    );
    change(folders, &by_hand, |text| insert_rule(text, rule))
}

/// Grants a directory, by its real path, to file tools and commands. Returns the path of the file.
/// Blocks.
///
/// # Errors
///
/// Returns the same errors as [`permission`].
pub fn directory(
    folders: &Folders,
    directory: &str,
    access: PathAccess,
) -> Result<PathBuf, HostError> {
    let item = allowed_path(directory, access);
    let by_hand = format!("add this to `allowed_paths` in [tools.file] by hand: {item}");
    // Without a list, the working directory is granted. A new list begins with it, so that it stays
    // granted.
    let default = ["."].into_iter().collect();
    change(folders, &by_hand, |text| {
        insert_item(text, &["tools", "file"], "allowed_paths", item.into(), default)
    })
}

/// Lets the web tools reach a host without approval. Returns the path of the file. Blocks.
///
/// # Errors
///
/// Fails with [`HostError::Config`] if `host` isn't a valid host. Other errors are as for
/// [`permission`].
pub fn host(folders: &Folders, host: &str) -> Result<PathBuf, HostError> {
    check_host(host)?;
    let by_hand = format!("add this to `allowed_domains` in [tools.web] by hand: {}", toml(host));
    change(folders, &by_hand, |text| {
        insert_item(text, &["tools", "web"], "allowed_domains", host.into(), Array::new())
    })
}

pub(super) fn check_host(host: &str) -> Result<(), HostError> {
    match Value::String(host.to_owned()).try_into::<HostGrant>() {
        Ok(_) => Ok(()),
        Err(error) => Err(HostError::Config(error.message().to_owned())),
    }
}

/// Lets a model on this machine make calls as JSON without any other text. `model` is
/// `PROVIDER/MODEL`. Returns the path of the file. Blocks.
///
/// # Errors
///
/// Returns the same errors as [`permission`].
pub fn lenient_model(folders: &Folders, model: &str) -> Result<PathBuf, HostError> {
    let by_hand = format!("add this to `lenient_models` in [agent] by hand: {}", toml(model));
    change(folders, &by_hand, |text| {
        insert_item(text, &["agent"], "lenient_models", model.into(), Array::new())
    })
}

/// The grants of a plugin's installation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenGrants {
    /// The granted directories, by their real paths.
    pub directories: Vec<(String, PathAccess)>,
    /// The hosts that the plugin may reach.
    pub hosts: Vec<String>,
    /// The MiB of data that the plugin may store between calls.
    pub store_mib: Option<u32>,
    /// The MiB of documents that the plugin may store and search.
    pub index_mib: Option<u32>,
    /// Whether an instance of the plugin lives for a whole session.
    pub session: bool,
}

impl WrittenGrants {
    /// Returns the lines of `[plugins.NAME]` with these grants, for people.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.directories.is_empty() {
            let directories = self.directories.iter();
            let items: Vec<String> =
                directories.map(|(path, access)| allowed_path(path, *access).to_string()).collect();
            lines.push(format!("allowed_paths = [{}]", items.join(", ")));
        }
        if !self.hosts.is_empty() {
            let items: Vec<String> = self.hosts.iter().map(|host| toml(host)).collect();
            lines.push(format!("hosts = [{}]", items.join(", ")));
        }
        lines.extend(self.store_mib.map(|size| format!("store_mib = {size}")));
        lines.extend(self.index_mib.map(|size| format!("index_mib = {size}")));
        if self.session {
            lines.push("instance = \"session\"".to_owned());
        }
        lines
    }
}

/// Adds grants to the plugin `name`. Returns the path of the file. Blocks.
///
/// # Errors
///
/// Fails with [`HostError::Config`] if a host isn't valid. Other errors are as for [`permission`].
pub fn plugin(folders: &Folders, name: &str, grants: &WrittenGrants) -> Result<PathBuf, HostError> {
    for host in &grants.hosts {
        check_host(host)?;
    }
    let by_hand = format!(
        "add this to your configuration by hand:\n[plugins.{name}]\n{}",
        grants.lines().join("\n")
    );
    change(folders, &by_hand, |text| {
        let mut with_lists = text.to_owned();
        for (path, access) in &grants.directories {
            let item = allowed_path(path, *access);
            add_to_list(&mut with_lists, name, "allowed_paths", item.into())?;
        }
        for host in &grants.hosts {
            add_to_list(&mut with_lists, name, "hosts", host.as_str().into())?;
        }

        let mut document: DocumentMut = with_lists.parse().map_err(|_| ConfigEditError::Text)?;
        let mut values = Vec::new();
        if let Some(size) = grants.store_mib {
            values.push(("store_mib", toml_edit::value(i64::from(size))));
        }
        if let Some(size) = grants.index_mib {
            values.push(("index_mib", toml_edit::value(i64::from(size))));
        }
        if grants.session {
            values.push(("instance", toml_edit::value("session")));
        }
        for (key, value) in values {
            find_or_add_table(&mut document, &["plugins", name])?.insert(key, value);
        }
        let after = document.to_string();
        if after == text { Ok(None) } else { Ok(Some(after)) }
    })
}

fn allowed_path(directory: &str, access: PathAccess) -> InlineTable {
    let mut item = InlineTable::new();
    item.insert("path", directory.into());
    item.insert("access", if access == PathAccess::Read { "read" } else { "read-write" }.into());
    item
}

/// Returns the table with these names. Creates missing tables. A new table is at the end of the
/// file.
fn find_or_add_table<'d>(
    document: &'d mut DocumentMut,
    names: &[&str],
) -> Result<&'d mut toml_edit::Table, ConfigEditError> {
    let mut known = Some(document.as_item());
    for name in names {
        known = known.and_then(|item| item.get(name));
    }
    let is_new = known.is_none();
    let above_end = above_end(document);
    let end = last_position(document.as_table()) + 1;
    if is_new {
        // The comments at the end are now above the new table.
        document.set_trailing("");
    }

    let mut table = document.as_table_mut();
    for (depth, name) in names.iter().enumerate() {
        let mut missing = toml_edit::Table::new();
        // Only the last table gets a line with its name. The other tables are implicit.
        let is_last = depth + 1 == names.len();
        missing.set_implicit(!is_last);
        if is_last {
            missing.set_position(Some(end));
            missing.decor_mut().set_prefix(&above_end);
        }
        let entry = table.entry(name).or_insert(Item::Table(missing));
        table = entry.as_table_mut().ok_or(ConfigEditError::Tables)?;
    }
    Ok(table)
}

/// Returns the text above a table that is added at the end of the file. The comments at the end
/// belong to the table before, so they stay above.
fn above_end(document: &DocumentMut) -> String {
    match document.trailing().as_str().unwrap_or_default().trim_end() {
        "" if document.is_empty() => String::new(),
        "" => "\n".to_owned(),
        comments => format!("{comments}\n\n"),
    }
}

/// Returns the position of the table that is the last one in the file. A new table without a
/// position would come directly after the table before it in the tree, where the comments at the
/// end of that table would become part of the new table.
fn last_position(table: &toml_edit::Table) -> isize {
    let mut last = table.position().unwrap_or_default();
    for (_, item) in table {
        match item {
            Item::Table(inner) => last = last.max(last_position(inner)),
            Item::ArrayOfTables(tables) => {
                for inner in tables {
                    last = last.max(last_position(inner));
                }
            }
            Item::None | Item::Value(_) => {}
        }
    }
    last
}

/// Adds an item to a list of a plugin's table in `text`.
fn add_to_list(
    text: &mut String,
    plugin: &str,
    key: &str,
    item: toml_edit::Value,
) -> Result<(), ConfigEditError> {
    if let Some(changed) = insert_item(text, &["plugins", plugin], key, item, Array::new())? {
        *text = changed;
    }
    Ok(())
}

/// Adds `item` to the list `key` of the table `names`, or replaces the item with the same path. A
/// new list starts with `default`. Returns the changed text, or `None` if the list already has the
/// item.
pub(super) fn insert_item(
    text: &str,
    names: &[&str],
    key: &str,
    item: toml_edit::Value,
    default: Array,
) -> Result<Option<String>, ConfigEditError> {
    let mut document: DocumentMut = text.parse().map_err(|_| ConfigEditError::Text)?;
    let table = find_or_add_table(&mut document, names)?;
    let list = table
        .entry(key)
        .or_insert(toml_edit::value(default))
        .as_array_mut()
        .ok_or(ConfigEditError::List)?;
    let same_path = list.iter().position(|known| path_in(known) == path_in(&item));
    if let Some(index) = same_path {
        if list.get(index).map(ToString::to_string) == Some(item.to_string()) {
            return Ok(None);
        }
        // The known item has the same path, but grants another access.
        list.replace(index, item);
    } else {
        list.push(item);
    }
    Ok(Some(document.to_string()))
}

fn path_in(item: &toml_edit::Value) -> Option<String> {
    match item.as_inline_table() {
        Some(table) => table.get("path").and_then(|path| path.as_str().map(str::to_owned)),
        None => item.as_str().map(str::to_owned),
    }
}

/// Changes the user's file with `edit`, and returns the path of the file. If `edit` fails, the
/// error contains the advice `by_hand`.
pub(super) fn change(
    folders: &Folders,
    by_hand: &str,
    edit: impl FnOnce(&str) -> Result<Option<String>, ConfigEditError>,
) -> Result<PathBuf, HostError> {
    let path = folders.config_file();
    // Without the lock, two processes could each overwrite the rule of the other. The lock is in
    // the data folder, so the user's folder gets no additional file.
    let _lock = PrivateFolder::make(folders.operator_data())
        .and_then(|data| data.lock("toolhold.toml.lock"))
        .map_err(HostError::io(folders.operator_data().display().to_string()))?;

    let file = file::read(&path).map_err(|problem| HostError::Config(problem.to_string()))?;
    let before = file.map_or_else(String::new, |file| file.text);
    let real = real_path(&path).map_err(|error| write_error(&path, error))?;
    // The new file keeps the permission bits of the old file. A first file is private.
    let mode = std::fs::metadata(&real).map_or(PRIVATE, |status| status.mode() & PERMISSION_BITS);
    let changed = edit(&before).map_err(|error| edit_error(&path, &error, by_hand))?;
    let Some(after) = changed else { return Ok(path) };
    let (Some(folder), Some(name)) =
        (real.parent(), real.file_name().and_then(|name| name.to_str()))
    else {
        return Err(edit_error(&path, &ConfigEditError::FileName, by_hand));
    };
    PrivateFolder::make(folder)
        .and_then(|folder| folder.put_with_mode(name, after.as_bytes(), mode))
        .map_err(|error| write_error(&path, error))?;
    Ok(path)
}

fn edit_error(path: &Path, error: &ConfigEditError, by_hand: &str) -> HostError {
    HostError::Config(format!("{}: {error}; {by_hand}", path.display()))
}

fn write_error(path: &Path, error: std::io::Error) -> HostError {
    HostError::io(format!("writing {}", path.display()))(error)
}

/// Inserts the rule into the text, and returns the changed text. Returns `None` if the rule is
/// already in its place: an exact rule is the first of its list, and a glob is anywhere in its
/// list.
pub(super) fn insert_rule(text: &str, rule: &AllowRule) -> Result<Option<String>, ConfigEditError> {
    // The new text must parse to `expected`.
    let mut expected: Table = text.parse().map_err(|_| ConfigEditError::Text)?;
    let tool = rule.tool.as_str();
    let rule_table: Table = rule.text().parse().map_err(|_| ConfigEditError::Rule)?;
    let rule_value = rule_table["tools"]["permissions"][tool][0].clone();
    let rules = rules_mut(&mut expected, tool).ok_or(ConfigEditError::Rules)?;
    let is_in_place =
        rules.first() == Some(&rule_value) || (rule.is_glob && rules.contains(&rule_value));
    if is_in_place {
        return Ok(None);
    }
    let index = if rule.is_glob { rules.len() } else { 0 };
    rules.insert(index, rule_value);

    let mut document: DocumentMut = text.parse().map_err(|_| ConfigEditError::Text)?;
    insert_table(&mut document, rule).ok_or(ConfigEditError::Rules)?;
    let written = document.to_string();
    // The new text must differ from the old text only by the rule.
    if written.parse::<Table>().is_ok_and(|table| table == expected) {
        Ok(Some(written))
    } else {
        Err(ConfigEditError::Rules)
    }
}

/// Puts the rule before or after the tool's other rules, or at the end of the file if the tool has
/// no rules. Returns `None` if the file has another value in place of the list.
fn insert_table(document: &mut DocumentMut, rule: &AllowRule) -> Option<()> {
    let tool = rule.tool.as_str();
    let written: DocumentMut = rule.text().parse().ok()?;
    let mut new = written["tools"]["permissions"][tool].as_array_of_tables()?.get(0)?.clone();

    let above_end = above_end(document);
    let end = last_position(document.as_table()) + 1;
    let mut table = document.as_table_mut();
    for name in ["tools", "permissions"] {
        let mut missing = toml_edit::Table::new();
        missing.set_implicit(true);
        table = table.entry(name).or_insert(Item::Table(missing)).as_table_mut()?;
    }
    let item = table.entry(tool).or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    if let Some(rules) = item.as_array_mut() {
        let index = if rule.is_glob { rules.len() } else { 0 };
        rules.insert(index, new.into_inline_table());
        return Some(());
    }
    let rules = item.as_array_of_tables_mut()?;
    if rule.is_glob && !rules.is_empty() {
        // A table without a position follows the one before it in the list.
        new.set_position(None);
        new.decor_mut().set_prefix("\n");
        rules.push(new);
        return Some(());
    }
    match rules.get_mut(0) {
        Some(first) => {
            new.set_position(first.position());
            // The comments directly above the first rule belong to this rule.
            let above = first.decor().prefix().and_then(RawString::as_str).unwrap_or_default();
            let (earlier_lines, comments) = split_own_comments(above);
            let first_prefix = format!("\n{comments}");
            new.decor_mut().set_prefix(earlier_lines);
            first.decor_mut().set_prefix(first_prefix);
            rules.insert(0, new);
        }
        None => {
            new.set_position(Some(end));
            new.decor_mut().set_prefix(above_end);
            rules.push(new);
            document.set_trailing("");
        }
    }
    Some(())
}

/// Splits the lines above a table after the last blank line. The comments before belong to the
/// table before, or to no table.
fn split_own_comments(above: &str) -> (&str, &str) {
    let mut start = 0;
    let mut own_start = 0;
    for line in above.split_inclusive('\n') {
        start += line.len();
        if line.ends_with('\n') && line.trim().is_empty() {
            own_start = start;
        }
    }
    above.split_at(own_start)
}

fn rules_mut<'a>(table: &'a mut Table, tool: &str) -> Option<&'a mut Vec<Value>> {
    let tools = table.entry("tools").or_insert_with(|| Table::new().into()).as_table_mut()?;
    let permissions =
        tools.entry("permissions").or_insert_with(|| Table::new().into()).as_table_mut()?;
    permissions.entry(tool).or_insert_with(|| Value::Array(Vec::new())).as_array_mut()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use toolhold_contract::text::neutral;

    use super::*;

    const RULE: &str =
        "[[tools.permissions.write]]\npattern = \"/w/a\"\nexact = true\naction = \"allow\"\n";

    /// The rule that allows exactly this path for `write`.
    fn exact(path: &str) -> AllowRule {
        AllowRule { tool: "write".to_owned(), pattern: path.to_owned(), is_glob: false }
    }

    /// The rules of a tool.
    fn read_rules<'t>(table: &'t Table, tool: &str) -> &'t [Value] {
        table["tools"]["permissions"][tool].as_array().expect("it is a list")
    }

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(
            insert_rule(text, &exact("/w/a")).expect("there is a place").as_deref(),
            expected,
            "{text}"
        );
    }

    #[test]
    fn rule_comes_before_the_others_and_everything_else_stays() {
        check("", Some(RULE));
        check(
            "# mine\n[tools]\ncall = 20 # short\n",
            Some(&format!("# mine\n[tools]\ncall = 20 # short\n\n{RULE}")),
        );
        check("[tools]\ncall = 20", Some(&format!("[tools]\ncall = 20\n\n{RULE}")));
        let others = "[[tools.permissions.write]]\npattern = \"*\"\naction = \"ask\"\n";
        check(others, Some(&format!("{RULE}\n{others}")));
        let commented = format!(
            "[[tools.permissions.bash]]\npattern = \"ls\"\naction = \"allow\"\n\n# about\n# writing\n{others}\n[tools.file]\n"
        );
        check(&commented, Some(&commented.replace("# about", &format!("{RULE}\n# about"))));
        check("tools.call = 20\n", Some(&format!("tools.call = 20\n\n{RULE}")));
    }

    #[test]
    fn rule_of_a_glob_has_a_quoted_name_and_no_exact_pattern() {
        let rule = AllowRule { tool: "git__*".to_owned(), pattern: "*".to_owned(), is_glob: true };
        let text = "[[tools.permissions.\"git__*\"]]\npattern = \"*\"\naction = \"allow\"\n";
        let written = insert_rule("", &rule).expect("there is a place");
        assert_eq!(written.as_deref(), Some(text));
        assert_eq!(insert_rule(text, &rule).expect("there is a place"), None);
    }

    #[test]
    fn glob_comes_after_the_rules_that_deny_or_ask() {
        let rule = AllowRule { tool: "write".to_owned(), pattern: "*".to_owned(), is_glob: true };
        let new = "[[tools.permissions.write]]\npattern = \"*\"\naction = \"allow\"\n";
        let denies = "[[tools.permissions.write]]\npattern = \"x\"\naction = \"deny\" # never\n";
        let asks = "\n# Ask.\n[[tools.permissions.write]]\npattern = \"y\"\naction = \"ask\"\n";
        let rest = "\n# the files\n[tools.file]\n";
        let before = format!("{denies}{asks}{rest}# the end\n");
        let after = format!("{denies}{asks}\n{new}{rest}# the end\n");
        let written = insert_rule(&before, &rule).expect("there is a place");
        assert_eq!(written.as_deref(), Some(&*after));
        assert_eq!(insert_rule(&after, &rule).expect("there is a place"), None);
        let inline = "[tools]\npermissions.write = [{ pattern = \"x\", action = \"deny\" }]\n";
        let written = insert_rule(inline, &rule).expect("there is a place").expect("it is new");
        let table: Table = written.parse().expect("it is TOML");
        let rules = read_rules(&table, "write");
        assert_eq!(rules[0]["pattern"].as_str(), Some("x"));
        assert_eq!(rules[1]["pattern"].as_str(), Some("*"));
    }

    #[test]
    fn rule_that_is_already_first_is_not_written_again() {
        check(RULE, None);
        let second =
            format!("[[tools.permissions.write]]\npattern = \"x\"\naction = \"deny\"\n\n{RULE}");
        check(&second, Some(&format!("{RULE}\n{second}")));
    }

    #[test]
    fn directory_joins_the_list_or_the_default_and_replaces_itself() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folders = Folders::inside(root.path());
        let written = |path: &str, access| {
            let file = directory(&folders, path, access).expect("it is written");
            fs::read_to_string(file).expect("it exists")
        };
        let first = written("/w/a", PathAccess::Read);
        assert_eq!(
            first,
            "[tools.file]\nallowed_paths = [\".\", { path = \"/w/a\", access = \"read\" }]\n"
        );
        assert_eq!(written("/w/a", PathAccess::Read), first);
        let wider = written("/w/a", PathAccess::ReadWrite);
        assert_eq!(wider, first.replace("\"read\"", "\"read-write\""));
        let path = host(&folders, "docs.rs").expect("it is written");
        let text = fs::read_to_string(path).expect("it exists");
        assert!(text.contains("[tools.web]\nallowed_domains = [\"docs.rs\"]\n"), "{text}");
        host(&folders, "not a host").expect_err("it isn't one");
        let path = lenient_model(&folders, "local/qwen").expect("it is written");
        let text = fs::read_to_string(path).expect("it exists");
        assert!(text.contains("[agent]\nlenient_models = [\"local/qwen\"]\n"), "{text}");
    }

    #[test]
    fn text_that_looks_like_a_header_is_ignored() {
        let text = "[plugins.x]\npath = '''\n[[tools.permissions.write]]\n'''\n";
        check(text, Some(&format!("{text}\n{RULE}")));
    }

    #[test]
    fn list_in_one_line_gets_the_rule_too() {
        let inline = "{ pattern = \"/w/a\", exact = true, action = \"allow\" }";
        check(
            "[tools]\npermissions.write = [{ pattern = \"*\", action = \"ask\" }] # mine\n",
            Some(&format!(
                "[tools]\npermissions.write = [{inline},{{ pattern = \"*\", action = \"ask\" }}] # mine\n"
            )),
        );
    }

    #[test]
    fn comment_at_the_end_stays_above_the_rule() {
        check(
            "[tools]\ncall = 20\n\n# the end\n",
            Some(&format!("[tools]\ncall = 20\n\n# the end\n\n{RULE}")),
        );
        check("# only this\n", Some(&format!("# only this\n\n{RULE}")));
    }

    #[test]
    fn commented_lines_stay_in_their_table() {
        let files = "[tools.file]\nallowed_paths = [\".\"]\n# deny_read = [\"~/.ssh\"]\n";
        let server = "# the clock\n[mcp.servers.time]\ncommand = \"uvx\"\n# presets = [\"uv\"]\n";
        let before = format!("{files}\n{server}");
        check(&before, Some(&format!("{before}\n{RULE}")));
        check(&format!("{before}\n{RULE}"), None);
        let other = RULE.replace("/w/a", "/w/b");
        let rest = format!("# about writing\n{other}\n{server}");
        check(&format!("{files}\n{rest}"), Some(&format!("{files}\n{RULE}\n{rest}")));

        let hosts = "[tools.web]\nallowed_domains = [\"docs.rs\"]\n";
        let names = ["tools", "web"];
        let written =
            insert_item(&before, &names, "allowed_domains", "docs.rs".into(), Array::new());
        assert_eq!(written, Ok(Some(format!("{before}\n{hosts}"))));
    }

    #[test]
    fn file_without_a_place_for_the_rule_is_not_changed() {
        for text in ["tools = { call = 3 }\n", "[tools]\npermissions = 3\n", "[tools\n"] {
            insert_rule(text, &exact("/w/a")).expect_err(text);
        }
    }

    #[test]
    fn pattern_can_contain_any_text() {
        let pattern = "/w/a \"b\"\n\\ \u{1b}[2J 'c' \u{7f}\u{202e}";
        let text = insert_rule("", &exact(pattern)).expect("there is a place").expect("it is new");
        let table: Table = text.parse().expect("it is TOML");
        assert_eq!(read_rules(&table, "write")[0]["pattern"].as_str(), Some(pattern));
        assert!(neutral(&text) == text, "{text}");
    }

    #[test]
    fn file_keeps_its_mode_and_link_and_a_new_file_is_private() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folders = Folders::inside(root.path());
        let path = permission(&folders, &exact("/w/a")).expect("it is written");
        assert_eq!(
            (fs::read_to_string(&path).expect("it exists").as_str(), mode(&path)),
            (RULE, 0o600)
        );

        let elsewhere = root.path().join("dotfiles");
        fs::create_dir(&elsewhere).expect("a folder is made");
        fs::rename(&path, elsewhere.join("mine.toml")).expect("it is moved");
        symlink(elsewhere.join("mine.toml"), &path).expect("a link is made");
        fs::set_permissions(elsewhere.join("mine.toml"), Permissions::from_mode(0o644))
            .expect("its mode is set");
        permission(&folders, &exact("/w/b")).expect("it is written");
        assert!(path.is_symlink());
        assert!(fs::read_to_string(&path).expect("it exists").contains("\"/w/b\""));
        assert_eq!(mode(&elsewhere.join("mine.toml")), 0o644);
    }

    #[test]
    fn file_that_others_can_write_is_not_changed() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folders = Folders::inside(root.path());
        let path = permission(&folders, &exact("/w/a")).expect("it is written");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("its mode is set");
        permission(&folders, &exact("/w/b")).expect_err("others can write it");
        assert_eq!(fs::read_to_string(&path).expect("it exists"), RULE);
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it exists").mode() & 0o7777
    }

    #[test]
    fn grants_of_a_plugin_are_added_to_its_table_and_nothing_else_changes() {
        let root = tempfile::tempdir().unwrap();
        let folders = Folders::inside(root.path());
        let file = folders.config_file();
        let grants = WrittenGrants {
            directories: vec![("/work/notes".to_owned(), PathAccess::Read)],
            hosts: vec!["api.example.com".to_owned()],
            store_mib: Some(16),
            index_mib: Some(8),
            session: true,
        };
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::set_permissions(file.parent().unwrap(), Permissions::from_mode(0o700)).unwrap();
        let before = "# mine\n[tools.limits]\nmemory_mib = 64 # small\n\n[plugins.notes]\nhosts = [\"b.example.com\"] # kept\n";
        fs::write(&file, before).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        plugin(&folders, "notes", &grants).unwrap();
        let after = fs::read_to_string(&file).unwrap();
        assert!(after.starts_with("# mine\n[tools.limits]\nmemory_mib = 64 # small\n"), "{after}");
        let value: Table = after.parse().unwrap();
        let table = &value["plugins"]["notes"];
        assert_eq!(table["hosts"], Value::from(vec!["b.example.com", "api.example.com"]));
        assert_eq!(table["allowed_paths"][0]["path"].as_str(), Some("/work/notes"));
        assert_eq!(table["allowed_paths"][0]["access"].as_str(), Some("read"));
        assert_eq!(table["store_mib"].as_integer(), Some(16));
        assert_eq!(table["index_mib"].as_integer(), Some(8));
        assert_eq!(table["instance"].as_str(), Some("session"));
        // Again, nothing is added twice; an invalid host changes nothing.
        plugin(&folders, "notes", &grants).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), after);
        let wrong = WrittenGrants { hosts: vec!["a b".to_owned()], ..grants };
        plugin(&folders, "notes", &wrong).unwrap_err();
        assert_eq!(fs::read_to_string(&file).unwrap(), after);
    }
}
