//! The type of keys that are an amount of money.

use std::fmt;

use schemars::json_schema;
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::string_types::inline_schema;

/// An amount of money, from 0 to 1,000,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize)]
pub struct Amount(f64);

impl Amount {
    const MAX: f64 = 1e9;

    /// Returns the number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Range;

        impl Visitor<'_> for Range {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 0 to 1,000,000,000")
            }

            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Amount, E> {
                // `contains` refuses NaN, too, because NaN is in no range.
                if (0.0..=Amount::MAX).contains(&value) {
                    Ok(Amount(value))
                } else {
                    Err(E::invalid_value(Unexpected::Float(value), &self))
                }
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Amount, E> {
                match u32::try_from(value).map(f64::from) {
                    Ok(value) if value <= Amount::MAX => Ok(Amount(value)),
                    _ => Err(E::invalid_value(Unexpected::Signed(value), &self)),
                }
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Amount, E> {
                // A number that doesn't fit into `i64` is above the range. So is `i64::MAX`, which
                // is refused in its place.
                self.visit_i64(i64::try_from(value).unwrap_or(i64::MAX))
            }
        }

        deserializer.deserialize_f64(Range)
    }
}

inline_schema!(Amount, "Amount", json_schema!({ "type": "number", "minimum": 0, "maximum": 1e9 }));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_is_no_debt() {
        let read = |text: &str| {
            #[derive(Deserialize)]
            struct Table {
                amount: Amount,
            }
            toml::from_str::<Table>(&format!("amount = {text}")).map(|table| table.amount.get())
        };
        assert_eq!(read("0"), Ok(0.0));
        assert_eq!(read("2.5"), Ok(2.5));
        for wrong in ["-1", "-0.5", "nan", "inf", "2000000000", "\"1\""] {
            let error = read(wrong).expect_err(wrong).to_string();
            assert!(error.contains("a number from 0 to 1,000,000,000"), "{error}");
        }
    }
}
