use std::borrow::Cow;
use std::cell::OnceCell;

use berth_sdk::Content;
use berth_sdk::filter::{
    Confidence, Filters, Input, Listing, Matcher, Pattern, Purpose, Registration, Replacement,
    Verdict,
};

use crate::rules::{self, BUILT_IN, BuiltIn};
use crate::strategy::{self, Step};
use crate::text::{is_blank, parse_mark};

/// The rules of an instance: first the operator's, then the built-in rules.
pub struct Engine {
    rules: Vec<Rule>,
    problems: Vec<String>,
}

/// An active rule.
struct Rule {
    name: Cow<'static, str>,
    matcher: Matcher,
    meta: Cow<'static, str>,
    /// The source of a built-in rule's steps. They are compiled for the first output that needs
    /// them.
    source: &'static str,
    steps: OnceCell<Result<Vec<Step>, String>>,
}

impl Rule {
    fn from_built_in(rule: &'static BuiltIn) -> Self {
        Self {
            name: rule.name.into(),
            matcher: Matcher { tool: rule.tool.into(), subject: rule.subject.into() },
            meta: rule.meta.into(),
            source: rule.steps,
            steps: OnceCell::new(),
        }
    }

    fn from_operator(rule: rules::OperatorRule) -> Self {
        Self {
            name: rule.name.into(),
            matcher: rule.matcher,
            meta: rule.meta.into(),
            source: "",
            steps: OnceCell::from(Ok(rule.steps)),
        }
    }

    fn steps(&self) -> Result<&[Step], String> {
        self.steps.get_or_init(|| strategy::from_json(self.source)).as_deref().map_err(Clone::clone)
    }
}

impl Filters for Engine {
    fn new(text: Option<&str>) -> Result<Self, String> {
        let rules::OperatorRules { rules: own, replaced, problems } =
            text.map(rules::read).unwrap_or_default();
        let built_in =
            BUILT_IN.iter().filter(|rule| !replaced.iter().any(|name| name == rule.name));
        let rules = own
            .into_iter()
            .map(Rule::from_operator)
            .chain(built_in.map(Rule::from_built_in))
            .collect();
        Ok(Self { rules, problems })
    }

    fn list(&self) -> Listing {
        let filters = self.rules.iter().map(|rule| Registration {
            name: rule.name.clone(),
            purpose: Purpose::Cosmetic,
            matchers: vec![rule.matcher.clone()],
            meta: Some(rule.meta.clone()),
        });
        Listing { filters: filters.collect(), problems: self.problems.clone() }
    }

    fn apply(&mut self, filter: &str, input: &Input) -> Result<Verdict, String> {
        let Some(rule) = self.rules.iter().find(|rule| rule.name == filter) else {
            return Err(format!("rule {filter:?} is missing"));
        };
        let command = input.subject.as_deref();
        // Other commands of the line may have shown files.
        if matches!(rule.matcher.subject, Pattern::Any) && !is_alone(input) {
            return Ok(Verdict::Keep);
        }
        let steps: Vec<&Step> =
            rule.steps()?.iter().filter(|step| step.is_for(command.unwrap_or_default())).collect();
        // If other commands wrote to the output too, unknown lines stay.
        let failed = !input.passed() || !is_alone(input);
        let mut worst = Confidence::Full;
        let content = input.map_texts(|text| {
            let (shorter, confidence) = strategy::run(steps.iter().copied(), text, failed)?;
            worst = worst.max(confidence);
            Some(shorter)
        });
        // A text of marks only would be useless.
        let has_text = |part: &Content| {
            part.as_text().is_none_or(|text| {
                text.lines().any(|line| !is_blank(line) && parse_mark(line).is_none())
            })
        };
        let content = content.filter(|content| content.iter().any(has_text));
        Ok(content.map_or(Verdict::Keep, |content| Replacement::new(content, worst).into()))
    }
}

/// Whether only the command of the rule wrote the output.
fn is_alone(input: &Input) -> bool {
    input.meta.as_ref().and_then(|meta| meta["berth:alone"].as_bool()).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use berth_sdk::testing;

    use super::*;

    #[test]
    fn operator_rules_come_first_and_replace_built_in_ones() {
        let built_in = testing::filters::<Engine>(None).unwrap();
        assert!(built_in.problems.is_empty());
        let rules = r#"
            [[rules]]
            name = "own"
            match = { prefix = "own" }
            strategy = { type = "truncate", max_lines = 4, head = 1, tail = 1 }

            [[rules]]
            name = "cargo-build"
            match = { prefix = "cargo build" }
            strategy = { type = "truncate", max_lines = 4, head = 1, tail = 1 }

            [[rules]]
            name = "git-status"
            enabled = false
        "#;
        let listing = testing::filters::<Engine>(Some(rules)).unwrap();
        assert_eq!(listing.problems, <[String; 0]>::default());
        assert_eq!(
            (listing.filters[0].name.as_ref(), listing.filters[1].name.as_ref()),
            ("own", "cargo-build")
        );
        assert_eq!(listing.filters.len(), built_in.filters.len());
        assert!(!listing.filters.iter().any(|filter| filter.name == "git-status"));
        let verdict = testing::filter::<Engine>(
            Some(rules),
            "own",
            &Input::command(
                "own",
                0,
                [
                    "a\nb b b b b b b b b b b b b b b b b b b\nc c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c c\nd d d d\ne\n",
                ],
            ),
        );
        assert_eq!(
            verdict.unwrap().joined_text().as_deref(),
            Some("a\n... (3 lines left out) ...\ne\n")
        );
    }

    #[test]
    fn step_is_used_only_for_commands_that_its_conditions_allow() {
        let rules = r#"
            [[rules]]
            name = "own"
            match = { prefix = "own" }
            strategy = [
              { type = "strip_noise", patterns = ['^noise'], unless = [' (-v|--verbose)( |$)'] },
              { type = "strip_noise", patterns = ['^chatter'], when = [' --quiet$'] },
            ]
        "#;
        let text = format!(
            "result\n{}{}",
            "noise that is long enough to be left out\n".repeat(3),
            "chatter that is long enough to be left out\n".repeat(3)
        );
        for (command, noise, chatter) in [
            ("own", false, true),
            ("own -v", true, true),
            ("own -verb", false, true),
            ("own --quiet", false, false),
            ("own -v --quiet", true, false),
        ] {
            let input = Input::command(command, 0, [text.as_str()]);
            let verdict = testing::filter::<Engine>(Some(rules), "own", &input).unwrap();
            let left = verdict.joined_text().unwrap_or_else(|| text.clone());
            assert_eq!(
                (left.contains("noise"), left.contains("chatter")),
                (noise, chatter),
                "{command}:\n{left}"
            );
        }
        let wrong = rules.replace("( |$)", "( |$");
        let problems = testing::filters::<Engine>(Some(&wrong)).unwrap().problems;
        assert!(problems[0].contains("`unless`: the expression"), "{problems:?}");
    }

    #[test]
    fn output_that_other_commands_wrote_too_is_not_folded() {
        let text: String = (0..90).map(|at| format!("imported batch {at} of 90\n")).collect();
        let mut input = Input::command("./importer", 0, [text.as_str()]);
        let folded = testing::filter::<Engine>(None, "similar-lines", &input).unwrap();
        assert!(folded.joined_text().is_some_and(|left| left.lines().count() == 3));
        input.meta = Some(serde_json::json!({ "berth:alone": false }));
        let kept = testing::filter::<Engine>(None, "similar-lines", &input).unwrap();
        assert_eq!(kept, Verdict::Keep);
        let shown = Input::command("cat batches.txt", 0, [text.as_str()]);
        let kept = testing::filter::<Engine>(None, "similar-lines", &shown).unwrap();
        assert_eq!(kept, Verdict::Keep);
    }

    #[test]
    fn rule_applies_to_both_parts_of_an_output() {
        let rules = "[[rules]]\nname = \"own\"\nmatch = { prefix = \"own\" }\nstrategy = { type = \"strip_noise\", patterns = ['^noise'] }\n";
        let noisy = "noise that is long enough to be worth leaving out\n".repeat(3);
        let input = Input::command("own", 0, ["short", &noisy]);
        let Verdict::Replace(replacement) =
            testing::filter::<Engine>(Some(rules), "own", &input).unwrap()
        else {
            panic!()
        };
        assert_eq!(replacement.confidence, Confidence::Full);
        let texts: Vec<_> =
            replacement.content.iter().map(|part| part.as_text().unwrap()).collect();
        assert_eq!(texts, ["short", "... (3 lines left out) ...\n"]);
        assert_eq!(
            testing::filter::<Engine>(Some(rules), "own", &Input::command("own", 0, ["short"]))
                .unwrap(),
            Verdict::Keep
        );
        // If everything would be left out, the output stays.
        assert_eq!(
            testing::filter::<Engine>(
                Some(rules),
                "own",
                &Input::command("own", 0, [noisy.as_str()])
            )
            .unwrap(),
            Verdict::Keep
        );
        assert!(testing::filter::<Engine>(Some(rules), "other", &input).is_err());
    }
}
