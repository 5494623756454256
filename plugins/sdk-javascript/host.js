// The way to the host: its imports in a component, and the stand-ins of `testing.js` in unit tests.

/** The interfaces that there are, by their names in the contract. */
export const host = {};

/** Connects the interfaces. The module that `toolhold plugin build` writes does it, and `testing.js`. */
export function connect(interfaces) {
  Object.assign(host, interfaces);
}

/** An interface that the manifest has to ask for. */
export function imported(name, capability) {
  if (!host[name]) {
    throw new Error(
      `this plugin doesn't import \`${capability}\`: add a [[capabilities]] of that name to plugin.toml, and build again`,
    );
  }
  return host[name];
}

/** An error of a function of the host, `{ code, message }`; undefined if it is anything else. */
export function hostFailure(thrown) {
  const error = payload(thrown);
  const isHosts = typeof error?.code === "string" && typeof error?.message === "string" && !(error instanceof Error);
  return isHosts ? { code: error.code, message: error.message } : undefined;
}

/** What a function of the host failed with. */
export function payload(thrown) {
  return thrown?.payload ?? thrown;
}
