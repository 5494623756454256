//! Requests without a response, and their errors.

use serde_json::json;
use toolhold_core::{Answer, Category, Failure};

use super::{Web, hello, page};
use crate::support::server::{Authority, Server, answer};
use crate::support::{failure, refused, run};

async fn fetch(web: &Web, url: impl Into<String>) -> Answer {
    web.call("fetch", json!({ "url": url.into() })).await
}

#[track_caller]
fn assert_failed(answer: &Answer, category: Category, code: &str, words: &str) {
    let told: &Failure = failure(answer, category, Some(code));
    assert!(told.message.contains(words), "{words:?} is not in {told:?}");
}

/// The advice of a rule's refusal.
#[track_caller]
fn remedy<'a>(answer: &'a Answer, rule: &str) -> &'a str {
    &refused(answer, rule).denial.as_ref().expect("a refusal names its rule").remedy
}

#[test]
fn unreachable_servers_are_reported_by_cause() {
    run(async {
        let silent = Server::plain(|_, wire| wire.read_exact(&mut [0]));
        let halting = Server::plain(|_, wire| {
            wire.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 100\r\n\r\nbeginning")?;
            wire.flush()?;
            wire.read_exact(&mut [0])
        });
        let broken = Server::plain(|_, wire| wire.write_all(b"220 mail.example.com ESMTP\r\n\r\n"));
        let short = Server::plain(|_, wire| {
            wire.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort")?;
            Err(std::io::Error::other("it hangs up"))
        });
        let gone = Server::plain(hello);
        let others = "tools.web.other_domains=\"allow\"";
        let web = Web::new(
            &[&silent, &halting, &broken, &short, &gone],
            &["tools.web.timeout=1", others],
        )
        .await;
        let at = |server: &Server| format!("http://{}/", server.address);
        let gone_at = at(&gone);
        drop(gone);
        assert_failed(
            &fetch(&web, gone_at).await,
            Category::NetworkError,
            "connection",
            "refuses connections",
        );
        assert_failed(
            &fetch(&web, "https://nowhere.example.com/").await,
            Category::NetworkError,
            "dns",
            "no address",
        );
        for server in [&silent, &halting] {
            let answer = fetch(&web, at(server)).await;
            assert_failed(
                &answer,
                Category::Timeout,
                "timed-out",
                "its answer took too long (`timeout` in [tools.web] of ",
            );
        }
        let bounded = Web::new(&[&silent], &["tools.limits.request_secs=1"]).await;
        let answer = fetch(&bounded, at(&silent)).await;
        for words in
            ["`request_secs` in [tools.limits] of ", "/toolhold.toml limits a request to 1 s"]
        {
            assert_failed(&answer, Category::Timeout, "timed-out", words);
        }
        assert_failed(
            &fetch(&web, at(&broken)).await,
            Category::PermanentFailure,
            "malformed-answer",
            "breaks the protocol",
        );
        assert_failed(
            &fetch(&web, at(&short)).await,
            Category::NetworkError,
            "connection",
            "too early",
        );
        for (url, words) in [
            ("example.com/page", "https://"),
            ("ftp://example.com/", "the scheme isn't https or http"),
            ("https://user:pw@example.com/", "user"),
            ("https://", "https://"),
            ("", "https://"),
        ] {
            let answer = fetch(&web, url).await;
            let told = failure(&answer, Category::InvalidParameters, None);
            let all =
                format!("{} {}", told.message, told.suggestion.as_deref().unwrap_or_default());
            assert!(all.contains(words), "{url}: {told:?}");
        }
    });
}

#[test]
fn servers_without_a_valid_certificate_are_refused() {
    run(async {
        let (ours, theirs) = (Authority::new(), Authority::new());
        let good =
            Server::tls(ours.server(&["site.example.com"], &["h2", "http/1.1"], |_| {}), hello);
        let strange = Server::tls(theirs.server(&["site.example.com"], &[], |_| {}), hello);
        let plain = Server::plain(hello);
        let authorities = format!("network.authorities=[{:?}]", ours.file());
        let web = Web::new(
            &[&good, &strange, &plain],
            &[&authorities, "tools.web.other_domains=\"allow\""],
        )
        .await;
        let at = |name: &str, server: &Server| format!("https://{name}:{}/", server.port());
        for (name, server) in
            [("site.example.com", &strange), ("other.example.com", &good), ("127.0.0.1", &good)]
        {
            let answer = fetch(&web, at(name, server)).await;
            assert_failed(&answer, Category::PermanentFailure, "tls", "certificate isn't valid");
            assert!(server.asked().is_empty(), "{name}");
        }
        assert!(fetch(&web, at("site.example.com", &plain)).await.outcome.is_err());
        assert!(plain.asked().is_empty());
    });
}

#[test]
fn unreadable_authority_file_is_named_in_the_answer() {
    run(async {
        let server = Server::plain(hello);
        let folder = tempfile::TempDir::new().expect("a temporary folder is made");
        let (missing, empty) = (folder.path().join("missing.pem"), folder.path().join("empty.pem"));
        std::fs::write(&empty, "no certificate").expect("it is written");
        for (file, why) in [(&missing, "No such file"), (&empty, "no certificate in PEM format")] {
            let web = Web::new(&[&server], &[&format!("network.authorities=[{file:?}]")]).await;
            let answer = fetch(&web, format!("http://{}/", server.address)).await;
            let told = failure(&answer, Category::PermanentFailure, Some("host"));
            let words = format!("`authorities` in [network] names {}: ", file.display());
            assert!(
                told.message.contains(&words) && told.message.contains(why),
                "{words:?} is not in {told:?}"
            );
            assert!(
                told.suggestion.as_ref().is_some_and(|advice| advice.contains("toolhold doctor")),
                "{told:?}"
            );
        }
        assert_eq!(server.connections(), 0);
    });
}

#[test]
fn private_network_is_refused_with_the_line_that_opens_it() {
    run(async {
        let web = Web::new(&[], &["tools.web.other_domains=\"allow\""]).await;
        for (url, entry) in [
            ("https://inside.example.com/", "inside.example.com:443"),
            ("https://site.example.com/", "site.example.com:443"),
            ("https://127.0.0.1:8443/", "127.0.0.1:8443"),
            ("https://printer.local/", "printer.local:443"),
        ] {
            let answer = fetch(&web, url).await;
            let remedy = remedy(&answer, "private addresses are blocked");
            assert!(
                remedy.contains("[tools.web]")
                    && remedy.contains("allowed_private_hosts")
                    && remedy.contains(entry),
                "{url}: {remedy}"
            );
        }
        let answer = fetch(&web, "http://169.254.169.254/latest/").await;
        assert_eq!(
            remedy(&answer, "private addresses are blocked"),
            "No configuration key can change this."
        );
    });
}

#[test]
fn redirect_stays_within_the_grants_of_the_call() {
    run(async {
        let authority = Authority::new();
        let names = ["site.example.com", "other.example.com"];
        let other = Server::tls(authority.server(&names, &[], |_| {}), hello);
        let (inner, port) = (Server::plain(hello), other.port());
        let inner_at = inner.address;
        let site = Server::tls(authority.server(&names, &[], |_| {}), move |asked, wire| {
            let to = match asked.path() {
                "/inner" => format!("https://{inner_at}/"),
                "/metadata" => "https://169.254.169.254/latest/meta-data/".to_owned(),
                "/other" => format!("https://other.example.com:{port}/x"),
                "/denied" => "https://denied.example.com/".to_owned(),
                "/plain" => "http://site.example.com/".to_owned(),
                "/file" => "file:///etc/passwd".to_owned(),
                "/named" => "https://me:secret@other.example.com/".to_owned(),
                _ => return page(wire, "text/plain", b"a page"),
            };
            answer(wire, "302 Found", &[("location", &to)], b"")
        });
        let authorities = format!("network.authorities=[{:?}]", authority.file());
        let allowed = format!("tools.web.allowed_domains=[\"site.example.com:{}\"]", site.port());
        let web = Web::new(
            &[&site, &other],
            &[&authorities, &allowed, "tools.web.denied_domains=[\"denied.example.com\"]"],
        )
        .await;
        let at = |path: &str| format!("https://site.example.com:{}{path}", site.port());
        assert_eq!(web.fetch(at("/")).await, ["a page"]);

        let to_inner = fetch(&web, at("/inner")).await;
        let opens = remedy(&to_inner, "private addresses are blocked");
        assert!(
            opens.contains("allowed_private_hosts") && opens.contains(&inner.address.to_string()),
            "{opens}"
        );
        assert_eq!(
            remedy(&fetch(&web, at("/metadata")).await, "private addresses are blocked"),
            "No configuration key can change this."
        );
        let to_other = fetch(&web, at("/other")).await;
        let allows = remedy(&to_other, "allowed_domains, which doesn't have this host");
        let listed = format!(
            "To allow it, add \"other.example.com:{port}\" to the list in `--set {allowed}`."
        );
        assert_eq!(
            allows,
            format!(
                "{listed} Or request https://other.example.com:{port}/x in a separate call, which a person can approve."
            )
        );
        for (answer, to) in [
            (&to_other, format!("https://other.example.com:{port}")),
            (&to_inner, format!("https://{}", inner.address)),
        ] {
            let message = &failure(answer, Category::PolicyBlocked, None).message;
            let led = format!(
                "GET {to} (a redirect from https://site.example.com:{}) is denied",
                site.port()
            );
            assert!(message.contains(&led), "{led:?} is not in {message}");
            // The tool reports that it was refused.
            assert!(!message.contains("The tool said"), "{message}");
        }
        let nobody = ["tools.web.other_domains=\"deny\"", &authorities, &allowed];
        let nobody = Web::new(&[&site, &other], &nobody).await;
        assert_eq!(
            remedy(
                &fetch(&nobody, at("/other")).await,
                "allowed_domains, which doesn't have this host"
            ),
            listed
        );
        assert!(
            remedy(&fetch(&web, at("/denied")).await, "denied_domains")
                .contains("denied.example.com")
        );
        assert_failed(
            &fetch(&web, at("/plain")).await,
            Category::PermanentFailure,
            "redirect",
            "from https to http://site.example.com/",
        );
        assert_failed(
            &fetch(&web, at("/file")).await,
            Category::PermanentFailure,
            "redirect",
            "only http and https",
        );
        let named = fetch(&web, at("/named")).await;
        assert_failed(&named, Category::PermanentFailure, "redirect", "user name or a password");
        assert!(!format!("{named:?}").contains("secret"), "{named:?}");
        assert_eq!((inner.connections(), other.connections()), (0, 0));
    });
}

#[test]
fn plain_http_is_refused_unless_granted() {
    run(async {
        let server = Server::plain(hello);
        let url = format!("http://site.example.com:{}/", server.port());
        let web = Web::new(&[&server], &["tools.web.other_domains=\"allow\""]).await;
        let answer = fetch(&web, url.as_str()).await;
        let told = remedy(&answer, "https_only = true");
        assert!(told.contains("Use https") && told.contains("https_only = false"), "{told}");
        assert_eq!(server.connections(), 0);
        let web = Web::new(
            &[&server],
            &["tools.web.other_domains=\"allow\"", "tools.web.https_only=false"],
        )
        .await;
        assert_eq!(web.fetch(url).await, ["hello"]);
    });
}
