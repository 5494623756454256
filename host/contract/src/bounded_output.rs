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
        let Self { beginning: mut output, mut end, left_out, truncated } = std::mem::take(self);
        self.truncated = truncated;
        if left_out > 0 {
            // Cut between characters on both sides.
            if let Some(back) = output.iter().rev().take(4).position(|byte| *byte >= 0xc0) {
                output.truncate(output.len() - 1 - back);
            }
            let mark = format!("\n[… {left_out} bytes are left out here …]\n");
            output.extend_from_slice(mark.as_bytes());
            let is_inside = |byte: &&u8| **byte & 0xc0 == 0x80;
            end.drain(..end.iter().take(3).take_while(is_inside).count());
        }
        // The halves are copied as a whole: byte by byte, megabytes take a part of a second.
        let (first, second) = end.as_slices();
        output.extend_from_slice(first);
        output.extend_from_slice(second);
        output
    }

    /// Whether there is no new output.
    pub fn is_empty(&self) -> bool {
        self.beginning.is_empty()
    }
}
