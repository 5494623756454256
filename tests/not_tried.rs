//! What a test does not try on a machine that lacks something. `cargo xtask test` sums it up, and
//! fails in CI unless it is known there.

/// Says that this test leaves something out, because the machine lacks `needed`: the name of a
/// program, or of what stands in its place.
pub(crate) fn not_tried(needed: &str) {
    use std::io::Write;

    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // In one piece, and not with a macro, whose lines are kept from who runs the tests.
    let _ =
        std::io::stdout().write_all(format!("\nNOT TRIED: {test}: needs {needed}\n").as_bytes());
}
