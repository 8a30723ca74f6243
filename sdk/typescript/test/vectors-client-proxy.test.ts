/** The browser door's vectors, as far as they concern a page. */
import { describe, expect, test } from "vitest";
import { RUN_END_EVENTS, type RunEvent } from "../src/contract.ts";
import { HermesPanelClient } from "../src/panel.ts";
import { errorOfResponse } from "../src/panel-error.ts";
import { FakeProxy, Stream, json } from "./support/fake-proxy.ts";
import { vectors } from "./support/vectors.ts";

interface EventCase {
  readonly name: string;
  readonly contract: readonly RunEvent[];
}

const EVENTS = vectors("client-proxy-v1", "events.json") as {
  readonly cases: readonly EventCase[];
};
const ERRORS = vectors("client-proxy-v1", "errors.json") as {
  readonly codes: Readonly<Record<string, readonly number[]>>;
  readonly body: Readonly<Record<string, unknown>>;
};
const REQUESTS = vectors("client-proxy-v1", "requests.json") as {
  readonly good: readonly {
    readonly route: string;
    readonly body: Readonly<Record<string, unknown>>;
  }[];
};

describe("events", () => {
  test.each(EVENTS.cases.map((each) => [each.name, each] as const))(
    "%s",
    async (_name, { contract }) => {
      const proxy = new FakeProxy();
      const stream = new Stream();
      proxy.answers.push(stream);
      const panel = new HermesPanelClient({
        workspaceId: "ws_1",
        documentId: "doc_1",
        fetch: proxy.fetch,
      });
      contract.forEach((event, index) => {
        stream.event(String(index + 1), event);
      });
      const last: RunEvent = { event: "run.completed", run_id: "run_1", output: "" };
      stream.event("last", last);

      const seen: RunEvent[] = [];
      for await (const update of panel.watchRun("run_1", { sessionId: "mnote_doc_1_trace_1" })) {
        if (update.kind === "event") seen.push(update.event);
      }

      // Everything up to the first event that ends a run, untouched.
      const all = [...contract, last];
      const end = all.findIndex((event) => RUN_END_EVENTS.has(event.event));
      expect(seen).toEqual(all.slice(0, end + 1));
    },
  );
});

describe("errors", () => {
  const rows = Object.entries(ERRORS.codes).flatMap(([code, statuses]) =>
    statuses.map((status) => [code, status] as const),
  );

  test.each(rows)("%s with %i", async (code, status) => {
    const error = await errorOfResponse(json({ ...ERRORS.body, code }, status), "trace_0");

    expect(error).toMatchObject({
      code,
      status,
      message: ERRORS.body["message"],
      traceId: ERRORS.body["traceId"],
      requestId: ERRORS.body["requestId"],
    });
  });
});

describe("requests", () => {
  /** The client sends its own traceId always, and leaves out what was not given. */
  const essence = (body: Readonly<Record<string, unknown>>): unknown =>
    Object.fromEntries(
      Object.entries(body).filter(
        ([field, value]) => value !== null && field !== "traceId" && field !== "later",
      ),
    );

  test.each(REQUESTS.good.map((each) => [each.route, each.body] as const))(
    "%s %#",
    async (route, body) => {
      const proxy = new FakeProxy();
      proxy.answers.push(json({ ok: true }));
      const panel = new HermesPanelClient({
        workspaceId: body["workspaceId"] as string,
        documentId: body["documentId"] as string,
        fetch: proxy.fetch,
      });
      const { workspaceId: _workspace, documentId: _document, traceId: _trace, ...rest } = body;
      const sent = rest as never as { sessionId: string; message: string; title?: string };
      if (route === "POST /sessions") await panel.createSession(sent);
      else if (route === "POST /runs") await panel.startRun(sent);
      else if (route.endsWith("/abort")) await panel.abortRun("run_1", sent.sessionId);
      else if (route.endsWith("/approval")) await panel.approve("run_1", sent as never);
      else throw new Error(`a route this client does not know: ${route}`);

      expect(essence(proxy.asked[0]?.body as Record<string, unknown>)).toMatchObject(
        essence(body) as object,
      );
    },
  );
});
