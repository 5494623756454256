import { standin } from "../../sdk-javascript/testing.js";

import assert from "node:assert/strict";
import { mkdtempSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { imageInfo } from "./plugin.js";

const folder = mkdtempSync(join(tmpdir(), "image-info-"));

function info(bytes) {
  const path = join(folder, "image");
  writeFileSync(path, bytes);
  return imageInfo.call({ path });
}

const fails = (bytes, code) => assert.throws(() => info(bytes), { code });

const text = (value) => Buffer.from(value, "latin1");
const big = (value, bytes = 4) => Buffer.from(value.toString(16).padStart(2 * bytes, "0"), "hex");
const little = (value, bytes = 4) => Buffer.from(big(value, bytes)).reverse();
const all = (...parts) => Buffer.concat(parts.map((part) => (typeof part === "string" ? text(part) : Buffer.from(part))));

/** EXIF with the orientation 6 and two dates, the camera's in a directory of its own. */
function exif(number, order) {
  const entry = (tag, type, count, value) => all(number(tag, 2), number(type, 2), number(count), value);
  return all(
    order, number(42, 2), number(8),
    number(3, 2),
    entry(0x0112, 3, 1, all(number(6, 2), [0, 0])),
    entry(0x0132, 2, 20, number(68)),
    entry(0x8769, 4, 1, number(50)),
    number(0),
    number(1, 2), entry(0x9003, 2, 20, number(88)), number(0),
    "2024:05:06 07:08:09\0", "2023:01:02 03:04:05\0",
  );
}

const TURNED = { orientation: 6, orientation_means: "turn by 90° clockwise", taken: "2023-01-02T03:04:05" };

const chunk = (type, data = []) => all(big(data.length), type, data, [0, 0, 0, 0]);
const ihdr = (width, height, depth, kind) => chunk("IHDR", all(big(width), big(height), [depth, kind, 0, 0, 0]));
const png = (...chunks) => all("\x89PNG\r\n\x1a\n", ...chunks);
const segment = (marker, data) => all([0xff, marker], big(data.length + 2, 2), data);
const frame = (width, height) => segment(0xc2, all([8], big(height, 2), big(width, 2), [3, 1, 2, 3]));
const jpeg = (...parts) => all([0xff, 0xd8], ...parts);
const riff = (type, data) => all(type, little(data.length), data, data.length % 2 ? [0] : []);
const webp = (...parts) => all("RIFF", little(4 + parts.reduce((sum, part) => sum + part.length, 0)), "WEBP", ...parts);

test("each format says its size", () => {
  const bytes = png(ihdr(640, 480, 16, 6), chunk("eXIf", exif(big, "MM")), chunk("acTL", all(big(3), big(0))), chunk("IEND"));
  assert.deepEqual(info(bytes), {
    format: "PNG", media_type: "image/png", width: 640, height: 480, depth: 16, alpha: true, frames: 3, ...TURNED, bytes: bytes.length,
  });
  assert.equal(info(png(ihdr(1, 1, 8, 3), chunk("tRNS", [0]), chunk("IEND"))).alpha, true);

  const photo = info(jpeg(segment(0xe0, "JFIF\0"), segment(0xe1, all("Exif\0\0", exif(little, "II"))), [0xff], frame(4000, 3000), [0xff, 0xda]));
  assert.equal(photo.format, "JPEG");
  assert.deepEqual([photo.width, photo.height, photo.depth, photo.alpha, photo.orientation, photo.taken], [4000, 3000, 8, false, 6, TURNED.taken]);

  const image = all([0x2c], little(0, 4), little(2, 2), little(2, 2), [0], [2, 2, 0x4c, 0x01, 0]);
  const gif = info(all("GIF89a", little(20, 2), little(10, 2), [0x91, 0, 0], Buffer.alloc(12), [0x21, 0xf9, 4, 1, 0, 0, 0, 0], image, image, [0x3b]));
  assert.deepEqual([gif.width, gif.height, gif.depth, gif.alpha, gif.frames], [20, 10, 2, true, 2]);

  const lossy = info(webp(riff("VP8 ", all([0, 0, 0, 0x9d, 1, 0x2a], little(0x4000 | 300, 2), little(200, 2)))));
  assert.deepEqual([lossy.format, lossy.width, lossy.height, lossy.alpha], ["WebP", 300, 200, false]);
  const lossless = info(webp(riff("VP8L", all([0x2f], little(((1 << 28) | (99 << 14) | 149) >>> 0)))));
  assert.deepEqual([lossless.width, lossless.height, lossless.alpha], [150, 100, true]);
  const extended = info(webp(
    riff("VP8X", all([0x10, 0, 0, 0], little(999, 3), little(499, 3))),
    riff("ANMF", Buffer.alloc(3)), riff("ANMF", Buffer.alloc(4)), riff("EXIF", exif(little, "II")),
  ));
  assert.deepEqual([extended.width, extended.height, extended.frames, extended.taken], [1000, 500, 2, TURNED.taken]);

  const bmp = info(all("BM", Buffer.alloc(12), little(40), little(7), little(0x1_0000_0000 - 5), little(1, 2), little(24, 2), Buffer.alloc(24)));
  assert.deepEqual([bmp.format, bmp.width, bmp.height, bmp.depth, bmp.alpha], ["BMP", 7, 5, 8, false]);
});

test("size of an SVG is that of its first element", () => {
  const drawing = info('\ufeff<?xml version="1.0"?>\n<!-- a > b -->\n<!DOCTYPE svg>\n<svg xmlns="x" width="12.5px"\n height=\'8\'><svg width="1"/></svg>');
  assert.deepEqual([drawing.format, drawing.width, drawing.height], ["SVG", 12.5, 8]);
  const boxed = info('<svg width="100%" viewBox="0 0 30 20"/>');
  assert.deepEqual([boxed.width, boxed.height], [30, 20]);
  assert.equal("width" in info("<svg>"), false);
  fails("<svgs/>", "unknown-format");
  fails("<html><svg/></html>", "unknown-format");
});

test("what is no image is refused", () => {
  fails("", "unknown-format");
  fails("BMW is a car, and this is a text", "unknown-format");
  fails(png(chunk("IDAT")), "damaged");
  fails(png(ihdr(0, 1, 8, 2)), "damaged");
  fails(jpeg(segment(0xe0, "x"), [0xff, 0xd9]), "damaged");
  fails(webp(riff("ICCP", "x")), "damaged");
  assert.throws(() => imageInfo.call({ path: folder }), { code: "not-a-file" });
  assert.throws(() => imageInfo.call({ path: join(folder, "none") }), { code: "not-found" });
  const path = join(folder, "large");
  writeFileSync(path, png(ihdr(1, 1, 8, 2)));
  truncateSync(path, (20 << 20) + 1);
  assert.throws(() => imageInfo.call({ path }), { code: "too-large" });
});

const SAMPLES = [
  png(ihdr(640, 480, 16, 6), chunk("eXIf", exif(big, "MM")), chunk("IEND")),
  jpeg(segment(0xe1, all("Exif\0\0", exif(little, "II"))), frame(40, 30), [0xff, 0xda]),
  all("GIF89a", little(20, 2), little(10, 2), [0, 0, 0], [0x21, 0xf9, 4, 1, 0, 0, 0, 0], [0x3b]),
  webp(riff("VP8X", all([0x10, 0, 0, 0], little(999, 3), little(499, 3))), riff("EXIF", exif(little, "II"))),
  all("BM", Buffer.alloc(12), little(124), little(7), little(5), little(1, 2), little(32, 2), Buffer.alloc(94)),
  text('<?xml version="1.0"?><svg width="1" height="2" viewBox="0 0 30 20"/>'),
];

/** An answer within the schema, or a failure of the tool's own. */
function survives(bytes) {
  try {
    const { width = 1, height = 1 } = info(bytes);
    assert.ok(width > 0 && height > 0);
  } catch (error) {
    assert.ok(["damaged", "unknown-format"].includes(error.code), `${error.stack}`);
  }
}

test("cut and changed files are answered or refused", () => {
  for (const sample of SAMPLES) {
    for (let length = 0; length < sample.length; length++) survives(sample.subarray(0, length));
    for (let at = 0; at < sample.length; at++) {
      for (const value of [0, 1, 0x7f, 0x80, 0xff]) {
        const changed = Buffer.from(sample);
        changed[at] = value;
        survives(changed);
      }
    }
  }
});

test("many parts, long loops and huge sizes end soon", () => {
  const started = Date.now();
  assert.equal(info(png(ihdr(0x7fffffff, 0x7fffffff, 8, 2))).width, 0x7fffffff);
  survives(all(png(ihdr(1, 1, 8, 2)), Buffer.concat(Array(200_000).fill(chunk("tEXt")))));
  survives(all([0xff, 0xd8], Buffer.alloc(1 << 20, 0xff)));
  survives(all("GIF89a", little(1, 2), little(1, 2), [0, 0, 0, 0x21, 0xfe], Buffer.alloc(1 << 20, 1)));
  survives(webp(Buffer.concat(Array(200_000).fill(riff("JUNK", "")))));
  survives(all("<svg ", "a='".repeat(20_000)));
  survives(all("<svg", " ".repeat(60_000)));
  survives("<!--".repeat(16_000));
  // A directory that leads back to itself.
  survives(png(ihdr(1, 1, 8, 2), chunk("eXIf", all("MM", big(42, 2), big(8), big(1, 2), big(0x8769, 2), big(4, 2), big(1), big(8)))));
  assert.ok(Date.now() - started < 10_000);
  assert.deepEqual(standin.log, []);
});
