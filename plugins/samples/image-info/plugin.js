// A plugin with one tool, which looks at the headers of an image and decodes none of its pixels.

import { Failure, files, tool } from "../../sdk-javascript/toolhold.js";
import { FORMATS } from "./formats.js";
import { Damaged, Reader } from "./reader.js";
import { looksLikeSvg, readSvg } from "./svg.js";

const MAX_MIB = 20;

export const imageInfo = tool({
  name: "image_info",
  title: "Image information",
  description:
    "Says what an image file is: its format, its size in pixels and in bytes, its depth, whether it has transparency, how many frames it has, and how and when a camera took it. Knows PNG, JPEG, GIF, WebP, BMP and SVG, up to 20 MiB. Fails if the file is another one, or is damaged.",
  promises: ["read-only", "idempotent", "closed-world", "cacheable"],
  arguments: {
    path: { type: "string", description: "The image file.", subject: "reads-path" },
  },
  output: {
    type: "object",
    properties: {
      format: { type: "string", enum: ["PNG", "JPEG", "GIF", "WebP", "BMP", "SVG"] },
      media_type: { type: "string" },
      bytes: { type: "integer", description: "The size of the file." },
      width: { type: "number", description: "Pixels, before `orientation` is applied. Missing in an SVG that fits any size." },
      height: { type: "number", description: "The same." },
      depth: { type: "integer", description: "Bits of each channel, or of the index into a palette." },
      alpha: { type: "boolean", description: "Whether pixels can be transparent." },
      frames: { type: "integer", description: "The pictures of an animation." },
      orientation: { type: "integer", description: "From 1 to 8, as EXIF has it. 1: as it is stored." },
      orientation_means: { type: "string", description: "How the picture has to be turned." },
      taken: { type: "string", description: "The date and time of the camera, without a time zone." },
    },
    required: ["format", "media_type", "bytes"],
  },
  call({ path }) {
    const found = files.stat(path);
    if (!found) throw new Failure(`${path}: not found`, { code: "not-found" });
    if (found.kind !== "regular-file") throw new Failure(`${path} is no file`, { code: "not-a-file" });
    if (found.size > MAX_MIB << 20) {
      throw new Failure(`${path} has ${found.size} bytes; the limit is ${MAX_MIB} MiB`, { code: "too-large" });
    }
    const reader = new Reader((from, length) => files.readBytes(path, { from, length }), found.size);
    try {
      return { ...read(reader, path), bytes: found.size };
    } catch (error) {
      if (!(error instanceof Damaged)) throw error;
      throw new Failure(`${path} is damaged: ${error.message}`, { code: "damaged" });
    }
  },
});

function read(reader, path) {
  const format = FORMATS.find((each) => each.begins(reader));
  if (format) return { format: format.name, media_type: format.mediaType, ...format.read(reader) };
  if (looksLikeSvg(reader)) return { format: "SVG", media_type: "image/svg+xml", ...readSvg(reader) };
  throw new Failure(`${path} is no PNG, JPEG, GIF, WebP, BMP or SVG`, { code: "unknown-format" });
}
