//! The table of attacks, and what they are made of.

use serde_json::Value;

pub(crate) use crate::bindings::berth::tool::types::{Body, Category, Content, Failure, Output};
use crate::{exhaustion, floods, handles, links, outside, provisional, words, world};

/// One attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// Whether the tool says that it changes nothing.
    pub(crate) claims_to_read_only: bool,
    pub(crate) run: fn(&Arguments) -> Loot,
}

/// What an attack comes to: what it got, or how it was refused.
pub(crate) type Loot = Result<Output, Failure>;

/// All of them.
pub(crate) const ATTACKS: &[Attack] = &[
    attack("loop_forever", "Never comes to an end.", exhaustion::loop_forever),
    attack("loop_through_host_calls", "Spends its life in cheap host functions.", exhaustion::loop_through_host_calls),
    attack("search_forever", "Lets the host search again and again.", exhaustion::search_forever),
    attack("sleep_forever", "Waits in the host for a clock that never strikes.", exhaustion::sleep_forever),
    attack("memory_bomb", "Takes and touches memory until there is none.", exhaustion::memory_bomb),
    attack("recurse_forever", "Calls itself until the stack is gone.", exhaustion::recurse_forever),
    attack("trap", "Executes what can't be executed.", exhaustion::trap),
    attack("panic", "Panics.", exhaustion::panic),
    attack("exit", "Ends itself, well or badly.", exhaustion::exit),
    attack("flood_output", "Prints without end.", floods::flood_output),
    attack("flood_stderr", "Complains without end.", floods::flood_stderr),
    attack("flood_the_log", "Logs without end.", floods::flood_the_log),
    attack("flood_progress", "Gets further without end.", floods::flood_progress),
    attack("flood_emitted_parts", "Emits parts until it is told to stop, and goes on.", floods::flood_emitted_parts),
    attack("emit_and_loop", "Emits a part and never comes to an end.", floods::emit_and_loop),
    attack("answer_too_much", "Answers with `count` MiB.", floods::answer_too_much),
    attack("answer_too_many_parts", "Answers with `count` empty parts.", floods::answer_too_many_parts),
    attack("fail_with_too_much", "Fails with `count` MiB of content.", floods::fail_with_too_much),
    attack("pass_a_huge_string", "Passes `count` MiB to a host function.", floods::pass_a_huge_string),
    attack("search_under_ignore_files", "Searches `path` under the ignore files in it.", floods::search_under_ignore_files),
    attack("pass_many_globs", "Searches with `count` globs.", floods::pass_many_globs),
    attack("poll_one_thing_often", "Polls a list that names one pollable `count` times.", floods::poll_one_thing_often),
    attack("search_with_a_regex_bomb", "Searches for a pattern that is small and compiles large.", floods::search_with_a_regex_bomb),
    attack("search_with_a_slow_regex", "Searches for what takes a backtracking engine for ever.", floods::search_with_a_slow_regex),
    attack("ask_for_endless_random", "Asks for `count` random bytes at once.", floods::ask_for_endless_random),
    attack("read_with_huge_lengths", "Reads with the largest lengths that there are.", floods::read_with_huge_lengths),
    attack("write_huge_zeroes", "Has the host write zeroes without end.", floods::write_huge_zeroes),
    attack("fill_the_disk", "Writes to a file until it is stopped.", floods::fill_the_disk),
    attack("blow_up_a_file", "Sets the size of a file to `count`.", floods::blow_up_a_file),
    attack("hoard_descriptors", "Opens a file again and again.", handles::hoard_descriptors),
    attack("hoard_streams", "Opens streams of a file again and again.", handles::hoard_streams),
    attack("hoard_listings", "Starts to list a directory again and again.", handles::hoard_listings),
    attack("hoard_pollables", "Subscribes to the clock again and again.", handles::hoard_pollables),
    attack("read_outside", "Reads `path` in every way that there is.", outside::read_outside),
    attack("look_outside", "Asks about `path` in every way that there is.", outside::look_outside),
    attack("search_outside", "Searches below `path` for `text`.", outside::search_outside),
    attack("write_outside", "Writes to `path` in every way that there is.", outside::write_outside),
    attack("change_outside", "Makes, removes, renames and links `path`, with `to` as the other name.", outside::change_outside),
    Attack { claims_to_read_only: true, ..attack("lie_about_reading", "Says that it reads, and writes.", outside::write_outside) },
    attack("write_what_is_open_for_reading", "Opens `path` to read, and writes.", outside::write_what_is_open_for_reading),
    attack("list_names", "Tells the names in the directory `path`.", outside::list_names),
    attack("climb_from_a_handle", "Opens the directory `path` and climbs from its handle to `to`.", outside::climb_from_a_handle),
    attack("climb_from_a_moved_folder", "Opens `path`, moves it to `to`, and climbs from its handle.", outside::climb_from_a_moved_folder),
    attack("follow_a_link_of_its_own", "Makes a link `path` to `to` and goes through it.", links::follow_a_link_of_its_own),
    attack("write_through_a_link_of_its_own", "Makes a link `path` to `to` and writes there.", links::write_through_a_link_of_its_own),
    attack("hard_link_into_reach", "Gives `path` a second name `to` and reads that.", links::hard_link_into_reach),
    attack("rename_into_reach", "Renames `path` to `to` and reads that.", links::rename_into_reach),
    attack("rename", "Renames `path` to `to`, which tells nothing.", links::rename),
    attack("leave_provisional", "Makes things under provisional names in `path` and ends as `text` says.", provisional::leave_provisional),
    attack("pass_for_provisional", "Lets what is at `path` pass for something that the host removes.", provisional::pass_for_provisional),
    attack("hoard_provisional", "Makes things under provisional names in `path` until it may not.", provisional::hoard_provisional),
    attack("touch_special_file", "Opens `path`, a FIFO or a device, in every way that there is.", outside::touch_special_file),
    attack(
        "race_renames",
        "Renames the folder `path` to `to` and back `count` times and tells the secret that comes along.",
        outside::race_renames,
    ),
    attack("race_reads", "Reads `path` `count` times and tells everything but `text`.", outside::race_reads),
    attack("race_searches", "Searches `path` `count` times and tells every line but `text`.", outside::race_searches),
    attack("race_writes", "Writes to `path` `count` times.", outside::race_writes),
    attack("claim_a_category", "Fails with a category that is the host's to say.", words::claim_a_category),
    attack("speak_in_control_characters", "Puts `text` everywhere where text goes.", words::speak_in_control_characters),
    attack("fail_in_control_characters", "Puts `text` everywhere where a failure has text.", words::fail_in_control_characters),
    attack("answer_in_pieces", "Emits `text` in pieces of `count` bytes, and answers with them.", words::answer_in_pieces),
    attack("answer_with_broken_json", "Answers with what is no JSON.", words::answer_with_broken_json),
    attack("answer_with_deep_json", "Answers with JSON that is nested `count` deep.", words::answer_with_deep_json),
    attack("pass_invalid_utf8", "Passes what is no UTF-8 where a string belongs.", words::pass_invalid_utf8),
    attack("reach_the_network", "Connects to port `count` of this machine in every way that there is.", world::reach_the_network),
    attack("tell_the_environment", "Tells variables, arguments and what is on the standard input.", world::tell_the_environment),
    attack("tell_the_grants", "Tells which directories it has.", world::tell_the_grants),
];

const fn attack(name: &'static str, description: &'static str, run: fn(&Arguments) -> Loot) -> Attack {
    Attack { name, description, claims_to_read_only: false, run }
}

/// What an attack is pointed at.
pub(crate) struct Arguments {
    pub(crate) path: String,
    pub(crate) to: String,
    pub(crate) text: String,
    pub(crate) count: u64,
}

impl Arguments {
    /// From the JSON object of a call; what is not there is empty.
    pub(crate) fn of(json: &str) -> Self {
        let value: Value = serde_json::from_str(json).unwrap_or_default();
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        Self { path: text("path"), to: text("to"), text: text("text"), count: value["count"].as_u64().unwrap_or_default() }
    }

    /// `count` as a size.
    pub(crate) fn size(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }
}

/// What several attempts came to: everything that one of them got, or how all were refused.
#[derive(Default)]
pub(crate) struct Attempts {
    got: Vec<String>,
    refused: Vec<String>,
}

impl Attempts {
    /// Notes how one attempt went.
    pub(crate) fn note<T: ToString, E: std::fmt::Debug>(&mut self, what: &str, result: Result<T, E>) {
        match result {
            Ok(loot) => self.got.push(format!("{what}: {}", loot.to_string())),
            Err(error) => self.refused.push(format!("{what}: {error:?}")),
        }
    }

    pub(crate) fn loot(self) -> Loot {
        if self.got.is_empty() { Err(self.refused.join("\n").as_str().into()) } else { Ok(self.got.join("\n").as_str().into()) }
    }
}

impl From<&str> for Output {
    fn from(text: &str) -> Self {
        Self { content: vec![part(text)], structured: None, meta: None }
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self {
            category: Category::PermanentFailure,
            code: None,
            message: message.to_owned(),
            suggestion: None,
            retry_after_ms: None,
            content: Vec::new(),
            structured: None,
            meta: None,
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        format!("{error:?}").as_str().into()
    }
}

impl From<wasip2::filesystem::types::ErrorCode> for Failure {
    fn from(error: wasip2::filesystem::types::ErrorCode) -> Self {
        format!("{error:?}").as_str().into()
    }
}

/// A part of text.
pub(crate) fn part(text: &str) -> Content {
    Content { body: Body::Text(text.to_owned()), media_type: None, meta: None }
}
