//! Updates of the index that are killed, and those that run at once.

use std::fs;
use std::process::{Child, Stdio};

use super::{project, write};
use crate::support::Cli;

/// Files that take a while to index.
const FILES: usize = 600;

fn many_files(cli: &Cli, round: usize) {
    for file in 0..FILES {
        let functions: String = (0..40)
            .map(|number| {
                format!("fn round_{round}_file_{file}_item_{number}() {{\n    work();\n}}\n")
            })
            .collect();
        write(cli, format!("many/{file}.rs"), functions);
    }
}

fn start(cli: &Cli, symbol: &str) -> Child {
    let mut command = cli.command(&["call", "search_code", &format!("symbol={symbol}")]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("toolhold starts")
}

/// Every file has its definitions of this round, and none of the round before.
#[track_caller]
fn assert_right(cli: &Cli, round: usize) {
    for file in [0, 1, FILES / 2, FILES - 1] {
        let text = cli.finds(&[&format!("symbol=round_{round}_file_{file}_item_39")]);
        let expected = format!("many/{file}.rs:118 function round_{round}_file_{file}_item_39");
        assert!(text.starts_with(&expected), "{text}");
        if let Some(before) = round.checked_sub(1) {
            let text = cli.finds(&[&format!("symbol=round_{before}_file_{file}_item_39")]);
            assert!(!text.contains("(definition)"), "{text}");
        }
    }
}

#[test]
fn killed_update_leaves_a_right_index() {
    let cli = project();
    for round in 0..3 {
        many_files(&cli, round);
        // Each time a little later: from its first transaction on, until most is written.
        for grown in [1, 100_000, 400_000, 1_000_000] {
            let before = written(&cli);
            let mut child = start(&cli, "anything");
            while written(&cli) < before + grown {
                if child.try_wait().expect("it can be asked").is_some() {
                    break;
                }
                std::thread::yield_now();
            }
            child.kill().expect("it is killed");
            child.wait().expect("it has ended");
        }
        assert_right(&cli, round);
    }
}

/// Bytes of the index and of what is written ahead.
fn written(cli: &Cli) -> u64 {
    let files = fs::read_dir(cli.root.path().join("data/indexes")).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

#[test]
fn two_processes_update_one_project_at_once() {
    let cli = project();
    for round in 0..2 {
        many_files(&cli, round);
        let symbol = format!("round_{round}_file_7_item_3");
        let both = [start(&cli, &symbol), start(&cli, &symbol)];
        for child in both {
            let output = child.wait_with_output().expect("it ends");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
            assert!(text.starts_with("many/7.rs:10 function"), "{text}");
        }
        assert_right(&cli, round);
    }
}
