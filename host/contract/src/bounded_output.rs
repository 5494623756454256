//! Output of a program, of which a limited part is kept.

use std::collections::VecDeque;

/// Room for the notice of what is left out.
const MARK: usize = 64;

/// The new output of one stream. If it is too much, its beginning and its end, where programs
/// report errors.
#[derive(Debug, Default)]
pub struct BoundedOutput {
    beginning: Vec<u8>,
    end: VecDeque<u8>,
    /// Bytes between the two that were dropped.
    left_out: u64,
    /// Whether more was written than kept.
    pub truncated: bool,
}

impl BoundedOutput {
    /// Adds output. At most `limit` bytes are kept.
    pub fn push(&mut self, bytes: &[u8], limit: usize) {
        let (beginning, rest) =
            bytes.split_at((limit / 4).saturating_sub(self.beginning.len()).min(bytes.len()));
        self.beginning.extend_from_slice(beginning);
        let room = (limit - limit / 4).saturating_sub(MARK);
        self.end.extend(&rest[rest.len().saturating_sub(room)..]);
        let too_much = self.end.len().saturating_sub(room);
        self.end.drain(..too_much);
        let left_out = rest.len().saturating_sub(room) + too_much;
        self.left_out += u64::try_from(left_out).unwrap_or(u64::MAX);
        self.truncated |= left_out > 0;
    }

    /// Takes the new output. A notice marks what is left out in the middle.
    pub fn take(&mut self) -> Vec<u8> {
        let Self { mut beginning, end, left_out, truncated } = std::mem::take(self);
        self.truncated = truncated;
        if left_out == 0 {
            beginning.extend(end);
            return beginning;
        }
        // Cut between characters on both sides.
        if let Some(back) = beginning.iter().rev().take(4).position(|byte| *byte >= 0xc0) {
            beginning.truncate(beginning.len() - 1 - back);
        }
        beginning
            .extend_from_slice(format!("\n[… {left_out} bytes are left out here …]\n").as_bytes());
        beginning.extend(end.into_iter().skip_while(|byte| byte & 0xc0 == 0x80));
        beginning
    }

    /// Whether there is no new output.
    pub fn is_empty(&self) -> bool {
        self.beginning.is_empty()
    }
}
