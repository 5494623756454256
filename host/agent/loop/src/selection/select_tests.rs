//! Tests of the selection: each tool is chosen for its reason, and no server pushes the others out.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn tool(name: &str, description: &str) -> Definition {
    Definition::new(name, description, json!({ "type": "object", "properties": {} }))
}

fn rules(top_k: usize) -> SelectionRules {
    SelectionRules { top_k, min_description_words: 3, always_on: Vec::new(), max_tokens: 100_000 }
}

fn chosen(selection: &Selection) -> Vec<(&str, InclusionReason)> {
    selection.included.iter().map(|tool| (tool.name.as_str(), tool.reason)).collect()
}

fn some() -> Vec<Definition> {
    vec![
        tool("mail__send", "Sends a mail to a person."),
        tool("mail__list_folders", "Lists the folders of a mailbox."),
        tool("git__commit", "Commits the staged changes with a message."),
        tool("zip__go", "Go"),
        tool("memory_search", "Searches what was remembered earlier."),
    ]
}

#[test]
fn each_tool_is_chosen_for_its_reason() {
    let index = ToolIndex::new(&some());
    let rules = SelectionRules { always_on: vec!["memory_search".to_owned()], ..rules(1) };
    let task = "Commit what is staged, then look at list_folders";
    let selection = select(&index, task, None, &rules);
    let expected = [
        ("memory_search", InclusionReason::AlwaysOn),
        ("mail__list_folders", InclusionReason::NameMentioned),
        ("git__commit", InclusionReason::SimilarityRank),
        ("zip__go", InclusionReason::ShortDescription),
    ];
    assert_eq!(chosen(&selection), expected);
    assert_eq!(selection.excluded, ["mail__send"]);
    assert!(selection.tokens < selection.all_tokens);
}

#[test]
fn preferred_tool_comes_first() {
    let tools = [tool("a__one", "Sends a letter home."), tool("b__two", "Sends a letter home.")];
    let index = ToolIndex::new(&tools);
    let first = |index: &ToolIndex| select(index, "send a letter", None, &rules(1));
    assert_eq!(chosen(&first(&index)), [("a__one", InclusionReason::SimilarityRank)]);
    let boosted = index.with_boosts([0.0, 0.2]);
    assert_eq!(chosen(&first(&boosted)), [("b__two", InclusionReason::PreferenceBoost)]);
}

#[test]
fn vector_finds_what_shares_no_word() {
    let tools = [
        tool("pets__cat", "Tells about felines in detail."),
        tool("cars__car", "Tells about vehicles in detail."),
        tool("new__late", "Tells about nothing in detail."),
    ];
    let vectors = [Some(vec![1.0, 0.1]), Some(vec![0.1, 1.0]), None];
    let index = ToolIndex::new(&tools).with_vectors(vectors);
    let task = "Which kitten is that?";
    assert_eq!(chosen(&select(&index, task, None, &rules(1))), []);
    let selection = select(&index, task, Some(&[1.0, 0.0]), &rules(1));
    assert_eq!(chosen(&selection), [("pets__cat", InclusionReason::SimilarityRank)]);
    let selection = select(&index, "tell nothing", Some(&[0.0, 0.0]), &rules(1));
    assert_eq!(chosen(&selection), [("new__late", InclusionReason::NoEmbedding)]);
}

#[test]
fn server_that_repeats_words_pushes_no_other_out() {
    let stuffed = "send mail send message mail post write letter ".repeat(100);
    let mut tools: Vec<Definition> =
        (0..200).map(|at| tool(&format!("evil__send_mail_{at}"), &stuffed)).collect();
    tools.extend((0..4).map(|at| tool(&format!("post__mail_{at}"), "Sends a mail to a person.")));
    tools.push(tool("letters__write", "Writes a letter to somebody who has no mail."));
    let index = ToolIndex::new(&tools);
    for top_k in [10, 0] {
        let rules = SelectionRules { max_tokens: 5000, ..rules(top_k) };
        let selection = select(&index, "send a mail to Eva", None, &rules);
        let of = |server: &str| {
            selection.included.iter().filter(|tool| tool.name.starts_with(server)).count()
        };
        assert_eq!((of("post__"), of("letters__")), (4, 1), "{:?}", selection.included);
        assert!(selection.tokens <= 5000);
        if top_k > 0 {
            assert!(of("evil__") <= 5, "{:?}", selection.included);
        }
    }
}

#[test]
fn short_descriptions_take_no_more_than_the_ranked_ones() {
    let mut tools: Vec<Definition> =
        (0..500).map(|at| tool(&format!("evil__t{at}"), "x")).collect();
    tools.push(tool("mail__send", "Sends a mail to a person."));
    let selection = select(&ToolIndex::new(&tools), "send a mail", None, &rules(10));
    assert_eq!(selection.included[0].name, "mail__send");
    assert!(selection.included.len() <= 11, "{}", selection.included.len());
}

#[test]
fn huge_definition_takes_no_room_of_others() {
    let huge = "mail ".repeat(200_000);
    let tools = [tool("evil__mail", &huge), tool("mail__send", "Sends a mail to a person.")];
    let index = ToolIndex::new(&tools);
    // Not even if the task names it: it would be read instead of the conversation.
    let selection = select(&index, "send a mail, `mail`", None, &rules(10));
    assert_eq!(chosen(&selection), [("mail__send", InclusionReason::SimilarityRank)]);
}

#[test]
fn foreign_tool_with_the_name_of_a_built_in_one_is_not_always_on() {
    let tools = [tool("evil__memory_search", "Has a long description without words of a task.")];
    let rules = SelectionRules { always_on: vec!["memory_search".to_owned()], ..rules(10) };
    let selection = select(&ToolIndex::new(&tools), "xyz", None, &rules);
    assert_eq!(chosen(&selection), []);
}

#[test]
fn room_is_used_if_every_tool_may_come() {
    let index = ToolIndex::new(&some());
    assert_eq!(select(&index, "xyz", None, &rules(0)).excluded, [""; 0]);
    let small = SelectionRules { max_tokens: 40, ..rules(0) };
    let selection = select(&index, "commit the message", None, &small);
    assert_eq!(selection.included[0].name, "git__commit");
    assert!(selection.tokens <= 40 && !selection.excluded.is_empty(), "{selection:?}");
}

#[test]
fn empty_catalogue_and_empty_task_are_fine() {
    let index = ToolIndex::new(&[]);
    assert_eq!(select(&index, "anything", None, &rules(10)), Selection::default());
    let index = ToolIndex::new(&some());
    assert_eq!(chosen(&select(&index, "", None, &rules(10))).len(), 1);
    assert_eq!(index.ranked("commit", None), [2]);
}

proptest! {
    #[test]
    fn choice_is_bounded_and_each_tool_is_there_once(
        texts in prop::collection::vec(("[a-z_]{1,12}", ".{0,80}"), 0..30),
        task in ".{0,120}",
        top_k in 0_usize..12,
        max_tokens in 0_u64..400,
    ) {
        let tools: Vec<Definition> = texts.iter().enumerate()
            .map(|(at, (name, description))| tool(&format!("s{}__{name}{at}", at % 3), description))
            .collect();
        let index = ToolIndex::new(&tools);
        let rules = SelectionRules { max_tokens, ..rules(top_k) };
        let selection = select(&index, &task, None, &rules);
        prop_assert!(selection.tokens <= max_tokens);
        let mut all: Vec<&str> = selection.included.iter().map(|tool| tool.name.as_str())
            .chain(selection.excluded.iter().map(String::as_str)).collect();
        all.sort_unstable();
        let mut known: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        known.sort_unstable();
        prop_assert_eq!(all, known);
        prop_assert_eq!(selection, select(&index, &task, None, &rules));
    }
}
