//! The findings of `toolhold doctor` about `[tools.adversarial_policy]`.

use std::path::Path;

use toolhold_core::config::{Config, Folders};
use toolhold_core::doctor::Finding;

use crate::review::reviewer::ModelReviewer;

const FINDING_NAME: &str = "adversarial_policy";

/// Checks `[tools.adversarial_policy]`. Reads the API key, but doesn't ask the model. Returns no
/// findings if reviews aren't enabled.
pub async fn findings(config: &Config, folders: &Folders, directory: &Path) -> Vec<Finding> {
    let review = &config.values.tools.adversarial_policy;
    if !review.enabled {
        return Vec::new();
    }
    let table = config.own_table("tools.adversarial_policy");
    if review.policies.is_empty() {
        return refused("`policies` is missing", table.lines("policies = [\"…\"]"));
    }
    let Some(reviewer) = ModelReviewer::from_config(config, folders, directory, "toolhold doctor")
    else {
        return refused("`provider` is missing", table.lines("provider = \"NAME\""));
    };
    let model = match reviewer.chosen().await {
        Ok(model) => model,
        Err(why) => {
            let found = format!("the model can't be asked: {why}");
            let fix = format!("fix [providers.{}]", review.provider);
            return vec![Finding::failure(FINDING_NAME, found, fix)];
        }
    };
    let count = review.policies.len();
    let policies = if count == 1 { "1 policy".to_owned() } else { format!("{count} policies") };
    let found = format!("{} judges calls by {policies}", model.full_name());
    if review.fail_open {
        let found = format!("{found}; without an answer the calls run");
        return vec![Finding::warning(
            FINDING_NAME,
            found,
            format!("set `fail_open = false` in {table}"),
        )];
    }
    vec![Finding::ok(
        FINDING_NAME,
        format!(
            "{found}; without an answer the calls are denied (`toolhold models --test {}` tests the model)",
            review.provider
        ),
    )]
}

fn refused(why: &str, fix: String) -> Vec<Finding> {
    let found = format!("{why}, so every call that isn't exempt is denied");
    vec![Finding::failure(FINDING_NAME, found, fix)]
}
