//! Pictures of states, and what keys do.

use std::path::PathBuf;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};
use toolhold_agent::{QuestionAnswer, RunEvent};
use toolhold_core::{InquiryAnswer, Reply, Scope};
use toolhold_skills::{CustomCommand, CustomCommands, SkillOrigin};

use crate::effect::ScreenEffect;
use crate::state::{About, ScreenState};
use crate::theme::Theme;
use crate::view::draw;

const SECOND: Duration = Duration::from_secs(1);

/// A state, and a clock that the test moves.
struct Scene {
    state: ScreenState,
    now: Duration,
    effects: Vec<ScreenEffect>,
}

impl Scene {
    fn new() -> Self {
        let about = About {
            status: "limits    100 answers\n".to_owned(),
            model: String::new(),
            tools: "read  Reads a file\n".to_owned(),
            history: vec!["an earlier message".to_owned()],
            commands: CustomCommands::default(),
            notify: true,
        };
        let mut state = ScreenState::new(Theme::new(true), about);
        state.has_focus = Some(true);
        let mut scene = Self { state, now: SECOND, effects: Vec::new() };
        scene.event(
            json!({ "event": "session", "id": "69280a3c-5f1e9d2b7a40", "directory": "/work" }),
        );
        scene
    }

    fn event(&mut self, event: Value) {
        let event = serde_json::from_value(event).expect("it is an event");
        self.effects.extend(self.state.apply(event, self.now));
    }

    fn task(&mut self, text: &str) {
        self.event(json!({ "event": "task", "text": text, "provider": "local", "model": "scripted", "context": 32768 }));
    }

    fn text(&mut self, text: &str) {
        self.event(json!({ "event": "text_part", "text": text }));
    }

    fn call(&mut self, tool: &str, arguments: Value) {
        self.event(json!({ "event": "call", "id": "c1", "tool": tool, "arguments": arguments }));
    }

    fn ask(&mut self) {
        self.call("edit", json!({ "path": "app.toml", "old_string": "80", "new_string": "90" }));
        self.event(json!({
            "event": "question", "id": "q1", "call": "c1", "tool": "edit", "acts_on": ["\"/work/app.toml\""],
            "rule": "`edit` asks", "place": "[tools.permissions] in /c/toolhold.toml, line 3",
            "text": "edit needs approval (file)\n  acts on: writes \"/work/app.toml\"\n  change:\n  │ @@ -1 +1 @@\n  │ -port = 80\n  │ +port = 90\n  why: `edit` asks\n",
            "diff": "@@ -1 +1 @@\n-port = 80\n+port = 90\n",
            "always": "  always writes into /c/toolhold.toml:\n  │ [[tools.permissions.edit]]\n",
        }));
    }

    fn end(&mut self, kind: &str) {
        let spent = spent(2, 900, 300, 40);
        self.event(json!({ "event": "ended", "kind": kind, "spent": spent, "session": spent }));
    }

    fn key(&mut self, code: KeyCode) {
        self.key_with(code, KeyModifiers::NONE);
    }

    fn key_with(&mut self, code: KeyCode, modifiers: KeyModifiers) {
        let event = Event::Key(KeyEvent::new(code, modifiers));
        self.effects.extend(self.state.input(event, self.now));
    }

    fn control(&mut self, letter: char) {
        self.key_with(KeyCode::Char(letter), KeyModifiers::CONTROL);
    }

    fn write(&mut self, text: &str) {
        text.chars().for_each(|letter| self.key(KeyCode::Char(letter)));
    }

    fn wait(&mut self, seconds: u32) {
        self.state.was_drawn(self.now);
        self.now += SECOND * seconds;
    }

    fn effects(&mut self) -> Vec<ScreenEffect> {
        std::mem::take(&mut self.effects)
    }

    fn picture(&mut self, width: u16, height: u16) -> String {
        let backend = TestBackend::new(width, height);
        let mut terminal = Terminal::new(backend).expect("it is made");
        terminal.draw(|frame| draw(&mut self.state, frame, self.now)).expect("it is drawn");
        let text = terminal.backend().to_string();
        // It also lists the cells behind wide characters.
        let seen = |line: &str| line.split("\" Hidden by").next().unwrap_or_default().to_owned();
        let lines = text.lines().map(|line| seen(line).trim_matches('"').trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The picture in both sizes.
    #[track_caller]
    fn assert(&mut self, name: &str) {
        for (width, height) in [(80, 24), (200, 50)] {
            insta::assert_snapshot!(
                format!("{name}-{width}x{height}"),
                self.picture(width, height)
            );
        }
    }

    #[track_caller]
    fn assert_shows(&mut self, text: &str) {
        let picture = self.picture(80, 24);
        assert!(picture.contains(text), "no {text:?}:\n{picture}");
    }
}

fn spent(turns: u64, input: u64, cached: u64, output: u64) -> Value {
    json!({ "turns": turns, "input": input, "cache_read": cached, "cache_written": 0, "output": output, "cost": 0.0125 })
}

#[test]
fn empty_screen_says_what_to_do() {
    Scene::new().assert("empty");
}

#[test]
fn answer_is_shown_while_it_comes() {
    let mut scene = Scene::new();
    scene.task("what is here?\nall of it");
    scene.event(json!({ "event": "thinking_part", "text": "I should look first." }));
    scene.text(
        "# Here\n\n- a **list**\n- with `code`\n\n```rust\nfn main() {}\n```\n\nand the last wor",
    );
    scene.wait(65);
    scene.assert("streaming");
}

#[test]
fn running_call_shows_its_last_output() {
    let mut scene = Scene::new();
    scene.task("build it");
    scene.call("bash", json!({ "command": "cargo build" }));
    let lines: String = (0..40).map(|number| format!("Compiling part {number}\n")).collect();
    scene.event(json!({ "event": "call_output", "id": "c1", "text": lines, "left_out": 7 }));
    scene.assert("running");
}

#[test]
fn result_is_folded_and_counts_for_the_filters() {
    let mut scene = Scene::new();
    scene.task("test it");
    scene.call("bash", json!({ "command": "cargo test" }));
    let text: String = (0..30).map(|number| format!("test {number} ok\n")).collect();
    scene.event(json!({
        "event": "result", "id": "c1", "tool": "bash", "failed": false, "text": text,
        "filtered": { "filters": ["cargo-test"], "confidence": "full", "lines": [400, 30], "bytes": [9000, 600] },
    }));
    scene.event(
        json!({ "event": "answer", "text": "done", "calls": 0, "spent": spent(1, 900, 300, 40) }),
    );
    scene.end("done");
    scene.assert("result");
    scene.control('t');
    scene.assert_shows("test 14 ok");
}

#[test]
fn question_is_asked_inline_with_its_diff() {
    let mut scene = Scene::new();
    scene.task("change the port");
    scene.ask();
    scene.assert_shows("…");
    scene.state.was_drawn(scene.now);
    scene.key(KeyCode::Char('y'));
    assert_eq!(scene.effects(), [], "what is typed at once was meant for something else");
    scene.control('u');
    scene.wait(1);
    scene.assert("question");
    scene.key(KeyCode::Char('y'));
    assert_eq!(scene.effects(), [], "a message can begin with it");
    scene.key(KeyCode::Enter);
    let yes = Reply::Yes { scope: Scope::Once, by: "terminal".to_owned() };
    assert_eq!(scene.effects(), [ScreenEffect::Reply("q1".to_owned(), yes)]);
    scene.wait(9);
    scene.event(json!({ "event": "answered", "id": "q1", "answer": "once", "by": "terminal" }));
    assert_eq!(scene.state.time(scene.now), Duration::ZERO, "waiting for a person doesn't count");
    scene.assert_shows("approved (terminal)");
    scene.assert_shows("+port = 90");
}

#[test]
fn permanent_approval_takes_a_second_key_and_shows_its_rule() {
    let mut scene = Scene::new();
    scene.task("change the port");
    scene.ask();
    scene.wait(1);
    scene.key(KeyCode::Char('a'));
    scene.assert_shows("[[tools.permissions.edit]]");
    scene.key(KeyCode::Esc);
    scene.key(KeyCode::Enter);
    assert_eq!(scene.effects(), [], "Esc goes back");
    scene.wait(1);
    scene.key(KeyCode::Char('a'));
    scene.key(KeyCode::Enter);
    let yes = Reply::Yes { scope: Scope::Always, by: "terminal".to_owned() };
    assert_eq!(scene.effects(), [ScreenEffect::Reply("q1".to_owned(), yes)]);
}

#[test]
fn tab_widens_an_approval_and_shows_what_it_covers() {
    let mut scene = Scene::new();
    scene.task("commit it");
    scene.call("git__commit", json!({ "message": "x" }));
    scene.event(json!({
        "event": "question", "id": "q1", "call": "c1", "tool": "git__commit", "acts_on": [],
        "rule": "autonomy = \"ask\"", "place": "the default of [tools]",
        "text": "git__commit needs approval (git)\n  message: \"x\"\n",
        "always": "  always writes into /c/toolhold.toml:\n  │ [[tools.permissions.git__commit]]\n",
        "wider": [
            { "scope": "session_tool", "text": "any call of git__commit in this session" },
            { "scope": "session_source", "text": "every tool of git in this session" },
            { "scope": "always_source", "text": "[[tools.permissions.\"git__*\"]]\n" },
        ],
    }));
    scene.wait(1);
    scene.key(KeyCode::Char('s'));
    scene.key(KeyCode::Tab);
    scene.assert_shows("any call of git__commit in this session");
    scene.key(KeyCode::Tab);
    scene.assert_shows("every tool of git in this session");
    scene.key(KeyCode::Esc);
    scene.wait(1);
    scene.key(KeyCode::Char('a'));
    scene.key(KeyCode::Tab);
    scene.assert_shows("[[tools.permissions.\"git__*\"]]");
    scene.key(KeyCode::Enter);
    let yes = Reply::Yes { scope: Scope::AlwaysSource, by: "terminal".to_owned() };
    assert_eq!(scene.effects(), [ScreenEffect::Reply("q1".to_owned(), yes)]);
}

#[test]
fn no_takes_words_for_the_agent() {
    let mut scene = Scene::new();
    scene.task("change the port");
    scene.ask();
    scene.wait(1);
    scene.key(KeyCode::Char('n'));
    scene.write("use 8080");
    scene.assert("refusing");
    scene.key(KeyCode::Enter);
    let no = Reply::No { by: "terminal".to_owned(), reason: "use 8080".to_owned() };
    assert_eq!(scene.effects(), [ScreenEffect::Reply("q1".to_owned(), no)]);
    scene.event(json!({ "event": "answered", "id": "q1", "answer": "no", "by": "terminal", "reason": "use 8080" }));
    scene.event(json!({
        "event": "result", "id": "c1", "tool": "edit", "failed": true, "category": "confirmation_required",
        "text": "error: edit was refused: use 8080\nsuggestion: ask\n",
    }));
    scene.assert("refused");
}

#[test]
fn commands_show_the_cost_and_choose_the_model() {
    let mut scene = Scene::new();
    scene.task("count");
    scene.event(
        json!({ "event": "answer", "text": "done", "calls": 0, "spent": spent(1, 900, 300, 40) }),
    );
    scene.end("done");
    scene.write("/cost");
    scene.key(KeyCode::Enter);
    scene.assert_shows("cost      0.0125");
    scene.effects();
    scene.write("/model");
    scene.key(KeyCode::Enter);
    assert_eq!(scene.effects(), []);
    scene.assert_shows("/model NAME asks another model");
    scene.write("/model ollama/qwen3");
    scene.key(KeyCode::Enter);
    assert_eq!(scene.effects(), [ScreenEffect::Model("ollama/qwen3".to_owned())]);
    scene.state.end_command();
    scene.write("/rewind");
    scene.key(KeyCode::Enter);
    assert_eq!(scene.effects(), [ScreenEffect::Rewind]);
}

#[test]
fn status_line_has_cost_and_turns_at_every_width() {
    let mut scene = Scene::new();
    scene.task("count");
    scene.event(json!({ "event": "asking", "tokens": 7900, "tools": 6000 }));
    scene.event(
        json!({ "event": "answer", "text": "done", "calls": 0, "spent": spent(1, 900, 300, 40) }),
    );
    for width in 40..110 {
        let picture = scene.picture(width, 24);
        let line = picture.lines().last().unwrap_or_default();
        assert!(line.contains("cost 0.0125") && line.contains("turns 1"), "{width}: {line}");
    }
}

#[test]
fn panel_breaks_between_words() {
    let mut scene = Scene::new();
    scene.task("count");
    scene.event(json!({ "event": "asking", "tokens": 4181, "tools": 3000 }));
    let picture = scene.picture(120, 24);
    assert!(picture.contains("phase    model reads 4,181"), "{picture}");
    assert!(picture.contains("│          tokens"), "{picture}");
}

#[test]
fn dialog_takes_the_first_letter_of_a_choice() {
    let mut scene = Scene::new();
    let choices = vec!["No".to_owned(), "Yes".to_owned()];
    scene.state.open_dialog("Undo?", choices, false);
    scene.key(KeyCode::Char('y'));
    scene.assert_shows("› Yes");
    assert_eq!(scene.effects(), []);
    scene.key(KeyCode::Enter);
    assert_eq!(scene.effects(), [ScreenEffect::Picked(Some(1))]);
}

#[test]
fn typing_a_message_answers_nothing() {
    let mut scene = Scene::new();
    scene.task("change the port");
    scene.write("yes");
    scene.ask();
    scene.wait(5);
    scene.assert_shows("first send or delete your text");
    scene.write("y");
    assert_eq!(scene.effects(), []);
    scene.state.input(Event::Paste("y\r".to_owned()), scene.now);
    assert_eq!(scene.effects(), []);
    assert_eq!(scene.state.editor.text(), "yesyy\n");
}

#[test]
fn message_that_begins_while_a_question_is_open_approves_nothing() {
    for message in ["this is wrong, stop", "stop", "yes, but later", "a", "hello y", "wait"] {
        let mut scene = Scene::new();
        scene.task("change the port");
        scene.ask();
        scene.wait(1);
        for letter in message.chars() {
            scene.key(KeyCode::Char(letter));
            scene.now += Duration::from_millis(120);
        }
        assert_eq!(scene.effects(), [], "{message}");
        if message.len() > 1 {
            assert_eq!(scene.state.editor.text(), message);
        }
    }
}

#[test]
fn question_that_was_never_visible_is_not_answered() {
    let mut scene = Scene::new();
    scene.task("change the port");
    scene.ask();
    scene.state.is_visible = false;
    scene.state.was_drawn(scene.now);
    scene.now += Duration::from_secs(3);
    scene.key(KeyCode::Char('y'));
    scene.key(KeyCode::Enter);
    let approves = |effect: &ScreenEffect| matches!(effect, ScreenEffect::Reply(..));
    assert!(!scene.effects().iter().any(approves));
}

#[test]
fn questions_queue_and_say_who_asks() {
    let mut scene = Scene::new();
    scene.task("change it");
    scene.ask();
    let text = "bash needs approval\n";
    scene.event(json!({
        "event": "question", "id": "q2", "call": "c2", "caller": "helper \u{1b}[2J", "tool": "bash", "acts_on": [],
        "rule": "r", "place": "p", "text": text,
    }));
    scene.wait(1);
    scene.assert_shows("1 more to answer");
    scene.event(json!({ "event": "answered", "id": "q1", "answer": "unanswered", "by": "" }));
    scene.wait(1);
    scene.assert_shows("asked by helper \u{fffd}[2J");
    scene.assert_shows("y once · s this session · n no, then Enter");
    scene.end("cancelled");
    assert!(scene.state.questions.is_empty());
}

#[test]
fn long_question_is_read_line_by_line() {
    let mut scene = Scene::new();
    scene.task("x");
    let lines: String = (0..60).map(|number| format!("  │ line {number}\n")).collect();
    scene.event(json!({
        "event": "question", "id": "q1", "call": "c1", "tool": "write", "acts_on": [], "rule": "r", "place": "p",
        "text": format!("write needs approval\n  content:\n{lines}  why: r\n"),
    }));
    scene.wait(1);
    scene.assert_shows("lines 1 to ");
    (0..100).for_each(|_| scene.key(KeyCode::Down));
    scene.assert_shows("  why: r");
}

#[test]
fn form_of_a_tool_is_answered_field_by_field_and_secrets_are_masked() {
    let mut scene = Scene::new();
    scene.task("x");
    scene.event(json!({
        "event": "inquiry", "id": "c1/1", "call": "c1", "text": "The server `s` has a question for you:\n│ who?\n",
        "form": { "type": "object", "required": ["name"], "properties": {
            "name": { "type": "string", "enum": ["ann", "bob"] },
            "token": { "type": "string", "format": "password" },
        } },
    }));
    scene.wait(1);
    scene.key(KeyCode::Char('y'));
    scene.write("3");
    scene.key(KeyCode::Enter);
    scene.assert_shows("Please answer with a number of the list.");
    scene.control('u');
    scene.write("2");
    scene.key(KeyCode::Enter);
    scene.write("abc");
    scene.assert_shows("❯ •••");
    scene.key(KeyCode::Enter);
    let [ScreenEffect::Inform(_, InquiryAnswer::Accepted { content, .. })] = &scene.effects()[..]
    else {
        panic!("it is answered");
    };
    assert_eq!(json!(content), json!({ "name": "bob", "token": "abc" }));
}

#[test]
fn message_waits_while_the_agent_works_and_runs_after_it() {
    let mut scene = Scene::new();
    scene.task("first");
    scene.write("second");
    scene.key(KeyCode::Enter);
    scene.write("third");
    scene.key(KeyCode::Enter);
    scene.assert("queued");
    scene.key(KeyCode::Up);
    assert_eq!(scene.state.editor.text(), "third", "the last one is taken back");
    scene.effects();
    scene.end("done");
    assert_eq!(scene.effects(), [ScreenEffect::Send("second".to_owned())]);
    scene.task("second");
    assert!(scene.state.queued.is_empty());
}

#[test]
fn interrupted_task_gives_back_what_waits() {
    let mut scene = Scene::new();
    scene.task("first");
    scene.write("second");
    scene.key(KeyCode::Enter);
    scene.write("draft");
    scene.effects();
    scene.key(KeyCode::Esc);
    assert_eq!(scene.effects(), [ScreenEffect::Interrupt]);
    scene.end("cancelled");
    assert_eq!(scene.effects(), []);
    assert_eq!(scene.state.editor.text(), "second\ndraft");
}

#[test]
fn failure_says_why() {
    let mut scene = Scene::new();
    scene.task("read it");
    scene.call("read", json!({ "path": "/etc/shadow" }));
    scene.event(json!({
        "event": "result", "id": "c1", "tool": "read", "failed": true, "category": "policy_blocked",
        "text": "error: reading /etc/shadow is not allowed\n  rule: no grant\n  fix: allowed_paths = [\"/etc\"]\nsuggestion: none\n",
    }));
    scene.event(json!({ "event": "notice", "text": "1 old result is left out" }));
    scene.event(json!({ "event": "ended", "kind": "error", "reason": "the model can't be asked", "spent": spent(1, 1, 0, 0), "session": spent(1, 1, 0, 0) }));
    scene.assert("failure");
}

#[test]
fn commands_and_paths_are_completed() {
    let mut scene = Scene::new();
    scene.write("/");
    scene.assert("commands");
    scene.write("st");
    scene.key(KeyCode::Enter);
    scene.assert("status");
    scene.write("look at @src");
    assert_eq!(scene.effects().pop(), Some(ScreenEffect::Complete("src".to_owned())));
    let paths = ["src/main.rs", "src/a b", "src/\u{202e}x", "src/lib.rs"].map(str::to_owned);
    scene.state.offer("src", &paths);
    scene.key(KeyCode::Down);
    scene.key(KeyCode::Tab);
    assert_eq!(scene.state.editor.text(), "look at @src/lib.rs ");
    scene.control('u');
    scene.write("/nonsense");
    scene.key(KeyCode::Enter);
    scene.assert_shows("there is no /nonsense; the commands are /help, /compact");
    scene.write("/help");
    scene.key(KeyCode::Enter);
    scene.assert_shows("Ctrl-C interrupts the agent");
    scene.write("/clear all");
    scene.key(KeyCode::Enter);
    scene.assert_shows("/clear takes no arguments");
    let sends =
        |scene: &mut Scene| scene.effects().iter().any(|it| matches!(it, ScreenEffect::Send(_)));
    assert!(!sends(&mut scene));
    scene.write("/etc/hosts is which file?");
    scene.key(KeyCode::Enter);
    assert!(sends(&mut scene));
}

#[test]
fn custom_commands_are_completed_listed_and_sent() {
    let mut scene = Scene::new();
    for (name, origin) in [("review", SkillOrigin::User), ("rest", SkillOrigin::Untrusted)] {
        scene.state.about.commands.found.push(CustomCommand {
            name: name.to_owned(),
            description: "reviews a file".to_owned(),
            path: PathBuf::new(),
            origin,
            source: "Review $ARGUMENTS.".to_owned(),
            digest: String::new(),
        });
    }
    scene.write("/rev");
    scene.assert_shows("› /review      reviews a file");
    scene.key(KeyCode::Tab);
    scene.write(" a.rs");
    scene.key(KeyCode::Enter);
    let remembered = ScreenEffect::Remember("/review a.rs".to_owned());
    assert_eq!(scene.effects(), [remembered, ScreenEffect::Send("Review a.rs.".to_owned())]);
    scene.state.end_command();
    scene.write("/rest");
    scene.key(KeyCode::Enter);
    scene.assert_shows("you haven't trusted it");
    assert_eq!((scene.effects(), scene.state.editor.text()), (vec![], "/rest"));
    scene.control('u');
    scene.write("/help");
    scene.key(KeyCode::Enter);
    for shown in ["/review      reviews a file", "/rest        of the project, not trusted"] {
        scene.assert_shows(shown);
    }
}

#[test]
fn history_is_walked_and_the_draft_comes_back() {
    let mut scene = Scene::new();
    scene.write("now");
    scene.key(KeyCode::Enter);
    let sent = [ScreenEffect::Remember("now".to_owned()), ScreenEffect::Send("now".to_owned())];
    assert_eq!(scene.effects(), sent);
    scene.write("draft");
    scene.key(KeyCode::Up);
    scene.key(KeyCode::Up);
    scene.key(KeyCode::Up);
    assert_eq!(scene.state.editor.text(), "an earlier message");
    scene.key(KeyCode::Down);
    scene.key(KeyCode::Down);
    assert_eq!(scene.state.editor.text(), "draft");
}

#[test]
fn keys_leave_only_where_nothing_is_lost() {
    let mut scene = Scene::new();
    scene.write("x");
    scene.control('d');
    scene.control('c');
    assert_eq!((scene.effects(), scene.state.editor.is_empty()), (vec![], true));
    scene.control('d');
    assert_eq!(scene.effects(), [ScreenEffect::Leave]);
    scene.task("x");
    scene.control('c');
    assert_eq!(scene.effects(), [ScreenEffect::Interrupt]);
}

#[test]
fn new_lines_are_written_and_pasted() {
    let mut scene = Scene::new();
    scene.write("one");
    scene.key_with(KeyCode::Enter, KeyModifiers::ALT);
    scene.control('j');
    scene.state.input(Event::Paste("two\r\n\u{1b}[31mthree".to_owned()), scene.now);
    assert_eq!(scene.state.editor.text(), "one\n\ntwo\n\u{fffd}[31mthree");
    assert_eq!(scene.effects(), []);
    scene.assert_shows("[31mthree");
}

#[test]
fn small_terminal_keeps_the_state() {
    let mut scene = Scene::new();
    scene.task("x");
    scene.text("answer");
    scene.write("draft");
    let small = scene.picture(30, 8);
    assert!(small.contains("too small") && !small.contains("answer"), "{small}");
    assert!(scene.picture(1, 1).len() <= 4);
    scene.assert_shows("answer");
    scene.assert_shows("❯ draft");
    assert!(scene.picture(60, 20).contains("answer"));
}

#[test]
fn without_colours_the_picture_has_no_colour() {
    let mut scene = Scene::new();
    scene.state.theme = Theme::new(false);
    scene.state.transcript = crate::transcript::Transcript::new(Theme::new(false));
    scene.task("x");
    scene.text("`code` [link](https://a.example) **bold**");
    scene.ask();
    scene.wait(1);
    let mut terminal = Terminal::new(TestBackend::new(120, 30)).expect("it is made");
    terminal.draw(|frame| draw(&mut scene.state, frame, scene.now)).expect("it is drawn");
    let cells = terminal.backend().buffer().content();
    let is_plain = |colour| colour == ratatui::style::Color::Reset;
    assert!(cells.iter().all(|cell| is_plain(cell.fg) && is_plain(cell.bg)));
}

#[test]
fn nothing_that_steers_a_terminal_is_drawn() {
    let mut scene = Scene::new();
    let evil = "\u{1b}]0;x\u{7}\u{1b}[2J\u{9b}31m\u{202e}\u{2066}\u{200f}\u{7f}\r";
    scene.task(evil);
    scene.text(evil);
    scene.event(json!({ "event": "thinking_part", "text": evil }));
    scene.call(evil, json!({ "path": evil }));
    scene.event(json!({ "event": "call_output", "id": "c1", "text": evil }));
    scene.event(json!({ "event": "notice", "text": evil }));
    scene.event(json!({ "event": "session", "id": evil, "directory": evil }));
    scene.state.offer(evil, &[evil.to_owned()]);
    scene.state.open_dialog(evil, vec![evil.to_owned()], false);
    for (width, height) in [(80, 24), (200, 50)] {
        let picture = scene.picture(width, height);
        let is_evil = |c: char| c.is_control() && c != '\n' || "\u{202e}\u{2066}".contains(c);
        assert!(!picture.chars().any(is_evil), "{picture:?}");
    }
    let text = scene.state.transcript_text(80);
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n' || "\u{202e}".contains(c)),
        "{text:?}"
    );
}

#[test]
fn wide_characters_stay_in_their_columns() {
    let mut scene = Scene::new();
    scene.task("字字 e\u{301} 👩\u{200d}💻");
    scene.text(&"宽字符 ".repeat(60));
    scene.assert("wide");
}

#[test]
fn notification_is_for_a_person_who_looks_elsewhere() {
    for (focus, expected) in [(Some(true), 0), (Some(false), 1), (None, 1)] {
        let mut scene = Scene::new();
        scene.state.has_focus = focus;
        scene.task("x");
        scene.ask();
        let told = scene.effects().iter().filter(|it| **it == ScreenEffect::Notify).count();
        assert_eq!(told, expected, "{focus:?}");
    }
}

#[test]
fn fold_of_lines_is_the_fold_of_events() {
    let mut scene = Scene::new();
    scene.task("x");
    scene.ask();
    scene.event(json!({ "event": "answered", "id": "q1", "answer": "session", "by": "terminal" }));
    scene.text("an *answer*");
    scene.end("done");
    let mut other = Scene::new();
    let answered = RunEvent::Answered {
        id: "q1".to_owned(),
        answer: QuestionAnswer::Session,
        by: "terminal".to_owned(),
        reason: String::new(),
    };
    other.task("x");
    other.ask();
    other.event(serde_json::to_value(answered).expect("it is JSON"));
    other.text("an *answer*");
    other.end("done");
    assert_eq!(scene.picture(200, 50), other.picture(200, 50));
}

#[test]
fn idle_screen_doesnt_change_by_itself() {
    let mut scene = Scene::new();
    assert_eq!(scene.state.next_change(scene.now), None);
    scene.task("x");
    assert_eq!(scene.state.next_change(scene.now), Some(scene.now + SECOND));
    scene.end("done");
    assert_eq!(scene.state.next_change(scene.now), None);
}

#[test]
fn question_that_nobody_could_see_takes_no_key() {
    let mut scene = Scene::new();
    scene.task("x");
    scene.ask();
    // The terminal is slow: the question isn't on it yet.
    scene.now += 10 * SECOND;
    scene.key(KeyCode::Char('y'));
    assert_eq!((scene.effects(), scene.state.editor.text()), (vec![], "y"));
}
