//! The files of an answer, as they are now.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use crate::table::File;
use crate::update::{self, Project};

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
        let bytes = update::begin_of(&project.absolute(&file.path)).ok();
        let same = bytes.filter(|bytes| update::content_of(bytes, file.size) == file.content);
        let text =
            same.map(|bytes| Rc::new(Text::new(String::from_utf8_lossy(&bytes).into_owned())));
        if text.is_none() {
            self.outdated.insert(file.path.clone());
        }
        self.read.insert(file.path.clone(), text.clone());
        text
    }
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
