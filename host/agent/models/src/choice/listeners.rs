//! Finds the users whose servers listen at a port of this machine.

use std::fs;
use std::os::unix::fs::MetadataExt;

/// The lowest user ID of a person. Lower IDs belong to services of the system, such as `ollama`.
const FIRST_PERSON_ID: u32 = 1000;

/// The kernel's lists of sockets.
const SOCKET_TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

const LISTENING_STATE: &str = "0A";

/// Checks whether all servers at a port belong to this user or to the system. A server of another
/// user could read prompts. Returns `false` if no server listens, or if an owner is unknown.
pub(super) fn is_trusted_listener(port: u16) -> bool {
    let Ok(process) = fs::metadata("/proc/self") else { return false };
    let mut owners = Vec::new();
    for table in SOCKET_TABLES {
        // A kernel without IPv6 has only the table of IPv4.
        let text = fs::read_to_string(table).unwrap_or_default();
        owners.extend(listener_owners(&text, port));
    }

    for owner in &owners {
        let is_system = *owner < FIRST_PERSON_ID;
        if *owner != process.uid() && !is_system {
            return false;
        }
    }
    !owners.is_empty()
}

/// Returns the owners of the sockets that listen at a port, at any address. `table` has a heading
/// and one socket per line, as in `/proc/net/tcp`.
fn listener_owners(table: &str, port: u16) -> Vec<u32> {
    let mut owners = Vec::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, LISTENING_STATE, _, _, _, owner, ..] = fields[..] else { continue };
        let Some((_, local_port)) = local.rsplit_once(':') else { continue };
        if u16::from_str_radix(local_port, 16) == Ok(port) {
            // An unreadable owner counts as another user.
            owners.push(owner.parse().unwrap_or(u32::MAX));
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The beginnings of the lines of a list.
    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 1001 0 1
   1: 00000000:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000 998 0 2
   2: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000 0 0 3
   3: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000 x 0 4
   4: cut";

    #[test]
    fn only_listening_sockets_of_the_port_have_an_owner() {
        assert_eq!(listener_owners(TABLE, 8080), [1001]);
        assert_eq!(listener_owners(TABLE, 11434), [998]);
        assert_eq!(listener_owners(TABLE, 8081), [u32::MAX]);
        assert!(listener_owners(TABLE, 1234).is_empty());
        assert!(listener_owners("", 8080).is_empty());
    }

    #[test]
    fn own_server_is_trusted_and_a_free_port_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_trusted_listener(port));
        drop(listener);
        assert!(!is_trusted_listener(port));
    }
}
