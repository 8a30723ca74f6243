// A device on the built TypeScript SDK, driven by lines of JSON on standard input.
//   in:  {"id": "m-1", "text": "hello"}     out: {"accepted": "m-1"}, {"failed": "m-1", "code": …}
//   out: {"message": {"id": …, "text": …, "final": …}}, {"prompt": …}, {"state": "ready"}
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [, , root, url, token, device, pulse] = process.argv;
const { HermesClient } = await import(pathToFileURL(`${root}/sdk/typescript/dist/index.js`).href);
const { WebSocket } = createRequire(`${root}/sdk/typescript/package.json`)("ws");
const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const client = new HermesClient({
  url,
  token,
  device: { id: device },
  webSocket: WebSocket,
  presence: null,
  timing: { pingAfter: Number(pulse), pongTimeout: Number(pulse), connectTimeout: 1500, backoffBase: 20, backoffCap: 100 },
});
client.on("message", ({ id, text, final }) => say({ message: { id, text, final } }));
client.on("state", ({ phase }) => say({ state: phase }));
client.on("warning", ({ code }) => say({ warning: code }));
client.connect();

const lines = createInterface({ input: process.stdin });
for await (const line of lines) {
  const { id, text } = JSON.parse(line);
  const sent = client.sendText(text, { id });
  sent.accepted.then(
    () => say({ accepted: id }),
    (error) => say({ failed: id, code: error.code }),
  );
}
client.close();
process.exit(0);
