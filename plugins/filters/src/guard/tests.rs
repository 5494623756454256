//! Tests of the lines that no rule may leave out: failures, warnings and what belongs to them.

use super::*;

#[track_caller]
fn check(failed: bool, level_wanted: Level, lines: &[&str]) {
    for line in lines {
        assert_eq!(level(line, failed), level_wanted, "{line:?}");
    }
}

#[test]
fn levels_of_loggers_are_recognised() {
    for line in [
        "E0131 10:11:12.131415       1 reflector.go:138] no route",
        "ERRO[0003] it broke",
        "[E] it broke",
        "err: it broke",
        "SQLSTATE[42S02]: no table",
        "<1>ALERT: disk",
    ] {
        assert_eq!(level(line, false), Level::Error, "{line}");
    }
    for line in [
        "E2E tests of the cart",
        "I0131 10:11:12.131415       1 reflector.go:138] synced",
        "deferr: x",
    ] {
        assert_eq!(level(line, false), Level::Nothing, "{line}");
    }
}

#[test]
fn failures_are_recognised() {
    check(
        false,
        Level::Error,
        &[
            // Compilers.
            "error[E0308]: mismatched types",
            "error: could not compile `shop` (lib) due to 1 previous error",
            "src/a.c:3:4: error: expected ';' before '}' token",
            "src/a.c:9:10: fatal error: missing.h: No such file or directory",
            "main.c:(.text+0x1d): undefined reference to `sum'",
            "collect2: error: ld returned 1 exit status",
            "src/a.ts(3,4): error TS2304: Cannot find name 'x'.",
            "Program.cs(9,13): error CS0103: The name 'x' does not exist in the current context",
            "./main.go:12:5: undefined: total",
            "# gosvc/cart FAIL",
            "make: *** [Makefile:9: build/b.o] Error 1",
            "ninja: build stopped: subcommand failed.",
            "[ERROR] COMPILATION ERROR :",
            "[INFO] BUILD FAILURE",
            "FAILURE: Build failed with an exception.",
            "  3:5   error  'x' is not defined  no-undef",
            // Tests.
            "test cart::adds ... FAILED",
            "thread 'main' panicked at src/main.rs:2:5:",
            "--- FAIL: TestTotal (0.00s)",
            "    --- FAIL: TestTotal/empty (0.00s)",
            "FAIL\tgosvc/cart\t0.003s",
            "E       assert 3 == 4",
            "FAILED tests/test_a.py::test_x - assert 3 == 4",
            "  ✕ adds two numbers (3 ms)",
            "✗ renders",
            "× renders",
            "not ok 3 - adds",
            "Tests:       1 failed, 12 passed, 13 total",
            "12 examples, 2 failures",
            "Tests run: 5, Failures: 1, Errors: 0, Skipped: 0",
            // Programs.
            "Traceback (most recent call last):",
            "ValueError: invalid literal for int() with base 10: 'x'",
            "requests.exceptions.ConnectTimeout: HTTPConnectionPool(host='x')",
            "Exception in thread \"main\" java.lang.IllegalStateException: no",
            "Caused by: java.net.ConnectException: Connection refused",
            "panic: runtime error: index out of range [7] with length 3",
            "TypeError: Cannot read properties of undefined (reading 'x')",
            "Uncaught SyntaxError: Unexpected token",
            "fatal: not a git repository (or any of the parent directories): .git",
            " ! [rejected]        main -> main (fetch first)",
            "CONFLICT (content): Merge conflict in src/a.rs",
            "npm ERR! code ERESOLVE",
            "npm error code E404",
            " ERR_PNPM_OUTDATED_LOCKFILE  Cannot install with \"frozen-lockfile\"",
            "ERROR: No matching distribution found for flaskk",
            "E: Unable to locate package libfoo",
            "bash: foo: command not found",
            "ls: cannot access 'x': No such file or directory",
            "rm: cannot remove 'x': Permission denied",
            "Segmentation fault (core dumped)",
            "Killed",
            "Error response from daemon: pull access denied",
            "The command '/bin/sh -c x' returned a non-zero code: 1",
            "process exited with exit code 137",
            "systemd[1]: orders.service: Main process exited, code=exited, status=1/FAILURE",
            // Logs.
            "2026-01-02 10:11:12 ERROR [main] the queue is gone",
            "{\"level\":\"error\",\"msg\":\"the queue is gone\"}",
            "time=10:11:12 level=error msg=\"the queue is gone\"",
            "[error] 7#7: connect() failed (111: Connection refused)",
            "10.0.0.1 - - [02/Jan/2026] \"GET /x HTTP/1.1\" 503 0",
            "{\"msg\":\"request\",\"status\":503}",
            "request finished status=500 took=3",
            "CRITICAL disk is full",
        ],
    );
}

#[test]
fn names_zero_counts_and_passed_tests_are_not_failures() {
    let lines = [
        "test error_handling ... ok",
        "test parse::returns_an_error ... ok",
        "test panics - should panic ... ok",
        "tests/test_a.py::test_error PASSED                      [ 12%]",
        "  ✓ throws an error when it is empty (3 ms)",
        "ok 12 - handles error",
        "--- PASS: TestErrorPath (0.00s)",
        "=== RUN   TestFatal",
        "        PASS [   0.005s] shop error::tests::fails",
        "PASS src/errors.test.ts",
        "src/error.rs",
        "./src/errors/mod.rs",
        "-rw-r--r-- 1 u u 120 Jan  2 10:11 error.log",
        "   Compiling thiserror v1.0.50",
        "   Compiling error-chain v0.12.4",
        "Unpacking libgpg-error0:amd64 (1.46-1) ...",
        "0 errors",
        "no errors found",
        "Found 0 errors in 12 files",
        "12 passed, 0 failed",
        "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        "Tests run: 5, Failures: 0, Errors: 0, Skipped: 0",
        "# fail 0",
        "failed=0",
        "\"error\": null,",
        "{\"msg\":\"request\",\"status\":200}",
        "Status: 0/5",
        "exit code 0",
        "exited with code 0",
        "10.0.0.1 - - [02/Jan/2026] \"GET /x HTTP/1.1\" 200 0",
        "use crate::error::Kind;",
        "--no-fail-fast",
        "",
    ];
    check(false, Level::Nothing, &lines);
    check(true, Level::Nothing, &lines);
}

#[test]
fn failed_command_makes_more_lines_count() {
    let lines = [
        "  left: 1",
        " right: 2",
        "Expected: 3",
        "Received: 4",
        "  1) adds two numbers",
        "Unexpected token in JSON",
        "invalid value 'x' for '--y'",
    ];
    check(true, Level::Error, &lines);
    check(false, Level::Nothing, &lines);
}

#[test]
fn warnings_have_their_own_level() {
    check(
        false,
        Level::Warning,
        &[
            "warning: unused variable: `x`",
            "src/a.c:3:4: warning: unused variable 'x' [-Wunused-variable]",
            "npm warn deprecated glob@7.2.3: no longer supported",
            "[WARNING] found raw type: java.util.List",
            "WARN  the queue is long",
            "  /home/u/a.py:24: DeprecationWarning: old() is deprecated",
            "Program.cs(9,13): warning CS0168: The variable 'x' is declared but never used",
            "  9:1  warning  Unexpected console statement  no-console",
            "3 vulnerabilities (1 low, 2 high)",
        ],
    );
    check(
        false,
        Level::Nothing,
        &["0 warnings", "found 0 vulnerabilities", "src/warnings.rs", "fn warn_me() {}"],
    );
}

#[track_caller]
fn check_context(failed: bool, text: &str) {
    let lines: Vec<&str> = text.lines().map(|line| &line[2..]).collect();
    let levels = levels(&lines, failed);
    for ((line, level), marked) in lines.iter().zip(levels).zip(text.lines()) {
        let wanted = match &marked[..2] {
            "E " => level == Level::Error,
            "e " => level == Level::ErrorContext,
            "w " => level == Level::Warning || level == Level::WarningContext,
            _ => level == Level::Nothing,
        };
        assert!(wanted, "{line:?} is {level:?}");
    }
}

#[test]
fn context_of_an_error_is_found() {
    check_context(
        false,
        "\
  compiling
E error[E0308]: mismatched types
e  --> src/lib.rs:3:5
e   |
e 3 |     \"x\"
e   |     ^^^ expected `u32`, found `&str`
e   |
e help: try this
  \x20
  compiling more
",
    );
    check_context(
        false,
        "\
  starting
E Traceback (most recent call last):
e   File \"a.py\", line 3, in <module>
e     total([1])
E TotalMissing: it has none
  done
",
    );
    check_context(
        false,
        "\
e src/b.c: In function 'sum':
E src/b.c:3:12: error: 'tota' undeclared (first use in this function)
e     3 |     return tota;
e       |            ^~~~
  gcc -c src/c.c
",
    );
    check_context(
        false,
        "\
E web-1  | java.lang.IllegalStateException: no
e web-1  | \tat org.example.Web.main(Web.java:3)
  web-1  | ready
",
    );
    check_context(
        false,
        "\
w warning: unused variable: `x`
w  --> src/a.rs:3:9
    |
  3 |     let x = 1;
",
    );
}

#[test]
fn long_stack_keeps_both_ends() {
    let frames: String =
        (0..60).map(|number| format!("    at frame{number} (a.js:{number}:1)\n")).collect();
    let text = format!("TypeError: no\n{frames}done\n");
    let lines: Vec<&str> = text.lines().collect();
    let levels = levels(&lines, false);
    assert_eq!(levels.iter().filter(|level| **level == Level::ErrorContext).count(), 28);
    assert_eq!(
        (levels[60], levels[40], levels[61]),
        (Level::ErrorContext, Level::Nothing, Level::Nothing)
    );
}
