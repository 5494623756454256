//! Finds the ID of a message that is too long or malformed.

use rmcp::model::RequestId;

/// Maximum length of a name or ID in bytes. Longer names and IDs are ignored.
const MAX_TOKEN_BYTES: usize = 1024;

#[derive(Default)]
pub(crate) struct Envelope {
    depth: usize,
    in_string: bool,
    /// Whether a backslash escapes the next byte.
    is_escaped: bool,
    in_value: bool,
    /// The bytes of the current name or value.
    token: Vec<u8>,
    name: Vec<u8>,
    id: Option<RequestId>,
    is_request: bool,
    has_started: bool,
    /// Set when the object has ended, or when the text isn't an object.
    is_over: bool,
}

impl Envelope {
    pub(crate) fn parse_id(line: &[u8]) -> Option<RequestId> {
        let mut envelope = Self::default();
        envelope.read(line);
        envelope.id()
    }

    /// Reads further bytes of the message.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.is_over {
                return;
            }
            self.read_byte(*byte);
        }
    }

    pub(crate) fn is_object(&self) -> bool {
        self.has_started
    }

    /// Returns the ID of a request. Returns `None` for an answer, because this side chose the
    /// answer's ID.
    pub(crate) fn id(self) -> Option<RequestId> {
        if self.is_request { self.id } else { None }
    }

    /// Reads a byte of the JSON text. Only the fields of the outermost object matter.
    fn read_byte(&mut self, byte: u8) {
        if self.in_string {
            self.read_byte_of_string(byte);
            return;
        }
        match byte {
            b'{' | b'[' => {
                if !self.has_started {
                    self.has_started = byte == b'{';
                    // A message that isn't an object has no ID.
                    self.is_over = !self.has_started;
                }
                self.depth += 1;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.end_value();
                    self.is_over = true;
                }
            }
            b':' if self.depth == 1 && !self.in_value => {
                self.name = std::mem::take(&mut self.token);
                self.in_value = true;
            }
            b',' if self.depth == 1 => self.end_value(),
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ => {
                let is_of_byte_order_mark = b"\xef\xbb\xbf".contains(&byte);
                // Only a byte order mark may come before the object.
                self.is_over = !self.has_started && !is_of_byte_order_mark;
                self.in_string = byte == b'"';
                self.add_to_token(byte);
            }
        }
    }

    /// Reads a byte inside of a string, or the quote at the end of the string.
    fn read_byte_of_string(&mut self, byte: u8) {
        self.add_to_token(byte);
        if self.is_escaped {
            self.is_escaped = false;
            return;
        }
        match byte {
            b'\\' => self.is_escaped = true,
            b'"' => self.in_string = false,
            _ => {}
        }
    }

    fn add_to_token(&mut self, byte: u8) {
        // One byte above the limit shows that the token is too long.
        if self.depth == 1 && self.token.len() <= MAX_TOKEN_BYTES {
            self.token.push(byte);
        }
    }

    /// Ends the value of a field. Stores the value if the field is the ID.
    fn end_value(&mut self) {
        let value = std::mem::take(&mut self.token);
        match self.name.as_slice() {
            br#""id""# if value.len() <= MAX_TOKEN_BYTES => {
                self.id = serde_json::from_slice(&value).ok();
            }
            br#""method""# => self.is_request = true,
            _ => {}
        }
        self.name.clear();
        self.in_value = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::NumberOrString;

    #[test]
    fn id_is_found_at_any_position_of_a_broken_message() {
        let cases: [(&[u8], Option<NumberOrString>); 17] = [
            (br#"{"jsonrpc":"2.0","id":7,"method":"x"}"#, Some(NumberOrString::Number(7))),
            (
                b" \xef\xbb\xbf{ \"method\" : \"x\" , \"id\" : \"a\\\"b\" }",
                Some(NumberOrString::String("a\"b".into())),
            ),
            (
                br#"{"method":"x","params":{"id":1,"a":["}",{"id":2}]},"id":3}"#,
                Some(NumberOrString::Number(3)),
            ),
            (br#"{"id":7,"method":"x","params":{"a":"\ud800"}}"#, Some(NumberOrString::Number(7))),
            (b"{\"id\":7,\"method\":\"x\",\"params\":\"\xff\"}", Some(NumberOrString::Number(7))),
            (br#"{"id":7,"method":"x","params":{"a":"#, Some(NumberOrString::Number(7))),
            (br#"{"id":7,"method":"x","params":[[[["#, Some(NumberOrString::Number(7))),
            (br#"{"id":"7,"method":"x"}"#, None),
            (br#"{"id":7,"result":{}}"#, None),
            (br#"{"id":1.5,"method":"x"}"#, None),
            (br#"{"id":null,"method":"x"}"#, None),
            (br#"{"id":{"id":1},"method":"x"}"#, None),
            (br#"[{"id":7,"method":"x"}]"#, None),
            (br#"{"params":{"id":7,"method":"x"}}"#, None),
            (br#"x{"id":7,"method":"x"}"#, None),
            (br#""id":7,"method":"x""#, None),
            (b"", None),
        ];
        for (line, id) in cases {
            assert_eq!(Envelope::parse_id(line), id, "{}", String::from_utf8_lossy(line));
            let mut parts = Envelope::default();
            line.iter().for_each(|byte| parts.read(&[*byte]));
            assert_eq!(parts.id(), id);
        }
    }

    #[test]
    fn long_values_are_not_kept() {
        let mut envelope = Envelope::default();
        envelope.read(br#"{"id":""#);
        (0..1000).for_each(|_| envelope.read(&[b'x'; 1000]));
        assert!(envelope.token.capacity() < 8 * MAX_TOKEN_BYTES);
        envelope.read(br#"","method":"x"}"#);
        assert_eq!(envelope.id(), None);
    }
}
