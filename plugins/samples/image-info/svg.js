// The size that an SVG names. Only its first element is read, and nothing is resolved.

import { decodeUtf8 } from "../../sdk-javascript/toolhold.js";
import { Damaged } from "./reader.js";

/** Bytes before the end of the first element. */
const MAX_BEGINNING = 64 * 1024;

/** The attributes of the first element, if that is `svg`. */
function root(reader) {
  const text = decodeUtf8(reader.bytes(0, Math.min(reader.size, MAX_BEGINNING)));
  let at = text.charCodeAt(0) === 0xfeff ? 1 : 0;
  for (;;) {
    while (/\s/.test(text[at] ?? "")) at++;
    const end = [["<?", "?>"], ["<!--", "-->"], ["<!", ">"]].find(([begin]) => text.startsWith(begin, at))?.[1];
    if (!end) break;
    const found = text.indexOf(end, at);
    if (found < 0) return undefined;
    at = found + end.length;
  }
  return /^<svg[\s/>]/.test(text.slice(at, at + 5)) ? text.slice(at + 4) : undefined;
}

export function looksLikeSvg(reader) {
  return root(reader) !== undefined;
}

export function readSvg(reader) {
  const attributes = {};
  // Each try begins where the last one ended, and none looks further than the next quote.
  const attribute = /\s*([\w:.-]+)\s*=\s*(?:"([^"]*)"|'([^']*)')|\s*\/?(>)/y;
  const text = root(reader);
  for (let found; (found = attribute.exec(text)) && !found[4]; ) attributes[found[1]] ??= found[2] ?? found[3];
  if (attribute.lastIndex === 0) throw new Damaged("its first element isn't valid");
  const pixels = (value) => {
    const found = /^\s*(\d{1,9}(?:\.\d{1,9})?)(?:px)?\s*$/.exec(value ?? "");
    return found ? Number(found[1]) : undefined;
  };
  const box = (attributes.viewBox ?? "").trim().split(/[\s,]+/).map(pixels);
  const [width, height] = [pixels(attributes.width) ?? box[2], pixels(attributes.height) ?? box[3]];
  return { ...(width > 0 && height > 0 ? { width, height } : {}), alpha: true };
}
