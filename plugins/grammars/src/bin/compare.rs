//! Compares what the walk finds in folders of sources with what Universal Ctags finds, or measures
//! how fast it is: `compare FOLDER…` or `compare --time FOLDER…`. With `SHOW=25` in the environment
//! it prints 25 of the differences on each side.
//!
//! A definition is the same if file, name and line are. What only one of the two lists on purpose
//! is left out, by its kind, on both sides: [`CONVENTIONS`].
//!
//! `compare --judges FOLDER …` asks a third reader of a language too, where there is one, and says
//! how both compare with it: [`JUDGES`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use code_model::{Kind, Language, MAX_SOURCE, ParserQuestion};

/// The conventions for comparing a language.
struct Convention {
    language: Language,
    /// Its name in ctags.
    name: &'static str,
    /// The letters of the kinds that are compared. Left out are locals, parameters, imports, the
    /// names of packages, labels, and what has no name of its own.
    theirs: &'static str,
    /// The walk's kinds that ctags doesn't know in this language.
    not_theirs: &'static [Kind],
}

const fn convention(
    language: Language,
    name: &'static str,
    theirs: &'static str,
    not_theirs: &'static [Kind],
) -> Convention {
    Convention { language, name, theirs, not_theirs }
}

const CONVENTIONS: [Convention; 13] = [
    // `impl` is no definition. ctags lists no constants.
    convention(Language::Rust, "Rust", "MPefgimnstv", &[Kind::Constant]),
    convention(Language::Python, "Python", "cfmv", &[]),
    // Its variables are local ones too, and its properties all keys of objects.
    convention(Language::JavaScript, "JavaScript", "GScfgm", SCRIPT),
    convention(Language::TypeScript, "TypeScript", "Gacefgimn", SCRIPT),
    convention(Language::Tsx, "TypeScript", "Gacefgimn", SCRIPT),
    // Embedded fields have the name of their type.
    convention(Language::Go, "Go", "acfimnstuv", &[]),
    convention(Language::C, "C", "defgmpstuv", &[]),
    convention(Language::Cpp, "C++", "cdefgmnpstuv", &[Kind::Interface]),
    convention(Language::Java, "Java", "acefgim", &[]),
    convention(Language::CSharp, "C#", "Ecefgimnpst", &[]),
    convention(Language::Ruby, "Ruby", "ACSacfm", &[]),
    // Its variables are local ones too.
    convention(Language::Php, "PHP", "cdfint", &[Kind::Field, Kind::Variant]),
    convention(Language::Bash, "Sh", "f", &[Kind::Variable, Kind::Constant]),
];

const SCRIPT: &[Kind] = &[Kind::Field, Kind::Variable, Kind::Constant];

/// A parser of the language that is neither ctags' nor ours: the program, and its script.
struct Judge {
    languages: &'static [Language],
    program: &'static str,
    script: &'static str,
}

const JUDGES: [Judge; 2] = [
    Judge {
        languages: &[Language::JavaScript, Language::TypeScript, Language::Tsx],
        program: "node",
        script: "typescript.cjs",
    },
    Judge { languages: &[Language::Bash], program: "bash", script: "bash.sh" },
];

/// A name and its line.
type Found = BTreeSet<(String, u32)>;

/// By path.
type ByFile = BTreeMap<String, Found>;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_timed = arguments.first().is_some_and(|first| first == "--time");
    if is_timed {
        arguments.remove(0);
    }
    let mut judges = None;
    if arguments.len() > 1 && arguments[0] == "--judges" {
        judges = arguments.drain(..2).next_back().map(PathBuf::from);
    }
    let mut files = BTreeMap::<Language, Vec<PathBuf>>::new();
    for folder in &arguments {
        collect(Path::new(folder), &mut files);
    }
    let done = if is_timed { time(&files) } else { compare(&files, judges.as_deref()) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn collect(folder: &Path, files: &mut BTreeMap<Language, Vec<PathBuf>>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
            continue;
        }
        let Ok(source) = std::fs::read(&path) else { continue };
        let Some(language) = Language::detect(&path.to_string_lossy(), &source) else { continue };
        // Ctags and the judge don't know JavaScript with Flow's types.
        let is_known =
            language != Language::Tsx || path.extension().is_some_and(|end| end == "tsx");
        // Minified sources have lines that say nothing.
        let is_written = source.len() < MAX_SOURCE && source.len() < 2_000 * lines(&source).max(1);
        if is_known && is_written {
            files.entry(language).or_default().push(path);
        }
    }
}

fn lines(source: &[u8]) -> usize {
    source.iter().filter(|byte| **byte == b'\n').count()
}

fn time(files: &BTreeMap<Language, Vec<PathBuf>>) -> Result<(), String> {
    println!("language files lines MB seconds definitions answer-MB");
    for (language, files) in files {
        let mut sources = Vec::new();
        for file in files {
            sources.push(std::fs::read(file).map_err(|error| error.to_string())?);
        }
        let mut definitions = 0;
        let mut answer = 0;
        let started = Instant::now();
        for source in &sources {
            let parsed = grammars::parse_as(*language, source, ParserQuestion::Chunks)?;
            definitions += parsed.definitions.len();
            answer += parsed.encode().len();
        }
        let seconds = started.elapsed().as_secs_f64();
        let (bytes, lines) = sources
            .iter()
            .fold((0, 0), |(bytes, all), source| (bytes + source.len(), all + lines(source)));
        println!(
            "{} {} {lines} {:.1} {seconds:.2} {definitions} {:.2}",
            language.part(),
            files.len(),
            bytes as f64 / 1e6,
            answer as f64 / 1e6
        );
    }
    Ok(())
}

fn compare(files: &BTreeMap<Language, Vec<PathBuf>>, judges: Option<&Path>) -> Result<(), String> {
    println!("language files | ours, of ctags: recall precision | …");
    for convention in &CONVENTIONS {
        let Some(files) = files.get(&convention.language) else { continue };
        let mut ours = ByFile::new();
        for file in files {
            let source = std::fs::read(file).map_err(|error| error.to_string())?;
            ours.insert(file.to_string_lossy().into_owned(), find(convention, &source)?);
        }
        let theirs = theirs(convention, files)?;
        let mut line = format!("{} {}", convention.language.part(), files.len());
        line.push_str(&format!(" | ours, of ctags: {}", Shares::new(&ours, &theirs)));
        let mut expected = &theirs;
        let right;
        let judge = JUDGES.iter().find(|judge| judge.languages.contains(&convention.language));
        if let (Some(folder), Some(judge)) = (judges, judge) {
            match judge.ask(folder, files) {
                Ok(found) => {
                    right = found;
                    expected = &right;
                    line.push_str(&format!(
                        " | ours, of {}: {} | ctags', of it: {}",
                        judge.script,
                        Shares::new(&ours, expected),
                        Shares::new(&theirs, expected)
                    ));
                }
                Err(why) => line.push_str(&format!(" | {} can't judge: {why}", judge.script)),
            }
        }
        println!("{line}");
        let shown = std::env::var("SHOW").ok().and_then(|shown| shown.parse().ok());
        if let Some(most) = shown {
            show("missing", expected, &ours, most);
            show("more", &ours, expected, most);
        }
    }
    Ok(())
}

/// How much of what is right is found, and how much of what is found is right.
struct Shares {
    found: usize,
    right: usize,
    both: usize,
}

impl Shares {
    fn new(found: &ByFile, right: &ByFile) -> Self {
        Self {
            found: found.values().map(BTreeSet::len).sum(),
            right: right.values().map(BTreeSet::len).sum(),
            both: found
                .iter()
                .map(|(file, found)| {
                    right.get(file).map_or(0, |right| found.intersection(right).count())
                })
                .sum(),
        }
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, right, both } = self;
        let of_right = percentage(*both, *right);
        let of_found = percentage(*both, *found);
        write!(f, "{of_right:.1} % {of_found:.1} % ({both} of {right}, {found})")
    }
}

fn percentage(part: usize, all: usize) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

/// Prints some of the findings that are in one and not in the other.
fn show(what: &str, one: &ByFile, other: &ByFile, most: usize) {
    let mut list = Vec::new();
    for (file, found) in one {
        let none = Found::new();
        let more = found.difference(other.get(file).unwrap_or(&none));
        list.extend(more.map(|(name, line)| format!("{file}:{line}: {name}")));
    }
    let step = (list.len() / most.max(1)).max(1);
    list.iter().step_by(step).take(most).for_each(|one| println!("    {what} {one}"));
}

impl Judge {
    fn ask(&self, folder: &Path, files: &[PathBuf]) -> Result<ByFile, String> {
        let mut command = Command::new(self.program);
        let output = given(command.arg(folder.join(self.script)), files)?;
        let mut found = ByFile::new();
        for line in String::from_utf8_lossy(&output).lines() {
            let mut fields = line.split('\t');
            let (Some(name), Some(line), Some(file)) =
                (fields.next(), fields.next(), fields.next())
            else {
                return Err(format!("a line isn't valid: {line}"));
            };
            let line = line.parse().map_err(|_| format!("{line} is no line"))?;
            found.entry(file.to_owned()).or_default().insert((plain(name), line));
        }
        Ok(found)
    }
}

/// The output of a program that reads paths from its input.
fn given(command: &mut Command, files: &[PathBuf]) -> Result<Vec<u8>, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child =
        command.spawn().map_err(|error| format!("{program} can't be started: {error}"))?;
    let list: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
    let mut input = child.stdin.take().ok_or_else(|| format!("{program} has no input"))?;
    let writing = std::thread::spawn(move || input.write_all(list.as_bytes()));
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let _ = writing.join();
    if !output.status.success() {
        return Err(format!("{program} failed ({})", output.status));
    }
    Ok(output.stdout)
}

fn find(convention: &Convention, source: &[u8]) -> Result<Found, String> {
    let parsed = grammars::parse_as(convention.language, source, ParserQuestion::References)?;
    let compared =
        parsed.definitions.iter().filter(|one| !convention.not_theirs.contains(&one.kind));
    Ok(compared.map(|one| (plain(&one.name), one.line)).collect())
}

fn theirs(convention: &Convention, files: &[PathBuf]) -> Result<ByFile, String> {
    let mut ctags = Command::new("ctags");
    let Convention { name, theirs, .. } = convention;
    ctags.args(["-f", "-", "-L", "-", "--sort=no", "--excmd=number", "--fields=nk"]);
    ctags.arg(format!("--kinds-{name}={theirs}")).arg(format!("--language-force={name}"));
    let output = given(ctags.stderr(Stdio::null()), files)?;
    let mut found = ByFile::new();
    for tag in String::from_utf8_lossy(&output).lines() {
        let mut fields = tag.split('\t');
        let (Some(name), Some(file)) = (fields.next(), fields.next()) else { continue };
        // What has no name gets one from ctags.
        if name.starts_with("__anon")
            || name.starts_with("anonymous")
            || name.starts_with("AnonymousF")
            || name.starts_with("!_")
        {
            continue;
        }
        let line = fields.find_map(|field| field.strip_prefix("line:"));
        if let Some(line) = line.and_then(|line| line.parse().ok()) {
            found.entry(file.to_owned()).or_default().insert((plain(name), line));
        }
    }
    Ok(found)
}

/// A name without what the two write in other ways: spaces and the word of operators, quotes, the
/// sign of destructors, the ends of Ruby's names, and signs that ctags escapes.
fn plain(name: &str) -> String {
    name.replace([' ', '"', '\''], "")
        .replace("\\\\", "\\")
        .trim_start_matches(['#', ':', '$', '@', '~'])
        .trim_start_matches("self.")
        .trim_start_matches("operator")
        .trim_end_matches(['=', '?'])
        .to_owned()
}
