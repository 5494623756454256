// Tests of the SDK, as plugins see it. Run them with `node --test tests` in `plugins/sdk-javascript`.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeEach, test } from "node:test";

import { Failure, call, config, decodeUtf8, encodeUtf8, files, http, index, listTools, parts, process, schedule, search, service, store, tool } from "../toolhold.js";
import { reset, run, standin } from "../testing.js";

beforeEach(reset);

tool({
  name: "find",
  description: "Finds.",
  promises: ["read-only"],
  arguments: {
    path: { type: "string", description: "The file.", subject: "reads-path", aliases: ["file"] },
    limit: { type: "integer", default: 10 },
    timeout: { type: "number", role: "timeout", optional: true },
    data: { role: "attachment", optional: true },
  },
  call({ path, limit, data }) {
    if (path === "own") throw new Failure("no", { category: "timeout", code: "late", retryAfter: 1.5 });
    if (path === "thrown") throw "words";
    if (path === "odd") return () => 1;
    return data ? call.attachment(data).text : { path, limit };
  },
});

function failure(args) {
  try {
    run("find", args);
  } catch (error) {
    return error;
  }
  assert.fail("it succeeds");
}

test("arguments become a schema, and extras what the host does", () => {
  const [found] = listTools();
  assert.deepEqual(JSON.parse(found.inputSchema), {
    type: "object",
    properties: {
      path: { type: "string", description: "The file." },
      limit: { type: "integer", default: 10 },
      timeout: { type: "number" },
      data: {
        type: "object",
        properties: { $attachment: { type: "integer", minimum: 0 } },
        required: ["$attachment"],
        additionalProperties: false,
      },
    },
    required: ["path"],
    additionalProperties: false,
  });
  assert.deepEqual(found.subjects, [{ pointer: "/path", kind: "path", access: "read" }]);
  assert.deepEqual(found.arguments.map(({ name, aliases, roles }) => [name, aliases, roles]), [
    ["path", ["file"], []],
    ["timeout", [], ["timeout"]],
    ["data", [], ["attachment"]],
  ]);
});

test("mistakes of an author are told at once", () => {
  assert.throws(() => tool({ name: "find", description: "d", call() {} }), /a name of its own/);
  assert.throws(() => tool({ name: "a", call() {} }), /description is missing/);
  assert.throws(() => tool({ name: "b", description: "d", arguments: { x: {} }, call() {} }), /x has no type/);
  assert.throws(() => tool({ name: "c", description: "d", arguments: { x: { type: "string", subject: "y" } }, call() {} }), /no subject/);
  assert.throws(() => tool({ name: "d", description: "d", promises: ["readonly"], call() {} }), /no promise; there are: read-only/);
  assert.throws(() => new Failure("m", { category: "denied" }), /no category of failures/);
  assert.equal(new Failure("m", { category: "invalid_parameters" }).category, "invalid-parameters");
});

test("answers are JSON for programs and for readers of texts", () => {
  const output = run("find", { path: "a" });
  assert.equal(output.structured, '{"path":"a","limit":10}');
  assert.deepEqual(output.content, [
    { body: { tag: "text", val: output.structured }, mediaType: "application/json", meta: null },
  ]);
  const text = { body: { tag: "text", val: "attached" }, mediaType: null, meta: null };
  assert.equal(run("find", { path: "a", data: { $attachment: 0 } }, [text]).content[0].body.val, "attached");
});

test("whatever is thrown becomes a failure", () => {
  const own = failure({ path: "own" });
  assert.deepEqual([own.category, own.code, own.retryAfterMs], ["timeout", "late", 1500]);
  assert.deepEqual(standin.log, []);
  assert.equal(failure({ path: "thrown" }).message, 'threw "words"');
  assert.equal(failure({ path: "odd" }).message, "TypeError: a function has no form in JSON");
  assert.equal(standin.log.length, 2);
  assert.match(failure({ path: "a", data: { $attachment: 3 } }).message, /it has 0, counted from 0/);
});

test("texts survive UTF-8, and what is not valid is told", () => {
  for (const text of ["", "aä€😀\u0000", "x".repeat(20000) + "😀"]) {
    assert.equal(decodeUtf8(encodeUtf8(text)), text);
    assert.deepEqual(Buffer.from(encodeUtf8(text)), Buffer.from(text));
  }
  for (const bytes of [[0xff], [0xc3], [0xe2, 0x82], [0xf0, 0x9f], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0x61, 0x80]]) {
    const given = Uint8Array.from(bytes);
    assert.equal(decodeUtf8(given), new TextDecoder().decode(given), String(bytes));
    assert.throws(() => decodeUtf8(given, { fatal: true }), /not UTF-8/);
  }
});

test("files are written, listed and removed", () => {
  const folder = mkdtempSync(join(tmpdir(), "toolhold-"));
  const file = join(folder, "a.txt");
  files.write(file, "ä".repeat(100000));
  assert.equal(files.readText(file).length, 100000);
  assert.deepEqual(files.readBytes(file, { from: 1, length: 2 }), Uint8Array.of(0xa4, 0xc3));
  assert.equal(files.readBytes(file, { from: 199000, length: 70000 }).length, 1000);
  assert.equal(files.readBytes(file, { from: 70000 }).length, 130000);
  assert.deepEqual(files.stat(file), { kind: "regular-file", size: 200000 });
  files.makeDirectory(join(folder, "b"));
  assert.deepEqual(files.list(folder).map(({ name }) => name), ["a.txt", "b"]);
  files.remove(file);
  assert.equal(files.stat(file), undefined);
  assert.throws(() => files.readText(file), { code: "not-found" });
});

test("documents are found, listed and deleted", () => {
  index.put({ key: "a/1", text: "A quick fox", tags: ["animal"], vector: [1, -128] }, { key: "a/2", text: "fox, fox and hound", data: "x" }, { key: "b" });
  assert.deepEqual(index.search("hound FOX").map(({ key }) => key), ["a/2", "a/1"]);
  assert.deepEqual(index.search("fox", { tags: ["animal"] })[0].foundBy, ["words"]);
  assert.deepEqual(index.search("", { vector: Int8Array.of(127, 0), prefix: "a/" }).map(({ key }) => key), ["a/1"]);
  assert.deepEqual(index.search("", { limit: 1 }).map(({ key }) => key), ["b"]);
  assert.deepEqual([...index.items("a/")].map(({ key, data }) => [key, data.length]), [["a/1", 0], ["a/2", 1]]);
  assert.deepEqual(index.get("b", "c").map((each) => each?.text), ["", undefined]);
  index.delete("b", "none");
  assert.throws(() => index.put({ key: "a", vector: [0.5] }), /whole numbers from -128 to 127/);
});

test("tasks are kept and parts answer", () => {
  schedule.put({ name: "tidy", kind: "cron", when: "0 4 * * *", call: { tool: "notes__tidy", arguments: { days: 30 } } });
  const { task, next } = schedule.put({ name: "ask", kind: "every", when: 60, call: { tool: "notes__ask" } });
  assert.deepEqual([task.when, task.call, typeof next], ["60", { tool: "notes__ask", arguments: {} }, "string"]);
  assert.deepEqual([schedule.pause("ask"), schedule.runSoon("ask"), schedule.pause("none")], [true, true, false]);
  assert.deepEqual(schedule.tasks().map(({ task, paused }) => [task.name, paused]), [["ask", true], ["tidy", false]]);
  assert.deepEqual([schedule.runs("ask"), schedule.remove("ask"), schedule.remove("ask")], [[], true, false]);

  standin.parts.upper = (bytes) => encodeUtf8(decodeUtf8(bytes, { fatal: true }).toUpperCase());
  const [first, second] = parts.run("upper", ["a", Uint8Array.of(255)]);
  assert.deepEqual([decodeUtf8(first), second instanceof Failure, second.code], ["A", true, "failed"]);
  assert.equal(parts.run("lower", [""])[0].code, "unavailable");
  assert.throws(() => service.stop("a"), /`service` has no stand-in/);
});

test("store compares, and settings and programs work", () => {
  store.put("a/1", "one");
  store.put("b", "two");
  assert.equal(store.compareAndSet("b", "other", "x"), false);
  assert.equal(store.compareAndSet("b", "two", "three"), true);
  assert.deepEqual([...store.items("a/")].map(([key]) => key), ["a/1"]);
  store.delete("a/1");
  assert.deepEqual([store.getText("a/1"), store.getText("b")], [undefined, "three"]);
  standin.config = { colour: "red" };
  assert.deepEqual([config.get("colour"), config.get("size", 3)], ["red", 3]);
  assert.equal(process.run(["cat"], { input: "in" }).stdout, "in");
  assert.equal(process.run(["false"]).exitCode, 1);
});

test("what has no stand-in says so", () => {
  assert.throws(() => search.find("/"), /`search` has no stand-in/);
});

const SERVER = `
  import { createServer } from "node:http";
  const places = { "/near": "shown?a=1", "/loop": "/loop" };
  const server = createServer((request, response) => {
    const away = "http://localhost:" + server.address().port + "/shown";
    const place = request.url === "/away" ? away : places[request.url];
    if (place) return response.writeHead(302, { location: place }).end();
    const status = request.url === "/down" ? 503 : 200;
    response.writeHead(status, { "retry-after": "7" }).end(JSON.stringify([request.method, request.url, request.headers.authorization ?? null]));
  }).listen(0, "127.0.0.1", () => console.log(server.address().port));
`;

test("requests follow redirects and keep secrets at home", async () => {
  const server = spawn(globalThis.process.execPath, ["--input-type=module", "--eval", SERVER], { stdio: ["ignore", "pipe", "inherit"] });
  try {
    const [port] = await once(server.stdout, "data");
    const url = `http://127.0.0.1:${String(port).trim()}`;
    const headers = { Authorization: "mine" };
    assert.deepEqual(http.get(`${url}/near`, { headers }).json(), ["GET", "/shown?a=1", "mine"]);
    assert.deepEqual(http.get(`${url}/away`, { headers }).json(), ["GET", "/shown", null]);
    assert.equal(http.get(`${url}/loop`).status, 302);
    assert.deepEqual(http.post(`${url}/shown`, { json: { a: 1 } }).check().json()[0], "POST");
    assert.throws(() => http.get(`${url}/down`).check(), { category: "server-error", code: "http-503", retryAfter: 7 });
    const cut = http.get(`${url}/shown`, { maxBody: 3 });
    assert.deepEqual([cut.text(), cut.cut], ['["G', true]);
    assert.throws(() => http.get("file:///etc/hostname"), { code: "invalid-url" });
    assert.throws(() => http.get("http://127.0.0.1:1/"), { category: "network-error" });
  } finally {
    server.kill();
  }
});
