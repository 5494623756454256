//! The fingerprint to which an approval applies.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Identifies the calls to which an approval applies: the SHA-256 of the tool, the plugin's digest,
/// the arguments, the attachments, and the file in the preview. In text and JSON, a fingerprint has
/// 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.as_bytes();
        let mut bytes = [0; 32];
        let has_two_digits_for_each_byte = digits.len() == 2 * bytes.len();
        if !has_two_digits_for_each_byte || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(no_fingerprint());
        }
        for (byte, two_digits) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let hexadecimal = str::from_utf8(two_digits).map_err(|_| no_fingerprint())?;
            *byte = u8::from_str_radix(hexadecimal, 16).map_err(|_| no_fingerprint())?;
        }
        Ok(Self(bytes))
    }
}

fn no_fingerprint<E: serde::de::Error>() -> E {
    E::custom("a fingerprint has 64 hexadecimal digits")
}
