// A tool for each part of the SDK, for tests in a real host.

import { Failure, Output, call, config, http, log, process, store, tool } from "../../../plugins/sdk-javascript/berth.js";

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
