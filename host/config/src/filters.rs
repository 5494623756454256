//! What is left out of answers, so that a model reads what matters.

use std::borrow::Cow;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use berth_policy::SecurityLines;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use super::rule::{Rule, rules};
use super::{Folders, Loaded};

/// Bytes of a file of rules.
const MAX_FILE: usize = 1 << 20;

/// Characters of a regular expression.
const MAX_EXPRESSION: usize = 512;

/// Filters of what tools answer a model with. What they leave out is kept for `read_overflow`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Filters {
    /// Whether filters that make answers shorter are used. Those whose purpose is security are used in any case.
    pub enabled: bool,
    /// Rules of your own for the built-in filters; where empty, `filters.toml` beside your `berth.toml`. `~` is the home directory; a relative
    /// path starts at the folder of the `berth.toml` that names it, or at the working directory where a variable or a flag does.
    pub filters_path: String,
    /// The plugins whose filters are used, by their names, in the order in which an answer goes through them. Only what is named here
    /// filters; `filters` is built in.
    pub chain: Vec<String>,
    /// Lines that matter for security, which no filter takes out.
    pub security: FilterSecurity,
}

rules!(Filters { enabled: Rule::Ignored, filters_path: Rule::Ignored, chain: Rule::Ignored, security: Rule::Table(FilterSecurity::RULES) });

impl Default for Filters {
    fn default() -> Self {
        let chain = vec![BUILT_IN.to_owned()];
        Self { enabled: true, filters_path: String::new(), chain, security: FilterSecurity::default() }
    }
}

/// Lines that matter for security: a warning of unsafe code, a refused login, an advisory. Where a filter has left one out, it is put back,
/// without the secrets in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct FilterSecurity {
    /// Whether such lines are put back.
    pub enabled: bool,
    /// Regular expressions for more such lines, beside those that are known, in the syntax of the Rust crate `regex`, whatever the case: at
    /// most 512 characters each.
    #[schemars(extend("examples" = [["(?i)license violation"]]))]
    pub extra_patterns: Vec<WrittenExpression>,
}

rules!(FilterSecurity { enabled: Rule::OnlyTrue, extra_patterns: Rule::Adds });

impl Default for FilterSecurity {
    fn default() -> Self {
        Self { enabled: true, extra_patterns: Vec::new() }
    }
}

/// A regular expression for lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenExpression(String);

impl WrittenExpression {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for WrittenExpression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() || text.chars().count() > MAX_EXPRESSION {
            return Err(serde::de::Error::custom(format!("a regular expression has 1 to {MAX_EXPRESSION} characters")));
        }
        SecurityLines::with([text.as_str()]).map_err(serde::de::Error::custom)?;
        Ok(Self(text))
    }
}

impl JsonSchema for WrittenExpression {
    fn schema_name() -> Cow<'static, str> {
        "Expression".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_EXPRESSION })
    }
}

/// The name of the plugin that is built in, the one that gets the operator's rules.
pub const BUILT_IN: &str = "filters";

/// The operator's own rules for the built-in filters, as they are now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRules {
    /// Where they stand, whether or not there is a file.
    pub path: PathBuf,
    /// Their text. `None`: there is no such file.
    pub text: Result<Option<String>, String>,
}

impl Loaded {
    /// Where the operator's own rules for the built-in filters stand. There need be no such file.
    pub fn filter_rules_path(&self, folders: &Folders, working_directory: &Path) -> PathBuf {
        match self.config.tools.filters.filters_path.as_str() {
            "" => {
                let beside = self.file.as_deref().and_then(Path::parent).map(|folder| working_directory.join(folder));
                beside.unwrap_or_else(|| folders.config.clone()).join("filters.toml")
            }
            path => self.beside_its_source("tools.filters.filters_path", path, folders, working_directory),
        }
    }

    /// Reads the operator's own rules for the built-in filters. Blocks.
    pub fn filter_rules(&self, folders: &Folders, working_directory: &Path) -> FilterRules {
        let path = self.filter_rules_path(folders, working_directory);
        let text = read(&path).map_err(|reason| format!("{}: {reason}", path.display()));
        FilterRules { path, text }
    }
}

fn read(path: &Path) -> Result<Option<String>, String> {
    // Without waiting for the other end, should the file be a FIFO.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = match std::fs::File::options().read(true).custom_flags(nonblocking).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err("it is no regular file".to_owned());
    }
    let mut text = String::new();
    file.take(MAX_FILE as u64 + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() > MAX_FILE {
        return Err("it has more than 1 MiB".to_owned());
    }
    toml::from_str::<toml::Table>(&text).map_err(|error| error.to_string())?;
    Ok(Some(text))
}
