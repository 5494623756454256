//! What is left out of answers, so that a model reads what matters.

use berth_policy::SecurityLines;
use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use crate::rule::{Rule, section};
use crate::written::{as_written, inline_schema};

/// The name of the plugin that is built in, the one that gets the operator's rules.
pub const BUILT_IN_FILTERS: &str = "filters";

/// Characters of a regular expression.
const MAX_EXPRESSION: usize = 512;

section! {
    /// Filters of what tools answer a model with. What they leave out is kept for `read_overflow`.
    #[derive(Eq)]
    pub struct Filters {
        /// Whether filters that make answers shorter are used. Those whose purpose is security are
        /// used in any case.
        pub enabled: bool = true, Rule::Ignored;
        /// Rules of your own for the built-in filters; where empty, `filters.toml` beside your
        /// `berth.toml`. `~` is the home directory; a relative path starts at the folder of the
        /// `berth.toml` that names it, or at the working directory where a variable or a flag does.
        pub filters_path: String, Rule::Ignored;
        /// The plugins whose filters are used, by their names, in the order in which an answer goes
        /// through them. Only what is named here filters; `filters` is built in.
        pub chain: Vec<String> = vec![BUILT_IN_FILTERS.to_owned()], Rule::Ignored;
        /// Lines that matter for security, which no filter takes out.
        pub security: FilterSecurity, Rule::Table(FilterSecurity::RULES);
    }
}

section! {
    /// Lines that matter for security: a warning of unsafe code, a refused login, an advisory.
    /// Where a filter has left one out, it is put back, without the secrets in it.
    #[derive(Eq)]
    pub struct FilterSecurity {
        /// Whether such lines are put back.
        pub enabled: bool = true, Rule::OnlyTrue;
        /// Regular expressions for more such lines, beside those that are known, in the syntax of
        /// the Rust crate `regex`, whatever the case: at most 512 characters each.
        #[schemars(extend("examples" = [["(?i)license violation"]]))]
        pub extra_patterns: Vec<WrittenExpression>, Rule::Adds;
    }
}

/// A regular expression for lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WrittenExpression(String);

as_written!(WrittenExpression);

impl<'de> Deserialize<'de> for WrittenExpression {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() || text.chars().count() > MAX_EXPRESSION {
            return Err(serde::de::Error::custom(format!(
                "a regular expression has 1 to {MAX_EXPRESSION} characters"
            )));
        }
        SecurityLines::with([text.as_str()]).map_err(serde::de::Error::custom)?;
        Ok(Self(text))
    }
}

inline_schema!(
    WrittenExpression,
    "Expression",
    json_schema!({ "type": "string", "minLength": 1, "maxLength": MAX_EXPRESSION })
);
