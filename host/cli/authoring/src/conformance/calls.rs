//! Calls a tool with ordinary and hostile arguments, and finds one that its own paths don't reach.

use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_core::text::counted;
use toolhold_core::{
    Answer, CancellationToken, Category, Definition, Host, Request, Session, SubjectKind,
    compile_schema,
};

use crate::conformance::cases::{Case, Cases};
use crate::conformance::judge::{Judge, Rule, file_denial, reached, word};
use crate::conformance::report::{CheckResult, Finding, short};
use crate::conformance::world::{Anybody, World};

/// The time in which a cancelled call has to end.
const MAX_END: Duration = Duration::from_secs(1);

/// The time that a call runs before it is cancelled.
const BEFORE_CANCEL: Duration = Duration::from_millis(2);

/// The tools of a component, in a host.
pub(crate) struct Subject<'a> {
    pub(crate) host: &'a Host,
    pub(crate) world: &'a World,
    pub(crate) seed: u64,
    /// The time that a call may take.
    pub(crate) time: Duration,
    /// Whether its calls may fail because of another machine or a program.
    pub(crate) reaches_others: bool,
}

/// The results of the calls of one tool.
pub(crate) struct Tried {
    pub(crate) checks: Vec<CheckResult>,
    pub(crate) calls: usize,
}

/// The findings so far, one of each rule: the first shows enough.
#[derive(Default)]
struct Found {
    found: Vec<(Rule, Finding)>,
    /// Calls that reached the tool.
    judged: usize,
    /// Calls that a rule of the host refused first.
    refused: usize,
    /// The reason for the first of these.
    refusal: Option<String>,
    calls: usize,
}

impl Found {
    fn has(&self, rule: Rule) -> bool {
        self.found.iter().any(|(known, _)| *known == rule)
    }

    fn add(&mut self, found: Option<(Rule, Finding)>) {
        if let Some((rule, finding)) = found
            && !self.has(rule)
        {
            self.found.push((rule, finding));
        }
    }
}

impl Subject<'_> {
    /// Calls a tool with all kinds of arguments.
    pub(crate) async fn try_tool(&self, tool: &Arc<Definition>) -> Tried {
        let cases = match Cases::from_definition(tool, self.seed) {
            Ok(cases) => cases,
            Err(why) => {
                let finding = Finding::new(
                    "a schema from which valid arguments can be made",
                    why.to_string(),
                    "add `examples` to the schema",
                );
                let check = CheckResult::from_findings(
                    "calls",
                    "arguments made from the schema",
                    vec![finding],
                );
                return Tried { checks: vec![check.for_tool(&tool.name)], calls: 0 };
            }
        };
        let judge = Judge {
            output: tool.output_schema.as_ref().and_then(|schema| compile_schema(schema).ok()),
            reaches_others: self.reaches_others,
            time: self.time,
        };
        let mut found = Found::default();
        let mut checks = vec![self.refusals(tool, &cases.refused, &mut found).await];
        let mut before = None;
        // Twice: files from the first call may be in the tool's way, and that isn't a fault.
        for case in cases.ordinary.iter().chain(&cases.ordinary) {
            // Each call that hangs takes the whole time.
            if found.has(Rule::Time) {
                break;
            }
            before = Some(self.judge(tool, &judge, case, true, &mut found).await);
        }
        checks.push(self.ordinary(tool, &found, before.as_ref()));
        let works = before.as_ref().is_some_and(reached);
        if works {
            for case in &cases.hostile {
                if found.has(Rule::Time) {
                    break;
                }
                self.judge(tool, &judge, case, false, &mut found).await;
            }
        }
        checks.extend(Rule::ALL.map(|rule| self.check_of(rule, tool, &mut found)));
        if let (true, Some(case)) = (works, cases.ordinary.last()) {
            checks.push(self.after_failures(tool, case, before.as_ref(), &mut found).await);
            checks.push(self.cancelled(tool, case, &mut found).await);
        } else {
            let why = "no ordinary call reached the tool";
            checks.extend(
                ["after failures", "cancelling"].map(|name| CheckResult::not_tried(name, why)),
            );
        }
        let checks = checks.into_iter().map(|check| check.for_tool(&tool.name)).collect();
        Tried { checks, calls: found.calls }
    }

    /// Makes one call.
    async fn call(&self, tool: &Definition, case: &Case, cancel: CancellationToken) -> Answer {
        let session = Session::new(format!("toolhold plugin test {}", self.seed));
        let request = Request {
            session: Some(session),
            approver: Some(Arc::new(Anybody)),
            cancel,
            audience: toolhold_core::Audience::Person,
            ..Request::new(&tool.name, case.arguments.clone())
        };
        self.host.call(request).await
    }

    async fn judge(
        &self,
        tool: &Definition,
        judge: &Judge,
        case: &Case,
        ordinary: bool,
        found: &mut Found,
    ) -> Answer {
        let _ = self.world.restore();
        let started = Instant::now();
        let answer = self.call(tool, case, CancellationToken::new()).await;
        found.calls += 1;
        if reached(&answer) {
            found.judged += 1;
            found.add(judge.judge(case, ordinary, &answer, started.elapsed()));
        } else {
            found.refused += 1;
            found.refusal.get_or_insert_with(|| word(&answer));
        }
        if let Some(changed) = self.world.changed_outside() {
            let expected = "nothing outside of the granted directory changes";
            let fix = "report it: the host let the tool out of its sandbox";
            found.add(Some((Rule::Directory, Finding::new(expected, changed, fix))));
        }
        answer
    }

    /// Checks that the host refuses arguments that don't fit the schema, so that the tool never
    /// sees them.
    async fn refusals(&self, tool: &Definition, cases: &[Case], found: &mut Found) -> CheckResult {
        const NAME: &str = "refused first";
        let mut findings = Vec::new();
        for case in cases {
            let answer = self.call(tool, case, CancellationToken::new()).await;
            found.calls += 1;
            findings.extend(not_refused(case, &answer));
        }
        if cases.is_empty() {
            return CheckResult::not_tried(NAME, "the schema accepts every tried value");
        }
        let count = counted(cases.len() as u64, "call");
        let about =
            format!("the host refuses {count} that don't match the schema, and runs no such call");
        CheckResult::from_findings(NAME, about, findings)
    }

    /// Whether ordinary arguments reach the tool.
    fn ordinary(&self, tool: &Definition, found: &Found, last: Option<&Answer>) -> CheckResult {
        const NAME: &str = "ordinary calls";
        let Some(last) = last.filter(|last| !reached(last)) else {
            let about = match last.map(|last| &last.outcome) {
                Some(Err(_)) => {
                    format!("they fail: {}", short(&last.map(word).unwrap_or_default()))
                }
                _ => "they are answered".to_owned(),
            };
            return CheckResult::from_findings(NAME, about, Vec::new());
        };
        let refusal = found.refusal.clone().unwrap_or_default();
        let is_about_paths = tool
            .subjects
            .iter()
            .any(|subject| matches!(subject.kind, SubjectKind::Path | SubjectKind::Name));
        if is_about_paths && file_denial(last).is_some() {
            let finding = Finding::new(
                "the tool may use the paths that its arguments name",
                refusal,
                "ask for `files` in the manifest, with the access that the subjects name",
            );
            return CheckResult::from_findings(
                NAME,
                "arguments within the granted directory",
                vec![finding],
            );
        }
        CheckResult::not_tried(NAME, format!("the host refuses them first: {}", short(&refusal)))
    }

    fn check_of(&self, rule: Rule, tool: &Definition, found: &mut Found) -> CheckResult {
        let mut findings = Vec::new();
        if let Some(at) = found.found.iter().position(|(known, _)| *known == rule) {
            findings.push(found.found.swap_remove(at).1);
        } else if found.judged == 0 {
            return CheckResult::not_tried(rule.name(), "no call reached the tool");
        } else if rule == Rule::OutputSchema && tool.output_schema.is_none() {
            return CheckResult::not_tried(rule.name(), "the tool has none");
        } else if rule == Rule::Categories && self.reaches_others {
            return CheckResult::not_tried(
                rule.name(),
                "nobody answered and there were no programs, so failures may say that",
            );
        }
        let calls = counted(found.judged as u64, "call");
        let refused = match found.refused {
            0 => String::new(),
            refused => format!(", {refused} more were refused by rules of the host"),
        };
        let about = match rule {
            Rule::Answers => format!("{calls} answered or failed with a message{refused}"),
            Rule::Time => format!("each call ends within {} s", self.time.as_secs()),
            Rule::Categories => "no failure says that the same call may work later".to_owned(),
            Rule::OutputSchema => "structured answers match it".to_owned(),
            Rule::Size => "answers, memory, stdout and stderr are within the limits".to_owned(),
            Rule::Directory => "nothing outside of the granted directory is used".to_owned(),
        };
        CheckResult::from_findings(rule.name(), about, findings)
    }

    /// Checks that a tool works after its failures as it did before.
    async fn after_failures(
        &self,
        tool: &Definition,
        case: &Case,
        before: Option<&Answer>,
        found: &mut Found,
    ) -> CheckResult {
        let worked = before.is_some_and(|before| before.outcome.is_ok());
        if !worked {
            return CheckResult::not_tried("after failures", "the ordinary call fails anyway");
        }
        let _ = self.world.restore();
        let after = self.call(tool, case, CancellationToken::new()).await;
        found.calls += 1;
        let mut findings = Vec::new();
        if after.outcome.is_err() {
            let fix = "leave nothing behind that disturbs the next call, even after a failure";
            findings.push(Finding::new("an answer, as before the failures", word(&after), fix));
        }
        CheckResult::from_findings("after failures", "the ordinary call works as before", findings)
    }

    /// Checks that a cancelled call ends, early or late.
    async fn cancelled(&self, tool: &Definition, case: &Case, found: &mut Found) -> CheckResult {
        let mut slowest = Duration::ZERO;
        let mut was_cancelled = false;
        for wait in [Duration::ZERO, BEFORE_CANCEL] {
            let cancel = CancellationToken::new();
            if wait.is_zero() {
                cancel.cancel();
            }
            let started = Instant::now();
            let mut call = Box::pin(self.call(tool, case, cancel.clone()));
            let answer = match tokio::time::timeout(wait, &mut call).await {
                Ok(answer) => answer,
                Err(_) => {
                    cancel.cancel();
                    call.await
                }
            };
            found.calls += 1;
            slowest = slowest.max(started.elapsed().saturating_sub(wait));
            was_cancelled |=
                matches!(&answer.outcome, Err(failure) if failure.category == Category::Cancelled);
        }
        let took = format!("{} ms", slowest.as_millis());
        let mut findings = Vec::new();
        if slowest > MAX_END {
            let expected = format!("an end within {} s of the cancelling", MAX_END.as_secs());
            let fix = "wait for nothing that can't be interrupted";
            findings.push(Finding::new(expected, &took, fix));
        }
        let how = if was_cancelled { "a cancelled call ended" } else { "the call ended by itself" };
        CheckResult::from_findings("cancelling", format!("{how} after {took}"), findings)
    }
}

/// Returns a finding if the host let arguments pass that don't fit the schema.
fn not_refused(case: &Case, answer: &Answer) -> Option<Finding> {
    let is_refused = matches!(&answer.outcome, Err(failure)
        if matches!(failure.category, Category::InvalidParameters | Category::TypeMismatch));
    if is_refused && !reached(answer) {
        return None;
    }
    let expected = "`invalid_parameters` or `type_mismatch`, without running the tool";
    let mut finding =
        Finding::new(expected, word(answer), "report it: the host has to refuse this");
    finding.arguments =
        Some(format!("{} ({})", short(&case.arguments.to_string()), short(&case.what)));
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::path::PathBuf;

    use serde_json::json;
    use toolhold_core::{Annotations, BoxFuture, Call, Outcome, Output, ToolSource};

    use crate::conformance::report::Status;
    use crate::conformance::world::SECRET;

    /// Tools that a sandbox makes impossible.
    struct Unconfined(Arc<Definition>, PathBuf, Run);

    /// Does something with the granted directory.
    type Run = fn(PathBuf) -> BoxFuture<'static, Outcome>;

    impl ToolSource for Unconfined {
        fn name(&self) -> &str {
            "unconfined"
        }

        fn tools(&self) -> Vec<Arc<Definition>> {
            vec![Arc::clone(&self.0)]
        }

        fn call(&self, _call: Call) -> BoxFuture<'_, Outcome> {
            (self.2)(self.1.clone())
        }
    }

    fn tried(run: Run) -> Vec<CheckResult> {
        block_on(try_one(run))
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        let reactor = tokio::runtime::Builder::new_current_thread().enable_all().build();
        reactor.unwrap().block_on(work)
    }

    async fn try_one(run: Run) -> Vec<CheckResult> {
        let world = World::new().unwrap();
        let annotations = Annotations { read_only: true, ..Annotations::default() };
        let schema = json!({ "type": "object", "additionalProperties": false });
        let tool = Definition { annotations, ..Definition::new("tool", "Does.", schema) };
        let time = Duration::from_secs(5);
        let config = world.config(None, time).unwrap();
        let provider = Arc::new(Unconfined(Arc::new(tool), world.work(), run));
        let host = world.builder(config).provider(provider).build().await.unwrap();
        let subject = Subject { host: &host, world: &world, seed: 0, time, reaches_others: false };
        subject.try_tool(&host.tool("tool").unwrap()).await.checks
    }

    #[track_caller]
    fn only_fails(checks: &[CheckResult], name: &str) {
        let failed = checks.iter().filter(|check| check.status == Status::Failed);
        assert_eq!(failed.map(|check| check.name).collect::<Vec<_>>(), [name], "{checks:#?}");
    }

    #[test]
    fn text_of_outside_and_change_outside_are_found() {
        let leaks = tried(|_| Box::pin(async { Ok(Output::text(format!("a {SECRET}"))) }));
        only_fails(&leaks, "directory");
        let writes = tried(|work| {
            std::fs::write(work.join("../outside/new"), "").unwrap();
            Box::pin(async { Ok(Output::text("done")) })
        });
        only_fails(&writes, "directory");
        let neither = tried(|work| {
            std::fs::write(work.join("new"), "").unwrap();
            Box::pin(async { Ok(Output::text("done")) })
        });
        assert!(neither.iter().all(|check| check.status != Status::Failed), "{neither:#?}");
    }

    #[test]
    fn call_that_ignores_its_cancelling_is_found() {
        let deaf = tried(|_| {
            Box::pin(async {
                let (_never, mut ends) = tokio::sync::oneshot::channel::<()>();
                let _ = tokio::time::timeout(MAX_END + Duration::from_millis(100), &mut ends).await;
                Ok(Output::text("done"))
            })
        });
        only_fails(&deaf, "cancelling");
    }

    #[test]
    fn answer_to_arguments_that_do_not_fit_is_found() {
        block_on(async {
            let world = World::new().unwrap();
            let config = world.config(None, Duration::from_secs(5)).unwrap();
            let tool = Definition::new("tool", "Does.", json!({ "type": "object" }));
            let provider = Unconfined(Arc::new(tool), world.work(), |_| {
                Box::pin(async { Ok(Output::text("done")) })
            });
            let host = world.builder(config).provider(Arc::new(provider)).build().await.unwrap();
            let request =
                Request { approver: Some(Arc::new(Anybody)), ..Request::new("tool", json!({})) };
            let answer = host.call(request).await;
            let case = Case { what: "a is missing".to_owned(), arguments: json!({}) };
            let found = not_refused(&case, &answer).expect("it ran");
            assert_eq!(found.found, "an answer");
            let unfit = host.call(Request::new("tool", json!([]))).await;
            assert_eq!(not_refused(&case, &unfit), None);
        });
    }
}
