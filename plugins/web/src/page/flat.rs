//! Lists the elements of a page in their order: an element, then its content. So every figure about
//! an element is a sum over a range.

use ego_tree::iter::Edge;
use scraper::node::Element;
use scraper::{Html, Node};

/// A page's elements and texts, in order.
pub(super) struct Flat<'a> {
    pub(super) items: Vec<Item<'a>>,
}

/// An element or a text.
pub(super) struct Item<'a> {
    pub(super) what: What<'a>,
    /// The index of the parent element. The first item is its own parent.
    pub(super) parent: usize,
    /// The index after its content.
    pub(super) end: usize,
}

#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    Element(&'a Element),
    Text(&'a str),
}

impl<'a> Flat<'a> {
    pub(super) fn new(html: &'a Html) -> Self {
        let mut items: Vec<Item<'a>> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        // The root of the tree isn't an element. Nothing outside the first element is visible.
        let root = html.root_element();
        for edge in root.traverse() {
            match edge {
                Edge::Open(node) => {
                    let what = match node.value() {
                        Node::Element(element) => What::Element(element),
                        Node::Text(value) => What::Text(&value.text),
                        _ => continue,
                    };
                    let index = items.len();
                    items.push(Item {
                        what,
                        parent: open.last().copied().unwrap_or(0),
                        end: index + 1,
                    });
                    if matches!(what, What::Element(_)) {
                        open.push(index);
                    }
                }
                Edge::Close(node) => {
                    if node.value().is_element()
                        && let Some(index) = open.pop()
                    {
                        items[index].end = items.len();
                    }
                }
            }
        }
        Self { items }
    }

    pub(super) fn element(&self, index: usize) -> Option<&'a Element> {
        match self.items[index].what {
            What::Element(element) => Some(element),
            What::Text(_) => None,
        }
    }

    /// The element's name. Empty for a text.
    pub(super) fn name(&self, index: usize) -> &'a str {
        self.element(index).map_or("", Element::name)
    }

    pub(super) fn attribute(&self, index: usize, name: &str) -> Option<&'a str> {
        self.element(index)?.attr(name)
    }

    /// The children of an element.
    pub(super) fn children(&self, index: usize) -> impl Iterator<Item = usize> {
        let end = self.items[index].end;
        let mut next = index + 1;
        std::iter::from_fn(move || {
            let child = (next < end).then_some(next)?;
            next = self.items[child].end;
            Some(child)
        })
    }

    /// An item and everything below it, in order, without the items in `gone` and their content.
    pub(super) fn without_gone(&self, index: usize, gone: &[bool]) -> impl Iterator<Item = usize> {
        let end = self.items[index].end;
        let mut at = index;
        std::iter::from_fn(move || {
            while at < end && gone[at] {
                at = self.items[at].end;
            }
            let found = (at < end).then_some(at);
            at += 1;
            found
        })
    }

    /// The elements that contain an item, the nearest first.
    pub(super) fn around(&self, index: usize) -> impl Iterator<Item = usize> {
        let mut at = index;
        std::iter::from_fn(move || {
            let parent = self.items[at].parent;
            (parent != at).then(|| {
                at = parent;
                parent
            })
        })
    }

    /// The first element with this name in a range.
    pub(super) fn find(&self, within: std::ops::Range<usize>, name: &str) -> Option<usize> {
        within.into_iter().find(|&index| self.name(index) == name)
    }

    /// All text in an element, in one piece.
    pub(super) fn text(&self, index: usize) -> String {
        let mut all = String::new();
        for item in &self.items[index..self.items[index].end] {
            if let What::Text(text) = item.what {
                all.push_str(text);
            }
        }
        all
    }
}
