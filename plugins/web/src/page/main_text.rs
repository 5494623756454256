//! Finds the main text of a page.
//!
//! There are three steps, each a pass over the list of the page's items.
//!
//! 1. Invisible elements, elements without text, and noise by name are removed.
//! 2. Text in paragraphs has a *mass*. The main part is the smallest element with most of the mass.
//!    This keeps a whole article, and all answers of a thread. The parent of the best paragraph
//!    would keep only one answer.
//! 3. Blocks that are mostly links are removed from the main part.
//!
//! If too little remains, as for a page that is a list of links, the whole page is taken.

use scraper::node::Element;

use super::flat::{Flat, What};
use super::visibility::Visibility;

/// The part of a page that is kept.
pub(super) struct MainText {
    /// The item that contains it.
    pub(super) root: usize,
    /// Which items are left out, each with its content.
    pub(super) gone: Vec<bool>,
}

/// The share of a part's mass that a child needs to replace the part.
const MIN_CHILD_SHARE: f64 = 0.85;

/// The share of the page's mass that an element named as the main part needs.
const MIN_NAMED_SHARE: f64 = 0.4;

/// The greatest mass of an element that is left out for its name. An element with more is text,
/// whatever its name.
const MAX_NOISE_MASS: f64 = 800.0;

/// Finds the main text.
pub(super) fn find(flat: &Flat<'_>, visibility: &Visibility) -> MainText {
    let mut gone = visibility.gone.clone();
    let body = flat.find(0..flat.items.len(), "body").unwrap_or(0);
    let whole = gone.clone();
    let seen = Sums::new(flat, &gone);
    mark_noise(flat, &seen, body, &mut gone);
    let sums = Sums::new(flat, &gone);
    let root = main_part(flat, &sums, &gone, body);
    prune_links(flat, &sums, root, &mut gone);
    let left = Sums::new(flat, &gone);
    let kept = left.letters(flat, root);
    let all = seen.letters(flat, body);
    if kept >= 250 && kept * 5 >= all || kept * 2 >= all {
        return MainText { root, gone };
    }
    // The page is mostly links, or has an unknown structure. An article among teasers still has its
    // paragraphs.
    if left.mass(flat, root) >= 1_000.0 && left.mass(flat, root) >= 0.5 * seen.mass(flat, body) {
        return MainText { root, gone };
    }
    MainText { root: body, gone: whole }
}

/// The whole page without invisible elements.
pub(super) fn whole(flat: &Flat<'_>, visibility: &Visibility) -> MainText {
    let gone = visibility.gone.clone();
    MainText { root: flat.find(0..flat.items.len(), "body").unwrap_or(0), gone }
}

/// For each item, sums over the items before it: letters, letters in links, and mass.
struct Sums {
    letters: Vec<usize>,
    linked: Vec<usize>,
    mass: Vec<f64>,
}

impl Sums {
    fn new(flat: &Flat<'_>, gone: &[bool]) -> Self {
        let count = flat.items.len();
        // For each item, its block and whether it is in a link. For each block, its own letters.
        let mut block = vec![0; count];
        let mut in_link = vec![false; count];
        let mut own = vec![0_usize; count];
        let mut own_linked = vec![0_usize; count];
        let mut index = 0;
        let mut shown = vec![0_usize; count];
        while index < count {
            if gone[index] {
                index = flat.items[index].end;
                continue;
            }
            let parent = flat.items[index].parent;
            match flat.items[index].what {
                What::Element(element) => {
                    block[index] =
                        if is_block(element.name()) || index == 0 { index } else { block[parent] };
                    in_link[index] = in_link[parent]
                        || (element.name() == "a" && element.attr("href").is_some());
                }
                What::Text(text) => {
                    let length = letters(text);
                    shown[index] = length;
                    block[index] = block[parent];
                    in_link[index] = in_link[parent];
                    own[block[index]] += length;
                    own_linked[block[index]] += length * usize::from(in_link[index]);
                }
            }
            index += 1;
        }
        let mut sums = Self {
            letters: vec![0; count + 1],
            linked: vec![0; count + 1],
            mass: vec![0.0; count + 1],
        };
        for index in 0..count {
            let length = shown[index];
            let at = block[index];
            let weight = match flat.name(at) {
                "pre" => 1.0,
                "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => 0.0,
                _ if own[at] < 30 || own_linked[at] * 2 > own[at] => 0.0,
                "p" | "blockquote" | "dd" | "td" => 1.0,
                _ => 0.8,
            };
            sums.letters[index + 1] = sums.letters[index] + length;
            sums.linked[index + 1] = sums.linked[index] + length * usize::from(in_link[index]);
            #[expect(clippy::cast_precision_loss, reason = "lengths of texts")]
            let mass = length as f64 * weight;
            sums.mass[index + 1] = sums.mass[index] + mass;
        }
        sums
    }

    fn letters(&self, flat: &Flat<'_>, index: usize) -> usize {
        self.letters[flat.items[index].end] - self.letters[index]
    }

    fn linked(&self, flat: &Flat<'_>, index: usize) -> usize {
        self.linked[flat.items[index].end] - self.linked[index]
    }

    fn mass(&self, flat: &Flat<'_>, index: usize) -> f64 {
        self.mass[flat.items[index].end] - self.mass[index]
    }
}

/// The smallest element that has most of the mass. The search starts at the element that the page
/// names as its main part, if that has enough mass.
fn main_part(flat: &Flat<'_>, sums: &Sums, gone: &[bool], body: usize) -> usize {
    let all = sums.mass(flat, body);
    let mut root = body;
    let mut index = body + 1;
    let mut named = None;
    let mut most = 0.0;
    while index < flat.items[body].end {
        if gone[index] {
            index = flat.items[index].end;
            continue;
        }
        let mass = sums.mass(flat, index);
        if mass > most && flat.element(index).is_some_and(is_named_main) {
            (named, most) = (Some(index), mass);
        }
        index += 1;
    }
    if let Some(named) = named
        && most >= MIN_NAMED_SHARE * all
    {
        root = named;
    }
    // A named main part is taken whole, unless a named child, such as an article, is most of it.
    let is_named = root != body;
    loop {
        let mass = sums.mass(flat, root);
        let heaviest = flat
            .children(root)
            .filter(|&child| {
                !gone[child]
                    && !matches!(
                        flat.name(child),
                        "" | "p"
                            | "table"
                            | "tbody"
                            | "tr"
                            | "pre"
                            | "ul"
                            | "ol"
                            | "dl"
                            | "blockquote"
                    )
            })
            .max_by(|one, other| sums.mass(flat, *one).total_cmp(&sums.mass(flat, *other)));
        match heaviest {
            Some(child)
                if mass > 0.0
                    && sums.mass(flat, child) >= MIN_CHILD_SHARE * mass
                    && (!is_named || flat.element(child).is_some_and(is_named_main))
                    && !flat.children(root).any(|other| {
                        other != child && !gone[other] && is_of_a_kind(flat, sums, child, other)
                    }) =>
            {
                root = child;
            }
            _ => return root,
        }
    }
}

/// Whether two neighbouring parts belong to the same text, however long one of them is.
fn is_of_a_kind(flat: &Flat<'_>, sums: &Sums, one: usize, other: usize) -> bool {
    match flat.name(other) {
        "h2" | "h3" => sums.letters(flat, other) > 0,
        name => {
            name == flat.name(one)
                && flat.attribute(one, "class").unwrap_or_default()
                    == flat.attribute(other, "class").unwrap_or_default()
                && sums.mass(flat, other) >= 30.0
        }
    }
}

/// Marks elements that are noise by their names, unless they have much of the text.
fn mark_noise(flat: &Flat<'_>, sums: &Sums, body: usize, gone: &mut [bool]) {
    let all = sums.letters(flat, body);
    let mass = sums.mass(flat, body);
    let mut index = body + 1;
    while index < flat.items[body].end {
        if gone[index] {
            index = flat.items[index].end;
            continue;
        }
        if let Some(element) = flat.element(index)
            && is_noise(flat, index, element, sums)
            && !holds_votes(flat, index, sums)
            && sums.letters(flat, index) * 5 <= all * 2
            && sums.mass(flat, index) <= 0.3 * mass
        {
            gone[index] = true;
        }
        index += 1;
    }
}

/// The greatest number of letters of a part that shows little but the votes of a post.
const MAX_VOTES: usize = 60;

/// Whether a small part shows how many votes a post has.
fn holds_votes(flat: &Flat<'_>, index: usize, sums: &Sums) -> bool {
    sums.letters(flat, index) <= MAX_VOTES
        && (index..flat.items[index].end).take(200).any(|at| is_vote_count(flat, at))
}

/// Whether an element shows how many votes a post has: by its name, and because it is a number.
pub(super) fn is_vote_count(flat: &Flat<'_>, index: usize) -> bool {
    const NAMES: [&str; 13] = [
        "comment-score",
        "vote-count",
        "vote-count-post",
        "js-vote-count",
        "votecount",
        "vote_count",
        "votes-count",
        "upvotes",
        "upvote-count",
        "score",
        "post-score",
        "like-count",
        "likes-count",
    ];
    let Some(element) = flat.element(index) else { return false };
    if element.attr("itemprop") != Some("upvoteCount")
        && !split_names(element.attr("class").unwrap_or_default())
            .any(|class| NAMES.contains(&class.as_str()))
    {
        return false;
    }
    if flat.items[index].end - index > 10 {
        return false;
    }
    let untrimmed = flat.text(index);
    let text = untrimmed.trim();
    text.len() <= 20
        && text.trim_start_matches(['-', '+', '−', '–']).starts_with(|c: char| c.is_ascii_digit())
}

/// Marks blocks that are mostly links.
fn prune_links(flat: &Flat<'_>, sums: &Sums, root: usize, gone: &mut [bool]) {
    let all = sums.letters(flat, root);
    let mut index = root + 1;
    while index < flat.items[root].end {
        if gone[index] {
            index = flat.items[index].end;
            continue;
        }
        let name = flat.name(index);
        if matches!(
            name,
            "div" | "section" | "ul" | "ol" | "dl" | "table" | "p" | "header" | "aside" | "td"
        ) {
            let length = sums.letters(flat, index);
            let linked = sums.linked(flat, index);
            let range = index..flat.items[index].end;
            let links =
                range.clone().filter(|&at| !gone[at] && flat.name(at) == "a").take(4).count();
            let headed = range.into_iter().any(|at| flat.name(at) == "h1");
            let dense =
                linked * 10 > length * 8 && links >= 2 || linked * 10 > length * 6 && links >= 4;
            if dense && !headed && length * 3 <= all && sums.mass(flat, index) < 100.0 {
                gone[index] = true;
            }
        }
        index += 1;
    }
}

/// The number of visible letters. A run of white space counts as one.
fn letters(text: &str) -> usize {
    let mut count = 0;
    let mut space = true;
    for character in text.chars() {
        let is_space = character.is_whitespace();
        count += usize::from(!(is_space && space));
        space = is_space;
    }
    count
}

fn is_named_main(element: &Element) -> bool {
    matches!(element.name(), "main" | "article")
        || matches!(element.attr("role"), Some("main" | "article"))
        || matches!(element.attr("itemprop"), Some("articleBody" | "mainEntity"))
}

fn is_noise(flat: &Flat<'_>, index: usize, element: &Element, sums: &Sums) -> bool {
    const ROLES: [&str; 14] = [
        "navigation",
        "banner",
        "contentinfo",
        "complementary",
        "search",
        "menu",
        "menubar",
        "toolbar",
        "dialog",
        "alertdialog",
        "tablist",
        "tooltip",
        "status",
        "alert",
    ];
    let name = element.name();
    if matches!(name, "html" | "body" | "article" | "main")
        || matches!(name, "h1" | "pre" | "code" | "tbody" | "tr" | "math")
    {
        return false;
    }
    if matches!(name, "nav" | "aside" | "footer" | "menu" | "form" | "fieldset")
        || element.attr("role").is_some_and(|role| ROLES.contains(&role))
    {
        return true;
    }
    // This is for a header of the page, not of an article or a section.
    if name == "header"
        && !flat.around(index).any(|at| matches!(flat.name(at), "article" | "main" | "section"))
    {
        return flat.find(index..flat.items[index].end, "h1").is_none();
    }
    is_named_as_noise(flat, index, element, sums)
}

/// Whether the class or id of an element marks it as noise. An author may use such a name for a
/// part of the text: `pagination` may be its subject. So a name counts only if the element looks
/// like noise too. Within the named main part, the rules are stricter.
fn is_named_as_noise(flat: &Flat<'_>, index: usize, element: &Element, sums: &Sums) -> bool {
    let name = element.name();
    let classes = element.attr("class").unwrap_or_default();
    if !is_block(name) {
        // Marks that programs put into a text. Other elements within a line aren't judged by name:
        // some programs call every link a `reference`.
        const MARKS: [&str; 6] = [
            "mw-editsection",
            "mw-cite-backlink",
            "mw-jump-link",
            "headerlink",
            "linenos",
            "lineno",
        ];
        return split_names(classes)
            .any(|class| MARKS.contains(&class.as_str()) || name == "sup" && class == "reference");
    }
    if name == "td" && split_names(classes).any(|class| class == "linenos") {
        return true;
    }
    if matches!(
        name,
        "h2" | "h3" | "h4" | "h5" | "h6" | "p" | "blockquote" | "dt" | "dd" | "td" | "th"
    ) {
        return false;
    }
    let letters = sums.letters(flat, index);
    let linked = sums.linked(flat, index);
    let within = flat.around(index).any(|at| flat.element(at).is_some_and(is_named_main));
    let is_list = linked * 2 >= letters;
    let is_little = sums.mass(flat, index) < MAX_NOISE_MASS;
    let looks_so = if within {
        is_little
            && (linked * 4 >= letters
                || split_names(classes).any(|class| is_hidden_class(&class))
                    && !has_heading(flat, index))
    } else {
        is_list || is_little
    };
    let id = if within || name == "section" { "" } else { element.attr("id").unwrap_or_default() };
    looks_so && split_names(classes).any(|name| is_noisy_name(&name))
        || is_list && split_names(id).any(|name| is_noisy_name(&name))
}

/// Whether a class is of elements that are hidden until they are opened. Their links say nothing
/// about them.
fn is_hidden_class(class: &str) -> bool {
    ["popup", "modal", "newsletter"].iter().any(|part| class.contains(part))
}

fn has_heading(flat: &Flat<'_>, index: usize) -> bool {
    (index..flat.items[index].end)
        .any(|at| matches!(flat.name(at), "h1" | "h2" | "h3" | "h4" | "h5" | "h6"))
}

/// The names in an attribute.
fn split_names(names: &str) -> impl Iterator<Item = String> {
    names
        .split_ascii_whitespace()
        .take(32)
        .filter(|name| name.len() <= 100)
        .map(str::to_ascii_lowercase)
}

/// Whether pages usually give this name to noise.
fn is_noisy_name(name: &str) -> bool {
    const PARTS: [&str; 47] = [
        "cookie",
        "consent",
        "gdpr",
        "newsletter",
        "subscribe",
        "signup",
        "sign-up",
        "sidebar",
        "breadcrumb",
        "related",
        "recommend",
        "promo",
        "advert",
        "sponsor",
        "sharing",
        "sharedaddy",
        "share-",
        "-share",
        "social",
        "toolbar",
        "navbar",
        "navigation",
        "pagination",
        "pager",
        "footer",
        "masthead",
        "skip-link",
        "skiplink",
        "popup",
        "modal",
        "paywall",
        "outbrain",
        "taboola",
        "disqus",
        "addthis",
        "sitesub",
        "jump-to",
        "editsection",
        "headerlink",
        "linenos",
        "screen-reader",
        "sr-only",
        "visually-hidden",
        "most-read",
        "teaser",
        "metadata",
        "jp-relatedposts",
    ];
    const WHOLE: [&str; 29] = [
        "nav",
        "menu",
        "ad",
        "ads",
        "share",
        "tags",
        "tag-list",
        "banner",
        "widget",
        "widgets",
        "topbar",
        "toc",
        "noprint",
        "navbox",
        "search",
        "login",
        "comment-form",
        "respond",
        "reply",
        "print",
        "rss",
        "copyright",
        "mw-jump-link",
        "mw-cite-backlink",
        "catlinks",
        "printfooter",
        "hatnote",
        "tools",
        "actions",
    ];
    WHOLE.contains(&name) || PARTS.iter().any(|part| name.contains(part))
}

/// Whether an element starts on a new line.
pub(super) fn is_block(name: &str) -> bool {
    matches!(
        name,
        "address"
            | "article"
            | "aside"
            | "blockquote"
            | "body"
            | "caption"
            | "center"
            | "dd"
            | "details"
            | "dialog"
            | "dir"
            | "div"
            | "dl"
            | "dt"
            | "fieldset"
            | "figcaption"
            | "figure"
            | "footer"
            | "form"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "header"
            | "hgroup"
            | "hr"
            | "html"
            | "legend"
            | "li"
            | "main"
            | "menu"
            | "nav"
            | "ol"
            | "p"
            | "pre"
            | "section"
            | "summary"
            | "table"
            | "tbody"
            | "td"
            | "tfoot"
            | "th"
            | "thead"
            | "tr"
            | "ul"
    )
}
