//! Gets the vectors for ranking tools from a model, and caches the vectors of tools.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use toolhold_data_dir::PrivateFolder;
use toolhold_models::choice::ChosenModel;

/// The time limit for all vectors of a catalogue. On a busy machine, even a small model needs long
/// for its first request.
const TIME: Duration = Duration::from_secs(60);

/// Most bytes of a cache file. Further vectors aren't cached.
const MAX_FILE: usize = 64 * 1024 * 1024;

/// The most cache files, one for each model. All files are removed before the limit is exceeded.
const MAX_FILES: usize = 8;

/// The bytes of a number in a vector.
const NUMBER_BYTES: usize = size_of::<f32>();

/// The bytes of a SHA-256 digest.
const KEY_BYTES: usize = 32;

/// The SHA-256 digest of a tool's text.
type Key = [u8; KEY_BYTES];

#[derive(Clone, Debug)]
pub(crate) struct Embedder {
    model: ChosenModel,
    folder: PathBuf,
}

impl Embedder {
    /// Makes an embedder that keeps vectors in Toolhold's cache folder `cache`.
    pub(crate) fn new(model: ChosenModel, cache: &Path) -> Self {
        Self { model, folder: cache.join("vectors") }
    }

    pub(crate) fn name(&self) -> String {
        self.model.full_name()
    }

    /// Returns the vectors of the tools' texts, and the vector of `text`. Only the vectors of tools
    /// are cached.
    pub(crate) async fn vectors(
        &self,
        tools: Vec<String>,
        text: &str,
    ) -> Result<(Vec<Vec<f32>>, Vec<f32>), String> {
        // An unreadable cache counts as empty.
        let keys: Vec<Key> = tools.iter().map(|text| Sha256::digest(text).into()).collect();
        let folder = self.folder.clone();
        let file = self.file();
        let wanted = keys.clone();
        let loading = tokio::task::spawn_blocking(move || load(&folder, &file, &wanted));
        let mut known = loading.await.unwrap_or_default();

        let mut missing: Vec<usize> =
            (0..keys.len()).filter(|index| !known.contains_key(&keys[*index])).collect();
        let mut texts = vec![text.to_owned()];
        texts.extend(missing.iter().map(|index| tools[*index].clone()));
        let mut vectors = self.embed(&texts).await?;
        let text_vector = vectors.remove(0);
        if known.values().any(|vector| vector.len() != text_vector.len()) {
            // The cache belongs to an earlier model with the same name, so make all vectors anew.
            known.clear();
            missing = (0..keys.len()).collect();
            vectors = self.embed(&tools).await?;
        }
        for (index, vector) in missing.iter().zip(vectors) {
            known.insert(keys[*index], vector);
        }

        if !missing.is_empty() {
            let folder = self.folder.clone();
            let file = self.file();
            let saved = encode(&keys, &known);
            // The cache is optional, so ignore errors.
            let _ = tokio::task::spawn_blocking(move || save(&folder, &file, &saved)).await;
        }
        let vectors = keys.iter().map(|key| known.get(key).cloned().unwrap_or_default());
        Ok((vectors.collect(), text_vector))
    }

    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, String> {
        self.model.embed(texts, TIME).await.map_err(|error| error.to_string())
    }

    /// Returns the name of the model's cache file. The name depends on the URL, because two servers
    /// may have different models with the same name.
    fn file(&self) -> String {
        let place = self.model.endpoint().base_url();
        let digest = Sha256::digest(format!("{place}\n{}", self.model.model()));
        digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Loads the wanted vectors, or no vectors if the file is unreadable.
fn load(folder: &Path, file: &str, wanted: &[Key]) -> HashMap<Key, Vec<f32>> {
    let mut bytes = Vec::new();
    let read = PrivateFolder::open(folder)
        .and_then(|folder| folder.file(file))
        .and_then(|file| file.take(MAX_FILE as u64).read_to_end(&mut bytes));
    match read {
        Ok(_) => decode(&bytes, wanted),
        Err(_) => HashMap::new(),
    }
}

/// Writes the cache file `file`. A new file that exceeds the limit replaces all others.
fn save(folder: &Path, file: &str, bytes: &[u8]) -> std::io::Result<()> {
    let folder = PrivateFolder::make(folder)?;
    // The limit bounds the work if the folder contains files of other programs.
    let names = folder.names(2 * MAX_FILES)?;
    if names.len() >= MAX_FILES && !names.iter().any(|name| name == file) {
        for name in names {
            folder.remove(&name)?;
        }
    }
    folder.put_lightly(file, bytes)
}

/// Encodes vectors in the format of [`decode`]. Vectors above [`MAX_FILE`] bytes are left out.
fn encode(keys: &[Key], known: &HashMap<Key, Vec<f32>>) -> Vec<u8> {
    let vector_length = known.values().next().map_or(0, Vec::len);
    let mut bytes = (vector_length as u32).to_le_bytes().to_vec();
    for key in keys {
        let Some(vector) = known.get(key) else { continue };
        if bytes.len() + key.len() + NUMBER_BYTES * vector.len() > MAX_FILE {
            break;
        }
        bytes.extend(key);
        bytes.extend(vector.iter().flat_map(|number| number.to_le_bytes()));
    }
    bytes
}

/// Decodes the wanted vectors of a file: the length of a vector in 4 bytes, and then the digest and
/// the numbers of each vector.
fn decode(bytes: &[u8], wanted: &[Key]) -> HashMap<Key, Vec<f32>> {
    let mut known = HashMap::new();
    let Some((vector_length, entries)) = bytes.split_first_chunk::<4>() else { return known };
    let vector_length = u32::from_le_bytes(*vector_length) as usize;
    // In a damaged file, the length may be 0.
    let vector_bytes = vector_length.saturating_mul(NUMBER_BYTES).max(1);
    for entry in entries.chunks_exact(vector_bytes.saturating_add(KEY_BYTES)) {
        let Some((key, vector)) = entry.split_first_chunk::<KEY_BYTES>() else { break };
        if wanted.contains(key) {
            let (chunks, _) = vector.as_chunks::<NUMBER_BYTES>();
            let numbers = chunks.iter().map(|bytes| f32::from_le_bytes(*bytes));
            known.insert(*key, numbers.collect());
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vectors_are_kept() {
        let keys = [[1; 32], [2; 32], [3; 32]];
        let known = HashMap::from([([1; 32], vec![1.0, -2.5]), ([3; 32], vec![0.0, 4.0])]);
        let bytes = encode(&keys, &known);
        assert_eq!(decode(&bytes, &keys), known);
        assert_eq!(decode(&bytes, &keys[..2]).len(), 1);
        // A file that was cut has those that are whole.
        assert_eq!(decode(&bytes[..bytes.len() - 1], &keys).len(), 1);
    }

    proptest! {
        #[test]
        fn any_file_is_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let known = decode(&bytes, &[[0; 32]]);
            prop_assert!(known.values().all(|vector| 4 * vector.len() <= bytes.len()));
        }
    }
}
