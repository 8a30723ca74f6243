/** Both clients on a real Hermes Agent, as `make run` starts it. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isRunEvent, type RunEvent } from "../../src/contract.ts";
import { HermesPanelClient, type HermesPanelClientOptions } from "../../src/panel.ts";
import type { RunUpdate } from "../../src/run-stream.ts";
import { Conversation } from "../support/conversation.ts";
import { startEverything, type Everything } from "../support/programs.ts";
import { Relay } from "../support/relay.ts";

let everything: Everything;
let cookie: string;
let documents = 0;
const stops: (() => Promise<void>)[] = [];

beforeAll(async () => {
  everything = await startEverything();
  stops.push(everything.stop);
  const login = await fetch(everything.loginUrl, { redirect: "manual" });
  cookie =
    /^hermes_client_session\w*=([^;]+)/.exec(login.headers.get("set-cookie") ?? "")?.[1] ?? "";
  expect(cookie).not.toBe("");
});

afterAll(async () => {
  for (const stop of stops) await stop();
});

/** What a browser does by itself: keeps the cookie, which is named by the port that is asked. */
const browserFetch: typeof fetch = (input, init) => {
  const headers = new Headers(init?.headers);
  headers.set("cookie", `hermes_client_session_${new URL(input as string).port}=${cookie}`);
  return fetch(input, { ...init, headers });
};

function makePanel(
  options: Partial<HermesPanelClientOptions> = {},
  origin = everything.webUrl,
): HermesPanelClient {
  documents += 1;
  return new HermesPanelClient({
    workspaceId: "ws_1",
    documentId: `doc${documents}`,
    baseUrl: `${origin}/api/hermes/client`,
    fetch: browserFetch,
    backoffBase: 50,
    ...options,
  });
}

async function collect(updates: AsyncIterable<RunUpdate>): Promise<RunUpdate[]> {
  const all: RunUpdate[] = [];
  for await (const update of updates) all.push(update);
  return all;
}

const eventsOf = (updates: readonly RunUpdate[]): RunEvent[] =>
  updates.flatMap((update) => (update.kind === "event" ? [update.event] : []));

const spoken = (events: readonly RunEvent[]): string =>
  events.map((event) => (isRunEvent(event, "message.delta") ? event.delta : "")).join("");

async function begin(panel: HermesPanelClient, message: string) {
  const { sessionId } = await panel.createSession({ title: message });
  return panel.startRun({ sessionId, message });
}

describe("the browser door", () => {
  test("A session, a run of two turns with page context, and what Hermes keeps of it.", async () => {
    const panel = makePanel();
    const { sessionId } = await panel.createSession({ title: "Questions" });
    for (const message of ["hello", "again"]) {
      const { runId } = await panel.startRun({
        sessionId,
        message,
        pageContext: { title: "Project plan" },
        selectedText: "first paragraph",
      });
      const events = eventsOf(await collect(panel.watchRun(runId, { sessionId })));
      expect(spoken(events)).toBe(`echo: ${message}`);
      expect(events.at(-1)).toMatchObject({ event: "run.completed", session_id: sessionId });
    }
    const session = await panel.getSession(sessionId);
    expect(session.messages.map(({ role, content }) => [role, content])).toEqual([
      ["user", "hello"],
      ["assistant", "echo: hello"],
      ["user", "again"],
      ["assistant", "echo: again"],
    ]);
    const { sessions } = await panel.listSessions({ limit: 5 });
    expect(sessions.map((each) => each.sessionId)).toEqual([sessionId]);
    expect((await makePanel().listSessions()).sessions).toEqual([]);
  });

  test("Models, tools and health.", async () => {
    const panel = makePanel();

    expect((await panel.listModels()).models.length).toBeGreaterThan(0);
    expect(Array.isArray((await panel.listTools()).tools)).toBe(true);
    expect(await panel.health()).toMatchObject({ configured: true, upstream: "ok" });
  });

  test("A stream that is cut again and again still shows the whole run, each event once.", async () => {
    const relay = await Relay.to(Number(new URL(everything.webUrl).port));
    try {
      const panel = makePanel();
      const { sessionId, runId } = await begin(panel, "stream 100 50");
      // The same document through a line that breaks; Host stays a loopback address. It breaks
      // after so many bytes and at no time: all of the run may come in one piece.
      relay.allowance = 4096;
      const broken = makePanel({ documentId: panel.documentId }, `http://127.0.0.1:${relay.port}`);
      const updates = await collect(broken.watchRun(runId, { sessionId }));
      const direct = await collect(panel.watchRun(runId, { sessionId }));

      expect(updates.filter(({ kind }) => kind === "lost").length).toBeGreaterThan(1);
      expect(eventsOf(updates)).toEqual(eventsOf(direct));
      expect(spoken(eventsOf(updates)).split(" ")).toHaveLength(100);
    } finally {
      await relay.stop();
    }
  });

  test("Leaving does not end a run; abort does, and its end is an event.", async () => {
    const panel = makePanel();
    const { sessionId, runId } = await begin(panel, "stream 2000 50");
    for await (const update of panel.watchRun(runId, { sessionId })) {
      if (update.kind === "event") break;
    }
    const rest = collect(panel.watchRun(runId, { sessionId }));
    expect(await panel.abortRun(runId, sessionId)).toMatchObject({ runId, sessionId });
    const events = eventsOf(await rest);

    expect(events.at(-1)?.event).toBe("run.cancelled");
  });

  test("An approval is answered by its id and taken once.", async () => {
    const panel = makePanel();
    const { sessionId, runId } = await begin(panel, "approve echo approved");
    const events: RunEvent[] = [];
    for await (const update of panel.watchRun(runId, { sessionId })) {
      if (update.kind !== "event") continue;
      events.push(update.event);
      if (!isRunEvent(update.event, "approval.request")) continue;
      expect(update.event.command).toBe("echo approved");
      const { approvalId } = update.event;
      const answer = { sessionId, approvalId, choice: "once" } as const;
      expect(await panel.approve(runId, answer)).toMatchObject({ approvalId, choice: "once" });
      await expect(panel.approve(runId, answer)).rejects.toMatchObject({
        code: "hermes_client_conflict",
      });
    }

    expect(events.map(({ event }) => event)).toContain("approval.request");
    expect(events.at(-1)?.event).toBe("run.completed");
  });

  test("A repeated start under one key is one run; a second run on a busy session is a conflict.", async () => {
    const panel = makePanel();
    const { sessionId } = await panel.createSession();
    // So long that the session is still busy when it is asked again; the abort ends it.
    const request = { sessionId, message: "stream 2000 50" };
    const options = { idempotencyKey: "key-1", traceId: "trace-1" };
    const first = await panel.startRun(request, options);
    expect((await panel.startRun(request, options)).runId).toBe(first.runId);
    await expect(panel.startRun({ sessionId, message: "another" })).rejects.toMatchObject({
      code: "hermes_client_conflict",
      status: 409,
    });
    const rest = collect(panel.watchRun(first.runId, { sessionId }));
    await panel.abortRun(first.runId, sessionId);
    expect(eventsOf(await rest).at(-1)?.event).toBe("run.cancelled");
  });

  test("Errors carry code, traceId and request id.", async () => {
    const stranger = makePanel({ fetch });
    await expect(stranger.listSessions({ traceId: "trace-of-mine" })).rejects.toMatchObject({
      code: "hermes_client_unauthorized",
      status: 401,
      traceId: "trace-of-mine",
      requestId: expect.any(String) as string,
    });
    await expect(makePanel().getSession("no session id")).rejects.toMatchObject({
      code: expect.stringMatching(/^hermes_client_(bad_request|not_found|forbidden)$/) as string,
    });
    const panel = makePanel();
    const { sessionId } = await panel.createSession();
    expect(await collect(panel.watchRun("run_nobody_knows", { sessionId }))).toMatchObject([
      { kind: "gone", reason: "unknown_run", session: { sessionId, messages: [] } },
    ]);
  });

  test("A run that was seen to its end has nothing more to tell.", async () => {
    const panel = makePanel();
    const { sessionId, runId } = await begin(panel, "hello");
    const updates = await collect(panel.watchRun(runId, { sessionId }));
    const last = updates.at(-1);
    const lastEventId = last?.kind === "event" ? last.id : "";

    expect(await collect(panel.watchRun(runId, { sessionId, lastEventId }))).toEqual([
      { kind: "gone", reason: "already_seen" },
    ]);
  });
});

describe("the device door", () => {
  test("A talk with the real agent: text, edits, an approval, a file each way.", async () => {
    const talking = await new Conversation(everything.doorUrl, {
      token: everything.token,
    }).connected();
    try {
      expect((await talking.ask("hello")).text).toBe("echo: hello");

      const streamed = await talking.ask("stream 60 100", ({ text }) => text.includes("word60"));
      expect(streamed.text.split(/\s+/)).toHaveLength(60);
      expect(talking.revisions.filter(({ id }) => id === streamed.id).length).toBeGreaterThan(2);

      const card = await talking.askForCard("approve echo from-the-card");
      expect(card.command).toBe("echo from-the-card");
      const after = talking.next(
        "message",
        ({ final, text }) => final && text.includes("approval"),
      );
      expect(await talking.client.answer(card.id, "once")).toMatchObject({ optionId: "once" });
      expect((await after).text).toContain("approval: once");

      const image = talking.next("media", ({ kind }) => kind === "image");
      await talking.client.sendText("image").accepted;
      expect((await image).blob?.size).toBeGreaterThan(0);

      const described = talking.next(
        "message",
        ({ final, text }) => final && text.includes("notes.txt"),
      );
      await talking.client.sendFile(Buffer.from("some notes\n"), {
        filename: "notes.txt",
        mime: "text/plain",
        caption: "my notes",
      }).accepted;
      expect((await described).text).toContain("notes.txt");
      expect(talking.warnings).toEqual([]);
    } finally {
      talking.close();
    }
  });
});
