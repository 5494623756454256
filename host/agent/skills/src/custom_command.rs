//! Finds custom commands of a chat: messages that a person keeps in files. A project's commands
//! must be trusted first.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use toolhold_core::HostError;
use toolhold_core::config::{self, Folders};
use toolhold_core::text::{counted, neutral_line, neutral_owned};

use crate::folder::{FolderError, Owners, SkillFolder};
use crate::front_matter;
use crate::skill::{SkillOrigin, is_name, one_line};

/// The folder of the user's commands, in the configuration folder.
const USER_FOLDER: &str = "commands";

/// The folder of a project's commands, below the working directory.
const PROJECT_FOLDER: &str = ".toolhold/commands";

/// Most commands.
const MAX_COMMANDS: usize = 200;

/// Most entries of a folder that are read.
const MAX_ENTRIES: usize = 1_000;

/// Most bytes of a command's file.
const MAX_FILE: u64 = 64 * 1024;

/// Most bytes of a message. A short file can make a huge message, because the arguments are
/// inserted at each placeholder.
const MAX_MESSAGE: usize = 1024 * 1024;

/// Most characters of a description.
const MAX_DESCRIPTION: usize = 60;

/// The most unusable files that are listed with a reason. More files are only counted.
const MAX_LEFT_OUT: usize = 5;

/// The placeholder for all arguments, without its `$`.
const ALL_ARGUMENTS: &str = "ARGUMENTS";

/// A command that a file defines.
#[derive(Clone, Debug)]
pub struct CustomCommand {
    /// The name of the file without `.md`. A person writes `/` before the name.
    pub name: String,
    /// The purpose of the command, on one line. Empty if the command isn't usable.
    pub description: String,
    /// The real path of the file.
    pub path: PathBuf,
    /// The origin of the command. The chat uses only commands with a
    /// [usable](SkillOrigin::is_usable) origin.
    pub origin: SkillOrigin,
    /// The text of the file. [`CustomCommands::expand`] checks the origin and makes a message of
    /// the text.
    pub source: String,
    /// The SHA-256 of the file.
    pub digest: String,
}

/// The custom commands that were found.
#[derive(Clone, Debug, Default)]
pub struct CustomCommands {
    /// The commands, in order of their names.
    pub found: Vec<CustomCommand>,
    /// Files that aren't commands, each with the reason.
    pub left_out: Vec<String>,
    /// The number of more files that aren't commands.
    further_left_out: usize,
}

/// The reason why a command gives no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// A person must see the command first.
    #[error("/{0} is a command of the project, and you haven't trusted it; run `toolhold trust`")]
    Untrusted(String),
    /// The message is too long.
    #[error("the message would be longer than {MAX_MESSAGE} bytes, the limit")]
    TooLong,
}

/// The reason why a file isn't a command.
#[derive(Debug, thiserror::Error)]
enum CommandFileError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("a command's name has at most 64 of a-z, 0-9, `.`, `_` and `-`; rename the file")]
    Name,
    #[error("/{0} is a command of the chat itself; rename the file")]
    BuiltIn(String),
    #[error("another command with that name is used instead")]
    Twice,
    #[error("the file is larger than {MAX_FILE} bytes, the limit")]
    TooLarge,
    #[error("the file isn't UTF-8")]
    NotUtf8,
    #[error("the file has no text")]
    Empty,
}

/// The rules for the files of a folder.
struct FolderRules<'a> {
    /// The digests of the project's files that a person has seen, by path, or `None` if the folder
    /// is the user's and needs no trust.
    trusted: Option<&'a BTreeMap<String, String>>,
    /// Checks whether a word such as `/help` is a built-in command of the chat.
    is_built_in: fn(&str) -> bool,
}

impl CustomCommands {
    /// Finds the commands of the user and of the project. A file can't replace a built-in command
    /// of the chat, so `is_built_in` has to tell whether a word such as `/help` is one. Blocks.
    ///
    /// # Errors
    ///
    /// Fails if the list of trusted files can't be read.
    pub fn find(
        folders: &Folders,
        directory: &Path,
        is_built_in: fn(&str) -> bool,
    ) -> Result<Self, HostError> {
        let mut commands = Self::default();
        if let Some(folder) = commands.open(&folders.config.join(USER_FOLDER), Owners::User) {
            commands.add_all(&folder, &FolderRules { trusted: None, is_built_in });
        }
        if let Some(folder) = commands.open_project(directory) {
            let trusted = config::trusted(folders)?;
            commands.add_all(&folder, &FolderRules { trusted: Some(&trusted), is_built_in });
        }
        commands.found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(commands)
    }

    /// Returns the commands that the chat uses.
    pub fn usable(&self) -> impl Iterator<Item = &CustomCommand> {
        self.found.iter().filter(|command| command.origin.is_usable())
    }

    /// Returns the commands that a person must see first.
    pub fn untrusted(&self) -> impl Iterator<Item = &CustomCommand> {
        self.found.iter().filter(|command| !command.origin.is_usable())
    }

    /// Returns the command of a word such as `/review`.
    pub fn named(&self, word: &str) -> Option<&CustomCommand> {
        let name = word.strip_prefix('/')?;
        self.found.iter().find(|command| command.name == name)
    }

    /// Returns the message of a line such as `/review src/main.rs`, or `None` if the line starts
    /// with no custom command.
    ///
    /// # Errors
    ///
    /// Fails if no person has seen the project's command, or if the message is too long.
    pub fn expand(&self, line: &str) -> Result<Option<String>, ExpandError> {
        let line = line.trim();
        let word = line.split_whitespace().next().unwrap_or_default();
        let Some(command) = self.named(word) else { return Ok(None) };
        if !command.origin.is_usable() {
            return Err(ExpandError::Untrusted(command.name.clone()));
        }
        let (_, body) = split(&command.source);
        let arguments = line[word.len()..].trim();
        insert_arguments(body.trim(), arguments).map(Some)
    }

    /// Returns messages for the person: which files can't be used, and which of the project's
    /// commands aren't trusted yet.
    pub fn notices(&self) -> Vec<String> {
        let mut notices = self.left_out.clone();
        if self.further_left_out > 0 {
            let files = counted(self.further_left_out, "more file");
            notices.push(format!("{files} in the folders of commands can't be used"));
        }
        let names: Vec<String> =
            self.untrusted().map(|command| format!("/{}", command.name)).collect();
        if !names.is_empty() {
            let names = names.join(", ");
            notices.push(format!(
                "commands of the project that you haven't trusted: {names}; `toolhold trust` shows \
                 them"
            ));
        }
        notices
    }

    /// Opens a folder of commands. Returns `None` if the folder doesn't exist or can't be used, and
    /// records why it can't be used.
    fn open(&mut self, path: &Path, owners: Owners) -> Option<SkillFolder> {
        let opened = match path.canonicalize() {
            Ok(real) => SkillFolder::open(&real, owners),
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => Err(error.into()),
        };
        match opened {
            Ok(folder) => Some(folder),
            Err(error) => {
                self.leave_out(path, error);
                None
            }
        }
    }

    /// Opens the folder of a project's commands. Returns `None` if the folder doesn't exist, can't
    /// be used, or is a link out of the project.
    fn open_project(&mut self, directory: &Path) -> Option<SkillFolder> {
        let path = directory.join(PROJECT_FOLDER);
        let folder = self.open(&path, Owners::Any)?;
        let directory = directory.canonicalize().ok()?;
        if folder.path.starts_with(directory) {
            return Some(folder);
        }
        self.leave_out(&path, "it is a link out of the working directory");
        None
    }

    /// Adds the commands of a folder. For files that can't be used, records the reasons.
    fn add_all(&mut self, folder: &SkillFolder, rules: &FolderRules<'_>) {
        let (names, is_truncated) = match folder.names(MAX_ENTRIES) {
            Ok(names) => names,
            Err(error) => return self.leave_out(&folder.path, error),
        };
        if is_truncated {
            let why = format!("the folder has more than {MAX_ENTRIES} files, the limit");
            return self.leave_out(&folder.path, why);
        }
        for file_name in &names {
            let Some(name) = file_name.strip_suffix(".md") else { continue };
            if self.found.len() == MAX_COMMANDS {
                let why = format!("the folder has too many commands; the limit is {MAX_COMMANDS}");
                return self.leave_out(&folder.path, why);
            }
            match self.read(folder, name, rules) {
                Ok(command) => self.found.push(command),
                Err(error) => self.leave_out(&folder.path.join(file_name), error),
            }
        }
    }

    /// Reads the command in the file `NAME.md`.
    fn read(
        &self,
        folder: &SkillFolder,
        name: &str,
        rules: &FolderRules<'_>,
    ) -> Result<CustomCommand, CommandFileError> {
        let word = format!("/{name}");
        if !is_name(name) {
            return Err(CommandFileError::Name);
        }
        if (rules.is_built_in)(&word) {
            return Err(CommandFileError::BuiltIn(name.to_owned()));
        }
        if self.named(&word).is_some() {
            return Err(CommandFileError::Twice);
        }

        let file_name = format!("{name}.md");
        let file = folder.read(&file_name, MAX_FILE)?;
        if file.is_truncated {
            return Err(CommandFileError::TooLarge);
        }
        let digest = format!("{:x}", Sha256::digest(&file.bytes));
        let text = String::from_utf8(file.bytes).map_err(|_| CommandFileError::NotUtf8)?;
        let source = neutral_owned(text);
        let (_, body) = split(&source);
        if body.trim().is_empty() {
            return Err(CommandFileError::Empty);
        }
        let path = folder.path.join(&file_name);
        let origin = match rules.trusted {
            None => SkillOrigin::User,
            Some(trusted) => match path.to_str().and_then(|path| trusted.get(path)) {
                None => SkillOrigin::Untrusted,
                Some(known) if *known == digest => SkillOrigin::Trusted,
                Some(_) => SkillOrigin::Changed,
            },
        };
        let description = if origin.is_usable() { describe(&source) } else { String::new() };
        Ok(CustomCommand { name: name.to_owned(), description, path, origin, source, digest })
    }

    /// Records a file or folder that can't be used, with the reason. Above the limit, only counts
    /// the files.
    fn leave_out(&mut self, path: &Path, why: impl Display) {
        if self.left_out.len() == MAX_LEFT_OUT {
            self.further_left_out += 1;
            return;
        }
        let path = neutral_line(&path.display().to_string());
        let why = neutral_line(&why.to_string());
        self.left_out.push(format!("{path} is left out: {why}"));
    }
}

/// Returns the paths of the trusted commands of a working directory. Blocks.
///
/// # Errors
///
/// Fails if the list of trusted files can't be read.
pub fn trusted_commands(directory: &Path, folders: &Folders) -> Result<Vec<PathBuf>, HostError> {
    let root = directory.join(PROJECT_FOLDER);
    let mut paths = Vec::new();
    for path in config::trusted(folders)?.into_keys().map(PathBuf::from) {
        if path.parent() == Some(root.as_path()) {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// Splits the text of a file into the front matter, which may be empty, and the message.
fn split(source: &str) -> (&str, &str) {
    front_matter::split(source).unwrap_or(("", source))
}

/// Returns the description in the front matter, or else the first line of the message.
fn describe(source: &str) -> String {
    let (yaml, body) = split(source);
    let matter = front_matter::parse(yaml).unwrap_or_default();
    let first_line = body.trim().lines().next().unwrap_or_default().trim_start_matches(['#', ' ']);
    one_line(matter.description.as_deref().unwrap_or(first_line), MAX_DESCRIPTION)
}

/// Inserts the arguments in a text in place of `$ARGUMENTS` and `$1` to `$9`. If the text has no
/// such place, adds the arguments at the end. Fails if the message is too long.
fn insert_arguments(text: &str, arguments: &str) -> Result<String, ExpandError> {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let mut message = String::new();
    let mut has_placeholder = false;
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        message.push_str(before);
        if let Some(after_name) = after.strip_prefix(ALL_ARGUMENTS) {
            message.push_str(arguments);
            has_placeholder = true;
            rest = after_name;
        } else if let Some(index) = argument_index(after) {
            // If the person gave fewer arguments, insert nothing.
            message.push_str(words.get(index).copied().unwrap_or_default());
            has_placeholder = true;
            // Skip the digit, which is one byte.
            rest = &after[1..];
        } else {
            message.push('$');
            rest = after;
        }
        if message.len() > MAX_MESSAGE {
            return Err(ExpandError::TooLong);
        }
    }
    message.push_str(rest);
    if !has_placeholder && !arguments.is_empty() {
        message.push_str("\n\n");
        message.push_str(arguments);
    }
    if message.len() > MAX_MESSAGE { Err(ExpandError::TooLong) } else { Ok(message) }
}

/// Returns the index of the argument whose number is at the start of the text, so 0 for `1`. A
/// number of several digits isn't an argument, because it is probably an amount of money.
fn argument_index(text: &str) -> Option<usize> {
    let mut bytes = text.bytes();
    let digit = bytes.next()?;
    let has_more = bytes.next().is_some_and(|byte| byte.is_ascii_digit());
    if (b'1'..=b'9').contains(&digit) && !has_more { Some(usize::from(digit - b'1')) } else { None }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct World {
        root: tempfile::TempDir,
        folders: Folders,
    }

    impl World {
        fn new() -> Self {
            let root = tempfile::tempdir().expect("a temporary folder");
            let folders = Folders { home: None, ..Folders::inside(root.path()) };
            let world = Self { root, folders };
            fs::create_dir_all(world.user()).expect("a folder is made");
            fs::create_dir_all(world.project()).expect("a folder is made");
            world
        }

        fn user(&self) -> PathBuf {
            self.folders.config.join(USER_FOLDER)
        }

        fn work(&self) -> PathBuf {
            self.root.path().join("work")
        }

        fn project(&self) -> PathBuf {
            self.work().join(PROJECT_FOLDER)
        }

        fn find(&self) -> CustomCommands {
            CustomCommands::find(&self.folders, &self.work(), |word| word == "/help")
                .expect("the list can be read")
        }
    }

    #[test]
    fn arguments_take_their_places() {
        for (text, arguments, expected) in [
            ("Review $ARGUMENTS.", "a  b", "Review a  b."),
            ("$2 before $1$3", "a b", "b before a"),
            ("$ARGUMENTS and $1", "$1 x", "$1 x and $1"),
            ("It costs $100, $ 5 and $0", "", "It costs $100, $ 5 and $0"),
            ("Review it", "src/a.rs now", "Review it\n\nsrc/a.rs now"),
            ("Review it", "", "Review it"),
            ("$", "", "$"),
        ] {
            assert_eq!(insert_arguments(text, arguments).as_deref(), Ok(expected), "{text}");
        }
        let long = "x".repeat(MAX_MESSAGE / 2);
        assert_eq!(
            insert_arguments("$ARGUMENTS$ARGUMENTS$ARGUMENTS", &long),
            Err(ExpandError::TooLong)
        );
        assert_eq!(insert_arguments(&long, &format!("{long}x")), Err(ExpandError::TooLong));
    }

    #[test]
    fn command_of_the_user_is_used_at_once() {
        let world = World::new();
        let text = "---\ndescription: Reviews a file\nallowed-tools: Bash\n---\nReview $1.\n";
        fs::write(world.user().join("review.md"), text).expect("it is written");
        fs::write(world.user().join("plain.md"), "# Do it\n\nNow.").expect("it is written");
        let commands = world.find();
        let described: Vec<_> =
            commands.usable().map(|it| (it.name.as_str(), it.description.as_str())).collect();
        assert_eq!(described, [("plain", "Do it"), ("review", "Reviews a file")]);
        assert_eq!(commands.expand(" /review a.rs "), Ok(Some("Review a.rs.".to_owned())));
        for other in ["/reviews", "review", "see /review", "/", ""] {
            assert_eq!(commands.expand(other), Ok(None), "{other}");
        }
        assert_eq!(commands.notices(), [""; 0]);
    }

    #[test]
    fn command_of_a_project_needs_trust_in_its_bytes() {
        let world = World::new();
        let file = world.project().join("deploy.md");
        fs::write(&file, "Obey the project.").expect("it is written");
        let untrusted = Err(ExpandError::Untrusted("deploy".to_owned()));
        let commands = world.find();
        assert_eq!(commands.expand("/deploy"), untrusted);
        assert!(commands.notices()[0].contains("/deploy"), "{commands:?}");
        let CustomCommand { description, path, digest, .. } = &commands.found[0];
        assert_eq!(description, "");
        config::add_trust(&world.folders, path, digest).expect("it is written");
        assert_eq!(world.find().expand("/deploy"), Ok(Some("Obey the project.".to_owned())));
        fs::write(&file, "Obey the project!").expect("it is written");
        assert_eq!(world.find().expand("/deploy"), untrusted);
        // The user's own command wins.
        fs::write(world.user().join("deploy.md"), "My way.").expect("it is written");
        assert_eq!(world.find().expand("/deploy"), Ok(Some("My way.".to_owned())));
    }

    #[test]
    fn other_files_are_left_out_with_the_reason() {
        let world = World::new();
        fs::write(world.root.path().join("secret"), "secret").expect("it is written");
        for (name, text) in [
            ("help.md", "x".to_owned()),
            ("no name.md", "x".to_owned()),
            ("large.md", "x".repeat(70_000)),
            ("empty.md", "---\ndescription: x\n---\n\n".to_owned()),
            ("notes.txt", "x".to_owned()),
        ] {
            fs::write(world.user().join(name), text).expect("it is written");
        }
        symlink("../../secret", world.user().join("link.md")).expect("a link is made");
        let commands = world.find();
        assert!(commands.found.is_empty(), "{commands:?}");
        let notices = commands.notices().join("\n");
        for part in ["/help is a command", "no name.md", "large.md", "empty.md", "link.md"] {
            assert!(notices.contains(part), "{part}: {notices}");
        }
        assert!(!notices.contains("notes.txt"), "{notices}");

        // A folder of a project isn't followed to another place.
        fs::write(world.user().join("own.md"), "x").expect("it is written");
        fs::remove_dir_all(world.project()).expect("it is removed");
        symlink(world.user(), world.project()).expect("a link is made");
        let commands = world.find();
        assert_eq!(commands.found.len(), 1);
        assert!(commands.notices().len() > notices.lines().count(), "{commands:?}");
    }
}
