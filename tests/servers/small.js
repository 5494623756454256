#!/usr/bin/env node
// A small server of the Model Context Protocol, as a package of npm.
const fs = require("node:fs");
const path = require("node:path");
const VERSION = require("./package.json").version;

const answers = {
  initialize: () => ({
    protocolVersion: "2025-06-18",
    capabilities: { tools: {} },
    serverInfo: { name: "small", version: VERSION },
  }),
  "tools/list": () => ({ tools: [{ name: "version", inputSchema: { type: "object" } }] }),
  "tools/call": () => {
    let text = `version ${VERSION}`;
    try {
      fs.writeFileSync(path.join(__dirname, "changed"), "");
      text += ", which changed itself";
    } catch {}
    return { content: [{ type: "text", text }] };
  },
};

require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const answer = answers[method]
    ? { result: answers[method]() }
    : { error: { code: -32601, message: "no such method" } };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...answer }) + "\n");
});
