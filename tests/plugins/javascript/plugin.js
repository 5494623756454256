// A tool for each part of the SDK, for tests in a real host.

import { Failure, Output, call, config, decodeUtf8, http, index, log, parts, process, schedule, service, store, tool } from "../../../plugins/sdk-javascript/toolhold.js";

tool({
  name: "fail",
  description: "Fails in the way that it is told.",
  arguments: { how: { type: "string", enum: ["uncaught", "file", "own", "deep", "exit", "long"] } },
  call({ how }) {
    if (how === "uncaught") return undefined.b;
    if (how === "own") {
      throw new Failure("too often", { category: "rate-limited", code: "slow", suggestion: "wait", retryAfter: 2.5, content: ["so far"] });
    }
    if (how === "deep") return (function deeper() { return deeper() + 1; })();
    if (how === "exit") throw { exit: 3 };
    if (how === "file") return Promise.resolve(1);
    throw new RangeError("ü".repeat(10000));
  },
});

tool({
  name: "talk",
  description: "Says each word as it goes.",
  arguments: { words: { type: "array", items: { type: "string" } } },
  call({ words }) {
    words.forEach((word, index) => {
      call.progress(index / words.length, word);
      call.emit(word);
    });
    console.warn("said", words.length);
    log.info(`id ${call.id().length > 0}, left ${call.remaining() > 1}`);
    return new Output({ content: ["end"], afterEmitted: true });
  },
});

tool({
  name: "ask",
  description: "Sends a request and says what came.",
  arguments: {
    url: { type: "string", description: "The address.", subject: "reads-url" },
    body: { type: "string", description: "What is sent.", optional: true },
  },
  call({ url, body }) {
    const answer = http.request(body ? "POST" : "GET", url, { body: body ?? "", timeout: 5 }).check();
    return { status: answer.status, text: answer.text(), cut: answer.cut, type: answer.headers["content-type"] };
  },
});

tool({
  name: "start",
  description: "Runs a program.",
  arguments: { program: { type: "array", items: { type: "string" } }, input: { type: "string", default: "" } },
  call: ({ program, input }) => process.run(program, { input }).check().stdout,
});

tool({
  name: "setting",
  description: "Says a setting.",
  arguments: { key: { type: "string" } },
  call: ({ key }) => String(config.get(key, "unset")),
});

tool({
  name: "keep",
  description: "Uses what the manifest doesn't ask for.",
  call: () => String(store.get("key")),
});

const codeOf = (function_) => {
  try {
    return function_();
  } catch (failure) {
    return failure.code;
  }
};

const keysOf = (hits) => hits.map(({ key }) => key);

tool({
  name: "try_index",
  description: "Tries the index: what is found, listed, refused and deleted.",
  call() {
    const data = Uint8Array.from({ length: 256 }, (_, byte) => byte);
    index.put({ key: "a/1", text: "A quick fox", tags: ["animal"], vector: [1, -128], data }, { key: "a/2", text: "föx, fox and hound" }, { key: "b" });
    const [first, none] = index.get("a/1", "none");
    const long = Array.from({ length: 40 }, (_, number) => ({ key: `c/${number}`, data: new Uint8Array(60000) }));
    const found = {
      words: keysOf(index.search("hound FOX")),
      tagged: keysOf(index.search("fox", { tags: ["animal"], limit: 1 })),
      near: index.search("", { vector: Int8Array.of(127, 0), prefix: "a/", limit: 1 }).map(({ key, foundBy }) => [key, foundBy]),
      whole: [first.text, first.tags, first.vector, String(first.data) === String(data), none ?? null],
      no_key: codeOf(() => index.put({ key: "" })),
      quota: codeOf(() => index.put(...long)),
    };
    index.put(...Array.from({ length: 1000 }, (_, number) => ({ key: `many/${String(number).padStart(4, "0")}` })));
    index.put({ key: "many/1000" });
    found.listed = [...index.items("many/")].length;
    found.deleted = index.deletePrefix("many/");
    index.delete("b", "none");
    found.left = [...index.items()].map(({ key, data }) => [key, data.length]);
    return found;
  },
});

tool({
  name: "try_schedule",
  description: "Tries tasks: what is kept, refused, listed and removed.",
  arguments: { own: { type: "string", description: "The full name of a tool of this plugin." } },
  call({ own }) {
    const call = { tool: own, arguments: { key: "colour" } };
    const state = schedule.put({ name: "tidy", kind: "cron", when: "0 4 * * *", call });
    const again = schedule.put({ name: "again", kind: "every", when: 3600, call, zone: "Europe/Berlin", missed: "skip" });
    const once = { name: "other", kind: "once", when: "PT1H" };
    const found = {
      next: state.next[13] + again.next[10],
      other: codeOf(() => schedule.put({ ...once, call: { tool: "read", arguments: { path: "x" } } })),
      prompt: codeOf(() => schedule.put({ ...once, prompt: "do something" })),
      invalid: codeOf(() => schedule.put({ name: "other", kind: "cron", when: "never", call })),
      quota: codeOf(() => schedule.put({ name: "third", kind: "every", when: 60, call })),
      paused: [schedule.pause("again"), schedule.pause("none")],
      tasks: schedule.tasks().map(({ task, paused }) => [task.name, task.kind, task.when, task.zone ?? null, task.missed, paused]),
      arguments: schedule.tasks()[1].task.call.arguments,
      removed: [schedule.remove("again"), schedule.remove("again")],
      soon: [schedule.runSoon("tidy"), schedule.runSoon("none")],
    };
    found.runs = schedule.runs("tidy").map(({ state }) => state);
    return found;
  },
});

tool({
  name: "try_parts",
  description: "Tries a part: each input has an answer or a failure of its own.",
  call() {
    const results = [...parts.run("attack", ["echo a", "fail x", "", "echo b"]), ...parts.run("none", [""])];
    return results.map((each) => (each instanceof Failure ? each.code : decodeUtf8(each)));
  },
});

tool({
  name: "try_service",
  description: "Tries a service: what it says, and when it goes on and ends.",
  call() {
    const said = ["one\n", "two\n"].map((word) =>
      service.connect("words", ["cat"], (words) => {
        const heard = [words.isNew(), words.write(word), decodeUtf8(words.read(20)), words.ended() === undefined];
        words.keep();
        return heard;
      }),
    );
    const found = {
      said,
      full: codeOf(() => service.connect("more", ["cat"], () => "connected")),
      stopped: [service.stop("words"), service.stop("words")],
      dropped: [service.connect("words", ["cat"], (words) => words.isNew()), service.stop("words")],
    };
    found.ended = service.connect("words", ["false"], (words) => {
      const read = words.read(20);
      return [read.length, words.errors().length, words.ended().exitCode, words.ended().ending];
    });
    found.denied = codeOf(() => service.connect("words", ["bash"], () => "connected"));
    return found;
  },
});
