//! Lists the filters of plugins, and applies a filter to an output.
//!
//! Instances for filters don't get the grants of their plugin. An instance may filter several
//! outputs of one session. The instance is dropped after a trap, or if it uses much memory.

use std::sync::Arc;

use toolhold_contract::text::{cut, neutral, neutral_line};
use toolhold_contract::{
    CancellationToken, Category, Confidence, Content, Failure, FilterDefinition, FilterInput,
    FilterVerdict, Matcher, Pattern, Purpose,
};
use wasmtime::Store;

use crate::clock::TickGuard;
use crate::code::Code;
use crate::definition::is_well_formed_name;
use crate::guest::CallState;
use crate::guest::bindings::filter::exports::toolhold::tool::filter as wit;
use crate::guest::contract::{FilterExports, FilterInstance};
use crate::guest::convert::{self, MAX_META};
use crate::limits::{Limits, MAX_NAME_IN_ERROR};
use crate::outcome;
use crate::plugin::{LoadedPlugin, Plugin};
use crate::run::{self, ListError};
use crate::session::InstanceKey;
use crate::timing::{CallPlace, CallWatch};
use crate::warm_pool::Entry;
use crate::wasi::Files;

/// Most filters of a plugin. A plugin that exceeds this limit or one of the next three is refused.
const MAX_FILTERS: usize = 512;
/// Most characters of a filter's name.
const MAX_NAME: usize = 64;
/// Most matchers of a filter.
const MAX_MATCHERS: usize = 32;
/// Most characters of a matcher's pattern.
const MAX_PATTERN: usize = 512;
/// Most reported problems with the user's rules. Further problems are dropped.
const MAX_PROBLEMS: usize = 256;
/// Most bytes of a problem, a reason or an error of a plugin. Longer messages are cut.
const MAX_MESSAGE: usize = 1024;

/// Most bytes of an output that is filtered on the caller's thread. A filter for a longer output
/// starts on a blocking thread, because it takes longer than a tick.
const MAX_SHORT_OUTPUT: usize = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterListError {
    #[error(transparent)]
    List(#[from] ListError),
    #[error("the plugin offers {0} filters; the limit is {MAX_FILTERS}")]
    TooMany(usize),
    #[error("the plugin offers the filter `{0}` twice")]
    Twice(String),
    #[error("the filter `{name}`: {error}")]
    Filter { name: String, error: FilterError },
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    #[error("the name has to be 1 to {MAX_NAME} characters of [a-z0-9_-]")]
    Name,
    #[error("the filter has {0} matchers; the limit is {MAX_MATCHERS}")]
    ManyMatchers(usize),
    #[error("a matcher has {0} characters; the limit is {MAX_PATTERN}")]
    LongMatcher(usize),
}

/// Asks a plugin for its filters and for problems with the user's rules, and stores both in
/// `plugin`.
pub(crate) async fn list(plugin: &mut LoadedPlugin, code: &Code) -> Result<(), FilterListError> {
    let Some(exports) = code.filters.clone() else { return Ok(()) };
    let wit::Listing { filters: registrations, problems } =
        run::list(plugin, code, "filters", async move |mut store: Store<CallState>, instance| {
            let listing = match exports.load(&mut store, &instance) {
                Ok(instance) => instance.list(&mut store).await,
                Err(error) => Err(error),
            };
            (store, listing)
        })
        .await?;
    plugin.filters = convert_registrations(registrations)?;

    let mut shown_problems = Vec::new();
    for problem in problems.iter().take(MAX_PROBLEMS) {
        shown_problems.push(neutral(cut(problem, MAX_MESSAGE)).into_owned());
    }
    plugin.filter_problems = shown_problems;
    Ok(())
}

fn convert_registrations(
    registrations: Vec<wit::Registration>,
) -> Result<Vec<Arc<FilterDefinition>>, FilterListError> {
    if registrations.len() > MAX_FILTERS {
        return Err(FilterListError::TooMany(registrations.len()));
    }
    let mut definitions: Vec<Arc<FilterDefinition>> = Vec::with_capacity(registrations.len());
    for registration in registrations {
        let name = neutral_line(cut(&registration.name, MAX_NAME_IN_ERROR));
        let definition = match convert_registration(registration) {
            Ok(definition) => definition,
            Err(error) => return Err(FilterListError::Filter { name, error }),
        };
        if definitions.iter().any(|other| other.name == definition.name) {
            return Err(FilterListError::Twice(name));
        }
        definitions.push(Arc::new(definition));
    }
    Ok(definitions)
}

fn convert_registration(registration: wit::Registration) -> Result<FilterDefinition, FilterError> {
    let wit::Registration { name, purpose, matchers, fallback, meta } = registration;
    if !is_well_formed_name(&name, MAX_NAME) {
        return Err(FilterError::Name);
    }
    if matchers.len() > MAX_MATCHERS {
        return Err(FilterError::ManyMatchers(matchers.len()));
    }
    let purpose = match purpose {
        wit::Purpose::Cosmetic => Purpose::Cosmetic,
        wit::Purpose::Security => Purpose::Security,
    };
    let matchers = matchers.into_iter().map(convert_matcher).collect::<Result<_, _>>()?;
    // Metadata that is too long is dropped.
    let meta = meta.filter(|text| text.len() <= MAX_META);
    Ok(FilterDefinition { name, purpose, matchers, fallback, meta })
}

fn convert_matcher(matcher: wit::Matcher) -> Result<Matcher, FilterError> {
    let subject = match matcher.subject {
        wit::TextPattern::Any => Pattern::Any,
        wit::TextPattern::Exact(text) => Pattern::Exact(text),
        wit::TextPattern::Prefix(text) => Pattern::Prefix(text),
        wit::TextPattern::Regex(text) => Pattern::Regex(text),
    };
    let subject_length = match &subject {
        Pattern::Any => 0,
        Pattern::Exact(text) | Pattern::Prefix(text) | Pattern::Regex(text) => text.chars().count(),
    };
    let tool_length = matcher.tool.chars().count();
    let longer_length = subject_length.max(tool_length);
    if longer_length > MAX_PATTERN {
        return Err(FilterError::LongMatcher(longer_length));
    }
    Ok(Matcher { tool: matcher.tool, subject })
}

/// Applies a filter in the session's instance, or in a new instance. Cancels the filter if the
/// future is dropped.
pub(crate) async fn apply(
    plugin: &Arc<LoadedPlugin>,
    filter: &FilterDefinition,
    session: &Arc<str>,
    input: FilterInput,
    cancel: &CancellationToken,
) -> Result<FilterVerdict, Failure> {
    let limits = plugin.policy.limits.for_filtering();
    let cancel = cancel.child_token();
    let _cancelled_when_dropped = cancel.clone().drop_guard();
    let watch = Arc::new(CallWatch::new(limits.call, limits.bounds(), cancel));
    let code = plugin.code_for(&watch).await?;
    let place = plugin.runtime.admission.admit(&plugin.name, &watch).await?;
    let call = FilterCall {
        plugin: Arc::clone(plugin),
        code,
        limits,
        watch: Arc::clone(&watch),
        session: Arc::clone(session),
        _held: (place, plugin.runtime.engine.keep_ticking()),
    };

    let length: usize = input.content.iter().map(Content::len).sum();
    let runs_long = length > MAX_SHORT_OUTPUT;
    let filter = filter.name.clone();
    let run = async move { call.run(filter, convert_input(input)).await };
    run::drive(watch, run, runs_long).await
}

impl Plugin {
    /// Applies a filter to an output. An instance may filter further outputs of the same `session`.
    ///
    /// # Errors
    ///
    /// Returns an error if the filter fails, traps or reaches a limit.
    pub async fn filter(
        &self,
        filter: &FilterDefinition,
        session: &Arc<str>,
        input: FilterInput,
        cancel: &CancellationToken,
    ) -> Result<FilterVerdict, Failure> {
        apply(&self.0, filter, session, input, cancel).await
    }
}

struct FilterCall {
    plugin: Arc<LoadedPlugin>,
    code: Arc<Code>,
    limits: Limits,
    watch: Arc<CallWatch>,
    session: Arc<str>,
    /// Resources that the call occupies until it ends.
    _held: (CallPlace, TickGuard),
}

impl FilterCall {
    /// Runs the filter in the session's idle instance, or in a new instance. Stores the instance
    /// for the session's next output.
    async fn run(self, filter: String, input: wit::FilterInput) -> Result<FilterVerdict, Failure> {
        let exports =
            self.code.filters.as_ref().ok_or_else(|| failed("the plugin has no filters"))?;
        let key = self.plugin.instances.filter_key(&self.session);
        let sessions = &self.plugin.runtime.sessions;
        let (mut store, ready) = match sessions.take(&key) {
            Some((mut store, Entry::Filter(instance))) => {
                store.data_mut().call.watch = Arc::clone(&self.watch);
                store.data_mut().call.log_budget = self.limits.log_lines;
                store.set_epoch_deadline(run::TICKS_TO_CHECK);
                (store, Ok(instance))
            }
            _ => self.make_instance(exports).await,
        };
        let instance = match ready {
            Ok(instance) => instance,
            Err(error) => return Err(self.trap_failure(&error, &store)),
        };
        let answer = match instance.apply(&mut store, &filter, &input).await {
            Ok(answer) => answer,
            Err(error) => return Err(self.trap_failure(&error, &store)),
        };

        if self.code.warm_pool.fits_spare_slots {
            self.keep(key, store, instance);
        }
        match answer {
            Ok(verdict) => convert_verdict(verdict, input.content.len(), self.limits.result),
            Err(failure) => Err(failed(&neutral_line(cut(&failure.message, MAX_MESSAGE)))),
        }
    }

    fn trap_failure(&self, error: &wasmtime::Error, store: &Store<CallState>) -> Failure {
        outcome::failure(&self.watch, error, store, &self.plugin.name)
    }

    /// Stores the instance for the session's next output, unless it has used too much memory.
    fn keep(&self, key: InstanceKey, store: Store<CallState>, instance: FilterInstance) {
        let runtime = &self.plugin.runtime;
        let no_rules = None;
        let kept = runtime.sessions.keep(key, store, Entry::Filter(instance), no_rules);
        if kept.is_ok() {
            runtime.engine.housekeeper.note_kept();
        }
    }

    /// Makes an instance and lists its filters. The contract requires that the first call of an
    /// instance lists the filters.
    async fn make_instance(
        &self,
        exports: &FilterExports,
    ) -> (Store<CallState>, wasmtime::Result<FilterInstance>) {
        let Self { plugin, code, limits, watch, .. } = self;
        let no_files = Files::new(None, 0);
        let no_directory = None;
        let state = CallState::idle(
            &plugin.name,
            &plugin.policy,
            limits,
            no_files,
            no_directory,
            Arc::clone(watch),
        );
        let (mut store, instance) = run::instantiate(&code.pre, state, limits).await;
        // The block catches errors, because the function must return the store after an error, too.
        let created = async {
            let instance = exports.load(&mut store, &instance?)?;
            match instance.list(&mut store).await? {
                Ok(_) => Ok(instance),
                Err(failure) => {
                    Err(wasmtime::Error::msg(neutral_line(cut(&failure.message, MAX_MESSAGE))))
                }
            }
        }
        .await;
        (store, created)
    }
}

fn failed(reason: &str) -> Failure {
    Failure::new(Category::PermanentFailure, reason)
}

fn convert_input(input: FilterInput) -> wit::FilterInput {
    let FilterInput { tool, subject, failed, exit_code, among_others, content } = input;
    wit::FilterInput {
        tool,
        subject,
        failed: failed.map(convert::category_for_guest),
        exit_code,
        content: content.into_iter().map(convert::content_for_guest).collect(),
        alone: !among_others,
        meta: None,
    }
}

/// Converts the verdict on an output of `part_count` parts. The new content has at most `limit`
/// bytes.
fn convert_verdict(
    verdict: wit::Verdict,
    part_count: usize,
    limit: usize,
) -> Result<FilterVerdict, Failure> {
    let wit::Replacement { content, confidence, rule, meta: _ } = match verdict {
        wit::Verdict::Keep => return Ok(FilterVerdict::Keep),
        wit::Verdict::Block(reason) => {
            return Ok(FilterVerdict::Block(neutral_line(cut(&reason, MAX_MESSAGE))));
        }
        wit::Verdict::Replace(replacement) => replacement,
    };
    let size: usize = content.iter().map(convert::part_size).sum();
    // `limit` is only for content, but `part_size` includes an overhead for each part.
    let size_limit = limit.saturating_add(part_count * convert::PART_OVERHEAD);
    if content.len() != part_count || size > size_limit {
        return Err(failed(&format!(
            "the filter returned {} parts with {size} bytes for {part_count} parts; the limit is \
             {size_limit} bytes",
            content.len()
        )));
    }
    let confidence = match confidence {
        wit::Confidence::Full => Confidence::Full,
        wit::Confidence::Partial => Confidence::Partial,
        wit::Confidence::Fallback => Confidence::Fallback,
    };
    let rule = rule.map(|rule| neutral_line(cut(&rule, MAX_NAME)));
    let mut parts = Vec::with_capacity(part_count);
    for part in content {
        // The number of parts must not change, so a part of an unknown kind becomes an empty text.
        parts.push(convert::content(part).unwrap_or_else(|| Content::text("")));
    }
    Ok(FilterVerdict::Replace { content: parts, confidence, rule })
}
