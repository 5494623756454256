//! Compares what the walk finds in folders of sources with what Universal Ctags finds, or measures
//! how fast it is: `compare FOLDER…` or `compare --time FOLDER…`.
//!
//! A definition is the same if file, name and line are. What only one of the two lists on purpose
//! is left out, by its kind, on both sides: [`CONVENTIONS`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use code_model::{Kind, Language, MAX_SOURCE, ParserQuestion};

/// What is compared in a language.
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

const CONVENTIONS: [Convention; 12] = [
    // `impl` is no definition. ctags lists no constants.
    convention(Language::Rust, "Rust", "MPefgimnstv", &[Kind::Constant]),
    convention(Language::Python, "Python", "cfmv", &[]),
    // Its variables are local ones too, and its properties all keys of objects.
    convention(Language::JavaScript, "JavaScript", "GScfgm", SCRIPT),
    convention(Language::TypeScript, "TypeScript", "Gacefgimn", SCRIPT),
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

/// A name and its line.
type Found = BTreeSet<(String, u32)>;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_timed = arguments.first().is_some_and(|first| first == "--time");
    if is_timed {
        arguments.remove(0);
    }
    let mut files = BTreeMap::<Language, Vec<PathBuf>>::new();
    for folder in &arguments {
        collect(Path::new(folder), &mut files);
    }
    let done = if is_timed { time(&files) } else { compare(&files) };
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
        // Minified sources have lines that say nothing.
        let is_written = source.len() < MAX_SOURCE && source.len() < 2_000 * lines(&source).max(1);
        if let Some(language) = Language::detect(&path.to_string_lossy(), &source)
            && is_written
        {
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
        let (mut definitions, mut answer) = (0, 0);
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

fn compare(files: &BTreeMap<Language, Vec<PathBuf>>) -> Result<(), String> {
    println!("language files ours theirs both recall precision");
    for convention in &CONVENTIONS {
        let Some(files) = files.get(&convention.language) else { continue };
        let theirs = theirs(convention, files)?;
        let (mut ours_count, mut theirs_count, mut both) = (0, 0, 0);
        let (mut missing, mut more) = (Vec::new(), Vec::new());
        for file in files {
            let source = std::fs::read(file).map_err(|error| error.to_string())?;
            let ours = ours(convention, &source)?;
            let empty = Found::new();
            let theirs = theirs.get(&*file.to_string_lossy()).unwrap_or(&empty);
            ours_count += ours.len();
            theirs_count += theirs.len();
            both += ours.intersection(theirs).count();
            let at = |(name, line): &(String, u32)| format!("{}:{line}: {name}", file.display());
            missing.extend(theirs.difference(&ours).map(at));
            more.extend(ours.difference(theirs).map(at));
        }
        println!(
            "{} {} {ours_count} {theirs_count} {both} {:.2} % {:.2} %",
            convention.language.part(),
            files.len(),
            100.0 * f64::from(both as u32) / f64::from(theirs_count.max(1) as u32),
            100.0 * f64::from(both as u32) / f64::from(ours_count.max(1) as u32),
        );
        if std::env::var_os("SHOW").is_some() {
            for (what, list) in [("missing", missing), ("more", more)] {
                let step = (list.len() / 25).max(1);
                list.iter().step_by(step).take(25).for_each(|one| println!("    {what} {one}"));
            }
        }
    }
    Ok(())
}

fn ours(convention: &Convention, source: &[u8]) -> Result<Found, String> {
    let parsed = grammars::parse_as(convention.language, source, ParserQuestion::References)?;
    let compared =
        parsed.definitions.iter().filter(|one| !convention.not_theirs.contains(&one.kind));
    Ok(compared.map(|one| (plain(&one.name), one.line)).collect())
}

fn theirs(convention: &Convention, files: &[PathBuf]) -> Result<BTreeMap<String, Found>, String> {
    let mut ctags = Command::new("ctags");
    let Convention { name, theirs, .. } = convention;
    ctags.args(["-f", "-", "-L", "-", "--sort=no", "--excmd=number", "--fields=nk"]);
    ctags.arg(format!("--kinds-{name}={theirs}")).arg(format!("--language-force={name}"));
    ctags.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = ctags.spawn().map_err(|error| format!("ctags can't be started: {error}"))?;
    let list: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
    let mut input = child.stdin.take().ok_or("ctags has no input")?;
    let writing = std::thread::spawn(move || input.write_all(list.as_bytes()));
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let _ = writing.join();
    let mut found = BTreeMap::<String, Found>::new();
    for tag in String::from_utf8_lossy(&output.stdout).lines() {
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
