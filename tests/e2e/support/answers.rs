//! Checks of answers.

use toolhold_core::{Answer, Category, Content, Failure};

/// What an attack got. It must have got something: this shows that the attack works where it is
/// allowed.
#[track_caller]
pub(crate) fn loot(answer: &Answer) -> String {
    answer
        .outcome
        .as_ref()
        .unwrap_or_else(|failure| {
            panic!("the attack works where it is allowed: {}", failure.message)
        })
        .joined_text()
}

/// What a third-party tool says of its failure: a part of the answer, inside a fence.
pub(crate) fn said_by(failure: &Failure) -> String {
    failure.content.iter().filter_map(Content::as_text).collect()
}

/// The failure of a call, with this category and code.
#[track_caller]
pub(crate) fn failure<'a>(
    answer: &'a Answer,
    category: Category,
    code: Option<&str>,
) -> &'a Failure {
    let failure = answer.outcome.as_ref().expect_err("the call fails");
    assert_eq!(
        (failure.category, failure.code.as_deref()),
        (category, code),
        "{}",
        failure.message
    );
    failure
}

/// The failure of a call that a rule of the operator refused. The rule's name contains `rule`.
#[track_caller]
pub(crate) fn refused<'a>(answer: &'a Answer, rule: &str) -> &'a Failure {
    let failure = failure(answer, Category::PolicyBlocked, None);
    let denial = failure.denial.as_ref().expect("a refusal names its rule");
    assert!(denial.rule.contains(rule), "refused by {}, not by {rule}", denial.rule);
    assert!(!denial.remedy.is_empty() && !denial.place.is_empty(), "{denial:?}");
    failure
}
