//! Reads the rules for the built-in filters: the operator's own rules, and the rules of a trusted
//! project.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};
use toolhold_contract::HostError;

use super::{Config, Folders, project};

/// Most bytes of a file with rules. A larger file is refused.
const MAX_FILE: usize = 1 << 20;

/// The name of the file with rules, in the operator's folder and in a project.
const FILE: &str = "filters.toml";

/// A failure to read the rules for the built-in filters.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .path.display())]
pub struct FilterRulesError {
    path: PathBuf,
    source: RulesFileError,
}

#[derive(Debug, thiserror::Error)]
enum RulesFileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the file isn't a regular file")]
    Kind,
    #[error("the file is larger than 1 MiB, the limit")]
    Size,
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    #[error(transparent)]
    Trusted(#[from] HostError),
}

/// The current rules for the built-in filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRules {
    /// The path of the operator's own rules. The file need not exist.
    pub path: PathBuf,
    /// The text of all rules that apply. `None` if there are no rules.
    pub text: Option<String>,
    /// The reason why the operator's own rules can't be used. No rules apply then.
    pub unusable: Option<String>,
    /// The reasons why rules of the project don't apply.
    pub problems: Vec<String>,
}

/// The rules of a project, in `filters.toml` of the working directory. The rules apply only while
/// the user trusts exactly this text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectFilterRules {
    /// The file.
    pub path: PathBuf,
    /// The text of the file.
    pub text: String,
    /// The SHA-256 of the text.
    pub digest: String,
    /// The user's trust in the text.
    pub standing: ProjectRulesTrust,
}

/// The user's trust in the rules of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectRulesTrust {
    /// The user hasn't trusted the rules.
    Untrusted,
    /// The user trusted another text.
    Changed,
    /// The user trusts the rules, so they apply.
    Trusted,
}

impl Config {
    /// Returns the path of the operator's own rules for the built-in filters. The file need not
    /// exist.
    pub fn filter_rules_path(&self, folders: &Folders, working_directory: &Path) -> PathBuf {
        let path = self.values.tools.filters.filters_path.as_str();
        if !path.is_empty() {
            let key = "tools.filters.filters_path";
            return self.beside_its_source(key, path, folders, working_directory);
        }
        match self.file.as_deref().and_then(Path::parent) {
            Some(folder) => working_directory.join(folder).join(FILE),
            None => folders.config.join(FILE),
        }
    }

    /// Reads the rules for the built-in filters, and adds the rules of a trusted project. Blocks.
    pub fn filter_rules(&self, folders: &Folders, working_directory: &Path) -> FilterRules {
        let path = self.filter_rules_path(folders, working_directory);
        let mut text = None;
        let mut unusable = None;
        match read(&path) {
            Ok(own_text) => text = own_text,
            Err(source) => {
                let error = FilterRulesError { path: path.clone(), source };
                unusable = Some(error.to_string());
            }
        }

        let mut problems = Vec::new();
        match self.project_filter_rules(folders, working_directory) {
            Ok(None) => {}
            Ok(Some(rules)) => match rules.standing {
                ProjectRulesTrust::Trusted => {
                    // If the operator's own rules can't be used, no rules apply at all, so the
                    // project's rules aren't added either.
                    if unusable.is_none() {
                        text = Some(merge(text.as_deref(), &rules, &mut problems));
                    }
                }
                ProjectRulesTrust::Untrusted | ProjectRulesTrust::Changed => {
                    problems.push(untrusted_problem(&rules));
                }
            },
            Err(error) => problems.push(error.to_string()),
        }
        FilterRules { path, text, unusable, problems }
    }

    /// Reads the rules of the project. Returns `None` if there are no rules, or if the project's
    /// file is the operator's own file. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the rules can't be read.
    pub fn project_filter_rules(
        &self,
        folders: &Folders,
        working_directory: &Path,
    ) -> Result<Option<ProjectFilterRules>, FilterRulesError> {
        let path = working_directory.join(FILE);
        let own = self.filter_rules_path(folders, working_directory);
        if let (Ok(own), Ok(project)) = (own.canonicalize(), path.canonicalize())
            && own == project
        {
            return Ok(None);
        }
        let content =
            read(&path).map_err(|source| FilterRulesError { path: path.clone(), source })?;
        let Some(text) = content else { return Ok(None) };
        let digest = format!("{:x}", Sha256::digest(&text));
        let trusted_digests = project::trusted(folders)
            .map_err(|error| FilterRulesError { path: path.clone(), source: error.into() })?;
        let standing = match path.to_str().and_then(|path| trusted_digests.get(path)) {
            None => ProjectRulesTrust::Untrusted,
            Some(known) if *known == digest => ProjectRulesTrust::Trusted,
            Some(_) => ProjectRulesTrust::Changed,
        };
        Ok(Some(ProjectFilterRules { path, text, digest, standing }))
    }
}

impl ProjectFilterRules {
    /// Trusts the rules until their text changes.
    ///
    /// # Errors
    ///
    /// Fails if the list of trusted files can't be written.
    pub fn trust(&self, folders: &Folders) -> Result<(), HostError> {
        project::add_trust(folders, &self.path, &self.digest)
    }
}

/// Returns the reason why the rules of an untrusted project aren't used.
fn untrusted_problem(rules: &ProjectFilterRules) -> String {
    let untrusted =
        if rules.standing == ProjectRulesTrust::Changed { "the changed file" } else { "them" };
    format!(
        "{}: these rules aren't used, because you haven't trusted {untrusted}; to see and trust \
         the rules: toolhold trust",
        rules.path.display()
    )
}

/// Joins all rules into one text. The project's rules come last and are marked with `project =
/// true`. A project rule with the same name as an own rule is left out.
///
/// If the own text isn't TOML, no project rule is added: otherwise, a project rule could make the
/// joined text valid.
fn merge(own: Option<&str>, project: &ProjectFilterRules, problems: &mut Vec<String>) -> String {
    let own = own.unwrap_or_default();
    if own.parse::<DocumentMut>().is_err() {
        return own.to_owned();
    }
    let own_rules = parse_rules(own);
    let own_names: BTreeSet<&str> = own_rules.iter().map(name_of).collect();
    let mut project_rules = ArrayOfTables::new();
    for mut rule in parse_rules(&project.text) {
        if own_names.contains(name_of(&rule)) {
            problems.push(format!(
                "{}: the rule {:?} isn't used, because your own rule has the same name",
                project.path.display(),
                name_of(&rule)
            ));
            continue;
        }
        rule.insert("project", toml_edit::value(true));
        project_rules.push(rule);
    }

    let project_text = to_text(project_rules);
    // The operator's own text comes first and unchanged, so line numbers in errors are right.
    let joined = format!("{own}\n{project_text}");
    // If the own rules are written as `rules = […]`, no `[[rules]]` can follow them. In this case,
    // write all rules again as `[[rules]]`.
    if joined.parse::<DocumentMut>().is_ok() {
        joined
    } else {
        format!("{}\n{project_text}", to_text(own_rules))
    }
}

/// A text that isn't TOML has no rules.
fn parse_rules(text: &str) -> ArrayOfTables {
    let Ok(mut file) = text.parse::<DocumentMut>() else { return ArrayOfTables::new() };
    let Some(rules) = file.remove("rules") else { return ArrayOfTables::new() };
    rules.into_array_of_tables().unwrap_or_default()
}

fn name_of(rule: &Table) -> &str {
    rule.get("name").and_then(Item::as_str).unwrap_or_default()
}

fn to_text(rules: ArrayOfTables) -> String {
    let mut file = DocumentMut::new();
    if !rules.is_empty() {
        file.insert("rules", Item::ArrayOfTables(rules));
    }
    file.to_string()
}

fn read(path: &Path) -> Result<Option<String>, RulesFileError> {
    // Without `NONBLOCK`, opening a FIFO would wait for a writer.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match std::fs::File::options().read(true).custom_flags(nonblocking).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(RulesFileError::Kind);
    }
    let mut text = String::new();
    // One byte more than the limit is enough to see that the file is too large.
    file.take(MAX_FILE as u64 + 1).read_to_string(&mut text)?;
    if text.len() > MAX_FILE {
        return Err(RulesFileError::Size);
    }
    // The table isn't used: only the syntax is checked here.
    toml::from_str::<toml::Table>(&text)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_a_project_come_last_and_replace_no_own_rule() {
        let project = ProjectFilterRules {
            path: "/w/filters.toml".into(),
            text: "[[rules]]\nname = \"a\"\n[[rules]]\nname = \"b\"\nproject = false\n".to_owned(),
            digest: String::new(),
            standing: ProjectRulesTrust::Trusted,
        };
        for own in [
            "[[rules]]\nname = \"a\"\nenabled = false\n",
            "rules = [{ name = \"a\", enabled = false }]",
        ] {
            let mut problems = Vec::new();
            let merged = merge(Some(own), &project, &mut problems);
            let table: toml::Table = toml::from_str(&merged).expect("it is TOML");
            let rules = table["rules"].as_array().expect("a list");
            assert_eq!(rules.len(), 2, "{merged}");
            assert_eq!(rules[0]["enabled"].as_bool(), Some(false));
            assert_eq!(
                (rules[1]["name"].as_str(), rules[1]["project"].as_bool()),
                (Some("b"), Some(true))
            );
            assert_eq!(problems.len(), 1, "{problems:?}");
        }
    }

    #[test]
    fn own_text_with_an_error_is_not_completed_by_the_project() {
        let project = ProjectFilterRules {
            path: "/w/filters.toml".into(),
            text: "[[rules]]\nname = \"'''\"\n".to_owned(),
            digest: String::new(),
            standing: ProjectRulesTrust::Trusted,
        };
        for own in ["[[rules]\n", "text = '''\n"] {
            assert_eq!(merge(Some(own), &project, &mut Vec::new()), own);
        }
    }
}
