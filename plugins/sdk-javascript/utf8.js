// Texts as UTF-8 and back. QuickJS has no TextEncoder and no TextDecoder.

/** The bytes of a text. Half of a surrogate pair becomes U+FFFD. */
export function encodeUtf8(text) {
  const bytes = [];
  for (const character of text) {
    let code = character.codePointAt(0);
    if (code >= 0xd800 && code <= 0xdfff) code = 0xfffd;
    if (code < 0x80) bytes.push(code);
    else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 0x3f));
    else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
    else bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 0x3f), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
  }
  return Uint8Array.from(bytes);
}

/** The text of UTF-8 bytes. What isn't valid becomes U+FFFD, or with `fatal` a TypeError. */
export function decodeUtf8(bytes, { fatal = false } = {}) {
  // As parts, since a function takes a bounded number of arguments, and long sums of texts are slow.
  const parts = [];
  let units = [];
  let at = 0;
  while (at < bytes.length) {
    const [code, length] = next(bytes, at);
    if (code < 0) {
      if (fatal) throw new TypeError(`not UTF-8 at byte ${at}`);
      units.push(0xfffd);
    } else if (code < 0x10000) {
      units.push(code);
    } else {
      units.push(0xd800 + ((code - 0x10000) >> 10), 0xdc00 + ((code - 0x10000) & 0x3ff));
    }
    at += length;
    if (units.length >= 8192) {
      parts.push(String.fromCharCode.apply(null, units));
      units = [];
    }
  }
  parts.push(String.fromCharCode.apply(null, units));
  return parts.join("");
}

/** The character at a place and its bytes. -1: what begins there is no character. */
function next(bytes, at) {
  const first = bytes[at];
  if (first < 0x80) return [first, 1];
  const length = first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xc2 && first < 0xe0 ? 2 : 0;
  if (length === 0) return [-1, 1];
  let code = first & (0xff >> (length + 1));
  for (let index = 1; index < length; index++) {
    const byte = bytes[at + index];
    if (byte === undefined || (byte & 0xc0) !== 0x80) return [-1, index];
    code = (code << 6) | (byte & 0x3f);
    const tooLong = index === 1 && ((length === 3 && code < 0x20) || (length === 4 && code < 0x10));
    const noCharacter = index === 1 && ((length === 3 && code >= 0x360 && code < 0x380) || (length === 4 && code > 0x10f));
    if (tooLong || noCharacter) return [-1, 1];
  }
  return [code, length];
}
