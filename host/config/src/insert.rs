//! Puts one rule into the user's `berth.toml`, and leaves the rest of it, comments too, as it is.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use berth_contract::HostError;
use berth_contract::text::toml;
use berth_system::private::PrivateFolder;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use toml::{Table, Value};
use toml_edit::{ArrayOfTables, DocumentMut, Item, RawString};

use super::load::load_with;
use super::{Config, Folders, Loaded, PermissionAction, PermissionRule, file};

/// The mode of a file that is made here.
const PRIVATE: u32 = 0o600;

impl Loaded {
    /// What would hold with a rule more, the first of `[[tools.permissions.TOOL]]` in the user's
    /// own file. It blocks.
    ///
    /// # Errors
    ///
    /// Why the rule can't be written there, or wouldn't count.
    pub fn with_permission(&self, tool: &str, pattern: &str) -> Result<Self, String> {
        let Some((folders, inputs)) = &self.read_from else {
            return Err("this program has a configuration of its own".to_owned());
        };
        if let Some(file) = &inputs.file {
            return Err(format!("{} is used instead of your own berth.toml", file.display()));
        }
        let path = folders.config_file();
        may_be_written(&path)?;
        let read = |text: Option<file::Text>| {
            load_with(folders, inputs, path.clone(), text).map_err(|problems| problems.to_string())
        };
        let there = file::read(&path).map_err(|problem| problem.to_string())?;
        let before = there.as_ref().map_or(String::new(), |there| there.text.clone());
        let identity = there.as_ref().map_or((0, 0), |there| there.identity);
        let now = read(there)?;
        // Otherwise the new rule would bring other changes along, which nobody was asked about.
        if now.config != self.config && now.without(tool, pattern) != self.config {
            return Err("the configuration has changed since this program read it".to_owned());
        }
        match inserted(&before, tool, pattern)? {
            None => Ok(now),
            Some(text) => read(Some(file::Text { text, identity })),
        }
    }

    /// What would hold without the rule: another process may have written it meanwhile, for the
    /// same yes.
    fn without(&self, tool: &str, pattern: &str) -> Config {
        let mut config = self.config.clone();
        if let Some(rules) = config.tools.permissions.get_mut(tool) {
            let is_it = |rule: &PermissionRule| {
                rule.exact
                    && rule.pattern.as_str() == pattern
                    && rule.action == PermissionAction::Allow
            };
            if let Some(index) = rules.iter().position(is_it) {
                rules.remove(index);
            }
            if rules.is_empty() {
                config.tools.permissions.remove(tool);
            }
        }
        config
    }
}

/// Whether the user's file can be replaced, as far as that can be told without doing it.
fn may_be_written(path: &Path) -> Result<(), String> {
    let real = real(path).map_err(|error| format!("{}: {error}", path.display()))?;
    // Folders that are missing are made.
    let folder = real.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new("/"));
    let may = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, folder, may, AtFlags::EACCESS)
        .map_err(|error| format!("{} can't be written: {error}", folder.display()))
}

/// What is behind a link stays behind it.
fn real(path: &Path) -> std::io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound && file::nothing_is_at(path) => {
            Ok(path.to_owned())
        }
        real => real,
    }
}

/// Makes a rule the first of `[[tools.permissions.TOOL]]`, so that it decides before all others.
/// Returns the file that it stands in then. It blocks.
///
/// # Errors
///
/// [`HostError::Config`] where the file can't be believed, or is written in a way that leaves no
/// place for the rule; [`HostError::Io`] where it can't be changed.
pub fn permission(folders: &Folders, tool: &str, pattern: &str) -> Result<PathBuf, HostError> {
    let path = folders.config_file();
    let failed =
        |error: std::io::Error| HostError::io(format!("writing {}", path.display()))(error);
    // One after the other, or one rule would be lost. The lock is no file of the folder that the
    // user looks at.
    let _held = PrivateFolder::make(&folders.data)
        .and_then(|data| data.lock("berth.toml.lock"))
        .map_err(HostError::io(folders.data.display().to_string()))?;

    let before = file::read(&path)
        .map_err(|problem| HostError::Config(problem.to_string()))?
        .map(|read| read.text);
    let real = real(&path).map_err(failed)?;
    let mode = std::fs::metadata(&real).map_or(PRIVATE, |status| status.mode() & 0o7777);
    let Some(after) = inserted(before.as_deref().unwrap_or_default(), tool, pattern)
        .map_err(|why| cannot_write(&path, tool, pattern, why))?
    else {
        return Ok(path);
    };
    let (Some(folder), Some(name)) =
        (real.parent(), real.file_name().and_then(|name| name.to_str()))
    else {
        return Err(cannot_write(&path, tool, pattern, "its path isn't a file name"));
    };
    PrivateFolder::make(folder)
        .and_then(|folder| folder.put_with_mode(name, after.as_bytes(), mode))
        .map_err(failed)?;
    Ok(path)
}

/// The rule as it is written: for this very text, not for what would match it as a glob.
pub fn rule(tool: &str, pattern: &str) -> String {
    format!(
        "[[tools.permissions.{tool}]]\npattern = {}\nexact = true\naction = \"allow\"\n",
        toml(pattern)
    )
}

fn cannot_write(path: &Path, tool: &str, pattern: &str, why: &str) -> HostError {
    HostError::Config(format!(
        "{}: {why}; write it there yourself, before the other rules of `{tool}`:\n{}",
        path.display(),
        rule(tool, pattern)
    ))
}

/// The text with the rule in it. `None`: it is the first already.
fn inserted(text: &str, tool: &str, pattern: &str) -> Result<Option<String>, &'static str> {
    let mut expected: Table = text.parse().map_err(|_| "it is not TOML")?;
    let rule_text = rule(tool, pattern);
    let rule_table: Table = rule_text.parse().map_err(|_| "the rule can't be written as TOML")?;
    let rule_value = rule_table["tools"]["permissions"][tool][0].clone();
    if permissions(&expected, tool).is_some_and(|rules| rules.first() == Some(&rule_value)) {
        return Ok(None);
    }
    let no_place = "its rules have a form that leaves no place for another one";
    let rules = rules_mut(&mut expected, tool).ok_or(no_place)?;
    rules.insert(0, rule_value);

    let mut document: DocumentMut = text.parse().map_err(|_| "it is not TOML")?;
    insert_first(&mut document, tool, &rule_text).ok_or(no_place)?;
    let written = document.to_string();
    // What counts is what the file says then: what it said before, and the rule in front.
    if written.parse::<Table>().is_ok_and(|table| table == expected) {
        Ok(Some(written))
    } else {
        Err(no_place)
    }
}

/// Puts the rule before the tool's other ones, or at the end where there are none. `None`: the file
/// has something else where the list would be.
fn insert_first(document: &mut DocumentMut, tool: &str, rule_text: &str) -> Option<()> {
    let rule: DocumentMut = rule_text.parse().ok()?;
    let mut new = rule["tools"]["permissions"][tool].as_array_of_tables()?.get(0)?.clone();

    // Comments at the end stay above the new rule.
    let above_end = match document.trailing().as_str().unwrap_or_default().trim_end() {
        "" if document.is_empty() => String::new(),
        "" => "\n".to_owned(),
        comments => format!("{comments}\n\n"),
    };
    let mut table = document.as_table_mut();
    for name in ["tools", "permissions"] {
        let mut missing = toml_edit::Table::new();
        missing.set_implicit(true);
        table = table.entry(name).or_insert(Item::Table(missing)).as_table_mut()?;
    }
    let item = table.entry(tool).or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    if let Some(rules) = item.as_array_mut() {
        rules.insert(0, new.into_inline_table());
        return Some(());
    }
    let rules = item.as_array_of_tables_mut()?;
    match rules.get_mut(0) {
        Some(first) => {
            new.set_position(first.position());
            // The comments right above it are about it.
            let above = first.decor().prefix().and_then(RawString::as_str).unwrap_or_default();
            let comments = above.trim_start_matches('\n');
            new.decor_mut().set_prefix(&above[..above.len() - comments.len()]);
            let comments = format!("\n{comments}");
            first.decor_mut().set_prefix(comments);
            rules.insert(0, new);
        }
        None => {
            new.set_position(None);
            new.decor_mut().set_prefix(above_end);
            rules.push(new);
            document.set_trailing("");
        }
    }
    Some(())
}

fn permissions<'a>(table: &'a Table, tool: &str) -> Option<&'a Vec<Value>> {
    table.get("tools")?.get("permissions")?.get(tool)?.as_array()
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

    use berth_contract::text::neutral;

    use super::*;

    const RULE: &str =
        "[[tools.permissions.write]]\npattern = \"/w/a\"\nexact = true\naction = \"allow\"\n";

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(
            inserted(text, "write", "/w/a").expect("there is a place").as_deref(),
            expected,
            "{text}"
        );
    }

    #[test]
    fn the_rule_stands_before_the_others_and_everything_else_stays() {
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
    fn a_rule_that_is_the_first_already_is_not_written_again() {
        check(RULE, None);
        let second =
            format!("[[tools.permissions.write]]\npattern = \"x\"\naction = \"deny\"\n\n{RULE}");
        check(&second, Some(&format!("{RULE}\n{second}")));
    }

    #[test]
    fn what_only_looks_like_a_header_is_none() {
        let text = "[plugins.x]\npath = '''\n[[tools.permissions.write]]\n'''\n";
        check(text, Some(&format!("{text}\n{RULE}")));
    }

    #[test]
    fn a_list_in_one_line_takes_the_rule_as_well() {
        let inline = "{ pattern = \"/w/a\", exact = true, action = \"allow\" }";
        check(
            "[tools]\npermissions.write = [{ pattern = \"*\", action = \"ask\" }] # mine\n",
            Some(&format!(
                "[tools]\npermissions.write = [{inline},{{ pattern = \"*\", action = \"ask\" }}] # mine\n"
            )),
        );
    }

    #[test]
    fn a_comment_at_the_end_stays_above_the_rule() {
        check(
            "[tools]\ncall = 20\n\n# the end\n",
            Some(&format!("[tools]\ncall = 20\n\n# the end\n\n{RULE}")),
        );
        check("# only this\n", Some(&format!("# only this\n\n{RULE}")));
    }

    #[test]
    fn a_file_that_has_no_place_for_the_rule_is_left_alone() {
        for text in ["tools = { call = 3 }\n", "[tools]\npermissions = 3\n", "[tools\n"] {
            inserted(text, "write", "/w/a").expect_err(text);
        }
    }

    #[test]
    fn a_pattern_can_hold_anything() {
        let pattern = "/w/a \"b\"\n\\ \u{1b}[2J 'c' \u{7f}\u{202e}";
        let text = inserted("", "write", pattern).expect("there is a place").expect("it is new");
        let table: Table = text.parse().expect("it is TOML");
        assert_eq!(
            permissions(&table, "write").expect("it is there")[0]["pattern"].as_str(),
            Some(pattern)
        );
        assert!(neutral(&text) == text, "{text}");
    }

    #[test]
    fn the_file_keeps_its_mode_and_its_link_and_a_new_one_is_private() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folders = Folders::inside(root.path());
        let path = permission(&folders, "write", "/w/a").expect("it is written");
        assert_eq!(
            (fs::read_to_string(&path).expect("it is there").as_str(), mode(&path)),
            (RULE, 0o600)
        );

        let elsewhere = root.path().join("dotfiles");
        fs::create_dir(&elsewhere).expect("a folder is made");
        fs::rename(&path, elsewhere.join("mine.toml")).expect("it is moved");
        symlink(elsewhere.join("mine.toml"), &path).expect("a link is made");
        fs::set_permissions(elsewhere.join("mine.toml"), Permissions::from_mode(0o644))
            .expect("its mode is set");
        permission(&folders, "write", "/w/b").expect("it is written");
        assert!(path.is_symlink());
        assert!(fs::read_to_string(&path).expect("it is there").contains("\"/w/b\""));
        assert_eq!(mode(&elsewhere.join("mine.toml")), 0o644);
    }

    #[test]
    fn a_file_that_others_may_write_is_not_changed() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folders = Folders::inside(root.path());
        let path = permission(&folders, "write", "/w/a").expect("it is written");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("its mode is set");
        permission(&folders, "write", "/w/b").expect_err("others may write to it");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), RULE);
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o7777
    }
}
