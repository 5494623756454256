// Stand-ins of the host for unit tests in Node: `import "./sdk/testing.js"` before the plugin.
//
// They work, within the process: what was emitted, logged and stored can be looked at in `standin`.

import { spawnSync } from "node:child_process";
import * as fs from "node:fs";

import { Failure, callTool } from "./toolhold.js";
import { connect } from "./host.js";

/** What the stand-ins keep. A test sets and reads it. */
export const standin = {};

/** Empties the stand-ins. */
export function reset() {
  Object.assign(standin, { emitted: [], log: [], progress: [], store: new Map(), config: {}, secrets: new Set(), cancelled: false, remaining: 30 });
  // The functions of parts take and return bytes.
  Object.assign(standin, { index: new Map(), tasks: new Map(), parts: {} });
}

/** Runs a call as a host does, with arguments and attachments. Throws the failure of the contract. */
export function run(tool, args, attachments = []) {
  return callTool({ tool: tool.name ?? tool, arguments: JSON.stringify(args), attachments, meta: null });
}

/** What has no stand-in. */
const missing = (name) =>
  new Proxy({}, {
    get() {
      throw new Error(`\`${name}\` has no stand-in in unit tests`);
    },
  });

reset();
connect({
  search: missing("search"),
  service: missing("service"),
  request: send,
  call: {
    id: () => "test",
    remainingMs: () => standin.remaining * 1000,
    cancelled: () => standin.cancelled,
    progress: (fraction, message) => standin.progress.push([fraction, message]),
    emit: (part) => standin.emitted.push(part) > 0,
  },
  config: {
    get: (key) => (key in standin.config ? JSON.stringify(standin.config[key]) : null),
    all: () => JSON.stringify(standin.config),
  },
  log: { write: (level, message) => standin.log.push([level, message]) },
  secrets: { exists: (name) => standin.secrets.has(name) },
  store: {
    get: (key) => standin.store.get(key) ?? null,
    list(prefix, _cursor, limit) {
      const keys = below(standin.store, prefix);
      return { entries: keys.slice(0, limit).map((key) => ({ key, value: standin.store.get(key) })), cursor: null };
    },
    write(expected, changes) {
      const same = (a, b) => (a && b ? Buffer.compare(a, b) === 0 : !a && !b);
      if (!expected.every(({ key, value }) => same(standin.store.get(key), value))) return false;
      for (const { key, value } of changes) value ? standin.store.set(key, value) : standin.store.delete(key);
      return true;
    },
  },
  index: {
    put: (documents) => documents.forEach((each) => standin.index.set(each.key, each)),
    delete: (keys) => keys.forEach((key) => standin.index.delete(key)),
    deletePrefix: (prefix) => below(standin.index, prefix).filter((key) => standin.index.delete(key)).length,
    get: (keys) => keys.map((key) => standin.index.get(key) ?? null),
    list: (prefix) => ({ entries: below(standin.index, prefix).map((key) => standin.index.get(key)), cursor: null }),
    search: ({ words, tags, prefix, vector, limit }) => {
      const asked = wordsOf(words);
      const passes = (each) => each.key.startsWith(prefix) && tags.every((tag) => each.tags.includes(tag));
      const hits = [...standin.index.values()].reverse().filter(passes).map((each) => {
        const score = asked.filter((word) => wordsOf(each.text).includes(word)).length;
        const near = vector && each.vector ? vector.reduce((sum, one, at) => sum + one * each.vector[at], 0) : 0;
        return { key: each.key, score, foundBy: [...(score > 0 ? ["words"] : []), ...(near > 0 ? ["vector"] : [])] };
      });
      const isOpen = asked.length === 0 && !vector;
      return hits.filter((hit) => isOpen || hit.foundBy.length > 0).sort((a, b) => b.score - a.score).slice(0, limit);
    },
  },
  schedule: {
    put(task) {
      standin.tasks.set(task.name, { task, next: "2030-01-01T00:00:00Z", paused: false, last: null });
      return standin.tasks.get(task.name);
    },
    remove: (name) => standin.tasks.delete(name),
    pause: (name, paused) => Boolean(standin.tasks.has(name) && Object.assign(standin.tasks.get(name), { paused })),
    runSoon: (name) => standin.tasks.has(name),
    tasks: () => below(standin.tasks, "").map((name) => standin.tasks.get(name)),
    runs: () => [],
  },
  parts: {
    run: (part, inputs) =>
      inputs.map((input) => {
        const function_ = standin.parts[part];
        if (!function_) return { tag: "err", val: { code: "unavailable", message: `the part \`${part}\` is missing` } };
        try {
          return { tag: "ok", val: function_(input) };
        } catch (error) {
          return { tag: "err", val: { code: "failed", message: error.message } };
        }
      }),
  },
  process: {
    run({ tag, val }, input, { directory, environment, timeoutMs }) {
      const [program, ...rest] = tag === "program" ? val : ["bash", "-c", val];
      const env = { ...globalThis.process.env, ...Object.fromEntries(environment) };
      const ended = spawnSync(program, rest, { input, cwd: directory ?? undefined, env, timeout: timeoutMs ?? undefined });
      if (ended.error && ended.error.code !== "ETIMEDOUT") throw { code: "failed", message: ended.error.message };
      const ending = ended.error ? "timeout" : "exited";
      const output = { stdout: ended.stdout, stderr: ended.stderr, stdoutTruncated: false, stderrTruncated: false };
      return [{ exitCode: ended.error ? null : ended.status, ending, notices: [], meta: null }, output];
    },
  },
  preopens: { getDirectories: () => [[new Folder(), "/"]] },
});

/** The keys that begin with a prefix, sorted. */
const below = (map, prefix) => [...map.keys()].filter((key) => key.startsWith(prefix)).sort();

const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];

/** The errors of WASI by those of Node. */
const ERRORS = { ENOENT: "no-entry", EACCES: "access", EPERM: "not-permitted", EEXIST: "exist", EISDIR: "is-directory", ENOTDIR: "not-directory", ENOTEMPTY: "not-empty" };

function system(work) {
  try {
    return work();
  } catch (error) {
    throw ERRORS[error.code] ?? "io";
  }
}

const kind = (found) => (found.isDirectory() ? "directory" : found.isFile() ? "regular-file" : "unknown");

/** The root directory, in the form of `wasi:filesystem`. */
class Folder {
  openAt(_flags, rest, how) {
    const path = `/${rest}`;
    if (how.directory) return new Listing(path);
    const flags = how.truncate ? "w" : "r";
    return new File(system(() => fs.openSync(path, flags)));
  }
  statAt(_flags, rest) {
    const found = system(() => fs.statSync(`/${rest}`));
    return { type: kind(found), size: found.size };
  }
  createDirectoryAt(rest) {
    system(() => fs.mkdirSync(`/${rest}`));
  }
  unlinkFileAt(rest) {
    system(() => fs.unlinkSync(`/${rest}`));
  }
}

class Listing {
  constructor(path) {
    this.entries = system(() => fs.readdirSync(path, { withFileTypes: true }));
  }
  readDirectory() {
    return { readDirectoryEntry: () => { const entry = this.entries.shift(); return entry ? { name: entry.name, type: kind(entry) } : null; } };
  }
}

class File {
  constructor(descriptor) {
    this.descriptor = descriptor;
  }
  read(length, at) {
    const bytes = new Uint8Array(length);
    const read = system(() => fs.readSync(this.descriptor, bytes, 0, length, at));
    return [bytes.subarray(0, read), read === 0];
  }
  write(bytes, at) {
    return system(() => fs.writeSync(this.descriptor, bytes, 0, bytes.length, at));
  }
}

/** Sends a request in another process, since this one has to wait for the answer. */
function send(method, url, headers, body, timeout = 30) {
  const asked = { method, url, headers, body: Buffer.from(body).toString("base64"), timeout };
  const ended = spawnSync(globalThis.process.execPath, ["--input-type=module", "--eval", SENDER], { input: JSON.stringify(asked) });
  if (ended.status !== 0) throw new Failure("the request failed", { category: "network-error", code: "unreachable" });
  const { status, headers: answered, body: text } = JSON.parse(ended.stdout);
  return { status, headers: answered, body: Uint8Array.from(Buffer.from(text, "base64")) };
}

const SENDER = `
  import { readFileSync } from "node:fs";
  const { method, url, headers, body, timeout } = JSON.parse(readFileSync(0, "utf8"));
  const bytes = Buffer.from(body, "base64");
  const answer = await fetch(url, {
    method, headers, redirect: "manual", body: bytes.length > 0 ? bytes : undefined, signal: AbortSignal.timeout(timeout * 1000),
  });
  const read = Buffer.from(await answer.arrayBuffer()).toString("base64");
  process.stdout.write(JSON.stringify({ status: answer.status, headers: Object.fromEntries(answer.headers), body: read }));
`;
