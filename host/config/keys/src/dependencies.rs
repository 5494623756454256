//! `[tools.dependencies]`: which tools are blocked until other tools have succeeded.

use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, json_schema};
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::narrowing::{Narrowing, section};
use crate::string_types::inline_schema;

// A tool on a cycle of dependencies is never blocked. With an additional `requires`, a project's
// file could close a cycle, and so unblock a tool. So the file can't change the rules.
section! {
    /// Tools that are blocked until other tools have succeeded in the same session.
    pub struct Dependencies {
        /// Whether the rules apply.
        pub enabled: bool, Narrowing::OnlyTrue;
        /// The increase of a tool's rank for each tool that it prefers and that has succeeded.
        pub boost_per_dep: Ratio = Ratio(0.15), Narrowing::Ignored;
        /// The largest amount that is added to a rank.
        pub max_total_boost: Ratio = Ratio(0.2), Narrowing::Ignored;
        /// Tools that are never blocked.
        pub always_on: Vec<String>, Narrowing::Ignored;
        /// The dependencies of each tool, by the tool's full name.
        pub rules: BTreeMap<String, DependencyRule>, Narrowing::Named(DependencyRule::RULES);
    }
}

section! {
    /// The dependencies of one tool.
    #[derive(Eq)]
    pub struct DependencyRule {
        /// Tools that must succeed in the session before this tool is offered and may be called.
        pub requires: Vec<String>, Narrowing::Ignored;
        /// Tools that raise this tool's rank once they have succeeded.
        pub prefers: Vec<String>, Narrowing::Ignored;
    }
}

/// A number from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio(f64);

impl Ratio {
    pub(crate) const fn from_default(value: f64) -> Self {
        Self(value)
    }

    /// Returns the number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Range;

        impl Visitor<'_> for Range {
            type Value = Ratio;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 0 to 1")
            }

            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Ratio, E> {
                // `contains` refuses NaN, too, because NaN is in no range.
                if (0.0..=1.0).contains(&value) {
                    Ok(Ratio(value))
                } else {
                    Err(E::invalid_value(Unexpected::Float(value), &self))
                }
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Ratio, E> {
                match value {
                    0 => Ok(Ratio(0.0)),
                    1 => Ok(Ratio(1.0)),
                    _ => Err(E::invalid_value(Unexpected::Signed(value), &self)),
                }
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Ratio, E> {
                // A number that doesn't fit into `i64` is too large anyway, so `visit_i64` gets
                // `i64::MAX` instead, and refuses it.
                self.visit_i64(i64::try_from(value).unwrap_or(i64::MAX))
            }
        }

        deserializer.deserialize_f64(Range)
    }
}

inline_schema!(Ratio, "Ratio", json_schema!({ "type": "number", "minimum": 0, "maximum": 1 }));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_lies_between_0_and_1() {
        let read = |text: &str| {
            toml::from_str::<Dependencies>(&format!("max_total_boost = {text}"))
                .map(|read| read.max_total_boost.get())
        };
        for (text, expected) in [("0.5", 0.5), ("0", 0.0), ("1", 1.0), ("0.0", 0.0)] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        for text in ["1.01", "-0.1", "2", "-1", "nan", "inf", "\"0.5\""] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.contains("expected a number from 0 to 1"), "{error}");
        }
    }
}
