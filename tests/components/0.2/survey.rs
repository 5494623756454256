//! A plugin for contract 0.2: what arguments say in fields, attachments, search, a process that is
//! read while it runs, secrets, requests and filters.

use berth_sdk::filter::{
    Confidence, Filters, Input, Listing, Matcher, Purpose, Registration, Replacement, Verdict,
};
use berth_sdk::http::Request;
use berth_sdk::process::Command;
use berth_sdk::search::{self, Pattern, Scope};
use berth_sdk::{
    Access, Annotations, Attachment, Call, Content, Failure, Output, Subject, SubjectKind, Tool,
    secrets,
};
use schemars::JsonSchema;
use serde::Deserialize;

berth_sdk::plugin! {
    name: "survey",
    description: "Uses contract 0.2",
    capabilities: [
        files(read_write) = "to read what is searched",
        search = "to search",
        process = "to run programs",
        http = "to send requests",
    ],
    tools: [Look, Take, Run, Ask],
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

/// Sends a request.
struct Ask;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AskArguments {
    /// The address.
    url: String,
}

impl Tool for Ask {
    const NAME: &str = "ask";
    const DESCRIPTION: &str = "Sends a request.";
    const ANNOTATIONS: Annotations = Annotations { open_world: true, ..Annotations::READ_ONLY };
    const SUBJECTS: &[Subject] = &[Subject::new("/url", SubjectKind::Url, Access::Read)];
    type Arguments = AskArguments;

    fn call(arguments: AskArguments, _call: &Call) -> Result<Output, Failure> {
        let has_key = secrets::exists("key");
        let answer = Request::get(arguments.url).send()?.error_for_status()?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        Ok(Output::text(format!("{text}, key {has_key}")))
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
            fallback: true,
            ..Registration::new("rest", Purpose::Cosmetic, [Matcher::any("survey__look")])
        };
        let text = Matcher::regex("survey__look", r"/text\.txt$");
        let short = Registration::new("short", Purpose::Cosmetic, [text]);
        Listing::from(vec![short, fallback])
    }

    fn apply(&mut self, filter: &str, input: &Input) -> Result<Verdict, String> {
        let replaced = input.map_texts(|text| Some(format!("{filter}: {} bytes", text.len())));
        Ok(replaced
            .map_or(Verdict::Keep, |content| Replacement::new(content, Confidence::Full).into()))
    }
}
