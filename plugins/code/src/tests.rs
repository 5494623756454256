//! The tool as a whole, with the stand-ins of the host.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use code_model::{Definition, Kind, Parsed, ParserQuestion, Reference, words};
use serde_json::{Value, json};
use toolhold_sdk::{Category, Failure, index, testing};

use crate::search_code::SearchCode;

struct Tree(tempfile::TempDir);

/// Stands in for a parser: a line `fn NAME` defines a function, and other words are references, but
/// not in comments.
fn parse(input: &[u8]) -> Result<Vec<u8>, String> {
    let (question, source) = ParserQuestion::decode(input)?;
    let text = std::str::from_utf8(source).map_err(|error| error.to_string())?;
    let mut parsed = Parsed::default();
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim_start().starts_with("//"));
    for (line, number) in lines {
        let column = |word: &str| u32::try_from(line.find(word).unwrap_or(0)).unwrap_or(0);
        let mut words = words::identifiers(line);
        if line.starts_with("fn ") {
            let name = words.nth(1).unwrap_or_default();
            parsed.definitions.push(Definition {
                name: name.to_owned(),
                kind: Kind::Function,
                container: String::new(),
                start: number,
                end: number,
                line: number,
                column: column(name),
            });
        }
        let references = words.map(|word| Reference {
            name: word.to_owned(),
            line: number,
            column: column(word),
        });
        parsed.references.extend(references);
    }
    match question {
        ParserQuestion::Chunks => {
            parsed.references.clear();
            parsed.chunks = code_model::chunks(text, &parsed.definitions);
        }
        ParserQuestion::References => {}
    }
    Ok(parsed.encode())
}

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        testing::set_part("rust", parse);
        testing::set_part("python", parse);
        testing::set_part("php", parse);
        testing::set_part("go", parse);
        testing::set_part("java", parse);
        let tree = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(path, text)| tree.write(path, text));
        tree
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Writes a file whose last change is a while ago, so that nothing depends on the clock.
    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        age(&path, 3600);
    }

    fn try_search(&self, mut arguments: Value) -> Result<(String, Value), Failure> {
        if arguments["path"].is_null() {
            arguments["path"] = json!(self.0.path());
        }
        let output = testing::call::<SearchCode>(arguments)?;
        let text = output.joined_text().replace(&format!("{}/", self.0.path().display()), "");
        Ok((text, output.structured.unwrap()))
    }

    fn search(&self, arguments: Value) -> String {
        self.try_search(arguments).unwrap().0
    }
}

fn age(path: &Path, secs: u64) {
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(secs)).unwrap();
}

fn two_files() -> Tree {
    Tree::new(&[
        (
            "src/config.rs",
            "// load_config in a comment\nfn load_config(path) {\n  parse(path)\n}\n",
        ),
        ("src/main.rs", "fn main() {\n  let config = load_config(path);\n}\n"),
        ("notes.md", "How the configuration is loaded.\n"),
    ])
}

#[test]
fn symbol_is_found_in_any_style() {
    let tree = two_files();
    for symbol in ["load_config", "loadConfig", "load_config()"] {
        let text = tree.search(json!({ "symbol": symbol }));
        let expected =
            "src/config.rs:2 function load_config (definition)\n    fn load_config(path) {\n";
        assert!(text.starts_with(expected), "{symbol}: {text}");
    }
}

#[test]
fn name_with_its_namespace_is_found() {
    let tree = Tree::new(&[
        ("app/Models/User.php", "<?php\nnamespace App\\Models;\nfn User() {}\n"),
        ("src/Other/Post.php", "<?php\nnamespace App\\Blog;\nfn Post() {}\n"),
        ("server/run.go", "package srv\nfn Start() {}\n"),
        ("tools/run.go", "package tools\nfn Start() {}\n"),
        ("src/main/java/com/ex/Foo.java", "package com.ex;\nfn Foo() {}\n"),
    ]);
    for (symbol, place) in [
        ("App\\Models\\User", "app/Models/User.php:3 "),
        ("\\App\\Blog\\Post", "src/Other/Post.php:3 "),
        ("srv.Start", "server/run.go:2 "),
        ("com.ex.Foo", "src/main/java/com/ex/Foo.java:2 "),
    ] {
        let text = tree.search(json!({ "symbol": symbol }));
        assert!(text.starts_with(place), "{symbol}: {text}");
        assert!(!text.contains("isn't known") && !text.contains("tools/"), "{symbol}: {text}");
    }
    let text = tree.search(json!({ "symbol": "none.Start" }));
    assert!(text.contains("`Start` of `none` isn't known; these are others."), "{text}");
}

#[test]
fn path_with_dots_is_the_same_folder() {
    let tree = two_files();
    let text =
        |path: &str| tree.search(json!({ "symbol": "load_config", "path": tree.path(path) }));
    let expected = text("src");
    assert!(expected.starts_with("src/config.rs:2 function load_config"), "{expected}");
    for path in ["src/../src", "./src/.", "src/../src/config.rs", "src/../src/../src/"] {
        assert_eq!(text(path), expected, "{path}");
    }
    // Above a link is what is above its target.
    tree.write("other/deep/a.rs", "fn far() {}\n");
    std::os::unix::fs::symlink(tree.path("other/deep"), tree.path("src/link")).unwrap();
    let text = tree.search(json!({ "symbol": "far", "path": tree.path("src/link/../deep") }));
    assert!(text.contains("fn far() {}"), "{text}");
}

#[test]
fn references_leave_out_comments() {
    let text = two_files().search(json!({ "symbol": "load_config", "include_references": true }));
    assert!(
        text.contains("src/main.rs:2 (reference)\n    let config = load_config(path);"),
        "{text}"
    );
    assert!(!text.contains("config.rs:1 (reference)"), "{text}");
}

#[test]
fn words_find_names_and_text() {
    let tree = two_files();
    let text = tree.search(json!({ "query": "load config" }));
    assert!(text.starts_with("src/config.rs:2 function load_config (definition"), "{text}");
    let text = tree.search(json!({ "query": "configuration loaded" }));
    assert!(text.starts_with("notes.md:1 (words)"), "{text}");
}

#[test]
fn edit_is_seen_by_the_next_call() {
    let tree = two_files();
    assert!(tree.search(json!({ "symbol": "fresh" })).contains("Nothing found"));
    tree.write("src/main.rs", "\n\nfn fresh() {}\n");
    assert!(tree.search(json!({ "symbol": "fresh" })).starts_with("src/main.rs:3 function fresh"));
    assert!(!tree.search(json!({ "symbol": "main" })).contains("(definition)"));
    fs::remove_file(tree.path("src/main.rs")).unwrap();
    assert!(tree.search(json!({ "symbol": "fresh" })).contains("Nothing found"));
}

#[test]
fn edit_in_the_same_moment_with_the_same_size_is_seen() {
    let tree = Tree::new(&[("a.rs", "fn first() {}\n")]);
    let now = SystemTime::now();
    let set = |text: &str| {
        fs::write(tree.path("a.rs"), text).unwrap();
        let file = fs::File::options().append(true).open(tree.path("a.rs")).unwrap();
        file.set_modified(now).unwrap();
    };
    set("fn early() {}\n");
    assert!(tree.search(json!({ "symbol": "early" })).contains("(definition)"));
    set("fn later() {}\n");
    assert!(tree.search(json!({ "symbol": "later" })).contains("(definition)"));
}

#[test]
fn change_that_hides_its_time_shows_no_old_line() {
    let tree = Tree::new(&[("a.rs", "fn first() {}\n")]);
    let old = fs::metadata(tree.path("a.rs")).unwrap().modified().unwrap();
    assert!(tree.search(json!({ "symbol": "first" })).contains("(definition)"));
    fs::write(tree.path("a.rs"), "fn other() {}\n").unwrap();
    fs::File::options().append(true).open(tree.path("a.rs")).unwrap().set_modified(old).unwrap();
    let text = tree.search(json!({ "symbol": "first" }));
    assert!(!text.contains("fn first"), "{text}");
    // The failed look has shown the change.
    assert!(tree.search(json!({ "symbol": "other" })).contains("(definition)"));
}

#[test]
fn misspelt_symbol_is_suggested() {
    let tree = two_files();
    let text = tree.search(json!({ "symbol": "laod_config" }));
    assert!(text.contains("[Did you mean load_config?]"), "{text}");
    // Nothing is suggested that the search wouldn't find.
    for (filter, wanted) in [
        (json!({ "file_pattern": "src/c*.rs" }), true),
        (json!({ "kind": "function", "language": "rust" }), true),
        (json!({ "path": tree.path("src") }), true),
        (json!({ "file_pattern": "src/m*.rs" }), false),
        (json!({ "kind": "struct" }), false),
        (json!({ "language": "python" }), false),
        (json!({ "path": tree.path("src/main.rs") }), false),
    ] {
        let mut arguments = filter.clone();
        arguments["symbol"] = json!("laod_config");
        let text = tree.search(arguments);
        assert_eq!(text.contains("Did you mean load_config?"), wanted, "{filter}: {text}");
    }
}

#[test]
fn filters_narrow_the_answer() {
    let tree = Tree::new(&[("a/x.rs", "fn same() {}\n"), ("b/x.py", "fn same() {}\n")]);
    let both = tree.search(json!({ "symbol": "same" }));
    assert_eq!(both.matches("(definition").count(), 2, "{both}");
    for narrow in [
        json!({ "symbol": "same", "file_pattern": "*.py" }),
        json!({ "symbol": "same", "language": "Python" }),
        json!({ "symbol": "same", "path": tree.path("b") }),
        json!({ "symbol": "same", "path": tree.path("b/x.py") }),
    ] {
        let text = tree.search(narrow.clone());
        assert!(text.starts_with("b/x.py:1") && !text.contains("a/x.rs"), "{narrow}: {text}");
    }
    let none = tree.search(json!({ "symbol": "same", "kind": "class" }));
    assert!(!none.contains("(definition"), "{none}");
    let failure = tree.try_search(json!({ "symbol": "same", "language": "cobol" })).unwrap_err();
    assert!(failure.message.contains("\"cobol\""), "{failure}");
}

#[test]
fn language_without_its_parser_is_found_by_words_and_said() {
    let tree = Tree::new(&[("a.c", "int lonely_name(void);\n")]);
    let text = tree.search(json!({ "symbol": "lonely_name" }));
    assert!(text.starts_with("a.c:1 (words)\n    int lonely_name(void);\n"), "{text}");
    assert!(
        text.contains("[Definitions in c aren't known, only words: the part `c` is missing. Run `toolhold doctor`"),
        "{text}"
    );
}

#[test]
fn hostile_files_are_left_out_or_harmless() {
    let tree = two_files();
    tree.write("invalid.txt", b"\xff\xfe\nbroken_utf8\n");
    tree.write("binary.rs", b"fn in_binary() {}\0");
    tree.write("esc\u{1b}[2J.rs", "fn steering() {}\n");
    assert!(tree.search(json!({ "symbol": "broken_utf8" })).starts_with("invalid.txt:2 "));
    assert!(!tree.search(json!({ "symbol": "in_binary" })).contains("(definition)"));
    let text = tree.search(json!({ "symbol": "steering" }));
    assert!(text.starts_with("esc\u{fffd}[2J.rs:1 "), "{text:?}");
}

#[test]
fn second_call_writes_nothing() {
    let tree = two_files();
    tree.search(json!({ "symbol": "main" }));
    let before: Vec<_> = index::list("").map(Result::unwrap).collect();
    tree.search(json!({ "symbol": "load_config" }));
    let after: Vec<_> = index::list("").map(Result::unwrap).collect();
    assert_eq!(before, after);
    assert!(!before.is_empty());
}

#[test]
fn outdated_documents_are_removed() {
    let tree = two_files();
    tree.search(json!({ "symbol": "main" }));
    let count = || index::list("c/").count();
    let before = count();
    tree.write("src/main.rs", "fn main() {\n  changed();\n}\n");
    tree.search(json!({ "symbol": "main" }));
    assert_eq!(count(), before);
    fs::remove_file(tree.path("src/main.rs")).unwrap();
    tree.search(json!({ "symbol": "main" }));
    assert_eq!(count(), before - 2);
}

#[test]
fn outline_lists_definitions() {
    let tree = two_files();
    let (text, found) = tree.try_search(json!({ "outline": tree.path("src/config.rs") })).unwrap();
    assert_eq!(text, "        2-2 function load_config\n");
    assert_eq!(found["hits"][0]["name"], "load_config");
    let failure = tree.try_search(json!({ "outline": tree.path("notes.md") })).unwrap_err();
    assert_eq!(failure.code.as_deref(), Some("language"));
}

#[test]
fn every_failure_says_what_to_do() {
    let tree = two_files();
    tree.write("binary.rs", b"\0");
    tree.write("a.c", "int x;\n");
    for arguments in [
        json!({ "outline": tree.path("missing.rs") }),
        json!({ "outline": tree.path("src") }),
        json!({ "outline": tree.path("notes.md") }),
        json!({ "outline": tree.path("binary.rs") }),
        json!({ "outline": tree.path("a.c") }),
        json!({ "path": tree.path("missing"), "query": "x" }),
        json!({}),
        json!({ "query": "x".repeat(1001) }),
        json!({ "symbol": "x", "language": "cobol" }),
        json!({ "symbol": "x", "line": 1 }),
    ] {
        let failure = tree.try_search(arguments.clone()).unwrap_err();
        assert!(failure.suggestion.is_some(), "{arguments}: {failure:?}");
    }
}

#[test]
fn arguments_are_checked() {
    let tree = two_files();
    let fails = |arguments: Value| tree.try_search(arguments).unwrap_err().message;
    assert!(fails(json!({})).contains("one of them is needed"));
    assert!(fails(json!({ "query": " " })).contains("one of them is needed"));
    assert!(fails(json!({ "query": "x".repeat(1001) })).contains("1001 bytes; the limit is 1000"));
    assert!(fails(json!({ "query": "x", "path": tree.path("missing") })).contains("missing"));
}

#[test]
fn text_that_no_index_has_is_found_by_grep() {
    let tree = Tree::new(&[("a.txt", "x = y + 1\n")]);
    let text = tree.search(json!({ "query": "y + 1" }));
    assert!(text.starts_with("a.txt:1 (text)\n    x = y + 1\n"), "{text}");
}

thread_local! {
    static DOWN: Cell<bool> = const { Cell::new(false) };
    static TEXTS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// A model that knows what three groups of words mean, and takes no text with `refused`.
fn embed(text: &str) -> Result<Vec<i8>, String> {
    TEXTS.with_borrow_mut(|texts| texts.push(text.to_owned()));
    if DOWN.get() || text.contains("refused") {
        return Err("nobody answers".to_owned());
    }
    let groups: [&[&str]; 3] =
        [&["retry", "backoff", "again"], &["delete", "unlink"], &["color", "paint"]];
    let has = |words: &&[&str]| words.iter().any(|word| text.contains(word));
    let mut vector: Vec<i8> = groups.iter().map(|words| if has(words) { 100 } else { 0 }).collect();
    vector.push(1);
    Ok(vector)
}

fn sent() -> Vec<String> {
    TEXTS.take()
}

#[test]
fn meaning_finds_code_that_shares_no_word_with_the_query() {
    let tree = Tree::new(&[
        ("net.rs", "fn send() {\n  wait_with_backoff();\n}\n"),
        ("disk.rs", "fn clean() {\n  unlink(path);\n}\n"),
        ("words.txt", "try it anew\n"),
    ]);
    let query = || json!({ "query": "try it again" });
    assert!(!tree.search(query()).contains("net.rs"));
    testing::set_embeddings(Some("a"), embed);
    let (text, found) = tree.try_search(query()).unwrap();
    assert!(text.starts_with("net.rs:1 in send (meaning)\n"), "{text}");
    assert!(text.contains("words.txt:1 (words)") && !text.contains("disk.rs"), "{text}");
    assert_eq!(
        (&found["hits"][0]["score"], &found["hits"][1]["score"]),
        (&json!(0.75), &json!(0.45))
    );
    assert_eq!(sent().len(), 4, "each file and the query");
    // Names are no question.
    tree.search(json!({ "symbol": "send" }));
    assert_eq!(sent(), [""; 0]);
    // Only the chunk that changed is sent again.
    let long =
        |last: &str| format!("fn a() {{\n{}}}\nfn b() {{\n  {last};\n}}\n", "  x();\n".repeat(40));
    tree.write("long.rs", long("one"));
    tree.search(query());
    assert_eq!(sent().len(), 3);
    tree.write("long.rs", long("paint_again"));
    let text = tree.search(query());
    assert_eq!(sent(), ["fn b() {\npaint_again;\n}\n", "try it again"]);
    assert!(text.contains("long.rs:43 in b (meaning)") || text.contains("long.rs:44 "), "{text}");
}

#[test]
fn hits_by_meaning_leave_room_for_words() {
    let tree = Tree::new(&[("a.txt", "some words\n")]);
    for number in 0..20 {
        tree.write(&format!("{number}.rs"), format!("fn f{number}() {{ unlink(); }}\n"));
    }
    testing::set_embeddings(Some("a"), embed);
    let (text, found) = tree.try_search(json!({ "query": "delete words" })).unwrap();
    assert_eq!(text.matches("(meaning)").count(), 5, "{text}");
    assert!(text.contains("a.txt:1 (words)"), "{text}");
    assert_eq!(found["hits"].as_array().unwrap().len(), 6);
}

#[test]
fn model_that_fails_leaves_words() {
    let tree = Tree::new(&[("net.rs", "fn send() { backoff(); }\n"), ("b.txt", "again\n")]);
    testing::set_embeddings(Some("a"), embed);
    DOWN.set(true);
    let text = tree.search(json!({ "query": "again" }));
    assert!(text.starts_with("b.txt:1 (words)"), "{text}");
    assert!(text.contains("words alone, and 2 parts have no vector: nobody answers"), "{text}");
    assert!(sent().len() <= 4, "it isn't asked again and again");
    DOWN.set(false);
    let text = tree.search(json!({ "query": "again" }));
    assert!(text.contains("net.rs:1 in send (meaning)") && !text.contains('['), "{text}");
}

#[test]
fn text_that_the_model_refuses_holds_up_no_other() {
    let tree = Tree::new(&[("a.rs", "fn a() { unlink(); }\n"), ("b.rs", "fn refused() {}\n")]);
    testing::set_embeddings(Some("a"), embed);
    let text = tree.search(json!({ "query": "delete" }));
    assert!(text.contains("a.rs:1 in a (meaning)") && !text.contains('['), "{text}");
    sent();
    tree.search(json!({ "query": "delete" }));
    assert_eq!(sent(), ["delete"]);
}

#[test]
fn vectors_of_another_model_are_made_anew() {
    let tree = Tree::new(&[("a.rs", "fn a() { unlink(); }\n")]);
    testing::set_embeddings(Some("a"), embed);
    tree.search(json!({ "query": "delete" }));
    sent();
    testing::set_embeddings(Some("b"), |text| embed(text).map(|vector| [vector, vec![0]].concat()));
    let text = tree.search(json!({ "query": "delete" }));
    assert!(text.contains("a.rs:1 in a (meaning)"), "{text}");
    assert_eq!(sent(), ["fn a() { unlink(); }\n", "delete"]);
}

/// A language server in bash. `$1` is the URI of a file: what stands in its second line is defined
/// in its first one, and used in its third one.
const SERVER: &str = r#"
export LC_ALL=C
say() { printf 'Content-Length: %s\r\n\r\n%s' "${#1}" "$1"; }
at() { printf '{"uri":"%s","range":{"start":{"line":%s,"character":0},"end":{"line":%s,"character":9}}}' "$1" "$2" "$2"; }
while IFS= read -r header; do
  length=${header//[^0-9]/}
  IFS= read -r _
  IFS= read -rN "$length" body
  [[ $body =~ \"id\":\"([^\"]+)\" ]] || continue
  id=${BASH_REMATCH[1]}
  case $body in
    *'"method":"textDocument/definition"'*) result="[$(at "$1" 0),$(at file:///nowhere/a.rs 0),$(at "$1" 99)]" ;;
    *'"method":"textDocument/references"'*) result="[$(at "$1" 2)]" ;;
    *'"method":"textDocument/hover"'*) result='{"contents":"made: \u001b[2Jint"}' ;;
    *) result=null ;;
  esac
  say "{\"jsonrpc\":\"2.0\",\"id\":\"$id\",\"result\":$result}"
done
"#;

/// Switches the server on for Rust, with this script.
fn with_server(tree: &Tree, script: &str) {
    let file = format!("file://{}", tree.path("made.rs").display());
    let command = json!(["bash", "-c", script, "server", file]);
    testing::set_config(json!({
        "lsp": { "enabled": true, "timeout": 10, "servers": { "rust": command } },
    }));
}

#[test]
fn file_is_the_module_of_what_it_defines() {
    let tree = Tree::new(&[
        ("config.rs", "fn load_config() {}\n"),
        ("deep/mod.rs", "fn load_config() {}\n"),
        ("core/src/lib.rs", "fn start() {}\n"),
        ("sdk/src/index.rs", "fn put() {}\n"),
        ("sdk/src/store.rs", "fn put() {}\n"),
        ("a/index/mod.rs", "fn get() {}\n"),
        ("a/store/mod.rs", "fn get() {}\n"),
    ]);
    for (symbol, place) in [
        ("index::put", "sdk/src/index.rs:1"),
        ("sdk::index::put", "sdk/src/index.rs:1"),
        ("sdk::store::put", "sdk/src/store.rs:1"),
        ("index::get", "a/index/mod.rs:1"),
        ("config::load_config", "config.rs:1"),
        ("crate::config::load_config", "config.rs:1"),
        ("deep::load_config", "deep/mod.rs:1"),
        ("core::start", "core/src/lib.rs:1"),
    ] {
        let (text, found) = tree.try_search(json!({ "symbol": symbol })).unwrap();
        assert!(text.starts_with(&format!("{place} ")), "{symbol}: {text}");
        assert_eq!(found["hits"].as_array().unwrap().len(), 1, "{symbol}: {text}");
    }
    let text = tree.search(json!({ "symbol": "other::load_config" }));
    assert!(text.contains("config.rs:1 ") && text.contains("deep/mod.rs:1 "), "{text}");
    assert!(text.contains("[`load_config` of `other` isn't known; these are others.]"), "{text}");
}

#[test]
fn server_finds_what_no_parser_knows() {
    let tree = Tree::new(&[("made.rs", "make!(one)\nlet x = call(made);\n// through made!\n")]);
    with_server(&tree, SERVER);
    let plain = tree.search(json!({ "symbol": "made" }));
    assert!(!plain.contains("server"), "{plain}");
    let asked =
        json!({ "symbol": "made", "source": "language_server", "include_references": true });
    let (text, found) = tree.try_search(asked.clone()).unwrap();
    let places: Vec<_> = found["hits"].as_array().unwrap().iter().map(|hit| &hit["line"]).collect();
    assert_eq!(places, [1, 3, 2], "{text}");
    assert!(text.starts_with("made.rs:1 (server_definition)\n    make!(one)\n"), "{text}");
    assert!(text.contains("made.rs:3 (server_reference)\n    // through made!\n"), "{text}");
    assert!(text.contains("The language server says:\n    made: \u{fffd}[2Jint\n"), "{text}");
    assert!(text.contains("Places of the language server that aren't shown: 2."), "{text}");
    assert!(!text.contains("No definition"), "{text}");
    assert_eq!(found["hits"][0]["score"], 0.95);
    // A place of the name, and one where it isn't.
    let at = |line: u32| {
        let path = json!(tree.path("made.rs"));
        json!({ "symbol": "made", "source": "language_server", "path": path, "line": line })
    };
    assert!(tree.search(at(2)).contains("made.rs:1 (server_definition)"));
    assert_eq!(tree.try_search(at(1)).unwrap_err().category, Category::InvalidParameters);
}

#[test]
fn server_that_is_off_missing_or_silent_is_named() {
    let tree = Tree::new(&[("a.rs", "fn known() {}\n")]);
    let asked = json!({ "symbol": "known", "source": "language_server" });
    let says = |what: &str| {
        let (text, found) = tree.try_search(asked.clone()).unwrap();
        assert!(text.starts_with("a.rs:1 function known (definition)\n"), "{text}");
        assert!(text.contains(what) && found["complete"] == false, "{text}");
    };
    testing::set_config(json!({}));
    says("they are off. The operator sets `enabled = true` in [tools.code.lsp].");
    with_server(&tree, "echo 'bash: rust-analyzer: command not found' >&2; exit 127");
    says("it isn't installed. Install rust-analyzer: `rustup");
    with_server(&tree, "echo broken; exit 1");
    says("bash: the language server");
    testing::set_config(json!({ "lsp": { "enabled": true, "timeout": 1 } }));
    says("`rust` in [tools.code.lsp.servers] names none.");
    let line = json!({ "symbol": "known", "line": 1, "path": tree.path("a.rs") });
    assert_eq!(tree.try_search(line).unwrap_err().category, Category::InvalidParameters);
}
