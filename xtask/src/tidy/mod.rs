//! `cargo xtask tidy`: the rules of docs/architecture.md that a program can check.
//!
//! Each rule is a function, and its name is the rule. It checks the whole tree and returns what
//! breaks the rule, where, and what to do.

mod architecture;
mod code;
mod habits;
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

use crate::{CommandResult, cargo, no_arguments, step};

pub(crate) fn command(arguments: &[OsString]) -> CommandResult {
    no_arguments(arguments)?;
    check()?;
    Ok(ExitCode::SUCCESS)
}

/// Checks the repository against every rule, and prints all violations.
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
    for rule in TASTE {
        let places = (rule.check)(&tree).len();
        step::headline(&format!(
            "tidy: {places} places break a rule about taste: {}",
            rule.title()
        ));
    }
    for (path, lines) in code::long_files(&tree) {
        step::headline(&format!("tidy: {path} has {lines} lines: perhaps it has two concerns"));
    }
    step::headline(&format!(
        "tidy: {} lines of Rust below host without tests",
        code::lines_without_tests(&tree)
    ));
    step::headline(&format!(
        "tidy: {} subcommands, {} keys",
        text::subcommands(&tree),
        text::keys(&tree)
    ));
    step::headline(&format!("tidy: habits per 1,000 lines: {}", habits::rates(&tree)));
    if broken == 0 { Ok(()) } else { Err(format!("tidy found {broken} violations")) }
}

/// A place that breaks a rule.
struct Violation {
    path: String,
    /// From 1.
    line: usize,
    /// What is wrong, and what to do.
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
    places::some_crates_never_reach_others,
    places::folders_of_crates_are_layers,
    modules::modules_of_a_crate_form_no_circle,
    modules::modules_have_one_style,
    places::only_the_runtime_names_the_engine,
    places::only_requests_depends_on_the_client,
    places::contract_and_policy_do_no_io,
    places::one_place_creates_stores,
    places::one_place_starts_processes,
    places::one_place_connects_to_the_network,
    places::untrusted_text_is_read_in_listed_files,
    places::granted_paths_are_opened_in_the_path_layer,
    places::ungranted_paths_are_opened_in_listed_files,
    places::unsafe_code_is_in_listed_files,
    places::xtask_has_no_dependencies,
    code::every_lint_exception_has_a_reason,
    code::no_code_is_unfinished,
    code::no_test_is_disabled,
    code::tests_do_not_sleep,
    code::files_stay_small,
    code::every_crate_has_two_users_or_a_reason,
    names::public_types_have_different_names,
    code::every_crate_has_a_description,
    code::every_crate_uses_the_lints_and_versions_of_the_workspace,
    code::every_dependency_is_used,
    habits::habits_that_make_code_hard_to_read_are_rare,
    text::text_is_clean,
    text::no_file_has_a_path_of_one_machine,
    text::links_have_targets,
    text::documents_name_existing_commands,
    text::every_document_is_in_the_index,
    architecture::the_table_of_crates_is_complete,
    architecture::the_table_of_processes_is_complete,
    architecture::the_table_of_unsafe_files_is_complete,
    architecture::paths_in_documents_exist,
    wit::every_item_of_the_contract_is_documented,
    wit::each_interface_has_its_own_file,
    wit::copies_of_the_contract_are_identical,
];

/// Rules about taste: a number of places, which fails nothing.
const TASTE: &[Rule] = rules![
    names::function_names_say_what_functions_do,
    text::prose_has_at_most_100_columns,
    architecture::the_architecture_page_is_short,
];

impl Rule {
    /// The rule as a sentence.
    fn title(&self) -> String {
        self.name.replace('_', " ")
    }
}

/// A violation in a line of a file. Lines count from 1.
fn at(file: &File, line: usize, message: String) -> Violation {
    Violation { path: file.path.clone(), line, message }
}
