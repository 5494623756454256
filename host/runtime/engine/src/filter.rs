//! Lists the filters of plugins within limits, and applies one to an output.
//!
//! A filter has no capabilities: its instances don't get the grants of their plugin. After an
//! answer, the host may reuse an instance for other outputs of the same session. The host drops an
//! instance that trapped or used much memory.

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
use crate::limits::Limits;
use crate::outcome;
use crate::plugin::{LoadedPlugin, Plugin};
use crate::run::{self, ListError};
use crate::timing::{CallPlace, CallWatch};
use crate::warm_pool::Entry;
use crate::wasi::Files;

/// Most filters of one plugin.
const MAX_FILTERS: usize = 512;
/// Most characters of a filter's name.
const MAX_NAME: usize = 64;
/// Most matchers of one filter.
const MAX_MATCHERS: usize = 32;
/// Most characters of a matcher's pattern.
const MAX_PATTERN: usize = 512;
/// Most reported problems with the operator's rules, and most bytes of each.
const MAX_PROBLEMS: usize = 256;
const MAX_PROBLEM: usize = 1024;

/// Most bytes that are filtered on the caller's thread.
const MAX_BORROWED: usize = 64 * 1024;

/// A reason why the filters of a plugin are refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterListError {
    #[error(transparent)]
    List(#[from] ListError),
    #[error("it offers {0} filters; the limit is {MAX_FILTERS}")]
    TooMany(usize),
    #[error("it offers the filter `{0}` twice")]
    Twice(String),
    #[error("its filter `{name}`: {error}")]
    Filter { name: String, error: FilterError },
}

/// A reason why the definition of a filter is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilterError {
    #[error("its name has to be 1 to {MAX_NAME} characters of [a-z0-9_-]")]
    Name,
    #[error("it has {0} matchers; the limit is {MAX_MATCHERS}")]
    ManyMatchers(usize),
    #[error("a matcher has {0} characters; the limit is {MAX_PATTERN}")]
    LongMatcher(usize),
}

/// Asks a plugin that was just loaded for its filters.
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
    plugin.filter_problems = problems
        .iter()
        .take(MAX_PROBLEMS)
        .map(|problem| neutral(cut(problem, MAX_PROBLEM)).into_owned())
        .collect();
    Ok(())
}

/// Checks and converts the filters that a plugin lists.
fn convert_registrations(
    registrations: Vec<wit::Registration>,
) -> Result<Vec<Arc<FilterDefinition>>, FilterListError> {
    if registrations.len() > MAX_FILTERS {
        return Err(FilterListError::TooMany(registrations.len()));
    }
    let mut definitions: Vec<Arc<FilterDefinition>> = Vec::with_capacity(registrations.len());
    for registration in registrations {
        let name = neutral_line(cut(&registration.name, 80));
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
    Ok(FilterDefinition {
        name,
        purpose,
        matchers: matchers.into_iter().map(convert_matcher).collect::<Result<_, _>>()?,
        fallback,
        meta: meta.filter(|text| text.len() <= MAX_META),
    })
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
    let length = subject_length.max(matcher.tool.chars().count());
    if length > MAX_PATTERN {
        return Err(FilterError::LongMatcher(length));
    }
    Ok(Matcher { tool: matcher.tool, subject })
}

/// Applies a filter to an output.
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
    // Filtering a long text takes longer than a tick, so it doesn't start on the caller's thread.
    let length: usize = input.content.iter().map(Content::len).sum();
    let is_long = length > MAX_BORROWED;
    let filter = filter.name.clone();
    let run = async move { call.run(filter, convert_input(input)).await };
    run::drive(watch, run, is_long).await
}

impl Plugin {
    /// Applies a filter to an output. One instance may filter several outputs of the same
    /// `session`, one after the other.
    ///
    /// # Errors
    ///
    /// Returns an error if the filter fails, traps or exceeds a limit.
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
    _held: (CallPlace, TickGuard),
}

impl FilterCall {
    async fn run(self, filter: String, input: wit::FilterInput) -> Result<FilterVerdict, Failure> {
        let exports =
            self.code.filters.as_ref().ok_or_else(|| failed("the plugin has no filters"))?;
        let key = self.plugin.instances.filter_key(&self.session);
        let sessions = &self.plugin.runtime.sessions;
        let (mut store, created) = match sessions.take(&key) {
            Some((mut store, Entry::Filter(instance))) => {
                store.data_mut().call.watch = Arc::clone(&self.watch);
                store.data_mut().call.log_budget = self.limits.log_lines;
                store.set_epoch_deadline(1);
                (store, Ok(instance))
            }
            _ => self.fresh(exports).await,
        };
        let instance = match created {
            Ok(instance) => instance,
            Err(error) => return Err(self.trap_failure(&error, &store)),
        };
        let answer = match instance.apply(&mut store, &filter, &input).await {
            Ok(answer) => answer,
            Err(error) => return Err(self.trap_failure(&error, &store)),
        };

        let fits = self.code.warm_pool.fits;
        if fits && sessions.keep(key, store, Entry::Filter(instance), None).is_ok() {
            self.plugin.runtime.engine.housekeeper.note_kept();
        }
        let verdict =
            answer.map_err(|failure| failed(&neutral_line(cut(&failure.message, MAX_PROBLEM))))?;
        convert_verdict(verdict, input.content.len(), self.limits.result)
    }

    fn trap_failure(&self, error: &wasmtime::Error, store: &Store<CallState>) -> Failure {
        outcome::failure(&self.watch, error, store, &self.plugin.name)
    }

    /// Makes a fresh instance, and calls only `list_filters` on it.
    async fn fresh(
        &self,
        exports: &FilterExports,
    ) -> (Store<CallState>, wasmtime::Result<FilterInstance>) {
        let Self { plugin, code, limits, watch, .. } = self;
        let state = CallState::idle(
            &plugin.name,
            &plugin.policy,
            limits,
            Files::new(None, 0),
            None,
            Arc::clone(watch),
        );
        let (mut store, instance) = run::instantiate(&code.pre, state, limits).await;
        let creating = async {
            let instance = exports.load(&mut store, &instance?)?;
            match instance.list(&mut store).await? {
                Ok(_) => Ok(instance),
                Err(failure) => {
                    Err(wasmtime::Error::msg(neutral_line(cut(&failure.message, MAX_PROBLEM))))
                }
            }
        };
        let created = creating.await;
        (store, created)
    }
}

fn failed(reason: &str) -> Failure {
    Failure::new(Category::PermanentFailure, reason)
}

fn convert_input(input: FilterInput) -> wit::FilterInput {
    let FilterInput { tool, subject, failed, exit_code, among_others, content } = input;
    let content = content.into_iter().map(convert::content_for_guest).collect();
    wit::FilterInput {
        tool,
        subject,
        failed: failed.map(convert::category_for_guest),
        exit_code,
        content,
        alone: !among_others,
        meta: None,
    }
}

fn convert_verdict(
    verdict: wit::Verdict,
    parts: usize,
    limit: usize,
) -> Result<FilterVerdict, Failure> {
    let wit::Replacement { content, confidence, rule, meta: _ } = match verdict {
        wit::Verdict::Keep => return Ok(FilterVerdict::Keep),
        wit::Verdict::Block(reason) => {
            return Ok(FilterVerdict::Block(neutral_line(cut(&reason, MAX_PROBLEM))));
        }
        wit::Verdict::Replace(replacement) => replacement,
    };
    let size: usize = content.iter().map(convert::part_size).sum();
    // The size of a part includes more than its text.
    let limit = limit.saturating_add(parts * 64);
    if content.len() != parts || size > limit {
        return Err(failed(&format!(
            "it returned {} parts with {size} bytes for {parts} parts; the limit is {limit} bytes",
            content.len()
        )));
    }
    let confidence = match confidence {
        wit::Confidence::Full => Confidence::Full,
        wit::Confidence::Partial => Confidence::Partial,
        wit::Confidence::Fallback => Confidence::Fallback,
    };
    let rule = rule.map(|rule| neutral_line(cut(&rule, MAX_NAME)));
    // A part of an unknown kind becomes an empty text, so that the number of parts stays the same.
    let content = content
        .into_iter()
        .map(|part| convert::content(part).unwrap_or_else(|| Content::text("")))
        .collect();
    Ok(FilterVerdict::Replace { content, confidence, rule })
}
