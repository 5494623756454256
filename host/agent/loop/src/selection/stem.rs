//! Splits a text into words and removes their endings, to compare the words of tasks and tools.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Words without meaning for a task.
const STOP_WORDS: &[&str] = &[
    "a", "about", "after", "all", "also", "an", "and", "any", "are", "as", "at", "be", "been",
    "but", "by", "can", "could", "did", "do", "does", "each", "for", "from", "had", "has", "have",
    "how", "i", "if", "in", "into", "is", "it", "its", "just", "let", "me", "my", "not", "of",
    "on", "or", "our", "please", "should", "so", "some", "such", "than", "that", "the", "their",
    "them", "then", "there", "these", "they", "this", "those", "to", "tool", "use", "used",
    "using", "was", "we", "were", "what", "when", "where", "which", "who", "why", "will", "with",
    "would", "you", "your",
];

/// Groups of words that often have the same meaning in tasks and in tool names.
const ALIKE: &[&[&str]] = &[
    &["list", "show", "get", "find", "view", "display", "retrieve", "read", "look"],
    &["search", "find", "query", "look"],
    &["create", "add", "make", "new", "open", "set", "setup"],
    &["update", "edit", "change", "modify", "rename", "set", "write"],
    &["delete", "remove", "drop", "forget"],
    &["send", "post", "write"],
    &["run", "execute", "start", "launch", "trigger"],
    &["repo", "repository", "project"],
    &["pr", "pull"],
    &["mr", "merge"],
    &["db", "database"],
    &["folder", "directory"],
    &["doc", "document"],
    &["k8s", "kubernetes", "kubectl"],
    &["url", "page", "website", "link", "site"],
    &["task", "todo"],
    &["close", "complete", "done", "finish"],
    &["mail", "email"],
    &["env", "environment"],
    &["picture", "image", "photo", "screenshot"],
    &["remember", "memory", "observation", "know"],
    &["login", "logout", "log", "authentication", "signin"],
    &["org", "organization", "organisation"],
    &["sheet", "spreadsheet", "workbook", "excel", "csv"],
    &["chart", "graph", "diagram", "draw", "plot"],
    &["route", "direction", "drive", "distance"],
    &["high", "height", "elevation", "sea"],
    &["address", "coordinate", "location", "place", "where"],
    &["event", "meeting", "appointment", "calendar"],
    &["person", "user", "member", "people", "who"],
    &["message", "chat", "thread"],
    &["ssh", "terminal", "command", "shell", "process"],
    &["program", "process", "command"],
    &["web", "internet", "online"],
];

/// For each stem, the other stems of its groups in [`ALIKE`].
static ALIKE_STEMS: LazyLock<HashMap<String, Vec<String>>> = LazyLock::new(|| {
    let mut alike: HashMap<String, Vec<String>> = HashMap::new();
    for group in ALIKE {
        let stems: Vec<String> = group.iter().map(|word| stem(word)).collect();
        for one in &stems {
            let others = stems.iter().filter(|other| *other != one).cloned();
            alike.entry(one.clone()).or_default().extend(others);
        }
    }
    alike
});

/// Longer words are ignored.
const MAX_WORD: usize = 40;

pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| !word.is_empty() && word.len() <= MAX_WORD)
}

/// Returns the stems of a word, and of its parts if the word is in camel case. Words in
/// [`STOP_WORDS`] have no stems.
pub(crate) fn stems(word: &str) -> Vec<String> {
    let mut found = Vec::new();
    add_stem(&mut found, word);
    if word.chars().skip(1).any(char::is_uppercase) {
        let parts = camel_parts(word);
        if parts.len() > 1 {
            for part in parts {
                add_stem(&mut found, part);
            }
        }
    }
    found
}

fn add_stem(found: &mut Vec<String>, word: &str) {
    let word = word.to_lowercase();
    if STOP_WORDS.binary_search(&word.as_str()).is_err() {
        found.push(stem(&word));
    }
}

/// Splits a word in camel case, for example `HTTPServer` into `HTTP` and `Server`.
fn camel_parts(word: &str) -> Vec<&str> {
    let letters: Vec<(usize, char)> = word.char_indices().collect();
    let mut starts = vec![0];
    for index in 1..letters.len() {
        let (start, letter) = letters[index];
        let (_, previous) = letters[index - 1];
        let is_before_lowercase =
            letters.get(index + 1).is_some_and(|(_, next)| next.is_lowercase());
        let is_after_abbreviation = previous.is_uppercase() && is_before_lowercase;
        if letter.is_uppercase() && (previous.is_lowercase() || is_after_abbreviation) {
            starts.push(start);
        }
    }
    // Each part ends at the start of the next part.
    let ends = starts.iter().skip(1).copied().chain([word.len()]);
    starts.iter().zip(ends).map(|(start, end)| &word[*start..end]).collect()
}

/// Returns a word without its ending. A few rules are enough, because the words of tasks and tools
/// are cut by the same rules.
fn stem(word: &str) -> String {
    if !word.is_ascii() || word.len() < 4 {
        return word.to_owned();
    }
    let word = match word {
        "indices" => "index",
        word => word,
    };
    let mut stem = if let Some(rest) = word.strip_suffix("ies")
        && rest.len() >= 2
    {
        rest.to_owned() + "y"
    } else if word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("us") {
        word[..word.len() - 1].to_owned()
    } else {
        word.to_owned()
    };
    for (ending, replacement) in [("ation", "at"), ("ing", ""), ("ed", "")] {
        if let Some(rest) = stem.strip_suffix(ending)
            && rest.len() >= 3
        {
            stem = format!("{rest}{replacement}");
            // The last letter may be doubled, as in "running".
            if let [.., before_last, last] = stem.as_bytes()
                && before_last == last
                && !b"aeiouls".contains(last)
            {
                stem.pop();
            }
            break;
        }
    }
    if stem.len() > 3 && stem.ends_with('e') {
        stem.pop();
    }
    if stem.len() > 3 && stem.ends_with('y') {
        stem.pop();
        stem.push('i');
    }
    stem
}

pub(crate) fn alike(stem: &str) -> &'static [String] {
    ALIKE_STEMS.get(stem).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stop_words_are_sorted() {
        assert!(STOP_WORDS.is_sorted());
    }

    #[test]
    fn forms_of_a_word_have_one_stem() {
        let groups: [&[&str]; 7] = [
            &["create", "creates", "created", "creating", "creation"],
            &["index", "indexes", "indices", "indexed"],
            &["repository", "repositories"],
            &["query", "queries"],
            &["file", "files"],
            &["run", "running", "runs"],
            &["list", "listing", "lists", "listed"],
        ];
        for group in groups {
            let stems: Vec<String> = group.iter().map(|word| stem(word)).collect();
            assert!(stems.iter().all(|stem| *stem == stems[0]), "{group:?} {stems:?}");
        }
    }

    #[test]
    fn names_are_split() {
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<String> = words(text).flat_map(stems).collect();
            let expected: Vec<String> = expected.iter().map(|word| stem(word)).collect();
            assert_eq!(found, expected);
        };
        check("create_issue", &["creat", "issue"]);
        check("getIssueByID", &["getissuebyid", "get", "issue", "id"]);
        check("what is the OAuth-App of", &["oauth", "o", "auth", "app"]);
        check("CREATE", &["creat"]);
    }

    proptest! {
        #[test]
        fn no_word_of_any_text_is_empty(text in ".{0,400}") {
            for stem in words(&text).flat_map(stems) {
                prop_assert!(!stem.is_empty());
            }
        }
    }
}
