//! Writes the JSON of requests. Fields have a fixed order, and raw values are copied byte for byte.
//! Therefore the same turn always has the same bytes.

use serde::Serialize;

use crate::raw::RawJson;

/// Writes the fields of an object or the items of an array.
pub(crate) struct Writer<'o> {
    out: &'o mut Vec<u8>,
    is_first: bool,
}

/// Writes a JSON object. `fill` writes its fields.
pub(crate) fn object(fill: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    enclosed(&mut out, b"{}", fill);
    out
}

fn enclosed(out: &mut Vec<u8>, signs: &[u8; 2], fill: impl FnOnce(&mut Writer<'_>)) {
    out.push(signs[0]);
    fill(&mut Writer { out, is_first: true });
    out.push(signs[1]);
}

impl Writer<'_> {
    /// Writes a field.
    pub(crate) fn field(&mut self, key: &str, value: &(impl Serialize + ?Sized)) {
        self.key(key);
        self.write(value);
    }

    /// Writes a field, if there is a value.
    pub(crate) fn maybe(&mut self, key: &str, value: Option<&(impl Serialize + ?Sized)>) {
        if let Some(value) = value {
            self.field(key, value);
        }
    }

    /// Writes a field whose value is already JSON.
    pub(crate) fn raw(&mut self, key: &str, json: &str) {
        self.key(key);
        self.out.extend_from_slice(json.as_bytes());
    }

    /// Writes a field that is an object.
    pub(crate) fn object(&mut self, key: &str, fill: impl FnOnce(&mut Writer<'_>)) {
        self.key(key);
        enclosed(self.out, b"{}", fill);
    }

    /// Writes a field that is an array.
    pub(crate) fn array(&mut self, key: &str, fill: impl FnOnce(&mut Writer<'_>)) {
        self.key(key);
        enclosed(self.out, b"[]", fill);
    }

    /// Writes all fields of an earlier object, byte for byte.
    pub(crate) fn fields_of(&mut self, object: &RawJson) {
        for (key, value) in object.fields().iter() {
            self.raw(key, value.get());
        }
    }

    /// Writes an item of an array that is JSON already.
    pub(crate) fn item(&mut self, json: &str) {
        self.comma();
        self.out.extend_from_slice(json.as_bytes());
    }

    /// Writes an item of an array that is an object.
    pub(crate) fn object_item(&mut self, fill: impl FnOnce(&mut Writer<'_>)) {
        self.comma();
        enclosed(self.out, b"{}", fill);
    }

    fn key(&mut self, key: &str) {
        self.comma();
        self.write(key);
        self.out.push(b':');
    }

    fn comma(&mut self) {
        if !self.is_first {
            self.out.push(b',');
        }
        self.is_first = false;
    }

    fn write(&mut self, value: &(impl Serialize + ?Sized)) {
        let start = self.out.len();
        if serde_json::to_writer(&mut *self.out, value).is_err() {
            // Serialisation fails only for types that JSON doesn't have, and such types aren't used
            // here.
            self.out.truncate(start);
            self.out.extend_from_slice(b"null");
        }
    }
}
