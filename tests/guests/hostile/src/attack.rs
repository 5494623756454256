//! The table of attacks.

use hostile_support::Attack;

use crate::arguments::Arguments;
use crate::{exhaustion, floods, handles, links, outside, temporary, words, world};

/// All attacks.
pub(crate) const ATTACKS: &[Attack<Arguments>] = &[
    Attack::new("loop_forever", "Never ends.", exhaustion::loop_forever),
    Attack::new(
        "loop_through_host_calls",
        "Calls cheap host functions without end.",
        exhaustion::loop_through_host_calls,
    ),
    Attack::new(
        "search_forever",
        "Lets the host search again and again.",
        exhaustion::search_forever,
    ),
    Attack::new(
        "sleep_forever",
        "Waits in the host for an event that never comes.",
        exhaustion::sleep_forever,
    ),
    Attack::new(
        "memory_bomb",
        "Takes and touches memory until there is none left.",
        exhaustion::memory_bomb,
    ),
    Attack::new(
        "recurse_forever",
        "Calls itself until the stack is used up.",
        exhaustion::recurse_forever,
    ),
    Attack::new("trap", "Executes an instruction that traps.", exhaustion::trap),
    Attack::new("panic", "Panics.", exhaustion::panic),
    Attack::new("exit", "Exits with the code `count`.", exhaustion::exit),
    Attack::new("flood_output", "Writes to standard output without end.", floods::flood_output),
    Attack::new("flood_stderr", "Writes to standard error without end.", floods::flood_stderr),
    Attack::new("flood_the_log", "Logs without end.", floods::flood_the_log),
    Attack::new("flood_progress", "Reports progress without end.", floods::flood_progress),
    Attack::new(
        "flood_emitted_parts",
        "Emits parts, and continues after it has to stop.",
        floods::flood_emitted_parts,
    ),
    Attack::new("emit_and_loop", "Emits a part and never ends.", floods::emit_and_loop),
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
        "Searches `path` by the ignore files in it.",
        floods::search_under_ignore_files,
    ),
    Attack::new("pass_many_globs", "Searches with `count` globs.", floods::pass_many_globs),
    Attack::new(
        "poll_one_thing_often",
        "Polls a list that has one pollable `count` times.",
        floods::poll_one_thing_often,
    ),
    Attack::new(
        "search_with_a_regex_bomb",
        "Searches for a short pattern that is very large when compiled.",
        floods::search_with_a_regex_bomb,
    ),
    Attack::new(
        "search_with_a_slow_regex",
        "Searches for a pattern that would take a backtracking engine for ever.",
        floods::search_with_a_slow_regex,
    ),
    Attack::new(
        "ask_for_endless_random",
        "Asks for `count` random bytes at once.",
        floods::ask_for_endless_random,
    ),
    Attack::new(
        "read_with_huge_lengths",
        "Reads with the greatest possible lengths.",
        floods::read_with_huge_lengths,
    ),
    Attack::new(
        "write_huge_zeroes",
        "Makes the host write zeroes without end.",
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
    Attack::new("read_outside", "Reads `path` in every possible way.", outside::read_outside),
    Attack::new(
        "look_outside",
        "Asks for metadata of `path` in every possible way.",
        outside::look_outside,
    ),
    Attack::new("search_outside", "Searches below `path` for `text`.", outside::search_outside),
    Attack::new("write_outside", "Writes to `path` in every possible way.", outside::write_outside),
    Attack::new(
        "change_outside",
        "Creates, removes, renames and links `path`, with `to` as the other name.",
        outside::change_outside,
    ),
    Attack {
        claims_to_read_only: true,
        ..Attack::new(
            "lie_about_reading",
            "Claims to be read-only, and writes.",
            outside::write_outside,
        )
    },
    Attack::new(
        "write_what_is_open_for_reading",
        "Opens `path` to read, and writes.",
        outside::write_what_is_open_for_reading,
    ),
    Attack::new("list_names", "Lists the names in the directory `path`.", outside::list_names),
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
        "Creates a link `path` to `to` and reads through it.",
        links::follow_a_link_of_its_own,
    ),
    Attack::new(
        "write_through_a_link_of_its_own",
        "Creates a link `path` to `to` and writes through it.",
        links::write_through_a_link_of_its_own,
    ),
    Attack::new(
        "hard_link_into_reach",
        "Creates a hard link `to` to `path` and reads it.",
        links::hard_link_into_reach,
    ),
    Attack::new(
        "rename_into_reach",
        "Renames `path` to `to` and reads it.",
        links::rename_into_reach,
    ),
    Attack::new("rename", "Renames `path` to `to` without reading it.", links::rename),
    Attack::new(
        "leave_temporary",
        "Creates entries under temporary names in `path` and ends as `text` says.",
        temporary::leave_temporary,
    ),
    Attack::new(
        "forge_temporary",
        "Tries to make the host remove the directory `path` as a temporary entry.",
        temporary::forge_temporary,
    ),
    Attack::new(
        "hoard_temporary",
        "Creates entries under temporary names in `path` until it is refused.",
        temporary::hoard_temporary,
    ),
    Attack::new(
        "touch_special_file",
        "Opens `path`, a FIFO or a device, in every possible way.",
        outside::touch_special_file,
    ),
    Attack::new(
        "race_renames",
        "Renames the folder `path` to `to` and back `count` times, and shows a secret that it reads.",
        outside::race_renames,
    ),
    Attack::new(
        "race_reads",
        "Reads `path` `count` times and shows every content except `text`.",
        outside::race_reads,
    ),
    Attack::new(
        "race_searches",
        "Searches `path` `count` times and shows every line except `text`.",
        outside::race_searches,
    ),
    Attack::new("race_writes", "Writes to `path` `count` times.", outside::race_writes),
    Attack::new(
        "claim_a_category",
        "Fails with a category that only the host may use.",
        words::claim_a_category,
    ),
    Attack::new(
        "speak_in_control_characters",
        "Puts `text` into every text of an answer.",
        words::speak_in_control_characters,
    ),
    Attack::new(
        "fail_in_control_characters",
        "Puts `text` into every text of a failure.",
        words::fail_in_control_characters,
    ),
    Attack::new(
        "answer_in_pieces",
        "Emits `text` in pieces of `count` bytes, and answers with them.",
        words::answer_in_pieces,
    ),
    Attack::new(
        "answer_with_broken_json",
        "Answers with text that isn't JSON.",
        words::answer_with_broken_json,
    ),
    Attack::new(
        "answer_with_deep_json",
        "Answers with JSON that is nested `count` deep.",
        words::answer_with_deep_json,
    ),
    Attack::new("pass_invalid_utf8", "Passes a string that isn't UTF-8.", words::pass_invalid_utf8),
    Attack::new(
        "reach_the_network",
        "Connects to port `count` of this machine in every possible way.",
        world::reach_the_network,
    ),
    Attack::new(
        "tell_the_environment",
        "Shows variables, arguments and standard input.",
        world::tell_the_environment,
    ),
    Attack::new("tell_the_grants", "Shows its granted directories.", world::tell_the_grants),
];
