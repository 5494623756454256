//! The targets of requests: spellings of hosts and addresses, patterns, and blocked addresses in
//! every spelling.

#[expect(
    unreachable_pub,
    dead_code,
    reason = "shared by several test programs, each of which uses a part"
)]
mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use toolhold_policy::egress::{
    Grant, HostPattern, PathPattern, PrivateHosts, Reach, Scheme, Target, TargetHost, forbidden,
};
use toolhold_policy::{Origin, OriginKind, Placed};

use support::{placed, reaching, table};

/// A reach that allows everything that isn't blocked.
fn reach_everything() -> Reach {
    let mut grants: Vec<_> = Vec::new();
    for written in ["https://*", "http://*"] {
        let grant = Grant::new(written).expect("a grant");
        grants.extend([grant.clone(), Grant { port: Some(443), ..grant }].map(placed));
    }
    Reach { grants, https_only: placed(false), ..reaching(&[], &[], &[]) }
}

/// Whether a request passes, up to its connection: by its URL, and by the address that it has or
/// that its name resolves to. Every port is granted here.
fn passes(reach: &Reach, url: &str, resolves_to: Option<IpAddr>) -> Result<Target, String> {
    let target = Target::parse(url).map_err(|error| error.to_string())?;
    reach.request(&target, "GET", "/", &[target.origin()]).map_err(|denial| denial.to_string())?;
    if let Some(address) = target.host.address().or(resolves_to) {
        reach.address(&target, address, &[]).map_err(|denial| denial.to_string())?;
    }
    Ok(target)
}

/// The rows of a table, each with its heading. Escapes are decoded.
fn rows(table: &'static str) -> impl Iterator<Item = (&'static str, String, Option<&'static str>)> {
    let mut heading = "";
    table.lines().filter_map(move |line| match line.strip_prefix('#') {
        Some(rest) => {
            heading = rest.strip_prefix("# ").unwrap_or(heading);
            None
        }
        // Empty lines separate sections. They aren't rows.
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
fn blocked_targets_are_refused_in_every_spelling() {
    let (reach, mut count, mut missed) = (reach_everything(), 0, Vec::new());
    for (what, url, resolves_to) in rows(include_str!("egress/forbidden.txt")) {
        let resolves_to = resolves_to.map(|address| address.parse().expect("an address"));
        let passed = passes(&reach, &url, resolves_to);
        match passed {
            Ok(target) => missed.push(format!("{what}: {url:?} passes as {target}")),
            Err(why) => assert!(why.len() < 1024, "{what}: {why}"),
        }
        count += 1;
    }
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(count >= 150, "only {count} rows");
}

#[test]
fn allowed_targets_pass_in_their_normal_form() {
    let (reach, mut count) = (reach_everything(), 0);
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
    assert!(count >= 150, "only {count} rows");
}

/// Addresses of version 4 that are surely special, computed independently of the table of the
/// rules.
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

/// Blocked addresses, evenly distributed over the ranges.
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

/// An address of version 4 in each form that it can have in a URL.
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
    fn blocked_address_is_refused_in_every_spelling(address in forbidden_v4(), form in 0..FORMS, zeros in 0..4_usize, port in any::<bool>()) {
        let url = format!("https://{}{}/", spelled(address, form, zeros), if port { ":443" } else { "" });
        let passed = passes(&reach_everything(), &url, None);
        prop_assert!(passed.is_err(), "{address} as {url} passes as {passed:?}");
    }

    #[test]
    fn address_that_can_not_be_opened_stays_blocked_in_every_spelling(form in 11..FORMS) {
        for address in [Ipv4Addr::new(169, 254, 169, 254), Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)] {
            let url = format!("http://{}/", spelled(address, form, 0));
            let ranges = ["10.0.0.0/8", "168.0.0.0/8", "100.0.0.0/8", "169.0.0.0/8", "::/7", "2000::/7", "fc00::/7", "*.example.com"];
            let opened = Reach { private: ranges.iter().filter_map(|range| PrivateHosts::new(range).ok()).map(placed).collect(), ..reach_everything() };
            prop_assert!(passes(&opened, &url, None).is_err(), "{url}");
            let Ok(Target { host: TargetHost::Address(resolves_to), .. }) = Target::parse(&url) else { continue };
            prop_assert!(passes(&opened, "http://a.example.com/", Some(resolves_to)).is_err(), "{resolves_to}");
        }
    }

    #[test]
    fn special_addresses_are_blocked_in_both_versions(bits in any::<u32>()) {
        let address = Ipv4Addr::from_bits(bits);
        prop_assert!(!surely_forbidden(address) || forbidden(address.into()).is_some(), "{address}");
        prop_assert_eq!(forbidden(address.into()), forbidden(address.to_ipv6_mapped().into()));
    }

    #[test]
    fn only_assigned_addresses_of_version_six_pass(bits in any::<u128>(), assigned in any::<bool>()) {
        let address = Ipv6Addr::from_bits(if assigned { bits >> 3 | 1 << 125 } else { bits });
        if forbidden(address.into()).is_none() {
            let [first, second, ..] = address.segments();
            prop_assert!(first & 0xe000 == 0x2000 || first == 0x64 && second == 0xff9b || address.to_ipv4_mapped().is_some(), "{address}");
        }
    }

    #[test]
    fn any_text_is_read_without_panic_and_reads_back_equal(text in "\\PC{0,80}|[a-z0-9.:/@%\\[\\]\\\\?#* -]{0,60}") {
        for text in [text.clone(), format!("https://{text}"), format!("http://{text}/")] {
            if let Ok((target, url)) = Target::with_url(&text) {
                let shown = target.to_string();
                prop_assert_eq!(Target::parse(&shown), Ok(target.clone()), "{}", &text);
                prop_assert_eq!(Target::with_url(&url), Ok((target.clone(), url.clone())), "{}", &text);
                // Other URL parsers read the same target from the URL.
                let parsed = url::Url::parse(&text).expect("a URL");
                let host = parsed.host_str().expect("a host");
                let host = host.strip_suffix('.').unwrap_or(host);
                let is_mapped = matches!(parsed.host(), Some(url::Host::Ipv6(address)) if address.to_ipv4_mapped().is_some());
                prop_assert!(is_mapped || host == target.host.to_string(), "{text}: {host} is {}", target.host);
                prop_assert_eq!(parsed.port_or_known_default(), Some(target.port));
                prop_assert!(parsed.username().is_empty() && parsed.password().is_none());
                let built: http::Uri = url.parse().expect("a URI");
                prop_assert_eq!(built.authority().map(ToString::to_string), Some(target.authority()));
            }
            let (pattern, private) = (HostPattern::new(&text), PrivateHosts::new(&text));
            prop_assert!(pattern.is_err() || HostPattern::new(pattern.as_ref().expect("a valid one").as_str()) == pattern);
            prop_assert!(private.is_err() || PrivateHosts::new(private.as_ref().expect("a valid one").as_str()) == private);
        }
    }
}

/// Checks that a pattern matches some hosts, and doesn't match others.
#[track_caller]
fn check_pattern(pattern: &str, matching: &[&str], others: &[&str]) {
    let parsed = HostPattern::new(pattern).expect("a pattern");
    let host = |text: &&str| Target::parse(&format!("https://{text}/")).expect("a host").host;
    for (hosts, expected) in [(matching, true), (others, false)] {
        for text in hosts {
            assert_eq!(parsed.matches(&host(text)), expected, "{pattern} and {text}");
        }
    }
}

#[test]
fn patterns_match_exactly_their_hosts() {
    check_pattern(
        "example.com",
        &["example.com", "EXAMPLE.com."],
        &["a.example.com", "example.org", "xexample.com", "example.com.evil.org"],
    );
    check_pattern(
        "*.example.com",
        &["a.example.com", "a.b.example.com"],
        &["example.com", "xexample.com", "example.com.evil.org", "127.0.0.1"],
    );
    check_pattern("*", &["example.com", "8.8.8.8", "[::1]", "localhost"], &[]);
    check_pattern("*.zip", &["a.zip", "a.b.zip"], &["zip", "azip.com"]);
    check_pattern(
        "api-*.example.com",
        &["api-1.example.com", "api-.example.com"],
        &["api.example.com", "x.api-1.example.com", "api-1.x.example.com"],
    );
    check_pattern(
        "*.eu-*.example.com",
        &["a.eu-1.example.com", "a.b.eu-1.example.com"],
        &["eu-1.example.com", "a.us.example.com"],
    );
    check_pattern(
        "a.*.example.com",
        &["a.x.example.com"],
        &["a.x.y.example.com", "a.example.com", "b.x.example.com"],
    );
    check_pattern("**.example.com", &["a.example.com"], &["example.com", "a.b.example.com"]);
    check_pattern("*.MÜNCHEN.de", &["a.xn--mnchen-3ya.de", "a.münchen.de"], &["münchen.de"]);
    check_pattern(
        "8.8.8.8",
        &["8.8.8.8", "0x08080808", "[::ffff:8.8.8.8]", "[64:ff9b::8.8.8.8]"],
        &["8.8.8.9", "8.8.8.8.example.com"],
    );
    check_pattern("0x08080808", &["8.8.8.8"], &[]);
    check_pattern("2606:4700::1", &["[2606:4700:0::1]"], &["[2606:4700::2]"]);
    check_pattern("[2606:4700::1]", &["[2606:4700::1]"], &[]);
}

#[track_caller]
fn check_error(result: Result<impl std::fmt::Debug, impl std::error::Error>, expected: &str) {
    let why = result.expect_err("an error").to_string();
    assert!(why.contains(expected), "{why}");
}

#[test]
fn error_of_a_pattern_says_what_to_write() {
    for (written, expected) in [
        (
            "*example.com",
            "write `*.example.com` for all names below example.com, and `example.com` for example.com itself",
        ),
        ("https://example.com/x", "not a URL: write `example.com`"),
        ("example.com/path", "without a path: write `example.com`"),
        ("example.com:8080", "without the port `8080`: write `example.com`"),
        ("10.0.0.0/8", "only valid in `allowed_private_hosts`"),
        ("user@example.com", "a user name or password isn't allowed"),
        ("example.*", "`*` isn't allowed in the last two parts"),
        ("ex*.com", "`*` isn't allowed in the last two parts"),
        ("*.*", "`*` isn't allowed in the last two parts"),
        ("", "the pattern is empty"),
        ("a b.com", "the character ' ', which isn't allowed"),
        ("a..com", "is empty"),
        ("a!.com", "'!' isn't allowed in a name"),
        ("*.0.0.1", "isn't a valid host pattern"),
    ] {
        check_error(HostPattern::new(written), expected);
    }
    check_error(HostPattern::new(&"a".repeat(300)), "the limit is 260");
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

/// Whether an entry for private hosts opens an address of a target.
#[track_caller]
fn opens(private: &str, url: &str, address: &str) -> bool {
    let private = PrivateHosts::new(private).unwrap_or_else(|why| panic!("{why}"));
    private.opens(&Target::parse(url).expect("a URL"), address.parse().expect("an address"))
}

#[test]
fn entry_opens_exactly_its_private_hosts() {
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
    // No entry opens an address of a metadata service.
    assert!(!opens("*.corp.example.com", "https://wiki.corp.example.com/", "169.254.169.254"));
    assert!(!opens("fc00::/7", "https://[fd00:ec2::254]/", "fd00:ec2::254"));
    assert!(!opens("100.64.0.0/10", "https://100.100.100.200/", "100.100.100.200"));
    for (written, expected) in [
        ("*", "every private host"),
        ("0.0.0.0/0", "wider than /8"),
        ("::/0", "wider than /7"),
        ("10.0.0.1/8", "write `10.0.0.0/8`"),
        ("10.0.0.0/33", "is written as `10.0.0.0/8`"),
        ("localhost:0", "ports are numbers from 1 to 65535"),
        ("localhost:http", "ports are numbers from 1 to 65535"),
        ("http://localhost:3000/", "not a URL: write `localhost:3000`"),
        ("169.254.169.254", "can't be opened"),
        ("[::ffff:169.254.169.254]:80", "can't be opened"),
        ("metadata.google.internal", "can't be opened"),
        ("localhost/x", "is written as"),
        ("[::1", "isn't a valid host pattern"),
        ("[::1]x", "may follow `]`"),
    ] {
        check_error(PrivateHosts::new(written), expected);
    }
}

/// The text of the refusal of a request.
#[track_caller]
fn refused(reach: &Reach, method: &str, url: &str) -> String {
    reach
        .request(&Target::parse(url).expect("a URL"), method, "/", &[])
        .expect_err("a refusal")
        .to_string()
}

#[test]
fn refusal_names_rule_place_and_remedy() {
    let reach = reaching(
        &["docs.rs", "https://api.example.com:8443"],
        &["*.evil.com"],
        &["localhost:3000"],
    );
    for (method, url, expected) in [
        (
            "GET",
            "https://example.com/x?token=1",
            "GET https://example.com is denied: allowed_domains, which doesn't have this host (here). To allow it, add \"example.com\" to \
             `allowed_domains` in [tools.web] of toolhold.toml.",
        ),
        (
            "GET",
            "https://docs.rs:8443/",
            "GET https://docs.rs:8443 is denied: allowed_domains, which has this host with another port or scheme (here). To allow it, add \
             \"docs.rs:8443\" to `allowed_domains` in [tools.web] of toolhold.toml.",
        ),
        (
            "GET",
            "http://docs.rs/",
            "GET http://docs.rs is denied: https_only = true (here). Use https; or, to allow http, set `https_only = false` in \
             [tools.web] of toolhold.toml.",
        ),
        (
            "POST",
            "https://a.evil.com/",
            "POST https://a.evil.com is denied: denied_domains = \"*.evil.com\" (here). To allow it, remove \"*.evil.com\" from \
             `denied_domains`.",
        ),
        (
            "GET",
            "http://localhost:3001/",
            "GET http://localhost:3001 is denied: private addresses are blocked: the host is a name that only this \
             machine or its network knows (built in). To allow it, add \"localhost:3001\" to `allowed_private_hosts` in [tools.web] of toolhold.toml.",
        ),
        (
            "GET",
            "http://169.254.169.254/",
            "GET http://169.254.169.254 is denied: private addresses are blocked: the host is the address of a metadata \
             service (built in). No configuration key can change this.",
        ),
    ] {
        assert_eq!(refused(&reach, method, url), expected);
    }
    assert!(refused(&reach, &"X\u{1b}\n".repeat(1000), "https://example.com/").len() < 300);
    let without_grants = Reach { place: Origin::default(), ..reaching(&[], &[], &[]) };
    assert!(
        refused(&without_grants, "GET", "https://example.com/")
            .ends_with("write in toolhold.toml:\n[tools.web]\nallowed_domains = [\"example.com\"]")
    );
    let plugin = Reach { table: table("plugins.x"), ..reaching(&["a.com"], &[], &[]) };
    assert!(
        refused(&plugin, "GET", "https://b.com/")
            .ends_with("add \"b.com\" to `hosts` in [plugins.x] of toolhold.toml.")
    );
}

#[test]
fn blocked_address_is_refused_for_every_name() {
    let reach = reaching(
        &["*"],
        &["8.8.4.4"],
        &["10.0.0.0/8:443", "0.0.0.0/8:443", "127.0.0.1:443", "169.254.0.0/16"],
    );
    let refused = |url: &str, address: &str, own: &[std::net::SocketAddr]| {
        let result = reach.address(
            &Target::parse(url).expect("a URL"),
            address.parse().expect("an address"),
            own,
        );
        result.map_err(|denial| denial.to_string())
    };
    assert_eq!(refused("https://a.com/", "10.0.0.1", &[]), Ok(()));
    assert_eq!(refused("https://a.com/", "8.8.8.8", &[]), Ok(()));
    assert_eq!(
        refused("https://a.com/", "192.168.1.1", &[]).expect_err("a private address"),
        "connect to 192.168.1.1 for https://a.com is denied: private addresses are blocked: the address is private \
         (192.168.0.0/16) (built in). To allow it, add \"a.com:443\" to `allowed_private_hosts` in [tools.web] of toolhold.toml."
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
        let why = refused("https://a.com/", address, &own(listening))
            .expect_err("an address of Toolhold");
        assert!(why.contains("where Toolhold listens"), "{listening} {address}: {why}");
    }
    assert_eq!(refused("https://a.com/", "127.0.0.1", &own("127.0.0.1:8443")), Ok(()));
    assert_eq!(refused("https://a.com/", "8.8.8.8", &own("0.0.0.0:443")), Ok(()));
}

#[test]
fn opened_private_host_may_use_http_and_others_as_granted() {
    let reach = reaching(
        &["docs.rs", "http://old.example.com", "https://x.com:8443"],
        &["evil.com"],
        &["localhost:3000", "10.0.0.0/8"],
    );
    let is_granted = |reach: &Reach, method: &str, url: &str, approved: &[&str]| {
        let approved: Vec<String> = approved.iter().map(|origin| (*origin).to_owned()).collect();
        reach.request(&Target::parse(url).expect("a URL"), method, "/", &approved).is_ok()
    };
    for url in [
        "https://docs.rs/",
        "http://old.example.com/",
        "https://x.com:8443/",
        "http://localhost:3000/",
        "http://10.1.1.1:1234/",
    ] {
        assert!(is_granted(&reach, "GET", url, &[]), "{url}");
    }
    for url in [
        "http://docs.rs/",
        "https://old.example.com/",
        "https://x.com/",
        "http://x.com:8443/",
        "https://other.com/",
        "https://evil.com/",
    ] {
        assert!(!is_granted(&reach, "GET", url, &[]), "{url}");
    }
    // An approved origin is exactly one origin, and doesn't change a denial.
    assert!(is_granted(&reach, "POST", "https://other.com/", &["https://other.com"]));
    assert!(!is_granted(&reach, "GET", "https://other.com:8443/", &["https://other.com"]));
    assert!(!is_granted(&reach, "GET", "https://a.other.com/", &["https://other.com"]));
    for url in [
        "https://evil.com/",
        "http://other.com/",
        "https://127.0.0.1/",
        "https://metadata.google.internal/",
    ] {
        assert!(!is_granted(&reach, "GET", url, &[url.trim_end_matches('/')]), "{url}");
    }
    let kind = OriginKind::Ceiling("/etc/toolhold/ceiling.toml".to_owned());
    let ceiling = Placed { value: true, place: Origin { text: "the ceiling".into(), kind } };
    assert!(!is_granted(
        &Reach { https_only: ceiling, ..reach.clone() },
        "GET",
        "http://old.example.com/",
        &[]
    ));
    let mut with_methods = reach;
    with_methods.grants[0].value.methods = vec!["GET".to_owned()];
    assert!(
        is_granted(&with_methods, "GET", "https://docs.rs/", &[])
            && !is_granted(&with_methods, "POST", "https://docs.rs/", &[])
    );
    assert!(!is_granted(&with_methods, "get", "https://docs.rs/", &[]));
}

#[test]
fn localhost_over_http_has_to_be_a_loopback_address() {
    let reach = reaching(&[], &[], &["localhost"]);
    let connects = |url: &str, address: &str| {
        reach.address(
            &Target::parse(url).expect("a URL"),
            address.parse().expect("an address"),
            &[],
        )
    };
    for address in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
        connects("http://localhost:3000/", address)
            .unwrap_or_else(|denial| panic!("{address}: {denial}"));
    }
    for address in ["10.0.0.1", "192.0.2.1", "1.1.1.1", "64:ff9b::7f00:1"] {
        let denial = connects("http://localhost:3000/", address).expect_err(address);
        assert_eq!(denial.rule, "the address of `localhost` has to be this machine", "{address}");
    }
    // With https, a certificate proves which host it is.
    connects("https://localhost:3000/", "10.0.0.1").expect("an opened address");
}

#[test]
fn pattern_covers_narrower_patterns_only() {
    let host = |one: &str, other: &str| {
        HostPattern::new(one)
            .expect("a valid one")
            .covers(&HostPattern::new(other).expect("a valid one"))
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
            .expect("a valid one")
            .covers(&PrivateHosts::new(other).expect("a valid one"))
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

#[test]
fn entry_with_methods_and_paths_grants_nothing_else() {
    let paths = ["/repos/me/**", "/user"].map(|path| PathPattern::new(path).expect("a pattern"));
    let grant = |host: &str| Grant {
        methods: vec!["GET".to_owned()],
        paths: paths.to_vec(),
        ..Grant::new(host).expect("a grant")
    };
    let mut reach = reaching(&["docs.rs"], &[], &["nas.lan:443"]);
    reach.grants.extend(["api.example.com", "nas.lan"].map(|host| placed(grant(host))));
    for host in ["api.example.com", "nas.lan"] {
        let target = Target::parse(&format!("https://{host}/")).expect("a URL");
        for (method, path, is_granted) in [
            ("GET", "/repos/me/x?y=z", true),
            ("GET", "/user", true),
            ("GET", "/repos/you/x", false),
            ("GET", "/repos/me/%2e%2e/you", false),
            ("POST", "/user", false),
            ("CONNECT", "", false),
        ] {
            let granted = reach.request(&target, method, path, &[]).is_ok();
            assert_eq!(granted, is_granted, "{host}: {method} {path}");
        }
        assert!(reach.limits_requests(&target) && reach.connection(&target).is_ok(), "{host}");
        let denial = reach.request(&target, "GET", "/x", &[]).expect_err("a denial");
        assert!(denial.rule.contains("other paths"), "{denial}");
        // A person can approve such a request.
        assert!(reach.request(&target, "POST", "/x", &[target.origin()]).is_ok(), "{host}");
        // A second entry for all requests takes precedence.
        let mut wider = reach.clone();
        wider.grants.push(placed(Grant::new(host).expect("a grant")));
        assert!(wider.request(&target, "POST", "/x", &[]).is_ok(), "{host}");
        assert!(!wider.limits_requests(&target), "{host}");
    }
    let unlimited = Target::parse("https://docs.rs/").expect("a URL");
    assert!(!reach.limits_requests(&unlimited));
}

#[test]
fn entry_of_programs_grants_its_own_port_and_protocol_only() {
    let mut reach = support::reach("tools.shell");
    reach.add_entry(placed(Grant::new("https://git.corp").expect("a grant")));
    let limited = Grant {
        methods: vec!["GET".to_owned()],
        ..Grant::new("https://nas.lan").expect("a grant")
    };
    reach.add_entry(placed(limited));
    for entry in ["registry.corp", "db.corp:5432", "a.example", "http://a.example:8080"] {
        reach.add_entry(placed(Grant::new(entry).expect("a grant")));
    }
    for (url, method, is_granted) in [
        ("https://git.corp/", "POST", true),
        ("https://git.corp:8443/", "POST", false),
        ("http://git.corp/", "POST", false),
        ("https://nas.lan/", "GET", true),
        ("https://nas.lan/", "POST", false),
        ("https://nas.lan:8443/", "POST", false),
        ("http://nas.lan/", "GET", false),
        ("https://registry.corp/", "POST", true),
        ("http://registry.corp/", "POST", false),
        ("https://db.corp:5432/", "POST", true),
        ("http://db.corp:5432/", "POST", true),
        ("https://a.example/", "POST", true),
        ("http://a.example:8080/", "POST", true),
        ("http://a.example/", "POST", false),
    ] {
        let target = Target::parse(url).expect("a URL");
        assert_eq!(reach.request(&target, method, "/", &[]).is_ok(), is_granted, "{url} {method}");
    }
}
