// What a camera says of a picture: two directories of the TIFF that EXIF is. No other directory is
// followed, so none can lead back.

import { Damaged } from "./reader.js";

const MAX_ENTRIES = 500;

const ORIENTATION = 0x0112;
const CHANGED = 0x0132;
const EXIF = 0x8769;
const TAKEN = 0x9003;

const MEANINGS = [
  "as it is",
  "mirror left to right",
  "turn by 180°",
  "mirror top to bottom",
  "mirror left to right, then turn by 270° clockwise",
  "turn by 90° clockwise",
  "mirror left to right, then turn by 90° clockwise",
  "turn by 270° clockwise",
];

/** The orientation and the date of the EXIF data at a place. What isn't valid there is left out. */
export function readExif(reader, at, length) {
  const end = Math.min(at + length, reader.size);
  try {
    return read(reader, at, end);
  } catch (error) {
    if (error instanceof Damaged) return {};
    throw error;
  }
}

function read(reader, at, end) {
  const order = reader.latin1(at, 2);
  if (order !== "II" && order !== "MM") return {};
  const little = order === "II";
  const number = (place, bytes) => {
    if (place + bytes > end) throw new Damaged("a place is beyond the data");
    return reader.number(place, bytes, little);
  };
  if (number(at + 2, 2) !== 42) return {};

  /** The entries of a directory: the place of each value by its tag. */
  const directory = (start) => {
    const entries = new Map();
    const count = Math.min(number(start, 2), MAX_ENTRIES);
    for (let index = 0; index < count; index++) {
      const entry = start + 2 + 12 * index;
      entries.set(number(entry, 2), { type: number(entry + 2, 2), count: number(entry + 4, 4), place: entry + 8 });
    }
    return entries;
  };
  const date = (entry) => {
    if (entry?.type !== 2 || entry.count < 19 || entry.count > 30) return undefined;
    const place = at + number(entry.place, 4);
    if (place + 19 > end) return undefined;
    const found = /^(\d{4}):(\d\d):(\d\d) (\d\d:\d\d:\d\d)$/.exec(reader.latin1(place, 19));
    return found ? `${found[1]}-${found[2]}-${found[3]}T${found[4]}` : undefined;
  };

  const main = directory(at + number(at + 4, 4));
  const info = {};
  const turned = main.get(ORIENTATION);
  if (turned?.type === 3) {
    const orientation = number(turned.place, 2);
    if (MEANINGS[orientation - 1]) Object.assign(info, { orientation, orientation_means: MEANINGS[orientation - 1] });
  }
  let taken = date(main.get(CHANGED));
  if (main.has(EXIF)) {
    try {
      taken = date(directory(at + number(main.get(EXIF).place, 4)).get(TAKEN)) ?? taken;
    } catch (error) {
      if (!(error instanceof Damaged)) throw error;
    }
  }
  return taken ? { ...info, taken } : info;
}
