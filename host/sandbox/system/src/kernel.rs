//! The kernel's version.

/// Returns the kernel's release, as in `uname -r`, or `None` if `/proc` isn't mounted.
pub fn release() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(text.trim().to_owned())
}

/// Returns the first two numbers of a release.
pub fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next()?.parse().ok()?;
    Some((major, minor))
}

/// Checks whether the kernel can limit the processes of a namespace, including root's. The limit
/// needs Linux 6.14.
pub fn bounds_namespaces() -> bool {
    release().as_deref().and_then(version).is_some_and(|version| version >= (6, 14))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_the_first_two_numbers() {
        assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version("5.4"), Some((5, 4)));
        assert_eq!(version("linux"), None);
    }
}
