//! Where requests may go, and the secrets that they carry.

use serde_json::json;
use toolhold_net::{SecretSource, Settings};
use toolhold_policy::egress::{Placement, Scheme, Target};

use super::*;

/// A secret that was written in place of its source.
const PASTED: &str = "ghp_Z9y8X7w6V5u4T3s2R1q0P9o8N7m6L5k4J3h2";

impl Scene {
    fn web(&self, text: &str) -> Settings {
        self.load(text).egress_of_web(&self.folders, &self.work).expect("the settings are valid")
    }

    fn plugin(&self, text: &str) -> Option<Settings> {
        self.load(text)
            .egress_of_plugin("x", &self.folders, &self.work)
            .expect("the settings are valid")
    }
}

/// A grant, as `scheme host port methods`.
fn shown(settings: &Settings) -> Vec<String> {
    let grants = settings.reach.grants.iter().map(|grant| {
        let grant = &grant.value;
        let scheme =
            grant.scheme.map(|scheme| if scheme == Scheme::Http { "http" } else { "https" });
        format!(
            "{} {} {:?} {}",
            scheme.unwrap_or("-"),
            grant.hosts.as_str(),
            grant.port,
            grant.methods.join(",")
        )
    });
    grants.collect()
}

#[test]
fn default_reaches_nothing_without_approval() {
    let scene = Scene::new();
    let web = scene.web("");
    assert!(
        web.reach.grants.is_empty()
            && web.reach.private.is_empty()
            && web.reach.denied.is_empty()
            && web.reach.https_only.value
    );
    assert_eq!(
        (web.limits.time.as_secs(), web.limits.body, web.limits.requests, web.limits.concurrent),
        (15, 1 << 20, 100, 8)
    );
    assert_eq!(scene.load("").values.tools.web.other_domains, OtherDomains::Ask);
    assert!(
        scene.plugin("").is_none()
            && scene.plugin("[plugins.x]\nnetwork = true\nsecrets = {}").is_none()
    );
}

#[test]
fn hosts_can_be_written_in_several_ways() {
    let scene = Scene::new();
    let hosts = |list: &str| {
        shown(&scene.plugin(&format!("[plugins.x]\nhosts = [{list}]")).expect("a host is granted"))
    };
    assert_eq!(hosts("'api.example.com'"), ["- api.example.com None "]);
    assert_eq!(hosts("'https://*.example.com:8443'"), ["https *.example.com Some(8443) "]);
    assert_eq!(hosts("'HTTP://example.com'"), ["http example.com None "]);
    assert_eq!(hosts("'example.com:8443'"), ["- example.com Some(8443) "]);
    assert_eq!(
        hosts(
            "{ host = '*.example.com', port = 8443, methods = ['get', 'HEAD'], scheme = 'https' }"
        ),
        ["https *.example.com Some(8443) GET,HEAD"]
    );
    for (written, expected) in [
        ("'ftp://example.com'", "the scheme isn't https or http"),
        ("'https://example.com/path'", "without a path"),
        ("'user@example.com'", "without a path, a query and a user name"),
        ("'example.com:0'", "ports are numbers from 1 to 65535"),
        ("'example.com:99999'", "ports are numbers from 1 to 65535"),
        ("{ host = 'example.com', method = ['GET'] }", "unknown field `method`"),
        ("{ host = 'example.com', methods = ['CONNECT'] }", "CONNECT and TRACE are never sent"),
        ("{ host = 'example.com', methods = ['GE T'] }", "a method isn't valid"),
        ("{ host = 'example.com', methods = ['FOO'] }", "a method isn't valid"),
        ("{ port = 1 }", "missing field `host`"),
        ("5", "a host, as in"),
    ] {
        scene.assert_refused(
            &format!("[plugins.x]\nhosts = [{written}]"),
            &["/toolhold.toml:2: ", expected],
        );
        scene.assert_refused(
            &format!("[tools.web]\nallowed_domains = [{written}]"),
            &["/toolhold.toml:2: ", expected],
        );
    }
}

#[test]
fn host_grant_is_serialized_as_it_was_written() {
    for written in [
        json!("example.com"),
        json!("https://*.example.com:8443"),
        json!({ "host": "example.com", "methods": ["GET"] }),
    ] {
        let grant: HostGrant = serde_json::from_value(written.clone()).expect("it can be read");
        assert_eq!(serde_json::to_value(&grant).expect("it can be written"), written);
    }
}

#[test]
fn every_entry_has_its_line() {
    let scene = Scene::new();
    let text = "[tools.web]\nallowed_domains = [\n'a.example',\n'b.example']\ndenied_domains = ['c.example']\n\
                other_domains = 'allow'\nallowed_private_hosts = ['localhost:3000']\nhttps_only = false\n";
    let Settings { reach, .. } = scene.web(text);
    let file = scene.folders.config_file();
    let place = |line| format!("[tools.web] in {}, line {line}", file.display());
    let grants: Vec<_> = reach.grants.iter().map(|grant| grant.place.text.to_string()).collect();
    assert_eq!(grants, [place(3), place(4), place(6)]);
    assert_eq!(
        (reach.denied[0].place.text.to_string(), reach.private[0].place.text.to_string()),
        (place(5), place(7))
    );
    assert_eq!(
        (reach.https_only.place.text.to_string(), reach.place.text.to_string()),
        (place(8), place(2))
    );
    assert_eq!(reach.grants[2].value.hosts.as_str(), "*");
}

#[test]
fn denied_domains_hold_for_plugins_too() {
    let scene = Scene::new();
    let text = "[tools.web]\ndenied_domains = ['evil.example']\nallowed_private_hosts = ['localhost']\n[plugins.x]\nhosts = ['a.example']\n";
    let settings = scene.plugin(text).expect("a host is granted");
    assert_eq!(settings.reach.denied[0].value.as_str(), "evil.example");
    // A private host of the built-in tools isn't granted to a plugin.
    assert!(settings.reach.private.is_empty());
}

#[test]
fn hosts_of_a_server_are_public_or_opened_by_their_own_entry() {
    let scene = Scene::new();
    let settings = |keys: &str| {
        let text = format!(
            "[tools.web]\ndenied_domains = ['evil.example']\nallowed_private_hosts = ['nas.lan']\n\
             [mcp.servers.x]\ncommand = 'x'\n{keys}\n"
        );
        scene
            .load(&text)
            .egress_of_server("x", &scene.folders, &scene.work)
            .expect("the settings are valid")
    };
    let hosts = settings("hosts = ['a.example.org', 'db.corp:5432', 'http://b.example.org']")
        .expect("hosts are granted");
    assert_eq!(
        shown(&hosts),
        ["- a.example.org None ", "- db.corp Some(5432) ", "http b.example.org None "]
    );
    assert_eq!(hosts.reach.denied[0].value.as_str(), "evil.example");
    // The private host of the built-in tools isn't granted to a server.
    let private: Vec<&str> = hosts.reach.private.iter().map(|one| one.value.as_str()).collect();
    assert_eq!(private, ["db.corp:5432"]);
    assert!(hosts.secrets.is_empty() && !hosts.reach.job_servers);
    for keys in ["", "hosts = []", "network = true"] {
        assert!(settings(keys).is_none(), "{keys}");
    }
}

#[test]
fn hosts_of_a_server_exclude_the_whole_network_and_a_url() {
    let scene = Scene::new();
    for (keys, why) in [
        ("command = 'x'\nnetwork = true", "has both `network = true`"),
        ("url = 'https://b.example'", "`hosts` is for servers with `command`"),
    ] {
        let text = format!("[mcp.servers.x]\nhosts = ['a.example']\n{keys}\n");
        scene.assert_refused(&text, &["[mcp.servers.x] ", why]);
    }
}

#[test]
fn servers_of_jobs_are_for_the_web_tools_and_only_if_the_operator_says_so() {
    let scene = Scene::new();
    assert!(!scene.web("").reach.job_servers);
    assert!(!scene.web("[tools.web]\nallowed_domains = ['*', 'job:80']\n").reach.job_servers);
    let text =
        "[tools.web]\nallowed_domains = ['a.example', 'job']\n[plugins.x]\nhosts = ['a.example']\n";
    let reach = scene.web(text).reach;
    assert!(reach.job_servers && reach.grants.len() == 1, "the word isn't a host: {reach:?}");
    assert!(!scene.plugin(text).expect("a host is granted").reach.job_servers);
    let plugin = scene.load("[plugins.x]\nhosts = ['a.example', 'job']\n");
    let refused = plugin.egress_of_plugin("x", &scene.folders, &scene.work);
    let told = refused.expect_err("plugins reach no jobs").to_string();
    assert!(told.contains("only commands and web tools"), "{told}");
}

#[test]
fn word_for_jobs_alone_lets_no_command_into_the_network() {
    let scene = Scene::new();
    let settings = |hosts: &str| {
        let loaded = scene.load(&format!("[tools.shell]\nhosts = [{hosts}]\n"));
        let settings = loaded.egress_of_shell(&scene.folders, &scene.work);
        settings.expect("the settings are valid")
    };
    let alone = settings("'job'").expect("a person is asked about hosts").reach;
    assert!(!alone.job_servers && alone.grants.is_empty(), "{alone:?}");
    let reach = settings("'job', 'a.example'").expect("a host is granted").reach;
    assert!(!reach.job_servers && reach.grants.len() == 1, "{reach:?}");
}

#[test]
fn lower_limit_counts() {
    let scene = Scene::new();
    let bounds = |text: &str| {
        let limits = scene.web(text).limits;
        (limits.time.as_secs(), limits.body >> 10)
    };
    assert_eq!(bounds("[tools.web]\ntimeout = 60\nmax_body_kib = 65536"), (30, 10 << 10));
    assert_eq!(
        bounds("[tools.web]\ntimeout = 60\n[tools.limits]\nrequest_secs = 90\nresponse_mib = 1"),
        (60, 1 << 10)
    );
    let plugin = scene
        .plugin("[plugins.x]\nhosts = ['a.example']\nlimits.request_secs = 5\nlimits.requests = 7")
        .expect("a host is granted")
        .limits;
    assert_eq!((plugin.time.as_secs(), plugin.requests, plugin.body >> 20), (5, 7, 10));
}

#[test]
fn secret_has_a_source_and_a_destination() {
    let scene = Scene::new();
    let text = "[tools.web.secrets]\n\
                a = { env = 'A_TOKEN', hosts = ['a.example'] }\n\
                b = { file = 'token', hosts = ['*.b.example'], methods = ['get'], paths = ['/v1'], header = 'X-Api-Key' }\n\
                c = { command = ['pass', 'show', 'c'], hosts = ['c.example'], query = 'key' }\n\
                d = { command = ['~/bin/ask'], hosts = ['d.example'], header = 'Authorization', prefix = 'Token ' }\n";
    scene.write(text);
    let inputs = inputs(&[("A_TOKEN", "first"), ("A_TOKEN", "the-last-counts")], &[]);
    let loaded = load(&scene.folders, &inputs).expect("it is valid");
    let secrets =
        loaded.egress_of_web(&scene.folders, &scene.work).expect("the settings are valid").secrets;
    let header = |name: &str, prefix: &str| Placement::Header {
        name: name.to_owned(),
        prefix: prefix.to_owned(),
    };
    let places: Vec<_> = secrets.iter().map(|secret| secret.rule.placement.clone()).collect();
    let query = Placement::Query { name: "key".to_owned() };
    let bearer = header("authorization", "Bearer ");
    assert_eq!(places, [bearer, header("x-api-key", ""), query, header("authorization", "Token ")]);
    assert_eq!(
        (secrets[1].rule.methods.join(","), secrets[1].rule.paths.join(",")),
        ("GET".to_owned(), "/v1".to_owned())
    );
    let SecretSource::Variable { value: Some(value), .. } = &secrets[0].source else {
        panic!("{:?}", secrets[0].source)
    };
    assert_eq!(value.expose(), "the-last-counts");
    assert!(
        matches!(&secrets[1].source, SecretSource::File(path) if *path == scene.folders.config.join("token"))
    );
    assert!(
        matches!(&secrets[2].source, SecretSource::Command(words) if *words == ["pass", "show", "c"])
    );
    let ask = scene.folders.home.as_ref().expect("there is a home").join("bin/ask");
    assert!(
        matches!(&secrets[3].source, SecretSource::Command(words) if *words == [ask.to_str().expect("UTF-8")])
    );
    // Tools can't read the file and can't write the program.
    let own = loaded.own_paths(&scene.folders, &scene.work);
    let is_secret = |path: &Path| own.iter().find(|own| own.path == path).map(|own| own.secret);
    assert_eq!(
        (is_secret(&scene.folders.config.join("token")), is_secret(&ask)),
        (Some(true), Some(false))
    );
}

#[test]
fn secret_with_missing_or_duplicate_keys_is_refused() {
    let scene = Scene::new();
    let check = |table: &str, expected: &str| {
        for at in ["tools.web.secrets.x", "plugins.p.secrets.x"] {
            scene.assert_refused(
                &format!("\n[{at}]\n{table}"),
                &["/toolhold.toml:", &expected.replace('@', at)],
            );
        }
    };
    check(
        "hosts = ['a.example']",
        "[@] names no source of the secret; set `env`, `file` or `command`",
    );
    check(
        "env = 'A'\nfile = 'b'\nhosts = ['a.example']",
        "[@] has more than one source: env, file; keep only one",
    );
    check("env = 'A'", "[@] names no host for the secret");
    for (host, expected) in [
        ("*", "would send the secret to every host"),
        ("*.com", "at least two parts of a name"),
        ("com", "add the port"),
        ("a.example:99999", "ports are numbers from 1 to 65535"),
    ] {
        check(&format!("env = 'A'\nhosts = ['a.example', '{host}']"), expected);
    }
    check(
        "env = 'A'\nhosts = ['a.example']\nquery = 'q'\nheader = 'X'",
        "into a header and into the query; keep only one",
    );
    check(
        "keyring.service = 's'\nkeyring.account = 'a'\nhosts = ['a.example']",
        "write `command = [\"secret-tool\", \"lookup\", \"service\", \"SERVICE\", \"account\", \"ACCOUNT\"]`",
    );
    check(
        "env = 'A'\nhosts = ['a.example']\nheader = 'Host'",
        "headers of the transport, such as Connection, can't be set",
    );
    check("env = 'A'\nhosts = ['a.example']\nheader = 'X Y'", "takes the name of a header");
    check(
        "env = 'A'\nhosts = ['a.example']\nprefix = \"a\\r\\nX: \"",
        "takes the text before the secret",
    );
    check("env = 'A'\nhosts = ['a.example']\nquery = 'a&b'", "takes the name of a parameter");
    check("env = 'A'\nhosts = ['a.example']\npaths = ['v1']", "takes the start of a path");
    check("env = 'A'\nhosts = ['a.example']\npaths = ['/v1/../x']", "takes the start of a path");
    scene.assert_refused(
        "[tools.web.secrets.'a b']\nenv = 'A'\nhosts = ['a.example']",
        &["has an invalid name"],
    );
}

#[test]
fn two_secrets_for_the_same_place_are_refused() {
    let scene = Scene::new();
    let pair = |one: &str, other: &str| {
        format!(
            "[tools.web.secrets.one]\nenv = 'A'\n{one}\n[tools.web.secrets.other]\nenv = 'B'\n{other}\n"
        )
    };
    for (one, other) in [
        ("hosts = ['a.example']", "hosts = ['a.example']"),
        (
            "hosts = ['a.example']",
            "hosts = ['A.Example']\nheader = 'AUTHORIZATION'\nprefix = 'Token '",
        ),
        ("hosts = ['*.a.example']", "hosts = ['b.example', 'x.a.example']"),
        ("hosts = ['*.a.example']", "hosts = ['*.b.a.example']"),
        ("hosts = ['bücher.example']", "hosts = ['xn--bcher-kva.example']"),
        ("hosts = ['*.bücher.example']", "hosts = ['a.XN--BCHER-KVA.example.']"),
        ("hosts = ['a.example']\nmethods = ['GET']", "hosts = ['a.example']"),
        ("hosts = ['a.example']\npaths = ['/v1']", "hosts = ['a.example']\npaths = ['/v1/users']"),
        ("hosts = ['a.example']\npaths = ['/']", "hosts = ['a.example']\npaths = ['/v1']"),
        ("hosts = ['a.example']\nquery = 'k'", "hosts = ['a.example']\nquery = 'k'"),
        ("hosts = ['a.example']", "hosts = ['a.example:443']"),
        ("hosts = ['localhost:3000']", "hosts = ['LOCALHOST:3000']"),
    ] {
        scene.assert_refused(
            &pair(one, other),
            &["[tools.web.secrets.other] and [tools.web.secrets.one] could use the same header or query parameter"],
        );
    }
    for (one, other) in [
        ("hosts = ['a.example']", "hosts = ['b.example']"),
        ("hosts = ['a.example']", "hosts = ['*.a.example']"),
        ("hosts = ['a.example']", "hosts = ['a.example:8443']"),
        ("hosts = ['localhost:3000']", "hosts = ['localhost:4000']"),
        ("hosts = ['a.example']", "hosts = ['a.example']\nheader = 'X-Key'"),
        ("hosts = ['a.example']\nquery = 'k'", "hosts = ['a.example']"),
        ("hosts = ['a.example']\nmethods = ['GET']", "hosts = ['a.example']\nmethods = ['POST']"),
        ("hosts = ['a.example']\npaths = ['/v1']", "hosts = ['a.example']\npaths = ['/v10']"),
    ] {
        assert_eq!(scene.web(&pair(one, other)).secrets.len(), 2);
    }
    // Two plugins have separate requests.
    let own = "env = 'A'\nhosts = ['a.example']\n";
    scene.load(&format!(
        "[plugins.x.secrets.s]\n{own}[plugins.y.secrets.s]\n{own}[tools.web.secrets.s]\n{own}"
    ));
}

#[test]
fn secret_in_place_of_its_source_is_never_shown() {
    let scene = Scene::new();
    let rest = "\nhosts = ['a.example']\n";
    for text in [
        format!("[tools.web.secrets]\ngithub = '{PASTED}'\n"),
        format!("[tools.web]\nsecrets = '{PASTED}'\n"),
        format!("tools.web.secrets = ['{PASTED}']\n"),
        format!("[plugins.x.secrets.github]\nvalue = '{PASTED}'{rest}"),
        format!("[plugins.x.secrets.github]\nenv = '{PASTED}'{rest}"),
        format!("[plugins.x.secrets.github]\nenv = 'sk-{PASTED}'{rest}"),
        format!("[plugins.x.secrets.github]\nenv = ['{PASTED}']{rest}"),
        format!("[plugins.x.secrets.github]\nkeyring = '{PASTED}'{rest}"),
        format!("[plugins.x.secrets.github]\ncommand = '{PASTED}'{rest}"),
        format!("[plugins.x.secrets.github]\nenv = 'A'\nhosts = '{PASTED}'\n"),
        format!("[plugins.x.secrets.github]\nenv = 'A'\nhosts = ['https://{PASTED}@a.example']\n"),
        format!("[plugins.x.secrets.github]\nenv = 'A'\nheader = 'Authorization: {PASTED}'{rest}"),
        format!("[plugins.x.secrets.github]\nenv = 'A'\nunknown = {{ deep = '{PASTED}' }}{rest}"),
        format!("[plugins.x.secrets.{PASTED}]\nenv = 'A'{rest}"),
        format!("[plugins.x.secrets.github]\nenv = '{PASTED}\n"),
        format!("[network]\nproxy = 'http://me:{PASTED}@proxy.example:3128'\n"),
    ] {
        scene.write(&text);
        let problems =
            load(&scene.folders, &Inputs::default()).expect_err("it is invalid").to_string();
        assert!(
            !problems.contains(&PASTED[4..]) && problems.contains("/toolhold.toml:"),
            "{text}: {problems}"
        );
    }
}

#[test]
fn proxy_comes_from_the_file_or_else_the_environment() {
    let scene = Scene::new();
    let check = |text: &str, variables: &[(&str, &str)], expected: Option<(&str, &str)>| {
        scene.write(text);
        let loaded = load(&scene.folders, &inputs(variables, &[])).expect("it is valid");
        let proxy = loaded
            .egress_of_web(&scene.folders, &scene.work)
            .expect("the settings are valid")
            .network
            .proxy;
        assert_eq!(
            proxy.as_ref().map(|proxy| (proxy.url.as_str(), proxy.except.as_str())),
            expected,
            "{text} {variables:?}"
        );
    };
    check("", &[], None);
    check("", &[("HTTPS_PROXY", "")], None);
    check("", &[("https_proxy", "proxy.example:3128")], Some(("http://proxy.example:3128", "")));
    let both = [
        ("ALL_PROXY", "http://all.example"),
        ("HTTPS_PROXY", "http://me:pw@secure.example"),
        ("no_proxy", "a.example,10.0.0.0/8"),
    ];
    check("", &both, Some(("http://me:pw@secure.example", "a.example,10.0.0.0/8")));
    check("", &both[..1], Some(("http://all.example", "")));
    check("network.proxy = ''", &both, None);
    let own = "[network]\nproxy = 'http://own.example:3128'\nno_proxy = ['b.example', '::1']";
    check(own, &both, Some(("http://own.example:3128", "b.example,::1")));
    check(
        "[network]\nproxy = 'http://own.example'\nno_proxy = ['.c.example', '10.0.0.0/8', 'fd00::/8', '10.1.2.3', '*', 'localhost']",
        &[],
        Some(("http://own.example", ".c.example,10.0.0.0/8,fd00::/8,10.1.2.3,*,localhost")),
    );
    for invalid in [
        "a b",
        "",
        "a.example,b.example",
        "http://a.example",
        "a.example:80",
        "10.0.0.0/33",
        "*.a.example",
        "a.example/x",
    ] {
        scene.assert_refused(
            &format!("network.no_proxy = ['{invalid}']"),
            &["takes a list of hosts"],
        );
    }
    for invalid in [
        "socks5://proxy.example",
        "https://proxy.example",
        "proxy.example:3128",
        "http://",
        "http://*",
        "http://a/b",
    ] {
        scene.assert_refused(
            &format!("network.proxy = '{invalid}'"),
            &["takes the address of an HTTP proxy"],
        );
    }
}

#[test]
fn authorities_are_relative_to_their_file_and_not_writable() {
    let scene = Scene::new();
    let text = "network.authorities = ['~/ca.pem', 'ca.pem', '/etc/ca.pem']";
    let home = scene.folders.home.clone().expect("there is a home");
    let expected = [home.join("ca.pem"), scene.folders.config.join("ca.pem"), "/etc/ca.pem".into()];
    assert_eq!(scene.web(text).network.authorities, expected);
    let own = scene.load(text).own_paths(&scene.folders, &scene.work);
    assert!(
        expected.iter().all(|path| own.iter().any(|own| own.path == *path && !own.secret)),
        "{own:?}"
    );
}

#[test]
fn project_file_only_takes_away() {
    let scene = Scene::new();
    let user = "[tools.web]\nallowed_domains = ['a.example', { host = 'b.example', methods = ['GET'] }]\nother_domains = 'allow'\n\
                denied_domains = ['evil.example']\n";
    let narrower = "[tools.web]\nallowed_domains = [{ host = 'b.example', methods = ['GET'] }, 'c.example', { host = 'a.example', methods = ['PUT'] }, \
                    { host = 'b.example', methods = ['PUT'] }]\n\
                    other_domains = 'deny'\ndenied_domains = ['more.example']\n";
    let loaded = scene.load_with(user, narrower);
    let settings =
        loaded.egress_of_web(&scene.folders, &scene.work).expect("the settings are valid");
    // The project may narrow a grant of the user to a part of it.
    assert_eq!(shown(&settings), ["- b.example None GET", "- a.example None PUT"]);
    let denied: Vec<_> = settings.reach.denied.iter().map(|host| host.value.as_str()).collect();
    assert_eq!(denied, ["evil.example", "more.example"]);
    let reasons = &loaded.project.expect("it was read").widening[0].reasons;
    assert_eq!(reasons[0], "\"c.example\" is not in your list");
    assert!(
        reasons[1].contains("PUT") && reasons[1].contains("is not in your list"),
        "{reasons:?}"
    );
    // A new secret in the project's file is one notice.
    let loaded = scene.load_with(
        user,
        "[tools.web.secrets.mine]\nenv = 'AWS_SECRET_ACCESS_KEY'\nhosts = ['evil.example']\n",
    );
    assert!(loaded.values.tools.web.secrets.is_empty());
    assert_eq!(loaded.project.expect("it was read").ignored().len(), 1);
    let plugin = "[plugins.x]\nhosts = ['a.example']\n";
    let loaded = scene.load_with(
        plugin,
        "[plugins.x.secrets.mine]\nenv = 'AWS_SECRET_ACCESS_KEY'\nhosts = ['a.example']\n",
    );
    assert!(loaded.values.plugins["x"].secrets.is_empty());
}

#[test]
fn remedy_names_a_ceiling_only_for_hosts_that_it_excludes() {
    let scene = Scene::new();
    let ceiling = scene.work.join("ceiling.toml");
    let contents = "[tools.web]\nother_domains = 'deny'\nallowed_domains = ['a.example.org']\n\
                    [tools.shell]\nhosts = ['10.0.0.1:22']\n";
    fs::write(&ceiling, contents).expect("it is written");
    scene.write("");
    let path = ceiling.display().to_string();
    let loaded =
        load(&scene.folders, &inputs(&[("TOOLHOLD_CEILING", &path)], &[])).expect("it is valid");
    let web = loaded.egress_of_web(&scene.folders, &scene.work).expect("the settings are valid");
    let shell = loaded
        .egress_of_shell(&scene.folders, &scene.work)
        .expect("the settings are valid")
        .expect("a person is asked about hosts");
    for (reach, url, is_excluded) in [
        (&web.reach, "https://a.example.org/", false),
        (&web.reach, "https://b.example.org/", true),
        (&shell.reach, "https://10.0.0.1:22/", false),
        (&shell.reach, "https://10.0.0.2:22/", true),
    ] {
        let target = Target::parse(url).expect("a target");
        let denial = reach.request(&target, "GET", "/", &[]).expect_err(url);
        let names_ceiling = denial.remedy.contains("whoever manages the ceiling");
        assert_eq!(names_ceiling, is_excluded, "{url}: {denial:?}");
    }
}

#[test]
fn ceiling_bounds_plugins_too() {
    let scene = Scene::new();
    let ceiling = scene.work.join("ceiling.toml");
    let contents = "[tools.web]\nother_domains = 'deny'\nallowed_domains = ['a.example']\ndenied_domains = ['evil.example']\nhttps_only = true\n\
                allowed_private_hosts = ['localhost:3000']\n[tools.limits]\nrequests = 5\n";
    fs::write(&ceiling, contents).expect("it is written");
    let text = "[tools.web]\nother_domains = 'allow'\nallowed_domains = ['a.example', 'b.example']\nhttps_only = false\n\
                allowed_private_hosts = ['localhost:3000', '10.0.0.0/8']\n\
                [plugins.x]\nhosts = ['a.example', 'b.example']\nhttps_only = false\nallowed_private_hosts = ['10.0.0.0/8', 'localhost:3000']\n";
    scene.write(text);
    let path = ceiling.display().to_string();
    let loaded =
        load(&scene.folders, &inputs(&[("TOOLHOLD_CEILING", &path)], &[])).expect("it is valid");
    let web = loaded.egress_of_web(&scene.folders, &scene.work).expect("the settings are valid");
    assert_eq!(shown(&web), ["- a.example None "]);
    let plugin = loaded
        .egress_of_plugin("x", &scene.folders, &scene.work)
        .expect("the settings are valid")
        .expect("a host is granted");
    for settings in [&web, &plugin] {
        assert!(settings.reach.https_only.value && settings.limits.requests == 5);
        assert_eq!(settings.reach.denied[0].value.as_str(), "evil.example");
        let private: Vec<_> =
            settings.reach.private.iter().map(|hosts| hosts.value.as_str()).collect();
        assert_eq!(private, ["localhost:3000"]);
    }
    fs::write(&ceiling, "tools.web.secrets.x = { env = 'A', hosts = ['a.example'] }")
        .expect("it is written");
    load(&scene.folders, &inputs(&[("TOOLHOLD_CEILING", &path)], &[]))
        .expect_err("a ceiling can't grant anything");
}

#[test]
fn secret_of_commands_has_a_variable_a_source_and_hosts() {
    let scene = Scene::new();
    scene.write(
        "[tools.shell]\n\
         hosts = ['a.example', { host = 'b.example', methods = ['get'], paths = ['/me/**'] }]\n\
         [tools.shell.secrets]\n\
         a = { env = 'A_TOKEN', hosts = ['a.example'] }\n\
         b = { env = 'B_TOKEN', from = { file = 'token' }, hosts = ['b.example'] }\n",
    );
    let loaded = load(&scene.folders, &inputs(&[("A_TOKEN", "the-value")], &[])).expect("valid");
    let settings = loaded.egress_of_shell(&scene.folders, &scene.work).expect("valid");
    let settings = settings.expect("hosts are granted");
    let variable = |name: &str| Placement::Placeholder { variable: name.to_owned() };
    let places: Vec<_> =
        settings.secrets.iter().map(|secret| secret.rule.placement.clone()).collect();
    assert_eq!(places, [variable("A_TOKEN"), variable("B_TOKEN")]);
    assert!(
        matches!(&settings.secrets[0].source, SecretSource::Variable { value: Some(value), .. } if value.expose() == "the-value")
    );
    // A relative path starts at the folder of the configuration, and no tool reads the file.
    let token = scene.folders.config.join("token");
    assert!(matches!(&settings.secrets[1].source, SecretSource::File(path) if *path == token));
    let own = loaded.own_paths(&scene.folders, &scene.work);
    assert!(own.iter().any(|own| own.path == token && own.secret));
    let grant = &settings.reach.grants[1].value;
    assert_eq!((grant.methods.join(","), grant.paths[0].as_str()), ("GET".to_owned(), "/me/**"));

    for (text, expected) in [
        ("a = { hosts = ['a.example'] }", "names no variable for the placeholder"),
        ("a = { env = 'A' }", "names no host for the secret"),
        (
            "a = { env = 'A', hosts = ['a.example'] }\nb = { env = 'A', hosts = ['b.example'] }",
            "have the same variable in `env`",
        ),
        (
            "a = { env = 'A', from = { env = 'B', file = 'c' }, hosts = ['a.example'] }",
            "has more than one source",
        ),
        ("a = { env = 'A', hosts = ['*'] }", "would send the secret to every host"),
    ] {
        scene.assert_refused(&format!("[tools.shell.secrets]\n{text}\n"), &[expected]);
    }
    scene.assert_refused(
        "tools.shell.hosts = [{ host = 'a.example', paths = ['me'] }]",
        &["a path pattern isn't valid"],
    );
}
