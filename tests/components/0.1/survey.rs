//! A plugin that uses every part of contract 0.1: the undocumented keys of `meta`, the arguments
//! with a meaning by their name, attachments, progress, emitted parts, log, search, processes and
//! filters.

use std::time::Duration;

use berth_sdk::filter::{
    Confidence, Filters, Input, Listing, Matcher, Purpose, Registration, Replacement, Verdict,
};
use berth_sdk::process::Command;
use berth_sdk::search::{self, Pattern, Scope};
use berth_sdk::{
    Annotations, Attachment, Call, Category, Content, Failure, Output, Subject, Tool, log,
};
use schemars::JsonSchema;
use serde::Deserialize;

berth_sdk::plugin! {
    name: "survey",
    description: "Uses every part of contract 0.1",
    capabilities: [
        files(read_write) = "to read what is searched",
        search = "to search",
        process = "to run programs",
    ],
    tools: [Look, Tell, Take, Run],
    filters: Shorten,
}

/// Searches, and knows the other names of its arguments.
struct Look;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LookArguments {
    /// The folder.
    path: String,
    /// The regular expression.
    pattern: String,
}

impl Tool for Look {
    const NAME: &str = "look";
    const DESCRIPTION: &str = "Finds the lines that match.";
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    const SUBJECTS: &[Subject] = &[Subject::reads_path("/path")];
    const ALIASES: &[&str] = &["peek"];
    const ARGUMENT_ALIASES: &[(&str, &[&str])] = &[("pattern", &["regex", "query"])];
    const BARE_ARGUMENT: Option<&str> = Some("pattern");
    type Arguments = LookArguments;

    fn call(arguments: LookArguments, _call: &Call) -> Result<Output, Failure> {
        let LookArguments { path: root, pattern: regex } = arguments;
        let scope = Scope { root, ..Scope::default() };
        let pattern = Pattern { regex, case_sensitive: true, ..Pattern::default() };
        let found = search::grep(&scope, &pattern, 10)?;
        let lines = found.items.iter().map(|line| format!("{}:{}\n", line.number, line.text));
        Ok(Output::text(format!("{}{:?}", lines.collect::<String>(), found.ending)))
    }
}

/// Logs, reports progress, emits a part, and tells how long it may take.
struct Tell;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TellArguments {
    /// What to tell.
    text: String,
    /// Seconds.
    #[expect(dead_code, reason = "the host reads it")]
    timeout: Option<u32>,
    /// Whether to fail in the end.
    #[serde(default)]
    fail: bool,
}

impl Tool for Tell {
    const NAME: &str = "tell";
    const DESCRIPTION: &str = "Tells a text in every way.";
    type Arguments = TellArguments;

    fn call(arguments: TellArguments, call: &Call) -> Result<Output, Failure> {
        let text = arguments.text;
        log::warn(format_args!("log: {text}"));
        call.progress(0.5, &format!("progress: {text}"));
        let kept = call.emit(Content::text(format!("emitted: {text}")));
        if arguments.fail {
            return Err(Failure::new(Category::ServerError, format!("failed: {text}"))
                .with_code("told")
                .with_suggestion("tell it again")
                .with_retry_after(Duration::from_millis(1500)));
        }
        let seconds = call.remaining().as_secs();
        Ok(Output::text(format!("{text}, kept {kept}, id {}, {seconds} s", !call.id().is_empty())))
    }
}

/// Takes an attachment.
struct Take;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TakeArguments {
    /// The content.
    content: Attachment,
}

impl Tool for Take {
    const NAME: &str = "take";
    const DESCRIPTION: &str = "Counts the bytes of an attachment.";
    const ANNOTATIONS: Annotations = Annotations::READ_ONLY;
    type Arguments = TakeArguments;

    fn call(arguments: TakeArguments, call: &Call) -> Result<Output, Failure> {
        let part = call.attachment(arguments.content)?;
        let bytes = part.as_bytes().unwrap_or_default().to_vec();
        let answer = Output::text(format!("{} bytes", bytes.len()));
        Ok(answer.with(Content::bytes(bytes, "application/x-taken")))
    }
}

/// Runs a program.
struct Run;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunArguments {
    /// The program and its arguments.
    words: Vec<String>,
    /// Whether it is read while it runs.
    #[serde(default)]
    child: bool,
}

impl Tool for Run {
    const NAME: &str = "run";
    const DESCRIPTION: &str = "Runs a program.";
    type Arguments = RunArguments;

    fn call(arguments: RunArguments, _call: &Call) -> Result<Output, Failure> {
        let mut words = arguments.words.into_iter();
        let program = words.next().unwrap_or_default();
        let command = Command::program(program).args(words);
        let finished = match arguments.child {
            false => command.input("given").run()?,
            true => {
                let mut child = command.start()?;
                child.write(b"given");
                child.close_input();
                child.wait()
            }
        };
        let text = String::from_utf8_lossy(&finished.output.stdout).into_owned();
        Ok(Output::text(format!("{text}\n{:?} {:?}", finished.exit_code, finished.ending)))
    }
}

/// Shortens the output of one command, and falls back for all others.
struct Shorten;

impl Filters for Shorten {
    fn new(rules: Option<&str>) -> Result<Self, String> {
        match rules {
            None => Ok(Self),
            Some(_) => Err("it got rules".to_owned()),
        }
    }

    fn list(&self) -> Listing {
        let fallback = Registration {
            meta: Some(r#"{"berth:fallback":true}"#.into()),
            ..Registration::new("rest", Purpose::Cosmetic, [Matcher::any("survey__look")])
        };
        let text = Matcher::regex("survey__look", r"/text\.txt$");
        let short = Registration::new("short", Purpose::Cosmetic, [text]);
        Listing::from(vec![short, fallback])
    }

    fn apply(&mut self, filter: &str, input: &Input) -> Result<Verdict, String> {
        let alone = input.meta.as_ref().and_then(|meta| meta["berth:alone"].as_bool());
        let replaced =
            input.map_texts(|text| Some(format!("{filter} {alone:?}: {} bytes", text.len())));
        Ok(replaced.map_or(Verdict::Keep, |content| {
            Replacement::new(content, Confidence::Full).into()
        }))
    }
}
