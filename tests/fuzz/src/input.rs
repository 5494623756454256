//! Makes the inputs of a target.

use std::fs;

use arbitrary::Unstructured;

use crate::random::Random;
use crate::{Target, folder, mutate};

/// Most random bytes that one input is made of.
const MAX_RANDOM: usize = 4096;

/// The inputs of a target.
pub(crate) struct Inputs<'t> {
    target: &'t Target<'t>,
    corpus: Vec<Vec<u8>>,
}

impl<'t> Inputs<'t> {
    pub(crate) fn new(target: &'t Target<'t>) -> Self {
        let folder = folder().join("corpus").join(target.name);
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        let read = |path| (target.read)(fs::read(path).expect("the corpus can be read"));
        let corpus: Vec<_> = paths.iter().map(read).collect();
        assert!(!corpus.is_empty(), "{folder:?} is empty");
        Self { target, corpus }
    }

    /// The input with this number: first the corpus as it is.
    pub(crate) fn get(&self, seed: u64, case: u64) -> Vec<u8> {
        let entry = usize::try_from(case).ok().and_then(|case| self.corpus.get(case));
        if let Some(entry) = entry {
            return entry.clone();
        }
        let mut random = Random::new(seed, case);
        let is_made = random.below(2) == 0;
        let mut input =
            if is_made { self.generated(&mut random) } else { random.one(&self.corpus).clone() };
        if !is_made || random.below(3) == 0 {
            let made = self.generated(&mut random);
            let other = if random.below(4) == 0 { &made } else { random.one(&self.corpus) };
            mutate::mutate(&mut input, other, self.target.tokens, &mut random);
        }
        input
    }

    fn generated(&self, random: &mut Random) -> Vec<u8> {
        let length = random.few(MAX_RANDOM);
        let bytes = random.bytes(length);
        (self.target.generate)(&mut Unstructured::new(&bytes)).unwrap_or_default()
    }
}
