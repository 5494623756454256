//! Calls a tool with ordinary and hostile arguments, and finds the rules that its answers break.

use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_core::text::counted;
use toolhold_core::{
    Answer, CancellationToken, Category, Definition, Host, Request, Session, SubjectKind,
    compile_schema,
};

use crate::conformance::cases::{Case, Cases};
use crate::conformance::judge::{
    Judge, Rule, describe_arguments, describe_outcome, file_denial, reached,
};
use crate::conformance::report::{CheckResult, Finding, short};
use crate::conformance::world::{Anybody, World};

/// The time limit for a call to end after it is cancelled.
const MAX_END: Duration = Duration::from_secs(1);

/// How long a call runs before it is cancelled.
const BEFORE_CANCEL: Duration = Duration::from_millis(2);

/// The tools of a component, in a host.
pub(crate) struct Subject<'a> {
    pub(crate) host: &'a Host,
    pub(crate) world: &'a World,
    pub(crate) seed: u64,
    /// The time limit of a call.
    pub(crate) time: Duration,
    /// Whether its calls may fail because of another machine or a program.
    pub(crate) reaches_others: bool,
}

/// The results of the calls of one tool.
pub(crate) struct Tried {
    pub(crate) checks: Vec<CheckResult>,
    pub(crate) calls: usize,
}

/// The results of the calls so far.
#[derive(Default)]
struct Progress {
    /// The findings, at most one for each rule.
    findings: Vec<(Rule, Finding)>,
    /// Calls that reached the tool.
    judged: usize,
    /// Calls that a rule of the host refused first.
    refused: usize,
    /// The reason for the first refusal.
    refusal: Option<String>,
    calls: usize,
}

impl Progress {
    fn has(&self, rule: Rule) -> bool {
        self.findings.iter().any(|(known, _)| *known == rule)
    }

    /// Adds a finding, unless the rule already has one.
    fn add(&mut self, rule: Rule, finding: Finding) {
        if !self.has(rule) {
            self.findings.push((rule, finding));
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
        let mut progress = Progress::default();
        let mut checks = vec![self.check_refusals(tool, &cases.refused, &mut progress).await];

        let mut last_ordinary = None;
        // All cases run twice. Files from the first call may make the second call fail, and this is
        // allowed.
        for case in cases.ordinary.iter().chain(&cases.ordinary) {
            // Each call that hangs takes the whole time.
            if progress.has(Rule::Time) {
                break;
            }
            last_ordinary = Some(self.judge_call(tool, &judge, case, true, &mut progress).await);
        }
        checks.push(self.check_ordinary(tool, &progress, last_ordinary.as_ref()));

        let is_reached = last_ordinary.as_ref().is_some_and(reached);
        if is_reached {
            for case in &cases.hostile {
                if progress.has(Rule::Time) {
                    break;
                }
                self.judge_call(tool, &judge, case, false, &mut progress).await;
            }
        }
        checks.extend(Rule::ALL.map(|rule| self.check_rule(rule, tool, &mut progress)));

        if is_reached && let Some(case) = cases.ordinary.last() {
            let before = last_ordinary.as_ref();
            checks.push(self.check_after_failures(tool, case, before, &mut progress).await);
            checks.push(self.check_cancelling(tool, case, &mut progress).await);
        } else {
            let reason = "no ordinary call reached the tool";
            checks.push(CheckResult::not_tried("after failures", reason));
            checks.push(CheckResult::not_tried("cancelling", reason));
        }
        let checks = checks.into_iter().map(|check| check.for_tool(&tool.name)).collect();
        Tried { checks, calls: progress.calls }
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

    /// Makes one call and judges its answer.
    async fn judge_call(
        &self,
        tool: &Definition,
        judge: &Judge,
        case: &Case,
        ordinary: bool,
        progress: &mut Progress,
    ) -> Answer {
        let _ = self.world.restore();
        let started = Instant::now();
        let answer = self.call(tool, case, CancellationToken::new()).await;
        progress.calls += 1;
        if reached(&answer) {
            progress.judged += 1;
            if let Some((rule, finding)) = judge.judge(case, ordinary, &answer, started.elapsed()) {
                progress.add(rule, finding);
            }
        } else {
            progress.refused += 1;
            progress.refusal.get_or_insert_with(|| describe_outcome(&answer));
        }
        if let Some(changed) = self.world.changed_outside() {
            let expected = "nothing outside of the granted directory changes";
            let fix = "report it: the host let the tool out of its sandbox";
            progress.add(Rule::Directory, Finding::new(expected, changed, fix));
        }
        answer
    }

    /// Checks that the host refuses arguments that don't match the schema. The tool must never get
    /// them.
    async fn check_refusals(
        &self,
        tool: &Definition,
        cases: &[Case],
        progress: &mut Progress,
    ) -> CheckResult {
        const NAME: &str = "refused first";
        let mut findings = Vec::new();
        for case in cases {
            let answer = self.call(tool, case, CancellationToken::new()).await;
            progress.calls += 1;
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

    /// Checks whether ordinary arguments reach the tool.
    fn check_ordinary(
        &self,
        tool: &Definition,
        progress: &Progress,
        last: Option<&Answer>,
    ) -> CheckResult {
        const NAME: &str = "ordinary calls";
        if let Some(last) = last
            && !reached(last)
        {
            let refusal = progress.refusal.clone().unwrap_or_default();
            let mut kinds = tool.subjects.iter().map(|subject| subject.kind);
            let is_about_paths =
                kinds.any(|kind| matches!(kind, SubjectKind::Path | SubjectKind::Name));
            if is_about_paths && file_denial(last).is_some() {
                let expected = "the tool may use the paths that its arguments name";
                let fix = "ask for `files` in the manifest, with the access that the subjects name";
                let findings = vec![Finding::new(expected, refusal, fix)];
                let about = "arguments within the granted directory";
                return CheckResult::from_findings(NAME, about, findings);
            }
            let reason = format!("the host refuses them first: {}", short(&refusal));
            return CheckResult::not_tried(NAME, reason);
        }
        let about = match last {
            Some(last) if last.outcome.is_err() => {
                format!("they fail: {}", short(&describe_outcome(last)))
            }
            _ => "they are answered".to_owned(),
        };
        CheckResult::from_findings(NAME, about, Vec::new())
    }

    /// Checks whether the judged calls followed a rule.
    fn check_rule(&self, rule: Rule, tool: &Definition, progress: &mut Progress) -> CheckResult {
        let mut findings = Vec::new();
        if let Some(index) = progress.findings.iter().position(|(known, _)| *known == rule) {
            let (_, finding) = progress.findings.swap_remove(index);
            findings.push(finding);
        } else if progress.judged == 0 {
            return CheckResult::not_tried(rule.name(), "no call reached the tool");
        } else if rule == Rule::OutputSchema && tool.output_schema.is_none() {
            return CheckResult::not_tried(rule.name(), "the tool has none");
        } else if rule == Rule::Categories && self.reaches_others {
            return CheckResult::not_tried(
                rule.name(),
                "nobody answered and there were no programs, so failures may say that",
            );
        }

        let calls = counted(progress.judged as u64, "call");
        let refused = match progress.refused {
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

    /// Checks that a tool still works after failed calls.
    async fn check_after_failures(
        &self,
        tool: &Definition,
        case: &Case,
        before: Option<&Answer>,
        progress: &mut Progress,
    ) -> CheckResult {
        let worked = before.is_some_and(|before| before.outcome.is_ok());
        if !worked {
            return CheckResult::not_tried("after failures", "the ordinary call fails anyway");
        }
        let _ = self.world.restore();
        let after = self.call(tool, case, CancellationToken::new()).await;
        progress.calls += 1;
        let mut findings = Vec::new();
        if after.outcome.is_err() {
            let expected = "an answer, as before the failures";
            let fix = "leave nothing behind that disturbs the next call, even after a failure";
            findings.push(Finding::new(expected, describe_outcome(&after), fix));
        }
        CheckResult::from_findings("after failures", "the ordinary call works as before", findings)
    }

    /// Checks that a cancelled call ends, early or late.
    async fn check_cancelling(
        &self,
        tool: &Definition,
        case: &Case,
        progress: &mut Progress,
    ) -> CheckResult {
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
            progress.calls += 1;
            slowest = slowest.max(started.elapsed().saturating_sub(wait));
            if let Err(failure) = &answer.outcome
                && failure.category == Category::Cancelled
            {
                was_cancelled = true;
            }
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
    if let Err(failure) = &answer.outcome
        && matches!(failure.category, Category::InvalidParameters | Category::TypeMismatch)
        && !reached(answer)
    {
        return None;
    }
    let expected = "`invalid_parameters` or `type_mismatch`, without running the tool";
    let fix = "report it: the host has to refuse this";
    let mut finding = Finding::new(expected, describe_outcome(answer), fix);
    finding.arguments = Some(describe_arguments(case));
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
