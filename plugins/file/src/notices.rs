//! Adds notices to an answer: that a search was stopped early, or that something was left out.

use toolhold_sdk::add_notice;
use toolhold_sdk::search::{Ending, Skipped};

/// Adds a notice if a search was stopped early. The tool itself explains the limit.
pub(crate) fn add_ending(text: &mut String, ending: Ending) {
    match ending {
        Ending::Complete | Ending::Limit => {}
        Ending::Deadline => add_notice(
            text,
            "The time ran out before everything was searched; narrow the path or the pattern.",
        ),
        Ending::Cancelled => {
            add_notice(text, "The call was cancelled before everything was searched.");
        }
        Ending::Other => add_notice(text, "The search ended before everything was searched."),
    }
}

/// Adds a notice if a search left something out.
pub(crate) fn add_skipped(text: &mut String, skipped: Skipped) {
    let parts: Vec<String> = [
        (skipped.denied, "denied by the operator's rules"),
        (skipped.unreadable, "unreadable"),
        (skipped.binary, "binary"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, why)| format!("{count} {why}"))
    .collect();
    if !parts.is_empty() {
        add_notice(text, &format!("Skipped: {}.", parts.join(", ")));
    }
}

/// A number of bytes for people: `812 B`, `1.5 KiB`.
pub(crate) fn size(bytes: u64) -> String {
    let mut unit = "B";
    let mut tenths = bytes.saturating_mul(10);
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = larger;
    }
    if unit == "B" {
        format!("{bytes} B")
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// `1 line`, `2 lines`.
pub(crate) fn plural(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// `1 entry`, `2 entries`.
pub(crate) fn entries(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_readable_units() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (5 << 30, "5.0 GiB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
        assert!(size(u64::MAX).ends_with("TiB"));
    }

    #[test]
    fn notice_names_only_skipped_kinds() {
        let mut text = String::from("a");
        add_skipped(&mut text, Skipped { denied: 2, unreadable: 0, binary: 1 });
        assert_eq!(text, "a\n[Skipped: 2 denied by the operator's rules, 1 binary.]\n");
        add_skipped(&mut text, Skipped::default());
        assert_eq!(text.lines().count(), 2);
    }
}
