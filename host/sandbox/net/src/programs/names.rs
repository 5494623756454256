//! Synthetic addresses of host names.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

/// Start of the range of the synthetic addresses. The range 198.18.0.0/15 is reserved for tests of
/// networks (RFC 2544), so no server has such an address.
const FIRST: u32 = Ipv4Addr::new(198, 18, 0, 1).to_bits();

/// Names with an address. With a further name, the oldest name loses its address.
const MAX_NAMES: usize = 8192;

/// The host names that the programs of a network have looked up.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// A ring buffer. The index of a name is the distance of its address from [`FIRST`].
    names: Vec<String>,
    indexes: HashMap<String, usize>,
    /// The index of the oldest name, if the buffer is full.
    oldest: usize,
}

impl Names {
    /// Returns the address of a name. A name without an address gets one.
    pub(super) fn address_of(&mut self, name: &str) -> Ipv4Addr {
        let index = match self.indexes.get(name) {
            Some(index) => *index,
            None => self.add(name),
        };
        let distance = u32::try_from(index).unwrap_or(u32::MAX);
        Ipv4Addr::from_bits(FIRST.saturating_add(distance))
    }

    /// Adds a name, and returns its index. In a full list (a ring buffer), replaces the oldest.
    fn add(&mut self, name: &str) -> usize {
        let index = if self.names.len() < MAX_NAMES {
            self.names.push(name.to_owned());
            self.names.len() - 1
        } else {
            let index = self.oldest;
            let replaced = std::mem::replace(&mut self.names[index], name.to_owned());
            self.indexes.remove(&replaced);
            self.oldest = (index + 1) % MAX_NAMES;
            index
        };
        self.indexes.insert(name.to_owned(), index);
        index
    }

    /// Returns the name of a synthetic address. Returns `None` for other addresses.
    pub(super) fn name_of(&self, address: IpAddr) -> Option<&str> {
        let IpAddr::V4(address) = address.to_canonical() else { return None };
        let distance = address.to_bits().checked_sub(FIRST)?;
        let index = usize::try_from(distance).ok()?;
        self.names.get(index).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_keeps_its_address_until_too_many_names_follow() {
        let mut names = Names::default();
        let first = names.address_of("first.example");
        assert_eq!(first, Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!(names.address_of("first.example"), first);
        assert_eq!(names.name_of(first.into()), Some("first.example"));
        assert_eq!(names.name_of(IpAddr::V6(first.to_ipv6_mapped())), Some("first.example"));
        for other in ["198.18.0.0", "198.18.0.2", "198.17.255.255", "10.0.0.1", "::1"] {
            assert_eq!(names.name_of(other.parse().expect("an address")), None, "{other}");
        }

        let mut last = first;
        for number in 1..MAX_NAMES {
            last = names.address_of(&format!("{number}.example"));
        }
        assert_eq!(last, Ipv4Addr::new(198, 18, 32, 0));
        assert_eq!(names.name_of(first.into()), Some("first.example"));
        assert_eq!(names.address_of("more.example"), first, "the oldest name loses its address");
        assert_eq!(names.address_of("first.example"), Ipv4Addr::new(198, 18, 0, 2));
        assert_eq!(names.name_of(first.into()), Some("more.example"));
        assert!(names.names.len() == MAX_NAMES && names.indexes.len() == MAX_NAMES);
    }
}
