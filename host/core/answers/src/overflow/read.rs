//! The tool `read_overflow`, which reads an answer that was too long.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::json;
use toolhold_contract::{
    Annotations, BoxFuture, Call, Category, Definition, Failure, Outcome, Output, ToolSource,
};

use super::{OverflowId, OverflowStore};

pub(crate) const READ_OVERFLOW: &str = "read_overflow";

/// Maximum number of characters of the last line, which names the shown range.
const LAST_LINE: usize = 200;

/// Maximum number of bytes of an unknown ID in a message.
const MAX_SHOWN_ID: usize = 64;

/// Number of bytes that are counted at a time. The count fits into a `u8`, so the compiler can use
/// vector instructions.
const COUNTED_CHUNK: usize = 128;

/// Number of characters in an answer of the tool by default.
const DEFAULT_LIMIT: usize = 20_000;

const DESCRIPTION: &str = "Shows more of an answer that was too long. The cut answer names the id \
                           and the next offset.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    id: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

#[derive(Serialize)]
struct Page {
    start: u64,
    end: u64,
    total: u64,
}

/// The source of the tool `read_overflow`.
pub struct OverflowReader {
    store: Arc<OverflowStore>,
    /// Maximum number of characters of an answer.
    threshold: usize,
    tool: Arc<Definition>,
}

impl OverflowReader {
    /// Creates the tool. `threshold` is the maximum number of characters of an answer.
    pub fn new(store: Arc<OverflowStore>, threshold: usize) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "id": { "type": "string" },
                "offset": { "type": "integer", "minimum": 0, "description": "First character, from 0." },
                "limit": { "type": "integer", "minimum": 1, "description": "Characters. Default: 20000." },
            },
            "required": ["id"],
            "additionalProperties": false,
        });
        let annotations = Annotations {
            read_only: true,
            destructive: false,
            idempotent: true,
            open_world: false,
            cacheable: false,
        };
        let title = Some("Read the rest of a long answer".to_owned());
        let tool = Arc::new(Definition {
            title,
            annotations,
            ..Definition::new(READ_OVERFLOW, DESCRIPTION, schema)
        });
        Self { store, threshold, tool }
    }

    fn read(&self, call: &Call) -> Outcome {
        let arguments = Arguments::deserialize(&*call.arguments)
            .map_err(|error| Failure::new(Category::InvalidParameters, error.to_string()))?;
        let id = OverflowId::parse(&arguments.id).ok_or_else(|| unknown_id(&arguments.id))?;
        let offset = arguments.offset.map_or(0, saturating);
        // An answer of this tool is never cut, so the limit leaves room for the last line.
        let max_limit = self.threshold.saturating_sub(LAST_LINE).max(1);
        let limit = arguments.limit.map_or(DEFAULT_LIMIT, saturating).min(max_limit);

        let (mut answer, total) = match self.store.read(&call.session, &id, offset, limit) {
            Ok(characters) => characters,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(unknown_id(&arguments.id));
            }
            Err(error) => {
                let message = format!("reading the stored answer failed: {error}");
                return Err(Failure::new(Category::PermanentFailure, message).with_code("host"));
            }
        };
        let end = offset.saturating_add(limit).min(total);
        if !answer.is_empty() && !answer.ends_with('\n') {
            answer.push('\n');
        }
        answer.push_str(&last_line(offset, end, total));
        let page = Page { start: offset.min(total) as u64, end: end as u64, total: total as u64 };
        Ok(Output { structured: serde_json::to_value(page).ok(), ..Output::text(answer) })
    }
}

/// Returns the line after the characters from `offset` to `end`.
fn last_line(offset: usize, end: usize, total: usize) -> String {
    if offset >= total {
        format!("[There is no character {offset}: the answer has {total} characters.]\n")
    } else if end == total {
        format!("[Characters {offset}-{end} of {total}. This is the end.]\n")
    } else {
        format!("[Characters {offset}-{end} of {total}. Continue with offset {end}.]\n")
    }
}

fn unknown_id(id: &str) -> Failure {
    let message = format!(
        "no stored answer of this session has the id {:?}",
        toolhold_contract::text::cut(id, MAX_SHOWN_ID)
    );
    Failure::new(Category::PermanentFailure, message).with_code("not-found").with_suggestion(
        "Call the tool again: stored answers are removed after some days, or when too many answers \
         are stored.",
    )
}

fn saturating(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Returns the byte offset of a character, or the length of a shorter text.
pub(crate) fn byte_offset(text: &str, character: usize) -> usize {
    // Skips whole chunks before the character. The rest is searched byte by byte.
    let mut offset = 0;
    let mut characters_left = character;
    for chunk in text.as_bytes().chunks_exact(COUNTED_CHUNK) {
        let count = chunk.iter().fold(0, |count, byte| count + u8::from(is_first_byte(*byte)));
        if usize::from(count) > characters_left {
            break;
        }
        characters_left -= usize::from(count);
        offset += chunk.len();
    }
    for (index, byte) in text.as_bytes()[offset..].iter().enumerate() {
        if !is_first_byte(*byte) {
            continue;
        }
        if characters_left == 0 {
            return offset + index;
        }
        characters_left -= 1;
    }
    text.len()
}

pub(super) fn is_first_byte(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}

impl ToolSource for OverflowReader {
    fn name(&self) -> &str {
        "overflow"
    }

    fn tools(&self) -> Vec<Arc<Definition>> {
        vec![Arc::clone(&self.tool)]
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Outcome> {
        let reader = Self {
            store: Arc::clone(&self.store),
            threshold: self.threshold,
            tool: Arc::clone(&self.tool),
        };
        Box::pin(crate::blocking::blocking(move || reader.read(&call)))
    }
}
