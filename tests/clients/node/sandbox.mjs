// Times commands in the sandbox of Claude Code. Arguments: the command, the milliseconds of rest before each run, and the hosts that the
// commands may reach.
//
// Each line on stdin is a number of consecutive runs. For each, it prints a line: their times in nanoseconds, as JSON. The package is used
// as its README shows: the sandbox is prepared once, and each command is wrapped. The time of a run is the wrapping, and the processes
// until their output ends.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout } from 'node:timers/promises';
import { SandboxManager } from '@anthropic-ai/sandbox-runtime';

const [command, rest, ...hosts] = process.argv.slice(2);

/** One run: how long it took. */
async function run() {
    await setTimeout(Number(rest));
    const start = process.hrtime.bigint();
    const wrapped = await SandboxManager.wrapWithSandbox(command);
    const child = spawn(wrapped, { shell: true, stdio: ['ignore', 'pipe', 'inherit'] });
    child.stdout.resume();
    const [status] = await once(child, 'close');
    const time = process.hrtime.bigint() - start;
    SandboxManager.cleanupAfterCommand();
    if (status !== 0) throw new Error(`${command} ended with ${status}`);
    return Number(time);
}

await SandboxManager.initialize({
    network: { allowedDomains: hosts, deniedDomains: [] },
    filesystem: { denyRead: [], allowWrite: ['.'], denyWrite: [] },
});
for await (const line of createInterface({ input: process.stdin })) {
    const times = [];
    while (times.length < Number(line)) times.push(await run());
    console.log(JSON.stringify(times));
}
await SandboxManager.reset();
