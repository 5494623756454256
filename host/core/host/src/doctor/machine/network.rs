//! `toolhold doctor`: checks the network settings without a connection and without reading a
//! secret.

use std::path::Path;

use toolhold_config::{Config, Folders};
use toolhold_contract::text::counted;
use toolhold_net::examine;
use toolhold_policy::OwnTable;

use crate::doctor::machine::Finding;

/// Checks whether the configured proxy, certificate authorities and secrets exist.
pub fn findings(folders: &Folders, loaded: &Config) -> Vec<Finding> {
    let directory = loaded.directory();
    let mut findings = vec![proxy(loaded)];
    let network_table = loaded.own_table("network");
    for path in &loaded.authorities(folders, &directory) {
        findings.push(authority(path, &network_table));
    }
    for (table, name, secret) in loaded.secrets() {
        let key = toolhold_config::secret_key(&table, name);
        let label = format!("secret {name}");
        let source = loaded.source_of(&key, &secret, folders, &directory);
        findings.push(match examine(&source) {
            Ok(None) => Finding::ok(label, "the source of the secret exists"),
            Ok(Some(exposed)) => Finding::warning(label, exposed, "make the file private"),
            Err(error) => Finding::warning(
                label,
                error.to_string(),
                format!(
                    "create the secret, or change [{key}]; until then, requests that need the \
                     secret fail"
                ),
            ),
        });
    }
    findings.extend(unsent_secrets(folders, loaded, &directory));
    findings
}

/// Finds secrets that no request can carry, because their plugin has no grant for their hosts.
fn unsent_secrets(folders: &Folders, loaded: &Config, directory: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let plugins = loaded.values.plugins.keys().map(|plugin| {
        let settings = loaded.egress_of_plugin(plugin, folders, directory);
        (format!("plugins.{plugin}"), format!("request of the plugin `{plugin}`"), settings)
    });
    let shell = loaded.egress_of_shell(folders, directory);
    let shell = ("tools.shell".to_owned(), "command".to_owned(), shell);
    for (table, carrier, settings) in plugins.chain([shell]) {
        // Invalid grants are reported with the configuration.
        let Ok(Some(settings)) = settings else { continue };
        for secret in settings.secrets {
            if secret.rule.may_be_sent(&settings.reach) {
                continue;
            }
            let name = secret.rule.name;
            findings.push(Finding::warning(
                format!("hosts of secret {name}"),
                format!(
                    "no {carrier} can carry the secret, because `hosts` of the secret and `hosts` \
                     in [{table}] have no host in common"
                ),
                format!(
                    "write the same host, scheme and port in `hosts` of [{table}.secrets.{name}] \
                     and of [{table}]"
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
    let Some((source, url)) = proxy else { return Finding::ok("proxy", "none") };
    if url.is_empty() {
        return Finding::ok("proxy", "none");
    }
    // The URL may contain a password, so the findings don't show it.
    let has_other_scheme = url.contains("://") && !url.starts_with("http://");
    if has_other_scheme {
        let fix = format!(
            "set `proxy` in {} to an http:// address, or to \"\" for no proxy",
            loaded.own_table("network")
        );
        return Finding::warning(
            "proxy",
            format!("the value of {source} isn't an HTTP proxy, so requests fail"),
            fix,
        );
    }
    Finding::ok("proxy", format!("from {source}"))
}

/// Checks a configured file with certificates.
fn authority(path: &Path, table: &OwnTable) -> Finding {
    let name = format!("authority {}", path.display());
    match toolhold_net::examine_authority(path) {
        Ok(count) => Finding::ok(name, counted(count, "certificate")),
        Err(why) => Finding::failure(
            name,
            format!("{why}, so no request can be sent"),
            format!("fix the file, or remove it from `authorities` in {table}"),
        ),
    }
}
