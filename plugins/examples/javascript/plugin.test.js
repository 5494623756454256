import "../../sdk-javascript/testing.js";

import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { wordCount } from "./plugin.js";

test("words and lines are counted", () => {
  const path = join(mkdtempSync(join(tmpdir(), "word-count-")), "notes.txt");
  writeFileSync(path, "one two\nthree\n");
  assert.deepEqual(wordCount.call({ path }), { lines: 2, words: 3, bytes: 14 });
});

test("missing file is reported", () => {
  assert.throws(() => wordCount.call({ path: "/no/such/file" }), { code: "not-found", message: "/no/such/file: not found" });
});
