/** The panel's model with a client that a test plays: what is on the screen after whatever happens. */
import {
  PanelError,
  type HermesPanelClient,
  type RunEvent,
  type RunUpdate,
  type SessionMessage,
} from "@hermes-mobile/client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { PanelModel } from "../../panel/model.ts";

const SESSION = "mnote_doc_1_trace_1";
const OTHER = "mnote_doc_1_trace_2";

class Gate<Value> {
  readonly promise: Promise<Value>;
  open!: (value: Value) => void;
  refuse!: (error: unknown) => void;

  constructor() {
    this.promise = new Promise((resolve, reject) => {
      this.open = resolve;
      this.refuse = reject;
    });
  }
}

/** One watching of a run: the test pushes updates, ends it or breaks it. */
class Watching {
  readonly #updates: RunUpdate[] = [];
  #end: Error | "done" | undefined;
  #wake = new Gate<void>();
  readonly signal: AbortSignal;

  constructor(signal: AbortSignal) {
    this.signal = signal;
  }

  say(...events: ({ readonly event: string } & Record<string, unknown>)[]): Promise<void> {
    for (const event of events) {
      this.#updates.push({
        kind: "event",
        id: "",
        event: { run_id: "run_1", ...event } as RunEvent,
      });
    }
    return this.#woken();
  }

  tell(update: RunUpdate): Promise<void> {
    this.#updates.push(update);
    return this.#woken();
  }

  finish(how: Error | "done" = "done"): Promise<void> {
    this.#end = how;
    return this.#woken();
  }

  async #woken(): Promise<void> {
    this.#wake.open();
    this.#wake = new Gate();
    await settled();
  }

  async *read(): AsyncGenerator<RunUpdate, void, undefined> {
    for (;;) {
      for (let next = this.#updates.shift(); next !== undefined; next = this.#updates.shift()) {
        yield next;
      }
      if (this.#end instanceof Error) throw this.#end;
      if (this.#end === "done") return;
      await this.#wake.promise;
    }
  }
}

class Client {
  readonly starts: Gate<{ runId: string; traceId: string }>[] = [];
  readonly sessions: Gate<{ messages: SessionMessage[] }>[] = [];
  readonly watchings: Watching[] = [];
  readonly aborted: string[] = [];
  list: { sessionId: string }[] = [];

  listSessions = (): Promise<unknown> => Promise.resolve({ sessions: this.list });
  listModels = (): Promise<unknown> => Promise.resolve({ models: [], defaultModel: "" });
  createSession = (): Promise<unknown> => Promise.resolve({ sessionId: SESSION });
  getSession = (): Promise<unknown> => {
    this.sessions.push(new Gate());
    return this.sessions.at(-1)?.promise as Promise<unknown>;
  };
  readonly requests: Record<string, unknown>[] = [];
  startRun = (request: Record<string, unknown>): Promise<unknown> => {
    this.requests.push(request);
    this.starts.push(new Gate());
    return this.starts.at(-1)?.promise as Promise<unknown>;
  };
  watchRun = (_run: string, { signal }: { signal: AbortSignal }): AsyncGenerator<RunUpdate> => {
    const watching = new Watching(signal);
    this.watchings.push(watching);
    return watching.read();
  };
  abortRun = (runId: string): Promise<unknown> => {
    this.aborted.push(runId);
    return Promise.resolve({ events: [] });
  };
}

const RUN = { runId: "run_1", traceId: "trace_1" };

async function settled(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
}

function make(): { client: Client; model: PanelModel } {
  const client = new Client();
  const model = new PanelModel({
    documentId: "doc_1",
    workspaceId: "ws_1",
    changed: () => undefined,
    told: () => undefined,
    client: client as unknown as HermesPanelClient,
  });
  return { client, model };
}

function texts(model: PanelModel): string[] {
  return model.turns.flatMap(({ parts }) =>
    parts.flatMap((part) => (part.kind === "text" ? [part.text] : [])),
  );
}

function message(role: string, content: string): SessionMessage {
  return {
    messageId: `${role} ${content}`,
    role,
    content,
    toolCallId: null,
    toolName: null,
    timestamp: null,
    reasoning: null,
  };
}

/** What a browser keeps; its keys are its own properties, as in a browser. */
function storage(): Record<string, unknown> {
  const kept: Record<string, unknown> = {};
  const hidden = (name: string, value: unknown): void => {
    Object.defineProperty(kept, name, { value });
  };
  hidden("getItem", (key: string) => kept[key] ?? null);
  hidden("setItem", (key: string, value: string) => {
    kept[key] = value;
  });
  hidden("removeItem", (key: string) => {
    delete kept[key];
  });
  return kept;
}

let kept: Record<string, unknown>;
let otherTabs: ((event: { key: string; newValue: string }) => void)[];

beforeEach(() => {
  kept = storage();
  otherTabs = [];
  let now = 1_800_000_000_000;
  vi.spyOn(Date, "now").mockImplementation(() => (now += 1));
  vi.stubGlobal("localStorage", kept);
  vi.stubGlobal("sessionStorage", storage());
  vi.stubGlobal("window", {
    addEventListener: (_: string, listener: (typeof otherTabs)[number]) => otherTabs.push(listener),
    removeEventListener: () => undefined,
  });
});
afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

test("Stop while a run is only being started stops it as soon as it is one.", async () => {
  const { client, model } = make();
  void model.send("hello", {});
  await settled();
  await model.abort();
  expect(model.stopping).toBe(true);
  expect(client.aborted).toEqual([]);
  client.starts[0]?.open(RUN);
  await settled();

  expect(client.aborted).toEqual(["run_1"]);
  expect(model.stopping).toBe(true);
  await client.watchings[0]?.say({ event: "run.cancelled" });
  expect(model.turns.at(-1)?.state).toBe("cancelled");
});

test("Turning to another conversation while a run is being started stays there; the run is found in its own.", async () => {
  const { client, model } = make();
  void model.send("hello", {});
  await settled();
  model.newSession();
  client.starts[0]?.open(RUN);
  await settled();

  expect(model.turns).toEqual([]);
  expect(model.sessionId).toBeUndefined();
  expect(client.watchings).toEqual([]);
  void model.openSession(SESSION);
  await settled();
  client.sessions[0]?.open({ messages: [] });
  await settled();
  await client.watchings[0]?.say({ event: "message.delta", delta: "hi" });
  expect(texts(model)).toEqual(["hi"]);
});

test("Of two conversations opened one after the other the later stays, whichever answers first.", async () => {
  const { client, model } = make();
  void model.openSession(SESSION);
  void model.openSession(OTHER);
  await settled();
  client.sessions[1]?.open({ messages: [message("user", "other")] });
  await settled();
  client.sessions[0]?.open({ messages: [message("user", "first")] });
  await settled();

  expect(model.sessionId).toBe(OTHER);
  expect(model.turns.map(({ asked }) => asked)).toEqual(["other"]);
  void model.openSession(SESSION);
  await settled();
  model.newSession();
  client.sessions[2]?.open({ messages: [message("user", "first")] });
  await settled();
  expect(model.sessionId).toBeUndefined();
  expect(model.turns).toEqual([]);
});

test("A new conversation begun while another one is loading has nothing to wait for.", async () => {
  const { client, model } = make();
  void model.openSession(OTHER);
  await settled();
  expect(model.loading).toBe(true);
  model.newSession();
  expect(model.loading).toBe(false);
  client.sessions[0]?.open({ messages: [message("user", "late")] });
  await settled();

  expect(model.loading).toBe(false);
  expect(model.turns).toEqual([]);
});

test("A conversation that could not be read is read when it is tried again.", async () => {
  const { client, model } = make();
  client.list = [{ sessionId: OTHER }];
  void model.openSession(SESSION);
  await settled();
  client.sessions[0]?.refuse(new PanelError({ code: "network", message: "", status: 0 }));
  await settled();
  expect(model.problem?.code).toBe("network");
  void model.start();
  await settled();
  client.sessions[1]?.open({ messages: [message("user", "one")] });
  await settled();

  expect(model.sessionId).toBe(SESSION);
  expect(model.turns.map(({ asked }) => asked)).toEqual(["one"]);
});

test.each(["network", "hermes_client_unauthorized", "hermes_client_upstream_unavailable"])(
  "%s while a run is looked for does not lose the run.",
  async (code) => {
    const { client, model } = make();
    void model.send("hello", {});
    await settled();
    client.starts[0]?.open(RUN);
    await settled();
    const error = new PanelError({ code, message: "", status: 401 });
    await client.watchings[0]?.finish(error);
    expect(model.turns.at(-1)).toMatchObject({ state: "failed", problem: { code } });

    const reloaded = make();
    void reloaded.model.start();
    await settled();
    reloaded.client.sessions[0]?.refuse(error);
    await settled();
    expect(reloaded.model.problem?.code).toBe(code);

    const again = model.resume();
    await settled();
    client.sessions[0]?.open({ messages: [message("user", "hello")] });
    expect(await again).toBe(true);
    await client.watchings[1]?.say(
      { event: "message.delta", delta: "hi" },
      { event: "run.completed", output: "hi" },
    );
    expect(texts(model)).toEqual(["hi"]);
    expect(model.turns).toHaveLength(1);
    expect(await model.resume()).toBe(false); // it is over
    expect(client.starts).toHaveLength(1);
  },
);

test("A run that one may not see is not looked for again.", async () => {
  const { client, model } = make();
  void model.send("hello", {});
  await settled();
  client.starts[0]?.open(RUN);
  await settled();
  await client.watchings[0]?.finish(
    new PanelError({ code: "hermes_client_forbidden", message: "", status: 403 }),
  );

  expect(Object.keys(kept)).toEqual([]);
  expect(await model.resume()).toBe(false);
});

test("Trying again while a run goes on does not watch it twice.", async () => {
  const { client, model } = make();
  void model.send("hello", {});
  await settled();
  client.starts[0]?.open(RUN);
  await settled();
  await client.watchings[0]?.say({ event: "message.delta", delta: "one" });
  void model.start();
  await settled();
  await client.watchings[0]?.say({ event: "message.delta", delta: " two" });

  expect(client.watchings).toHaveLength(1);
  expect(texts(model)).toEqual(["one two"]);
});

test("An answer that is told anew is not doubled, and one whose beginning is lost stays shown.", async () => {
  const { client, model } = make();
  void model.send("hello", {});
  await settled();
  client.starts[0]?.open(RUN);
  await settled();
  const watching = client.watchings[0] as Watching;
  const request = { event: "approval.request", approvalId: "a1", command: "rm x" };
  await watching.say({ event: "message.delta", delta: "one two" }, request);
  await watching.tell({ kind: "replayed" });
  expect(texts(model)).toEqual(["one two"]); // shown until there is something in its place
  await watching.say({ event: "message.delta", delta: "one" });
  await watching.say({ event: "message.delta", delta: " two three" }, request);
  expect(texts(model)).toEqual(["one two three"]);
  expect(model.turns.at(-1)?.parts.map(({ kind }) => kind)).toEqual(["text", "approval"]);

  await watching.tell({ kind: "replayed" });
  await watching.say(
    { event: "replay.truncated", from: 1 },
    { event: "approval.request", approvalId: "a2", command: "", choices: ["deny"] },
  );
  expect(texts(model)).toEqual(["one two three"]);
  expect(
    model.turns.at(-1)?.parts.flatMap((part) => (part.kind === "approval" ? [part.state] : [])),
  ).toEqual(["closed", "open"]); // the request that was lost is asked again under another id
  await watching.say({ event: "run.completed", output: "one two three four" });
  expect(texts(model)).toEqual(["one two three four"]);
});

test("A reload finds the run of its own conversation, not that of another tab.", async () => {
  const { client, model } = make();
  void model.send("mine", {});
  await settled();
  client.starts[0]?.open(RUN);
  await settled();
  const here = globalThis.sessionStorage;
  vi.stubGlobal("sessionStorage", storage()); // another tab
  const other = make();
  other.client.createSession = () => Promise.resolve({ sessionId: OTHER });
  void other.model.send("theirs", {});
  await settled();
  other.client.starts[0]?.open({ runId: "run_2", traceId: "trace_2" });
  await settled();

  vi.stubGlobal("sessionStorage", here);
  const reloaded = make();
  reloaded.client.list = [{ sessionId: OTHER }, { sessionId: SESSION }];
  void reloaded.model.start();
  await settled();
  reloaded.client.sessions[0]?.open({ messages: [] });
  await settled();
  expect(reloaded.model.sessionId).toBe(SESSION);
  expect(reloaded.model.turns.map(({ asked }) => asked)).toEqual(["mine"]);

  vi.stubGlobal("sessionStorage", storage()); // a new tab: what was started last
  const fresh = make();
  void fresh.model.start();
  await settled();
  fresh.client.sessions[0]?.open({ messages: [] });
  await settled();
  expect(fresh.model.sessionId).toBe(OTHER);
});

test("A reload stays in the conversation it was in, if there still is one.", async () => {
  const { client, model } = make();
  client.list = [{ sessionId: OTHER }, { sessionId: SESSION }];
  void model.openSession(SESSION);
  await settled();
  client.sessions[0]?.open({ messages: [] });
  await settled();
  for (const [list, expected] of [
    [[OTHER, SESSION], SESSION],
    [[OTHER], OTHER],
  ] as const) {
    const reloaded = make();
    reloaded.client.list = list.map((sessionId) => ({ sessionId }));
    void reloaded.model.start();
    await settled();
    reloaded.client.sessions[0]?.open({ messages: [] });
    await settled();
    expect(reloaded.model.sessionId).toBe(expected);
  }
});

test("A run of another tab that cannot be read is told, and no error is left uncaught.", async () => {
  const { client, model } = make();
  void model.start();
  await settled();
  const run = { runId: "run_9", sessionId: OTHER, asked: "hello" };
  otherTabs[0]?.({
    key: `hermes-panel:run:ws_1:doc_1:${OTHER}`,
    newValue: JSON.stringify(run),
  });
  await settled();
  client.sessions[0]?.refuse(new PanelError({ code: "network", message: "", status: 0 }));
  await settled();

  expect(model.problem?.code).toBe("network");
});

test("What another tab's run kept from being asked is asked again, and not taken for that run.", async () => {
  const first = make();
  void first.model.send("theirs", {});
  await settled();
  first.client.starts[0]?.open(RUN);
  await settled();
  const { client, model } = make();
  model.sessionId = SESSION;
  void model.send("mine", {});
  await settled();
  client.starts[0]?.refuse(
    new PanelError({ code: "hermes_client_conflict", message: "", status: 409 }),
  );
  await settled();

  expect(await model.resume()).toBe(false);
  expect(model.turns.map(({ asked }) => asked)).toEqual(["mine"]);
});

test("A question is shown at once, whatever the page takes to tell its context.", async () => {
  const { client, model } = make();
  const context = new Gate<{ selectedText: string }>();
  void model.send("hello", context.promise);
  await settled();
  expect(model.turns).toMatchObject([{ asked: "hello", state: "starting" }]);
  expect(client.starts).toEqual([]);
  context.open({ selectedText: "some words" });
  await settled();
  expect(model.turns).toMatchObject([{ selection: "some words" }]);
  client.starts[0]?.open(RUN);
  await settled();
  expect(model.turns).toMatchObject([{ selection: "some words", state: "running" }]);

  const other = make();
  void other.model.send("hello", Promise.reject(new Error("The page is broken.")));
  await settled();
  expect(other.model.turns).toMatchObject([
    { asked: "hello", state: "failed", problem: { code: "unknown" } },
  ]);
});

test("a page that is too long for the server is told in short, and the person knows", async () => {
  const { client, model } = make();
  const smaller = { pageContext: { title: "T" }, selectedText: "a part" };
  void model.send("question", {
    pageContext: { text: "long" },
    selectedText: "all of it",
    smaller,
  });
  await settled();
  expect(client.requests[0]).toEqual({
    sessionId: SESSION,
    message: "question",
    pageContext: { text: "long" },
    selectedText: "all of it",
  });
  client.starts[0]?.refuse(
    new PanelError({ code: "hermes_client_too_large", message: "too large", status: 413 }),
  );
  await settled();
  expect(client.requests[1]).toEqual({ sessionId: SESSION, message: "question", ...smaller });
  client.starts[1]?.open(RUN);
  await settled();
  expect(model.turns[0]?.state).toBe("running");
  expect(model.turns[0]?.parts).toEqual([{ kind: "note", note: "shortened" }]);
  await client.watchings[0]?.say({ event: "replay.truncated" });
  expect(model.turns[0]?.parts).toHaveLength(2);
});

test("a question that is too long by itself fails once, with its words", async () => {
  const { client, model } = make();
  void model.send("question", { smaller: {} });
  await settled();
  const error = new PanelError({ code: "hermes_client_too_large", message: "", status: 413 });
  client.starts[0]?.refuse(error);
  await settled();
  client.starts[1]?.refuse(error);
  await settled();
  expect(client.starts).toHaveLength(2);
  expect(model.turns[0]).toMatchObject({ state: "failed", parts: [] });
  expect(model.turns[0]?.problem?.code).toBe("hermes_client_too_large");
});

test("a question taken back while the page is still being asked never reaches Hermes", async () => {
  const { client, model } = make();
  const told = new Gate<object>();
  void model.send("taken back", told.promise);
  await settled();
  expect(model.busy).toBe(true);
  await model.abort();
  expect(model.turns[0]?.state).toBe("cancelled");
  void model.send("asked instead", {});
  await settled();
  told.open({});
  await settled();
  expect(client.requests.map((request) => request["message"])).toEqual(["asked instead"]);
  expect(model.turns.map(({ state }) => state)).toEqual(["cancelled", "starting"]);
});

test("a question taken back while its conversation is being made starts no run", async () => {
  const { client, model } = make();
  const made = new Gate<{ sessionId: string }>();
  client.createSession = () => made.promise;
  void model.send("taken back", {});
  await settled();
  await model.abort();
  expect(model.turns[0]?.state).toBe("stopping");
  made.open({ sessionId: SESSION });
  await settled();
  expect(model.turns[0]?.state).toBe("cancelled");
  expect(client.requests).toEqual([]);
});
