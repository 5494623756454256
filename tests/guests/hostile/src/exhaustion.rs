//! Attacks that use up time, memory and stack, or that crash.

use std::hint::black_box;

use crate::arguments::Arguments;
use hostile_support::Loot;
use hostile_support::host::{call, search};

pub(crate) fn loop_forever(_: &Arguments) -> Loot {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

pub(crate) fn loop_through_host_calls(_: &Arguments) -> Loot {
    loop {
        black_box(call::remaining_ms());
        black_box(call::cancelled());
    }
}

pub(crate) fn search_forever(arguments: &Arguments) -> Loot {
    let scope = scope(&arguments.path);
    let pattern = search::LinePattern {
        regex: "nowhere".into(),
        case_sensitive: true,
        multiline: false,
        before: 0,
        after: 0,
        meta: None,
    };
    loop {
        let _ = black_box(search::grep(&scope, &pattern, 10));
    }
}

/// Everything below a folder.
pub(crate) fn scope(root: &str) -> search::Scope {
    search::Scope {
        root: root.to_owned(),
        globs: Vec::new(),
        ignore_rules: false,
        files_only: false,
        max_depth: None,
        meta: None,
    }
}

pub(crate) fn sleep_forever(_: &Arguments) -> Loot {
    wasip2::clocks::monotonic_clock::subscribe_duration(u64::MAX).block();
    Ok("woke up".into())
}

pub(crate) fn memory_bomb(_: &Arguments) -> Loot {
    const CHUNK: usize = 1 << 20;
    let mut held: Vec<Vec<u8>> = Vec::new();
    loop {
        // Values other than 0 make sure that every page is allocated.
        held.push(vec![1; CHUNK]);
        black_box(&held);
    }
}

pub(crate) fn recurse_forever(_: &Arguments) -> Loot {
    #[expect(unconditional_recursion, reason = "this is the attack")]
    fn deeper(depth: u64) -> u64 {
        black_box([depth; 64]).iter().sum::<u64>() + deeper(black_box(depth + 1))
    }
    black_box(deeper(0));
    Ok("came back".into())
}

pub(crate) fn trap(_: &Arguments) -> Loot {
    core::arch::wasm32::unreachable()
}

pub(crate) fn panic(arguments: &Arguments) -> Loot {
    panic!("{}", arguments.text)
}

pub(crate) fn exit(arguments: &Arguments) -> Loot {
    std::process::exit(i32::try_from(arguments.count).unwrap_or(1))
}
