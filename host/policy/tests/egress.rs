//! Where requests may go: the spellings of hosts and addresses, patterns, and what no spelling gets
//! around.

#[expect(
    unreachable_pub,
    dead_code,
    reason = "shared by several test programs, each of which uses a part"
)]
mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use berth_policy::egress::{
    Grant, HostPattern, PrivateHosts, Reach, Scheme, Target, TargetHost, forbidden,
};
use berth_policy::{Origin, OriginKind, Placed};
use proptest::prelude::*;

use support::{placed, reaching};

/// What reaches whatever isn't forbidden.
fn anything() -> Reach {
    let mut grants: Vec<_> = Vec::new();
    for written in ["https://*", "http://*"] {
        let grant = Grant::new(written).expect("a grant");
        grants.extend([grant.clone(), Grant { port: Some(443), ..grant }].map(placed));
    }
    Reach { grants, https_only: placed(false), ..reaching(&[], &[], &[]) }
}

/// Whether a request passes, up to its connection: by its URL, and by the address that it has or
/// that its name leads to. A port is no reason to refuse here.
fn passes(reach: &Reach, url: &str, leads_to: Option<IpAddr>) -> Result<Target, String> {
    let target = Target::parse(url)?;
    reach.request(&target, "GET", &[target.origin()]).map_err(|denial| denial.to_string())?;
    if let Some(address) = target.host.address().or(leads_to) {
        reach.address(&target, address, &[]).map_err(|denial| denial.to_string())?;
    }
    Ok(target)
}

/// The rows of a table, each with the heading above it; what is escaped stands for itself.
fn rows(table: &'static str) -> impl Iterator<Item = (&'static str, String, Option<&'static str>)> {
    let mut heading = "";
    table.lines().filter_map(move |line| match line.strip_prefix('#') {
        Some(rest) => {
            heading = rest.strip_prefix("# ").unwrap_or(heading);
            None
        }
        // The empty text is a row of its own in its place, and no line.
        None if line.is_empty() => None,
        None => {
            let (spelled, meant) = line
                .split_once(" => ")
                .map_or((line, None), |(spelled, meant)| (spelled, Some(meant)));
            Some((heading, unescaped(spelled), meant))
        }
    })
}

fn unescaped(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let (c, used) = match after.as_bytes().first() {
            Some(b't') => ('\t', 1),
            Some(b'n') => ('\n', 1),
            Some(b'r') => ('\r', 1),
            Some(b'u') => {
                let end = after.find('}').expect("`\\u{…}` ends");
                let code = u32::from_str_radix(&after[2..end], 16).expect("hexadecimal digits");
                (char::from_u32(code).expect("a character"), end + 1)
            }
            Some(b'\\') => ('\\', 1),
            other => panic!("{other:?} can't be escaped"),
        };
        out.push(c);
        rest = &after[used..];
    }
    out + rest
}

#[test]
fn no_spelling_of_what_is_forbidden_passes() {
    let (reach, mut count, mut missed) = (anything(), 0, Vec::new());
    for (what, url, leads_to) in rows(include_str!("egress/forbidden.txt")) {
        let leads_to = leads_to.map(|address| address.parse().expect("an address"));
        let passed = passes(&reach, &url, leads_to);
        match passed {
            Ok(target) => missed.push(format!("{what}: {url:?} passes as {target}")),
            Err(why) => assert!(why.len() < 1024, "{what}: {why}"),
        }
        count += 1;
    }
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(count >= 150, "{count} are few");
}

#[test]
fn what_is_allowed_passes_as_the_place_that_it_is() {
    let (reach, mut count) = (anything(), 0);
    for (what, url, meant) in rows(include_str!("egress/allowed.txt")) {
        let passed =
            passes(&reach, &url, None).unwrap_or_else(|why| panic!("{what}: {url:?}: {why}"));
        assert_eq!(
            passed.to_string(),
            meant.unwrap_or(url.trim_end_matches('/')),
            "{what}: {url:?}"
        );
        count += 1;
    }
    assert!(count >= 150, "{count} are few");
}

/// Addresses of version 4 that nobody doubts of, told by another hand than the table of the rules.
fn surely_forbidden(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a == 100 && (64..128).contains(&b)
        || a == 198 && (b == 18 || b == 19)
        || a >= 240
}

/// Addresses that are forbidden, of each range about as many.
fn forbidden_v4() -> impl Strategy<Value = Ipv4Addr> {
    let ranges = [
        (0x0000_0000_u32, 8),
        (0x0a00_0000, 8),
        (0x6440_0000, 10),
        (0x7f00_0000, 8),
        (0xa9fe_0000, 16),
        (0xac10_0000, 12),
        (0xc000_0000, 24),
        (0xc000_0200, 24),
        (0xc058_6300, 24),
        (0xc0a8_0000, 16),
        (0xc612_0000, 15),
        (0xc633_6400, 24),
        (0xcb00_7100, 24),
        (0xe000_0000, 4),
        (0xf000_0000, 4),
        (0xa9fe_a9fe, 32),
        (0x6464_64c8, 32),
        (0xa83f_8110, 32),
    ];
    (prop::sample::select(ranges.to_vec()), any::<u32>()).prop_map(|((network, length), bits)| {
        let host = if length == 32 { 0 } else { u32::MAX >> length };
        Ipv4Addr::from_bits(network | bits & host)
    })
}

/// Every form that an address of version 4 has in a URL.
fn spelled(address: Ipv4Addr, form: u8, zeros: usize) -> String {
    let [a, b, c, d] = address.octets().map(u32::from);
    let (all, zeros) = (address.to_bits(), "0".repeat(zeros));
    let [high, low] = [all >> 16, all & 0xffff];
    match form {
        0 => format!("{address}"),
        1 => format!("{all}"),
        2 => format!("0x{zeros}{all:x}"),
        3 => format!("0{zeros}{all:o}"),
        4 => format!("{a}.{}", all & 0xff_ffff),
        5 => format!("{a}.{b}.{low}"),
        6 => format!("0X{zeros}{a:X}.0{zeros}{b:o}.{c}.0x{d:x}"),
        7 => format!("{address}."),
        8 => address.to_string().chars().map(|c| format!("%{:02x}", u32::from(c))).collect(),
        9 => address
            .to_string()
            .chars()
            .map(|c| c.to_digit(10).map_or('。', |d| char::from_u32(0xff10 + d).expect("a digit")))
            .collect(),
        10 => address
            .to_string()
            .chars()
            .map(|c| c.to_digit(10).map_or('.', |d| char::from_u32(0x1d7d8 + d).expect("a digit")))
            .collect(),
        11 => format!("[::ffff:{address}]"),
        12 => format!("[::ffff:{high:x}:{low:04X}]"),
        13 => format!("[0:0:0:0:0:ffff:{address}]"),
        14 => format!("[::{address}]"),
        15 => format!("[64:ff9b::{address}]"),
        16 => format!("[64:ff9b:1::{address}]"),
        17 => format!("[64:ff9b:1:{high:x}:{:x}:{:x}::]", c, d << 8),
        18 => format!("[2002:{high:x}:{low:x}::1]"),
        19 => format!("[2001:0:{high:x}:{low:x}::1]"),
        20 => format!("[2001::{:x}:{:x}]", high ^ 0xffff, low ^ 0xffff),
        21 => format!("[2606:4700::5efe:{address}]"),
        22 => format!("[2606:4700::200:5efe:{high:x}:{low:x}]"),
        _ => format!("[::ffff:0:{address}]"),
    }
}

const FORMS: u8 = 24;

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn no_spelling_of_a_forbidden_address_passes(address in forbidden_v4(), form in 0..FORMS, zeros in 0..4_usize, port in any::<bool>()) {
        let url = format!("https://{}{}/", spelled(address, form, zeros), if port { ":443" } else { "" });
        let passed = passes(&anything(), &url, None);
        prop_assert!(passed.is_err(), "{address} as {url} passes as {passed:?}");
    }

    #[test]
    fn what_nothing_opens_is_not_opened_by_another_spelling(form in 11..FORMS) {
        for address in [Ipv4Addr::new(169, 254, 169, 254), Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)] {
            let url = format!("http://{}/", spelled(address, form, 0));
            let ranges = ["10.0.0.0/8", "168.0.0.0/8", "100.0.0.0/8", "169.0.0.0/8", "::/7", "2000::/7", "fc00::/7", "*.example.com"];
            let opened = Reach { private: ranges.iter().filter_map(|range| PrivateHosts::new(range).ok()).map(placed).collect(), ..anything() };
            prop_assert!(passes(&opened, &url, None).is_err(), "{url}");
            let Ok(Target { host: TargetHost::Address(leads_to), .. }) = Target::parse(&url) else { continue };
            prop_assert!(passes(&opened, "http://a.example.com/", Some(leads_to)).is_err(), "{leads_to}");
        }
    }

    #[test]
    fn every_address_is_decided_on_and_special_ones_are_known(bits in any::<u32>()) {
        let address = Ipv4Addr::from_bits(bits);
        prop_assert!(!surely_forbidden(address) || forbidden(address.into()).is_some(), "{address}");
        prop_assert_eq!(forbidden(address.into()), forbidden(address.to_ipv6_mapped().into()));
    }

    #[test]
    fn of_version_six_only_what_is_given_out_passes(bits in any::<u128>(), given_out in any::<bool>()) {
        let address = Ipv6Addr::from_bits(if given_out { bits >> 3 | 1 << 125 } else { bits });
        if forbidden(address.into()).is_none() {
            let [first, second, ..] = address.segments();
            prop_assert!(first & 0xe000 == 0x2000 || first == 0x64 && second == 0xff9b || address.to_ipv4_mapped().is_some(), "{address}");
        }
    }

    #[test]
    fn whatever_is_written_is_read_without_trouble(text in "\\PC{0,80}|[a-z0-9.:/@%\\[\\]\\\\?#* -]{0,60}") {
        for text in [text.clone(), format!("https://{text}"), format!("http://{text}/")] {
            if let Ok((target, url)) = Target::with_url(&text) {
                let shown = target.to_string();
                prop_assert_eq!(Target::parse(&shown), Ok(target.clone()), "{}", &text);
                prop_assert_eq!(Target::with_url(&url), Ok((target.clone(), url.clone())), "{}", &text);
                // What other code reads out of the same URL is the same place.
                let parsed = url::Url::parse(&text).expect("it was read");
                let host = parsed.host_str().expect("it has a host");
                let host = host.strip_suffix('.').unwrap_or(host);
                let is_mapped = matches!(parsed.host(), Some(url::Host::Ipv6(address)) if address.to_ipv4_mapped().is_some());
                prop_assert!(is_mapped || host == target.host.to_string(), "{text}: {host} is {}", target.host);
                prop_assert_eq!(parsed.port_or_known_default(), Some(target.port));
                prop_assert!(parsed.username().is_empty() && parsed.password().is_none());
                let built: http::Uri = url.parse().expect("it is a URI");
                prop_assert_eq!(built.authority().map(ToString::to_string), Some(target.authority()));
            }
            let (pattern, private) = (HostPattern::new(&text), PrivateHosts::new(&text));
            prop_assert!(pattern.is_err() || HostPattern::new(pattern.as_ref().expect("it is one").as_str()) == pattern);
            prop_assert!(private.is_err() || PrivateHosts::new(private.as_ref().expect("it is one").as_str()) == private);
        }
    }
}

/// Whether a pattern fits hosts, and doesn't fit others.
#[track_caller]
fn fits(pattern: &str, fitting: &[&str], others: &[&str]) {
    let read = HostPattern::new(pattern).expect("it is a pattern");
    let host = |text: &&str| Target::parse(&format!("https://{text}/")).expect("it is a host").host;
    for (hosts, expected) in [(fitting, true), (others, false)] {
        for text in hosts {
            assert_eq!(read.matches(&host(text)), expected, "{pattern} and {text}");
        }
    }
}

#[test]
fn patterns_fit_what_they_say() {
    fits(
        "example.com",
        &["example.com", "EXAMPLE.com."],
        &["a.example.com", "example.org", "xexample.com", "example.com.evil.org"],
    );
    fits(
        "*.example.com",
        &["a.example.com", "a.b.example.com"],
        &["example.com", "xexample.com", "example.com.evil.org", "127.0.0.1"],
    );
    fits("*", &["example.com", "8.8.8.8", "[::1]", "localhost"], &[]);
    fits("*.zip", &["a.zip", "a.b.zip"], &["zip", "azip.com"]);
    fits(
        "api-*.example.com",
        &["api-1.example.com", "api-.example.com"],
        &["api.example.com", "x.api-1.example.com", "api-1.x.example.com"],
    );
    fits(
        "*.eu-*.example.com",
        &["a.eu-1.example.com", "a.b.eu-1.example.com"],
        &["eu-1.example.com", "a.us.example.com"],
    );
    fits(
        "a.*.example.com",
        &["a.x.example.com"],
        &["a.x.y.example.com", "a.example.com", "b.x.example.com"],
    );
    fits("**.example.com", &["a.example.com"], &["example.com", "a.b.example.com"]);
    fits("*.MÜNCHEN.de", &["a.xn--mnchen-3ya.de", "a.münchen.de"], &["münchen.de"]);
    fits(
        "8.8.8.8",
        &["8.8.8.8", "0x08080808", "[::ffff:8.8.8.8]", "[64:ff9b::8.8.8.8]"],
        &["8.8.8.9", "8.8.8.8.example.com"],
    );
    fits("0x08080808", &["8.8.8.8"], &[]);
    fits("2606:4700::1", &["[2606:4700:0::1]"], &["[2606:4700::2]"]);
    fits("[2606:4700::1]", &["[2606:4700::1]"], &[]);
}

#[track_caller]
fn wrong(read: Result<impl std::fmt::Debug, String>, expected: &str) {
    let why = read.expect_err("it is wrong");
    assert!(why.contains(expected), "{why}");
}

#[test]
fn what_is_wrong_with_a_pattern_is_told_with_what_to_write() {
    for (written, expected) in [
        (
            "*example.com",
            "write `*.example.com` for the names below example.com, and `example.com` for itself",
        ),
        ("https://example.com/x", "no URL: write `example.com`"),
        ("example.com/path", "without a path: write `example.com`"),
        ("example.com:8080", "without the port `8080`: write `example.com`"),
        ("10.0.0.0/8", "by `allowed_private_hosts`"),
        ("user@example.com", "a name or password has no place"),
        ("example.*", "no place in the last two parts"),
        ("ex*.com", "no place in the last two parts"),
        ("*.*", "no place in the last two parts"),
        ("", "it is empty"),
        ("a b.com", "' ' is in it"),
        ("a..com", "is empty"),
        ("a!.com", "'!' is in the name"),
        ("*.0.0.1", "isn't a valid host pattern"),
    ] {
        wrong(HostPattern::new(written), expected);
    }
    wrong(HostPattern::new(&"a".repeat(300)), "at most 260 are allowed");
}

#[test]
fn grants_name_scheme_host_and_port() {
    let grant = |written| {
        Grant::new(written).map(|grant| (grant.hosts.as_str().to_owned(), grant.scheme, grant.port))
    };
    let host = |host: &str| host.to_owned();
    assert_eq!(grant("example.com"), Ok((host("example.com"), None, None)));
    assert_eq!(grant("example.com:8443"), Ok((host("example.com"), None, Some(8443))));
    assert_eq!(
        grant("https://*.example.com:8443"),
        Ok((host("*.example.com"), Some(Scheme::Https), Some(8443)))
    );
    assert_eq!(grant("http://example.com/"), Ok((host("example.com"), Some(Scheme::Http), None)));
    assert_eq!(grant("[2606:4700::1]:8443"), Ok((host("[2606:4700::1]"), None, Some(8443))));
    assert_eq!(grant("2606:4700::1"), Ok((host("2606:4700::1"), None, None)));
    for written in
        ["ftp://example.com", "example.com:0", "example.com:99999", "https://example.com/x", ":80"]
    {
        assert!(grant(written).is_err(), "{written}");
    }
}

/// Whether what opens a private host opens an address of a target.
#[track_caller]
fn opens(private: &str, url: &str, address: &str) -> bool {
    let private = PrivateHosts::new(private).unwrap_or_else(|why| panic!("{why}"));
    private.opens(&Target::parse(url).expect("a URL"), address.parse().expect("an address"))
}

#[test]
fn a_private_host_is_opened_as_it_is_written_and_no_further() {
    assert!(opens("localhost:3000", "http://localhost:3000/", "127.0.0.1"));
    assert!(opens("localhost:3000", "http://LOCALHOST.:3000/", "::1"));
    assert!(!opens("localhost:3000", "http://localhost:3001/", "127.0.0.1"));
    assert!(!opens("localhost:3000", "http://127.0.0.1:3000/", "127.0.0.1"));
    assert!(opens("localhost", "http://localhost:1/", "127.0.0.1"));
    assert!(opens("127.0.0.1:3000", "http://127.0.0.1:3000/", "127.0.0.1"));
    assert!(opens("127.0.0.1:3000", "http://[::ffff:127.0.0.1]:3000/", "127.0.0.1"));
    assert!(opens("10.0.0.0/8", "https://nas.example.com/", "10.1.2.3"));
    assert!(!opens("10.0.0.0/8", "https://nas.example.com/", "192.168.0.1"));
    assert!(opens("10.0.0.0/8:8080", "https://nas.example.com:8080/", "10.1.2.3"));
    assert!(!opens("10.0.0.0/8:8080", "https://nas.example.com/", "10.1.2.3"));
    assert!(
        opens("fd00::/8", "https://[fd00::1]/", "fd00::1")
            && opens("[fd00::/8]:443", "https://[fd00::1]/", "fd00::1")
    );
    assert!(
        opens("[fd00::1]:8080", "https://[fd00::1]:8080/", "fd00::1")
            && opens("fd00::1", "https://[fd00::1]/", "fd00::1")
    );
    assert!(opens("*.corp.example.com", "https://wiki.corp.example.com/", "10.0.0.1"));
    assert!(!opens("*.corp.example.com", "https://wiki.example.com/", "10.0.0.1"));
    // No opened name leads to credentials.
    assert!(!opens("*.corp.example.com", "https://wiki.corp.example.com/", "169.254.169.254"));
    assert!(!opens("fc00::/7", "https://[fd00:ec2::254]/", "fd00:ec2::254"));
    assert!(!opens("100.64.0.0/10", "https://100.100.100.200/", "100.100.100.200"));
    for (written, expected) in [
        ("*", "every private host"),
        ("0.0.0.0/0", "wider than /8"),
        ("::/0", "wider than /7"),
        ("10.0.0.1/8", "write `10.0.0.0/8`"),
        ("10.0.0.0/33", "are written as `10.0.0.0/8`"),
        ("localhost:0", "ports are numbers from 1 to 65535"),
        ("localhost:http", "ports are numbers from 1 to 65535"),
        ("http://localhost:3000/", "no URL: write `localhost:3000`"),
        ("169.254.169.254", "nothing opens"),
        ("[::ffff:169.254.169.254]:80", "nothing opens"),
        ("metadata.google.internal", "nothing opens"),
        ("localhost/x", "are written as"),
        ("[::1", "isn't a valid host pattern"),
        ("[::1]x", "after `]`"),
    ] {
        wrong(PrivateHosts::new(written), expected);
    }
}

/// The refusal of a request, in words.
#[track_caller]
fn refused(reach: &Reach, method: &str, url: &str) -> String {
    reach
        .request(&Target::parse(url).expect("a URL"), method, &[])
        .expect_err("it is refused")
        .to_string()
}

#[test]
fn a_refusal_names_the_rule_its_place_and_the_line_that_would_help() {
    let reach = reaching(
        &["docs.rs", "https://api.example.com:8443"],
        &["*.evil.com"],
        &["localhost:3000"],
    );
    for (method, url, expected) in [
        (
            "GET",
            "https://example.com/x?token=1",
            "GET https://example.com is refused: allowed_domains, which doesn't name this host (here). To allow it, add \"example.com\" to \
             `allowed_domains` of [tools.web].",
        ),
        (
            "GET",
            "https://docs.rs:8443/",
            "GET https://docs.rs:8443 is refused: allowed_domains, which names this host for another port or scheme (here). To allow it, add \
             \"docs.rs:8443\" to `allowed_domains` of [tools.web].",
        ),
        (
            "GET",
            "http://docs.rs/",
            "GET http://docs.rs is refused: https_only = true (here). Ask for it by https; or, to allow http, set `https_only = false` in \
             [tools.web].",
        ),
        (
            "POST",
            "https://a.evil.com/",
            "POST https://a.evil.com is refused: denied_domains = \"*.evil.com\" (here). To allow it, take \"*.evil.com\" out of \
             `denied_domains`.",
        ),
        (
            "GET",
            "http://localhost:3001/",
            "GET http://localhost:3001 is refused: the rule that no request goes to private places: the host is a name that only this \
             machine or its network knows (built in). To allow it, add \"localhost:3001\" to `allowed_private_hosts` of [tools.web].",
        ),
        (
            "GET",
            "http://169.254.169.254/",
            "GET http://169.254.169.254 is refused: the rule that no request goes to private places: the host is the address of a metadata \
             service (built in). No key changes that.",
        ),
    ] {
        assert_eq!(refused(&reach, method, url), expected);
    }
    assert!(refused(&reach, &"X\u{1b}\n".repeat(1000), "https://example.com/").len() < 300);
    let nowhere = Reach { place: Origin::default(), ..reaching(&[], &[], &[]) };
    assert!(
        refused(&nowhere, "GET", "https://example.com/")
            .ends_with("write in berth.toml:\n[tools.web]\nallowed_domains = [\"example.com\"]")
    );
    let plugin = Reach { table: "plugins.x".to_owned(), ..reaching(&["a.com"], &[], &[]) };
    assert!(
        refused(&plugin, "GET", "https://b.com/")
            .ends_with("add \"b.com\" to `hosts` of [plugins.x].")
    );
}

#[test]
fn an_address_is_refused_for_what_it_is_whatever_led_to_it() {
    let reach = reaching(
        &["*"],
        &["8.8.4.4"],
        &["10.0.0.0/8:443", "0.0.0.0/8:443", "127.0.0.1:443", "169.254.0.0/16"],
    );
    let refused = |url: &str, address: &str, own: &[std::net::SocketAddr]| {
        let decided = reach.address(
            &Target::parse(url).expect("a URL"),
            address.parse().expect("an address"),
            own,
        );
        decided.map_err(|denial| denial.to_string())
    };
    assert_eq!(refused("https://a.com/", "10.0.0.1", &[]), Ok(()));
    assert_eq!(refused("https://a.com/", "8.8.8.8", &[]), Ok(()));
    assert_eq!(
        refused("https://a.com/", "192.168.1.1", &[]).expect_err("it is private"),
        "connect to 192.168.1.1 for https://a.com is refused: the rule that no request goes to private places: the address is private \
         (192.168.0.0/16) (built in). To allow it, add \"a.com:443\" to `allowed_private_hosts` of [tools.web]."
    );
    for address in ["169.254.169.254", "0.0.0.0", "::ffff:169.254.1.1", "8.8.4.4", "::ffff:8.8.4.4"]
    {
        assert!(refused("https://a.com/", address, &[]).is_err(), "{address}");
    }
    let own = |text: &str| [text.parse().expect("an address")];
    for (listening, address) in [
        ("127.0.0.1:443", "127.0.0.1"),
        ("0.0.0.0:443", "127.0.0.1"),
        ("0.0.0.0:443", "10.0.0.1"),
        ("[::]:443", "127.0.0.1"),
        ("127.0.0.1:443", "::ffff:127.0.0.1"),
    ] {
        let why =
            refused("https://a.com/", address, &own(listening)).expect_err("it is Berth's own");
        assert!(why.contains("where Berth listens"), "{listening} {address}: {why}");
    }
    assert_eq!(refused("https://a.com/", "127.0.0.1", &own("127.0.0.1:8443")), Ok(()));
    assert_eq!(refused("https://a.com/", "8.8.8.8", &own("0.0.0.0:443")), Ok(()));
}

#[test]
fn an_opened_private_host_may_be_asked_in_the_open_and_others_only_as_granted() {
    let reach = reaching(
        &["docs.rs", "http://old.example.com", "https://x.com:8443"],
        &["evil.com"],
        &["localhost:3000", "10.0.0.0/8"],
    );
    let decided = |reach: &Reach, method: &str, url: &str, approved: &[&str]| {
        let approved: Vec<String> = approved.iter().map(|origin| (*origin).to_owned()).collect();
        reach.request(&Target::parse(url).expect("a URL"), method, &approved).is_ok()
    };
    for url in [
        "https://docs.rs/",
        "http://old.example.com/",
        "https://x.com:8443/",
        "http://localhost:3000/",
        "http://10.1.1.1:1234/",
    ] {
        assert!(decided(&reach, "GET", url, &[]), "{url}");
    }
    for url in [
        "http://docs.rs/",
        "https://old.example.com/",
        "https://x.com/",
        "http://x.com:8443/",
        "https://other.com/",
        "https://evil.com/",
    ] {
        assert!(!decided(&reach, "GET", url, &[]), "{url}");
    }
    // What was decided on for a call is one origin, and undoes nothing that denies.
    assert!(decided(&reach, "POST", "https://other.com/", &["https://other.com"]));
    assert!(!decided(&reach, "GET", "https://other.com:8443/", &["https://other.com"]));
    assert!(!decided(&reach, "GET", "https://a.other.com/", &["https://other.com"]));
    for url in [
        "https://evil.com/",
        "http://other.com/",
        "https://127.0.0.1/",
        "https://metadata.google.internal/",
    ] {
        assert!(!decided(&reach, "GET", url, &[url.trim_end_matches('/')]), "{url}");
    }
    let kind = OriginKind::Ceiling("/etc/berth/ceiling.toml".to_owned());
    let ceiling = Placed { value: true, place: Origin { text: "the ceiling".into(), kind } };
    assert!(!decided(
        &Reach { https_only: ceiling, ..reach.clone() },
        "GET",
        "http://old.example.com/",
        &[]
    ));
    let mut of_methods = reach;
    of_methods.grants[0].value.methods = vec!["GET".to_owned()];
    assert!(
        decided(&of_methods, "GET", "https://docs.rs/", &[])
            && !decided(&of_methods, "POST", "https://docs.rs/", &[])
    );
    assert!(!decided(&of_methods, "get", "https://docs.rs/", &[]));
}

#[test]
fn in_the_open_localhost_is_this_machine() {
    let reach = reaching(&[], &[], &["localhost"]);
    let connects = |url: &str, address: &str| {
        reach.address(&Target::parse(url).expect("a URL"), address.parse().expect("one"), &[])
    };
    for address in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
        connects("http://localhost:3000/", address)
            .unwrap_or_else(|denial| panic!("{address}: {denial}"));
    }
    for address in ["10.0.0.1", "192.0.2.1", "1.1.1.1", "64:ff9b::7f00:1"] {
        let denial = connects("http://localhost:3000/", address).expect_err(address);
        assert_eq!(denial.rule, "the rule that `localhost` is this machine", "{address}");
    }
    // There a certificate says who it is.
    connects("https://localhost:3000/", "10.0.0.1").expect("it is opened");
}

#[test]
fn a_pattern_covers_what_is_narrower_and_nothing_else() {
    let host = |one: &str, other: &str| {
        HostPattern::new(one)
            .expect("it is one")
            .covers(&HostPattern::new(other).expect("it is one"))
    };
    for (wide, narrow) in [
        ("*", "*.a.example"),
        ("*", "10.0.0.1"),
        ("a.example", "A.Example."),
        ("bücher.example", "xn--bcher-kva.example"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
        ("*.a.example", "x.a.example"),
        ("*.a.example", "x.y.a.example"),
        ("*.a.example", "*.a.example"),
        ("*.a.example", "*.b.a.example"),
        ("*.a.example", "api-*.a.example"),
        ("api-*.a.example", "api-1.a.example"),
    ] {
        assert!(host(wide, narrow), "{wide} covers {narrow}");
    }
    for (one, other) in [
        ("*.a.example", "a.example"),
        ("*.a.example", "xa.example"),
        ("*.a.example", "*.b.example"),
        ("*.b.a.example", "api-*.a.example"),
        ("api-*.a.example", "*.a.example"),
        ("api-*.a.example", "apx-1.a.example"),
        ("*.a.example", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.2"),
    ] {
        assert!(!host(one, other), "{one} does not cover {other}");
    }
    let private = |one: &str, other: &str| {
        PrivateHosts::new(one)
            .expect("it is one")
            .covers(&PrivateHosts::new(other).expect("it is one"))
    };
    for (wide, narrow) in [
        ("localhost", "localhost:1"),
        ("10.0.0.0/8", "10.1.0.0/16:80"),
        ("10.0.0.0/8", "10.1.2.3:80"),
        ("*.lan", "nas.lan"),
        ("fd00::/8", "[fd00::1]:80"),
    ] {
        assert!(private(wide, narrow) && !private(narrow, wide), "{wide} covers {narrow}");
    }
    for (one, other) in [
        ("localhost:1", "localhost:2"),
        ("10.1.0.0/16", "10.2.0.0/16"),
        ("10.0.0.0/8", "nas.lan"),
        ("10.0.0.0/8:80", "10.1.2.3"),
    ] {
        assert!(!private(one, other) && !private(other, one), "{one} does not cover {other}");
    }
}
