// The exports of a component. The module that `berth plugin build` writes names this file.

import { callTool, listTools } from "./berth.js";
import { connect as connectHost } from "./host.js";

/** Connects the imports of the component, which are named by package and interface. */
export function connect(imports) {
  const names = {
    call: imports.berth_host_call,
    config: imports.berth_host_config,
    index: imports.berth_host_index,
    log: imports.berth_host_log,
    parts: imports.berth_host_parts,
    process: imports.berth_host_process,
    schedule: imports.berth_host_schedule,
    search: imports.berth_host_search,
    secrets: imports.berth_host_secrets,
    service: imports.berth_host_service,
    store: imports.berth_host_store,
    handler: imports.wasi_http_outgoing_handler,
    httpTypes: imports.wasi_http_types,
    preopens: imports.wasi_filesystem_preopens,
  };
  connectHost(Object.fromEntries(Object.entries(names).filter(([, found]) => found)));
}

/** The interface `berth:tool/tools`. */
export const exported = { listTools, callTool };
