//! Tests of `group_by_rule`: findings with the same message are grouped, and none is lost.

use toolhold_sdk::filter::Confidence;

use super::super::testing::check;

const GROUP: &str = "{ type = 'group_by_rule' }";

#[test]
fn rustc_warnings_keep_message_and_all_places() {
    let block = |name: &str, place: &str, note: &str| {
        format!(
            "warning: unused variable: `{name}`\n --> {place}\n  |\n3 |     let {name} = 1;\n  |         ^ help: prefix it with an underscore\n{note}\n"
        )
    };
    let text = [
        block("a", "src/a.rs:3:9", "  |\n  = note: `#[warn(unused_variables)]` on by default\n"),
        block("a", "src/b.rs:3:9", ""),
        block("b", "src/b.rs:9:9", ""),
        block("a", "src/c.rs:1:9", ""),
        "warning: `x` (lib) generated 4 warnings\n".to_owned(),
    ]
    .concat();
    let expect = "\
warning: unused variable: `a` [unused_variables] (3 places)
  --> src/a.rs:3:9, src/b.rs:3:9, src/c.rs:1:9
  help: prefix it with an underscore
warning: unused variable: `b` [unused_variables] --> src/b.rs:9:9
  help: prefix it with an underscore
warning: `x` (lib) generated 4 warnings
";
    check(GROUP, false, &text, expect, Confidence::Full);
}

#[test]
fn compiler_error_stays_whole() {
    let error = "error[E0308]: mismatched types\n --> src/a.rs:3:9\n  |\n3 |     f(1);\n  |       ^ expected `&str`\n\n";
    let warning = "warning: unused\n --> src/a.rs:1:1\n  |\n1 | use a;\n  |     ^\n\n";
    let text = format!("{warning}{error}{warning}{warning}{error}{warning}");
    let expect = format!("warning: unused --> src/a.rs:1:1\n{error}{error}");
    check(GROUP, true, &text, &expect, Confidence::Full);
}

#[test]
fn one_line_findings_with_the_same_message_are_grouped() {
    let text = "\
src/a.ts(3,4): error TS2304: Cannot find name 'x'.
src/a.ts(9,4): error TS2304: Cannot find name 'x'.
src/a.ts(10,4): error TS2304: Cannot find name 'y'.
src/b.ts(1,4): error TS2304: Cannot find name 'x'.
Found 4 errors.
";
    let expect = "\
error TS2304: Cannot find name 'x'. (3 places)
  --> src/a.ts(3,4), src/a.ts(9,4), src/b.ts(1,4)
src/a.ts(10,4): error TS2304: Cannot find name 'y'.
Found 4 errors.
";
    check(GROUP, true, text, expect, Confidence::Full);
}

#[test]
fn rows_are_grouped_within_their_file() {
    let text = "\
/home/u/a.js
  3:5   error    'x' is not defined  no-undef
  8:15  error    'x' is not defined  no-undef
  9:1   warning  Unexpected console  no-console

/home/u/b.js
  3:5   error    'x' is not defined  no-undef
";
    let expect = "\
/home/u/a.js
  3:5, 8:15  error    'x' is not defined  no-undef
  9:1   warning  Unexpected console  no-console

/home/u/b.js
  3:5   error    'x' is not defined  no-undef
";
    check(GROUP, true, text, expect, Confidence::Full);
}

#[test]
fn row_that_many_files_have_is_written_once() {
    let file = |name: &str, pad: &str| {
        format!(
            "/home/u/{name}.js\n  3:5   error  Missing semicolon{pad}  semi\n  4:1   warning  Unexpected console{pad}  no-console\n  8:15  error  Missing semicolon{pad}  semi\n\n"
        )
    };
    let text =
        [file("a", ""), file("b", "    "), file("c", ""), "✖ 9 problems\n".to_owned()].concat();
    let expect = "\
/home/u/a.js
  3:5, 8:15  error  Missing semicolon  semi  #1
  4:1  warning  Unexpected console  no-console  #2

/home/u/b.js
  3:5, 8:15  error  #1
  4:1  warning  #2

/home/u/c.js
  3:5, 8:15  error  #1
  4:1  warning  #2

✖ 9 problems
";
    check(GROUP, true, &text, expect, Confidence::Full);
    // Later steps see that these are findings.
    assert!(crate::guard::level("  3:5, 8:15  error  #1", true) == crate::guard::Level::Error);
    assert!(crate::guard::level("  4:1  warning  #2", true) == crate::guard::Level::Warning);
    // Nothing is numbered if a message looks so.
    let text = text.replace("Missing semicolon", "Missing error #2");
    let numbered = super::super::run(&super::super::testing::steps(GROUP).unwrap(), &text, true);
    assert!(!numbered.unwrap().0.contains("  #1"));
}
