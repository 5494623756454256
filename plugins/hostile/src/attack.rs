//! The table of attacks, and what they are made of.

use hostile_support::{Attack, Loot};
use serde_json::Value;

use crate::{exhaustion, floods, handles, links, outside, provisional, words, world};

/// All of them.
pub(crate) const ATTACKS: &[Attack<Arguments>] = &[
    Attack::new("loop_forever", "Never comes to an end.", exhaustion::loop_forever),
    Attack::new(
        "loop_through_host_calls",
        "Spends its life in cheap host functions.",
        exhaustion::loop_through_host_calls,
    ),
    Attack::new(
        "search_forever",
        "Lets the host search again and again.",
        exhaustion::search_forever,
    ),
    Attack::new(
        "sleep_forever",
        "Waits in the host for a clock that never strikes.",
        exhaustion::sleep_forever,
    ),
    Attack::new(
        "memory_bomb",
        "Takes and touches memory until there is none.",
        exhaustion::memory_bomb,
    ),
    Attack::new(
        "recurse_forever",
        "Calls itself until the stack is gone.",
        exhaustion::recurse_forever,
    ),
    Attack::new("trap", "Executes what can't be executed.", exhaustion::trap),
    Attack::new("panic", "Panics.", exhaustion::panic),
    Attack::new("exit", "Ends itself, well or badly.", exhaustion::exit),
    Attack::new("flood_output", "Prints without end.", floods::flood_output),
    Attack::new("flood_stderr", "Complains without end.", floods::flood_stderr),
    Attack::new("flood_the_log", "Logs without end.", floods::flood_the_log),
    Attack::new("flood_progress", "Gets further without end.", floods::flood_progress),
    Attack::new(
        "flood_emitted_parts",
        "Emits parts until it is told to stop, and goes on.",
        floods::flood_emitted_parts,
    ),
    Attack::new("emit_and_loop", "Emits a part and never comes to an end.", floods::emit_and_loop),
    Attack::new("answer_too_much", "Answers with `count` MiB.", floods::answer_too_much),
    Attack::new(
        "answer_too_many_parts",
        "Answers with `count` empty parts.",
        floods::answer_too_many_parts,
    ),
    Attack::new(
        "fail_with_too_much",
        "Fails with `count` MiB of content.",
        floods::fail_with_too_much,
    ),
    Attack::new(
        "pass_a_huge_string",
        "Passes `count` MiB to a host function.",
        floods::pass_a_huge_string,
    ),
    Attack::new(
        "search_under_ignore_files",
        "Searches `path` under the ignore files in it.",
        floods::search_under_ignore_files,
    ),
    Attack::new("pass_many_globs", "Searches with `count` globs.", floods::pass_many_globs),
    Attack::new(
        "poll_one_thing_often",
        "Polls a list that names one pollable `count` times.",
        floods::poll_one_thing_often,
    ),
    Attack::new(
        "search_with_a_regex_bomb",
        "Searches for a pattern that is small and compiles large.",
        floods::search_with_a_regex_bomb,
    ),
    Attack::new(
        "search_with_a_slow_regex",
        "Searches for what takes a backtracking engine for ever.",
        floods::search_with_a_slow_regex,
    ),
    Attack::new(
        "ask_for_endless_random",
        "Asks for `count` random bytes at once.",
        floods::ask_for_endless_random,
    ),
    Attack::new(
        "read_with_huge_lengths",
        "Reads with the largest lengths that there are.",
        floods::read_with_huge_lengths,
    ),
    Attack::new(
        "write_huge_zeroes",
        "Has the host write zeroes without end.",
        floods::write_huge_zeroes,
    ),
    Attack::new("fill_the_disk", "Writes to a file until it is stopped.", floods::fill_the_disk),
    Attack::new("blow_up_a_file", "Sets the size of a file to `count`.", floods::blow_up_a_file),
    Attack::new("hoard_descriptors", "Opens a file again and again.", handles::hoard_descriptors),
    Attack::new(
        "hoard_streams",
        "Opens streams of a file again and again.",
        handles::hoard_streams,
    ),
    Attack::new(
        "hoard_listings",
        "Starts to list a directory again and again.",
        handles::hoard_listings,
    ),
    Attack::new(
        "hoard_pollables",
        "Subscribes to the clock again and again.",
        handles::hoard_pollables,
    ),
    Attack::new("read_outside", "Reads `path` in every way that there is.", outside::read_outside),
    Attack::new(
        "look_outside",
        "Asks about `path` in every way that there is.",
        outside::look_outside,
    ),
    Attack::new("search_outside", "Searches below `path` for `text`.", outside::search_outside),
    Attack::new(
        "write_outside",
        "Writes to `path` in every way that there is.",
        outside::write_outside,
    ),
    Attack::new(
        "change_outside",
        "Makes, removes, renames and links `path`, with `to` as the other name.",
        outside::change_outside,
    ),
    Attack {
        claims_to_read_only: true,
        ..Attack::new(
            "lie_about_reading",
            "Says that it reads, and writes.",
            outside::write_outside,
        )
    },
    Attack::new(
        "write_what_is_open_for_reading",
        "Opens `path` to read, and writes.",
        outside::write_what_is_open_for_reading,
    ),
    Attack::new("list_names", "Tells the names in the directory `path`.", outside::list_names),
    Attack::new(
        "climb_from_a_handle",
        "Opens the directory `path` and climbs from its handle to `to`.",
        outside::climb_from_a_handle,
    ),
    Attack::new(
        "climb_from_a_moved_folder",
        "Opens `path`, moves it to `to`, and climbs from its handle.",
        outside::climb_from_a_moved_folder,
    ),
    Attack::new(
        "follow_a_link_of_its_own",
        "Makes a link `path` to `to` and goes through it.",
        links::follow_a_link_of_its_own,
    ),
    Attack::new(
        "write_through_a_link_of_its_own",
        "Makes a link `path` to `to` and writes there.",
        links::write_through_a_link_of_its_own,
    ),
    Attack::new(
        "hard_link_into_reach",
        "Gives `path` a second name `to` and reads that.",
        links::hard_link_into_reach,
    ),
    Attack::new(
        "rename_into_reach",
        "Renames `path` to `to` and reads that.",
        links::rename_into_reach,
    ),
    Attack::new("rename", "Renames `path` to `to`, which tells nothing.", links::rename),
    Attack::new(
        "leave_provisional",
        "Makes things under provisional names in `path` and ends as `text` says.",
        provisional::leave_provisional,
    ),
    Attack::new(
        "pass_for_provisional",
        "Lets what is at `path` pass for something that the host removes.",
        provisional::pass_for_provisional,
    ),
    Attack::new(
        "hoard_provisional",
        "Makes things under provisional names in `path` until it may not.",
        provisional::hoard_provisional,
    ),
    Attack::new(
        "touch_special_file",
        "Opens `path`, a FIFO or a device, in every way that there is.",
        outside::touch_special_file,
    ),
    Attack::new(
        "race_renames",
        "Renames the folder `path` to `to` and back `count` times and tells the secret that comes along.",
        outside::race_renames,
    ),
    Attack::new(
        "race_reads",
        "Reads `path` `count` times and tells everything but `text`.",
        outside::race_reads,
    ),
    Attack::new(
        "race_searches",
        "Searches `path` `count` times and tells every line but `text`.",
        outside::race_searches,
    ),
    Attack::new("race_writes", "Writes to `path` `count` times.", outside::race_writes),
    Attack::new(
        "claim_a_category",
        "Fails with a category that is the host's to say.",
        words::claim_a_category,
    ),
    Attack::new(
        "speak_in_control_characters",
        "Puts `text` everywhere where text goes.",
        words::speak_in_control_characters,
    ),
    Attack::new(
        "fail_in_control_characters",
        "Puts `text` everywhere where a failure has text.",
        words::fail_in_control_characters,
    ),
    Attack::new(
        "answer_in_pieces",
        "Emits `text` in pieces of `count` bytes, and answers with them.",
        words::answer_in_pieces,
    ),
    Attack::new(
        "answer_with_broken_json",
        "Answers with what is no JSON.",
        words::answer_with_broken_json,
    ),
    Attack::new(
        "answer_with_deep_json",
        "Answers with JSON that is nested `count` deep.",
        words::answer_with_deep_json,
    ),
    Attack::new(
        "pass_invalid_utf8",
        "Passes what is no UTF-8 where a string belongs.",
        words::pass_invalid_utf8,
    ),
    Attack::new(
        "reach_the_network",
        "Connects to port `count` of this machine in every way that there is.",
        world::reach_the_network,
    ),
    Attack::new(
        "tell_the_environment",
        "Tells variables, arguments and what is on the standard input.",
        world::tell_the_environment,
    ),
    Attack::new("tell_the_grants", "Tells which directories it has.", world::tell_the_grants),
];

/// What an attack is pointed at.
pub(crate) struct Arguments {
    pub(crate) path: String,
    pub(crate) to: String,
    pub(crate) text: String,
    pub(crate) count: u64,
}

impl From<Value> for Arguments {
    /// From the JSON object of a call; what is not there is empty.
    fn from(value: Value) -> Self {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        Self {
            path: text("path"),
            to: text("to"),
            text: text("text"),
            count: value["count"].as_u64().unwrap_or_default(),
        }
    }
}

impl Arguments {
    /// `count` as a size.
    pub(crate) fn size(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }
}

/// The result of several attempts: everything that they got, or how all were refused.
#[derive(Default)]
pub(crate) struct Attempts {
    got: Vec<String>,
    refused: Vec<String>,
}

impl Attempts {
    /// Notes how one attempt went.
    pub(crate) fn note<T: ToString, E: std::fmt::Debug>(
        &mut self,
        what: &str,
        result: Result<T, E>,
    ) {
        match result {
            Ok(loot) => self.got.push(format!("{what}: {}", loot.to_string())),
            Err(error) => self.refused.push(format!("{what}: {error:?}")),
        }
    }

    pub(crate) fn loot(self) -> Loot {
        if self.got.is_empty() {
            Err(self.refused.join("\n").into())
        } else {
            Ok(self.got.join("\n").into())
        }
    }
}
