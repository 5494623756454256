//! Lets `grep` and `find_path` search hidden files too.

/// Globs that match like `glob`, in hidden folders and files too. Those of `.gitignore` stay left
/// out, and so does `.git`.
pub(crate) fn with_hidden(glob: Option<String>) -> Vec<String> {
    let all = "*".to_owned();
    let mut globs = match glob {
        None => vec![all],
        // Something has to be included that the glob takes away from.
        Some(glob) if glob.starts_with('!') => vec![all, glob],
        Some(glob) => vec![glob],
    };
    // A glob with a dot asks for hidden names. This one matches folders, which are only entered.
    globs.extend([".*/".to_owned(), "!.git/".to_owned()]);
    globs
}

/// Advice for a search that found nothing.
pub(crate) fn not_searched(hidden: bool) -> &'static str {
    if hidden {
        "What .gitignore excludes was left out."
    } else {
        "Hidden files and what .gitignore excludes were left out; hidden=true looks into hidden ones, such as .github."
    }
}
