//! Writes custom sections of a component, such as the one that holds the manifest.

use wasmparser::{Parser, Payload};

use crate::pack_error::PackError;

/// The name of the section.
const SECTION: &str = "toolhold:manifest";

/// The number of a custom section.
const CUSTOM: u8 = 0;

/// Writes a manifest as the last section of a component. Removes other manifests at the component's
/// own level.
pub(crate) fn with_section(component: &[u8], manifest: &[u8]) -> Result<Vec<u8>, PackError> {
    if !Parser::is_component(component) {
        return Err(PackError::NotComponent);
    }
    let mut depth = 0_usize;
    let mut old_sections = Vec::new();
    for payload in Parser::new(0).parse_all(component) {
        match payload.map_err(PackError::Damaged)? {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) if depth == 0 && section.name() == SECTION => {
                old_sections.push(section.range());
            }
            _ => {}
        }
    }

    // The last section is removed first, so that the positions of earlier sections stay valid.
    let mut packed = component.to_vec();
    for content in old_sections.into_iter().rev() {
        let start = find_header(component, &content)?;
        packed.drain(start..content.end);
    }

    push_section(&mut packed, SECTION, manifest)?;
    Ok(packed)
}

/// Writes a custom section at the end of a component.
pub(crate) fn push_section(
    component: &mut Vec<u8>,
    name: &str,
    content: &[u8],
) -> Result<(), PackError> {
    let mut body = Vec::new();
    push_length(&mut body, name.len())?;
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(content);
    component.push(CUSTOM);
    push_length(component, body.len())?;
    component.extend_from_slice(&body);
    Ok(())
}

/// Returns the position of the header of a custom section with this content. The header is the
/// section's number and the encoded length of the content. The length may be padded.
fn find_header(component: &[u8], content: &std::ops::Range<usize>) -> Result<usize, PackError> {
    // The number takes one byte, and the length at most five.
    for header_length in 2..=6 {
        let Some(start) = content.start.checked_sub(header_length) else { break };
        let length = read_length(&component[start + 1..content.start]);
        if component[start] == CUSTOM && length == Some(content.len()) {
            return Ok(start);
        }
    }
    Err(PackError::NoHeader)
}

/// Reads a length in the binary format (LEB128). Each byte has seven bits, and the lowest bits come
/// first. Returns `None` if the length doesn't take all of these bytes.
fn read_length(bytes: &[u8]) -> Option<usize> {
    let mut value = 0_usize;
    for (index, byte) in bytes.iter().enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        let is_last = index + 1 == bytes.len();
        let says_last = byte & 0x80 == 0;
        if is_last != says_last {
            return None;
        }
    }
    Some(value)
}

/// Writes a length of the binary format.
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
