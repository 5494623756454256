//! The arguments of an attack.

use serde_json::Value;

/// The arguments of an attack.
pub(crate) struct Arguments {
    pub(crate) path: String,
    pub(crate) to: String,
    pub(crate) text: String,
    pub(crate) count: u64,
}

impl From<Value> for Arguments {
    /// Reads the JSON object of a call. Missing arguments are empty.
    fn from(value: Value) -> Self {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        Self {
            path: text("path"),
            to: text("to"),
            text: text("text"),
            count: value["count"].as_u64().unwrap_or_default(),
        }
    }
}

impl Arguments {
    /// `count` as a size.
    pub(crate) fn size(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }
}
