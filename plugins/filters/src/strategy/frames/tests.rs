//! Tests of `fold_frames` for the stack frames of each language.

use super::super::testing::{check, steps};
use super::*;

const FOLD: &str = "{ type = 'fold_frames' }";

#[track_caller]
fn folds(text: &str, expect: &str) {
    check(FOLD, true, text, expect, Confidence::Full);
}

#[test]
fn rust_frames_of_the_standard_library_are_folded() {
    folds(
        "\
stack backtrace:
   0: __rustc::rust_begin_unwind
             at /rustc/5980/library/std/src/panicking.rs:689:5
   1: core::panicking::panic_fmt
             at /rustc/5980/library/core/src/panicking.rs:80:14
   2: shop::total
             at ./src/total.rs:23:28
   3: serde_json::from_str
             at /home/u/.cargo/registry/src/index/serde_json-1.0.1/src/de.rs:9:5
   4: core::ops::function::FnOnce::call_once
             at /rustc/5980/library/core/src/ops/function.rs:250:5
note: Some details are omitted
",
        "\
stack backtrace:
... (4 lines left out) ...
   2: shop::total
             at ./src/total.rs:23:28
... (4 lines left out) ...
note: Some details are omitted
",
    );
}

#[test]
fn node_frames_of_modules_are_folded() {
    folds(
        "\
TypeError: total is not a function
    at Object.<anonymous> (/home/u/a.js:3:1)
    at Layer.handle (/home/u/node_modules/express/lib/router/layer.js:95:5)
    at next (/home/u/node_modules/express/lib/router/route.js:149:13)
    at /home/u/b.js:3:1
    at Module._compile (node:internal/modules/cjs/loader:1554:14)
    at node:internal/main/run_main_module:36:49
",
        "\
TypeError: total is not a function
    at Object.<anonymous> (/home/u/a.js:3:1)
... (2 lines left out) ...
    at /home/u/b.js:3:1
... (2 lines left out) ...
",
    );
}

#[test]
fn java_frame_that_raised_the_error_stays() {
    folds(
        "\
java.lang.IndexOutOfBoundsException: Index 3 out of bounds for length 1
\tat java.base/jdk.internal.util.Preconditions.outOfBounds(Preconditions.java:100)
\tat java.base/jdk.internal.util.Preconditions.checkIndex(Preconditions.java:302)
\tat java.base/java.util.ArrayList.get(ArrayList.java:427)
\tat org.example.Cart.at(Cart.java:9)
\tat org.junit.platform.Runner.run(Runner.java:3)
\tat org.junit.platform.Main.main(Main.java:3)
Caused by: java.io.IOException: no
\tat org.example.Cart.read(Cart.java:19)
\t... 12 more
",
        "\
java.lang.IndexOutOfBoundsException: Index 3 out of bounds for length 1
\tat java.base/jdk.internal.util.Preconditions.outOfBounds(Preconditions.java:100)
... (2 lines left out) ...
\tat org.example.Cart.at(Cart.java:9)
... (2 lines left out) ...
Caused by: java.io.IOException: no
\tat org.example.Cart.read(Cart.java:19)
\t... 12 more
",
    );
}

#[test]
fn python_frames_of_packages_are_folded_with_their_source() {
    folds(
        "\
Traceback (most recent call last):
  File \"/home/u/a.py\", line 3, in <module>
    load()
    ~~~~^^
  File \"/home/u/.venv/lib/python3.12/site-packages/requests/api.py\", line 73, in get
    return request(\"get\", url)
  File \"/home/u/.venv/lib/python3.12/site-packages/requests/api.py\", line 59, in request
    return session.request(method=method)
  File \"/home/u/.venv/lib/python3.12/site-packages/requests/adapters.py\", line 519, in send
    raise ConnectionError(e)
requests.exceptions.ConnectionError: refused
",
        "\
Traceback (most recent call last):
  File \"/home/u/a.py\", line 3, in <module>
    load()
    ~~~~^^
... (4 lines left out) ...
  File \"/home/u/.venv/lib/python3.12/site-packages/requests/adapters.py\", line 519, in send
    raise ConnectionError(e)
requests.exceptions.ConnectionError: refused
",
    );
}

#[test]
fn python_frame_that_crashed_stays() {
    folds(
        "\
Current thread 0x00007fc2b0c5eb80 (most recent call first):
  File \"/usr/lib/python3.11/ctypes/__init__.py\", line 519 in string_at
  File \"/usr/lib/python3.11/ctypes/__init__.py\", line 3 in f
  File \"/usr/lib/python3.11/ctypes/__init__.py\", line 4 in g
  File \"/home/u/test_a.py\", line 124 in test_crash
  File \"/home/u/lib/python3.11/site-packages/_pytest/python.py\", line 187 in call
  File \"<frozen runpy>\", line 198 in _run_module_as_main
",
        "\
Current thread 0x00007fc2b0c5eb80 (most recent call first):
  File \"/usr/lib/python3.11/ctypes/__init__.py\", line 519 in string_at
... (2 lines left out) ...
  File \"/home/u/test_a.py\", line 124 in test_crash
... (2 lines left out) ...
",
    );
}

#[test]
fn pytest_source_of_packages_is_folded() {
    let package = "\
url = 'x', a = 1, b = 2
timeout = None

    def get(url):
        \"\"\"A long text that says what the function does, if there is an error.\"\"\"
        raise ValueError(\"error: it never comes here\")
>       return request(url)

.venv/lib/python3.12/site-packages/requests/api.py:73:
";
    let rule = "_ _ _ _ _ _ _ _\n";
    let last =
        package.replace("return request(url)\n", "raise Refused(url)\nE       app.Refused: x\n");
    let last = last.replace("api.py:73:", "api.py:88: Refused");
    let own = "\
    def own(url):
        \"\"\"A long text that says what the function does.\"\"\"
>       raise Refused(url)
E       app.Refused: x

app/own.py:9: Refused
";
    let head = "____ test_get ____\n\n    def test_get():\n>       get('x')\n\ntest_a.py:3:\n";
    let chain = "\nThe above exception was the direct cause of the following exception:\n\n";
    folds(
        &format!("{head}{rule}{package}{rule}{package}{rule}{last}{chain}{head}{rule}{own}"),
        &format!(
            "{head}... (16 lines left out) ...\n{rule}... (5 lines left out) ...\n>       raise Refused(url)\nE       app.Refused: x\n\n.venv/lib/python3.12/site-packages/requests/api.py:88: Refused\n{chain}{head}{rule}{own}"
        ),
    );
    // A line that isn't source keeps the frame as it is.
    let printed = package.replace("timeout = None", "error: the disk is full");
    let text = format!("{head}{rule}{printed}{rule}{own}");
    assert!(super::super::run(&steps(FOLD).unwrap(), &text, true).is_none());
}

#[test]
fn short_frames_of_packages_are_folded_in_pytest() {
    folds(
        "\
____ test_get ____
test_a.py:3: in test_get
    get('x')
.venv/lib/python3.12/site-packages/requests/api.py:73: in get
    return request(\"get\", url)
.venv/lib/python3.12/site-packages/requests/api.py:59: in request
    return session.request(method=method)
app/own.py:9: in own
    raise Refused(url)
E   app.Refused: x
",
        "\
____ test_get ____
test_a.py:3: in test_get
    get('x')
... (4 lines left out) ...
app/own.py:9: in own
    raise Refused(url)
E   app.Refused: x
",
    );
}

#[test]
fn go_frames_of_the_runtime_are_folded() {
    folds(
        "\
goroutine 18 [running]:
testing.tRunner.func1.2({0x518ba0, 0xc0000cc000})
\t/usr/lib/go-1.19/src/testing/testing.go:1396 +0x24e
panic({0x518ba0, 0xc0000cc000})
\t/usr/local/go/src/runtime/panic.go:884 +0x212
example.org/gosvc/stock.First(...)
\t/home/u/gosvc/stock/stock.go:15
testing.tRunner(0xc000096680, 0x52f520)
\t/usr/lib/go-1.19/src/testing/testing.go:1446 +0x10b
created by testing.(*T).Run
\t/usr/lib/go-1.19/src/testing/testing.go:1493 +0x35f
exit status 2
",
        "\
goroutine 18 [running]:
... (4 lines left out) ...
example.org/gosvc/stock.First(...)
\t/home/u/gosvc/stock/stock.go:15
... (4 lines left out) ...
exit status 2
",
    );
}

#[test]
fn stack_without_own_frames_keeps_its_ends() {
    let frame = |at: usize| format!("\tat org.springframework.Bean{at}.run(Bean.java:{at})\n");
    let frames = |range: Range<usize>| range.map(frame).collect::<String>();
    folds(
        &format!("java.lang.Error: no\n{}done\n", frames(0..9)),
        &format!(
            "java.lang.Error: no\n{}... (3 lines left out) ...\n{}done\n",
            frames(0..3),
            frames(6..9)
        ),
    );
}

#[test]
fn lines_that_only_look_like_frames_stay() {
    let text = "\
    at the end of node_modules/ nothing was found
    at last: error: the disk is full
   1: the first of the causes, without a place
   2: error: the second of the causes, without a place
# see /usr/lib/ruby/gems/3.0 for more of these things
at java.util.List is where it fails, said the author
  File \"/usr/lib/python3/x.py\" is missing, and so is this
";
    assert!(super::super::run(&steps(FOLD).unwrap(), &text.repeat(3), true).is_none());
}

#[test]
fn single_frame_of_others_stays() {
    let text = "\
TypeError: total is not a function
    at Object.<anonymous> (/home/u/a.js:3:1)
    at Module._compile (node:internal/modules/cjs/loader:1554:14)
";
    assert!(super::super::run(&steps(FOLD).unwrap(), text, true).is_none());
}

#[test]
fn line_of_many_digits_or_brackets_is_no_frame() {
    for line in ["  99999: x", "(", "#", "# ", "#1", "at ", "   at (", "❯ ", "| + - é"] {
        let lines = [line, "\té.go:1", "é"];
        (0..lines.len()).for_each(|at| assert!(forms::frame(&lines, at).is_none(), "{line}"));
    }
}
