/** A `fetch` that does not heed its signal must not hang whoever waits. */
import { expect, test } from "vitest";
import { HermesPanelClient } from "../src/panel.ts";
import type { RunUpdate } from "../src/run-stream.ts";

const never = new Promise<never>(() => undefined);
const encoder = new TextEncoder();

/** A stream that says these chunks and then nothing, whatever becomes of the request. */
function deafStream(...chunks: readonly string[]): Response {
  const body = new ReadableStream<Uint8Array>({
    start(stream) {
      for (const chunk of chunks) stream.enqueue(encoder.encode(chunk));
    },
    cancel: () => never,
  });
  return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
}

function end(id: number): string {
  const event = { event: "run.completed", run_id: "run_1", output: "done", usage: null };
  return `id: ${id}\ndata: ${JSON.stringify(event)}\n\n`;
}

function panelWith(fetch: () => Promise<Response>): HermesPanelClient {
  return new HermesPanelClient({
    ...{ documentId: "doc_1", workspaceId: "ws_1", fetch },
    ...{ timeout: 20, silence: 20, backoffBase: 1, backoffCap: 1 },
  });
}

async function kinds(updates: AsyncIterable<RunUpdate>): Promise<string[]> {
  const seen: string[] = [];
  for await (const update of updates) seen.push(update.kind);
  return seen;
}

test("A call that nobody answers ends after its time, or with its signal.", async () => {
  const panel = panelWith(() => never);
  await expect(panel.listTools()).rejects.toMatchObject({ code: "network" });
  const leave = new AbortController();
  const call = panel.listTools({ signal: leave.signal });
  leave.abort(new Error("left"));
  await expect(call).rejects.toThrow("left");
});

test("An answer whose body never comes ends after its time.", async () => {
  const panel = panelWith(() => Promise.resolve(deafStream("{")));
  await expect(panel.listTools()).rejects.toMatchObject({ code: "network" });
});

test("A stream that falls silent is lost, whether it ends or not, and the next one is read.", async () => {
  const answers = [
    () => Promise.resolve(deafStream(": hello\n\n")),
    () => never,
    () => Promise.resolve(deafStream(end(1))),
  ];
  const panel = panelWith(() => answers.shift()?.() ?? never);
  expect(await kinds(panel.watchRun("run_1", { sessionId: "s" }))).toEqual([
    ...["connected", "lost", "lost", "connected", "event"],
  ]);
});

test("Watching ends with its signal, also in the middle of a silent stream.", async () => {
  const panel = new HermesPanelClient({
    ...{ documentId: "doc_1", workspaceId: "ws_1" },
    fetch: () => Promise.resolve(deafStream(": hello\n\n")),
  });
  const leave = new AbortController();
  const watching = panel.watchRun("run_1", { sessionId: "s", signal: leave.signal });
  expect((await watching.next()).value).toEqual({ kind: "connected" });
  const next = watching.next();
  leave.abort(new Error("left"));
  await expect(next).rejects.toThrow("left");
});
