// Requests to hosts that the operator granted. Ask for `http` in the manifest.
//
// Tokens never reach a plugin: the operator configures them, and the host adds them.

import { Failure } from "./toolhold.js";
import { host, imported, payload } from "./host.js";
import { decodeUtf8, encodeUtf8 } from "./utf8.js";

const MAX_REDIRECTS = 3;
const REDIRECTS = [301, 302, 303, 307, 308];

/** The headers that stay behind where a redirect leads to another origin. */
const PRIVATE = ["authorization", "cookie", "proxy-authorization"];

/** Sends a GET request. The options are those of `request`. */
export const get = (url, options) => request("GET", url, options);

/** Sends a POST request. The options are those of `request`. */
export const post = (url, options) => request("POST", url, options);

/**
 * Sends a request and reads the answer: `{ status, headers, body, url, cut, text(), json(), check() }`.
 * At most three redirects are followed. `check` throws a Failure, in the category for retries, unless
 * the status is 200 to 299.
 *
 * The options: `headers`, `body` (a text or bytes), `json` (a value that is sent as the body),
 * `timeout` in seconds, `maxBody` (the bytes of the body that are read, else 8 MiB).
 */
export function request(method, url, { headers = {}, body = "", json, timeout, maxBody = 8 * 1024 * 1024 } = {}) {
  headers = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value)]));
  if (json !== undefined) {
    body = JSON.stringify(json);
    headers["content-type"] ??= "application/json";
  }
  if (typeof body === "string") body = encodeUtf8(body);
  method = method.toUpperCase();
  for (let redirects = 0; ; redirects++) {
    const answer = send(method, url, headers, body, timeout, maxBody);
    const target = answer.headers.location;
    if (!REDIRECTS.includes(answer.status) || target === undefined || redirects === MAX_REDIRECTS) return answer;
    const next = join(url, target);
    if (url.startsWith("https:") && !next.startsWith("https:")) return answer;
    const drop = parts(next).origin === parts(url).origin ? [] : PRIVATE;
    const changes = answer.status === 303 || (answer.status <= 302 && method === "POST");
    headers = Object.fromEntries(
      Object.entries(headers).filter(([name]) => !drop.includes(name) && !(changes && name.startsWith("content-"))),
    );
    if (changes) [method, body] = [method === "HEAD" ? "HEAD" : "GET", new Uint8Array()];
    url = next;
  }
}

function send(method, url, headers, body, timeout, maxBody) {
  if (host.request) {
    parts(url);
    const { status, headers: answered, body: whole } = host.request(method, url, headers, body, timeout);
    return answer(status, answered, whole.subarray(0, maxBody), whole.length > maxBody, url);
  }
  const types = imported("httpTypes", "http");
  const { scheme, authority, path } = parts(url);
  const fields = types.Fields.fromList(Object.entries(headers).map(([name, value]) => [name, encodeUtf8(value)]));
  const outgoing = new types.OutgoingRequest(fields);
  const named = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"].includes(method);
  outgoing.setMethod(named ? { tag: method.toLowerCase() } : { tag: "other", val: method });
  outgoing.setScheme({ tag: scheme === "https" ? "HTTPS" : "HTTP" });
  outgoing.setAuthority(authority);
  outgoing.setPathWithQuery(path);
  const options = new types.RequestOptions();
  if (timeout !== undefined) {
    const nanoseconds = Math.round(timeout * 1e9);
    options.setConnectTimeout(nanoseconds);
    options.setFirstByteTimeout(nanoseconds);
    options.setBetweenBytesTimeout(nanoseconds);
  }
  const held = [];
  const hold = (resource) => (held.push(resource), resource);
  try {
    const sink = outgoing.body();
    const future = hold(imported("handler", "http").handle(outgoing, options));
    writeBody(types, sink, body);
    const ready = future.subscribe();
    ready.block();
    dispose(ready);
    const response = hold(unwrap(unwrap(future.get())));
    const status = response.status();
    const fields = response.headers();
    const answered = {};
    for (const [name, value] of fields.entries()) {
      const text = decodeUtf8(value);
      const key = name.toLowerCase();
      answered[key] = key in answered ? `${answered[key]}, ${text}` : text;
    }
    dispose(fields);
    const incoming = hold(response.consume());
    return answer(status, answered, ...readBody(hold(incoming.stream()), maxBody), url);
  } catch (error) {
    throw failure(payload(error));
  } finally {
    // A host ends a call that gives up a resource before what was made of it.
    for (const resource of held.reverse()) dispose(resource);
  }
}

const dispose = (resource) => resource[Symbol.dispose]?.();

function writeBody(types, sink, body) {
  if (body.length > 0) {
    const stream = sink.write();
    for (let at = 0; at < body.length; at += 4096) stream.blockingWriteAndFlush(body.subarray(at, at + 4096));
    dispose(stream);
  }
  types.OutgoingBody.finish(sink, null);
}

/** The body up to a length, and whether it was longer. */
function readBody(stream, maxBody) {
  const bytes = [];
  for (;;) {
    let part;
    try {
      part = stream.blockingRead(64 * 1024);
    } catch (error) {
      if (payload(error)?.tag === "closed") return [Uint8Array.from(bytes), false];
      throw new Failure("the answer broke off", { category: "network-error", code: "disconnected" });
    }
    for (const byte of part) bytes.push(byte);
    if (bytes.length > maxBody) return [Uint8Array.from(bytes.slice(0, maxBody)), true];
  }
}

function answer(status, headers, body, cut, url) {
  return {
    status,
    headers,
    body,
    url,
    cut,
    text: () => decodeUtf8(body),
    json: () => JSON.parse(decodeUtf8(body)),
    check() {
      if (status >= 200 && status < 300) return this;
      const category = status === 429 ? "rate-limited" : status >= 500 ? "server-error" : "permanent-failure";
      const wait = /^\d+$/.test(headers["retry-after"] ?? "") ? Number(headers["retry-after"]) : null;
      throw new Failure(`${url} answered ${status}`, { category, code: `http-${status}`, retryAfter: wait });
    },
  };
}

/** The parts of an address. QuickJS has no URL. */
function parts(url) {
  const found = /^(https?):\/\/(?:[^/?#]*@)?([^/?#]+)([^?#]*)(\?[^#]*)?/i.exec(url);
  if (!found) {
    throw new Failure(`${url} isn't an address: it has to begin with https:// or http://`, { code: "invalid-url" });
  }
  const [, scheme, authority, path, query = ""] = found;
  const quoted = encodeURI(path || "/").replace(/%25/g, "%") + encodeURI(query).replace(/%25/g, "%");
  const port = { http: ":80", https: ":443" }[scheme.toLowerCase()];
  const full = /:\d+$/.test(authority) ? authority : authority + port;
  return { scheme: scheme.toLowerCase(), authority, path: quoted, origin: `${scheme}://${full}`.toLowerCase() };
}

/** The address that a redirect means, seen from where it came from. */
function join(base, target) {
  if (/^[a-z][a-z0-9+.-]*:/i.test(target)) return target;
  const [, scheme, rest] = /^(https?):\/\/([^?#]*)/i.exec(base);
  if (target.startsWith("//")) return `${scheme}:${target}`;
  const slash = rest.indexOf("/");
  const [authority, path] = slash < 0 ? [rest, "/"] : [rest.slice(0, slash), rest.slice(slash)];
  if (target.startsWith("/")) return `${scheme}://${authority}${target}`;
  if (target.startsWith("?")) return `${scheme}://${authority}${path}${target}`;
  const names = [];
  for (const name of (path.slice(0, path.lastIndexOf("/") + 1) + target).split("/").slice(1)) {
    if (name === "..") names.pop();
    else if (name !== ".") names.push(name);
  }
  return `${scheme}://${authority}/${names.join("/")}`;
}

/** The value of a nested result. */
function unwrap(result) {
  if (result?.tag === "err") throw result.val;
  return result?.tag === "ok" ? result.val : result;
}

/** A Failure from an error code of WASI, in the category for retries. */
function failure(error) {
  if (error instanceof Error) return error;
  const code = (error?.tag ?? String(error)).toLowerCase();
  const detail = typeof error?.val === "string" ? ` (${error.val})` : "";
  const category = code.includes("timeout")
    ? "timeout"
    : /^(dns|destination|connection|tls)/.test(code) && !code.endsWith("prohibited")
      ? "network-error"
      : "permanent-failure";
  return new Failure(`the request failed: ${code.replaceAll("-", " ")}${detail}`, { category, code });
}
