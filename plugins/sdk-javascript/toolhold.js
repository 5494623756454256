// Write tools for Toolhold in JavaScript.
//
// `tool` takes the name, the description and the arguments of a tool, and the function that does the
// work. What the function returns is the answer, and what it throws is a failure of the call.

import { host, hostFailure, imported } from "./host.js";
import { decodeUtf8, encodeUtf8 } from "./utf8.js";

export * as files from "./files.js";
export * as http from "./http.js";
export { decodeUtf8, encodeUtf8 };

const CATEGORIES = [
  "invalid-parameters",
  "type-mismatch",
  "permanent-failure",
  "rate-limited",
  "server-error",
  "network-error",
  "timeout",
];

const PROMISES = ["read-only", "additive", "idempotent", "closed-world", "cacheable"];

/**
 * A call that failed. The options: `category` (else `permanent-failure`, which would happen again),
 * `code`, `suggestion`, `retryAfter` in seconds, `content`, `structured`, `meta`.
 *
 * Categories: `invalid-parameters`, `type-mismatch`, `permanent-failure`; and, if the caller may try
 * again, `rate-limited`, `server-error`, `network-error`, `timeout`.
 */
export class Failure extends Error {
  constructor(message, options = {}) {
    super(message);
    this.name = "Failure";
    // The messages of the host write them with `_`.
    this.category = (options.category ?? "permanent-failure").replaceAll("_", "-");
    if (!CATEGORIES.includes(this.category)) {
      throw new TypeError(`${this.category} is no category of failures; there are: ${CATEGORIES.join(", ")}`);
    }
    this.code = options.code ?? null;
    this.suggestion = options.suggestion ?? null;
    this.retryAfter = options.retryAfter ?? null;
    this.content = options.content ?? [];
    this.structured = options.structured;
    this.meta = options.meta;
  }
}

/**
 * An answer where a tool has more to say than a value: `content` is a list of texts, `Uint8Array`s
 * and objects `{ text | bytes | link, mediaType, meta }`; `structured` is a value for programs.
 */
export class Output {
  constructor({ content = [], structured, afterEmitted = false, meta } = {}) {
    Object.assign(this, { content, structured, afterEmitted, meta });
  }
}

const registered = new Map();

/** What an argument may say beside its JSON Schema: what the host does with it. */
const EXTRAS = ["subject", "aliases", "role", "base", "optional"];

const SUBJECTS = {
  "reads-path": ["path", "read"],
  "writes-path": ["path", "write"],
  "changes-name": ["name", "write"],
  "reads-url": ["url", "read"],
  "writes-url": ["url", "write"],
  command: ["command", "write"],
};

/**
 * Adds a tool, and returns it. A unit test calls `call` of it.
 *
 * `arguments`: for each argument its JSON Schema, and beside that `subject` (what the argument
 * names: `reads-path`, `writes-path`, `changes-name`, `reads-url`, `writes-url`, `command`), `aliases`,
 * `role` (`timeout`, `network`, `text`, `attachment`, `glob` with `base`) and `optional`. An argument
 * with a `default` is optional too, and gets it.
 *
 * `output`: the JSON Schema of the structured answer. `promises`: `read-only` (the host enforces it),
 * `additive`, `idempotent`, `closed-world`, `cacheable`.
 */
export function tool(definition) {
  const { name, description, call } = definition;
  if (typeof name !== "string" || registered.has(name)) {
    throw new TypeError(`a tool needs a name of its own, not ${JSON.stringify(name)}`);
  }
  if (!description) throw new TypeError(`${name}: a description is missing: models choose tools by it`);
  for (const promise of definition.promises ?? []) {
    if (!PROMISES.includes(promise)) {
      throw new TypeError(`${name}: ${JSON.stringify(promise)} is no promise; there are: ${PROMISES.join(", ")}`);
    }
  }
  if (typeof call !== "function") throw new TypeError(`${name}: the function \`call\` is missing`);
  const made = { ...definition, properties: {}, required: [], subjects: [], handled: [], defaults: {} };
  for (const [argument, written] of Object.entries(definition.arguments ?? {})) readArgument(made, argument, written);
  registered.set(name, made);
  return made;
}

function readArgument(made, argument, written) {
  const schema = Object.fromEntries(Object.entries(written).filter(([key]) => !EXTRAS.includes(key)));
  if (!schema.type && !schema.enum && written.role !== "attachment") {
    throw new TypeError(`${made.name}: the argument ${argument} has no type`);
  }
  made.properties[argument] = written.role === "attachment" ? { ...ATTACHMENT, ...schema } : schema;
  if ("default" in schema) made.defaults[argument] = schema.default;
  else if (!written.optional) made.required.push(argument);
  if (written.subject) {
    const known = SUBJECTS[written.subject];
    if (!known) throw new TypeError(`${made.name}: ${argument}: no subject is called ${written.subject}`);
    made.subjects.push({ pointer: `/${argument}`, kind: known[0], access: known[1] });
  }
  if (written.aliases || written.role) {
    made.handled.push({
      name: argument,
      aliases: written.aliases ?? [],
      roles: written.role ? [written.role] : [],
      base: written.base ?? null,
      readsWith: [],
      meta: null,
    });
  }
}

const ATTACHMENT = {
  type: "object",
  properties: { $attachment: { type: "integer", minimum: 0 } },
  required: ["$attachment"],
  additionalProperties: false,
};

/** The call that is running. */
export const call = {
  /** Its ID, which the audit has too. */
  id: () => host.call.id(),
  /** The seconds that it has left. */
  remaining: () => Number(host.call.remainingMs()) / 1000,
  /** Whether the caller has gone away. */
  cancelled: () => host.call.cancelled(),
  /** Shows progress to the waiting user: the fraction from 0 to 1 or null, and a message. */
  progress: (fraction, message) => host.call.progress(fraction ?? null, message),
  /** Sends a part of the answer at once. False: the limit is reached. Stop then. */
  emit: (part) => host.call.emit(toPart(part)),
  /** What the caller sent beside the arguments. */
  meta: () => current.meta,
  /** The attachment that an argument names: `{ text | bytes | link, mediaType, meta }`. */
  attachment(argument) {
    const found = current.attachments[argument?.$attachment];
    if (!found) {
      const message = `the call has no such attachment; it has ${current.attachments.length}, counted from 0`;
      throw new Failure(message, { category: "invalid-parameters" });
    }
    return found;
  },
};

let current = { meta: {}, attachments: [] };

/** The plugin's own settings, `[plugins.NAME.config]`. */
export const config = {
  get(key, otherwise) {
    const value = host.config.get(key);
    return value === null || value === undefined ? otherwise : JSON.parse(value);
  },
  all: () => JSON.parse(host.config.all()),
};

/** Messages for the operator's log. `console` writes there too. */
export const log = Object.fromEntries(
  ["debug", "info", "warn", "error"].map((level) => [level, (message) => host.log.write(level, String(message))]),
);

/** Data of the plugin's own: keys and bytes (a text is taken as UTF-8). Ask for `store` in the manifest. */
export const store = {
  get(key) {
    const value = checked(() => imported("store", "store").get(key));
    return value === null || value === undefined ? undefined : Uint8Array.from(value);
  },
  getText(key) {
    const value = store.get(key);
    return value && decodeUtf8(value);
  },
  put: (key, value) => void store.write([{ key, value }]),
  delete: (key) => void store.write([{ key, value: null }]),
  /** Writes if the key has the expected bytes (null: if it is missing). Returns whether it did. */
  compareAndSet: (key, expected, value) => store.write([{ key, value }], [{ key, value: expected }]),
  /** Makes all changes at once, or none if a key doesn't have its expected bytes. */
  write(changes, expected = []) {
    const bytes = (each) => ({ key: each.key, value: each.value == null ? null : toBytes(each.value) });
    return checked(() => imported("store", "store").write(expected.map(bytes), changes.map(bytes)));
  },
  /** The keys that begin with the prefix, with their bytes, sorted by key. */
  *items(prefix = "") {
    let cursor = null;
    do {
      const page = checked(() => imported("store", "store").list(prefix, cursor, 1000));
      for (const { key, value } of page.entries) yield [key, Uint8Array.from(value)];
      cursor = page.cursor ?? null;
    } while (cursor !== null);
  },
};

/**
 * Documents of the plugin's own, and ranked search in them. Ask for `index` in the manifest. A document
 * is `{ key, text, tags, vector, data }`, where all but the key may be left out: `tags` are texts that a
 * query can ask for, `vector` has whole numbers from -128 to 127, and `data` are bytes (or a text).
 */
export const index = {
  /** Writes documents, all of them or none: at most 1,000. */
  put: (...documents) => checked(() => imported("index", "index").put(documents.map(toDocument))),
  /** Deletes documents, all of them or none. They need not exist. */
  delete: (...keys) => checked(() => imported("index", "index").delete(keys)),
  /** Deletes the documents whose keys begin with the prefix, step by step, and returns their number. */
  deletePrefix(prefix) {
    for (let deleted = 0; ; ) {
      const step = Number(checked(() => imported("index", "index").deletePrefix(prefix)));
      if (step === 0) return deleted;
      deleted += step;
    }
  },
  /** The documents with these keys, in their order. Undefined: there is none. */
  get: (...keys) => checked(() => imported("index", "index").get(keys)).map(fromDocument),
  /** The documents whose keys begin with the prefix, sorted by key: `{ key, tags, data }`. */
  *items(prefix = "") {
    let cursor = null;
    do {
      const page = checked(() => imported("index", "index").list(prefix, cursor, 1000));
      for (const { key, tags, data } of page.entries) yield { key, tags, data: Uint8Array.from(data) };
      cursor = page.cursor ?? null;
    } while (cursor !== null);
  },
  /**
   * The best documents, the best first: `{ key, score, foundBy }`. They have one of the words or are near
   * the vector, and have all tags. Without words and without a vector, the latest documents.
   */
  search(words, { tags = [], prefix = "", vector, limit = 10 } = {}) {
    const query = { words, tags, prefix, vector: toVector(vector), limit, meta: null };
    return checked(() => imported("index", "index").search(query)).map(({ key, score, foundBy }) => ({ key, score, foundBy }));
  },
};

const toDocument = ({ key, text = "", tags = [], vector, data = [] }) => ({
  key,
  text,
  tags,
  vector: toVector(vector),
  data: toBytes(data),
  meta: null,
});

function toVector(vector) {
  if (vector == null) return null;
  const numbers = Array.from(vector);
  if (numbers.every((each) => Number.isInteger(each) && each >= -128 && each <= 127)) return numbers;
  throw new TypeError("a vector has whole numbers from -128 to 127");
}

function fromDocument(found) {
  if (found === null || found === undefined) return undefined;
  const { key, text, tags, vector, data } = found;
  return { key, text, tags, vector: vector == null ? undefined : Array.from(vector), data: Uint8Array.from(data) };
}

/**
 * Calls of the plugin's own tools at a later time. Ask for `schedule` in the manifest. A task is
 * `{ name, kind, when, call, zone, missed }`: `kind` is `once` (`when` is a time of RFC 3339 or a duration
 * such as `PT15M`), `every` (seconds) or `cron`. `call` is `{ tool, arguments }`; instead of it, `prompt`
 * is for Toolhold's own agent, which third-party plugins can't ask. `zone` is the machine's by default, and
 * `missed` says what becomes of times that passed while nothing ran: `once` (by default), `all`, `skip`.
 */
export const schedule = {
  /** Keeps a task, which replaces the one with the same name. Returns its state: see `tasks`. */
  put: (task) => fromState(checked(() => imported("schedule", "schedule").put(toTask(task)))),
  /** Removes a task and its runs. False: there is none with this name. */
  remove: (name) => checked(() => imported("schedule", "schedule").remove(name)),
  /** Has a task wait, or resumes it. False: there is none with this name. */
  pause: (name, paused = true) => checked(() => imported("schedule", "schedule").pause(name, paused)),
  /** Has a task run once as soon as possible. False: there is none with this name. */
  runSoon: (name) => checked(() => imported("schedule", "schedule").runSoon(name)),
  /** The plugin's tasks for the principal of the call, sorted by name: `{ task, next, paused, last }`. */
  tasks: () => checked(() => imported("schedule", "schedule").tasks()).map(fromState),
  /** The last 20 runs of a task, the latest first: `{ due, started, ended, state, missed, output }`. */
  runs: (name) => checked(() => imported("schedule", "schedule").runs(name)).map(fromRun),
};

function toTask({ name, kind, when, call, prompt, zone, missed = "once" }) {
  const action = call
    ? { tag: "call", val: { tool: call.tool, arguments: toJson(call.arguments ?? {}) } }
    : { tag: "prompt", val: prompt };
  return { name, kind, when: String(when), zone: zone ?? null, missed, action, meta: null };
}

function fromState({ task, next, paused, last }) {
  const { name, kind, when, zone, missed, action } = task;
  const done =
    action.tag === "call"
      ? { call: { tool: action.val.tool, arguments: JSON.parse(action.val.arguments) } }
      : { prompt: action.val };
  return {
    task: { name, kind, when, zone: zone ?? undefined, missed, ...done },
    next: next ?? undefined,
    paused,
    last: last ? fromRun(last) : undefined,
  };
}

function fromRun({ due, started, ended, state, missed, output }) {
  return { due, started: started ?? undefined, ended: ended ?? undefined, state, missed, output };
}

/** Pure computation in components that the plugin brings along. Ask for `parts` in the manifest. */
export const parts = {
  /**
   * Runs a part on each of the inputs (bytes or texts), at most 4,096, several at a time. The results
   * have their order: each is bytes, or the Failure of an input that failed. It isn't thrown, since the
   * others have answers.
   */
  run(part, inputs) {
    const results = imported("parts", "parts").run(part, inputs.map(toBytes));
    return results.map(({ tag, val }) => (tag === "ok" ? Uint8Array.from(val) : new Failure(val.message, { code: val.code })));
  },
};

/** Programs that outlive a call, such as language servers. Ask for `service` in the manifest, beside `process`. */
export const service = {
  /**
   * Connects to the service with this name, which is started if it doesn't run with this command (a
   * program and its arguments), does `work` with the connection, and returns what that returns. The
   * service ends with the connection, unless `keep` was called. The options: `directory`, `environment`.
   *
   * The connection has `isNew()`, `read(seconds)` and `errors()`, which return bytes, `write(data)`, which
   * waits until they are read, at most for 4 s, and returns how many were, `ended()`, and `keep()`.
   */
  connect(name, command, work, options = {}) {
    const held = checked(() => imported("service", "service").connect(name, command.map(String), toOptions(options)));
    try {
      return work({
        isNew: () => held.isNew(),
        read: (seconds) => Uint8Array.from(held.read(seconds === undefined ? null : Math.round(seconds * 1000))),
        errors: () => Uint8Array.from(held.errors()),
        write: (data) => Number(held.write(toBytes(data))),
        /** Undefined: it runs. */
        ended: () => held.ended() ?? undefined,
        keep: () => held.keep(),
      });
    } finally {
      held[Symbol.dispose]?.();
    }
  },
  /** Ends a service. False: none with this name runs. */
  stop: (name) => checked(() => imported("service", "service").stop(name)),
};

/** Whether the plugin's requests have a secret of this name. */
export const secrets = { exists: (name) => imported("secrets", "http").exists(name) };

/** Programs of the machine. Ask for `process` in the manifest. */
export const process = {
  /**
   * Runs a program with its arguments, without a shell, to its end. A failed command isn't an error:
   * see `check()` of the result, which fails the call unless the exit code is 0.
   * The options: `input`, `directory`, `environment`, `timeout` in seconds, `outputLimit`, `live`.
   */
  run: (program, options = {}) => runCommand({ tag: "program", val: program.map(String) }, options),
  /** Runs a line for bash, which has to be an argument with the subject `command`. */
  shell: (line, options = {}) => runCommand({ tag: "shell", val: line }, options),
};

const toOptions = ({ directory, environment, timeout, outputLimit, live }) => ({
  directory: directory ?? null,
  environment: Object.entries(environment ?? {}),
  timeoutMs: timeout === undefined ? null : Math.round(timeout * 1000),
  outputLimit: outputLimit ?? null,
  live: live ?? false,
  meta: null,
});

function runCommand(command, { input = [], ...options }) {
  const [ended, output] = checked(() => imported("process", "process").run(command, toBytes(input), toOptions(options)));
  return {
    exitCode: ended.exitCode ?? undefined,
    ending: ended.ending,
    notices: ended.notices,
    stdout: decodeUtf8(output.stdout),
    stderr: decodeUtf8(output.stderr),
    truncated: output.stdoutTruncated || output.stderrTruncated,
    check() {
      if (this.exitCode === 0) return this;
      const exited = this.exitCode !== undefined;
      const what = exited ? `it exited with ${this.exitCode}` : `it was ended: ${this.ending}`;
      const shown = (this.stderr || this.stdout).slice(-2000).trim();
      throw new Failure(`${what}\n${shown}`.trim(), {
        code: exited ? "exit-status" : this.ending,
        suggestion: this.notices.join("\n") || null,
      });
    },
  };
}

/** Finds files and matches text at native speed. Ask for `search` in the manifest. */
export const search = {
  find: (root, { globs = [], ignoreRules = true, filesOnly = true, maxDepth = null, limit = 10000 } = {}) =>
    checked(() => imported("search", "search").find({ root, globs, ignoreRules, filesOnly, maxDepth, meta: null }, limit)).items,
  grep(root, regex, { globs = [], caseSensitive = true, multiline = false, before = 0, after = 0, ignoreRules = true, limit = 10000 } = {}) {
    const scope = { root, globs, ignoreRules, filesOnly: true, maxDepth: null, meta: null };
    const pattern = { regex, caseSensitive, multiline, before, after, meta: null };
    return checked(() => imported("search", "search").grep(scope, pattern, limit)).items;
  },
};

/** The definitions of all tools, as the contract has them. */
export function listTools() {
  return [...registered.values()].map((made) => ({
    name: made.name,
    aliases: made.aliases ?? [],
    title: made.title ?? null,
    description: made.description,
    inputSchema: JSON.stringify({
      type: "object",
      properties: made.properties,
      required: made.required,
      additionalProperties: false,
    }),
    outputSchema: made.output ? JSON.stringify(made.output) : null,
    promises: made.promises ?? [],
    subjects: made.subjects,
    arguments: made.handled,
    preview: null,
    answersIn: made.answersIn ?? null,
    fence: made.fence ?? null,
    meta: made.meta ? JSON.stringify(made.meta) : null,
  }));
}

/** Runs a call. Throws the failure as the contract has it, whatever went wrong. */
export function callTool(invocation) {
  try {
    const made = registered.get(invocation.tool);
    if (!made) throw new Failure(`this plugin has no tool ${invocation.tool}`, { category: "invalid-parameters" });
    current = {
      meta: invocation.meta ? JSON.parse(invocation.meta) : {},
      attachments: (invocation.attachments ?? []).map(fromPart),
    };
    const answer = made.call({ ...made.defaults, ...JSON.parse(invocation.arguments) });
    return toOutput(answer);
  } catch (error) {
    throw toFailure(error);
  }
}

function toOutput(answer) {
  if (typeof answer?.then === "function") {
    throw new TypeError("`call` returned a promise: a tool in JavaScript has to answer at once, so it can't be async");
  }
  if (answer === undefined || answer === null) answer = new Output();
  if (typeof answer === "string" || answer instanceof Uint8Array) answer = new Output({ content: [answer] });
  if (!(answer instanceof Output)) answer = new Output({ structured: answer });
  const structured = answer.structured === undefined ? null : toJson(answer.structured);
  // The same for who reads texts only.
  const content =
    structured !== null && answer.content.length === 0
      ? [{ text: structured, mediaType: "application/json" }]
      : answer.content;
  return {
    content: content.map(toPart),
    structured,
    afterEmitted: answer.afterEmitted,
    meta: answer.meta === undefined ? null : toJson(answer.meta),
  };
}

const MAX_MESSAGE = 4000;

function toFailure(error) {
  const failure = error instanceof Failure ? error : fromThrown(error);
  try {
    return {
      category: failure.category,
      code: failure.code,
      message: failure.message.slice(0, MAX_MESSAGE),
      suggestion: failure.suggestion,
      retryAfterMs: failure.retryAfter === null ? null : Math.round(failure.retryAfter * 1000),
      content: failure.content.map(toPart),
      structured: failure.structured === undefined ? null : toJson(failure.structured),
      meta: failure.meta === undefined ? null : toJson(failure.meta),
    };
  } catch (worse) {
    // What the failure carries has no form in JSON.
    return toFailure(fromThrown(worse));
  }
}

/** The failure that says what was thrown. The log gets the stack. */
function fromThrown(thrown) {
  const known = hostFailure(thrown);
  if (known) return new Failure(known.message, known);
  const isError = thrown instanceof Error;
  const message = isError ? `${thrown.name}: ${thrown.message}` : `threw ${describe(thrown)}`;
  try {
    host.log.write("error", `${message}\n${isError ? thrown.stack : ""}`.slice(0, 3500));
  } catch {
    // The failure itself says enough.
  }
  return new Failure(message, { code: "exception" });
}

function describe(value) {
  try {
    return toJson(value);
  } catch {
    return String(value);
  }
}

function checked(function_) {
  try {
    return function_();
  } catch (error) {
    const known = hostFailure(error);
    throw known ? new Failure(known.message, known) : error;
  }
}

function toJson(value) {
  const text = JSON.stringify(value);
  if (text === undefined) throw new TypeError(`a ${typeof value} has no form in JSON`);
  return text;
}

function toBytes(value) {
  return typeof value === "string" ? encodeUtf8(value) : Uint8Array.from(value);
}

function toPart(part) {
  if (typeof part === "string") part = { text: part };
  if (part instanceof Uint8Array) part = { bytes: part };
  const kinds = ["text", "bytes", "link"].filter((kind) => part?.[kind] !== undefined);
  if (kinds.length !== 1) throw new TypeError("a part of an answer is a text, bytes, or an object with one of text, bytes and link");
  return {
    body: { tag: kinds[0], val: part[kinds[0]] },
    mediaType: part.mediaType ?? null,
    meta: part.meta === undefined ? null : toJson(part.meta),
  };
}

function fromPart({ body, mediaType, meta }) {
  const part = { mediaType: mediaType ?? undefined, meta: meta ? JSON.parse(meta) : undefined };
  if (body.tag === "other") return { ...part, text: body.val[1], mediaType: "application/json" };
  return { ...part, [body.tag]: body.tag === "bytes" ? Uint8Array.from(body.val) : body.val };
}

if (typeof globalThis.console === "undefined") {
  const print = (level) => (...words) => host.log.write(level, words.map((word) => (typeof word === "string" ? word : describe(word))).join(" "));
  globalThis.console = { debug: print("debug"), log: print("info"), info: print("info"), warn: print("warn"), error: print("error") };
}
