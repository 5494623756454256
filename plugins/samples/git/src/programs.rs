//! Which programs a repository names, where no switch turns them off.

use std::fs;
use std::io::ErrorKind;

use toolhold_sdk::Failure;
use toolhold_sdk::process::Finished;

use crate::command::{Git, failure};

/// Keys that git isn't started with: programs that have no switch, since their names are free, and
/// files that are included in some places alone. Git can go on in another place than the one that
/// was looked at: a new working tree, another branch.
const KEYS: &str = r"^(filter\..*\.(clean|smudge|process)|merge\..*\.driver|hook\..*\.command|include(if\..*)?\.path)$";

/// Submodules, with those in them.
const MAX_SUBMODULES: usize = 64;

/// Refuses a repository whose configuration names programs that no switch turns off. `directory`: a
/// folder of it; `None`: the working directory. `with_submodules`: so does a submodule. To see
/// whether one has changed, git starts itself there, with the configuration that it finds.
///
/// # Errors
///
/// If there is such a program, or git can't say.
pub fn refuse_programs(directory: Option<&str>, with_submodules: bool) -> Result<(), Failure> {
    refuse_keys(directory)?;
    if !with_submodules {
        return Ok(());
    }
    let mut folders = submodules(directory)?;
    let mut next = 0;
    while let Some(folder) = folders.get(next).cloned() {
        next += 1;
        refuse_keys(Some(&folder))?;
        for inner in submodules(Some(&folder))? {
            if !folders.contains(&inner) {
                folders.push(inner);
            }
        }
        if folders.len() > MAX_SUBMODULES {
            let message = format!(
                "git wasn't started: more than {MAX_SUBMODULES} submodules are checked out, and each would have to be looked at"
            );
            return Err(Failure::permanent("submodules", message)
                .with_suggestion("remove those that aren't needed: git submodule deinit"));
        }
    }
    Ok(())
}

/// Whether something is at this path. What can't be looked at may be there.
pub fn may_exist(path: &str) -> bool {
    !matches!(fs::symlink_metadata(path), Err(error) if error.kind() == ErrorKind::NotFound)
}

/// Refuses a repository by its own configuration, with the files that it includes.
fn refuse_keys(directory: Option<&str>) -> Result<(), Failure> {
    let listed = Git::look("config", directory.map(str::to_owned))
        .args(["--show-scope", "--includes", "--null", "--name-only", "--get-regexp", KEYS])
        .start()?;
    // Git ends with 1 if there is no such key.
    if listed.exit_code == Some(1) && listed.output.stdout.is_empty() {
        return Ok(());
    }
    // Whoever names so many keys that some are missing is refused by the others.
    let Some(key) = key_of_repository(&printed(&listed)?) else {
        return if listed.output.stdout_truncated { Err(incomplete()) } else { Ok(()) };
    };
    let place = directory.unwrap_or("the repository");
    let what = if key.starts_with("include") { "files for some places" } else { "a program" };
    let message = format!("git wasn't started: the configuration of {place} names {what} in {key}");
    Err(Failure::permanent("configured-program", message)
        .with_suggestion("have a person look at the `config` in the repository's `.git`"))
}

/// The first of some keys, each behind its scope, that isn't in the configuration of the machine or
/// its user. Git LFS, for example, has its filter there.
fn key_of_repository(listed: &str) -> Option<String> {
    let mut fields = listed.split('\0');
    while let (Some(scope), Some(key)) = (fields.next(), fields.next()) {
        // Its keys are listed. Only the configuration of one working tree is copied to another
        // place, where a relative path means another file.
        let is_followed = key == "include.path" && scope == "local";
        if !["system", "global"].contains(&scope) && !is_followed {
            return Some(key.chars().take(100).collect());
        }
    }
    None
}

/// The submodules in the index that are checked out, by their absolute paths.
fn submodules(directory: Option<&str>) -> Result<Vec<String>, Failure> {
    let find_top = Git::look("rev-parse", directory.map(str::to_owned)).args(["--show-toplevel"]);
    let line = printed(&find_top.start()?)?;
    let top = line.strip_suffix('\n').unwrap_or(&line).to_owned();
    let mut git =
        Git::look("ls-files", Some(top.clone())).args(["--stage", "-z"]).command()?.start()?;
    let mut found = Vec::new();
    let mut rest = Vec::new();
    // A large repository has more files than one output holds.
    let mut is_cut = false;
    while !git.is_finished() {
        let output = git.read(None);
        is_cut |= output.stdout_truncated;
        rest.extend_from_slice(&output.stdout);
        take_submodules(&mut rest, &mut found);
    }
    let finished = git.wait();
    if !finished.success() {
        return Err(failure(&finished));
    }
    rest.extend_from_slice(&finished.output.stdout);
    take_submodules(&mut rest, &mut found);
    if is_cut || finished.output.stdout_truncated || !rest.is_empty() {
        return Err(incomplete());
    }
    let mut folders = Vec::new();
    for path in found {
        let path = String::from_utf8(path)
            .map_err(|_| Failure::permanent("submodules", "the path of a submodule isn't UTF-8"))?;
        let folder = format!("{top}/{path}");
        if may_exist(&format!("{folder}/.git")) {
            folders.push(folder);
        }
    }
    Ok(folders)
}

/// The path in an entry of the index: mode, object and stage, and the path behind a tab. `None`: it
/// isn't a submodule.
fn path_of_submodule(entry: &[u8]) -> Option<Vec<u8>> {
    let entry = entry.strip_prefix(b"160000 ")?;
    let tab = entry.iter().position(|byte| *byte == b'\t')?;
    Some(entry[tab + 1..].to_vec())
}

/// Takes the submodules out of the whole records of a list.
fn take_submodules(list: &mut Vec<u8>, found: &mut Vec<Vec<u8>>) {
    let end = list.iter().rposition(|byte| *byte == 0).map_or(0, |last| last + 1);
    found.extend(list[..end].split(|byte| *byte == 0).filter_map(path_of_submodule));
    list.drain(..end);
}

/// The output of git, if it succeeded.
fn printed(finished: &Finished) -> Result<String, Failure> {
    if !finished.success() {
        return Err(failure(finished));
    }
    String::from_utf8(finished.output.stdout.clone())
        .map_err(|_| Failure::permanent("git", "what git printed isn't UTF-8"))
}

fn incomplete() -> Failure {
    Failure::permanent("git", "git wasn't started: its list of what to look at was cut")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_the_machine_are_trusted() {
        for (listed, key) in [
            ("", None),
            ("system\0filter.lfs.clean\0global\0merge.own.driver\0", None),
            ("system\0filter.lfs.clean\0local\0filter.a.b.clean\0", Some("filter.a.b.clean")),
            ("worktree\0filter.x.process\0", Some("filter.x.process")),
            ("unknown\0filter.x.process\0", Some("filter.x.process")),
            ("global\0includeif.gitdir:~/w/.path\0local\0include.path\0", None),
            ("local\0includeif.onbranch:x.path\0", Some("includeif.onbranch:x.path")),
            ("worktree\0include.path\0", Some("include.path")),
        ] {
            assert_eq!(key_of_repository(listed).as_deref(), key, "{listed:?}");
        }
    }

    #[test]
    fn submodules_are_told_by_their_mode() {
        let zeros = "0".repeat(40);
        for (entry, path) in [
            (format!("160000 {zeros} 0\ta b/\tc"), Some("a b/\tc")),
            (format!("100644 {zeros} 0\t160000 x"), None),
            (String::new(), None),
        ] {
            let found = path_of_submodule(entry.as_bytes());
            assert_eq!(found.as_deref(), path.map(str::as_bytes), "{entry}");
        }
    }
}
