//! `[tools.filters]`: the filters that shorten answers.

use schemars::{JsonSchema, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use toolhold_policy::SecurityLines;

use crate::narrowing::{Narrowing, section};
use crate::string_types::{as_written, inline_schema};

/// The name of the built-in filter plugin.
pub const BUILT_IN_FILTERS: &str = "filters";

/// Most characters of a regular expression. A longer expression is refused.
const MAX_EXPRESSION: usize = 512;

section! {
    /// Filters of answers for a model. The parts that a filter leaves out are stored for
    /// `read_overflow`.
    #[derive(Eq)]
    pub struct Filters {
        /// Whether filters that shorten answers are used. Filters for security are always used.
        pub enabled: bool = true, Narrowing::Ignored;
        /// The file with your own rules for the built-in filters. If empty, the file is
        /// `filters.toml` next to your `toolhold.toml`. `~` is the home directory. A relative path
        /// starts at the folder of the `toolhold.toml` that names it. In a variable or a flag, the
        /// path starts at the working directory.
        pub filters_path: String, Narrowing::Ignored;
        /// The plugins whose filters are used, by name. An answer passes the filters in this order.
        /// Other plugins don't filter. `filters` is built in.
        pub chain: Vec<String> = vec![BUILT_IN_FILTERS.to_owned()], Narrowing::Ignored;
        /// Lines about security that no filter removes.
        pub security: FilterSecurity, Narrowing::Table(FilterSecurity::RULES);
    }
}

section! {
    /// Lines about security: a warning of unsafe code, a failed login, an advisory. If a filter
    /// removes such a line, the line is restored without its secrets.
    #[derive(Eq)]
    pub struct FilterSecurity {
        /// Whether these lines are restored.
        pub enabled: bool = true, Narrowing::OnlyTrue;
        /// Regular expressions for additional security lines. They have the syntax of the Rust
        /// crate `regex`, ignore case, and have at most 512 characters each.
        #[schemars(extend("examples" = [["(?i)license violation"]]))]
        pub extra_patterns: Vec<WrittenExpression>, Narrowing::Adds;
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
