//! Secrets that come back: taken out of answers, however servers spell what they were sent.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use berth_policy::spelling::{REACH, Readings, is_escape};

/// Finds the secrets of one plugin: each as it is, in base64 wherever it stands in what was
/// encoded, and in hexadecimal; and all of these with any of their characters
/// [escaped](berth_policy::spelling).
#[derive(Debug)]
pub(super) struct Echoes {
    /// The forms of all secrets, byte by byte; the first one is before any byte.
    nodes: Vec<Node>,
    /// Behind a byte, the node of the forms that begin with it; 0: none does.
    first: [usize; 256],
    /// Whether a form begins with two bytes: a bit for each pair.
    pairs: Vec<u64>,
    /// What stands for each secret.
    marks: Vec<String>,
    /// How many secrets they are.
    pub(super) secrets: usize,
}

/// What a form may go on with, and the secret that it is where it ends here.
#[derive(Debug, Default)]
struct Node {
    next: Vec<(u8, usize)>,
    secret: Option<usize>,
}

/// Bytes of a secret's form that are enough to tell it from other text.
const LEAST: usize = 6;

/// Forms that may go on at one place at a time. Only of a secret that repeats itself there are more
/// than a few.
const MOST: usize = 256;

/// Bytes that are looked at at a time.
const PIECE: usize = 64 * 1024;

impl Echoes {
    /// Of secrets, each by its name.
    pub(super) fn from_secrets<'s>(
        secrets: impl IntoIterator<Item = (&'s str, &'s str)>,
    ) -> Option<Self> {
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
            for form in forms(secret).into_iter().filter(|form| form.len() >= LEAST) {
                echoes.add(&form);
            }
        }
        (echoes.nodes.len() > 1).then_some(echoes)
    }

    /// Adds a form of the latest secret.
    fn add(&mut self, form: &[u8]) {
        let pair = usize::from(form[0]) << 8 | usize::from(form[1]);
        self.pairs[pair >> 6] |= 1 << (pair & 63);
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

    fn step(&self, node: usize, byte: u8) -> Option<usize> {
        if node == 0 {
            return Some(self.first[usize::from(byte)]).filter(|next| *next > 0);
        }
        self.nodes[node].next.iter().find(|(known, _)| *known == byte).map(|(_, next)| *next)
    }

    /// Whether nothing can begin with the first of two bytes that stand as they are.
    fn begins_nothing(&self, byte: u8, next: u8) -> bool {
        let pair = usize::from(byte) << 8 | usize::from(next);
        !is_escape(byte)
            && (self.first[usize::from(byte)] == 0
                || !is_escape(next) && self.pairs[pair >> 6] >> (pair & 63) & 1 == 0)
    }

    /// Whether one of them is in there.
    pub(super) fn is_in(&self, bytes: &[u8]) -> bool {
        let mut pieces = Pieces::default();
        let found = bytes.chunks(PIECE).any(|piece| {
            pieces.look(self, piece, false);
            // What was looked at is not needed any more.
            pieces.forget();
            !pieces.found.is_empty()
        });
        found || {
            pieces.look(self, b"", true);
            !pieces.found.is_empty()
        }
    }

    /// `bytes` without them. None where nothing was found.
    pub(super) fn without(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut pieces = Pieces::default();
        let mut out = Vec::new();
        for piece in bytes.chunks(PIECE) {
            out.extend(pieces.next(self, piece, false));
        }
        out.extend(pieces.next(self, b"", true));
        pieces.any.then_some(out)
    }
}

/// Takes secrets out of something that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// What has not gone out. All places are counted from its beginning.
    kept: Vec<u8>,
    /// Up to where it was looked at.
    looked: usize,
    /// What may become a secret and goes on at `looked`.
    begun: Vec<PartialMatch>,
    /// What goes on behind that, by the place: behind an escape.
    later: BTreeMap<usize, Vec<PartialMatch>>,
    /// What became one, and has not gone out.
    found: Vec<Match>,
    /// Up to where a mark that went out stands for it.
    marked: usize,
    /// Whether any was found.
    any: bool,
}

/// A form of which some bytes were there.
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

impl Pieces {
    /// What of all that has come can go out: everything but what may be the beginning of a secret,
    /// unless there is no more (`end`).
    pub(super) fn next(&mut self, echoes: &Echoes, piece: &[u8], end: bool) -> Vec<u8> {
        self.look(echoes, piece, end);
        let first =
            self.begun.iter().chain(self.later.values().flatten()).map(|begun| begun.start).min();
        let sure = if end { self.kept.len() } else { first.unwrap_or(self.looked) };
        // Of those that begin at one place, the longest.
        self.found.sort_unstable_by_key(|found| (found.start, std::cmp::Reverse(found.end)));
        let ready = self.found.partition_point(|found| found.start < sure);
        let mut out = Vec::with_capacity(sure);
        let mut done = self.marked;
        for found in self.found.drain(..ready) {
            if found.start >= done {
                out.extend_from_slice(&self.kept[done..found.start]);
                out.extend_from_slice(echoes.marks[found.secret].as_bytes());
                self.any = true;
            }
            // One that overlaps with the one before has its mark.
            done = done.max(found.end);
        }
        if done < sure {
            out.extend_from_slice(&self.kept[done..sure]);
            done = sure;
        }
        self.marked = done;
        self.forget_to(done.min(self.looked));
        out
    }

    /// Looks at what has come.
    fn look(&mut self, echoes: &Echoes, piece: &[u8], end: bool) {
        self.kept.extend_from_slice(piece);
        let from = self.looked;
        let ahead = &self.kept[from..];
        let readings = if ahead.iter().any(|byte| is_escape(*byte)) {
            Readings::new(ahead)
        } else {
            Readings::default()
        };
        let mut begun = Vec::new();
        loop {
            if self.begun.is_empty() && self.later.is_empty() {
                let plain = self.kept[self.looked..]
                    .windows(2)
                    .take_while(|two| echoes.begins_nothing(two[0], two[1]));
                self.looked += plain.count();
            }
            let Some(byte) = self.kept.get(self.looked).copied() else { break };
            // What an escape stands for is told when all of it is there.
            if is_escape(byte) && !end && self.looked + REACH > self.kept.len() {
                break;
            }
            let place = self.looked;
            self.looked += 1;
            begun.clear();
            begun.append(&mut self.begun);
            if let Some(later) = self.later.remove(&self.looked) {
                self.begun = later;
            }
            begun.push(PartialMatch { node: 0, start: place });
            self.go_on(echoes, &begun, &[byte], place + 1);
            if is_escape(byte) {
                for reading in readings.at(place - from) {
                    self.go_on(echoes, &begun, reading.bytes(), from + reading.end);
                }
            }
        }
        if end {
            self.begun.clear();
            self.later.clear();
        }
    }

    /// Goes on with what was begun by `bytes`, up to a place.
    fn go_on(&mut self, echoes: &Echoes, begun: &[PartialMatch], bytes: &[u8], to: usize) {
        for PartialMatch { node, start } in begun {
            let Some(node) = bytes.iter().try_fold(*node, |node, byte| echoes.step(node, *byte))
            else {
                continue;
            };
            if let Some(secret) = echoes.nodes[node].secret {
                self.found.push(Match { start: *start, end: to, secret });
            }
            let there =
                if to == self.looked { &mut self.begun } else { self.later.entry(to).or_default() };
            match there.iter().position(|other| other.node == node) {
                Some(known) => there[known].start = there[known].start.min(*start),
                None if there.len() < MOST => there.push(PartialMatch { node, start: *start }),
                None => {}
            }
        }
    }

    /// Forgets what was looked at.
    fn forget(&mut self) {
        self.marked = self.looked;
        self.forget_to(self.looked);
    }

    fn forget_to(&mut self, place: usize) {
        self.kept.drain(..place);
        self.looked -= place;
        self.marked = self.marked.saturating_sub(place);
        if place > 0 {
            self.later = std::mem::take(&mut self.later)
                .into_iter()
                .map(|(to, begun)| (to - place, begun))
                .collect();
        }
        for begun in self.begun.iter_mut().chain(self.later.values_mut().flatten()) {
            begun.start = begun.start.saturating_sub(place);
        }
        for found in &mut self.found {
            (found.start, found.end) =
                (found.start.saturating_sub(place), found.end.saturating_sub(place));
        }
    }
}

/// The forms of one secret.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    let bytes = secret.as_bytes();
    let mut forms = vec![
        secret.to_owned(),
        secret.to_ascii_lowercase(),
        secret.to_ascii_uppercase(),
        // As forms write it.
        secret.replace(' ', "+"),
        bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        bytes.iter().map(|byte| format!("{byte:02X}")).collect(),
    ];
    // What is base64 itself says something by what it stands for: a name and a password.
    let decoded = STANDARD.decode(secret).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    if let Some(decoded) = decoded
        .filter(|text| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() || c == ' '))
    {
        forms.extend(
            decoded
                .split_once(':')
                .map(|(_, password)| password.to_owned())
                .filter(|password| password.len() >= LEAST),
        );
        forms.push(decoded);
    }
    // In base64, three bytes are four characters: where a secret stands behind one or two others,
    // other characters come out, of which the first and the last depend on its neighbours.
    for before in 0..3 {
        let mut padded = vec![0; before];
        padded.extend_from_slice(bytes);
        let (skipped, whole) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for engine in [&STANDARD, &URL_SAFE] {
            let encoded = engine.encode(&padded);
            forms.extend(encoded.get(skipped..whole).map(str::to_owned));
        }
    }
    let wide =
        |order: fn(u16) -> [u8; 2]| secret.encode_utf16().flat_map(order).collect::<Vec<u8>>();
    let wide = [wide(u16::to_le_bytes), wide(u16::to_be_bytes)];
    forms.into_iter().map(String::into_bytes).chain(wide).collect()
}

#[cfg(test)]
mod tests;
