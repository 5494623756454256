//! Checks every rule with two small trees, one that breaks it and one that doesn't.

use super::tree::{File, Tree};
use super::{RULES, Rule, TASTE, text};

/// Files that break a rule, the lines that do so, and files that don't break it.
struct Sample {
    rule: &'static str,
    bad: &'static [(&'static str, &'static str)],
    lines: &'static [&'static str],
    good: &'static [(&'static str, &'static str)],
}

const SAMPLES: &[Sample] = &[
    Sample {
        rule: "some_crates_never_reach_others",
        bad: &[
            (
                "host/config/config/Cargo.toml",
                "[package]\nname = \"toolhold-config\"\n[dependencies]\nserde.workspace = true\ntoolhold-new.workspace = true\n",
            ),
            (
                "host/new/Cargo.toml",
                "[package]\nname = \"toolhold-new\"\n[dependencies]\ntoolhold-engine.workspace = true\n",
            ),
            (
                "host/runtime/engine/Cargo.toml",
                "[package]\nname = \"toolhold-engine\"\n[dependencies]\ntoolhold-config.workspace = true\n",
            ),
        ],
        lines: &["host/config/config/Cargo.toml:5", "host/runtime/engine/Cargo.toml:4"],
        good: &[
            (
                "host/config/config/Cargo.toml",
                "[package]\nname = \"toolhold-config\"\n[dependencies]\ntoolhold-new.workspace = true\n",
            ),
            (
                "host/new/Cargo.toml",
                "[package]\nname = \"toolhold-new\"\n[dev-dependencies]\ntoolhold-engine.workspace = true\n",
            ),
        ],
    },
    Sample {
        rule: "folders_of_crates_are_layers",
        bad: &[
            (
                "host/policy/a/Cargo.toml",
                "[package]\nname = \"toolhold-a\"\n[dependencies]\nserde.workspace = true\ntoolhold-b.workspace = true\n",
            ),
            ("host/core/b/Cargo.toml", "[package]\nname = \"toolhold-b\"\n"),
        ],
        lines: &["host/policy/a/Cargo.toml:5"],
        good: &[
            (
                "host/core/b/Cargo.toml",
                "[package]\nname = \"toolhold-b\"\n[dependencies]\ntoolhold-a.workspace = true\ntoolhold-c.workspace = true\n",
            ),
            ("host/core/c/Cargo.toml", "[package]\nname = \"toolhold-c\"\n"),
            ("host/policy/a/Cargo.toml", "[package]\nname = \"toolhold-a\"\n"),
        ],
    },
    Sample {
        rule: "every_crate_has_two_users_or_a_reason",
        bad: &[
            (
                "host/a/Cargo.toml",
                "[package]\nname = \"toolhold-a\"\nmetadata.reason = \"r\"\n[dependencies]\ntoolhold-b.workspace = true\n",
            ),
            ("host/b/Cargo.toml", "[package]\nname = \"toolhold-b\"\n"),
            (
                "host/c/Cargo.toml",
                "[package]\nname = \"toolhold-c\"\nmetadata.reason = \"r\"\n[dev-dependencies]\ntoolhold-b.workspace = true\n",
            ),
        ],
        lines: &["host/b/Cargo.toml:1"],
        good: &[
            (
                "host/a/Cargo.toml",
                "[package]\nname = \"toolhold-a\"\nmetadata.reason = \"r\"\n[dependencies]\ntoolhold-b.workspace = true\n",
            ),
            ("host/b/Cargo.toml", "[package]\nname = \"toolhold-b\"\n"),
            (
                "host/c/Cargo.toml",
                "[package]\nname = \"toolhold-c\"\nmetadata.reason = \"r\"\n[dependencies]\ntoolhold-b.workspace = true\n",
            ),
        ],
    },
    Sample {
        rule: "modules_of_a_crate_form_no_circle",
        bad: &[
            ("host/core/host/src/lib.rs", "mod a;\nmod b;\nmod c;\npub use c::Thing;\n"),
            ("host/core/host/src/a.rs", "use crate::b::f;\n"),
            ("host/core/host/src/b/mod.rs", "mod deep;\n"),
            ("host/core/host/src/b/deep.rs", "\nuse std::fmt;\nuse crate::Thing;\n"),
            ("host/core/host/src/c.rs", "// crate::b\nstruct Thing(crate::{a::X});\n"),
            ("host/mcp/server/src/lib.rs", "mod a;\nmod b;\n"),
            ("host/mcp/server/src/a/mod.rs", "mod c;\nuse super::b::f;\n"),
            ("host/mcp/server/src/a/c.rs", "use super::d::f;\n"),
            ("host/mcp/server/src/b.rs", "use super::a::f;\n"),
            // Nested modules: by way of a name that the parent imports, of a module below, and of a
            // path that ends in another name.
            ("host/state/store/src/lib.rs", "mod a;\n"),
            (
                "host/state/store/src/a/mod.rs",
                "mod b;\nmod c;\nmod d;\npub use c::{Thing, deep};\n",
            ),
            ("host/state/store/src/a/b.rs", "use super::Thing;\n"),
            ("host/state/store/src/a/c/mod.rs", "mod deep;\nuse self::deep::Thing;\n"),
            ("host/state/store/src/a/c/deep.rs", "use super::super::d::f as g;\n"),
            ("host/state/store/src/a/d.rs", "impl crate::a::b::Other for u8 {}\n"),
            ("plugins/file/src/lib.rs", "mod a;\nmod b;\n"),
            ("plugins/file/src/a.rs", "use crate::b;\n"),
            ("plugins/file/src/b.rs", "use crate::a::{self, f};\n"),
            ("xtask/src/main.rs", "mod a;\nmod b;\n"),
            ("xtask/src/a.rs", "use crate::b::f;\n"),
            ("xtask/src/b.rs", "use crate::a::f;\n"),
        ],
        lines: &[
            "host/core/host/src/a.rs:1",
            "host/core/host/src/b/deep.rs:3",
            "host/core/host/src/c.rs:2",
            "host/mcp/server/src/a/mod.rs:2",
            "host/mcp/server/src/b.rs:1",
            "host/state/store/src/a/b.rs:1",
            "host/state/store/src/a/c/deep.rs:1",
            "host/state/store/src/a/d.rs:1",
            "plugins/file/src/a.rs:1",
            "plugins/file/src/b.rs:1",
            "xtask/src/a.rs:1",
            "xtask/src/b.rs:1",
        ],
        good: &[
            ("host/core/host/src/lib.rs", "mod a;\nmod b;\npub use b::Thing;\n"),
            ("host/core/host/src/a.rs", "use crate::Thing;\n"),
            (
                "host/core/host/src/b.rs",
                "mod c;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n",
            ),
            ("host/core/host/src/b/c.rs", "use crate::b::Thing;\n"),
            // A parent uses its children, which use it.
            ("plugins/file/src/lib.rs", "mod a;\nmod b;\n"),
            ("plugins/file/src/a/mod.rs", "mod c;\nmod d;\nuse c::f;\nconst MAX: u8 = 1;\n"),
            ("plugins/file/src/a/c.rs", "use super::{MAX, d::g};\nuse crate::b;\n"),
            ("plugins/file/src/a/d.rs", "use super::MAX;\n"),
            ("plugins/file/src/b.rs", "\n"),
        ],
    },
    Sample {
        rule: "modules_have_one_style",
        bad: &[("host/core/host/src/a.rs", "mod b;\n"), ("host/core/host/src/a/b.rs", "\n")],
        lines: &["host/core/host/src/a.rs:1"],
        good: &[
            ("host/core/host/src/lib.rs", "mod a;\n"),
            ("host/core/host/src/a/mod.rs", "mod b;\n"),
            ("host/core/host/src/a/b.rs", "\n"),
            ("host/policy/gates/tests/c.rs", "mod d;\n"),
            ("host/policy/gates/tests/c/d.rs", "\n"),
        ],
    },
    Sample {
        rule: "function_names_say_what_functions_do",
        bad: &[(
            "host/core/host/src/a.rs",
            "impl A {\n    pub(crate) async fn told(&self) {}\n    fn of<T>() {}\n}\n",
        )],
        lines: &["host/core/host/src/a.rs:2", "host/core/host/src/a.rs:3"],
        good: &[("host/core/host/src/a.rs", "// fn of()\nfn of_call() {}\nfn find(of: u8) {}\n")],
    },
    Sample {
        rule: "public_types_have_different_names",
        bad: &[
            ("host/core/host/src/a.rs", "pub struct Thing;\n"),
            ("host/mcp/server/src/b.rs", "\npub enum Thing<T> {}\n"),
        ],
        lines: &["host/core/host/src/a.rs:1", "host/mcp/server/src/b.rs:2"],
        good: &[
            (
                "host/core/host/src/a.rs",
                "pub struct Thing;\npub struct Report;\npub(crate) struct Other;\n",
            ),
            ("host/contract/src/a.rs", "pub struct Report;\n"),
            (
                "host/mcp/server/src/b.rs",
                "pub struct Things;\n    pub struct Thing;\npub struct Other;\n",
            ),
            ("host/mcp/server/tests/c.rs", "pub struct Thing;\n"),
        ],
    },
    Sample {
        rule: "only_the_runtime_names_the_engine",
        bad: &[
            ("tests/Cargo.toml", "[dependencies]\nwasmtime-wasi.workspace = true\n"),
            (
                "host/core/host/src/a.rs",
                "// wasmtime\nuse wasmtime::Store;\nfn f(e: wasmtime_wasi::Error) {}\n",
            ),
        ],
        lines: &["tests/Cargo.toml:2", "host/core/host/src/a.rs:2", "host/core/host/src/a.rs:3"],
        good: &[
            ("Cargo.toml", "[workspace.dependencies]\nwasmtime = \"48\"\n"),
            ("host/runtime/engine/Cargo.toml", "[dependencies]\nwasmtime.workspace = true\n"),
            ("host/runtime/engine/src/a.rs", "use wasmtime::Store;\n"),
            (
                "host/core/host/src/a.rs",
                "//! Not wasmtime.\nconst NAME: &str = \"wasmtime::Store\";\n",
            ),
        ],
    },
    Sample {
        rule: "only_requests_depends_on_the_client",
        bad: &[("host/mcp/server/Cargo.toml", "[dependencies]\nreqwest.workspace = true\n")],
        lines: &["host/mcp/server/Cargo.toml:2"],
        good: &[("host/sandbox/net/Cargo.toml", "[dependencies]\nreqwest.workspace = true\n")],
    },
    Sample {
        rule: "contract_and_policy_do_no_io",
        bad: &[
            ("host/contract/Cargo.toml", "[dependencies]\ntokio.workspace = true\n"),
            (
                "host/policy/gates/src/a.rs",
                "use std::{fs, path::Path};\nfn f(p: &Path) -> bool {\n    p.exists()\n}\n",
            ),
        ],
        lines: &[
            "host/contract/Cargo.toml:2",
            "host/policy/gates/src/a.rs:1",
            "host/policy/gates/src/a.rs:3",
        ],
        good: &[
            (
                "host/policy/gates/Cargo.toml",
                "[dependencies]\nglobset.workspace = true\n[dev-dependencies]\ntempfile.workspace = true\n",
            ),
            (
                "host/policy/gates/src/a.rs",
                "use std::os::unix::ffi::OsStrExt;\nuse std::{io, path::Path};\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n",
            ),
            ("host/core/host/src/a.rs", "use std::fs;\n"),
        ],
    },
    Sample {
        rule: "one_place_creates_stores",
        bad: &[
            ("host/core/host/src/a.rs", "let s = Store::new(&engine, ());\n"),
            ("host/runtime/engine/src/a.rs", "let s = wasmtime::Store::new(&engine, ());\n"),
            ("host/runtime/engine/src/b.rs", "let s = Store::<()>::new(&engine, ());\n"),
        ],
        lines: &[
            "host/core/host/src/a.rs:1",
            "host/runtime/engine/src/a.rs:1",
            "host/runtime/engine/src/b.rs:1",
        ],
        good: &[
            (
                "host/runtime/engine/src/a.rs",
                "let s = Store::new(&e, ());\nlet s = Store::new(&e, ());\nlet k = KeyStore::new();\n",
            ),
            (
                "host/runtime/engine/src/b.rs",
                "#[cfg(test)]\nmod tests {\n    fn f() { Store::new(); }\n}\n",
            ),
        ],
    },
    Sample {
        rule: "one_place_connects_to_the_network",
        bad: &[
            ("host/sandbox/net/src/connect.rs", "TcpStream::connect(address);\n"),
            (
                "host/core/host/src/host.rs",
                "fn f() {}\nTcpStream::connect_timeout(address);\nstd::net::UdpSocket::bind(x);\n",
            ),
            (
                "host/cli/toolhold/src/call.rs",
                "tokio::net::lookup_host(name);\nreqwest::get(url);\n",
            ),
        ],
        lines: &[
            "host/core/host/src/host.rs:2",
            "host/core/host/src/host.rs:3",
            "host/cli/toolhold/src/call.rs:1",
            "host/cli/toolhold/src/call.rs:2",
        ],
        good: &[
            ("host/sandbox/net/src/requests/client.rs", "reqwest::Client::builder();\n"),
            ("tests/e2e/a.rs", "TcpStream::connect(address);\n"),
        ],
    },
    Sample {
        rule: "one_place_starts_processes",
        bad: &[
            ("host/sandbox/system/src/process/helper.rs", "Command::new(program);\n"),
            (
                "host/sandbox/system/src/search.rs",
                "fn f() {}\nstd::process::Command::new(program);\n",
            ),
        ],
        lines: &["host/sandbox/system/src/search.rs:2"],
        good: &[
            ("host/core/builtins/build.rs", "Command::new(program);\n"),
            ("host/sandbox/system/src/process/helper.rs", "Command::new(program);\n"),
            ("xtask/src/a.rs", "Command::new(program);\n"),
        ],
    },
    Sample {
        rule: "untrusted_text_is_read_in_listed_files",
        bad: &[(
            "host/core/host/src/a.rs",
            "\nfn f(text: &UntrustedText) -> &str { text.read_untrusted() }\n",
        )],
        lines: &["host/core/host/src/a.rs:2"],
        good: &[(
            "host/core/host/src/a.rs",
            "fn f(text: UntrustedText) -> Content { Content::untrusted(text) }\n",
        )],
    },
    Sample {
        rule: "granted_paths_are_opened_in_the_path_layer",
        bad: &[("host/runtime/engine/src/a.rs", "fn f() {}\nrustix::fs::openat2(dir, path);\n")],
        lines: &["host/runtime/engine/src/a.rs:2"],
        good: &[
            ("host/sandbox/system/src/files/kernel.rs", "openat2(dir, path);\n"),
            ("host/runtime/engine/src/a.rs", "// openat2(\n"),
        ],
    },
    Sample {
        rule: "ungranted_paths_are_opened_in_listed_files",
        bad: &[
            (
                "host/runtime/engine/src/a.rs",
                "std::fs::read(path);\nlet real = path.canonicalize();\n",
            ),
            ("host/sandbox/search/src/a.rs", "rustix::fs::open(path, flags, mode);\n"),
        ],
        lines: &[
            "host/runtime/engine/src/a.rs:1",
            "host/runtime/engine/src/a.rs:2",
            "host/sandbox/search/src/a.rs:1",
        ],
        good: &[
            ("host/state/data-dir/src/lib.rs", "File::open(path);\n"),
            ("host/cli/toolhold/src/a.rs", "File::open(path);\n"),
            (
                "host/runtime/engine/src/a.rs",
                "use std::fs::File;\nhandle.open(name);\n#[cfg(test)]\nmod tests {\n    use std::fs::read(x);\n}\n",
            ),
        ],
    },
    Sample {
        rule: "unsafe_code_is_in_listed_files",
        bad: &[
            ("host/core/host/src/a.rs", "// unsafe\nlet x = unsafe { y };\n"),
            ("plugins/file/src/lib.rs", "unsafe fn f() {}\n"),
        ],
        lines: &["host/core/host/src/a.rs:2", "plugins/file/src/lib.rs:1"],
        good: &[
            ("host/runtime/compiler/src/compiled.rs", "unsafe { map() }\n"),
            ("host/core/host/src/a.rs", "#![deny(unsafe_code)]\nconst A: &str = \"unsafe\";\n"),
            ("plugins/sdk/src/lib.rs", "#[unsafe(link_section = \"x\")]\nstatic A: u8 = 1;\n"),
        ],
    },
    Sample {
        rule: "xtask_has_no_dependencies",
        bad: &[("xtask/Cargo.toml", "[dependencies]\nclap.workspace = true\n")],
        lines: &["xtask/Cargo.toml:2"],
        good: &[
            ("xtask/Cargo.toml", "[dependencies]\n"),
            ("host/cli/toolhold/Cargo.toml", "[dependencies]\nclap.workspace = true\n"),
        ],
    },
    Sample {
        rule: "every_lint_exception_has_a_reason",
        bad: &[(
            "host/core/host/src/a.rs",
            "#![allow(missing_docs)]\n#[expect(\n    dead_code,\n)]\nfn f() {}\n#[cfg_attr(test, allow(unused))]\nfn g() {}\n",
        )],
        lines: &[
            "host/core/host/src/a.rs:1",
            "host/core/host/src/a.rs:2",
            "host/core/host/src/a.rs:6",
        ],
        good: &[(
            "host/core/host/src/a.rs",
            "#[allow(\n    missing_docs,\n    reason = \"generated\"\n)]\nfn f() { x.expect(\"y\"); z.allow(w); }\n",
        )],
    },
    Sample {
        rule: "no_code_is_unfinished",
        bad: &[
            ("host/core/host/src/a.rs", "fn f() { todo!() }\n// FIXME: later\n"),
            ("wit/a/a.wit", "// TODO\n"),
            ("docs/a.md", "More here: TODO.\n"),
        ],
        lines: &[
            "host/core/host/src/a.rs:1",
            "host/core/host/src/a.rs:2",
            "wit/a/a.wit:1",
            "docs/a.md:1",
        ],
        good: &[
            (
                "host/core/host/src/a.rs",
                "// The method, and XXXL.\nconst A: &str = \"TODO\";\nfn f() { mytodo!() }\n",
            ),
            ("a.json", "{\"TODO\": 1}\n"),
            ("tests/corpus/listing/a.toml", "command = \"grep TODO\"\n"),
        ],
    },
    Sample {
        rule: "no_test_is_disabled",
        bad: &[(
            "tests/tests/a.rs",
            "#[test]\n#[ignore]\nfn f() {}\n#[should_panic(expected = \"x\")]\nfn g() {}\n/// ```ignore\nfn h() {}\n",
        )],
        lines: &["tests/tests/a.rs:2", "tests/tests/a.rs:4", "tests/tests/a.rs:6"],
        good: &[(
            "tests/tests/a.rs",
            "// #[ignore]\n#[test]\nfn f() {}\n/// ```no_run\nfn g() {}\n",
        )],
    },
    Sample {
        rule: "tests_do_not_sleep",
        bad: &[
            ("tests/tests/a.rs", "fn f() { std::thread::sleep(x); }\n"),
            (
                "host/core/host/src/a.rs",
                "#[cfg(test)]\nmod tests {\n    use tokio::time::{sleep, timeout};\n}\n",
            ),
        ],
        lines: &["tests/tests/a.rs:1", "host/core/host/src/a.rs:3"],
        good: &[
            ("host/core/host/src/a.rs", "fn f() { std::thread::sleep(x); }\n"),
            ("tests/tests/a.rs", "let told = \"thread::sleep\";\n"),
            ("tests/src/bin/bench/a.rs", "fn f() { std::thread::sleep(x); }\n"),
        ],
    },
    Sample {
        rule: "every_crate_has_a_description",
        bad: &[
            ("host/core/host/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("host/core/host/src/lib.rs", "mod a;\n"),
            ("host/core/host/src/a.rs", "\n"),
        ],
        lines: &["host/core/host/Cargo.toml:1", "host/core/host/src/lib.rs:1"],
        good: &[
            ("host/core/host/Cargo.toml", "[package]\nname = \"a\"\ndescription = \"b\"\n"),
            ("host/core/host/src/lib.rs", "//! A crate.\n"),
        ],
    },
    Sample {
        rule: "every_crate_uses_the_lints_and_versions_of_the_workspace",
        bad: &[(
            "host/core/host/Cargo.toml",
            "[package]\nname = \"a\"\n[dependencies]\nb = \"1\"\n",
        )],
        lines: &["host/core/host/Cargo.toml:1", "host/core/host/Cargo.toml:4"],
        good: &[
            (
                "host/core/host/Cargo.toml",
                "[package]\nname = \"a\"\n[lints]\nworkspace = true\n[dependencies]\nb = { workspace = true }\n",
            ),
            (
                "plugins/examples/rust/Cargo.toml",
                "[package]\nname = \"a\"\n[dependencies]\nb = \"1\"\n",
            ),
        ],
    },
    Sample {
        rule: "every_dependency_is_used",
        bad: &[
            (
                "host/core/host/Cargo.toml",
                "[package]\nname = \"a\"\n[dependencies]\ncap-std.workspace = true\nsha2.workspace = true\n",
            ),
            ("host/core/host/src/lib.rs", "// cap_std::fs\nuse sha2::Digest;\n"),
            ("host/mcp/server/src/lib.rs", "use cap_std::fs;\n"),
        ],
        lines: &["host/core/host/Cargo.toml:4"],
        good: &[
            (
                "host/core/host/Cargo.toml",
                "[package]\nname = \"a\"\n[dependencies]\ncap-std.workspace = true\n[dev-dependencies]\nwat = \"1\"\n",
            ),
            ("host/core/host/src/lib.rs", "fn f(a: cap_std::fs::Dir) {}\n"),
            ("host/core/host/tests/a.rs", "use wat::parse_str;\n"),
        ],
    },
    Sample {
        rule: "habits_that_make_code_hard_to_read_are_rare",
        bad: &[
            (
                "host/core/host/src/closures.rs",
                "let f = |x| x;\nlet mut g =\n    move || x;\nlet h: &dyn Fn(u8) -> u8 = &|x| x;\n",
            ),
            (
                "host/core/host/src/bindings.rs",
                "let (a, mut b) = (x.y(), 2);\nlet (c, (d, e)): (C, D) = (\n    x,\n    y,\n);\n",
            ),
            (
                "host/core/host/src/again.rs",
                "let x = f();\nlet x = x.g();\nlet mut y = match x {\n    _ => { a; b }\n};\n// Why.\nlet y: u8 = y?;\n",
            ),
            ("host/core/host/src/filters.rs", "a.filter(|_| b)\n"),
            (
                "host/core/host/src/errors.rs",
                "fn f() -> Result<(A, Box<dyn Fn(A) -> B>), String>;\ntype R = Result<\n    A,\n    String,\n>;\n",
            ),
            (
                "host/core/host/src/pronouns.rs",
                "//! It's a part.\n\n/// What a call costs.\n/// What else.\nfn f() {}\n",
            ),
        ],
        lines: &[
            "host/core/host/src/closures.rs:1",
            "host/core/host/src/closures.rs:2",
            "host/core/host/src/closures.rs:4",
            "host/core/host/src/bindings.rs:1",
            "host/core/host/src/bindings.rs:2",
            "host/core/host/src/again.rs:1",
            "host/core/host/src/again.rs:3",
            "host/core/host/src/filters.rs:1",
            "host/core/host/src/errors.rs:1",
            "host/core/host/src/errors.rs:2",
            "host/core/host/src/pronouns.rs:1",
            "host/core/host/src/pronouns.rs:3",
        ],
        good: &[
            (
                "host/core/host/src/closures.rs",
                "fn f(x: u8) {}\nlet y = a.map(|x| x);\nlet y = a || b;\nlet x: u8;\nlet y = \"= |x| x\";\n",
            ),
            (
                "host/core/host/src/bindings.rs",
                "let a = x;\nlet b = y;\nlet (a, b) = f(x, y);\nlet (a, b) = (x + y).split();\nif let (Some(a), Some(b)) = (x, y) {}\n",
            ),
            (
                "host/core/host/src/again.rs",
                "let x = f().g();\nlet y = x.g();\nh();\nlet y = y.g();\n",
            ),
            (
                "host/core/host/src/filters.rs",
                "if b { a }\na.filter(|x| b)\na.filter(|(_, x)| b)\n",
            ),
            (
                "host/core/host/src/errors.rs",
                "fn f() -> Result<String, Error>;\nfn g() -> io::Result<(A, String)>;\n",
            ),
            (
                "host/core/host/src/pronouns.rs",
                "/// The cost.\n/// What it is.\nfn f() {}\n/// `None` at the end.\n// It is so.\n#[cfg(test)]\nmod tests {\n    /// What it is.\n    fn f() {}\n}\n",
            ),
        ],
    },
    Sample {
        rule: "text_is_clean",
        bad: &[("a.md", "one \n\ttwo\nthree"), ("b.rs", "one\n\n")],
        lines: &["a.md:1", "a.md:2", "a.md:3", "b.rs:2"],
        good: &[("a.md", "one\n```\n1\ttwo\n```\n"), ("b.json", "{}"), ("c.toml", "")],
    },
    Sample {
        rule: "prose_has_at_most_100_columns",
        bad: &[
            (
                "a.md",
                concat!(
                    "one two three four five six seven eight nine ten eleven twelve ",
                    "thirteen fourteen fifteen sixteen seventeen\n"
                ),
            ),
            (
                "b.rs",
                concat!(
                    "fn f() {}\n    /// one two three four five six seven eight nine ten eleven ",
                    "twelve thirteen fourteen fifteen sixteen seventeen\n"
                ),
            ),
        ],
        lines: &["a.md:1", "b.rs:2"],
        good: &[
            (
                "a.md",
                concat!(
                    "one\n```\none two three four five six seven eight nine ten eleven twelve ",
                    "thirteen fourteen fifteen sixteen seventeen\n```\n"
                ),
            ),
            (
                "b.rs",
                concat!(
                    "/// | one two three four five six seven eight nine ten eleven twelve ",
                    "thirteen fourteen fifteen sixteen seventeen |\n"
                ),
            ),
        ],
    },
    Sample {
        rule: "no_file_has_a_path_of_one_machine",
        bad: &[
            ("a.md", "fine\nrun /srv/checkout/toolhold/x\n"),
            ("b.rs", concat!("// /home", "/jane/src\n")),
        ],
        lines: &["a.md:2", "b.rs:1"],
        good: &[("a.md", "/home/u/src and /srv/checkout/toolhold-2\n")],
    },
    Sample {
        rule: "links_have_targets",
        bad: &[
            ("docs/a.md", "[x](b.md)\n[y](../README.md#no-such)\n[z](../../out.md)\n"),
            ("README.md", "# Toolhold\n"),
        ],
        lines: &["docs/a.md:1", "docs/a.md:2"],
        good: &[
            ("docs/a.md", "[x](../README.md#the-end) [y](https://example.com/) [z](#top)\n# Top\n"),
            ("README.md", "## The end\n"),
        ],
    },
    Sample {
        rule: "documents_name_existing_commands",
        bad: &[("README.md", "Run\n`cargo xtask demonstrate`.\n")],
        lines: &["README.md:2"],
        good: &[("README.md", "`cargo xtask demo`, `cargo xtask run -- call read`\n")],
    },
    Sample {
        rule: "every_document_is_in_the_index",
        bad: &[
            ("docs/README.md", "[a](a.md) and `docs/b.md`\n"),
            ("docs/a.md", "# A\n"),
            ("docs/b.md", "# B\n"),
            ("docs/c/d.md", "# D\n"),
        ],
        lines: &["docs/b.md:1", "docs/c/d.md:1"],
        good: &[
            ("docs/README.md", "[a](a.md)\n| [d](c/d.md) |\n"),
            ("docs/a.md", "# A\n"),
            ("docs/c/d.md", "# D\n"),
            ("host/README.md", "# Host\n"),
        ],
    },
    Sample {
        rule: "the_table_of_crates_is_complete",
        bad: &[
            (
                "docs/architecture.md",
                "# A\n\n## Crates\n\n| folder | |\n|---|---|\n| `host/gone` | a |\n| `xtask` | b |\n\n## Next\n| `host/new` | c |\n",
            ),
            ("host/new/Cargo.toml", "[package]\nname = \"toolhold-new\"\n"),
            ("xtask/Cargo.toml", "[package]\nname = \"xtask\"\n"),
        ],
        lines: &["docs/architecture.md:3", "docs/architecture.md:7"],
        good: &[
            ("docs/architecture.md", "## Crates\n| `plugins/a` | a |\n"),
            ("plugins/Cargo.toml", "[workspace]\n"),
            ("plugins/a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("plugins/examples/b/Cargo.toml", "[package]\nname = \"b\"\n"),
        ],
    },
    Sample {
        rule: "the_table_of_processes_is_complete",
        bad: &[(
            "docs/architecture.md",
            "## Processes\n| `toolhold` | you | `host/core/builtins/build.rs` | |\n| | | `host/sandbox/net/src/program.rs` | |\n\
             | | | `host/sandbox/system/src/confine/run.rs` | |\n| | | `host/cli/authoring/src/tools.rs` | |\n\
             | | | `host/cli/toolhold/src/connect/mod.rs` | |\n\
             | | | `host/core/host/src/host.rs` | |\n",
        )],
        lines: &["docs/architecture.md:1", "docs/architecture.md:7"],
        good: &[(
            "docs/architecture.md",
            "## Processes\n| `toolhold` | you | – | |\n| | | `host/core/builtins/build.rs` | |\n| | | `host/sandbox/net/src/program.rs` | |\n\
             | | | `host/sandbox/system/src/confine/run.rs` | |\n| | | `host/cli/authoring/src/tools.rs` | |\n\
             | | | `host/cli/toolhold/src/connect/mod.rs` | |\n\
             | | | `host/sandbox/system/src/process/helper.rs` | |\n",
        )],
    },
    Sample {
        rule: "the_table_of_unsafe_files_is_complete",
        bad: &[(
            "docs/architecture.md",
            "## Unsafe\n| `host/sandbox/system/src/confine/raw.rs` | |\n| `host/runtime/compiler/src/compiled.rs` | |\n\
             | `host/core/builtins/src/lib.rs` | |\n| `tests/guests/hostile-http/src/lib.rs` | |\n| `host/cli/toolhold/src/main.rs` | |\n",
        )],
        lines: &["docs/architecture.md:1", "docs/architecture.md:6"],
        good: &[(
            "docs/architecture.md",
            "## Unsafe\n| `host/sandbox/system/src/confine/raw.rs` | |\n| `host/runtime/compiler/src/compiled.rs` | |\n\
             | `host/core/builtins/src/lib.rs` | |\n| `tests/guests/hostile-http/src/lib.rs` | |\n| `tests/guests/hostile/src/words.rs` | |\n",
        )],
    },
    Sample {
        rule: "paths_in_documents_exist",
        bad: &[
            ("docs/architecture.md", "`host/a.rs` and\n`host/b.rs`\n"),
            ("docs/decisions/a.md", "`tests/gone`\n"),
            ("README.md", "`docs/gone*`\n"),
            ("host/a.rs", "\n"),
        ],
        lines: &["docs/architecture.md:2", "docs/decisions/a.md:1", "README.md:1"],
        good: &[
            ("docs/decisions/a.md", "`host/a`, `a/b.rs` and `host/a/b.rs`\n"),
            ("docs/c.md", "`host/a*`\n"),
            ("plugins/README.md", "`host/c`\n"),
            ("host/a/b.rs", "\n"),
        ],
    },
    Sample {
        rule: "every_item_of_the_contract_is_documented",
        bad: &[("wit/a/i.wit", "interface i {\n  f: func();\n}\n")],
        lines: &["wit/a/i.wit:1", "wit/a/i.wit:2"],
        good: &[
            ("wit/a/i.wit", "/// I.\ninterface i {\n  /// F.\n  f: func();\n}\n"),
            ("plugins/sdk/wit/w.wit", "interface i {\n}\n"),
        ],
    },
    Sample {
        rule: "each_interface_has_its_own_file",
        bad: &[("wit/a/i.wit", "interface i {\n}\ninterface j {\n}\n")],
        lines: &["wit/a/i.wit:3"],
        good: &[("wit/a/i.wit", "interface i {\n}\n"), ("wit/a/worlds.wit", "world w {\n}\n")],
    },
    Sample {
        rule: "copies_of_the_contract_are_identical",
        bad: &[
            ("wit/a/i.wit", "package toolhold:a@1.0.0;\ninterface i {}\n"),
            ("plugins/x/wit/deps/a/i.wit", "package toolhold:a@1.0.0;\ninterface i { }\n"),
            ("plugins/x/wit/deps/a/j.wit", "package toolhold:a@1.0.0;\n"),
        ],
        lines: &["plugins/x/wit/deps/a/i.wit:1", "plugins/x/wit/deps/a/j.wit:1"],
        good: &[
            ("wit/a/i.wit", "package toolhold:a@1.0.0;\n"),
            ("plugins/x/wit/deps/a/i.wit", "package toolhold:a@1.0.0;\n"),
            ("plugins/x/wit/x.wit", "package example:x@1.0.0;\n"),
        ],
    },
];

#[test]
fn every_rule_has_failing_and_passing_sample() {
    for rule in RULES
        .iter()
        .chain(TASTE)
        .filter(|rule| !["files_stay_small", "the_architecture_page_is_short"].contains(&rule.name))
    {
        let sample = SAMPLES.iter().find(|sample| sample.rule == rule.name);
        let sample = sample
            .unwrap_or_else(|| panic!("the rule {} has no sample: add one to SAMPLES", rule.name));
        let mut expected = sample.lines.to_vec();
        expected.sort_unstable();
        assert_eq!(violations(rule, sample.bad), expected, "{}", rule.name);
        assert_eq!(violations(rule, sample.good), [""; 0], "{}", rule.name);
    }
}

#[test]
fn long_file_breaks_the_rule() {
    let rule = RULES.iter().find(|rule| rule.name == "files_stay_small").unwrap();
    let long = "\n".repeat(1_001);
    assert_eq!(
        violations(rule, &[("host/core/host/src/a.rs", &long)]),
        ["host/core/host/src/a.rs:1000"]
    );
    assert_eq!(violations(rule, &[("host/core/host/src/a.rs", &long[1..])]), [""; 0]);
}

#[test]
fn long_architecture_page_breaks_the_rule() {
    let rule = TASTE.iter().find(|rule| rule.name == "the_architecture_page_is_short").unwrap();
    let long = "\n".repeat(201);
    assert_eq!(violations(rule, &[("docs/architecture.md", &long)]), ["docs/architecture.md:200"]);
    assert_eq!(
        violations(rule, &[("docs/architecture.md", &long[1..]), ("docs/inside.md", &long)]),
        [""; 0]
    );
}

/// The places that break the rule, sorted, as `path:line`.
fn violations(rule: &Rule, files: &[(&str, &str)]) -> Vec<String> {
    let files = files
        .iter()
        .map(|(path, text)| File::new((*path).to_owned(), (*text).to_owned()))
        .collect();
    let tree = Tree { files, checkout: Some("/srv/checkout/toolhold".to_owned()) };
    let mut places: Vec<String> = (rule.check)(&tree)
        .into_iter()
        .map(|violation| format!("{}:{}", violation.path, violation.line))
        .collect();
    places.sort_unstable();
    places
}

#[test]
fn subcommands_and_keys_are_counted_in_the_generated_pages() {
    let file = |path: &str, text: &str| File::new(path.to_owned(), text.to_owned());
    let commands =
        "## `toolhold`\n## `toolhold call`\n## `toolhold plugin`\n## `toolhold plugin add`\n";
    let keys =
        "* **`one`**: above\n## Every key\n* **`a`**: x\n* **`NAME`**: x\n* text\n* **`b_c`**: x\n";
    let files = vec![file("docs/cli.md", commands), file("docs/configuration.md", keys)];
    let tree = Tree { files, checkout: None };
    assert_eq!((text::subcommands(&tree), text::keys(&tree)), (2, 2));
}
