//! Every attack has a test, and every test its attack.

use std::collections::BTreeSet;

use crate::support::{Scene, run};
use crate::{escapes, floods, guest_text, races, resource_attacks, temporary_files};

#[test]
fn every_attack_has_a_test() {
    run(async {
        let scene = Scene::new().await;
        let tools = scene.host.tools();
        let attacks: BTreeSet<&str> =
            tools.iter().filter_map(|tool| tool.name.strip_prefix("hostile__")).collect();
        let tested: BTreeSet<&str> = [
            escapes::TESTED,
            floods::TESTED,
            resource_attacks::TESTED,
            temporary_files::TESTED,
            races::TESTED,
            guest_text::TESTED,
        ]
        .concat()
        .into_iter()
        .collect();
        let without: Vec<_> = attacks.difference(&tested).collect();
        assert!(without.is_empty(), "attacks without a test: {without:?}");
        let gone: Vec<_> = tested.difference(&attacks).collect();
        assert!(gone.is_empty(), "tests of attacks that are not there: {gone:?}");
    });
}
