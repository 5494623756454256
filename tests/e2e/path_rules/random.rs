//! Every tool with random trees, rules and arguments: compares what it reached with what the rules
//! allow.
//!
//! The judge shares no code with Toolhold: it matches patterns part by part and uses the list from
//! which the rules were written. It decides on each file that a call showed or changed as if the
//! call had named it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolhold_core::config::{self, Folders, Inputs};
use toolhold_core::{Access, Phase, Request, Scope, Verdict};

use super::trees::{FILES, FOLDERS, Random, Thing, Tree, plant, tree};
use crate::approvals::Person;
use crate::support::Scene;

/// Cases of every test run, and of a long one.
const CASES: u64 = 250;
const MANY: u64 = 20_000;

const TOOLS: [&str; 11] = [
    "read",
    "write",
    "edit",
    "grep",
    "find_path",
    "list_directory",
    "create_directory",
    "delete_path",
    "move_path",
    "copy_path",
    "bash",
];

/// A rule over all tools.
#[derive(Debug)]
struct Rule {
    allows: bool,
    tools: Vec<&'static str>,
    paths: Vec<String>,
    access: Option<Access>,
    phase: Option<Phase>,
}

/// Rules of all kinds.
#[derive(Debug, Default)]
struct Rules {
    /// A ceiling, and the policy.
    sets: [Vec<Rule>; 2],
    /// For each tool: patterns, and the effect on what they match.
    permissions: BTreeMap<&'static str, Vec<(String, &'static str)>>,
}

fn pattern(random: &mut Random, known: &[PathBuf], granted: &Path) -> String {
    let path = if known.is_empty() { PathBuf::from("a") } else { random.pick(known).clone() };
    let name =
        path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let path = path.display().to_string();
    match random.below(9) {
        0 => name,
        1 => path,
        2 => format!("{}/{path}", granted.display()),
        3 => format!("{path}/**"),
        4 => format!("**/{name}"),
        5 => "*.env".to_owned(),
        6 => format!("{}/*/{}", granted.display(), random.pick(&FILES)),
        7 => path.to_uppercase(),
        _ => format!("{}/**/{}", granted.display(), random.pick(&FOLDERS)),
    }
}

impl Rules {
    fn random(random: &mut Random, known: &[PathBuf], granted: &Path) -> Self {
        let mut rules = Self::default();
        for set in &mut rules.sets {
            // Most sets are empty, and most rules deny: otherwise nothing would run.
            let lists_all = random.one_in(6);
            for _ in 0..if random.one_in(3) { 1 + random.below(2) } else { 0 } {
                let allows = lists_all && random.one_in(2);
                let tools = if random.one_in(2) {
                    Vec::new()
                } else {
                    vec![*random.pick(&TOOLS), *random.pick(&TOOLS)]
                };
                let paths = if allows && random.one_in(2) {
                    vec![granted.display().to_string()]
                } else {
                    (0..=random.below(2)).map(|_| pattern(random, known, granted)).collect()
                };
                let access = *random.pick(&[None, None, Some(Access::Read), Some(Access::Write)]);
                let phase = *random.pick(&[None, None, None, Some(Phase::Planner)]);
                set.push(Rule { allows, tools, paths, access, phase });
            }
            if set.iter().any(|rule| rule.allows) && random.one_in(2) {
                set.push(Rule {
                    allows: true,
                    tools: vec!["bash"],
                    paths: Vec::new(),
                    access: None,
                    phase: None,
                });
            }
        }
        for tool in TOOLS.into_iter().filter(|tool| *tool != "bash") {
            if random.one_in(2) {
                let list = (0..1 + random.below(2)).map(|_| {
                    (
                        pattern(random, known, granted),
                        *random.pick(&["allow", "ask", "ask", "deny"]),
                    )
                });
                rules.permissions.insert(tool, list.collect());
            }
        }
        rules
    }

    fn set_in_toml(set: &[Rule], table: &str) -> String {
        let mut text = String::new();
        for rule in set {
            let effect = if rule.allows { "allow" } else { "deny" };
            write!(
                text,
                "[[{table}.rules]]\neffect = \"{effect}\"\ntools = {:?}\npaths = {:?}\n",
                rule.tools, rule.paths
            )
            .expect("a text");
            if let Some(access) = rule.access {
                writeln!(
                    text,
                    "access = \"{}\"",
                    if access == Access::Read { "read" } else { "write" }
                )
                .expect("a text");
            }
            if rule.phase.is_some() {
                text.push_str("phases = [\"planner\"]\n");
            }
        }
        text
    }

    fn in_toml(&self) -> String {
        let mut text = String::from("[tools]\nautonomy = \"full\"\n");
        text += &Self::set_in_toml(&self.sets[1], "tools.policy");
        for (tool, list) in &self.permissions {
            for (pattern, action) in list {
                write!(
                    text,
                    "[[tools.permissions.{tool}]]\npattern = {pattern:?}\naction = \"{action}\"\n"
                )
                .expect("a text");
            }
        }
        text
    }
}

/// Whether a pattern covers an absolute path: the path, or a folder that it lies in.
fn covers(pattern: &str, path: &Path, ignoring_case: bool) -> bool {
    let fold = |text: &str| if ignoring_case { text.to_lowercase() } else { text.to_owned() };
    let pattern = fold(pattern);
    let stem = pattern.strip_suffix("/**").unwrap_or(&pattern);
    let mut wanted: Vec<&str> = stem.split('/').filter(|part| !part.is_empty()).collect();
    if !stem.starts_with('/') && wanted.first() != Some(&"**") {
        wanted.insert(0, "**");
    }
    let path = fold(&path.display().to_string());
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    (0..=parts.len()).any(|length| fits(&wanted, &parts[..length]))
}

fn fits(wanted: &[&str], parts: &[&str]) -> bool {
    match (wanted, parts) {
        ([], []) => true,
        (["**", rest @ ..], parts) => {
            (0..=parts.len()).any(|skipped| fits(rest, &parts[skipped..]))
        }
        ([one, rest @ ..], [part, others @ ..]) => {
            let alike = match one.split_once('*') {
                Some((before, after)) => {
                    part.len() >= before.len() + after.len()
                        && part.starts_with(before)
                        && part.ends_with(after)
                }
                None => one == part,
            };
            alike && fits(rest, others)
        }
        _ => false,
    }
}

/// Decides what a call may reach.
struct Judge<'j> {
    rules: &'j Rules,
    tool: &'j str,
    phase: Option<Phase>,
    /// The subject of the call by its real path. A person has approved it.
    named: Vec<PathBuf>,
    /// The links before the call, by absolute path, with their targets.
    links: BTreeMap<String, PathBuf>,
}

impl Judge<'_> {
    /// Whether a pattern covers an absolute path. A pattern that names a link from the root on
    /// covers the link's target too.
    fn covers(&self, pattern: &str, path: &Path, ignoring_case: bool) -> bool {
        let target = self.links.get(pattern).map(|target| target.display().to_string());
        covers(pattern, path, ignoring_case)
            || target.is_some_and(|target| covers(&target, path, ignoring_case))
    }

    fn denied(&self, path: &Path, access: Access) -> bool {
        self.rules.sets.iter().flatten().filter(|rule| !rule.allows && self.is_about(rule)).any(
            |rule| {
                let bound =
                    rule.access.is_none_or(|bound| bound == access || bound == Access::Read);
                bound && rule.paths.iter().any(|pattern| self.covers(pattern, path, true))
            },
        )
    }

    fn is_about(&self, rule: &Rule) -> bool {
        (rule.tools.is_empty() || rule.tools.contains(&self.tool))
            && (rule.phase.is_none() || rule.phase == self.phase)
    }

    fn listed(&self, path: &Path, access: Access) -> bool {
        self.rules.sets.iter().filter(|set| set.iter().any(|rule| rule.allows)).all(|set| {
            set.iter().filter(|rule| rule.allows && self.is_about(rule)).any(|rule| {
                let bound =
                    rule.access.is_none_or(|bound| bound == access || bound == Access::Write);
                bound
                    && (rule.paths.is_empty()
                        || rule.paths.iter().any(|pattern| self.covers(pattern, path, false)))
            })
        })
    }

    /// The first permission that matches, by its number.
    fn permission(&self, path: &Path) -> Option<(usize, &'static str)> {
        let list = self.rules.permissions.get(self.tool)?;
        list.iter()
            .position(|(pattern, _)| self.covers(pattern, path, true))
            .map(|number| (number, list[number].1))
    }

    /// Whether the call may reach an absolute path.
    fn lets(&self, path: &Path, access: Access) -> bool {
        let permitted = match self.permission(path) {
            Some((_, "deny")) => false,
            Some((number, "ask")) => {
                let agreed = |named: &&PathBuf| {
                    self.permission(named)
                        .is_some_and(|(asked, action)| asked == number && action == "ask")
                };
                self.named.iter().filter(agreed).any(|named| path.starts_with(named))
            }
            _ => true,
        };
        permitted && self.listed(path, access) && !self.denied(path, access)
    }

    /// The same for a folder that a call makes on the way to what it names.
    fn lets_make(&self, path: &Path) -> bool {
        let on_the_way = self.named.iter().any(|named| named != path && named.starts_with(path));
        on_the_way && !self.denied(path, Access::Write) || self.lets(path, Access::Write)
    }
}

/// All cases use one host, whose rules are exchanged.
struct Trial<'t> {
    scene: &'t Scene,
    seed: u64,
    rules: Rules,
    before: Tree,
    phase: Option<Phase>,
}

/// Counts of all cases, so that they are known to have tried something.
#[derive(Debug, Default)]
struct Tally {
    ran: usize,
    refused: usize,
    left_out: usize,
}

impl Trial<'_> {
    fn at(&self, path: &Path) -> PathBuf {
        self.scene.granted.join(path)
    }

    /// A path to name: mostly an existing one, relative or absolute, sometimes a missing one.
    fn named(&self, random: &mut Random) -> String {
        let is_folder =
            |(path, thing): (&'_ PathBuf, &Thing)| (*thing == Thing::Folder).then(|| path.clone());
        let folders: Vec<PathBuf> = self.before.iter().filter_map(is_folder).collect();
        if !folders.is_empty() && random.one_in(2) {
            return random.pick(&folders).display().to_string();
        }
        let known: Vec<&PathBuf> = self.before.keys().collect();
        let path = if known.is_empty() || random.one_in(8) {
            PathBuf::from(random.pick(&FOLDERS))
        } else {
            (*random.pick(&known)).clone()
        };
        match random.below(4) {
            0 => self.at(&path).display().to_string(),
            1 => format!("./{}", path.display()),
            _ => path.display().to_string(),
        }
    }

    fn arguments(&self, random: &mut Random, tool: &str) -> Value {
        let new = |random: &mut Random| {
            format!("{}/{}", self.named(random), random.pick(&["new", "a", "x.txt", "deep/er"]))
        };
        match tool {
            "read" => json!({ "path": self.named(random) }),
            "write" => {
                json!({ "path": if random.one_in(2) { new(random) } else { self.named(random) }, "content": "written\n" })
            }
            "edit" => {
                json!({ "path": self.named(random), "old_string": "mark", "new_string": "edited" })
            }
            "grep" => match random.below(4) {
                0 => json!({ "pattern": "mark" }),
                1 => json!({ "pattern": "<", "path": self.named(random), "include": "*" }),
                _ => json!({ "pattern": "mark", "path": self.named(random) }),
            },
            "find_path" => match random.below(4) {
                0 => json!({ "pattern": "*" }),
                1 => json!({ "pattern": format!("{}/**/*", self.scene.granted.display()) }),
                2 => {
                    json!({ "pattern": format!("{}/{}/*", self.scene.granted.display(), self.named(random).trim_start_matches('/')) })
                }
                _ => json!({ "pattern": "**/*", "path": self.named(random) }),
            },
            "list_directory" => {
                if random.one_in(4) {
                    json!({})
                } else {
                    json!({ "path": self.named(random) })
                }
            }
            "create_directory" => json!({ "path": new(random) }),
            "delete_path" => json!({ "path": self.named(random), "recursive": true }),
            "move_path" | "copy_path" => {
                let destination = if random.one_in(3) { self.named(random) } else { new(random) };
                json!({ "source": self.named(random), "destination": destination, "overwrite": random.one_in(2) })
            }
            _ => {
                let (one, other) = (self.named(random), self.named(random));
                let reading =
                    "find -L . -type f; find . -type f -exec cat {} +; cat */* link* 2>/dev/null";
                json!({ "command": *random.pick(&[
                    format!("{reading}; true"),
                    format!("{reading}; for f in $(find . -type f); do echo edited >> $f; done; true"),
                    format!("mv {one} {other}.m; {reading}; mkdir -p n && cp -r {one} n/; {reading}"),
                    format!("rm -rf {one}; {reading}; chmod -R a+rwx .; ln {other} hard; cat hard; true"),
                ]) })
            }
        }
    }

    /// Makes a call and checks what it reached.
    async fn call(&self, random: &mut Random, tool: &str, tally: &mut Tally) {
        let arguments = self.arguments(random, tool);
        let context = format!(
            "TOOLHOLD_SEED={} {tool} {arguments} phase {:?}\n{}\n{:#?}",
            self.seed,
            self.phase,
            self.rules.in_toml(),
            self.rules.sets[0]
        );
        let request = || Request { phase: self.phase, ..Request::new(tool, arguments.clone()) };
        let checked = self.scene.host.check(request());
        let named = checked
            .subjects
            .iter()
            .filter(|subject| subject.kind.is_path())
            .map(|subject| PathBuf::from(&subject.text))
            .collect();
        let link = |(path, thing): (&PathBuf, &Thing)| match thing {
            Thing::Link(target) => Some((self.at(path).display().to_string(), target.clone())),
            _ => None,
        };
        let links = self.before.iter().filter_map(link).collect();
        let judge = Judge { rules: &self.rules, tool, phase: self.phase, named, links };
        let answer = self
            .scene
            .host
            .call(Request { approver: Some(Person::yes(Scope::Once)), ..request() })
            .await;
        let (shown, whole) = match &answer.outcome {
            Ok(output) => (format!("{} {:?}", output.joined_text(), output.structured), true),
            Err(failure) => (format!("{failure:?}"), false),
        };
        *if whole { &mut tally.ran } else { &mut tally.refused } += 1;
        tally.left_out += usize::from(
            shown.contains("because access needs approval")
                || shown.contains("denied by the operator"),
        );
        let after = tree(&self.scene.granted);

        // The shown files.
        for (path, thing) in &self.before {
            let Thing::File(mark) = thing else { continue };
            if shown.contains(mark.trim()) {
                assert!(
                    judge.lets(&self.at(path), Access::Read),
                    "{} was shown: {shown}\n{context}",
                    path.display()
                );
            }
        }
        if matches!(tool, "find_path" | "list_directory") && whole {
            for line in shown.lines() {
                let name = line
                    .trim_start_matches(|c: char| c != ']')
                    .trim_start_matches("] ")
                    .split("  ")
                    .next()
                    .unwrap_or_default();
                let (name, root) = if tool == "find_path" {
                    (line, self.scene.granted.as_path())
                } else {
                    (name, judge.named[0].as_path())
                };
                let path = root.join(name.trim_end_matches('/'));
                let is_there = path
                    .strip_prefix(&self.scene.granted)
                    .is_ok_and(|path| self.before.contains_key(path));
                assert!(
                    !is_there || judge.lets(&path, Access::Read),
                    "{} was listed: {shown}\n{context}",
                    path.display()
                );
            }
        }
        // The changed files.
        let origin = |text: &str| {
            self.before
                .iter()
                .find(|(_, thing)| matches!(thing, Thing::File(mark) if text.contains(mark.trim())))
                .map(|(path, _)| path)
        };
        for (path, thing) in &after {
            let known = self.before.get(path);
            // A command can create anything where nothing was, and no mount covers a link itself.
            if known == Some(thing)
                || tool == "bash" && matches!(known, None | Some(Thing::Link(_)))
            {
                continue;
            }
            let changed = self.at(path);
            let lets = if *thing == Thing::Folder {
                judge.lets_make(&changed)
            } else {
                judge.lets(&changed, Access::Write)
            };
            assert!(lets, "{} was changed: {thing:?}\n{context}\n{shown}", path.display());
        }
        for (path, thing) in &after {
            if let Thing::File(text) = thing
                && let Some(from) = origin(text).filter(|from| *from != path)
            {
                assert!(
                    judge.lets(&self.at(from), Access::Read),
                    "{} got to {}\n{context}\n{shown}",
                    from.display(),
                    path.display()
                );
            }
        }
        let gone = self.before.iter().filter(|(path, thing)| {
            !(after.contains_key(*path) || tool == "bash" && matches!(thing, Thing::Link(_)))
        });
        for (path, _) in gone {
            assert!(
                judge.lets(&self.at(path), Access::Write),
                "{} is gone\n{context}\n{shown}",
                path.display()
            );
        }
        assert!(
            !after.keys().any(|path| path.display().to_string().contains(".toolhold-")),
            "something was left\n{context}"
        );

        let passed = answer.decision.is_some_and(|decision| decision.verdict == Verdict::Allow);
        if passed {
            self.must_reach(tool, &judge, whole, &shown, &context);
        }
    }

    /// An allowed path is reached by an allowed call: otherwise a host that refuses everything
    /// would pass.
    fn must_reach(&self, tool: &str, judge: &Judge<'_>, ran: bool, shown: &str, context: &str) {
        let is_folder = |path: &Path| {
            path == self.scene.granted
                || self.before.get(path.strip_prefix(&self.scene.granted).unwrap_or(path))
                    == Some(&Thing::Folder)
        };
        match tool {
            "grep" if ran && is_folder(&judge.named[0]) => {
                let root = &judge.named[0];
                for (path, thing) in &self.before {
                    let (path, Thing::File(mark)) = (self.at(path), thing) else { continue };
                    let way = path.ancestors().take_while(|above| above != root);
                    if path.starts_with(root)
                        && way.into_iter().all(|above| judge.lets(above, Access::Read))
                    {
                        assert!(
                            shown.contains(mark.trim()),
                            "{} was not found: {shown}\n{context}",
                            path.display()
                        );
                    }
                }
            }
            "copy_path" | "move_path" | "delete_path"
                if !ran && shown.contains("PolicyBlocked") =>
            {
                // Something in it, or under its new name, is denied.
                let is_clean =
                    |path: &Path| judge.lets(path, Access::Read) && judge.lets(path, Access::Write);
                let (root, target) =
                    (&judge.named[0], judge.named.last().expect("it names something"));
                let below = self
                    .before
                    .keys()
                    .map(|path| self.at(path))
                    .filter(|path| path.starts_with(root));
                let mut both = below.flat_map(|path| {
                    [target.join(path.strip_prefix(root).expect("it is below")), path]
                });
                let above =
                    |path: &Path| path.ancestors().skip(1).all(|above| judge.lets_make(above));
                let leads_out = self.before.values().any(|thing| matches!(thing, Thing::Link(_)));
                let clean = both.all(|path| is_clean(&path))
                    && is_clean(root)
                    && is_clean(target)
                    && above(target)
                    && above(root);
                assert!(
                    !clean || leads_out || shown.contains("granted directory"),
                    "nothing is against it: {shown}\n{context}"
                );
            }
            _ => {}
        }
    }
}

async fn try_all(seed: u64, cases: u64) {
    let scene = Scene::with(&["tools.call=60", "tools.max_concurrent=8"], |root| {
        fs::remove_file(root.join("granted/public.txt")).expect("it goes");
    })
    .await;
    let tools: Vec<String> = scene.host.tools().iter().map(|tool| tool.name.clone()).collect();
    let of_files = tools.iter().filter(|name| {
        scene
            .host
            .plugin_of(name)
            .is_some_and(|plugin| ["file", "shell"].contains(&&*plugin.manifest.name))
    });
    let mut of_files: Vec<&str> = of_files.map(String::as_str).collect();
    of_files.sort_unstable();
    let mut tried = TOOLS.to_vec();
    tried.sort_unstable();
    assert_eq!(of_files, tried, "each tool has its trials");

    let folders = Folders::inside(&scene.root().join("rules"));
    let ceiling = scene.root().join("ceiling.toml");
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for seed in seed..seed + cases {
        let mut random = Random(seed);
        let random = &mut random;
        for entry in fs::read_dir(&scene.granted).expect("it is readable").flatten() {
            let path = entry.path();
            if path.is_symlink() || path.is_file() {
                fs::remove_file(path)
            } else {
                fs::remove_dir_all(path)
            }
            .expect("it is emptied");
        }
        plant(random, &scene.granted);
        let before = tree(&scene.granted);
        let known: Vec<PathBuf> = before.keys().cloned().collect();
        let rules = Rules::random(random, &known, &scene.granted);
        fs::write(&ceiling, Rules::set_in_toml(&rules.sets[0], "tools.policy"))
            .expect("the ceiling is written");
        fs::create_dir_all(folders.config.clone())
            .and_then(|()| fs::write(folders.config.join("toolhold.toml"), rules.in_toml()))
            .expect("the rules are written");
        let variables = vec![("TOOLHOLD_CEILING".into(), ceiling.clone().into_os_string())];
        let loaded = config::load(&folders, &Inputs { variables, ..Inputs::default() });
        let loaded = loaded
            .unwrap_or_else(|error| panic!("TOOLHOLD_SEED={seed} {error}\n{}", rules.in_toml()));
        scene.host.reload_rules(&loaded).expect("they are right");
        let phase = *random.pick(&[None, Some(Phase::Planner)]);
        // A command takes longer than all others.
        let tool = if random.one_in(8) { "bash" } else { random.pick(&TOOLS[..TOOLS.len() - 1]) };
        let trial = Trial { scene: &scene, seed, rules, before, phase };
        trial.call(random, tool, tallies.entry(tool).or_default()).await;
    }
    println!("{tallies:#?}");
    for (tool, tally) in &tallies {
        assert!(tally.ran > 0 && tally.refused > 0 || cases < CASES, "{tool}: {tally:?}");
    }
    assert!(
        cases < CASES || tallies.values().map(|tally| tally.left_out).sum::<usize>() > 0,
        "{tallies:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_rules_hold_for_all_that_every_tool_reaches() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("TOOLHOLD_SEED"), std::env::var_os("TOOLHOLD_SOAK")) {
        (Some(seed), _) => try_all(seed, 1).await,
        (None, Some(_)) => try_all(1_000_000, MANY).await,
        (None, None) => try_all(1, CASES).await,
    }
}
