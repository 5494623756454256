//! Writes custom sections of a component.

use wasmparser::{Parser, Payload};

use crate::pack_error::PackError;

/// The section with the manifest.
const SECTION: &str = "toolhold:manifest";

/// The ID of custom sections in the binary format.
const CUSTOM: u8 = 0;

/// The bytes of a section's ID. The section's length follows, as an LEB128 number of 32 bits.
const ID_SIZE: usize = 1;
const MAX_LENGTH_SIZE: usize = 5;

/// The bits of a number in each byte of LEB128. The highest bit of a byte says whether a byte
/// follows.
const LEB128_BITS: usize = 7;
const LEB128_MASK: u8 = 0x7f;
const LEB128_CONTINUES: u8 = 0x80;

/// Writes the manifest as the last section, and removes old manifests, except in nested components.
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

/// Returns the position of a custom section's header: the section's ID and the length of its
/// content. The length may be padded, so the header can have several sizes.
fn find_header(component: &[u8], content: &std::ops::Range<usize>) -> Result<usize, PackError> {
    for length_size in 1..=MAX_LENGTH_SIZE {
        let Some(start) = content.start.checked_sub(ID_SIZE + length_size) else { break };
        let length = read_length(&component[start + ID_SIZE..content.start]);
        if component[start] == CUSTOM && length == Some(content.len()) {
            return Ok(start);
        }
    }
    Err(PackError::NoHeader)
}

/// Reads an LEB128 number. Returns `None` if the number doesn't end with the last byte.
fn read_length(bytes: &[u8]) -> Option<usize> {
    let mut value = 0_usize;
    for (index, byte) in bytes.iter().enumerate() {
        value |= usize::from(byte & LEB128_MASK) << (LEB128_BITS * index);
        let is_last = index + 1 == bytes.len();
        let ends = byte & LEB128_CONTINUES == 0;
        if ends != is_last {
            return None;
        }
    }
    Some(value)
}

fn push_length(bytes: &mut Vec<u8>, length: usize) -> Result<(), PackError> {
    let mut rest = u32::try_from(length).map_err(|_| PackError::ManifestTooLong)?;
    loop {
        let lowest_bits = (rest & u32::from(LEB128_MASK)) as u8;
        rest >>= LEB128_BITS;
        if rest == 0 {
            bytes.push(lowest_bits);
            return Ok(());
        }
        bytes.push(lowest_bits | LEB128_CONTINUES);
    }
}
