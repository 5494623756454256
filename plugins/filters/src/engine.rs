//! Offers the rules as filters, the operator's before the built-in ones, and runs the steps of a
//! rule on an output.

use std::borrow::Cow;
use std::cell::OnceCell;

use toolhold_sdk::Content;
use toolhold_sdk::filter::{
    Confidence, Filters, Input, Listing, Matcher, Pattern, Purpose, Registration, Replacement,
    Verdict,
};

use regex::Regex;

use crate::rules::{self, BUILT_IN, Branches, BuiltIn, StaticPattern};
use crate::strategy::{self, Step};
use crate::text::{is_blank, parse_mark};

/// The rules of an instance: first the operator's, then the built-in rules.
pub struct Engine {
    rules: Vec<Rule>,
    problems: Vec<String>,
    /// Commands of the built-in rules that the operator switched off: the fallback leaves their
    /// output alone too.
    switched_off: Vec<Regex>,
}

/// An active rule.
struct Rule {
    name: Cow<'static, str>,
    matcher: Matcher,
    fallback: bool,
    meta: Cow<'static, str>,
    /// The source of a built-in rule's steps. They are compiled for the first output that needs
    /// them.
    source: &'static str,
    steps: OnceCell<Result<Branches, String>>,
}

impl Rule {
    fn from_built_in(rule: &'static BuiltIn) -> Self {
        Self {
            name: rule.name.into(),
            matcher: Matcher { tool: rule.tool.into(), subject: rule.subject.into() },
            fallback: rule.fallback,
            meta: rule.meta.into(),
            source: rule.steps,
            steps: OnceCell::new(),
        }
    }

    fn from_operator(rule: rules::OperatorRule) -> Self {
        Self {
            name: rule.name.into(),
            matcher: rule.matcher,
            fallback: false,
            meta: rule.meta.into(),
            source: "",
            steps: OnceCell::from(Ok(rule.steps)),
        }
    }

    fn steps(&self) -> Result<&Branches, String> {
        self.steps
            .get_or_init(|| strategy::from_json(self.source).map(Branches::from))
            .as_ref()
            .map_err(Clone::clone)
    }
}

impl Filters for Engine {
    fn new(text: Option<&str>) -> Result<Self, String> {
        let rules::OperatorRules { rules: own, replaced, problems } =
            text.map(rules::read).unwrap_or_default();
        let built_in =
            BUILT_IN.iter().filter(|rule| !replaced.iter().any(|name| name == rule.name));
        let switched_off = BUILT_IN
            .iter()
            .filter(|rule| replaced.iter().any(|name| name == rule.name))
            .filter(|rule| !own.iter().any(|own| own.name == rule.name))
            .filter_map(|rule| match rule.subject {
                StaticPattern::Regex(text) => Regex::new(text).ok(),
                _ => None,
            })
            .collect();
        let rules = own
            .into_iter()
            .map(Rule::from_operator)
            .chain(built_in.map(Rule::from_built_in))
            .collect();
        Ok(Self { rules, problems, switched_off })
    }

    fn list(&self) -> Listing {
        let filters = self.rules.iter().map(|rule| Registration {
            name: rule.name.clone(),
            purpose: Purpose::Cosmetic,
            matchers: vec![rule.matcher.clone()],
            fallback: rule.fallback,
            meta: Some(rule.meta.clone()),
        });
        Listing { filters: filters.collect(), problems: self.problems.clone() }
    }

    fn apply(&mut self, filter: &str, input: &Input) -> Result<Verdict, String> {
        let Some(rule) = self.rules.iter().find(|rule| rule.name == filter) else {
            return Err(format!("rule {filter:?} is missing"));
        };
        let command = input.subject.as_deref().unwrap_or_default();
        let alone = !input.among_others;
        // Other commands of the line may have shown files.
        if matches!(rule.matcher.subject, Pattern::Any)
            && (!alone || self.switched_off.iter().any(|off| off.is_match(command)))
        {
            return Ok(Verdict::Keep);
        }
        // If other commands wrote to the output too, unknown lines stay.
        let failed = !input.passed() || !alone;
        let code = if alone { input.exit_code } else { None };
        let steps = rule.steps()?.steps(failed, code);
        let steps: Vec<&Step> = steps.iter().filter(|step| step.is_for(command)).collect();
        let mut worst = Confidence::Full;
        let content = input.map_texts(|text| {
            let (shorter, confidence) = strategy::run(steps.iter().copied(), text, failed)?;
            worst = worst.max(confidence);
            Some(shorter)
        });
        // A text of marks only would be useless.
        let content = content.filter(|content| content.iter().any(has_text));
        Ok(content.map_or(Verdict::Keep, |content| Replacement::new(content, worst).into()))
    }
}

fn has_text(part: &Content) -> bool {
    part.as_text()
        .is_none_or(|text| text.lines().any(|line| !is_blank(line) && parse_mark(line).is_none()))
}

#[cfg(test)]
mod tests {
    use toolhold_sdk::testing;

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
    fn branch_depends_on_the_exit_code() {
        let strip = |word: &str| format!("{{ type = \"strip_noise\", patterns = ['^{word} '] }}");
        let rules = format!(
            "[[rules]]\nname = \"own\"\nmatch = {{ prefix = \"own\" }}\non_success = {}\non_failure = {}\non_exit = {{ 3 = {}, \"4,5\" = [{}] }}\n",
            strip("aa"),
            strip("bb"),
            strip("cc"),
            strip("dd"),
        );
        let text: String =
            ["aa", "bb", "cc", "dd"].map(|word| format!("{word} {}\n", "x".repeat(99))).concat();
        let left_out = |input: &Input| {
            let verdict = testing::filter::<Engine>(Some(&rules), "own", input).unwrap();
            let shorter = verdict.joined_text().unwrap_or_default();
            let gone = ["aa", "bb", "cc", "dd"].into_iter().filter(|word| !shorter.contains(word));
            gone.collect::<Vec<_>>().join(",")
        };
        for (exit, gone) in [(0, "aa"), (1, "bb"), (3, "cc"), (4, "dd"), (5, "dd"), (255, "bb")] {
            assert_eq!(left_out(&Input::command("own", exit, [text.as_str()])), gone, "{exit}");
        }
        // A command that was stopped has no code.
        let killed = Input { exit_code: None, ..Input::command("own", 1, [text.as_str()]) };
        assert_eq!(left_out(&killed), "bb");
        // The code of a line with other commands isn't the command's.
        let input = Input { among_others: true, ..Input::command("own", 3, [text.as_str()]) };
        assert_eq!(left_out(&input), "bb");
    }

    #[test]
    fn output_stays_where_no_branch_fits() {
        let rules = "[[rules]]\nname = \"own\"\nmatch = { prefix = \"own\" }\non_exit = { 2 = { type = \"dedup\" } }\n";
        let text = "the same line, which is said again and again\n".repeat(9);
        let verdict = |exit| {
            let input = Input::command("own", exit, [text.as_str()]);
            testing::filter::<Engine>(Some(rules), "own", &input).unwrap()
        };
        assert_eq!((verdict(0), verdict(1)), (Verdict::Keep, Verdict::Keep));
        assert_ne!(verdict(2), Verdict::Keep);
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
    fn conditions_count_within_a_branch() {
        let rules = r#"
            [[rules]]
            name = "own"
            match = { prefix = "own" }
            on_success = { type = "strip_noise", patterns = ['^noise'], unless = [' -v$'] }
            on_exit = { 3 = { type = "strip_noise", patterns = ['^noise'], when = [' -q$'] } }
        "#;
        let text = format!("result\n{}", "noise that is long enough to be left out\n".repeat(3));
        for (command, exit, is_left_out) in [
            ("own", 0, true),
            ("own -v", 0, false),
            ("own", 3, false),
            ("own -q", 3, true),
            ("own -q", 4, false),
        ] {
            let input = Input::command(command, exit, [text.as_str()]);
            let verdict = testing::filter::<Engine>(Some(rules), "own", &input).unwrap();
            assert_eq!(verdict != Verdict::Keep, is_left_out, "{command}, exit {exit}");
        }
    }

    #[test]
    fn flag_that_asks_for_more_stops_only_the_steps_that_would_leave_it_out() {
        let names: String = (0..9)
            .map(|at| format!("tests/test_cart.py::test_number_{at} PASSED [  9%]\n"))
            .collect();
        let frame = |path: &str| format!("    f()\n\n{path}:1: \n_ _ _ _ _ _ _ _\n");
        let python = format!(
            "{names}____ test_total ____\n\n{}{}    def f():\n>       return 1 / 0\nE       ZeroDivisionError\n\na.py:9: ZeroDivisionError\n",
            frame("a.py"),
            frame("/lib/python3/site-packages/b.py"),
        );
        let event = |action: &str, test: &str, output: &str| {
            serde_json::json!({ "Action": action, "Package": "shop", "Test": test, "Output": output })
                .to_string()
                + "\n"
        };
        let go = [
            event("output", "TestAdds", "the cart has 17 things\n"),
            event("pass", "TestAdds", ""),
            event("output", "TestTotal", "want 4\n"),
            event("fail", "TestTotal", ""),
        ]
        .concat();
        let node = format!(
            "TypeError: no\n    at own (/home/u/a.js:3:1)\n{}",
            "    at Module.load (node:internal/modules/cjs/loader:1289:32)\n".repeat(5)
        );
        for (command, rule, text, part, stays) in [
            ("pytest", "pytest", &python, "site-packages", false),
            ("pytest -v", "pytest", &python, "site-packages", false),
            ("pytest -v --full-trace", "pytest", &python, "site-packages", true),
            ("pytest", "pytest", &python, "test_number_5", false),
            ("pytest -v", "pytest", &python, "test_number_5", true),
            ("go test -json ./...", "go-test", &go, "17 things", false),
            ("go test -v -json ./...", "go-test", &go, "17 things", true),
            ("node a.js", "similar-lines", &node, "Module.load", false),
            ("node --stack-trace-limit=50 a.js", "similar-lines", &node, "Module.load", true),
            ("python3 a.py", "similar-lines", &node, "Module.load", true),
        ] {
            let input = Input::command(command, 1, [text.as_str()]);
            let verdict = testing::filter::<Engine>(None, rule, &input).unwrap();
            let left = verdict.joined_text().unwrap_or_else(|| text.clone());
            assert_eq!(left.contains(part), stays, "{command}, {part}:\n{left}");
        }
    }

    #[test]
    fn output_that_other_commands_wrote_too_is_not_folded() {
        let text: String = (0..90).map(|at| format!("imported batch {at} of 90\n")).collect();
        let mut input = Input::command("./importer", 0, [text.as_str()]);
        let folded = testing::filter::<Engine>(None, "similar-lines", &input).unwrap();
        assert!(folded.joined_text().is_some_and(|left| left.lines().count() == 3));
        input.among_others = true;
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
