//! Searches by `toolhold:host/search`.

use super::{
    Counts, Ending, Entries, Entry, Kind, Line, Lines, Pattern, Scope, SearchError, Skipped,
};
use crate::contract::bindings::toolhold::host::search as wit;
use crate::contract::bindings::toolhold::host::types::Error;

pub(super) fn find(scope: &Scope, limit: u32) -> Result<Entries, SearchError> {
    let answer = wit::find(&scope_out(scope), limit).map_err(error)?;
    let items = answer.items.into_iter().map(|entry| Entry {
        path: entry.path,
        kind: match entry.kind {
            wit::Kind::File => Kind::File,
            wit::Kind::Directory => Kind::Directory,
            wit::Kind::Symlink => Kind::Symlink,
            wit::Kind::Other => Kind::Other,
        },
        size: entry.size,
        modified_ms: entry.modified_ms,
    });
    Ok(Entries {
        items: items.collect(),
        ending: ending(&answer.ending),
        skipped: skipped(answer.skipped),
    })
}

pub(super) fn grep(scope: &Scope, pattern: &Pattern, limit: u32) -> Result<Lines, SearchError> {
    let answer = wit::grep(&scope_out(scope), &pattern_out(pattern), limit).map_err(error)?;
    let items = answer.items.into_iter().map(|line| Line {
        path: line.path,
        number: line.number,
        text: line.text,
        is_match: line.is_match,
    });
    Ok(Lines {
        items: items.collect(),
        files_matched: answer.files_matched,
        files_searched: answer.files_searched,
        ending: ending(&answer.ending),
        skipped: skipped(answer.skipped),
    })
}

pub(super) fn count(scope: &Scope, pattern: &Pattern, limit: u32) -> Result<Counts, SearchError> {
    let answer = wit::count(&scope_out(scope), &pattern_out(pattern), limit).map_err(error)?;
    Ok(Counts {
        items: answer.items,
        files_searched: answer.files_searched,
        ending: ending(&answer.ending),
        skipped: skipped(answer.skipped),
    })
}

fn scope_out(scope: &Scope) -> wit::Scope {
    wit::Scope {
        root: scope.root.clone(),
        globs: scope.globs.clone(),
        ignore_rules: scope.ignore_rules,
        files_only: scope.files_only,
        max_depth: scope.max_depth,
        meta: None,
    }
}

fn pattern_out(pattern: &Pattern) -> wit::LinePattern {
    wit::LinePattern {
        regex: pattern.regex.clone(),
        case_sensitive: pattern.case_sensitive,
        multiline: pattern.multiline,
        before: pattern.before,
        after: pattern.after,
        meta: None,
    }
}

fn ending(name: &str) -> Ending {
    match name {
        "complete" => Ending::Complete,
        "limit" => Ending::Limit,
        "deadline" => Ending::Deadline,
        "cancelled" => Ending::Cancelled,
        _ => Ending::Other,
    }
}

fn skipped(skipped: wit::Skipped) -> Skipped {
    Skipped { denied: skipped.denied, unreadable: skipped.unreadable, binary: skipped.binary }
}

fn error(error: Error) -> SearchError {
    match error.code.as_str() {
        "invalid" => SearchError::InvalidPattern(error.message),
        "not-found" => SearchError::NotFound(error.message),
        "denied" => SearchError::Denied(error.message),
        _ => SearchError::Failed(error.message),
    }
}
