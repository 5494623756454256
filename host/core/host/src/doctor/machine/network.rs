//! `toolhold doctor`: checks how requests leave this machine, and whether the configured proxy and
//! authorities exist. The checks open no connection and read no secret.

use std::path::Path;

use toolhold_config::{Config, Folders};
use toolhold_contract::text::counted;
use toolhold_net::examine;
use toolhold_policy::OwnTable;

use crate::doctor::machine::Finding;

/// Checks everything that requests need: certificates, resolvers and addresses.
pub fn findings(folders: &Folders, loaded: &Config) -> Vec<Finding> {
    let directory = loaded.directory();
    let mut findings = vec![proxy(loaded)];
    let table = loaded.own_table("network");
    for path in &loaded.authorities(folders, &directory) {
        findings.push(authority(path, &table));
    }
    for (table, name, secret) in loaded.secrets() {
        let key = format!("{table}.secrets.{}", toolhold_config::dotted_name(name));
        let label = format!("secret {name}");
        findings.push(match examine(&loaded.source_of(&key, &secret, folders, &directory)) {
            Ok(None) => Finding::ok(label, "its source exists"),
            Ok(Some(exposed)) => Finding::warning(label, exposed, "make the file private"),
            Err(error) => Finding::warning(
                label,
                error.to_string(),
                format!("create the secret, or change [{key}]; requests that need it fail"),
            ),
        });
    }
    findings.extend(unsent_secrets(folders, loaded, &directory));
    findings
}

/// Finds the secrets of plugins that no request can carry, because no grant reaches their hosts.
fn unsent_secrets(folders: &Folders, loaded: &Config, directory: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for plugin in loaded.values.plugins.keys() {
        // A fault of the grants is one of the configuration, which is reported there.
        let Ok(Some(settings)) = loaded.egress_of_plugin(plugin, folders, directory) else {
            continue;
        };
        for secret in settings.secrets {
            if secret.rule.may_be_sent(&settings.reach) {
                continue;
            }
            let name = secret.rule.name;
            findings.push(Finding::warning(
                format!("hosts of secret {name}"),
                format!(
                    "no request of the plugin `{plugin}` can carry the secret: its `hosts` differ \
                     from those that the plugin may reach"
                ),
                format!(
                    "write the same host, scheme and port in `hosts` of \
                     [plugins.{plugin}.secrets.{name}] and of [plugins.{plugin}]"
                ),
            ));
        }
    }
    findings
}

fn proxy(loaded: &Config) -> Finding {
    let proxy = match &loaded.values.network.proxy {
        Some(url) => Some(("[network]", url.as_str().to_owned())),
        None => loaded.variable_of(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]),
    };
    match proxy {
        None => Finding::ok("proxy", "none"),
        Some((_, url)) if url.is_empty() => Finding::ok("proxy", "none"),
        // The address may contain a password.
        Some((from, url)) if url.contains("://") && !url.starts_with("http://") => {
            let fix = format!(
                "set `proxy` in {} to an http:// address, or to \"\" for no proxy",
                loaded.own_table("network")
            );
            Finding::warning(
                "proxy",
                format!("the value of {from} isn't an HTTP proxy, so requests fail"),
                fix,
            )
        }
        Some((from, _)) => Finding::ok("proxy", format!("from {from}")),
    }
}

fn authority(path: &Path, table: &OwnTable) -> Finding {
    let called = format!("authority {}", path.display());
    match toolhold_net::examine_authority(path) {
        Ok(count) => Finding::ok(called, counted(count, "certificate")),
        Err(why) => Finding::failure(
            called,
            format!("{why}; no request can be made"),
            format!("fix the file, or remove it from `authorities` in {table}"),
        ),
    }
}
