//! Properties of decisions that hold for random rules and calls.

#[expect(
    unreachable_pub,
    dead_code,
    reason = "shared by several test programs, each of which uses a part"
)]
mod support;

use proptest::prelude::*;
use toolhold_policy::rules::{Effect, Rule, RuleSet};
use toolhold_policy::{Autonomy, Gate, Policy, Trust, Verdict};

use support::{Call, autonomy, bash, blocklist, decide, list, moved, placed, read, rule, write};

const TOOLS: [&str; 4] = ["read", "write", "move_path", "bash"];
const PATHS: [&str; 5] = ["/w/a/x", "/w/a/y", "/w/b/x", "/w/B/X", "/w/c"];
const COMMANDS: [&str; 8] =
    ["ls", "git push", "rm x", "sudo x", "ls; git push", "$X", "timeout 1 ls", "ls > a"];
const PATTERNS: [&str; 10] =
    ["*", "a/**", "b", "/w/a/x", "x", "git *", "ls*", "rm x", "sudo x", "> *"];
const VERDICTS: [Verdict; 3] = [Verdict::Allow, Verdict::Ask, Verdict::Deny];

fn any_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    prop::sample::select(all)
}

fn calls() -> impl Strategy<Value = Call> {
    let trust = any_of(&[
        Trust::Trusted,
        Trust::Trusted,
        Trust::Verified,
        Trust::Quarantined,
        Trust::Blocked,
    ]);
    (any_of(&TOOLS), any_of(&PATHS), any_of(&PATHS), any_of(&COMMANDS), any::<bool>(), trust)
        .prop_map(|(tool, one, other, command, subjects_trusted, trust)| {
            let call = match tool {
                "read" => read(one),
                "write" => write(one),
                "move_path" => moved(one, other),
                _ => bash(command),
            };
            Call { subjects_trusted, trust, ..call }
        })
}

type WrittenRule = (&'static str, Verdict);

fn written_rules() -> impl Strategy<Value = Vec<WrittenRule>> {
    prop::collection::vec((any_of(&PATTERNS), any_of(&VERDICTS)), 0..4)
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let one = (
        any_of(&[Effect::Allow, Effect::Deny]),
        any_of(&["", "read", "*", "*e*", "bash"]),
        any_of(&["", "a", "b/**", "x"]),
    )
        .prop_map(|(effect, tool, path)| {
            let list = |text: &'static str| if text.is_empty() { Vec::new() } else { vec![text] };
            rule(effect, &list(tool), &list(path))
        });
    prop::collection::vec(one, 0..3)
}

/// The parts of a policy, from which a test can build it again with a part more or less.
#[derive(Clone, Debug)]
struct PolicyParts {
    lists: Vec<(&'static str, Vec<WrittenRule>)>,
    sets: [Vec<Rule>; 2],
    autonomy: Autonomy,
    block_high_risk: bool,
}

fn policies() -> impl Strategy<Value = PolicyParts> {
    let lists = prop::collection::vec((any_of(&TOOLS), written_rules()), 0..4);
    let level = any_of(&[Autonomy::ReadOnly, Autonomy::Ask, Autonomy::Full]);
    (lists, rules(), rules(), level, any::<bool>()).prop_map(
        |(lists, one, two, autonomy, block_high_risk)| PolicyParts {
            lists,
            sets: [one, two],
            autonomy,
            block_high_risk,
        },
    )
}

impl PolicyParts {
    fn policy(&self) -> Policy {
        let mut policy = autonomy(self.autonomy);
        for (tool, rules) in &self.lists {
            policy.permissions.add(*tool, list(rules));
        }
        let set = |index: usize| RuleSet { rules: self.sets[index].clone() };
        policy.ceiling = vec![set(0)];
        policy.policy = set(1);
        policy.block_high_risk = placed(self.block_high_risk);
        policy.blocklist = blocklist();
        policy
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// An added allow doesn't change a denial of the blocklist or of the rules for all tools. The
    /// exception is an allow in the set that denied because none of its rules that allow matched.
    #[test]
    fn added_allow_does_not_change_a_denial(parts in policies(), call in calls(), tool in any_of(&TOOLS), pattern in any_of(&PATTERNS), place in 0..7_usize) {
        let before = decide(&parts.policy(), &call, true);
        prop_assume!(before.verdict == Verdict::Deny);
        let mut more = parts.clone();
        let lists = more.lists.len();
        match place {
            0..=1 => more.sets[place].push(rule(Effect::Allow, &[], &[])),
            2..=3 => more.lists.insert(0, (tool, vec![(pattern, Verdict::Allow)])),
            4 => more.autonomy = Autonomy::Full,
            _ if lists > 0 => more.lists[place % lists].1.insert(0, (pattern, Verdict::Allow)),
            _ => {}
        }
        let after = decide(&more.policy(), &call, true);
        let is_own_rule = match place {
            0..=1 => [Gate::Ceiling, Gate::Policy][place] == before.gate && before.rule.contains("no allow rule"),
            4 => before.gate == Gate::Autonomy,
            // An earlier rule of the same list decides.
            5.. => before.gate == Gate::Permissions,
            _ => false,
        };
        prop_assert!(after.verdict == Verdict::Deny || is_own_rule, "{before:?} became {after:?}");
    }

    /// A rule at the end of a list doesn't change a decision of an earlier rule in it.
    #[test]
    fn permission_at_the_end_does_not_change_earlier_decision(call in calls(), rules in written_rules(), last in (any_of(&PATTERNS), any_of(&VERDICTS))) {
        let with = |rules: &[WrittenRule]| {
            let mut policy = autonomy(Autonomy::Ask);
            policy.permissions.add(call.tool, list(rules));
            policy
        };
        let all = [rules.as_slice(), &[("*", Verdict::Ask)]].concat();
        let longer = [all.as_slice(), &[last]].concat();
        prop_assert_eq!(decide(&with(&all), &call, false), decide(&with(&longer), &call, false));
        // If no earlier rule decides, it may decide, but it doesn't change a denial.
        let (short, long) = (decide(&with(&rules), &call, false), decide(&with(&[rules.as_slice(), &[last]].concat()), &call, false));
        prop_assert!(short.verdict < Verdict::Deny || long.verdict == Verdict::Deny, "{short:?} became {long:?}");
    }

    /// Removing permissions that allow, lowering autonomy, or adding a rule that denies never
    /// allows more.
    #[test]
    fn stricter_policy_never_allows_more(parts in policies(), call in calls(), place in 0..10_usize, confirmed in any::<bool>()) {
        let mut less = parts.clone();
        let sets = less.sets.len();
        match place {
            0 => less.autonomy = Autonomy::Ask.min(less.autonomy),
            1 => less.autonomy = Autonomy::ReadOnly,
            2 => less.block_high_risk = true,
            3..=5 => less.sets[place % sets].push(rule(Effect::Deny, &[], &["a"])),
            6..=8 => less.lists.push((call.tool, vec![("*", VERDICTS[place % 3].max(Verdict::Ask))])),
            _ => less.lists.iter_mut().for_each(|(_, rules)| rules.retain(|(_, verdict)| *verdict != Verdict::Allow)),
        }
        let (before, after) = (decide(&parts.policy(), &call, confirmed), decide(&less.policy(), &call, confirmed));
        prop_assert!(after.verdict >= before.verdict, "{before:?} became {after:?}");
    }
}
