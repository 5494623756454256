// Numbers and texts at any place of a file, of which a part at a time is in memory.

/** A file that breaks the rules of its format. */
export class Damaged extends Error {}

const PART = 64 * 1024;

export class Reader {
  /** `readPart(from, length)` has the bytes of a part of the file. */
  constructor(readPart, size) {
    this.readPart = readPart;
    this.size = size;
    this.from = 0;
    this.part = new Uint8Array(0);
  }

  /** So many bytes at a place; at most a part. What lies beyond the end is damage. */
  bytes(at, length) {
    if (!(at >= 0) || at + length > this.size) throw new Damaged(`it ends after ${this.size} bytes`);
    if (at < this.from || at + length > this.from + this.part.length) {
      this.part = this.readPart(at, Math.min(Math.max(length, PART), this.size - at));
      this.from = at;
      // The file has become shorter meanwhile.
      if (this.part.length < length) throw new Damaged(`it ends after ${at + this.part.length} bytes`);
    }
    return this.part.subarray(at - this.from, at - this.from + length);
  }

  byte(at) {
    return this.bytes(at, 1)[0];
  }

  /** An unsigned number of 2, 3 or 4 bytes. */
  number(at, length, littleEndian) {
    const bytes = [...this.bytes(at, length)];
    if (littleEndian) bytes.reverse();
    return bytes.reduce((number, byte) => number * 256 + byte, 0);
  }

  /** Bytes as characters from U+0000 to U+00FF. */
  latin1(at, length) {
    return String.fromCharCode(...this.bytes(at, length));
  }

  /** Whether these characters stand there. */
  has(at, text) {
    return at + text.length <= this.size && this.latin1(at, text.length) === text;
  }
}
