//! Decides which addresses are blocked for requests. The operator can open private addresses, but
//! not the addresses that are always blocked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is blocked for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// The kind of the address: `loopback`, `private`, `link-local`, `a metadata service`, …
    pub kind: &'static str,
    /// Whether the address is always blocked, even if the configuration opens it.
    pub always: bool,
}

/// Metadata services of clouds give credentials to every program that sends them a request.
const METADATA: &str = "the address of a metadata service";

type V4Range = ([u8; 4], u32, &'static str, bool);
type V6Range = ([u16; 8], u32, &'static str, bool);

/// The special IPv4 ranges, from the registry of IANA and the documentation of clouds. The first
/// match applies. The last column is [`Forbidden::always`]. It is true for ranges that ordinary
/// services never have.
const V4: [V4Range; 24] = [
    // EC2, Azure, GCP, OpenStack, DigitalOcean, Hetzner, Oracle, Tencent and others.
    ([169, 254, 169, 254], 32, METADATA, true),
    // Credentials of containers in ECS.
    ([169, 254, 170, 2], 32, METADATA, true),
    // Credentials of pods in EKS.
    ([169, 254, 170, 23], 32, METADATA, true),
    // Alibaba Cloud.
    ([100, 100, 100, 200], 32, METADATA, true),
    // The wire server of Azure.
    ([168, 63, 129, 16], 32, METADATA, true),
    // Oracle Cloud at Customer.
    ([192, 0, 0, 192], 32, METADATA, true),
    ([0, 0, 0, 0], 8, "of this machine or network (0.0.0.0/8)", true),
    ([10, 0, 0, 0], 8, "private (10.0.0.0/8)", false),
    ([100, 64, 0, 0], 10, "private to a provider's network (100.64.0.0/10)", false),
    ([127, 0, 0, 0], 8, "loopback (127.0.0.0/8)", false),
    ([169, 254, 0, 0], 16, "link-local (169.254.0.0/16)", true),
    ([172, 16, 0, 0], 12, "private (172.16.0.0/12)", false),
    ([192, 0, 0, 0], 24, "reserved for protocols (192.0.0.0/24)", false),
    ([192, 0, 2, 0], 24, "for documentation (192.0.2.0/24)", false),
    ([192, 31, 196, 0], 24, "a DNS sink (192.31.196.0/24)", false),
    ([192, 52, 193, 0], 24, "a multicast relay (192.52.193.0/24)", false),
    ([192, 88, 99, 0], 24, "a 6to4 relay (192.88.99.0/24)", false),
    ([192, 168, 0, 0], 16, "private (192.168.0.0/16)", false),
    ([192, 175, 48, 0], 24, "a DNS sink (192.175.48.0/24)", false),
    ([198, 18, 0, 0], 15, "for benchmarks (198.18.0.0/15)", false),
    ([198, 51, 100, 0], 24, "for documentation (198.51.100.0/24)", false),
    ([203, 0, 113, 0], 24, "for documentation (203.0.113.0/24)", false),
    ([224, 0, 0, 0], 4, "multicast (224.0.0.0/4)", true),
    ([240, 0, 0, 0], 4, "reserved (240.0.0.0/4)", true),
];

/// The special IPv6 ranges. [`forbidden`] also denies all other addresses outside of [`UNICAST`].
const V6: [V6Range; 20] = [
    // EC2.
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 64, METADATA, true),
    // GCP.
    ([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, METADATA, true),
    // Scaleway.
    ([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128, METADATA, true),
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, "of this machine (::)", true),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback (::1)", false),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, "an obsolete form of an IPv4 address (::/96)", false),
    (
        [0, 0, 0, 0, 0xffff, 0, 0, 0],
        96,
        "a translated form of an IPv4 address (::ffff:0:0:0/96)",
        false,
    ),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "private to a network's NAT64 (64:ff9b:1::/48)", false),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64, "discard-only (100::/64)", false),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "a Teredo tunnel (2001::/32)", false),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "for documentation (2001:db8::/32)", false),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "reserved for protocols (2001::/23)", false),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "a 6to4 tunnel (2002::/16)", false),
    ([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48, "a DNS sink (2620:4f:8000::/48)", false),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "for documentation (3fff::/20)", false),
    ([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, "for segment routing (5f00::/16)", false),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "private (fc00::/7)", false),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local (fe80::/10)", true),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "private to a site (fec0::/10)", false),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast (ff00::/8)", true),
];

/// The range of addresses that are assigned to networks for ordinary use.
const UNICAST: ([u16; 8], u32) = ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);
const NAT64: ([u16; 8], u32) = ([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
const LOCAL_NAT64: ([u16; 8], u32) = ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48);

/// Returns the reason why an address is blocked for requests. Returns `None` if the address is
/// allowed. An IPv4 address inside an IPv6 address (v4-mapped, NAT64, 6to4, …) is checked too.
pub fn forbidden(address: IpAddr) -> Option<Forbidden> {
    let address_v6 = match reached_address(address) {
        IpAddr::V4(address_v4) => return forbidden_v4(address_v4),
        IpAddr::V6(address_v6) => address_v6,
    };
    let range = V6.iter().find(|(network, length, ..)| within(address_v6, (*network, *length)));
    let whole = range.map(|(_, _, kind, always)| Forbidden { kind, always: *always });
    match (whole, forbidden_embedded(address_v6)) {
        // The operator can open the IPv6 address, but not an address inside it that is always
        // blocked.
        (Some(whole), Some(embedded)) if embedded.always && !whole.always => Some(embedded),
        (Some(whole), _) => Some(whole),
        (None, Some(embedded)) => Some(embedded),
        (None, None) if within(address_v6, UNICAST) => None,
        (None, None) => Some(Forbidden { kind: "in an unassigned range", always: false }),
    }
}

/// Returns the reason why an IPv4 address inside an IPv6 address is blocked. Of several embedded
/// addresses, an address that is always blocked decides.
fn forbidden_embedded(address: Ipv6Addr) -> Option<Forbidden> {
    let mut decisive: Option<Forbidden> = None;
    for address_v4 in embedded_addresses(address) {
        if let Some(reason) = forbidden_v4(address_v4)
            && decisive.is_none_or(|known| reason.always && !known.always)
        {
            decisive = Some(reason);
        }
    }
    decisive
}

/// Returns the address that a connection to `address` reaches. A mapped address (`::ffff:0:0/96`)
/// reaches the IPv4 address at its end. An address with the well-known NAT64 prefix also reaches
/// the IPv4 address at its end, through a gateway.
pub(super) fn reached_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address_v6) if within(address_v6, NAT64) => IpAddr::V4(last_32_bits(address_v6)),
        canonical => canonical,
    }
}

/// Returns the reason why an IPv4 address is blocked for requests. Returns `None` if the address is
/// allowed.
fn forbidden_v4(address: Ipv4Addr) -> Option<Forbidden> {
    let bits = address.to_bits();
    let range = V4.iter().find(|(network, length, ..)| {
        let different_bits = bits ^ Ipv4Addr::from(*network).to_bits();
        // The shift drops the bits after the prefix, which may differ.
        different_bits >> (32 - length) == 0
    });
    range.map(|(_, _, kind, always)| Forbidden { kind, always: *always })
}

/// Returns the IPv4 addresses inside an IPv6 address. A gateway may connect to each of them.
fn embedded_addresses(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let mut embedded = Vec::new();
    let [_, second_quarter, third_quarter, _] = quarters(address);

    // A 6to4 address contains the IPv4 address in the bits 16 to 47.
    let is_6to4 = address.segments()[0] == 0x2002;
    if is_6to4 {
        embedded.push(Ipv4Addr::from_bits((address.to_bits() >> 80) as u32));
    }

    // An ISATAP interface has the form `::5efe:a.b.c.d` or `::200:5efe:a.b.c.d` under any prefix.
    let is_isatap = matches!(third_quarter, 0x5efe | 0x0200_5efe);
    if is_isatap {
        embedded.push(last_32_bits(address));
    }

    // The forms are `::a.b.c.d` and `::ffff:0:a.b.c.d`. The loopback `::1` isn't an IPv4 address.
    let is_translated = [([0; 8], 96), ([0, 0, 0, 0, 0xffff, 0, 0, 0], 96)]
        .into_iter()
        .any(|network| within(address, network));
    if is_translated && !address.is_loopback() {
        embedded.push(last_32_bits(address));
    }

    // A local NAT64 may use each prefix length of RFC 6052 that is at least 48.
    if within(address, LOCAL_NAT64) {
        for prefix_length in [48, 56, 64] {
            embedded.push(split_address(address, prefix_length));
        }
        let after_prefix_of_96 = last_32_bits(address);
        embedded.push(after_prefix_of_96);
    }

    // Teredo contains the server's address, and the client's address with all bits inverted.
    let is_teredo = within(address, ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32));
    if is_teredo {
        embedded.push(Ipv4Addr::from_bits(second_quarter));
        embedded.push(Ipv4Addr::from_bits(!last_32_bits(address).to_bits()));
    }
    embedded
}

/// Returns the IPv4 address after the first `prefix_length` bits of an IPv6 address. RFC 6052
/// excludes the bits 64 to 71, so the IPv4 address has a part before these bits and a part after
/// them.
fn split_address(address: Ipv6Addr, prefix_length: u32) -> Ipv4Addr {
    let bits = address.to_bits();
    let first_half = (bits >> 64) as u64;
    let second_half = bits as u64;
    let front_length = 64 - prefix_length;
    let back_length = 32 - front_length;
    let front = first_half & ((1 << front_length) - 1);
    // The left shift drops the bits 64 to 71.
    let back = (second_half << 8) >> (64 - back_length);
    Ipv4Addr::from_bits(((front << back_length) | back) as u32)
}

fn quarters(address: Ipv6Addr) -> [u32; 4] {
    let bits = address.to_bits();
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}

fn last_32_bits(address: Ipv6Addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits() as u32)
}

fn within(address: Ipv6Addr, (network, length): ([u16; 8], u32)) -> bool {
    (address.to_bits() ^ Ipv6Addr::from(network).to_bits()) >> (128 - length) == 0
}

/// Suffixes of names that aren't public: reserved suffixes, and suffixes of home and company
/// networks.
const LOCAL_NAMES: [&str; 15] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
    "test",
    "invalid",
    "example",
    "onion",
    "alt",
];

const METADATA_NAMES: [&str; 9] = [
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.azure.internal",
    "metadata.azure.com",
    "metadata.tencentyun.com",
    "metadata.platformequinix.com",
    "api.metadata.cloud.ibm.com",
    "instance-data.ec2.internal",
];

/// Returns the reason why a host name is blocked for requests. Returns `None` if the name is
/// allowed.
pub(super) fn forbidden_name(name: &str) -> Option<Forbidden> {
    let is_metadata = METADATA_NAMES.into_iter().any(|suffix| is_or_below(name, suffix));
    if is_metadata || name == "instance-data" {
        return Some(Forbidden { kind: "the name of a metadata service", always: true });
    }
    if LOCAL_NAMES.into_iter().any(|suffix| is_or_below(name, suffix)) {
        return Some(Forbidden {
            kind: "a name that only this machine or its network knows",
            always: false,
        });
    }
    if name.contains('.') {
        return None;
    }
    Some(Forbidden {
        kind: "a name without a dot, which only this machine or its network knows",
        always: false,
    })
}

fn is_or_below(name: &str, suffix: &str) -> bool {
    let Some(before) = name.strip_suffix(suffix) else { return false };
    before.is_empty() || before.ends_with('.')
}
