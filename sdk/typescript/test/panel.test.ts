import { expect, test } from "vitest";
import { HermesPanelClient, type HermesPanelClientOptions } from "../src/panel.ts";
import type { RunUpdate } from "../src/run-stream.ts";
import { FakeClock, settle } from "./support/fake-clock.ts";
import { FakeProxy, Stream, json, refusal, type Answer } from "./support/fake-proxy.ts";

function makePanel(answers: readonly Answer[], options: Partial<HermesPanelClientOptions> = {}) {
  const proxy = new FakeProxy();
  proxy.answers.push(...answers);
  const clock = new FakeClock();
  const panel = new HermesPanelClient({
    documentId: "doc_1",
    workspaceId: "ws_1",
    fetch: proxy.fetch,
    clock,
    random: () => 0.5,
    createTraceId: () => "trace_1",
    ...options,
  });
  return { proxy, clock, panel };
}

const SESSION = "mnote_doc_1_trace_1";
const STARTED = {
  ok: true,
  sessionId: SESSION,
  runId: "run_1",
  messageId: null,
  events: [],
  traceId: "trace_1",
};

// ---- calls ------------------------------------------------------------------------------------

test("Every call asks its route of the contract, and nothing but the page's own origin.", async () => {
  const ok = (): Response => json({ ok: true, traceId: "trace_1" });
  const { panel, proxy } = makePanel(Array.from({ length: 9 }, ok));
  await panel.listSessions({ limit: 20 });
  await panel.createSession({ title: "当前页问答" });
  await panel.getSession(SESSION);
  await panel.startRun(
    {
      sessionId: SESSION,
      message: "概括",
      model: "hermes-agent",
      pageContext: { title: "项目计划" },
      selectedBlockId: null,
      selectedText: null,
    },
    { idempotencyKey: "key-1" },
  );
  await panel.abortRun("run_1", SESSION);
  await panel.approve("run_1", { sessionId: SESSION, approvalId: "a1", choice: "once" });
  await panel.listModels();
  await panel.listTools();
  await panel.health();

  const document = { workspaceId: "ws_1", documentId: "doc_1" };
  expect(proxy.asked.map(({ method, path, body }) => [method, path, body])).toEqual([
    ["GET", "/api/hermes/client/sessions?workspaceId=ws_1&documentId=doc_1&limit=20", undefined],
    [
      "POST",
      "/api/hermes/client/sessions",
      { ...document, title: "当前页问答", traceId: "trace_1" },
    ],
    ["GET", `/api/hermes/client/sessions/${SESSION}?workspaceId=ws_1&documentId=doc_1`, undefined],
    [
      "POST",
      "/api/hermes/client/runs",
      {
        ...document,
        sessionId: SESSION,
        message: "概括",
        model: "hermes-agent",
        pageContext: { title: "项目计划" },
        selectedBlockId: null,
        selectedText: null,
        traceId: "trace_1",
      },
    ],
    [
      "POST",
      "/api/hermes/client/runs/run_1/abort",
      { ...document, sessionId: SESSION, traceId: "trace_1" },
    ],
    [
      "POST",
      "/api/hermes/client/runs/run_1/approval",
      { ...document, sessionId: SESSION, approvalId: "a1", choice: "once", traceId: "trace_1" },
    ],
    ["GET", "/api/hermes/client/models", undefined],
    ["GET", "/api/hermes/client/tools", undefined],
    ["GET", "/api/hermes/client/health", undefined],
  ]);
  expect(proxy.asked[3]?.headers.get("idempotency-key")).toBe("key-1");
  for (const { method, headers } of proxy.asked) {
    expect(headers.get("x-trace-id")).toBe("trace_1");
    expect(headers.get("content-type")).toBe(method === "POST" ? "application/json" : null);
  }
});

test("A text that was cut inside a character does not cost the request.", async () => {
  const { panel, proxy } = makePanel([json(STARTED)]);
  await panel.startRun({
    sessionId: SESSION,
    message: "a\ud83d",
    selectedText: "\udc00b",
    pageContext: { title: "c\ud83d", outline: [{ text: "\ud83d\ude00" }] },
  });

  expect(proxy.asked[0]?.body).toMatchObject({
    message: "a\ufffd",
    selectedText: "\ufffdb",
    pageContext: { title: "c\ufffd", outline: [{ text: "\ud83d\ude00" }] },
  });
});

test("Ids become one segment of the path, whatever they hold.", async () => {
  const { panel, proxy } = makePanel([json({ ok: true })]);
  await panel.getSession("../../x?y#z");

  expect(proxy.asked[0]?.path).toContain("/sessions/..%2F..%2Fx%3Fy%23z?");
});

test("An error of the proxy arrives with its code, status, traceId and pause.", async () => {
  const { panel } = makePanel([
    refusal("hermes_client_upstream_rate_limited", 429, { "retry-after": "7" }),
  ]);

  await expect(panel.listModels()).rejects.toMatchObject({
    name: "PanelError",
    code: "hermes_client_upstream_rate_limited",
    message: "sentence of hermes_client_upstream_rate_limited",
    status: 429,
    traceId: "trace_9",
    requestId: "req_9",
    retryAfter: 7000,
    transient: true,
  });
});

test.each<[string, Answer, object]>([
  [
    "an HTML page",
    new Response("<html>", { status: 502 }),
    { code: "bad_answer", status: 502, traceId: "trace_1", transient: true },
  ],
  [
    "HTML with 200",
    new Response("<html>"),
    { code: "bad_answer", status: 200, traceId: "trace_1" },
  ],
  ["JSON that is not the proxy's", json([1]), { code: "bad_answer" }],
  ["ok: false with 200", json({ ok: false }), { code: "bad_answer" }],
  ["an empty 401", new Response(null, { status: 401 }), { code: "bad_answer", transient: false }],
  [
    "no connection",
    new TypeError("failed to fetch"),
    { code: "network", status: 0, transient: true },
  ],
])("%s is a typed error.", async (_name, answer, expected) => {
  const { panel } = makePanel([answer]);

  await expect(panel.listTools()).rejects.toMatchObject(expected);
});

test("An aborted call rejects with the signal's reason.", async () => {
  const { panel } = makePanel(["hang"]);
  const abort = new AbortController();
  const call = panel.listSessions({ signal: abort.signal });
  abort.abort(new Error("left the page"));

  await expect(call).rejects.toThrow("left the page");
});

test.each<[string, () => Answer]>([
  ["no answer", () => "hang"],
  ["an answer that never ends", () => new Stream()],
])("After the time for a call, %s is a typed error.", async (_name, answer) => {
  const { panel, proxy, clock } = makePanel([answer()], { timeout: 8_000 });
  const call = panel.listModels();
  call.catch(() => undefined);
  await clock.advance(7_999);
  expect(proxy.asked[0]?.signal?.aborted).toBe(false);
  await clock.advance(1);

  await expect(call).rejects.toMatchObject({ code: "network", status: 0, traceId: "trace_1" });
  expect(clock.pendingTimers).toBe(0);
});

test("A call leaves nothing behind: no timer, no listener.", async () => {
  const { panel, clock } = makePanel([json({ ok: true }), refusal("hermes_client_conflict", 409)]);
  const abort = new AbortController();
  await panel.listModels({ signal: abort.signal });
  await panel.listTools({ signal: abort.signal }).catch(() => undefined);

  expect(clock.pendingTimers).toBe(0);
});

test("A start that a server in between failed to answer is repeated under its key.", async () => {
  const { panel, proxy, clock } = makePanel([
    new Response("<html>", { status: 504 }),
    json(STARTED),
  ]);
  const started = panel.startRun({ sessionId: SESSION, message: "hi" });
  await clock.advance(5_000);

  expect((await started).runId).toBe("run_1");
  expect(new Set(proxy.asked.map(({ headers }) => headers.get("idempotency-key"))).size).toBe(1);
});

test("A start whose answer was lost is repeated under the same key and traceId, a refusal is not.", async () => {
  let traces = 0;
  const { panel, proxy, clock } = makePanel(
    [new TypeError("lost"), new TypeError("lost"), json(STARTED)],
    {
      createTraceId: () => `trace_${(traces += 1)}`,
    },
  );
  const started = panel.startRun({ sessionId: SESSION, message: "hi" });
  await clock.advance(5_000);

  expect((await started).runId).toBe("run_1");
  expect(new Set(proxy.asked.map(({ headers }) => headers.get("idempotency-key"))).size).toBe(1);
  expect(proxy.asked.map(({ body }) => body)).toEqual(
    Array.from({ length: 3 }, () => proxy.asked[0]?.body),
  );

  const refused = makePanel([refusal("hermes_client_conflict", 409)]);
  await expect(refused.panel.startRun({ sessionId: SESSION, message: "hi" })).rejects.toMatchObject(
    {
      code: "hermes_client_conflict",
    },
  );

  const unknown = makePanel([refusal("hermes_client_upstream_unavailable", 502)]);
  await expect(unknown.panel.startRun({ sessionId: SESSION, message: "hi" })).rejects.toMatchObject(
    {
      status: 502,
    },
  );
});

// ---- watching a run ---------------------------------------------------------------------------

const delta = (text: string) => ({
  event: "message.delta",
  run_id: "run_1",
  session_id: SESSION,
  delta: text,
});
const DONE = { event: "run.completed", run_id: "run_1", session_id: SESSION, output: "ab" };

/** Collects the updates of a run in the background. */
function watch(
  panel: HermesPanelClient,
  options: { lastEventId?: string; signal?: AbortSignal } = {},
) {
  const updates: RunUpdate[] = [];
  const seen = (): string[] =>
    updates.map((update) =>
      update.kind === "event" ? `${update.id} ${update.event.event}` : update.kind,
    );
  const done = (async () => {
    for await (const update of panel.watchRun("run_1", { sessionId: SESSION, ...options }))
      updates.push(update);
  })();
  done.catch(() => undefined);
  return { updates, seen, done };
}

test("Events arrive as they come and end with the run; heartbeats and comments do not show.", async () => {
  const stream = new Stream();
  const { panel, proxy } = makePanel([stream]);
  const { seen, done } = watch(panel);
  await settle();
  stream.write(': keepalive\n\nevent: heartbeat\ndata: {"event":"heartbeat"}\n\n');
  stream.event("1", delta("a"));
  await settle();
  expect(seen()).toEqual(["connected", "1 message.delta"]);
  stream.write("data: no json\n\n");
  stream.event("2", { event: "hologram", run_id: "run_1" });
  stream.event("3", DONE);
  await done;

  expect(seen()).toEqual(["connected", "1 message.delta", "2 hologram", "3 run.completed"]);
  expect(proxy.asked[0]?.path).toBe(`/api/hermes/client/events/run_1?sessionId=${SESSION}`);
  expect(proxy.asked[0]?.headers.get("accept")).toBe("text/event-stream");
  expect(proxy.asked[0]?.headers.has("last-event-id")).toBe(false);
  expect(proxy.asked[0]?.signal?.aborted).toBe(true); // the connection is given back
});

test.each(["run.completed", "run.failed", "run.cancelled", "run.interrupted"])(
  "%s ends the watching.",
  async (name) => {
    const stream = new Stream();
    const { panel } = makePanel([stream]);
    const { done, seen } = watch(panel);
    await settle();
    stream.event("1", { event: name, run_id: "run_1" });
    await done;

    expect(seen()).toEqual(["connected", `1 ${name}`]);
  },
);

test("A lost stream is not a lost run: it goes on after the last event that was seen.", async () => {
  const streams = [new Stream(), new Stream(), new Stream()] as const;
  const { panel, proxy, clock } = makePanel([
    ...streams.slice(0, 2),
    new TypeError("offline"),
    streams[2],
  ]);
  const { seen, updates, done } = watch(panel);
  await settle();
  streams[0].event("1", delta("a"));
  streams[0].write("id: 2\nda"); // cut inside an event: its id was not seen
  await settle();
  streams[0].break();
  await settle();
  expect(updates.at(-1)).toMatchObject({
    kind: "lost",
    retryIn: 250,
    error: { code: "network", traceId: "trace_1" },
  });
  await clock.advance(250);
  streams[1].end(); // an end without a last event is a lost stream as well
  await settle();
  await clock.advance(250);
  await clock.advance(500);
  streams[2].event("2", DONE);
  await done;

  expect(seen()).toEqual([
    "connected",
    "1 message.delta",
    "lost",
    "connected",
    "lost",
    "lost",
    "connected",
    "2 run.completed",
  ]);
  expect(proxy.asked.map(({ headers }) => headers.get("last-event-id"))).toEqual([
    null,
    "1",
    "1",
    "1",
  ]);
});

test("The pause a proxy asks for is kept, `proxy.closing` included.", async () => {
  const first = new Stream();
  const second = new Stream();
  const { panel, clock, proxy } = makePanel([first, second]);
  const { updates, done } = watch(panel);
  await settle();
  first.write('retry: 2500\nid: 1\ndata: {"event":"proxy.closing"}\n\n');
  first.end();
  await settle();
  expect(updates.at(-1)).toMatchObject({ kind: "lost", retryIn: 2500, error: undefined });
  await clock.advance(2499);
  expect(proxy.asked).toHaveLength(1);
  await clock.advance(1);
  second.event("2", DONE);
  await done;
});

test("A server that tells the run anew says so first, and only then.", async () => {
  const streams = [new Stream(), new Stream(), new Stream(), new Stream()] as const;
  const { panel, clock } = makePanel(streams);
  const { seen, done } = watch(panel);
  await settle();
  streams[0].event("0-0a", delta("a"));
  streams[0].event("1-0b", delta("b"));
  streams[0].end();
  await clock.advance(1_000);
  streams[1].event("2-0c", delta("c")); // goes on
  streams[1].event("2-0c", { event: "proxy.closing", run_id: "run_1" });
  streams[1].end();
  await clock.advance(1_000);
  streams[2].event("2-0c", { event: "proxy.closing", run_id: "run_1" }); // tells nothing of the run
  streams[2].event("0-ff", delta("a"));
  streams[2].event("1-fe", delta("b"));
  streams[2].end();
  await clock.advance(1_000);
  streams[3].event("1-dd", DONE);
  await done;

  expect(seen()).toEqual([
    "connected",
    "0-0a message.delta",
    "1-0b message.delta",
    "lost",
    "connected",
    "2-0c message.delta",
    "2-0c proxy.closing",
    "lost",
    "connected",
    "2-0c proxy.closing",
    "replayed",
    "0-ff message.delta",
    "1-fe message.delta",
    "lost",
    "connected",
    "replayed",
    "1-dd run.completed",
  ]);
});

test("Silence is a lost stream; a comment is life.", async () => {
  const first = new Stream();
  const second = new Stream();
  const { panel, clock, seen } = (() => {
    const made = makePanel([first, second]);
    return { ...made, ...watch(made.panel) };
  })();
  void panel;
  await settle();
  for (let beat = 0; beat < 10; beat += 1) {
    await clock.advance(40_000);
    first.write(": keepalive\n\n");
  }
  await clock.advance(44_999);
  expect(seen()).toEqual(["connected"]);
  await clock.advance(1);
  expect(seen()).toEqual(["connected", "lost"]);
  await clock.advance(1000);
  second.event("1", DONE);
  await settle();

  expect(seen()).toEqual(["connected", "lost", "connected", "1 run.completed"]);
  expect(first.cancelled || true).toBe(true);
});

test("A connection that never answers is given up and repeated.", async () => {
  const stream = new Stream();
  const { panel, clock } = makePanel(["hang", stream]);
  const { seen, done } = watch(panel);
  await clock.advance(45_000);
  await clock.advance(1000);
  stream.event("1", DONE);
  await done;

  expect(seen()).toEqual(["lost", "connected", "1 run.completed"]);
});

test("A busy consumer is not silence of the stream.", async () => {
  const stream = new Stream();
  const { panel, clock } = makePanel([stream]);
  const watching = panel.watchRun("run_1", { sessionId: SESSION });
  expect((await watching.next()).value).toEqual({ kind: "connected" });
  const next = watching.next();
  await settle();
  stream.event("1", delta("a"));
  stream.event("2", DONE);
  expect((await next).value).toMatchObject({ id: "1" });
  await clock.advance(600_000); // the page is busy

  expect((await watching.next()).value).toMatchObject({ id: "2" });
  expect((await watching.next()).done).toBe(true);
});

test("204 ends with `gone`: all of it was seen before.", async () => {
  const { panel, proxy } = makePanel([new Response(null, { status: 204 })]);
  const { updates, done } = watch(panel, { lastEventId: "9" });
  await done;

  expect(updates).toEqual([{ kind: "gone", reason: "already_seen" }]);
  expect(proxy.asked[0]?.headers.get("last-event-id")).toBe("9");
});

test("A run the proxy does not know any more ends with what Hermes keeps of the session, if it can be read.", async () => {
  const session = { ok: true, sessionId: SESSION, traceId: "trace_1", messages: [], usage: null };
  const gone = { kind: "gone", reason: "unknown_run" };
  for (const [answer, expected] of [
    [json(session), { ...gone, session }],
    [refusal("hermes_client_upstream_unavailable", 502), gone],
  ] as const) {
    const { panel, proxy } = makePanel([refusal("hermes_client_not_found", 404), answer]);
    const { updates, done } = watch(panel);
    await done;

    expect(updates).toEqual([expected]);
    expect(proxy.asked[1]?.path).toContain(`/sessions/${SESSION}?`);
  }
});

test.each([
  ["hermes_client_unauthorized", 401],
  ["hermes_client_forbidden", 403],
  ["hermes_client_bad_request", 400],
  ["hermes_client_unconfigured", 503],
  ["hermes_client_upstream_unauthorized", 502],
])("The refusal %s ends the watching with its error.", async (code, status) => {
  const { panel } = makePanel([refusal(code, status)]);

  await expect(watch(panel).done).rejects.toMatchObject({ code, traceId: "trace_9" });
});

test("Something that is no event stream ends the watching; a failing server in between does not.", async () => {
  const page = makePanel([
    new Response("<html>sign in</html>", { headers: { "content-type": "text/html" } }),
  ]);
  await expect(watch(page.panel).done).rejects.toMatchObject({
    code: "bad_answer",
    status: 200,
    traceId: "trace_1",
  });

  const stream = new Stream();
  const restarted = makePanel([
    new Response("<html>", { status: 502 }),
    refusal("hermes_client_rate_limited", 429, { "retry-after": "20" }),
    stream,
  ]);
  const { seen, updates, done } = watch(restarted.panel);
  await restarted.clock.advance(250);
  expect(updates.at(-1)).toMatchObject({ kind: "lost", retryIn: 20_000 });
  await restarted.clock.advance(20_000);
  stream.event("1", DONE);
  await done;

  expect(seen()).toEqual(["lost", "lost", "connected", "1 run.completed"]);
});

test("Leaving the loop ends the request and starts no other.", async () => {
  const stream = new Stream();
  const { panel, proxy, clock } = makePanel([stream]);
  const watching = panel.watchRun("run_1", { sessionId: SESSION });
  await watching.next();
  await watching.return(undefined);

  expect(proxy.asked[0]?.signal?.aborted).toBe(true);
  expect(clock.pendingTimers).toBe(0);
});

test("The signal ends watching: while reading, while waiting, and before it began.", async () => {
  const stream = new Stream();
  const reading = makePanel([stream]);
  const abort = new AbortController();
  const first = watch(reading.panel, { signal: abort.signal });
  await settle();
  abort.abort(new Error("left"));
  await expect(first.done).rejects.toThrow("left");

  const waiting = makePanel([new TypeError("offline")]);
  const second = new AbortController();
  const paused = watch(waiting.panel, { signal: second.signal });
  await settle();
  second.abort(new Error("left"));
  await expect(paused.done).rejects.toThrow("left");
  expect(waiting.clock.pendingTimers).toBe(0);

  const never = makePanel([]);
  await expect(watch(never.panel, { signal: abort.signal }).done).rejects.toThrow("left");
  expect(never.proxy.asked).toEqual([]);
});

test("With `giveUpAfter` an unreachable stream is given up, and the error does not call the run lost.", async () => {
  const { panel, clock } = makePanel(
    Array.from({ length: 20 }, () => new TypeError("offline")),
    {
      giveUpAfter: 60_000,
    },
  );
  const { done, updates } = watch(panel);
  for (let second = 0; second < 200; second += 1) await clock.advance(1000);

  await expect(done).rejects.toMatchObject({ code: "stream_lost" });
  expect(updates.every((update) => update.kind === "lost")).toBe(true);
});
