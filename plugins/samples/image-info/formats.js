// The headers of each format. Each loop goes forward in the file, and a bounded number of times.

import { readExif } from "./exif.js";
import { Damaged } from "./reader.js";

/** Chunks, segments or blocks that are looked at. */
const MAX_PARTS = 100_000;

const PNG = {
  name: "PNG",
  mediaType: "image/png",
  begins: (reader) => reader.has(0, "\x89PNG\r\n\x1a\n"),
  read(reader) {
    if (!reader.has(12, "IHDR")) throw new Damaged("its first chunk is no IHDR");
    const kind = reader.byte(25);
    if (![0, 2, 3, 4, 6].includes(kind)) throw new Damaged(`it has no color type ${kind}`);
    const info = { ...size(reader.number(16, 4), reader.number(20, 4)), depth: reader.byte(24), alpha: kind >= 4 };
    walk(reader, 8, (at) => {
      const length = reader.number(at, 4);
      const type = reader.latin1(at + 4, 4);
      if (type === "tRNS") info.alpha = true;
      if (type === "acTL") info.frames = reader.number(at + 8, 4);
      if (type === "eXIf") Object.assign(info, readExif(reader, at + 8, length));
      return type === "IEND" ? undefined : at + 12 + length;
    });
    return info;
  },
};

const JPEG = {
  name: "JPEG",
  mediaType: "image/jpeg",
  begins: (reader) => reader.has(0, "\xff\xd8\xff"),
  read(reader) {
    let info;
    let exif = {};
    walk(reader, 2, (at) => {
      if (reader.byte(at) !== 0xff) throw new Damaged(`no segment begins at byte ${at}`);
      const marker = reader.byte(at + 1);
      // Filling, and markers that are all of their segment.
      if (marker === 0xff) return at + 1;
      if (marker === 0x01 || (marker >= 0xd0 && marker <= 0xd7)) return at + 2;
      // The picture itself, or the end.
      if (marker === 0xda || marker === 0xd9) return undefined;
      const length = reader.number(at + 2, 2);
      if (length < 2) throw new Damaged(`a segment has ${length} bytes`);
      if (marker === 0xe1 && reader.has(at + 4, "Exif\0\0")) exif = readExif(reader, at + 10, length - 8);
      const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
      if (isFrame && !info) {
        const [height, width] = [reader.number(at + 5, 2), reader.number(at + 7, 2)];
        info = { ...size(width, height), depth: reader.byte(at + 4), alpha: false };
      }
      return at + 2 + length;
    });
    if (!info) throw new Damaged("it has no frame");
    return { ...info, ...exif };
  },
};

const GIF = {
  name: "GIF",
  mediaType: "image/gif",
  begins: (reader) => reader.has(0, "GIF87a") || reader.has(0, "GIF89a"),
  read(reader) {
    const flags = reader.byte(10);
    const info = { ...size(reader.number(6, 2, true), reader.number(8, 2, true)), depth: (flags & 7) + 1, alpha: false };
    const palette = (flags) => (flags & 0x80 ? 3 << ((flags & 7) + 1) : 0);
    let frames = 0;
    // Blocks of data follow each other until an empty one.
    let inData = false;
    const complete = walk(reader, 13 + palette(flags), (at) => {
      const first = reader.byte(at);
      if (inData) {
        inData = first > 0;
        return at + 1 + first;
      }
      if (first === 0x3b) return undefined;
      inData = true;
      if (first === 0x21) {
        if (reader.byte(at + 1) === 0xf9 && reader.byte(at + 3) & 1) info.alpha = true;
        return at + 2;
      }
      if (first !== 0x2c) throw new Damaged(`no block begins at byte ${at}`);
      frames += 1;
      return at + 11 + palette(reader.byte(at + 9));
    });
    return complete ? { ...info, frames } : info;
  },
};

const WEBP = {
  name: "WebP",
  mediaType: "image/webp",
  begins: (reader) => reader.has(0, "RIFF") && reader.has(8, "WEBP"),
  read(reader) {
    let info;
    let frames = 0;
    let exif = {};
    walk(reader, 12, (at) => {
      const type = reader.latin1(at, 4);
      const length = reader.number(at + 4, 4, true);
      const data = at + 8;
      if (type === "VP8X") {
        const [width, height] = [reader.number(data + 4, 3, true) + 1, reader.number(data + 7, 3, true) + 1];
        info = { ...size(width, height), depth: 8, alpha: (reader.byte(data) & 0x10) !== 0 };
      } else if (type === "VP8L" && !info) {
        if (reader.byte(data) !== 0x2f) throw new Damaged("its picture has another signature");
        const bits = reader.number(data + 1, 4, true);
        info = { ...size((bits & 0x3fff) + 1, ((bits >>> 14) & 0x3fff) + 1), depth: 8, alpha: ((bits >>> 28) & 1) === 1 };
      } else if (type === "VP8 " && !info) {
        if (!reader.has(data + 3, "\x9d\x01\x2a")) throw new Damaged("its picture has another signature");
        const [width, height] = [reader.number(data + 6, 2, true), reader.number(data + 8, 2, true)];
        info = { ...size(width & 0x3fff, height & 0x3fff), depth: 8, alpha: false };
      } else if (type === "ANMF") {
        frames += 1;
      } else if (type === "EXIF") {
        const before = reader.has(data, "Exif\0\0") ? 6 : 0;
        exif = readExif(reader, data + before, length - before);
      }
      return data + length + (length % 2);
    });
    if (!info) throw new Damaged("it has no picture");
    return { ...info, ...(frames > 0 ? { frames } : {}), ...exif };
  },
};

const BMP = {
  name: "BMP",
  mediaType: "image/bmp",
  // Two letters alone begin many texts.
  begins: (reader) => reader.has(0, "BM") && reader.size >= 26 && [12, 40, 52, 56, 64, 108, 124].includes(reader.number(14, 4, true)),
  read(reader) {
    const header = reader.number(14, 4, true);
    if (header === 12) {
      return { ...size(reader.number(18, 2, true), reader.number(20, 2, true)), ...bits(reader.number(24, 2, true)), alpha: false };
    }
    // Negative: the first row is the highest.
    const height = Math.abs(reader.number(22, 4, true) | 0);
    const alpha = header >= 56 && header !== 64 && reader.number(66, 4, true) !== 0;
    return { ...size(reader.number(18, 4, true), height), ...bits(reader.number(28, 2, true)), alpha };
  },
};

/** Bits of a pixel as bits of a channel, or of an index. */
function bits(ofPixel) {
  if (![1, 4, 8, 16, 24, 32].includes(ofPixel)) throw new Damaged(`its pixels have ${ofPixel} bits`);
  return { depth: ofPixel > 16 ? 8 : ofPixel === 16 ? 5 : ofPixel };
}

function size(width, height) {
  if (width === 0 || height === 0) throw new Damaged(`it is ${width} by ${height} pixels`);
  return { width, height };
}

/**
 * Calls `step` with places until it has no next one or the file ends. Returns whether it came to an
 * end. A picture whose last bytes are missing still has a size, so they are no damage here.
 */
function walk(reader, start, step) {
  let at = start;
  for (let count = 0; count < MAX_PARTS && at < reader.size; count++) {
    let next;
    try {
      next = step(at);
    } catch (error) {
      if (error instanceof Damaged && at > start) return false;
      throw error;
    }
    if (next === undefined) return true;
    if (next <= at) throw new Damaged("a part of it leads back");
    at = next;
  }
  return false;
}

export const FORMATS = [PNG, JPEG, GIF, WEBP, BMP];
