//! Limits of a task, and a context that holds.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{FORMATS, Scene};

const FULL: &str = "[tools]\nautonomy = \"full\"";
const PRICES: &str =
    "prices = { input = 3.0, output = 15.0, cache_read = 0.3, cache_write = 3.75 }";

/// All tools are offered, also if they take more than a quarter of the context.
const ALL_TOOLS: &str = "tool_filter.budget_percent = 100";

fn scene(provider: &str, agent: &str) -> Scene {
    let scene = Scene::new("chat", provider, &format!("{FULL}\n[agent]\n{agent}"));
    for at in 0..10 {
        scene.write(&format!("numbers/{at}.txt"), format!("value {at}\n"));
    }
    scene
}

/// Files to read one after the other: together far more than the context.
fn pages(scene: &Scene) {
    for at in 0..24 {
        scene.write(&format!("pages/{at}.txt"), format!("{}\npage {at}\n", "words ".repeat(600)));
    }
}

#[test]
fn each_limit_ends_a_task_that_can_go_on() {
    for (provider, agent, name) in [
        ("", "max_turns = 2", "max_turns"),
        ("", "max_tokens = 12000", "max_tokens"),
        (PRICES, "max_cost = 0.02", "max_cost"),
    ] {
        let scene = scene(provider, agent);
        let came = scene.task(&["steps: 9"]).ends(5, name);
        let turns = came.events_of("ended")[0]["spent"]["turns"].as_u64().expect("a number");
        assert!((1..9).contains(&turns), "{name}: {turns}");
        let more = scene.once(&["--continue", "answer: on"]);
        assert_eq!(more.id(), came.id());
        more.assert_answer(0, "You said: on");
    }
}

#[test]
fn limit_of_time_ends_an_answer_and_a_command() {
    let scene = scene("", "max_secs = 1");
    for task in ["hang_text:", "works:"] {
        let begun = Instant::now();
        scene.task(&[task]).ends(5, "max_secs");
        assert!(begun.elapsed() < Duration::from_secs(10), "{task}: {:?}", begun.elapsed());
    }
    assert!(!scene.work().join("never.txt").exists());
}

#[test]
fn session_that_is_too_large_ends_and_stays_readable() {
    let scene = scene("context_tokens = 1000000", "session_mib = 1");
    let came = scene.once(&["big:"]).ends(4, "session_mib");
    assert!(std::fs::metadata(scene.record(&came.id())).expect("it is there").len() <= 1 << 20);
    scene.cli.run(&["run", "sessions", "show", &came.id()]).ends(0);
    scene.run(&["--continue", "answer: a"]).ends(0);
}

#[test]
fn cost_needs_prices() {
    let scene = scene("", "max_cost = 0.02");
    let refused = scene.run(&["answer: a"]);
    assert!(refused.code != 0 && refused.stderr.contains("prices"), "{}", refused.stderr);
    assert_eq!(scene.bodies().len(), 0, "nothing was asked");
}

#[test]
fn prefix_of_each_request_is_that_of_the_one_before() {
    for (format, provider) in
        FORMATS.map(|it| (it, "")).into_iter().chain([("chat", "native_tools = false")])
    {
        let scene = Scene::new(format, provider, FULL);
        for at in 0..10 {
            scene.write(&format!("numbers/{at}.txt"), format!("value {at}\n"));
        }
        scene.once(&["steps: 3"]).assert_answer(0, "3 steps");
        scene.once(&["--continue", "steps: 2"]).assert_answer(0, "2 steps");
        let bodies: Vec<Value> = scene
            .bodies()
            .iter()
            .map(|body| serde_json::from_str(body).expect("it is JSON"))
            .collect();
        assert_eq!(bodies.len(), 7, "{format}");
        let list = if format == "responses" { "input" } else { "messages" };
        for pair in bodies.windows(2) {
            let [one, two] = pair else { unreachable!() };
            let rest = |body: &Value| {
                let mut body = body.clone();
                body.as_object_mut().expect("an object").remove(list);
                without_marks(&mut body);
                body.to_string()
            };
            assert_eq!(rest(one), rest(two), "{format}: what is around the messages changes");
            let texts = |body: &Value| -> Vec<String> {
                let mut messages = body[list].as_array().expect("a list").clone();
                messages.iter_mut().for_each(without_marks);
                messages.iter().map(Value::to_string).collect()
            };
            let (one, two) = (texts(one), texts(two));
            assert!(two.len() > one.len() && two.starts_with(&one), "{format}: the prefix changed");
        }
        // What the provider's cache gets again, byte for byte: all but the end of the request.
        if format == "chat" || format == "ollama" {
            for pair in scene.bodies().windows(2) {
                let same = pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count();
                assert!(same + 200 > pair[0].len(), "{format}: {same} of {}", pair[0].len());
            }
        }
    }
}

/// Without the marks of what is cached, which move with each request.
fn without_marks(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(without_marks);
        }
        Value::Array(items) => items.iter_mut().for_each(without_marks),
        _ => {}
    }
}

#[test]
fn old_results_leave_a_small_context() {
    let scene = scene("context_tokens = 16000\nmax_output_tokens = 1000", "");
    pages(&scene);
    let came = scene.task(&["reads_on: 20"]).assert_answer(0, "read to 20");
    let notices = came.events_of("notice");
    assert!(notices.iter().any(|it| it["text"].to_string().contains("left out")), "{notices:?}");
    for body in scene.bodies() {
        assert!(body.len() / 4 < 16_000, "{} bytes are more than the model reads", body.len());
    }
    let bodies = scene.bodies();
    let last = bodies.last().expect("it was asked");
    assert!(last.contains("An old result of"), "the model is told what is missing");
}

#[test]
fn server_that_reads_less_than_toolhold_believes_is_asked_with_less() {
    let scene = scene("context_tokens = 60000\nmax_output_tokens = 1000", "");
    pages(&scene);
    std::fs::write(scene.cli.root.path().join("model/window"), "9000").expect("it is written");
    scene.task(&["reads_on: 20"]).assert_answer(0, "read to 20");
}

#[test]
fn result_that_is_too_large_ends_one_task_alone() {
    let scene = scene("context_tokens = 9000\nmax_output_tokens = 1000", "");
    scene.task(&["large:"]).ends(5, "context_tokens");
    scene.task(&["--continue", "answer: more"]).assert_answer(0, "You said: more");
}

#[test]
fn record_that_cannot_be_written_stays_whole() {
    let scene = scene("context_tokens = 1000000", "");
    // The disk is full after 600 KiB of any file.
    let toolhold = crate::support::toolhold().display().to_string();
    let shell = format!("trap '' XFSZ; ulimit -f 600; exec {toolhold} run --json big:");
    let whole = scene.command(&[]);
    let mut command = std::process::Command::new("/bin/bash");
    command.args(["-c", &shell]).current_dir(scene.work()).env_clear();
    command.envs(whole.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = crate::support::Ended::from_output(command.output().expect("it starts"));
    let came = super::Came::from_ended(ended).ends(4, "File too large");
    let record = scene.cli.run(&["run", "sessions", "export", &came.id()]).ends(0).stdout;
    let last = record.lines().last().expect("it has lines");
    assert!(last.starts_with("{\"ended\":"), "the end is missing: {}", &last[..last.len().min(80)]);
    scene.cli.run(&["run", "sessions", "show", &came.id()]).ends(0);
    scene.once(&["--session", &came.id(), "answer: more"]).assert_answer(0, "You said: more");
}

#[test]
fn full_context_is_summarised() {
    // The tools alone are a good part of it, so that leaving results out isn't enough.
    let scene = scene("context_tokens = 8400\nmax_output_tokens = 1000", ALL_TOOLS);
    pages(&scene);
    let came = scene.task(&["reads_on: 20"]);
    for body in scene.bodies() {
        assert!(body.len() / 4 < 8_400, "{} bytes are more than the model reads", body.len());
    }
    let came = came.assert_answer(0, "read to 20");
    let notices = came.events_of("notice");
    assert!(notices.iter().any(|it| it["text"].to_string().contains("summarised")), "{notices:?}");
    // Both models were asked: the one that works, and the one that summarises.
    let (answers, requests) = (came.events_of("answer").len(), scene.bodies().len());
    assert!(requests > answers, "{requests} requests, {answers} answers");
    // A summary that says nothing changes nothing, but counts.
    let wasted = scene.task(&["waste: 20"]).ends(5, "context_tokens");
    assert!(wasted.events_of("notice").iter().any(|it| it["text"].to_string().contains("empty")));
    let turns = &wasted.events_of("ended")[0]["spent"]["turns"];
    assert_eq!(turns, wasted.events_of("answer").len() + 1, "the summary counts");
    // The session goes on from its summary.
    scene.once(&["--continue", "answer: more"]).assert_answer(0, "You said: more");
}

#[test]
fn summary_costs_what_its_own_model_costs() {
    let agent = format!("provider = \"scripted\"\ncompress_provider = \"dear\"\n{ALL_TOOLS}");
    let scene = scene("context_tokens = 8400\nmax_output_tokens = 1000", &agent);
    pages(&scene);
    let config = scene.cli.root.path().join("config/toolhold.toml");
    let cheap = std::fs::read_to_string(config).expect("it is there");
    let at = cheap.find("[providers.scripted]").expect("it has the provider");
    let dear = cheap[at..].replace("providers.scripted", "providers.dear");
    scene.cli.configure(&format!("{cheap}\n{dear}\n[providers.dear.prices]\noutput = 1000.0\n"));
    let came = scene.once(&["reads_on: 20"]).assert_answer(0, "read to 20");
    let cost = |value: &Value| value["spent"]["cost"].as_f64().expect("a number");
    assert!(came.events_of("answer").iter().all(|answer| answer["spent"]["cost"].is_null()));
    assert!(cost(came.events_of("ended")[0]) > 0.0, "the summary costs");
    // What nobody has a price for can't be bounded.
    let bounded = scene.once(&["--model", "dear", "answer: on"]).assert_answer(0, "You said: on");
    assert!(cost(bounded.events_of("ended")[0]) > 0.0);
    let unpriced = scene.run(&[
        "--set",
        "agent.max_cost=5",
        "--model",
        "dear",
        "--set",
        "agent.compress_provider=scripted",
        "answer: on",
    ]);
    assert!(
        unpriced.code == 4 && unpriced.stderr.contains("[providers.scripted.prices]"),
        "{}",
        unpriced.stderr
    );
}
