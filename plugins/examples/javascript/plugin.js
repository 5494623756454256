// A plugin with one tool.

import { encodeUtf8, files, tool } from "../../sdk-javascript/toolhold.js";

export const wordCount = tool({
  name: "word_count",
  description: "Counts the lines, words and bytes of a text file. Fails if the file is missing or is not UTF-8.",
  promises: ["read-only", "closed-world"],
  arguments: {
    path: { type: "string", description: "The text file.", subject: "reads-path" },
  },
  output: {
    type: "object",
    properties: { lines: { type: "integer" }, words: { type: "integer" }, bytes: { type: "integer" } },
    required: ["lines", "words", "bytes"],
  },
  call({ path }) {
    const text = files.readText(path);
    const lines = text.split("\n");
    if (lines.at(-1) === "") lines.pop();
    return { lines: lines.length, words: text.split(/\s+/).filter(Boolean).length, bytes: encodeUtf8(text).length };
  },
});
