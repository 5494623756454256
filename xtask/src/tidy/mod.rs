//! `cargo xtask tidy`: the rules of docs/architecture.md that a program can check.
//!
//! Each rule is a function whose name reads as the rule. It looks at the whole tree and says what
//! breaks it, where, and what to do.

mod architecture;
mod code;
pub(crate) mod manifest;
mod modules;
mod names;
mod places;
mod source;
mod text;
mod tree;
mod wit;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::process::ExitCode;

use tree::{File, Tree};

use crate::{Done, cargo, no_arguments, step};

pub(crate) fn command(arguments: &[OsString]) -> Done {
    no_arguments(arguments)?;
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// Checks the repository against every rule and prints all that breaks one.
pub(crate) fn check() -> Result<(), String> {
    let tree = Tree::load(cargo::root())?;
    let mut broken = 0;
    for rule in RULES {
        for violation in (rule.check)(&tree) {
            eprintln!(
                "{}:{}: {} ({})",
                violation.path,
                violation.line,
                violation.message,
                rule.title()
            );
            broken += 1;
        }
    }
    step::headline(&format!(
        "tidy: {} rules, {} files, {broken} violations",
        RULES.len(),
        tree.files.len()
    ));
    if let Some((name, lines)) = code::sizes(&tree).into_iter().max_by_key(|(_, lines)| *lines) {
        step::headline(&format!(
            "tidy: the largest crate is host/{name}, {lines} lines without tests"
        ));
    }
    if broken == 0 { Ok(()) } else { Err(format!("tidy found {broken} violations")) }
}

/// What breaks a rule.
struct Violation {
    path: String,
    /// From 1.
    line: usize,
    /// What is wrong and what to do about it.
    message: String,
}

struct Rule {
    name: &'static str,
    check: fn(&Tree) -> Vec<Violation>,
}

macro_rules! rules {
    ($($module:ident::$name:ident,)*) => { &[$(Rule { name: stringify!($name), check: $module::$name },)*] };
}

const RULES: &[Rule] = rules![
    places::dependencies_point_one_way,
    modules::modules_of_a_crate_form_no_circle,
    modules::modules_have_one_style,
    places::only_the_runtime_names_the_engine,
    places::contract_and_policy_do_no_io,
    places::one_place_creates_stores,
    places::one_place_starts_processes,
    places::one_place_reaches_for_the_network,
    places::granted_paths_are_opened_in_the_path_layer,
    places::other_paths_are_opened_where_it_is_known_whose_they_are,
    places::unsafe_stands_only_where_compiled_code_is_mapped,
    places::chores_have_no_dependencies,
    code::every_exception_has_a_reason,
    code::nothing_is_left_unfinished,
    code::no_test_is_switched_off,
    code::tests_do_not_sleep,
    code::files_stay_small,
    code::crates_stay_small,
    names::functions_have_the_verb_of_what_they_do,
    names::one_public_type_has_a_name,
    code::every_crate_says_what_it_is,
    code::every_crate_takes_what_the_workspace_fixes,
    code::every_dependency_is_named_by_code,
    text::text_is_clean,
    text::prose_has_100_columns,
    text::no_file_names_a_machine,
    text::links_lead_somewhere,
    text::documents_name_real_chores,
    architecture::the_architecture_is_a_map,
    architecture::the_table_of_crates_is_complete,
    architecture::the_table_of_processes_is_complete,
    architecture::the_table_of_unsafe_files_is_complete,
    architecture::paths_in_the_architecture_exist,
    wit::every_item_of_the_contract_is_documented,
    wit::each_interface_has_its_own_file,
    wit::copies_of_the_contract_are_true,
];

impl Rule {
    /// The rule as a sentence.
    fn title(&self) -> String {
        self.name.replace('_', " ")
    }
}

/// A violation at a line, from 1, of a file.
fn at(file: &File, line: usize, message: String) -> Violation {
    Violation { path: file.path.clone(), line, message }
}
