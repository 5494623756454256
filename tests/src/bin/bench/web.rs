//! `fetch` against what an agent would run otherwise: `curl`, and the same extraction compiled for
//! this machine.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::Setting;
use crate::measure::{Compared, find_program, in_turn, output_of, time};
use crate::sandbox::Sandbox;
use crate::serving::serve;
use crate::table::{Row, Target, Unit, show_time};

const ROUNDS: usize = 15;
const CALLS: usize = 8;

/// Pages of a round at a time, and all of them.
const IN_FLIGHT: usize = 32;
const PAGES: usize = 320;

const NO_RIVAL: &str = "curl is not installed: apt-get install curl";

pub(crate) fn measure(setting: &Setting) -> Result<Vec<Row>, String> {
    let address = serve_pages().map_err(|error| format!("no server on loopback: {error}"))?;
    let home = setting.scratch.join("web");
    let opened = format!("tools.web.allowed_private_hosts=[\"{address}\"]");
    let settings = [
        &opened,
        "tools.autonomy=full",
        "tools.result_cache.enabled=false",
        "audit.keep=1",
        "tools.max_concurrent=64",
    ];
    let settings = [&settings[..], &["tools.limits.concurrent_requests=32"]].concat();
    let sandbox = Sandbox::with_builtins(&setting.repository, &home, &setting.scratch, &settings)?;
    let page = setting.repository.join("plugins/target/release/examples/page");
    Ok(vec![one(&sandbox, address, &page)?, many(&sandbox, address)?])
}

fn one(sandbox: &Sandbox, address: SocketAddr, page: &Path) -> Result<Row, String> {
    let what = "fetch, a page of 100 KB, against curl and the same extraction natively";
    let target = Target::AtMost(1.5);
    if find_program("curl").is_none() {
        return Ok(Row::not_measured("web", what, Unit::Ratio, target, NO_RIVAL.to_owned()));
    }
    let url = format!("http://{address}/page");
    let arguments = || json!({ "url": url, "max_length": 200_000 });
    let ours = || {
        let all = time(|| {
            (0..CALLS).try_for_each(|_| sandbox.call_and_wait("fetch", arguments()).map(drop))
        })?;
        Ok(all / u32::try_from(CALLS).unwrap_or(1))
    };
    let rival = || {
        let all = time(|| (0..CALLS).try_for_each(|_| natively(&url, page).map(drop)))?;
        Ok(all / u32::try_from(CALLS).unwrap_or(1))
    };
    let (told, theirs) =
        (sandbox.call_and_wait("fetch", arguments())?.joined_text(), natively(&url, page)?);
    let last = format!("paragraph {}", PARAGRAPHS - 1);
    if !told.contains(&last) || !String::from_utf8_lossy(&theirs).contains(&last) {
        return Err(
            "the page was not read to its end by both: they don't do the same work".to_owned()
        );
    }
    let Compared { ours, rival, ratios } = in_turn(ROUNDS, ours, rival)?;
    let (ours, rival) = (show_time(ours), format!("curl | page {}", show_time(rival)));
    Ok(Row {
        name: "web",
        what: what.to_owned(),
        samples: ratios,
        unit: Unit::Ratio,
        target,
        ours,
        rival,
    })
}

fn natively(url: &str, page: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("curl | {}: {error}", page.display());
    let mut curl = Command::new("curl")
        .args(["-s", "--compressed", url])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let input = curl.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let output = Command::new(page)
        .arg(url)
        .stdin(input)
        .stderr(Stdio::inherit())
        .output()
        .map_err(failed)?;
    curl.wait().map_err(failed)?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("{} failed", page.display()))
    }
}

fn many(sandbox: &Sandbox, address: SocketAddr) -> Result<Row, String> {
    let what = format!(
        "fetch, small pages, {IN_FLIGHT} in flight, against one curl that does the same and reads nothing"
    );
    if find_program("curl").is_none() {
        return Ok(Row::not_measured(
            "web",
            &what,
            Unit::Ratio,
            Target::Lower,
            NO_RIVAL.to_owned(),
        ));
    }
    let url = format!("http://{address}/small");
    let ours = || {
        time(|| {
            sandbox.runtime().block_on(async {
                let next = std::sync::atomic::AtomicUsize::new(0);
                let caller = async || {
                    while next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < PAGES {
                        sandbox.call("fetch", json!({ "url": url })).await?;
                    }
                    Ok::<(), String>(())
                };
                let mut callers: Vec<_> = (0..IN_FLIGHT).map(|_| Box::pin(caller())).collect();
                std::future::poll_fn(|context| {
                    let mut failed = Ok(());
                    callers.retain_mut(|caller| match caller.as_mut().poll(context) {
                        std::task::Poll::Pending => true,
                        std::task::Poll::Ready(done) => {
                            if done.is_err() {
                                failed = done;
                            }
                            false
                        }
                    });
                    match failed {
                        Ok(()) if !callers.is_empty() => std::task::Poll::Pending,
                        done => std::task::Poll::Ready(done),
                    }
                })
                .await
            })
        })
    };
    let rival = || {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--parallel", "--parallel-max", &IN_FLIGHT.to_string()]);
        curl.args((0..PAGES).flat_map(|_| [&*url, "-o", "/dev/null"]));
        time(|| output_of(&mut curl).map(drop))
    };
    let Compared { ours, rival, ratios } = in_turn(5, ours, rival)?;
    let a_second = |time: Duration| {
        f64::from(u32::try_from(PAGES).unwrap_or(0)) / time.as_secs_f64().max(1e-9)
    };
    let (ours, rival) = (
        format!("{:.0} a second", a_second(ours)),
        format!("curl {:.0} a second", a_second(rival)),
    );
    Ok(Row {
        name: "web",
        what,
        samples: ratios,
        unit: Unit::Ratio,
        target: Target::Lower,
        ours,
        rival,
    })
}

const PARAGRAPHS: usize = 220;

/// A typical page: a head, navigation, an article with links, code and a table, a footer. About 100
/// KB.
fn article() -> String {
    let nav: String = (0..60)
        .map(|item| {
            format!("<li class=\"nav-item\"><a href=\"/section/{item}\">Section {item}</a></li>")
        })
        .collect();
    let paragraph = |number: usize| {
        let code = if number.is_multiple_of(20) {
            "<pre><code class=\"language-rust\">fn main() { println!(\"hello\"); }</code></pre>"
        } else {
            ""
        };
        let heading = if number.is_multiple_of(10) {
            format!("<h2 id=\"part-{number}\">Part {number}</h2>")
        } else {
            String::new()
        };
        format!(
            "{heading}<p class=\"body\">This is paragraph {number} of an article, with a <a href=\"/wiki/Link_{number}\" title=\"t\">link</a>, some \
             <em>emphasis</em>, <strong>weight</strong> and <code>code</code>. It goes on for a while, as paragraphs do, so that there is \
             something to read in it, and something to keep.</p>{code}\n"
        )
    };
    let body: String = (0..PARAGRAPHS).map(paragraph).collect();
    let rows: String =
        (0..50).map(|row| format!("<tr><td>{row}</td><td>value {row}</td></tr>")).collect();
    format!(
        "<!doctype html><html><head><title>An article</title><style>{}</style><script>{}</script></head><body><nav><ul>{nav}</ul></nav>\
         <main><article><h1>An article</h1>{body}<table><thead><tr><th>n</th><th>v</th></tr></thead><tbody>{rows}</tbody></table></article></main>\
         <footer>{nav}</footer></body></html>",
        ".a{color:red}".repeat(400),
        "var a=1;".repeat(400),
    )
}

/// A server of two pages, for as long as this process lives.
fn serve_pages() -> std::io::Result<SocketAddr> {
    const KIND: &str = "text/html; charset=utf-8";
    let small = "<!doctype html><title>Small</title><main><h1>Small</h1><p>A page with a little text in it.</p></main>";
    let (large, small) = (Arc::new(article().into_bytes()), Arc::new(small.as_bytes().to_vec()));
    serve(move |path| {
        let page = if path.contains("/page") { &large } else { &small };
        Some((KIND, Arc::clone(page)))
    })
}
