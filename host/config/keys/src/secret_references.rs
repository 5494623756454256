//! References to secrets in the arguments of an upstream server: `${secret:NAME}` stands for the
//! value of `[mcp.servers.X.secrets.NAME]`.

const START: &str = "${secret:";

/// Returns the names of the secrets that an argument refers to.
pub fn referenced_secrets(argument: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = argument;
    while let Some((_, name, after)) = split_at_reference(rest) {
        names.push(name);
        rest = after;
    }
    names
}

/// Replaces the references in an argument by values. References to other secrets than `secrets`
/// stay. References in values aren't replaced.
pub fn fill_in_secrets(argument: &str, secrets: &[(&str, &str)]) -> String {
    let mut filled = String::new();
    let mut rest = argument;
    while let Some((before, name, after)) = split_at_reference(rest) {
        filled.push_str(before);
        match secrets.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => filled.push_str(value),
            None => {
                let reference = &rest[before.len()..rest.len() - after.len()];
                filled.push_str(reference);
            }
        }
        rest = after;
    }
    filled + rest
}

/// Splits a text at its first reference into the text before, the name, and the text after.
fn split_at_reference(text: &str) -> Option<(&str, &str, &str)> {
    let (before, from_name) = text.split_once(START)?;
    let (name, after) = from_name.split_once('}')?;
    Some((before, name, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_become_values_once() {
        let argument = "postgresql://${secret:USER}:${secret:PW}@host/${db}${secret:X}${secret:";
        assert_eq!(referenced_secrets(argument), ["USER", "PW", "X"]);
        let secrets = [("USER", "me"), ("PW", "${secret:USER}")];
        assert_eq!(
            fill_in_secrets(argument, &secrets),
            "postgresql://me:${secret:USER}@host/${db}${secret:X}${secret:"
        );
        assert_eq!(fill_in_secrets("--plain", &secrets), "--plain");
        assert_eq!(fill_in_secrets("", &secrets), "");
    }
}
