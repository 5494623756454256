//! A part that attacks the host. Its input says how.

mod bindings {
    #![allow(unsafe_code, reason = "generated")]

    use super::Component;

    wit_bindgen::generate!({ path: "../../../wit/tool", world: "toolhold:tool/part-component" });
    export!(Component);
}

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime};

struct Component;

thread_local! {
    /// How many inputs the instance has had.
    static COUNT: Cell<u32> = const { Cell::new(0) };
}

impl bindings::exports::toolhold::tool::part::Guest for Component {
    fn run(input: Vec<u8>) -> Result<Vec<u8>, String> {
        let text = String::from_utf8_lossy(&input);
        let (attack, rest) = text.split_once(' ').unwrap_or((&text, ""));
        Ok(match attack {
            "echo" => rest.to_owned(),
            "count" => {
                COUNT.set(COUNT.get() + 1);
                COUNT.get().to_string()
            }
            "fail" => return Err(format!("failed: {rest}")),
            "crash" => std::process::abort(),
            "spin" => loop {
                black_box(0);
            },
            "work" => {
                let times: u64 = rest.parse().unwrap_or(0) * 1_000_000;
                let sum = (0..times).fold(0_u64, |sum, n| black_box(sum.wrapping_mul(31) ^ n));
                format!("{}", sum & 1)
            }
            "allocate" => {
                let mut kept = Vec::new();
                loop {
                    kept.push(black_box(vec![1_u8; 1 << 20]));
                }
            }
            "recurse" => format!("{}", recurse(1)),
            "huge" => "x".repeat(rest.parse().unwrap_or(0)),
            "random" => {
                let mut map = HashMap::new();
                map.insert(1, RandomState::new().hash_one(1));
                format!("{map:?}")
            }
            "file" => format!("{:?}", std::fs::read(rest)),
            "variable" => format!("{:?}", std::env::vars().collect::<Vec<_>>()),
            "clock" => format!("{:?}", SystemTime::now()),
            "moment" => format!("{:?}", Instant::now()),
            "sleep" => {
                std::thread::sleep(Duration::from_secs(60));
                "slept".to_owned()
            }
            "print" => {
                println!("{rest}");
                "printed".to_owned()
            }
            _ => return Err("an unknown attack".to_owned()),
        }
        .into_bytes())
    }
}

fn recurse(depth: u64) -> u64 {
    if black_box(depth) == 0 { 0 } else { black_box(recurse(black_box(depth + 1))) + depth }
}
