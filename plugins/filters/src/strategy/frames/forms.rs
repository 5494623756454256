//! Parses stack frames of each language, and tells whose code one shows.

use super::{Frame, Owner, indent};

/// Parses the frame at a line.
pub(super) fn frame(lines: &[&str], at: usize) -> Option<Frame> {
    let line = lines[at];
    let trimmed = line.trim_start();
    match trimmed.as_bytes().first()? {
        b'F' | b'|' => return python(lines, at),
        b'0'..=b'9' => return rust(lines, at),
        b'#' => return hash(trimmed).map(|owner| one_line(at, owner)),
        b'(' => return elixir(line).map(|owner| one_line(at, owner)),
        0xe2 => {
            let place = trimmed.strip_prefix("❯ ")?;
            return is_place(place).then(|| one_line(at, js_owner(place)));
        }
        _ => {}
    }
    let trimmed = trimmed.strip_prefix("[ERROR] ").map_or(trimmed, str::trim_start);
    if let Some(call) = trimmed.strip_prefix("at ") {
        return (indent(line) > 0 || trimmed.len() < line.len())
            .then(|| called(call))
            .flatten()
            .map(|owner| one_line(at, owner));
    }
    if let Some(place) = trimmed.strip_prefix("from ")
        && indent(line) > 0
        && place.contains(":in ")
    {
        return Some(one_line(at, ruby_owner(place)));
    }
    // `node --test` prints stacks without `at`.
    if indent(line) > 0
        && let Some((_, place)) = trimmed.rsplit_once(" (")
        && let Some(place) = place.strip_suffix(')')
        && (place.starts_with("node:") || place.contains("/node_modules/"))
        && is_place(place)
    {
        return Some(one_line(at, js_owner(place)));
    }
    go(lines, at)
}

fn one_line(at: usize, owner: Owner) -> Frame {
    Frame { lines: at..at + 1, owner, innermost_last: false }
}

/// A frame after `at `: of JavaScript, Java or .NET.
fn called(call: &str) -> Option<Owner> {
    let call = call.trim_end();
    // `f (file.js:3:4)`, `file:///file.js:3:4`, `new Promise (<anonymous>)`.
    let place = match call.rsplit_once(" (") {
        Some((_, place)) => place.strip_suffix(')'),
        None if is_place(call.trim_start_matches("async ")) => Some(call),
        None => None,
    };
    if let Some(place) = place
        && (is_place(place) || matches!(place, "<anonymous>" | "native" | "index 0"))
    {
        return Some(js_owner(place));
    }
    // `module/package.Class.method(File.java:3)`, `Name.Space.Method(String s) in file.cs:line 3`.
    let (name, rest) = call.split_once('(')?;
    if name.is_empty() || name.contains(char::is_whitespace) || !rest.contains(')') {
        return None;
    }
    if rest.contains(" in ") && rest.contains(":line ") {
        return Some(Owner::Own);
    }
    Some(jvm_owner(name.rsplit('/').next().unwrap_or(name)))
}

/// Whether a text is a path with a line, and perhaps a column: `a.js:3:4`.
fn is_place(text: &str) -> bool {
    let Some((path, number)) = text.trim_end().rsplit_once(':') else { return false };
    !path.is_empty()
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && !path.contains(": ")
}

fn js_owner(place: &str) -> Owner {
    const MACHINERY: [&str; 12] = [
        "node:internal/test_runner",
        "node:assert",
        "/expect/",
        "/@vitest/",
        "/vitest/",
        "/chai/",
        "/jest-circus/",
        "/jest-jasmine2/",
        "/jest-runner/",
        "/jest-",
        "/mocha/",
        "/playwright",
    ];
    let is_other = place.starts_with("node:")
        || place.starts_with("internal/")
        || place.starts_with("ext:")
        || place.contains("node_modules/")
        || !place.contains(['/', '.', '\\'])
        || place == "<anonymous>";
    if !is_other {
        Owner::Own
    } else if MACHINERY.iter().any(|part| place.contains(part)) {
        Owner::Machinery
    } else {
        Owner::Other
    }
}

fn jvm_owner(name: &str) -> Owner {
    const MACHINERY: [&str; 17] = [
        "org.junit.",
        "junit.",
        "org.testng.",
        "org.hamcrest.",
        "org.assertj.",
        "org.opentest4j.",
        "org.mockito.",
        "org.gradle.",
        "org.apache.maven.",
        "kotlin.test.",
        "org.scalatest.",
        "Xunit.",
        "NUnit.",
        "Microsoft.VisualStudio.TestPlatform.",
        "Microsoft.VisualStudio.TestTools.",
        "worker.org.gradle.",
        "jdk.internal.reflect.",
    ];
    const OTHERS: [&str; 27] = [
        "java.",
        "javax.",
        "jdk.",
        "sun.",
        "com.sun.",
        "jakarta.",
        "kotlin.",
        "kotlinx.",
        "scala.",
        "groovy.",
        "clojure.",
        "org.codehaus.",
        "org.apache.",
        "org.springframework.",
        "org.hibernate.",
        "org.eclipse.",
        "io.netty.",
        "reactor.",
        "io.micrometer.",
        "com.fasterxml.",
        "com.google.common.",
        "com.google.inject.",
        "com.zaxxer.",
        "System.",
        "Microsoft.",
        "okhttp3.",
        "android.",
    ];
    if MACHINERY.iter().any(|start| name.starts_with(start)) {
        Owner::Machinery
    } else if OTHERS.iter().any(|start| name.starts_with(start))
        || name.contains("$$FastClass")
        || name.contains("$Proxy")
    {
        Owner::Other
    } else {
        Owner::Own
    }
}

/// A frame of Python, with the source below it: `File "a.py", line 3, in f`.
fn python(lines: &[&str], at: usize) -> Option<Frame> {
    let depth = drawn_depth(lines[at]);
    let rest = lines[at][depth..].strip_prefix("File \"")?;
    let (path, rest) = rest.split_once('"')?;
    if depth == 0 || !rest.starts_with(", line ") {
        return None;
    }
    let more = lines[at + 1..]
        .iter()
        .take_while(|line| {
            let own_depth = drawn_depth(line);
            own_depth > depth && !line[own_depth..].starts_with("File \"")
        })
        .take(8)
        .count();
    // The handler of crashes prints `line 3 in f`, the innermost frame first.
    let number = rest[", line ".len()..].trim_start_matches(|digit: char| digit.is_ascii_digit());
    Some(Frame {
        lines: at..at + 1 + more,
        owner: python_owner(path),
        innermost_last: !number.starts_with(" in "),
    })
}

/// The indentation of a line. Groups of exceptions draw a bar before each frame.
fn drawn_depth(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '|']).len()
}

pub(super) fn python_owner(path: &str) -> Owner {
    const MACHINERY: [&str; 6] =
        ["/unittest/", "/_pytest/", "/pluggy/", "/pytest/", "/nose/", "/trial/"];
    let path = path.replace('\\', "/");
    let is_other = ["/site-packages/", "/dist-packages/", "/lib/python", "<frozen ", "/Lib/"]
        .iter()
        .any(|part| path.contains(part));
    if !is_other {
        Owner::Own
    } else if MACHINERY.iter().any(|part| path.contains(part)) {
        Owner::Machinery
    } else {
        Owner::Other
    }
}

/// The path in the line that ends a frame of pytest: `a.py:3: in f`, `a.py:3: ValueError`.
pub(super) fn pytest_place(line: &str) -> Option<&str> {
    let (path, rest) = line.split_once(".py:")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let fits = digits > 0 && rest[digits..].starts_with(':') && !path.contains(' ');
    fits.then(|| &line[..path.len() + 3])
}

/// A frame of Rust, with its place in the next line.
fn rust(lines: &[&str], at: usize) -> Option<Frame> {
    let trimmed = lines[at].trim_start();
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    let name = trimmed[digits..].strip_prefix(": ")?;
    if digits > 4 || indent(lines[at]) == 0 {
        return None;
    }
    // A full backtrace has addresses: `12:     0x55d - name`.
    let name = match name.trim_start().split_once(" - ") {
        Some((address, name)) if address.starts_with("0x") => name,
        _ => name.trim_start(),
    };
    let place = lines
        .get(at + 1)
        .and_then(|line| line.trim_start().strip_prefix("at "))
        .filter(|place| is_place(place));
    let is_other = match place {
        Some(place) => ["/rustc/", "/rustlib/", "/.cargo/registry/", "/.cargo/git/"]
            .iter()
            .any(|part| place.contains(part)),
        None => [
            "std::",
            "core::",
            "alloc::",
            "test::",
            "__rust",
            "rust_",
            "_rust",
            "_start",
            "__libc",
            "start_thread",
            "clone",
            "<unknown>",
            "_Unwind",
        ]
        .iter()
        .any(|start| name.starts_with(start)),
    };
    let owner = if is_other { Owner::Machinery } else { Owner::Own };
    Some(Frame { lines: at..at + 1 + usize::from(place.is_some()), owner, innermost_last: false })
}

/// A frame of Go: a call, and its place in the next line.
fn go(lines: &[&str], at: usize) -> Option<Frame> {
    let call = lines[at];
    let place = lines.get(at + 1)?.strip_prefix('\t')?.trim_start();
    // `example.org/shop.(*Cart).Total(0x3, ...)`, `created by testing.(*T).Run in goroutine 1`.
    let name = call.split_once('(').map_or(call, |(name, _)| name);
    let is_call = call.ends_with(')') && !name.is_empty() && !name.contains([' ', '\t', ':', '"']);
    if !is_call && !call.starts_with("created by ") {
        return None;
    }
    let (path, rest) = place.split_once(".go:")?;
    if !rest.starts_with(|first: char| first.is_ascii_digit()) || !path.starts_with(['/', '_']) {
        return None;
    }
    // A package outside the standard library has a dot in its first part, even in `~/go/src`.
    let first = call.trim_start_matches("created by ").split('/').next().unwrap_or_default();
    let is_std = !(call.contains('/') && first.contains('.'));
    let is_runtime = is_std && path.contains("/go/src/")
        || path.contains("/libexec/src/")
        || path.contains("/usr/lib/go")
        || path.starts_with("_testmain")
        || path.contains("/golang.org/toolchain@");
    let owner = if is_runtime {
        Owner::Machinery
    } else if path.contains("/pkg/mod/") || path.contains("/vendor/") {
        Owner::Other
    } else {
        Owner::Own
    };
    Some(Frame { lines: at..at + 2, owner, innermost_last: false })
}

/// A frame after `#`: `# ./spec/a.rb:3:in 'f'` of Ruby, `#3 /a.php(3): f()` of PHP.
fn hash(trimmed: &str) -> Option<Owner> {
    if let Some(place) = trimmed.strip_prefix("# ") {
        return place.contains(":in ").then(|| ruby_owner(place));
    }
    let rest = trimmed[1..].trim_start_matches(|first: char| first.is_ascii_digit());
    let has_number = rest.len() < trimmed.len() - 1;
    if !has_number {
        return None;
    }
    let path = rest.strip_prefix(' ')?;
    let is_frame =
        path.contains("): ") || path.starts_with("[internal function]") || path == "{main}";
    let is_other = path.contains("/vendor/") || path.starts_with("[internal function]");
    is_frame.then_some(if is_other { Owner::Machinery } else { Owner::Own })
}

fn ruby_owner(place: &str) -> Owner {
    let is_other = ["/gems/", "/lib/ruby/", "<internal:"].iter().any(|part| place.contains(part));
    if !is_other {
        Owner::Own
    } else if place.contains("rspec") || place.contains("minitest") {
        Owner::Machinery
    } else {
        Owner::Other
    }
}

/// A frame of Elixir: `(elixir 1.14.0) lib/enum.ex:3: Enum.map/2`.
fn elixir(line: &str) -> Option<Owner> {
    const MACHINERY: [&str; 3] = ["ex_unit", "mix", "erts"];
    const OTHERS: [&str; 7] = ["elixir", "stdlib", "kernel", "iex", "logger", "eex", "compiler"];
    let (app, place) = line.trim_start().strip_prefix('(')?.split_once(") ")?;
    let (app, version) = app.split_once(' ').unwrap_or((app, "0"));
    if indent(line) == 0
        || !version.starts_with(|first: char| first.is_ascii_digit())
        || !place.contains(".ex") && !place.contains(".erl")
    {
        return None;
    }
    Some(if MACHINERY.contains(&app) {
        Owner::Machinery
    } else if OTHERS.contains(&app) {
        Owner::Other
    } else {
        Owner::Own
    })
}
