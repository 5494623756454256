//! Removes secrets from answers of servers that know the secrets, even in an encoded or escaped
//! form.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use toolhold_policy::spelling::{REACH, Readings, is_escape};

/// A search for secrets in data from a server that knows them. Finds plain secrets, base64 at any
/// offset, and hexadecimal digits. Any character of these forms may be
/// [escaped](toolhold_policy::spelling).
#[derive(Debug)]
pub struct Echoes {
    /// A trie of the forms of all secrets. The first node is the root.
    nodes: Vec<Node>,
    /// For each byte, the child of the root, or 0 if no form starts with the byte.
    first: [usize; 256],
    /// One bit for each pair of bytes, set if a form starts with the pair.
    pairs: Vec<u64>,
    marks: Vec<String>,
    pub(super) secret_count: usize,
}

/// A node of the trie. `secret` is the index of the secret whose form ends here.
#[derive(Debug, Default)]
struct Node {
    next: Vec<(u8, usize)>,
    secret: Option<usize>,
}

const ROOT: usize = 0;

/// Minimum length of a form in bytes, because other text contains shorter forms by chance.
const MIN_FORM: usize = 6;

/// Maximum number of partial matches at one position. Further matches are dropped, which can only
/// happen if a secret repeats itself.
const MAX_PARTIAL: usize = 256;

const PIECE_BYTES: usize = 64 * 1024;

/// Pairs of bytes, and the bits of a word in [`Echoes::pairs`].
const PAIRS: usize = 256 * 256;
const WORD_BITS: usize = u64::BITS as usize;

impl Echoes {
    /// Creates a search for secrets from their names and values. Returns `None` if every secret is
    /// too short to be found.
    pub fn from_secrets<'s>(secrets: impl IntoIterator<Item = (&'s str, &'s str)>) -> Option<Self> {
        let mut echoes = Self {
            nodes: vec![Node::default()],
            first: [0; 256],
            pairs: vec![0; PAIRS / WORD_BITS],
            marks: Vec::new(),
            secret_count: 0,
        };
        for (name, secret) in secrets {
            echoes.secret_count += 1;
            echoes.marks.push(format!("[REDACTED:{name}]"));
            for form in forms(secret).into_iter().filter(|form| form.len() >= MIN_FORM) {
                echoes.add(&form);
            }
        }
        let has_forms = echoes.nodes.len() > 1;
        if has_forms { Some(echoes) } else { None }
    }

    /// Adds a form of the newest secret to the trie.
    fn add(&mut self, form: &[u8]) {
        let (word, bit) = pair_position(form[0], form[1]);
        self.pairs[word] |= 1 << bit;
        let mut node = ROOT;
        for byte in form {
            node = match self.step(node, *byte) {
                Some(child) => child,
                None => self.add_child(node, *byte),
            };
        }
        // A form that two secrets share belongs to the earlier secret.
        let newest_secret = self.secret_count - 1;
        self.nodes[node].secret.get_or_insert(newest_secret);
    }

    fn add_child(&mut self, node: usize, byte: u8) -> usize {
        let child = self.nodes.len();
        self.nodes.push(Node::default());
        if node == ROOT {
            self.first[usize::from(byte)] = child;
        } else {
            self.nodes[node].next.push((byte, child));
        }
        child
    }

    /// Follows several bytes from `node` in the trie. Returns the node at their end, or `None` if
    /// no form continues with these bytes.
    fn walk(&self, node: usize, bytes: &[u8]) -> Option<usize> {
        let mut reached = node;
        for byte in bytes {
            reached = self.step(reached, *byte)?;
        }
        Some(reached)
    }

    /// Follows one byte from `node` in the trie. Returns the child, or `None` if no form continues
    /// with this byte.
    fn step(&self, node: usize, byte: u8) -> Option<usize> {
        if node == ROOT {
            let child = self.first[usize::from(byte)];
            let has_child = child > 0;
            return if has_child { Some(child) } else { None };
        }
        let entry = self.nodes[node].next.iter().find(|(known, _)| *known == byte);
        entry.map(|(_, child)| *child)
    }

    /// Checks whether a form may start with two bytes. An escape may stand for any byte.
    fn may_start_form(&self, first: u8, second: u8) -> bool {
        if is_escape(first) {
            return true;
        }
        let starts_form = self.first[usize::from(first)] > 0;
        if !starts_form {
            return false;
        }
        if is_escape(second) {
            return true;
        }
        let (word, bit) = pair_position(first, second);
        self.pairs[word] >> bit & 1 == 1
    }

    /// Checks whether bytes contain a secret in any form.
    pub(super) fn contains(&self, bytes: &[u8]) -> bool {
        let mut redactor = EchoRedactor::default();
        for piece in bytes.chunks(PIECE_BYTES) {
            let is_last = false;
            redactor.scan(self, piece, is_last);
            if !redactor.matches.is_empty() {
                return true;
            }
            // The result needs only the matches.
            redactor.discard_scanned();
        }
        let is_last = true;
        redactor.scan(self, b"", is_last);
        !redactor.matches.is_empty()
    }

    /// Returns the bytes with marks in place of secrets, or `None` without a secret.
    pub fn redact(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut redactor = EchoRedactor::default();
        let mut out = Vec::new();
        for piece in bytes.chunks(PIECE_BYTES) {
            let is_last = false;
            out.extend(redactor.redact_piece(self, piece, is_last));
        }
        let is_last = true;
        out.extend(redactor.redact_piece(self, b"", is_last));
        if redactor.has_redacted { Some(out) } else { None }
    }
}

/// Returns the index of the word for a pair of bytes in [`Echoes::pairs`], and the number of its
/// bit.
fn pair_position(byte: u8, next: u8) -> (usize, usize) {
    let pair = usize::from(u16::from_be_bytes([byte, next]));
    (pair / WORD_BITS, pair % WORD_BITS)
}

#[derive(Debug, Default)]
pub(super) struct EchoRedactor {
    /// Bytes that were not returned yet. All positions are relative to the start of this buffer.
    buffer: Vec<u8>,
    scanned: usize,
    /// Partial matches that continue at `scanned`.
    partial: Vec<PartialMatch>,
    /// Partial matches that continue after an escape, by position.
    later: BTreeMap<usize, Vec<PartialMatch>>,
    matches: Vec<Match>,
    /// The buffer before this position was already returned, as it was or as a mark.
    replaced: usize,
    has_redacted: bool,
}

#[derive(Clone, Copy, Debug)]
struct PartialMatch {
    node: usize,
    start: usize,
}

#[derive(Clone, Copy, Debug)]
struct Match {
    start: usize,
    end: usize,
    secret: usize,
}

impl EchoRedactor {
    /// Adds a piece and returns the bytes that are ready. Bytes that may be the start of a secret
    /// are held back until the last piece.
    pub(super) fn redact_piece(&mut self, echoes: &Echoes, piece: &[u8], is_last: bool) -> Vec<u8> {
        self.scan(echoes, piece, is_last);

        // The bytes before `ready` belong to no partial match.
        let partial = self.partial.iter().chain(self.later.values().flatten());
        let first_partial = partial.map(|partial| partial.start).min();
        let ready = if is_last { self.buffer.len() } else { first_partial.unwrap_or(self.scanned) };
        // The longest of the matches with the same start comes first.
        self.matches.sort_unstable_by_key(|found| (found.start, std::cmp::Reverse(found.end)));
        let ready_matches = self.matches.partition_point(|found| found.start < ready);

        let mut out = Vec::with_capacity(ready);
        let mut returned = self.replaced;
        for found in self.matches.drain(..ready_matches) {
            if found.start >= returned {
                out.extend_from_slice(&self.buffer[returned..found.start]);
                out.extend_from_slice(echoes.marks[found.secret].as_bytes());
                self.has_redacted = true;
            }
            // A match that overlaps the previous match shares its mark.
            returned = returned.max(found.end);
        }
        if returned < ready {
            out.extend_from_slice(&self.buffer[returned..ready]);
            returned = ready;
        }
        self.replaced = returned;
        self.discard_to(returned.min(self.scanned));
        out
    }

    /// Adds a piece to the buffer, and searches it for matches. An incomplete escape at the end
    /// waits for the next piece.
    fn scan(&mut self, echoes: &Echoes, piece: &[u8], is_last: bool) {
        self.buffer.extend_from_slice(piece);
        let from = self.scanned;
        let ahead = &self.buffer[from..];
        let readings = if ahead.iter().any(|byte| is_escape(*byte)) {
            Readings::new(ahead)
        } else {
            Readings::default()
        };

        let mut partial = Vec::new();
        loop {
            // Most bytes start no form, so this loop skips them fast.
            if self.partial.is_empty() && self.later.is_empty() {
                let plain = self.buffer[self.scanned..]
                    .windows(2)
                    .take_while(|two| !echoes.may_start_form(two[0], two[1]));
                self.scanned += plain.count();
            }
            let Some(byte) = self.buffer.get(self.scanned).copied() else { break };
            let may_be_incomplete = self.scanned + REACH > self.buffer.len();
            if is_escape(byte) && may_be_incomplete && !is_last {
                break;
            }

            let position = self.scanned;
            self.scanned += 1;
            partial.clear();
            partial.append(&mut self.partial);
            if let Some(later) = self.later.remove(&self.scanned) {
                self.partial = later;
            }
            partial.push(PartialMatch { node: ROOT, start: position });
            self.advance(echoes, &partial, &[byte], position + 1);
            if is_escape(byte) {
                for reading in readings.at(position - from) {
                    self.advance(echoes, &partial, reading.bytes(), from + reading.end);
                }
            }
        }
        if is_last {
            self.partial.clear();
            self.later.clear();
        }
    }

    /// Advances partial matches by `bytes`, which end at the position `to`.
    fn advance(&mut self, echoes: &Echoes, partial: &[PartialMatch], bytes: &[u8], to: usize) {
        for PartialMatch { node, start } in partial {
            let Some(node) = echoes.walk(*node, bytes) else { continue };
            if let Some(secret) = echoes.nodes[node].secret {
                self.matches.push(Match { start: *start, end: to, secret });
            }
            let continued = if to == self.scanned {
                &mut self.partial
            } else {
                self.later.entry(to).or_default()
            };
            // Two matches at the same node differ only in their start, so the longer match is
            // enough.
            if let Some(known) = continued.iter_mut().find(|other| other.node == node) {
                known.start = known.start.min(*start);
            } else if continued.len() < MAX_PARTIAL {
                continued.push(PartialMatch { node, start: *start });
            }
        }
    }

    /// Checks whether the redactor holds bytes back.
    pub(super) fn holds_bytes(&self) -> bool {
        !self.buffer.is_empty()
    }

    fn discard_scanned(&mut self) {
        self.replaced = self.scanned;
        self.discard_to(self.scanned);
    }

    /// Removes the buffered bytes before a position, and moves all other positions back.
    fn discard_to(&mut self, position: usize) {
        self.buffer.drain(..position);
        self.scanned -= position;
        self.replaced = self.replaced.saturating_sub(position);
        if position > 0 {
            let later = std::mem::take(&mut self.later);
            self.later = later.into_iter().map(|(to, partial)| (to - position, partial)).collect();
        }
        // A match may start or end among the removed bytes, and then its position becomes 0.
        for partial in self.partial.iter_mut().chain(self.later.values_mut().flatten()) {
            partial.start = partial.start.saturating_sub(position);
        }
        for found in &mut self.matches {
            found.start = found.start.saturating_sub(position);
            found.end = found.end.saturating_sub(position);
        }
    }
}

/// Returns the base64 forms of a secret. Base64 encodes three bytes as four characters, so a secret
/// has one form for each offset in three bytes. The neighbours of the secret change its first and
/// last character, so the forms leave these characters out.
fn base64_forms(secret: &[u8]) -> Vec<String> {
    let group_bytes = 3;
    let byte_bits = 8;
    let character_bits = 6;
    let mut forms = Vec::new();
    for offset in 0..group_bytes {
        let mut padded = vec![0; offset];
        padded.extend_from_slice(secret);
        let start = (offset * byte_bits).div_ceil(character_bits);
        let end = padded.len() * byte_bits / character_bits;
        for engine in [&STANDARD, &URL_SAFE] {
            let encoded = engine.encode(&padded);
            forms.extend(encoded.get(start..end).map(str::to_owned));
        }
    }
    forms
}

/// Returns the forms in which an answer may repeat a secret.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    let bytes = secret.as_bytes();
    let mut forms = vec![
        secret.to_owned(),
        secret.to_ascii_lowercase(),
        secret.to_ascii_uppercase(),
        // The encoding of HTML forms.
        secret.replace(' ', "+"),
        bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        bytes.iter().map(|byte| format!("{byte:02X}")).collect(),
    ];
    // A secret may be base64, for example of a user name and a password. The decoded text is then
    // also secret.
    if let Some(decoded) = decoded_text(secret) {
        if let Some((_, password)) = decoded.split_once(':')
            && password.len() >= MIN_FORM
        {
            forms.push(password.to_owned());
        }
        forms.push(decoded);
    }
    forms.extend(base64_forms(bytes));
    let wide = [utf16(secret, u16::to_le_bytes), utf16(secret, u16::to_be_bytes)];
    forms.into_iter().map(String::into_bytes).chain(wide).collect()
}

fn decoded_text(secret: &str) -> Option<String> {
    let text = String::from_utf8(STANDARD.decode(secret).ok()?).ok()?;
    let is_printable = text.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    if is_printable && !text.is_empty() { Some(text) } else { None }
}

fn utf16(text: &str, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(order).collect()
}

#[cfg(test)]
mod tests;
