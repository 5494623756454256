//! `toolhold chat` on a full screen, in a real terminal.

use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use toolhold_tui::{About, ScreenState, Theme};

use super::terminal::Terminal;
use super::{Came, Scene, picture, until};

const ASKS: &str = "[tools]\nautonomy = \"ask\"";

/// What ends a full screen.
const LEAVES: &[u8] = b"\x1b[?1049l";
const SHOWS_CURSOR: &[u8] = b"\x1b[?25h";

impl Scene {
    /// A chat in a terminal of a size, ready for a message.
    #[track_caller]
    pub(super) fn chat(&self, size: (u16, u16), line: &[&str]) -> Terminal {
        let line: Vec<&str> = ["chat"].iter().chain(line).copied().collect();
        let terminal = Terminal::open(&self.cli.command(&line), size);
        terminal.until("the prompt", |screen| screen.contains("❯") && screen.contains("ready"));
        terminal
    }
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).rposition(|at| at == part)
}

#[track_caller]
fn assert_restored(bytes: &[u8]) {
    let [left, shown] = [LEAVES, SHOWS_CURSOR].map(|part| position(bytes, part));
    let entered = position(bytes, b"\x1b[?1049h");
    assert!(left > entered && shown > entered, "the terminal isn't given back");
    for off in [b"\x1b[?2004l".as_slice(), b"\x1b[?1004l"] {
        assert!(position(bytes, off) > entered, "{off:?} is missing");
    }
}

#[test]
fn task_is_typed_approved_and_done_on_the_screen() {
    let scene = Scene::new("chat", "", ASKS);
    scene.write("app.toml", "port = 8080\n");
    let mut terminal = scene.chat((24, 80), &[]);
    terminal.keys("edit: change the port\r");
    terminal.until_shows("y once · s this session");
    terminal.until_shows("+port = 9090");
    assert_eq!(scene.read("app.toml"), "port = 8080\n", "nobody has approved it");
    terminal.keys("y\r");
    terminal.until("its end", |screen| screen.contains("changed") && screen.contains("done · "));
    assert_eq!(scene.read("app.toml"), "port = 9090\n");
    terminal.keys("/undo\r");
    terminal.until_shows("Undo 1 call of the last turn?");
    terminal.keys("y");
    terminal.until_shows("› Yes");
    terminal.keys("\r");
    terminal.until_shows("Undone: 1 path.");
    assert_eq!(scene.read("app.toml"), "port = 8080\n");
    terminal.keys("\x04");
    let (code, bytes, left) = terminal.end();
    assert_eq!(code, 0);
    // The last answer and the way back stay on the normal screen.
    for said in ["changed", "toolhold chat --session "] {
        assert!(left.contains(said), "{said}: {left}");
    }
    assert_restored(&bytes);
    scene.assert_fine();
}

#[test]
fn no_with_words_reaches_the_model() {
    let scene = Scene::new("chat", "", ASKS);
    let mut terminal = scene.chat((24, 80), &[]);
    terminal.keys("person: write it\r");
    terminal.until_shows("y once");
    terminal.keys("n");
    terminal.until_shows("say why");
    terminal.keys("use second.txt\r");
    terminal.until("the other question", |screen| {
        screen.contains("second.txt\"") && screen.contains("y once")
    });
    terminal.keys("y\r");
    terminal.until_shows("second then");
    assert_eq!((scene.read("first.txt"), scene.read("second.txt")), (String::new(), "x".into()));
}

#[test]
fn other_model_answers_the_next_message() {
    let scene = Scene::new("chat", "", "");
    let mut terminal = scene.chat((24, 80), &[]);
    terminal.until_shows("with scripted/scripted");
    terminal.keys("answer: a\r");
    until_idle_after(&mut terminal, "You said: a");
    terminal.keys("/model other-model\r");
    terminal.until_shows("The next message goes to scripted/other-model.");
    terminal.keys("after: b\r");
    until_idle_after(&mut terminal, "I go on: b");
    // A new session keeps the model, and so does a session that goes on.
    terminal.keys("/clear\r");
    terminal.until_shows("with scripted/other-model");
    terminal.keys("answer: c\r");
    until_idle_after(&mut terminal, "You said: c");
    terminal.keys("/exit\r");
    assert_eq!(terminal.end().0, 0);
    let mut terminal = scene.chat((24, 80), &["--continue"]);
    terminal.until_shows("ready · scripted/other-model");
    terminal.keys("after: d\r");
    terminal.until_shows("I go on: d");
    let models: Vec<String> = scene.asked().into_iter().map(|[.., model]| model).collect();
    assert_eq!(models, ["scripted", "other-model", "other-model", "other-model"]);
    scene.assert_fine();
}

/// Waits for the answer, and for the end of the agent's work: until then, the chat refuses
/// commands.
fn until_idle_after(terminal: &mut Terminal, answer: &str) {
    terminal.until(answer, |screen| screen.contains(answer) && screen.contains("ready · "));
}

#[test]
fn pasted_lines_are_one_message_and_resizing_keeps_it() {
    let scene = Scene::new("chat", "", "");
    let mut terminal = scene.chat((24, 80), &[]);
    terminal.paste("answer: 宽字符 e\u{301}\nsecond line\r\nthird");
    terminal.until("the text", |screen| screen.contains("second line") && screen.contains("third"));
    assert_eq!(scene.model_file("requests"), None, "a paste sends nothing");
    terminal.resize(50, 200);
    terminal.until("the panel", |screen| screen.contains("│ Toolhold") && screen.contains("third"));
    terminal.keys("\r");
    terminal.until_shows("You said: 宽字符 e\u{301}");
    terminal.resize(20, 60);
    terminal.until("the small one", |screen| {
        screen.contains("You said: 宽字符 e\u{301}") && !screen.contains("│ Toolhold")
    });
    terminal.resize(8, 30);
    terminal.until_shows("too small");
    terminal.resize(24, 80);
    terminal.until_shows("You said: 宽字符");
}

#[test]
fn ten_megabytes_stream_while_keys_are_shown() {
    let scene = Scene::new("chat", "", "[agent]\nmax_secs = 600");
    let mut terminal = scene.chat((24, 80), &[]);
    terminal.keys("streams: 10\r");
    terminal.until("the first parts", |screen| screen.contains("writes"));
    terminal.keys("typed while it streams");
    terminal.until_shows("❯ typed while it streams");
    terminal.keys("\x15");
    terminal.until("the end", |screen| screen.contains("The end.") && screen.contains("done"));
    terminal.keys("\x1b[5~");
    terminal.until_shows("▼ more below");
    let bytes = terminal.bytes().len();
    assert!(bytes < 20_000_000, "{bytes} bytes for 10 MB: frames are skipped");
}

#[test]
fn tool_that_floods_shows_its_last_lines() {
    let scene = Scene::new("chat", "", "");
    let mut terminal = scene.chat((24, 80), &[]);
    terminal.keys("prints: 20000\r");
    terminal.until("its end", |screen| screen.contains("printed") && screen.contains("done · "));
    terminal.until_shows("ready");
    // The marks of untrusted text are for the model.
    assert!(!terminal.screen().contains("external-data"), "{}", terminal.screen());
    let printed = scene.run(&["prints: 3"]).ends(0).stderr;
    assert!(printed.contains("│ 1\n") && !printed.contains("external-data"), "{printed}");
}

#[test]
fn nothing_steers_the_terminal() {
    let scene = Scene::new("chat", "", "");
    scene.write("evil\u{1b}]0;taken\u{7}\u{1b}[2Jname", "x");
    let mut terminal = scene.chat((50, 200), &[]);
    terminal.keys("steers:\r");
    terminal.until("its end", |screen| screen.contains("end") && screen.contains("done · "));
    terminal.keys("@evil");
    terminal.keys("\x0f");
    terminal.until_shows("Press Enter to go back");
    terminal.keys("\r");
    terminal.until_shows("ready");
    terminal.keys("\x15\x04");
    let (code, bytes, _) = terminal.end();
    assert_eq!(code, 0);
    let text = String::from_utf8_lossy(&bytes);
    for evil in
        ["\u{1b}]0", "\u{1b}[31m\u{9b}", "\u{9b}", "\u{202e}", "\u{2066}", "\u{7f}", "\u{8}"]
    {
        assert!(!text.contains(evil), "{evil:?} reached the terminal");
    }
    // The screen is cleared when it opens and after it was left, and never by a text.
    let cleared = text.matches("\u{1b}[2J").count();
    assert!(cleared <= 3, "{cleared} times");
    assert!(text.contains("宽字符"));
}

#[test]
fn escape_ends_a_running_command_and_keeps_what_is_typed() {
    let scene = Scene::new("chat", "", "");
    let mut terminal = scene.chat((24, 80), &[]);
    terminal.keys("works: a long command\r");
    until("the command runs", || {
        scene.read("started.txt").is_empty() && scene.work().join("started.txt").exists()
    });
    terminal.keys("and then");
    terminal.until_shows("❯ and then");
    terminal.keys("\x1b");
    terminal
        .until("its end", |screen| screen.contains("interrupted") && screen.contains("❯ and then"));
    let commands = fs::read_dir("/proc")
        .expect("it is there")
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("cmdline")).ok());
    let work = scene.work().display().to_string();
    let left: Vec<_> =
        commands.filter(|line| line.contains("never.txt") && line.contains(&work)).collect();
    assert_eq!(left, Vec::<String>::new(), "the command still runs");
    terminal.keys("\x15after: an interruption\r");
    terminal.until_shows("I go on: an interruption");
    assert!(!scene.work().join("never.txt").exists());
}

#[test]
fn queued_message_runs_after_the_task() {
    let scene = Scene::new("chat", "", "");
    let mut terminal = scene.chat((24, 80), &[]);
    terminal.keys("foreground: 3\r");
    terminal.until_shows("runs 1 call");
    terminal.keys("answer: what waited\r");
    terminal.until_shows("queued: answer: what waited");
    terminal.until("its answer", |screen| {
        screen.contains("You said: what waited") && !screen.contains("queued:")
    });
}

#[test]
fn signals_give_the_terminal_back_and_end_the_task() {
    for signal in [Signal::TERM, Signal::HUP] {
        let scene = Scene::new("chat", "", "");
        let mut terminal = scene.chat((24, 80), &[]);
        terminal.keys("foreground: 30\r");
        terminal.until_shows("runs 1 call");
        terminal.signal(signal);
        let (_, bytes, _) = terminal.end();
        assert_restored(&bytes);
        let records = fs::read_dir(scene.cli.root.path().join("data/agent")).expect("it is there");
        let records = records.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
        let record: String = records.collect();
        assert!(record.contains("\"kind\":\"cancelled\""), "{signal:?}: {record}");
    }
}

#[test]
fn transcript_is_shown_on_the_normal_screen() {
    let scene = Scene::new("chat", "", "");
    let mut terminal = scene.chat((24, 80), &[]);
    terminal.keys("answer: for the transcript\r");
    terminal.until_shows("done · ");
    terminal.keys("\x0f");
    terminal.until_shows("Press Enter to go back");
    assert!(!terminal.look(vt100::Screen::alternate_screen));
    assert!(terminal.screen().contains("You said: for the transcript"));
    terminal.keys("\r");
    terminal.until_shows("ready");
    assert!(terminal.look(vt100::Screen::alternate_screen));
}

#[test]
fn stopped_chat_goes_on_where_it_was() {
    let scene = Scene::new("chat", "", "");
    let chat = scene.cli.command(&["chat"]);
    // A shell that does something else while its job is stopped.
    let mut shell = Command::new("/bin/bash");
    shell.args(["-c", "set -m; \"$0\" chat; echo stopped; read line; fg"]).arg(chat.get_program());
    shell.current_dir(scene.work()).env_clear().env("PATH", "/usr/bin:/bin");
    shell.envs(chat.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut terminal = Terminal::open(&shell, (24, 80));
    terminal.until_shows("ready");
    terminal.keys("draft");
    terminal.until_shows("❯ draft");
    terminal.keys("\x1a");
    terminal.until("the shell", |screen| screen.contains("stopped") && !screen.contains("draft"));
    terminal.keys("\r");
    terminal.until_shows("❯ draft");
    terminal.keys("\x15\x04");
    let (code, bytes, _) = terminal.end();
    assert_eq!(code, 0);
    assert_restored(&bytes);
}

#[test]
fn resumed_chat_shows_what_was_said() {
    let scene = Scene::new("chat", "", "");
    let first = scene.once(&["answer: in an earlier task"]);
    let mut terminal = scene.chat((24, 80), &["--continue"]);
    terminal.until_shows("You said: in an earlier task");
    terminal.keys("/clear\r");
    terminal.until("a new session", |screen| !screen.contains("You said"));
    terminal.keys("/resume\r");
    terminal.until("the session and its age", |screen| {
        screen.lines().any(|line| line.contains(&first.id()) && line.contains(" ago  answer: in"))
    });
    terminal.keys("\r");
    terminal.until_shows("You said: in an earlier task");
    // What was written in this directory comes back in the next chat.
    terminal.keys("answer: remembered\r");
    terminal.until_shows("You said: remembered");
    terminal.keys("/exit\r");
    assert_eq!(terminal.end().0, 0);
    let mut terminal = scene.chat((24, 80), &[]);
    terminal.keys("\x1b[A");
    terminal.until_shows("❯ answer: remembered");
}

#[test]
fn paths_are_completed_within_the_rules() {
    let scene = Scene::new("chat", "", "[tools.file]\ndeny_read = [\"hidden-*\"]");
    scene.write("sources/main.rs", "x");
    scene.write("sources/hidden-main.rs", "x");
    let mut terminal = scene.chat((24, 80), &[]);
    terminal.keys("look at @sources/main");
    terminal.until_shows("› @sources/main.rs");
    assert!(!terminal.screen().contains("hidden-main"));
    terminal.keys("\t");
    terminal.until_shows("❯ look at @sources/main.rs");
}

#[test]
fn without_a_full_terminal_there_are_lines() {
    let scene = Scene::new("chat", "", "");
    let line = ["chat", "--plain"];
    let mut terminal = Terminal::open(&scene.cli.command(&line), (24, 80));
    terminal.until_shows("> ");
    terminal.keys("answer: in lines\r");
    terminal.until_shows("You said: in lines");
    terminal.keys("/undo\r");
    terminal.until_shows("/undo works only in the full screen");
    terminal.keys("/exit\r");
    let (code, bytes, _) = terminal.end();
    assert_eq!((code, position(&bytes, b"\x1b[?1049h")), (0, None));
}

#[test]
fn questions_and_live_output_are_events() {
    let scene = Scene::new("chat", "", &format!("{ASKS}\n[approvals]\nwait_secs = 1"));
    let came = scene.once(&["person: write it"]);
    let find = |kind: &str| came.all.iter().find(|event| event["event"] == kind);
    let question = find("question").expect("it is asked");
    assert_eq!(question["tool"], "write");
    assert!(question["acts_on"][0].as_str().is_some_and(|path| path.ends_with("first.txt\"")));
    assert!(question["diff"].as_str().is_some_and(|diff| diff.contains("+x")), "{question}");
    let answered = find("answered").expect("it has an end");
    assert_eq!((&answered["id"], &answered["answer"]), (&question["id"], &"unanswered".into()));
    let scene = Scene::new("chat", "", "");
    let came = scene.once(&["prints: 20"]);
    let output = came.all.iter().find(|event| event["event"] == "call_output");
    assert!(output.is_some_and(|output| output["text"].as_str() > Some("1\n2\n")), "{output:?}");
}

/// The conversation as a screen shows it after these events.
fn folded(events: &[Value]) -> String {
    let mut state = ScreenState::new(Theme::new(false), About::default());
    for event in events {
        let event = serde_json::from_value(event.clone()).expect("it is an event");
        state.apply(event, Duration::ZERO);
    }
    state.transcript_text(80)
}

#[test]
fn screen_of_a_record_is_that_of_the_live_task() {
    let scene = Scene::new("chat", "", "");
    scene.write("app.toml", "port = 8080\n");
    let live = scene.once(&["edit: the port"]);
    let again = Came::from_ended(scene.run(&["--replay", &live.id(), "--json"]));
    let shown = folded(&live.all);
    assert!(shown.contains("✓ edit") && shown.contains("changed"), "{shown}");
    assert_eq!(shown, folded(&again.all));
}

/// The picture of the agent's page: two moments of one task.
#[test]
fn picture_can_be_made_again() {
    let scene = Scene::new("chat", "", "");
    scene.write("app.toml", "name = \"shop\"\nport = 8080\n");
    let mut command = scene.cli.command(&["chat"]);
    command.env("TOOLHOLD_TOOLS_AUTONOMY", "ask");
    let mut terminal = Terminal::open(&command, (24, 80));
    terminal.until_shows("ready");
    terminal.keys("picture: let the server listen on port 9090\r");
    terminal.until_shows("y once");
    let work = scene.work().display().to_string();
    let asked = terminal.look(|screen| picture::frame(screen, &work));
    terminal.keys("y\r");
    terminal.until_shows("done · ");
    terminal.until_shows("ready");
    let done = terminal.look(|screen| picture::frame(screen, &work));
    let made = picture::svg(&[asked, done]);
    let tmp = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tmp");
    fs::create_dir_all(tmp).expect("it can be made");
    fs::write(format!("{tmp}/chat.svg"), &made).expect("it can be written");
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/images/chat.svg");
    let committed = fs::read_to_string(committed).unwrap_or_default();
    let told = "docs/images/chat.svg is old: run `cargo xtask recording`";
    assert!(made == committed, "{told}\n{made}");
}
