//! Records what a test leaves out on a machine that lacks something. `cargo xtask test` lists it,
//! and fails in CI unless it is known there.

/// Reports that this test leaves something out, because the machine lacks `needed`: the name of a
/// program or of a feature.
pub(crate) fn not_tried(needed: &str) {
    use std::io::Write;

    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // In one write, and not with a macro, whose output the test runner captures.
    let _ =
        std::io::stdout().write_all(format!("\nNOT TRIED: {test}: needs {needed}\n").as_bytes());
}
