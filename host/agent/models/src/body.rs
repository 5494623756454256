//! Writes the JSON of requests. The same turn always has the same bytes: fields have a fixed order,
//! and raw values are copied byte for byte.

use serde::Serialize;

use crate::raw::RawJson;

pub(crate) struct Writer<'o> {
    out: &'o mut Vec<u8>,
    is_first: bool,
}

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
    pub(crate) fn field(&mut self, key: &str, value: &(impl Serialize + ?Sized)) {
        self.key(key);
        self.write(value);
    }

    pub(crate) fn optional_field(&mut self, key: &str, value: Option<&(impl Serialize + ?Sized)>) {
        if let Some(value) = value {
            self.field(key, value);
        }
    }

    pub(crate) fn raw(&mut self, key: &str, json: &str) {
        self.key(key);
        self.out.extend_from_slice(json.as_bytes());
    }

    pub(crate) fn object(&mut self, key: &str, fill: impl FnOnce(&mut Writer<'_>)) {
        self.key(key);
        enclosed(self.out, b"{}", fill);
    }

    pub(crate) fn array(&mut self, key: &str, fill: impl FnOnce(&mut Writer<'_>)) {
        self.key(key);
        enclosed(self.out, b"[]", fill);
    }

    /// Copies all fields of an object byte for byte.
    pub(crate) fn fields_of(&mut self, object: &RawJson) {
        for (key, value) in object.fields().iter() {
            self.raw(key, value.get());
        }
    }

    pub(crate) fn item(&mut self, json: &str) {
        self.comma();
        self.out.extend_from_slice(json.as_bytes());
    }

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
            // Serialisation fails only for types that JSON doesn't have, and no request contains
            // these types.
            self.out.truncate(start);
            self.out.extend_from_slice(b"null");
        }
    }
}
