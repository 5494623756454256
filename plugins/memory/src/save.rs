//! `memory_save`: saves an entry in the memory, with its scope and its origin.

use schemars::JsonSchema;
use serde::Deserialize;
use toolhold_sdk::index::{self, Document, Query};
use toolhold_sdk::{
    Access, Call, Failure, HostError, Output, Promises, Subject, SubjectKind, Tool, add_notice,
};

use crate::date;
use crate::entry::{self, Category, MAX_CONTENT, Origin, check_key, digest};
use crate::scope::Scope;
use crate::{keys, vectors};

pub(crate) struct Save;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// A sentence or two that make sense alone.
    content: String,
    /// A short name: deploy-command.
    key: Option<String>,
    /// core (lasting facts, the default), daily (what was done) or conversation.
    category: Option<String>,
    /// Who finds it: user (all projects), project (this directory, the default) or session.
    scope: Option<Scope>,
    /// assistant or user.
    #[allow(dead_code, reason = "models that know another tool of this name send it")]
    role: Option<String>,
}

impl Tool for Save {
    const NAME: &str = "memory_save";
    const TITLE: Option<&str> = Some("Remember");
    const DESCRIPTION: &str = "\
        Remembers a fact for later sessions: a decision, a preference of the user, a command that \
        works, a lesson. Don't save secrets, or what the files say anyway. The same key replaces \
        the entry.";
    const PROMISES: Promises =
        Promises { additive: true, idempotent: true, closed_world: true, ..Promises::NONE };
    const SUBJECTS: &[Subject] = &[Subject::new("/content", SubjectKind::Text, Access::Write)];
    const ALIASES: &[&str] = &["memory_store"];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] =
        &[("content", &["text", "memory", "value"]), ("key", &["name", "id"])];
    const BARE_ARGUMENT: Option<&str> = Some("content");
    const KEPT_ARGUMENTS: &[&str] = &["content", "key"];
    type Arguments = Arguments;

    fn call(arguments: Arguments, call: &Call) -> Result<Output, Failure> {
        let content = arguments.content.trim();
        let length = content.chars().count();
        if length == 0 || length > MAX_CONTENT {
            return Err(Failure::invalid(format!(
                "the content is {length} characters; it needs 1 to {MAX_CONTENT}"
            ))
            .with_suggestion("Save the gist, or several entries."));
        }
        let caller = call.caller();
        let prefix = arguments.scope.unwrap_or(Scope::Project).prefix(&caller);
        // Other programs have more categories. An entry is worth more than its category.
        let named = arguments.category.as_deref().filter(|name| !name.trim().is_empty());
        let known_category = named.map(Category::from_name);
        let category = known_category.flatten().unwrap_or(Category::Core);
        let digest = digest(content);
        let same = format!("content:{digest}");
        let query = Query { prefix: prefix.clone(), ..Query::words("").tagged(&same).limit(2) };
        let known: Vec<String> = index::search(query)?.into_iter().map(|hit| hit.key).collect();
        let key = match (&arguments.key, known.first()) {
            (Some(key), _) => key.trim().to_owned(),
            (None, Some(known)) => known.strip_prefix(&prefix).unwrap_or(known).to_owned(),
            (None, None) => entry::made_key(&digest),
        };
        check_key(&key)?;
        let whole = format!("{prefix}{key}");
        // A caller with untrusted text that saves the same content changes no trusted entry.
        let kept = if caller.untrusted { trusted_origin(&whole, content)? } else { None };
        let stays_in = kept
            .as_ref()
            .map(|kept| kept.category)
            .filter(|own| known_category.flatten().is_some_and(|one| one != *own));
        let origin = kept.unwrap_or_else(|| Origin {
            time: date::now(),
            call: call.id(),
            front_end: caller.front_end.clone(),
            agent: caller.agent.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            category,
            untrusted: caller.untrusted,
            keyed: entry::is_chosen(&key),
        });
        let mut tags = vec![same, origin.category.tag()];
        tags.extend(keys::add_to_older(&caller, &prefix, &whole)?);
        let mut document = Document {
            tags,
            data: serde_json::to_vec(&origin)?,
            ..Document::new(&whole, entry::with_key(&key, content, origin.keyed))
        };
        let without_vector = vectors::add_to(&mut document, content);
        index::put(vec![document]).map_err(full)?;
        let mut text = format!("Stored memory: {key}");
        for other in known.into_iter().filter(|known| *known != whole) {
            let name = other.strip_prefix(&prefix).unwrap_or(&other);
            let trusted = if caller.untrusted { trusted_origin(&other, content)? } else { None };
            let notice = match trusted {
                Some(_) => {
                    format!("`{name}` has the same content, and stays, since it is trusted.")
                }
                None => {
                    index::delete(std::slice::from_ref(&other))?;
                    format!("`{name}` had the same content, so it is gone.")
                }
            };
            add_notice(&mut text, &notice);
        }
        if let Some(own) = stays_in {
            let notice = format!("It was there and is trusted, so it stays in {}.", own.as_str());
            add_notice(&mut text, &notice);
        }
        if known_category == Some(None) {
            add_notice(
                &mut text,
                "There is no such category, so it was saved as core. The others are daily and conversation.",
            );
        }
        match without_vector {
            // The next ones would fail too.
            Some(why) => add_notice(
                &mut text,
                &format!("It is found by its words alone until a later save: {why}"),
            ),
            None => match vectors::make_later_ones(&caller)? {
                0 => {}
                left => add_notice(
                    &mut text,
                    &format!("{left} older memories are found by their words alone so far."),
                ),
            },
        }
        Ok(Output::text(text))
    }
}

/// A failed write, with what makes room.
fn full(error: HostError) -> Failure {
    let is_full = error.code == "limit";
    let failure = Failure::from(error);
    if is_full {
        failure.with_suggestion(
            "Remove outdated entries with memory_forget. The user can remove entries with `toolhold memory delete`.",
        )
    } else {
        failure
    }
}

/// The origin of an entry, if it has this very content and is trusted, perhaps since a person has
/// vouched for it. A second entry with the same content, by any name, doesn't change that.
fn trusted_origin(whole: &str, content: &str) -> Result<Option<Origin>, HostError> {
    let Some(known) = index::get(&[whole.to_owned()])?.pop().flatten() else { return Ok(None) };
    let origin: Option<Origin> = serde_json::from_slice(&known.data).ok();
    Ok(origin
        .filter(|origin| !origin.untrusted && entry::content(&known.text, origin.keyed) == content))
}
