// Drives a server with the official TypeScript SDK, as the lines of JSON on stdin say, and tells what came of each in a line on stdout.
//
// `node drive.mjs 1` takes the SDK before 2026-07-28 (`@modelcontextprotocol/sdk`), `node drive.mjs 2` the one since (`…/client`).

import { createInterface } from 'node:readline';

const one = process.argv[2] === '1';
const { Client } = await import(one ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
const { StdioClientTransport } = await import(one ? '@modelcontextprotocol/sdk/client/stdio.js' : '@modelcontextprotocol/client/stdio');
const { StreamableHTTPClientTransport } = await import(
    one ? '@modelcontextprotocol/sdk/client/streamableHttp.js' : '@modelcontextprotocol/client'
);
const types = one ? await import('@modelcontextprotocol/sdk/types.js') : undefined;

/** What a library has to warn of. */
const warned = [];
console.warn = (...words) => warned.push(words.join(' '));

let client;
/** What the person at this client answers, and what they were asked. */
let answer;
let asked = [];
/** The call that runs while the next lines are read. */
let running;
/** What it has told of itself, and who waits for that. */
let progress = [];
let hearing = () => {};
/** How often the server told that its tools are others, and who waits for it. */
let changes = 0;
let waiting = () => {};

function changed() {
    changes += 1;
    waiting();
}

function elicited(request) {
    asked.push(request.params.message);
    return answer ?? { action: 'cancel' };
}

function transport({ command, args, url, token }) {
    if (url) {
        return new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${token}` } } });
    }
    return new StdioClientTransport({ command, args, env: process.env });
}

/** Calls a tool. What fails by the protocol is told as `error`. */
async function call(step, signal) {
    ({ answer } = step);
    asked = [];
    progress = [];
    const onprogress = told => {
        progress.push(told.message);
        hearing();
    };
    const options = { signal, onprogress };
    const params = { name: step.name, arguments: step.arguments };
    try {
        const result = await (one ? client.callTool(params, undefined, options) : client.callTool(params, options));
        const text = result.content.filter(part => part.type === 'text').map(part => part.text);
        return { failed: result.isError === true, text: text.join('\n'), structured: result.structuredContent, asked };
    } catch (error) {
        return { error: String(error), asked };
    }
}

const steps = {
    async connect(step) {
        const capabilities = step.asks ? { elicitation: {} } : {};
        const modern = step.revision === '2026-07-28';
        client = new Client(
            { name: 'drive', version: '1' },
            one ? { capabilities } : { capabilities, versionNegotiation: { mode: modern ? { pin: step.revision } : 'legacy' } },
        );
        if (step.asks) {
            client.setRequestHandler(one ? types.ElicitRequestSchema : 'elicitation/create', elicited);
        }
        client.setNotificationHandler(one ? types.ToolListChangedNotificationSchema : 'notifications/tools/list_changed', changed);
        const way = transport(step);
        // The older SDK tells the revision to nobody but its transport.
        let version;
        const tell = way.setProtocolVersion?.bind(way);
        way.setProtocolVersion = spoken => {
            version = spoken;
            tell?.(spoken);
        };
        await client.connect(way);
        if (modern) {
            await client.listen({ toolsListChanged: true });
        }
        return { server: client.getServerVersion()?.name, version };
    },
    async list() {
        return { tools: (await client.listTools()).tools.map(tool => tool.name), warned };
    },
    call: step => call(step),
    async begin(step) {
        const stop = new AbortController();
        running = { stop, ended: call(step, stop.signal) };
        return {};
    },
    async heard(step) {
        while (!progress.includes(step.message)) {
            await new Promise(resolve => (hearing = resolve));
        }
        return {};
    },
    async abort() {
        running.stop.abort('the person has changed their mind');
        return running.ended;
    },
    async changed() {
        if (changes === 0) {
            await new Promise(resolve => (waiting = resolve));
        }
        changes = 0;
        return {};
    },
    async prompt(step) {
        const { messages } = await client.getPrompt({ name: step.name, arguments: step.arguments });
        return { text: messages.map(message => message.content.text).join('\n') };
    },
    async read(step) {
        const { contents } = await client.readResource({ uri: step.uri });
        return { text: contents.map(part => part.text).join('\n') };
    },
    async close() {
        await client.close();
        return {};
    },
};

for await (const line of createInterface({ input: process.stdin })) {
    const step = JSON.parse(line);
    let came;
    try {
        came = await steps[step.do](step);
    } catch (error) {
        came = { error: String(error) };
    }
    process.stdout.write(`${JSON.stringify(came)}\n`);
}
process.exit(0);
