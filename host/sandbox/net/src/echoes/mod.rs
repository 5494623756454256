//! Removes secrets that a server sends back (echoes) from answers. Also finds encoded and escaped
//! secrets.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use toolhold_policy::spelling::{REACH, Readings, is_escape};

/// A search for secrets in data from a sender who knows them. Finds plain secrets, base64 at any
/// offset of the encoded text, and hexadecimal. Any character of these forms may be
/// [escaped](toolhold_policy::spelling).
#[derive(Debug)]
pub struct Echoes {
    /// A trie of the forms of all secrets. The first node is the root.
    nodes: Vec<Node>,
    /// For each byte, the child of the root. 0 if no form begins with the byte.
    first: [usize; 256],
    /// One bit for each pair of bytes, which is set if a form begins with the pair.
    pairs: Vec<u64>,
    /// The mark for each secret.
    marks: Vec<String>,
    /// The number of secrets.
    pub(super) secrets: usize,
}

/// A node of the trie: its children, and the index of the secret whose form ends here.
#[derive(Debug, Default)]
struct Node {
    next: Vec<(u8, usize)>,
    secret: Option<usize>,
}

/// The fewest bytes of a form. A shorter form would be found in other text by chance.
const MIN_FORM: usize = 6;

/// The most partial matches at one position. Only a secret that repeats itself has more than a few.
const MAX_PARTIAL: usize = 256;

/// Bytes that are scanned at a time.
const PIECE: usize = 64 * 1024;

impl Echoes {
    /// Makes a search for secrets, which are pairs of name and value. Returns `None` if no secret
    /// has a form that can be found.
    pub fn from_secrets<'s>(secrets: impl IntoIterator<Item = (&'s str, &'s str)>) -> Option<Self> {
        let mut echoes = Self {
            nodes: vec![Node::default()],
            first: [0; 256],
            pairs: vec![0; 1024],
            marks: Vec::new(),
            secrets: 0,
        };
        for (name, secret) in secrets {
            echoes.secrets += 1;
            echoes.marks.push(format!("[REDACTED:{name}]"));
            for form in forms(secret).into_iter().filter(|form| form.len() >= MIN_FORM) {
                echoes.add(&form);
            }
        }
        // A trie with only the root contains no form.
        if echoes.nodes.len() > 1 { Some(echoes) } else { None }
    }

    /// Adds a form of the latest secret.
    fn add(&mut self, form: &[u8]) {
        let (word, bit) = pair_position(form[0], form[1]);
        self.pairs[word] |= 1 << bit;
        let mut node = 0;
        for byte in form {
            node = match self.step(node, *byte) {
                Some(next) => next,
                None => {
                    let next = self.nodes.len();
                    self.nodes.push(Node::default());
                    match node {
                        0 => self.first[usize::from(*byte)] = next,
                        _ => self.nodes[node].next.push((*byte, next)),
                    }
                    next
                }
            };
        }
        self.nodes[node].secret.get_or_insert(self.secrets - 1);
    }

    /// Returns the child of a node for a byte.
    fn step(&self, node: usize, byte: u8) -> Option<usize> {
        if node == 0 {
            let next = self.first[usize::from(byte)];
            return if next > 0 { Some(next) } else { None };
        }
        let child = self.nodes[node].next.iter().find(|(known, _)| *known == byte);
        child.map(|(_, next)| *next)
    }

    /// Checks whether no form begins with the first of two bytes.
    fn begins_no_form(&self, byte: u8, next: u8) -> bool {
        if is_escape(byte) {
            return false;
        }
        if self.first[usize::from(byte)] == 0 {
            return true;
        }
        // The second byte of the form may be escaped.
        let (word, bit) = pair_position(byte, next);
        !is_escape(next) && self.pairs[word] >> bit & 1 == 0
    }

    /// Checks whether `bytes` contain one of the secrets.
    pub(super) fn contains(&self, bytes: &[u8]) -> bool {
        let mut redactor = EchoRedactor::default();
        for piece in bytes.chunks(PIECE) {
            redactor.scan(self, piece, false);
            if !redactor.matches.is_empty() {
                return true;
            }
            // Only the matches matter here, so the scanned bytes are dropped.
            redactor.discard_scanned();
        }
        redactor.scan(self, b"", true);
        !redactor.matches.is_empty()
    }

    /// Returns the bytes with marks in place of the secrets, or `None` if no secret was found.
    pub fn redact(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut redactor = EchoRedactor::default();
        let mut out = Vec::new();
        for piece in bytes.chunks(PIECE) {
            out.extend(redactor.redact_piece(self, piece, false));
        }
        out.extend(redactor.redact_piece(self, b"", true));
        if redactor.has_redacted { Some(out) } else { None }
    }
}

/// Returns the position of a pair of bytes in [`Echoes::pairs`]: the index of its 64-bit word, and
/// the number of its bit.
fn pair_position(byte: u8, next: u8) -> (usize, usize) {
    let pair = usize::from(byte) * 256 + usize::from(next);
    (pair / 64, pair % 64)
}

/// Redacts secrets in bytes that come in pieces.
#[derive(Debug, Default)]
pub(super) struct EchoRedactor {
    /// The bytes that were not returned yet. All positions are relative to the start of this
    /// buffer.
    buffer: Vec<u8>,
    /// The position up to which the buffer was scanned.
    scanned: usize,
    /// The partial matches that continue at `scanned`.
    partial: Vec<PartialMatch>,
    /// The partial matches that continue later, after an escape, by position.
    later: BTreeMap<usize, Vec<PartialMatch>>,
    /// The matches that were not returned yet.
    matches: Vec<Match>,
    /// The position up to which the buffer is already replaced by a returned mark.
    replaced: usize,
    /// Whether a secret was redacted.
    has_redacted: bool,
}

/// The first bytes of a form.
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
    /// Adds a piece and returns the bytes that are ready. Bytes that may be the beginning of a
    /// secret are held back, unless this is the last piece (`end`).
    pub(super) fn redact_piece(&mut self, echoes: &Echoes, piece: &[u8], end: bool) -> Vec<u8> {
        self.scan(echoes, piece, end);

        // The bytes up to here are in no partial match.
        let partial = self.partial.iter().chain(self.later.values().flatten());
        let first_partial = partial.map(|partial| partial.start).min();
        let ready = if end { self.buffer.len() } else { first_partial.unwrap_or(self.scanned) };
        // For matches with the same start, the longest comes first.
        self.matches.sort_unstable_by_key(|found| (found.start, std::cmp::Reverse(found.end)));
        let ready_matches = self.matches.partition_point(|found| found.start < ready);

        let mut out = Vec::with_capacity(ready);
        let mut done = self.replaced;
        for found in self.matches.drain(..ready_matches) {
            if found.start >= done {
                out.extend_from_slice(&self.buffer[done..found.start]);
                out.extend_from_slice(echoes.marks[found.secret].as_bytes());
                self.has_redacted = true;
            }
            // A match that overlaps the previous one shares its mark.
            done = done.max(found.end);
        }
        if done < ready {
            out.extend_from_slice(&self.buffer[done..ready]);
            done = ready;
        }
        self.replaced = done;
        self.discard_to(done.min(self.scanned));
        out
    }

    /// Adds a piece and scans it for matches. `end`: whether this is the last piece.
    fn scan(&mut self, echoes: &Echoes, piece: &[u8], end: bool) {
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
            // Most bytes begin no form and are skipped fast.
            if self.partial.is_empty() && self.later.is_empty() {
                let plain = self.buffer[self.scanned..]
                    .windows(2)
                    .take_while(|two| echoes.begins_no_form(two[0], two[1]));
                self.scanned += plain.count();
            }
            let Some(byte) = self.buffer.get(self.scanned).copied() else { break };
            // An escape can only be decoded when it is complete.
            if is_escape(byte) && !end && self.scanned + REACH > self.buffer.len() {
                break;
            }

            let position = self.scanned;
            self.scanned += 1;
            partial.clear();
            partial.append(&mut self.partial);
            if let Some(later) = self.later.remove(&self.scanned) {
                self.partial = later;
            }
            partial.push(PartialMatch { node: 0, start: position });
            self.advance(echoes, &partial, &[byte], position + 1);
            if is_escape(byte) {
                for reading in readings.at(position - from) {
                    self.advance(echoes, &partial, reading.bytes(), from + reading.end);
                }
            }
        }
        if end {
            self.partial.clear();
            self.later.clear();
        }
    }

    /// Advances partial matches by `bytes`, which end at the position `to`.
    fn advance(&mut self, echoes: &Echoes, partial: &[PartialMatch], bytes: &[u8], to: usize) {
        for PartialMatch { node, start } in partial {
            let Some(node) = bytes.iter().try_fold(*node, |node, byte| echoes.step(node, *byte))
            else {
                continue;
            };
            if let Some(secret) = echoes.nodes[node].secret {
                self.matches.push(Match { start: *start, end: to, secret });
            }
            let next = if to == self.scanned {
                &mut self.partial
            } else {
                self.later.entry(to).or_default()
            };
            match next.iter().position(|other| other.node == node) {
                Some(known) => next[known].start = next[known].start.min(*start),
                None if next.len() < MAX_PARTIAL => next.push(PartialMatch { node, start: *start }),
                None => {}
            }
        }
    }

    /// Drops the scanned bytes without returning them.
    fn discard_scanned(&mut self) {
        self.replaced = self.scanned;
        self.discard_to(self.scanned);
    }

    /// Removes the bytes before a position, and makes all positions relative to it.
    fn discard_to(&mut self, position: usize) {
        self.buffer.drain(..position);
        self.scanned -= position;
        self.replaced = self.replaced.saturating_sub(position);
        if position > 0 {
            self.later = std::mem::take(&mut self.later)
                .into_iter()
                .map(|(to, partial)| (to - position, partial))
                .collect();
        }
        for partial in self.partial.iter_mut().chain(self.later.values_mut().flatten()) {
            partial.start = partial.start.saturating_sub(position);
        }
        for found in &mut self.matches {
            found.start = found.start.saturating_sub(position);
            found.end = found.end.saturating_sub(position);
        }
    }
}

/// Returns the forms of one secret.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    let bytes = secret.as_bytes();
    let mut forms = vec![
        secret.to_owned(),
        secret.to_ascii_lowercase(),
        secret.to_ascii_uppercase(),
        // In the encoding of HTML forms.
        secret.replace(' ', "+"),
        bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        bytes.iter().map(|byte| format!("{byte:02X}")).collect(),
    ];
    // A secret can itself be base64, for example of a user name and a password. The decoded text is
    // then secret too.
    if let Some(decoded) = decoded_text(secret) {
        if let Some((_, password)) = decoded.split_once(':')
            && password.len() >= MIN_FORM
        {
            forms.push(password.to_owned());
        }
        forms.push(decoded);
    }
    // Base64 turns three bytes into four characters of six bits each. So a secret has three forms,
    // one for each offset within three bytes. The first and the last character also depend on the
    // adjacent bytes, so the forms omit these characters.
    for offset in 0..3 {
        let mut padded = vec![0; offset];
        padded.extend_from_slice(bytes);
        let start = (offset * 8).div_ceil(6);
        let end = padded.len() * 8 / 6;
        for engine in [&STANDARD, &URL_SAFE] {
            let encoded = engine.encode(&padded);
            forms.extend(encoded.get(start..end).map(str::to_owned));
        }
    }
    let wide = [utf16(secret, u16::to_le_bytes), utf16(secret, u16::to_be_bytes)];
    forms.into_iter().map(String::into_bytes).chain(wide).collect()
}

/// Decodes base64. Returns `None` if the result isn't printable text.
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
