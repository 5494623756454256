//! Parses HTML to a tree of bounded size and depth.
//!
//! By the parser's rules, some pages take quadratic time: tags that never close, ten thousand
//! attributes, formatting that restarts in every paragraph. So the number of elements is bounded,
//! and so is the time: the rest of the page is left out. Below the greatest depth, tags are left
//! out and their text is kept.

use std::borrow::Cow;
use std::cell::{Cell, Ref};
use std::time::{Duration, Instant};

use html5ever::buffer_queue::BufferQueue;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{
    Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use html5ever::tree_builder::{
    ElementFlags, NodeOrText, QuirksMode, TreeBuilder, TreeBuilderOpts, TreeSink,
};
use html5ever::{Attribute, QualName, TokenizerResult};
use scraper::{Html, HtmlTreeSink};

/// The handle of a node, which the parser's crate doesn't name.
type NodeId = <HtmlTreeSink as TreeSink>::Handle;

/// The greatest number of elements.
const MAX_ELEMENTS: usize = 150_000;

/// The depth at which tags are left out.
const MAX_DEPTH: usize = 256;

/// The number of bytes between two checks of the time.
const CHUNK: usize = 4 * 1024;

/// The time limit of parsing. A page of a megabyte takes a tenth of it.
const MAX_TIME: Duration = Duration::from_secs(3);

/// A page as a tree.
pub struct Dom {
    /// The tree.
    pub html: Html,
    /// Whether the page is longer than the tree.
    pub cut: bool,
}

impl Dom {
    /// Parses a whole page.
    pub fn parse(text: &str) -> Self {
        let options = TreeBuilderOpts {
            scripting_enabled: false,
            drop_doctype: true,
            ..TreeBuilderOpts::default()
        };
        let builder = TreeBuilder::new(Sink::new(), options);
        let tokenizer = Tokenizer::new(BoundedSink { builder }, TokenizerOpts::default());
        let queue = BufferQueue::default();
        let began = Instant::now();
        let mut rest = text;
        while !rest.is_empty() && began.elapsed() < MAX_TIME && !tokenizer.sink.is_full() {
            let (chunk, after) = rest.split_at(rest.floor_char_boundary(CHUNK.max(4)));
            rest = after;
            queue.push_back(StrTendril::from_slice(chunk));
            while !matches!(tokenizer.feed(&queue), TokenizerResult::Done) {}
        }
        let cut = !rest.is_empty() || tokenizer.sink.is_full();
        // Even a cut page gets a root.
        tokenizer.end();
        let sink = tokenizer.sink.builder.sink;
        Self { html: sink.inner.finish(), cut }
    }
}

/// Passes tokens to the tree up to its bounds.
struct BoundedSink {
    builder: TreeBuilder<NodeId, Sink>,
}

impl BoundedSink {
    fn is_full(&self) -> bool {
        self.builder.sink.elements.get() >= MAX_ELEMENTS
    }
}

impl TokenSink for BoundedSink {
    type Handle = NodeId;

    fn process_token(&self, token: Token, line_number: u64) -> TokenSinkResult<NodeId> {
        let left_out = match &token {
            Token::TagToken(tag) => {
                self.is_full() || (self.builder.sink.depth.get() >= MAX_DEPTH && nests(tag))
            }
            Token::EOFToken => false,
            _ => self.is_full(),
        };
        if left_out {
            TokenSinkResult::Continue
        } else {
            self.builder.process_token(token, line_number)
        }
    }

    fn end(&self) {
        self.builder.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.builder.adjusted_current_node_present_but_not_in_html_namespace()
    }
}

/// Whether a tag opens an element that can contain others. Elements with raw text don't count:
/// without their tags, their text would become text of the page.
fn nests(tag: &Tag) -> bool {
    const RAW: [&str; 8] =
        ["script", "style", "title", "textarea", "iframe", "noembed", "noframes", "xmp"];
    tag.kind == TagKind::StartTag && !RAW.contains(&&*tag.name)
}

/// The tree of the crate `scraper`, with the number of its elements and the current depth.
struct Sink {
    inner: HtmlTreeSink,
    elements: Cell<usize>,
    depth: Cell<usize>,
}

impl Sink {
    fn new() -> Self {
        Self {
            inner: HtmlTreeSink::new(Html::new_document()),
            elements: Cell::new(0),
            depth: Cell::new(0),
        }
    }

    /// Sets the depth for a node that goes into `parent`, plus `below` levels.
    fn at(&self, parent: &NodeId, below: usize) {
        let html = self.inner.0.borrow();
        let above =
            html.tree.get(*parent).map_or(0, |node| node.ancestors().take(4 * MAX_DEPTH).count());
        self.depth.set(above + below);
    }

    fn count(&self) {
        self.elements.set(self.elements.get() + 1);
    }
}

impl TreeSink for Sink {
    type Handle = NodeId;
    type Output = Html;
    type ElemName<'a> = Ref<'a, QualName>;

    fn finish(self) -> Html {
        self.inner.finish()
    }

    fn parse_error(&self, _message: Cow<'static, str>) {}

    fn get_document(&self) -> NodeId {
        self.inner.get_document()
    }

    fn elem_name<'a>(&'a self, target: &'a NodeId) -> Ref<'a, QualName> {
        self.inner.elem_name(target)
    }

    fn create_element(
        &self,
        name: QualName,
        attributes: Vec<Attribute>,
        flags: ElementFlags,
    ) -> NodeId {
        self.count();
        self.inner.create_element(name, attributes, flags)
    }

    fn create_comment(&self, text: StrTendril) -> NodeId {
        self.count();
        // The tree requires a comment, but its text isn't used.
        drop(text);
        self.inner.create_comment(StrTendril::new())
    }

    fn create_pi(&self, target: StrTendril, data: StrTendril) -> NodeId {
        self.count();
        self.inner.create_pi(target, data)
    }

    fn append(&self, parent: &NodeId, child: NodeOrText<NodeId>) {
        self.at(parent, usize::from(matches!(child, NodeOrText::AppendNode(_))));
        self.inner.append(parent, child);
    }

    fn append_based_on_parent_node(
        &self,
        element: &NodeId,
        previous: &NodeId,
        child: NodeOrText<NodeId>,
    ) {
        self.at(element, 1);
        self.inner.append_based_on_parent_node(element, previous, child);
    }

    fn append_doctype_to_document(&self, name: StrTendril, public: StrTendril, system: StrTendril) {
        self.inner.append_doctype_to_document(name, public, system);
    }

    fn pop(&self, node: &NodeId) {
        self.at(node, 0);
        self.depth.set(self.depth.get().saturating_sub(1));
    }

    fn get_template_contents(&self, target: &NodeId) -> NodeId {
        self.inner.get_template_contents(target)
    }

    fn same_node(&self, one: &NodeId, other: &NodeId) -> bool {
        self.inner.same_node(one, other)
    }

    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.inner.set_quirks_mode(mode);
    }

    fn append_before_sibling(&self, sibling: &NodeId, node: NodeOrText<NodeId>) {
        self.inner.append_before_sibling(sibling, node);
    }

    fn add_attrs_if_missing(&self, target: &NodeId, attributes: Vec<Attribute>) {
        self.inner.add_attrs_if_missing(target, attributes);
    }

    fn remove_from_parent(&self, target: &NodeId) {
        self.inner.remove_from_parent(target);
    }

    fn reparent_children(&self, node: &NodeId, parent: &NodeId) {
        self.inner.reparent_children(node, parent);
    }
}
