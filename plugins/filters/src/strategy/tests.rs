//! Tests of the strategies without tests of their own, and of invalid parameters.

use toolhold_sdk::filter::Confidence;

use super::testing::{check, steps};

/// `many` lines of this form, numbered from 1.
fn lines(form: &str, many: usize) -> String {
    (1..=many).map(|number| format!("{form} {number} of what a program says\n")).collect()
}

#[test]
fn noise_is_left_out_and_a_failure_in_it_stays() {
    let noise = "{ type = 'strip_noise', patterns = ['^noise'] }";
    let text =
        format!("begin\n{}noise: error: it broke\n{}end\n", lines("noise", 5), lines("noise", 4));
    let expect = "begin\n... (5 lines left out) ...\nnoise: error: it broke\n... (4 lines left out) ...\nend\n";
    check(noise, false, &text, expect, Confidence::Full);
    check(noise, false, "nothing of it\nis here\n", "", Confidence::Full);
}

#[test]
fn matching_and_notable_lines_stay() {
    let keep = "{ type = 'keep_matching', patterns = ['^result'] }";
    let text =
        format!("{}x.c:1:2: warning: unused\n{}result: 3\n", lines("step", 6), lines("step", 4));
    let expect = "... (6 lines left out) ...\nx.c:1:2: warning: unused\n... (4 lines left out) ...\nresult: 3\n";
    check(keep, false, &text, expect, Confidence::Full);
    check(keep, false, &lines("step", 50), "", Confidence::Full);
    // If a command failed and its output has an unknown form, both ends stay.
    let ends = format!("{}... (140 lines left out) ...\n", lines("step", 20));
    let text = lines("step", 200);
    let tail: String = text.lines().skip(160).map(|line| format!("{line}\n")).collect();
    check(keep, true, &text, &format!("{ends}{tail}"), Confidence::Fallback);
}

#[test]
fn annotations_are_left_out_and_the_summary_comes_first() {
    let strip = "{ type = 'strip_annotated', patterns = ['^Compiling'], summary = '^Finished' }";
    let text = format!(
        "{}note: something that nobody asked for\nit works\nFinished in 2 s\n",
        lines("Compiling", 6)
    );
    check(
        strip,
        false,
        &text,
        "Finished in 2 s\n... (7 lines left out) ...\nit works\n",
        Confidence::Full,
    );
    // If the rest is still long, its middle is left out, but an error in it stays.
    let strip = "{ type = 'strip_annotated', patterns = ['^Compiling'], long_output_threshold = 6, keep_head = 2, keep_tail = 1 }";
    let text = format!(
        "{}{}error: in the middle\n{}",
        lines("Compiling", 3),
        lines("line", 6),
        lines("more", 6)
    );
    let head: String = lines("line", 2);
    let expect = format!(
        "... (3 lines left out) ...\n{head}... (4 lines left out) ...\nerror: in the middle\n... (5 lines left out) ...\nmore 6 of what a program says\n"
    );
    check(strip, false, &text, &expect, Confidence::Partial);
}

#[test]
fn invalid_parameters_are_refused_with_a_remedy() {
    for (toml, says) in [
        ("{ type = 'strip_noise', patterns = [] }", "`patterns` is empty"),
        ("{ type = 'keep_matching', patterns = ['('] }", "doesn't compile"),
        ("{ type = 'strip_annotated', keep_head = 30, keep_tail = 5 }", "lower them"),
        ("{ type = 'truncate', max_lines = 3, head = 2, tail = 2 }", "lower them"),
        ("{ type = 'dedup', normalize = [{ pattern = 'a', replacement = '$1' }] }", "`$`"),
        ("{ type = 'unheard_of' }", "unknown variant"),
    ] {
        let wrong = steps(toml).err().unwrap_or_else(|| panic!("{toml} is accepted"));
        assert!(wrong.contains(says), "{toml}: {wrong}");
    }
}
