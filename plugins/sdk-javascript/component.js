// The exports of a component. The module that `toolhold plugin build` writes names this file.

import { callTool, listTools } from "./toolhold.js";
import { connect as connectHost } from "./host.js";

/** Connects the imports of the component, which are named by package and interface. */
export function connect(imports) {
  const names = {
    call: imports.toolhold_host_call,
    config: imports.toolhold_host_config,
    index: imports.toolhold_host_index,
    log: imports.toolhold_host_log,
    parts: imports.toolhold_host_parts,
    process: imports.toolhold_host_process,
    schedule: imports.toolhold_host_schedule,
    search: imports.toolhold_host_search,
    secrets: imports.toolhold_host_secrets,
    service: imports.toolhold_host_service,
    store: imports.toolhold_host_store,
    handler: imports.wasi_http_outgoing_handler,
    httpTypes: imports.wasi_http_types,
    preopens: imports.wasi_filesystem_preopens,
  };
  connectHost(Object.fromEntries(Object.entries(names).filter(([, found]) => found)));
}

/** The interface `toolhold:tool/tools`. */
export const exported = { listTools, callTool };
