//! Tests of redirects: each is decided on, few are followed, and credentials stay with their
//! origin.

use http::Request;
use http_body_util::Full;
use std::sync::Arc;
use toolhold_net::{Egress, Error};

use crate::server::{Server, answer};
use crate::{Caller, run, settings};

fn redirecting_to(to: String) -> Server {
    Server::plain(move |received, wire| match received.path() {
        "/" => answer(wire, "302 Found", &[("location", &to)], b""),
        _ => answer(wire, "200 OK", &[], b"there"),
    })
}

#[test]
fn redirect_to_a_private_address_is_refused() {
    run(async {
        let inner = Server::plain(|_, wire| answer(wire, "200 OK", &[], b"the inner one"));
        for to in [
            "127.0.0.1",
            "localhost",
            "[::ffff:127.0.0.1]",
            "2130706433",
            "0x7f.1",
            "169.254.169.254",
            "[fd00:ec2::254]",
        ] {
            let url = format!("http://{to}:{}/inner", inner.port());
            let outer = redirecting_to(url.clone());
            let caller = Caller::new(settings(&[&outer.address.to_string()]));
            let first =
                caller.get(&format!("http://{}/", outer.address)).await.expect("it answers");
            assert_eq!(first.headers["location"], url.as_str());
            let second = caller.get(&url).await;
            assert!(
                matches!(second, Err(Error::Refused(_) | Error::Address(_))),
                "{to}: {second:?}"
            );
            let records = caller.requests();
            assert_eq!(
                (records.len(), records[0].status, records[1].status, records[1].hop),
                (2, Some(302), None, 1),
                "{records:?}"
            );
            assert!(records[1].failed.is_some());
        }
        assert_eq!(inner.connections(), 0);
    });
}

#[test]
fn fourth_redirect_is_not_followed() {
    run(async {
        let server = Server::plain(|received, wire| {
            let next = format!("{}x", received.path());
            answer(wire, "301 Moved", &[("location", &next)], b"")
        });
        let caller = Caller::new(settings(&[&server.address.to_string()]));
        let mut path = "/".to_owned();
        for hop in 0..10 {
            let got = caller.get(&format!("http://{}{path}", server.address)).await;
            if hop <= 3 {
                path.push('x');
                assert!(got.is_ok(), "{hop}: {got:?}");
            } else {
                assert!(matches!(got, Err(Error::Redirects(3))), "{hop}: {got:?}");
            }
        }
        assert_eq!(server.asked().len(), 4);
        assert_eq!(
            caller.requests().iter().take(4).map(|record| record.hop).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
    });
}

#[test]
fn credentials_stay_with_their_origin() {
    run(async {
        let other = Server::plain(|_, wire| {
            answer(wire, "200 OK", &[("set-cookie", "theirs=1")], b"there")
        });
        let elsewhere = format!("http://{}/there", other.address);
        let server = redirecting_to(elsewhere.clone());
        let same = redirecting_to("/here".to_owned());
        let granted = [&server, &same, &other].map(|server| server.address.to_string());
        let egress = Arc::new(Egress::new(settings(&granted.each_ref().map(String::as_str))));
        let with = |url: &str| {
            let request = Request::get(url)
                .header("authorization", "Basic dTpw")
                .header("cookie", "mine=1")
                .header("x-other", "stays");
            request.body(Full::default()).expect("it is a request")
        };

        let caller = Caller::with_egress(Arc::clone(&egress), false);
        caller.send(with(&format!("http://{}/", server.address))).await.expect("it answers");
        caller.send(with(&elsewhere)).await.expect("it answers");
        let received = &other.asked()[0];
        assert_eq!(
            (
                received.header("authorization"),
                received.header("cookie"),
                received.header("x-other")
            ),
            (None, None, Some("stays"))
        );

        // This call wasn't redirected to the other origin, and a redirect within one origin keeps
        // the credentials.
        let caller = Caller::with_egress(egress, false);
        caller.send(with(&elsewhere)).await.expect("it answers");
        caller.send(with(&format!("http://{}/", same.address))).await.expect("it answers");
        caller.send(with(&format!("http://{}/here", same.address))).await.expect("it answers");
        for received in [&other.asked()[1], &same.asked()[1]] {
            assert_eq!(
                (received.header("authorization"), received.header("cookie")),
                (Some("Basic dTpw"), Some("mine=1"))
            );
        }
    });
}
