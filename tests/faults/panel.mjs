// A page on the built TypeScript SDK, driven by lines of JSON on standard input.
//   in:  {"number": 3, "message": "hello", "sessionId": …}
//   out: {"number": 3, "runId": …}, {"number": 3, "event": {…}} …, {"number": 3, "gone": …}
// A start is repeated under its key until it is answered, as a careful page does.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [, , root, origin] = process.argv;
const sdk = await import(pathToFileURL(`${root}/sdk/typescript/dist/index.js`).href);
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const panel = new sdk.HermesPanelClient({
  documentId: "doc_1",
  workspaceId: "ws_1",
  fetch: (path, init) =>
    fetch(origin + path, { ...init, headers: { ...init.headers, "X-Test-User": "ann" } }),
  silence: 500,
  backoffBase: 20,
  backoffCap: 100,
});

async function start(number, sessionId, message) {
  for (;;) {
    try {
      const options = {
        idempotencyKey: `key-${number}`,
        traceId: `trace_${number}`,
        signal: AbortSignal.timeout(1500),
      };
      return (await panel.startRun({ sessionId, message }, options)).runId;
    } catch (error) {
      say({ number, trouble: error.code ?? error.name });
      await sleep(30);
    }
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { number, message, sessionId } = JSON.parse(line);
  const runId = await start(number, sessionId, message);
  say({ number, runId });
  for (;;) {
    try {
      for await (const update of panel.watchRun(runId, { sessionId })) {
        if (update.kind === "event") say({ number, event: update.event });
        else if (update.kind === "gone") say({ number, gone: update.reason });
      }
      break;
    } catch (error) {
      say({ number, trouble: error.code ?? error.name });
      await sleep(30);
    }
  }
}
process.exit(0);
