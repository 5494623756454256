//! Reads files of hits as they are now, and drops hits in a file that changed since it was indexed.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Read;
use std::rc::Rc;

use crate::hash::hash;
use crate::indexed_project::Project;
use crate::table::File;

/// Bytes of a file that are read: a larger one is known by the words of its begin.
pub(crate) const MAX_FILE: usize = 1 << 20;

/// Reads the files of hits. A hit in a file that changed since it was indexed doesn't count, so no
/// answer shows an old line, nor a line of a file that may no longer be read.
#[derive(Debug, Default)]
pub(crate) struct Files {
    read: HashMap<String, Option<Rc<Text>>>,
    /// Files whose content isn't the indexed one.
    pub(crate) outdated: BTreeSet<String>,
}

/// The text of a file.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) content: String,
    /// The lines begin at these bytes.
    begins: Vec<usize>,
}

impl Text {
    pub(crate) fn new(content: String) -> Self {
        let mut begins = vec![0];
        begins.extend(memchr::memchr_iter(b'\n', content.as_bytes()).map(|end| end + 1));
        Self { content, begins }
    }

    /// A line, from 1, without its end.
    pub(crate) fn line(&self, number: u32) -> Option<&str> {
        let place = (number as usize).checked_sub(1)?;
        let begin = *self.begins.get(place)?;
        let end = self.begins.get(place + 1).map_or(self.content.len(), |next| next - 1);
        Some(self.content[begin..end].trim_end_matches('\r'))
    }
}

impl Files {
    /// The text of an indexed file. `None`: it isn't the indexed one, or can't be read.
    pub(crate) fn text(&mut self, project: &Project, file: &File) -> Option<Rc<Text>> {
        if let Some(known) = self.read.get(&file.path) {
            return known.clone();
        }
        let bytes = begin_of(&project.absolute(&file.path)).ok();
        let same = bytes.filter(|bytes| content_of(bytes, file.size) == file.content);
        let text =
            same.map(|bytes| Rc::new(Text::new(String::from_utf8_lossy(&bytes).into_owned())));
        if text.is_none() {
            self.outdated.insert(file.path.clone());
        }
        self.read.insert(file.path.clone(), text.clone());
        text
    }
}

/// The first [`MAX_FILE`] bytes of a file.
///
/// # Errors
///
/// The errors of opening and reading the file.
pub(crate) fn begin_of(path: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The hash of a file's content, of which `bytes` are the first.
pub(crate) fn content_of(bytes: &[u8], size: u64) -> u64 {
    if bytes.len() < MAX_FILE { hash(bytes) } else { hash(bytes) ^ size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_numbers() {
        let text = Text::new("one\r\ntwo\n\nfour".to_owned());
        assert_eq!(
            (text.line(1), text.line(2), text.line(3)),
            (Some("one"), Some("two"), Some(""))
        );
        assert_eq!((text.line(4), text.line(5), text.line(0)), (Some("four"), None, None));
    }
}
