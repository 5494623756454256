//! Writes the custom section of a component that holds the manifest.

use wasmparser::{Parser, Payload};

use crate::pack_error::PackError;

/// The name of the section.
const SECTION: &str = "toolhold:manifest";

/// The number of a custom section.
const CUSTOM: u8 = 0;

/// The component with this manifest as its last section, and no other one at its own level.
pub(crate) fn with_section(component: &[u8], manifest: &[u8]) -> Result<Vec<u8>, PackError> {
    if !Parser::is_component(component) {
        return Err(PackError::NotComponent);
    }
    let mut kept = component.to_vec();
    let mut depth = 0_usize;
    let mut old = Vec::new();
    for payload in Parser::new(0).parse_all(component) {
        match payload.map_err(PackError::Damaged)? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) if depth == 0 && section.name() == SECTION => {
                old.push(section.range());
            }
            _ => {}
        }
    }
    // From the end, so that the ranges before stay right. A range begins behind the number of the
    // section and its length, which is as long as its value needs, or padded.
    for range in old.into_iter().rev() {
        let start = header(component, &range)?;
        kept.drain(start..range.end);
    }
    let mut body = Vec::new();
    push_length(&mut body, SECTION.len())?;
    body.extend_from_slice(SECTION.as_bytes());
    body.extend_from_slice(manifest);
    kept.push(CUSTOM);
    push_length(&mut kept, body.len())?;
    kept.extend_from_slice(&body);
    Ok(kept)
}

/// The position of the header of a custom section with this content.
fn header(component: &[u8], content: &std::ops::Range<usize>) -> Result<usize, PackError> {
    // A length takes at most five bytes.
    (2..=6)
        .filter_map(|length| content.start.checked_sub(length))
        .find(|start| {
            component[*start] == CUSTOM
                && read_length(&component[start + 1..content.start]) == Some(content.len())
        })
        .ok_or(PackError::NoHeader)
}

/// A length of the binary format that takes exactly these bytes.
fn read_length(bytes: &[u8]) -> Option<usize> {
    let mut value = 0_usize;
    for (index, byte) in bytes.iter().enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if (byte & 0x80 == 0) != (index + 1 == bytes.len()) {
            return None;
        }
    }
    Some(value)
}

fn push_length(bytes: &mut Vec<u8>, length: usize) -> Result<(), PackError> {
    let mut rest = u32::try_from(length).map_err(|_| PackError::ManifestTooLong)?;
    loop {
        let byte = (rest & 0x7f) as u8;
        rest >>= 7;
        if rest == 0 {
            bytes.push(byte);
            return Ok(());
        }
        bytes.push(byte | 0x80);
    }
}
