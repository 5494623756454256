//! Calls a tool with ordinary and hostile arguments, and judges the answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use toolhold_core::text::counted;
use toolhold_core::{
    Answer, CancellationToken, Category, Definition, Host, Request, Session, SubjectKind,
    compile_schema,
};

use crate::conformance::cases::{Case, Cases};
use crate::conformance::judge::{
    Judge, Rule, describe_arguments, describe_outcome, file_denial, reached_tool,
};
use crate::conformance::report::{CheckResult, Finding, short};
use crate::conformance::world::{Anybody, World};

/// The longest time from the cancellation to the end of a call.
const MAX_END: Duration = Duration::from_secs(1);

/// The time from the start to the cancellation of a call.
const BEFORE_CANCEL: Duration = Duration::from_millis(2);

/// The name of the check with ordinary arguments.
const ORDINARY_CALLS: &str = "ordinary calls";

/// A component's host, and the settings of the test.
pub(crate) struct Subject<'a> {
    pub(crate) host: &'a Host,
    pub(crate) world: &'a World,
    pub(crate) seed: u64,
    /// The time limit of a call.
    pub(crate) time: Duration,
    /// Whether a call may fail because a network or a program is missing.
    pub(crate) needs_network_or_programs: bool,
}

pub(crate) struct Tried {
    pub(crate) checks: Vec<CheckResult>,
    pub(crate) calls: usize,
}

#[derive(Default)]
struct Progress {
    /// The first finding of each rule.
    findings: Vec<(Rule, Finding)>,
    /// The number of calls that reached the tool.
    judged: usize,
    /// The number of calls that the host refused.
    refused: usize,
    /// The reason of the first refusal.
    first_refusal: Option<String>,
    calls: usize,
}

impl Progress {
    fn has(&self, rule: Rule) -> bool {
        self.findings.iter().any(|(known, _)| *known == rule)
    }

    fn add(&mut self, rule: Rule, finding: Finding) {
        if !self.has(rule) {
            self.findings.push((rule, finding));
        }
    }
}

impl Subject<'_> {
    pub(crate) async fn try_tool(&self, tool: &Arc<Definition>) -> Tried {
        let cases = match Cases::from_definition(tool, self.seed) {
            Ok(cases) => cases,
            Err(why) => {
                let finding = Finding::new(
                    "a schema that allows valid arguments to be generated",
                    why.to_string(),
                    "add `examples` to the schema",
                );
                let check = CheckResult::from_findings(
                    "calls",
                    "arguments generated from the schema",
                    vec![finding],
                );
                return Tried { checks: vec![check.for_tool(&tool.name)], calls: 0 };
            }
        };
        let judge = Judge {
            output: tool.output_schema.as_ref().and_then(|schema| compile_schema(schema).ok()),
            needs_network_or_programs: self.needs_network_or_programs,
            time: self.time,
        };
        let mut progress = Progress::default();
        let mut checks = vec![self.check_refusals(tool, &cases.refused, &mut progress).await];

        let mut last_ordinary = None;
        // All cases run twice, because files of the first call may make the second call fail.
        for case in cases.ordinary.iter().chain(&cases.ordinary) {
            // After a call that hangs, the other calls probably hang too.
            if progress.has(Rule::Time) {
                break;
            }
            last_ordinary = Some(self.judge_call(tool, &judge, case, true, &mut progress).await);
        }
        checks.push(self.check_ordinary(tool, &progress, last_ordinary.as_ref()));

        let is_reached = last_ordinary.as_ref().is_some_and(reached_tool);
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

    /// Calls the tool, and adds the result to `progress`. `ordinary` says whether the arguments
    /// stay within the grants.
    async fn judge_call(
        &self,
        tool: &Definition,
        judge: &Judge,
        case: &Case,
        ordinary: bool,
        progress: &mut Progress,
    ) -> Answer {
        // Ignore a failure, because the call is useful even if files of an earlier call remain.
        let _ = self.world.restore();
        let started = Instant::now();
        let answer = self.call(tool, case, CancellationToken::new()).await;
        progress.calls += 1;
        if reached_tool(&answer) {
            progress.judged += 1;
            if let Some((rule, finding)) = judge.judge(case, ordinary, &answer, started.elapsed()) {
                progress.add(rule, finding);
            }
        } else {
            progress.refused += 1;
            if progress.first_refusal.is_none() {
                progress.first_refusal = Some(describe_outcome(&answer));
            }
        }
        if let Some(changed) = self.world.changed_outside() {
            let expected = "no change outside of the granted directory";
            let fix = "report this bug: the tool escaped from the sandbox";
            progress.add(Rule::Directory, Finding::new(expected, changed, fix));
        }
        answer
    }

    /// Checks that the host refuses arguments that don't match the schema, and that the tool
    /// doesn't get them.
    async fn check_refusals(
        &self,
        tool: &Definition,
        cases: &[Case],
        progress: &mut Progress,
    ) -> CheckResult {
        const NAME: &str = "refused first";
        if cases.is_empty() {
            return CheckResult::not_tried(NAME, "the schema accepts every tried value");
        }
        let mut findings = Vec::new();
        for case in cases {
            let answer = self.call(tool, case, CancellationToken::new()).await;
            progress.calls += 1;
            findings.extend(find_missing_refusal(case, &answer));
        }
        let count = counted(cases.len() as u64, "call");
        let about = format!("the host refuses {count} with arguments that don't match the schema");
        CheckResult::from_findings(NAME, about, findings)
    }

    /// Reports whether the tool answers ordinary calls. `last` is the answer to the last ordinary
    /// call, if there was a call.
    fn check_ordinary(
        &self,
        tool: &Definition,
        progress: &Progress,
        last: Option<&Answer>,
    ) -> CheckResult {
        if let Some(last) = last
            && !reached_tool(last)
        {
            let refusal = match &progress.first_refusal {
                Some(first) => first.clone(),
                None => describe_outcome(last),
            };
            return report_refused_calls(tool, last, &refusal);
        }
        let about = match last {
            Some(last) if last.outcome.is_err() => {
                format!("ordinary calls fail: {}", short(&describe_outcome(last)))
            }
            _ => "ordinary calls succeed".to_owned(),
        };
        CheckResult::from_findings(ORDINARY_CALLS, about, Vec::new())
    }

    /// Makes the result for a rule from the judged calls. The rule's finding moves out of
    /// `progress`.
    fn check_rule(&self, rule: Rule, tool: &Definition, progress: &mut Progress) -> CheckResult {
        let mut findings = Vec::new();
        if let Some(index) = progress.findings.iter().position(|(known, _)| *known == rule) {
            let (_, finding) = progress.findings.remove(index);
            findings.push(finding);
        } else if let Some(reason) = self.reason_not_tried(rule, tool, progress) {
            return CheckResult::not_tried(rule.name(), reason);
        }

        let calls = counted(progress.judged as u64, "call");
        let refused = match progress.refused {
            0 => String::new(),
            refused => format!("; rules of the host denied {refused} more"),
        };
        let about = match rule {
            Rule::Answers => format!("{calls} answered or failed with a message{refused}"),
            Rule::Time => format!("each call ends within {} s", self.time.as_secs()),
            Rule::Categories => "no failure suggests to repeat the same call".to_owned(),
            Rule::OutputSchema => "structured answers match the output schema".to_owned(),
            Rule::Size => "answers, memory, stdout and stderr are within the limits".to_owned(),
            Rule::Directory => "no use of files outside of the granted directory".to_owned(),
        };
        CheckResult::from_findings(rule.name(), about, findings)
    }

    /// Returns the reason why the calls don't test a rule, or `None` if they do.
    fn reason_not_tried(
        &self,
        rule: Rule,
        tool: &Definition,
        progress: &Progress,
    ) -> Option<&'static str> {
        if progress.judged == 0 {
            Some("no call reached the tool")
        } else if rule == Rule::OutputSchema && tool.output_schema.is_none() {
            Some("the tool has no output schema")
        } else if rule == Rule::Categories && self.needs_network_or_programs {
            Some("the test has no servers and no programs, so failures may say so")
        } else {
            None
        }
    }

    /// Checks that an ordinary call still works after hostile calls. `before` is the answer to the
    /// same call before the hostile calls.
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
        // Ignore a failure, because the call is useful even if files of an earlier call remain.
        let _ = self.world.restore();
        let after = self.call(tool, case, CancellationToken::new()).await;
        progress.calls += 1;
        let mut findings = Vec::new();
        if after.outcome.is_err() {
            let expected = "a successful call, as before the failures";
            let fix = "leave no state that makes the next call fail, even after a failure";
            findings.push(Finding::new(expected, describe_outcome(&after), fix));
        }
        CheckResult::from_findings("after failures", "the ordinary call works as before", findings)
    }

    /// Checks that a call ends if it is cancelled at its start, or a little later.
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
            let expected = format!("an end within {} s after the cancellation", MAX_END.as_secs());
            let fix = "don't wait in an uninterruptible way";
            findings.push(Finding::new(expected, &took, fix));
        }
        let end = if was_cancelled { "a cancelled call ended" } else { "the call ended by itself" };
        CheckResult::from_findings("cancelling", format!("{end} after {took}"), findings)
    }
}

/// Makes the result of `ordinary calls` if the host refuses them. `refusal` describes the first
/// refusal.
fn report_refused_calls(tool: &Definition, last: &Answer, refusal: &str) -> CheckResult {
    let mut kinds = tool.subjects.iter().map(|subject| subject.kind);
    let is_about_paths = kinds.any(|kind| matches!(kind, SubjectKind::Path | SubjectKind::Name));
    // Ordinary paths are in the granted directory, so a denial is a fault of the manifest.
    if is_about_paths && file_denial(last).is_some() {
        let expected = "the tool may use the paths that its arguments name";
        let fix = "ask for `files` in the manifest, with the access that the subjects name";
        let findings = vec![Finding::new(expected, refusal, fix)];
        let about = "arguments within the granted directory";
        return CheckResult::from_findings(ORDINARY_CALLS, about, findings);
    }
    let reason = format!("the host refuses ordinary calls: {}", short(refusal));
    CheckResult::not_tried(ORDINARY_CALLS, reason)
}

/// Returns a finding if the host ran the tool with the invalid arguments.
fn find_missing_refusal(case: &Case, answer: &Answer) -> Option<Finding> {
    if let Err(failure) = &answer.outcome
        && matches!(failure.category, Category::InvalidParameters | Category::TypeMismatch)
        && !reached_tool(answer)
    {
        return None;
    }
    let expected = "`invalid_parameters` or `type_mismatch`, without running the tool";
    let fix = "report this bug: the host has to refuse these arguments";
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
        let subject =
            Subject { host: &host, world: &world, seed: 0, time, needs_network_or_programs: false };
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
            let found = find_missing_refusal(&case, &answer).expect("it ran");
            assert_eq!(found.found, "an answer");
            let unfit = host.call(Request::new("tool", json!([]))).await;
            assert_eq!(find_missing_refusal(&case, &unfit), None);
        });
    }
}
