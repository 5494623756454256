//! Each form, and its variants.

use super::*;

#[test]
fn fence_of_a_tool_calls_it() {
    check("```bash\nls -la\n```", &[r#"bash {"command":"ls -la"}"#]);
    check(
        "1. Do:\n   ```bash\n   if a; then\n     b\n  fi\n   ```",
        &[r#"bash {"command":"if a; then\n  b\nfi"}"#],
    );
    check("Look:\n\n  ~~~bash\nls\n~~~\ndone", &[r#"bash {"command":"ls"}"#]);
    check("````bash\necho '```'\n```\n````", &[r#"bash {"command":"echo '```'\n```"}"#]);
    check(
        "```bash\ncd a\nmake\n```\n```bash\nls\n```",
        &[r#"bash {"command":"cd a\nmake"}"#, r#"bash {"command":"ls"}"#],
    );
    check(
        r#"```bash
{"command": "sleep 9", "background": true}
```"#,
        &[r#"bash {"command":"sleep 9","background":true}"#],
    );
    check("```bash\n{ \"a\": 1 }\n```", &[r#"bash {"command":"{ \"a\": 1 }"}"#]);
    check(
        "```scrape\n{\"url\": \"https://example.org\", \"select\": \"h1\"}\n```",
        &[r#"web_scrape {"url":"https://example.org","select":"h1"}"#],
    );
    check("```bash\r\nls\r\n```\r\n", &[r#"bash {"command":"ls"}"#]);
}

#[test]
fn fence_that_is_no_call_is_text() {
    for text in [
        "```sh\nls\n```",
        "```Bash\nls\n```",
        "```bash title=x\nls\n```",
        "``bash\nls\n``",
        "``` bash -x\nls\n```",
    ] {
        check_rejected(text, "");
    }
    check_rejected("```bash\nls", "isn't closed");
    check_rejected("```bash\n  \n```", "is empty");
    check_rejected("```scrape\nhttps://example.org\n```", "have to be a JSON object");
    check_rejected(
        "```bash\ncat > a.md <<E\n```rust\nfn main() {}\n```\nE\n```\n",
        "the ends of the code blocks are unclear",
    );
}

#[test]
fn tag_with_json_calls_a_tool() {
    let read = r#"read {"path":"a"}"#;
    for tag in [
        "tool_call",
        "toolcall",
        "tool-call",
        "invoke",
        "minimax:tool_call",
        "minimax:toolcall",
        "TOOL_CALL",
        "tool_calls",
    ] {
        check(
            &format!(
                "I look.\n<{tag}>\n{{\"name\": \"read\", \"arguments\": {{\"path\": \"a\"}}}}\n</{tag}>"
            ),
            &[read],
        );
    }
    for json in [
        r#"{"name":"read","parameters":{"path":"a"}}"#,
        r#"{"function":{"name":"read","arguments":{"path":"a"}}}"#,
        r#"{"id":"1","type":"function","function":{"name":"read","parameters":{"path":"a"}}}"#,
        r#"{"tool_calls":[{"name":"read","arguments":{"path":"a"}}]}"#,
        r#"[{"name":"read","arguments":{"path":"a"}}]"#,
        r#"{"tool_id":"read","params":{"path":"a"}}"#,
        r#"{"name":"read","arguments":"{\"path\":\"a\"}"}"#,
    ] {
        check(&format!("<tool_call>{json}</tool_call>"), &[read]);
        check(&format!("```tool_call\n{json}\n```"), &[read]);
    }
    check(
        r#"<tool_call>{"name":"bash","arguments":"ls"}</tool_call>"#,
        &[r#"bash {"command":"ls"}"#],
    );
    check(r#"<tool_call>{"name":"undo"}</tool_call>"#, &["undo {}"]);
}

#[test]
fn several_calls_keep_their_order() {
    let one = r#"{"name":"read","arguments":{"path":"1"}}"#;
    let two = r#"{"name":"read","arguments":{"path":"2"}}"#;
    let both = [r#"read {"path":"1"}"#, r#"read {"path":"2"}"#];
    for text in [
        format!("<tool_call>{one}</tool_call><tool_call>{two}</tool_call>"),
        format!("<tool_call>{one}</tool_call>\n<tool_call>{two}</tool_call> and more"),
        format!("<tool_call>\n{one}\n{two}\n</tool_call>"),
        format!(
            "<tool_calls><tool_call>{one}</tool_call> <tool_call>{two}</tool_call></tool_calls>"
        ),
        format!("<tool_call>{one}<tool_call>{two}"),
        format!("<tool_calls>[{one}, {two}]</tool_calls>"),
        format!("```tool_call\n{one}\n{two}\n```"),
        format!("```tool_call\n{one}\n```\ntext\n<tool_call>{two}</tool_call>"),
    ] {
        check(&text, &both);
    }
    let found = found(&format!("a\n<tool_call>{one}</tool_call>\nb\n```bash\nls\n```\nc"));
    assert_eq!(found.text_without_calls, "a\n\nb\nc");
}

#[test]
fn end_of_a_tag_may_be_missing_behind_complete_json() {
    let json = r#"{"name":"read","arguments":{"path":"</tool_call>"}}"#;
    let read = [r#"read {"path":"</tool_call>"}"#];
    check(&format!("<tool_call>{json}"), &read);
    check(&format!("<tool_call>\n{json}\n\nNow I wait."), &read);
    check(&format!("<tool_calls><tool_call>{json}</tool_call>"), &read);
    assert_eq!(
        found(&format!("<tool_call>{json}\n\nNow I wait.")).text_without_calls,
        "Now I wait."
    );
    check_rejected(r#"<tool_call>{"name":"read","arguments":{"path":"a"}"#, "isn't valid");
    check_rejected("<tool_call>", "is empty");
    check_rejected("<tool_call></tool_call>", "is empty");
}

#[test]
fn tags_without_an_end_are_not_nested() {
    let call = "<tool_call>{\"name\":\"undo\"}\n";
    check(&call.repeat(9), &["undo {}"; 9]);
    let nested = |depth| format!("{}{}", "<tool_calls>".repeat(depth), call.trim());
    check(&nested(3), &["undo {}"]);
    check_rejected(&format!("{}\n{call}", nested(4)), "too deeply");
}

#[test]
fn broken_json_ends_with_its_tag() {
    let broken = "<tool_call>{\"name\": \"x\n</tool_call>\n";
    let text = format!("{broken}<tool_call>{{\"name\":\"undo\"}}</tool_call></tool_call>");
    check(&text, &["undo {}"]);
    assert_eq!(found(&text).text_without_calls, broken);
    assert!(found(&text).rejected[0].why.contains("isn't valid"));
}

#[test]
fn tags_for_each_argument_call_a_tool() {
    check(
        "<minimax:tool_call>\n<invoke name=\"grep\">\n<parameter name=\"pattern\">a < b</parameter>\n\
         <parameter name='case_sensitive'>false</parameter>\n</invoke>\n\
         <invoke name=\"undo\"></invoke></minimax:tool_call>",
        &[r#"grep {"pattern":"a < b","case_sensitive":false}"#, "undo {}"],
    );
    check(
        "<invoke name=\"write\"><parameter name=\"path\">a</parameter><parameter name=\"content\">\n{\"b\": 1}\n\n</parameter></invoke>",
        &[r#"write {"path":"a","content":"{\"b\": 1}\n"}"#],
    );
    check(
        "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n<parameter=timeout>\n5\n</parameter>\n</function>\n</tool_call>",
        &[r#"bash {"command":"ls","timeout":5}"#],
    );
    check(
        "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>ls</arg_value>\n</tool_call>",
        &[r#"bash {"command":"ls"}"#],
    );
    check(
        "<tool_call>web_scrape<arg_key>url</arg_key><arg_value>https://example.org</arg_value><arg_key>select</arg_key><arg_value>{\"a\": \"h1\"}</arg_value></tool_call>",
        &[r#"web_scrape {"url":"https://example.org","select":{"a":"h1"}}"#],
    );
}

#[test]
fn cut_tags_are_no_call() {
    for text in [
        "<invoke name=\"bash\"><parameter name=\"command\">rm -r build",
        "<invoke name=\"bash\"><parameter name=\"command\">rm -r build</parameter>",
        "<tool_call><function=bash><parameter=command>rm</parameter></tool_call>",
        "<tool_call>bash\n<arg_key>command</arg_key><arg_value>rm</arg_value>",
        "<tool_call>bash\n<arg_key>command</arg_key></tool_call>",
    ] {
        check_rejected(text, "is missing");
    }
    check_rejected(
        "<invoke name=\"bash\"><parameter name=\"command\">a</parameter><parameter name=\"command\">b</parameter></invoke>",
        "more than once",
    );
    check_rejected("<invoke name=\"bash\">é> ", "is missing");
    check_rejected("<invoke tool=\"bash\"></invoke>", "has to name its tool");
    check_rejected("<tool_call>please run ls</tool_call>", "but starts with `please run ls");
}

#[test]
fn fence_with_a_name_calls_that_tool() {
    check("```tool read\n{\"path\": \"a\"}\n```", &[r#"read {"path":"a"}"#]);
    check("```tool bash\nls\n```", &[r#"bash {"command":"ls"}"#]);
    check("```tool undo\n```", &["undo {}"]);
    check("```tool nothing\n{}\n```", &["nothing? {}"]);
    check_rejected("```tool read\na.txt\n```", "have to be a JSON object");
    check_rejected("```tool\n{}\n```", "");
}

#[test]
fn tools_tag_is_one_canonical_call_or_none() {
    let call = r#"{"name":"read","arguments":{"path":"a"}}"#;
    check(&format!("<tools>\n{call}\n</tools>"), &[r#"read {"path":"a"}"#]);
    for body in [
        format!("{call}{call}"),
        format!("[{call}]"),
        format!("a {call}"),
        format!("<tool_call>{call}</tool_call>"),
        r#"{"function":{"name":"read","arguments":{}}}"#.to_owned(),
        r#"{"name":"nothing","arguments":{}}"#.to_owned(),
        r#"{"name":"read"}"#.to_owned(),
        r#"{"name":"read","description":"","arguments":{}}"#.to_owned(),
        String::new(),
    ] {
        check_rejected(&format!("<tools>{body}</tools>"), "one call and nothing else");
    }
    check_rejected(&format!("<tools>{call}"), "one call and nothing else");
}

#[test]
fn line_calls_a_known_tool_with_a_known_argument() {
    check("bash/command>ls -la", &[r#"bash {"command":"ls -la"}"#]);
    check(
        "I look.\n shell/cmd> ls \nread/{\"path\": \"a\"}\n",
        &[r#"bash {"cmd":"ls"}"#, r#"read {"path":"a"}"#],
    );
    for text in [
        "bash>ls",
        "bash/nothing>ls",
        "nothing/command>ls",
        "see bash/command>ls",
        "bash/command>",
        "https://example.org/a>b",
        "browser_open/url>https://example.org",
        "read/{\"path\": \"a\"} and more",
        "read/{\"nothing\": \"a\"}",
        "- bash/command>ls",
        "`bash/command>ls`",
        "    bash/command>ls",
        "curl https://example.org",
        "https://example.org",
    ] {
        check_rejected(text, "");
    }
    check("```bash\nmake\n```\nbash/command>ls", &[r#"bash {"command":"make"}"#]);
}

#[test]
fn json_without_a_mark_is_no_call() {
    let call = r#"{"name":"bash","arguments":{"command":"ls"}}"#;
    for text in [
        call.to_owned(),
        format!("[{call}]"),
        format!("```json\n{call}\n```"),
        format!("```\n{call}\n```"),
        format!("```json\n{{\"tool_calls\": [{call}]}}\n```\nbash"),
        format!("tool_call {call}"),
        format!("Action: bash\nAction Input: {call}"),
        format!("<function_call>{call}</function_call>"),
    ] {
        check_rejected(&text, "");
    }
}

#[test]
fn refused_json_is_not_guessed() {
    for (json, why) in [
        (
            r#"{"name":"read","arguments":{"path":"a"},"parameters":{"path":"b"}}"#,
            "under two names",
        ),
        (r#"{"name":"read","arguments":"a.txt"}"#, "have to be a JSON object"),
        (r#"{"name":"read","arguments":[1]}"#, "have to be a JSON object"),
        (r#"{"name":"","arguments":{}}"#, "name has 0 bytes"),
        (r#"{"name":["bash"],"arguments":{}}"#, "has to be"),
        (r#"{"name":"read","arguments":{path:"a"}}"#, "isn't valid"),
        (r#"{"tool_calls":{"name":"bash"}}"#, "has to be a list"),
        (r#"[]"#, "is empty"),
        (r#"["bash"]"#, "has to be"),
        ("{\"name\":\"write\",\"arguments\":{\"path\":\"a\",\"content\":\"b\nc\"}}", "isn't valid"),
    ] {
        check_rejected(&format!("<tool_call>{json}</tool_call>"), why);
        check_rejected(&format!("```tool_call\n{json}\n```"), why);
    }
    // One bad call refuses its block, but not others.
    let text = "<tool_call>{\"name\": 1}</tool_call>\n```bash\nls\n```";
    assert_eq!(calls(text), [r#"bash {"command":"ls"}"#]);
    assert_eq!(found(text).rejected.len(), 1);
}

#[test]
fn names_cross_no_capability() {
    for name in [
        "browser",
        "browser_open",
        "web_search",
        "exec",
        "cmd",
        "sh",
        "functions.bash",
        "BASH",
        "bash ls",
    ] {
        let text = format!(
            "<tool_call>{{\"name\":\"{name}\",\"arguments\":{{\"command\":\"ls\"}}}}</tool_call>"
        );
        check(&text, &[&format!(r#"{name}? {{"command":"ls"}}"#)]);
    }
    check(r#"<tool_call>{"name":"shell","arguments":{}}</tool_call>"#, &["bash {}"]);
    check(r#"<tool_call>{"name":"web-scrape","arguments":{}}</tool_call>"#, &["web_scrape {}"]);
}

#[test]
fn names_and_fences_of_others_take_none_away() {
    let mut tools = definitions();
    tools.push(other("evil__run", Some("bash"), &["bash", "shell", "read", "run"]));
    tools.push(other("evil__json", Some("json"), &[]));
    tools.push(other("evil__text", Some("text"), &[]));
    tools.push(other("one__py", Some("python"), &["py"]));
    tools.push(other("two__py", Some("python"), &["py"]));
    tools.push(other("three__sql", Some("sql"), &[]));
    tools.push(other("four__odd", Some("a b"), &[]));
    let offered = OfferedTools::new(&tools);
    let calls = |text: &str| -> Vec<String> {
        let found = find(text, &offered, &FindOptions::default());
        found.calls.into_iter().map(|call| call.name).collect()
    };
    assert_eq!(calls("```bash\nls\n```"), ["bash"]);
    let named = |name: &str| calls(&format!("<tool_call>{{\"name\":\"{name}\"}}</tool_call>"));
    assert_eq!(named("shell"), ["bash"]);
    assert_eq!(named("read"), ["read"]);
    assert_eq!(named("run"), ["evil__run"]);
    assert_eq!(named("py"), ["py"], "two tools want it, so none has it");
    assert_eq!(
        calls("```python\nx\n```\n```json\n{}\n```\n```text\nx\n```\n```a b\nx\n```"),
        [""; 0]
    );
    assert_eq!(calls("```sql\nselect 1\n```"), ["three__sql"]);
}

#[test]
fn model_with_native_tools_shows_commands_in_fences() {
    let offered = OfferedTools::new(&definitions()).explicit_only();
    let calls = |text: &str| find(text, &offered, &FindOptions::default()).calls.len();
    assert_eq!(calls("You can run:\n```bash\nrm -r build\n```\nbash/command>ls"), 0);
    assert_eq!(calls("<tool_call>{\"name\":\"undo\"}</tool_call>"), 1);
    assert_eq!(calls("```tool_call\n{\"name\":\"undo\"}\n```\n```tool undo\n```"), 2);
}

#[test]
fn unlisted_tools_are_not_offered() {
    let mut bash = crate::testing::definition("bash");
    bash.unlisted = true;
    let found = find("```bash\nls\n```", &OfferedTools::new([&bash]), &FindOptions::default());
    assert_eq!(found.calls, []);
}

#[test]
fn thoughts_are_stripped_first() {
    let call = "<tool_call>{\"name\":\"undo\"}</tool_call>";
    let thinking = format!("<think>\nMaybe {call}\n{call}\n```bash\nls\n```\n</think>\n\nDone.");
    let parts = found(&thinking);
    assert_eq!((parts.calls.len(), parts.text_without_calls.as_str()), (0, "\n\nDone."));
    assert!(parts.thoughts.contains("tool_call"), "{}", parts.thoughts);
    check(&format!("<thinking>a</thinking>{call}"), &["undo {}"]);
    check(&format!("<think>a\n{call}"), &[]);
    // The template of some models writes the beginning itself.
    let parts = found(&format!("I could do\n{call}\nor not.</think>\nHello"));
    assert_eq!((parts.calls.len(), parts.text_without_calls.as_str()), (0, "\nHello"));
    assert!(parts.rejected[0].why.contains("in your thoughts"), "{:?}", parts.rejected);
    check(&format!("I could wait.</think>\n\n{call}"), &["undo {}"]);
    check(&format!("I could wait.\n</think>{call}"), &["undo {}"]);
    // A quoted end of thoughts ends nothing that comes before the real end.
    let parts = found(&format!("<think>It says </think>\n{call}\n so what</think>Done."));
    assert_eq!((parts.calls.len(), parts.text_without_calls.as_str()), (0, "Done."));
}

#[test]
fn made_up_results_and_tags_within_lines_bring_a_hint() {
    let hint = |text: &str| found(text).hint;
    let call = "<tool_call>{\"name\":\"undo\"}</tool_call>";
    assert_eq!(hint(&format!("I do {call}")), Some(FormHint::WithinLine));
    assert_eq!(
        hint("<tool_result name=\"bash\">\nok\n</tool_result>\nIt worked."),
        Some(FormHint::MadeUpResult)
    );
    assert_eq!(hint("Done: a < b."), None);
    assert_eq!(hint(&format!("{call}\nI do {call}")), None);
    for hint in [FormHint::WithinLine, FormHint::MadeUpResult] {
        assert!(hint.for_model().ends_with('.') && hint.for_person().is_none());
    }
}

#[test]
fn call_in_attributes_is_none_and_says_what_to_write() {
    let json = r#"{"path":"a","content":"b"}"#;
    for text in [
        format!("<tool_call name=\"write\" arguments={json}></tool_call>"),
        format!("<tool_call name=\"write\" arguments={json}>"),
    ] {
        let found = found(&text);
        assert_eq!((found.calls, found.hint), (vec![], None), "{text}");
        let why = &found.rejected[0].why;
        assert!(why.contains("attributes") && why.contains("```tool_call"), "{why}");
    }
    // Other attributes don't matter.
    let call = r#"{"name": "read", "arguments": {"path": "a"}}"#;
    assert_eq!(calls(&format!("<tool_call id=\"1\">{call}</tool_call>")).len(), 1);
    assert!(found("<tool_call>\n</tool_call>").rejected[0].why.contains("empty"));
}
