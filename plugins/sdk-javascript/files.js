// The files that the plugin was granted. Ask for `files` in the manifest.
//
// An error of a file is a Failure with a code: `not-found`, `not-permitted`, `exists`, …

import { Failure } from "./toolhold.js";
import { imported, payload } from "./host.js";
import { decodeUtf8, encodeUtf8 } from "./utf8.js";

const PART = 64 * 1024;

/** The bytes of a file, or those of a part of it: `length` bytes after the first `from`, or fewer at its end. */
export function readBytes(path, { from = 0, length: most = Infinity } = {}) {
  return onFile(path, {}, { read: true }, (file) => {
    const parts = [];
    let length = 0;
    while (length < most) {
      const [part, ended] = file.read(Math.min(PART, most - length), from + length);
      parts.push(part);
      length += part.length;
      if (ended || part.length === 0) break;
    }
    const whole = new Uint8Array(length);
    let at = 0;
    for (const part of parts) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  });
}

/** The text of a file. A file that isn't UTF-8 is a failure with the code `invalid-data`. */
export function readText(path) {
  const bytes = readBytes(path);
  try {
    return decodeUtf8(bytes, { fatal: true });
  } catch (error) {
    throw new Failure(`${path}: ${error.message}`, { code: "invalid-data" });
  }
}

/** Writes a whole file: a text or bytes. */
export function write(path, content) {
  const bytes = typeof content === "string" ? encodeUtf8(content) : content;
  onFile(path, { create: true, truncate: true }, { write: true }, (file) => {
    let at = 0;
    while (at < bytes.length) at += Number(file.write(bytes.subarray(at, at + PART), at));
  });
}

/** The names in a folder, sorted, each with its kind: `[{ name, kind }]`. */
export function list(path) {
  return onFile(path, { directory: true }, { read: true }, (folder) => {
    const entries = [];
    const stream = folder.readDirectory();
    for (let entry; (entry = stream.readDirectoryEntry()); ) entries.push({ name: entry.name, kind: entry.type });
    stream[Symbol.dispose]?.();
    return entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  });
}

/** What there is of a path: `{ kind, size }`. Undefined: nothing is there. */
export function stat(path) {
  try {
    const found = at(path, (folder, rest) => folder.statAt({ symlinkFollow: true }, rest));
    return { kind: found.type, size: Number(found.size) };
  } catch (error) {
    if (error.code === "not-found") return undefined;
    throw error;
  }
}

/** Makes a folder. */
export function makeDirectory(path) {
  at(path, (folder, rest) => folder.createDirectoryAt(rest));
}

/** Removes a file. */
export function remove(path) {
  at(path, (folder, rest) => folder.unlinkFileAt(rest));
}

function onFile(path, how, rights, work) {
  return at(path, (folder, rest) => {
    const file = folder.openAt({ symlinkFollow: true }, rest, how, rights);
    try {
      return work(file);
    } finally {
      file[Symbol.dispose]?.();
    }
  });
}

/** Does something at a path: in the granted directory that holds it, with the rest of the path. */
function at(path, work) {
  const inside = (granted) => granted === "/" || path === granted || path.startsWith(`${granted}/`);
  const directories = imported("preopens", "files").getDirectories();
  let best;
  for (const [folder, granted] of directories) {
    if (inside(granted) && (!best || granted.length > best[1].length)) best = [folder, granted];
  }
  if (!best) throw new Failure(`${path}: not found`, { code: "not-found" });
  const rest = path.slice(best[1].length).replace(/^\/+/, "");
  try {
    return work(best[0], rest || ".");
  } catch (error) {
    throw failure(path, payload(error));
  }
}

const WORDS = {
  "no-entry": ["not-found", "not found"],
  access: ["not-permitted", "not permitted"],
  "not-permitted": ["not-permitted", "not permitted"],
  exist: ["exists", "exists already"],
  "is-directory": ["is-a-directory", "is a directory"],
  "not-directory": ["not-a-directory", "a part of the path is not a directory"],
  "not-empty": ["not-empty", "the directory is not empty"],
  "read-only": ["read-only", "read-only file system"],
  "insufficient-space": ["no-space", "no space left"],
  quota: ["no-space", "no space left"],
  "file-too-large": ["too-large", "too large"],
  "name-too-long": ["invalid-name", "the file name isn't valid"],
};

function failure(path, error) {
  if (error instanceof Error) return error;
  const [code, words] = WORDS[error] ?? ["io", String(error)];
  return new Failure(`${path}: ${words}`, { code });
}
