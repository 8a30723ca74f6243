/** `HermesPanelClient`: a web page's side of the browser door. */
import { abortable } from "./abortable.ts";
import { fullJitter } from "./backoff.ts";
import { sleep, systemClock, type Clock } from "./clock.ts";
import {
  DEFAULT_PANEL_BASE,
  type ApprovalAnswered,
  type ApprovalChoice,
  type ModelList,
  type ProxyHealth,
  type RunAborted,
  type RunStarted,
  type SessionCreated,
  type SessionDetail,
  type SessionList,
  type ToolList,
} from "./contract.ts";
import { wellFormed } from "./frames.ts";
import { randomId } from "./id.ts";
import { PanelError, errorOfResponse } from "./panel-error.ts";
import { runStream, type RunUpdate } from "./run-stream.ts";

export interface HermesPanelClientOptions {
  /** The document the page shows; its sessions are the ones listed and made. */
  readonly documentId: string;
  readonly workspaceId: string;
  /** Path of the proxy on the page's own origin. Default `/api/hermes/client`. */
  readonly baseUrl?: string;
  /** Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
  /** Time for one call and its answer, in milliseconds; then it rejects with `network`. Default 60 000. */
  readonly timeout?: number;
  /** Silence after which an event stream counts as lost, in milliseconds. Default 45 000: three heartbeats. */
  readonly silence?: number;
  /** Time without a stream after which `watchRun` gives up, in milliseconds. Default: never. */
  readonly giveUpAfter?: number;
  /** First and largest upper bound of the random pause before a stream is opened again. Defaults 500 and 15 000 ms. */
  readonly backoffBase?: number;
  readonly backoffCap?: number;
  /** Makes the traceId of a call. Default: `trace_` and a random id. */
  readonly createTraceId?: () => string;
  readonly clock?: Clock;
  /** 0 <= n < 1, for the jitter. Default `Math.random`. */
  readonly random?: () => number;
}

export interface CallOptions {
  readonly signal?: AbortSignal;
  /** Found again in the proxy's and Hermes' logs. Default: a new one for each call. */
  readonly traceId?: string;
}

export interface RunRequest {
  readonly sessionId: string;
  /** The user's words and nothing else: context belongs into the fields below. */
  readonly message: string;
  readonly model?: string;
  /** What the page shows, as a JSON object. At most 64 KiB together with the selection. */
  readonly pageContext?: Readonly<Record<string, unknown>> | null;
  readonly selectedBlockId?: string | null;
  readonly selectedText?: string | null;
}

export interface StartOptions extends CallOptions {
  /** The same key with the same request is the same run. Default: a random key for each call. */
  readonly idempotencyKey?: string;
}

export interface WatchOptions {
  readonly sessionId: string;
  /** Continue after this event (`id` of a `RunUpdate`). Default: from the start. */
  readonly lastEventId?: string;
  /** Ends watching. The run goes on; `abortRun` ends it. */
  readonly signal?: AbortSignal;
}

/** How often a start is repeated under its key when its answer got lost on the way. */
const START_REPEATS = 2;

/**
 * The agent beside a document.
 *
 * ```ts
 * const panel = new HermesPanelClient({ documentId: "doc_1", workspaceId: "ws_1" });
 * const { sessionId } = await panel.createSession({ title: "Questions" });
 * const { runId } = await panel.startRun({ sessionId, message: "Summarise this page." });
 * for await (const update of panel.watchRun(runId, { sessionId })) {
 *   if (update.kind === "event" && isRunEvent(update.event, "message.delta")) show(update.event.delta);
 * }
 * ```
 *
 * Every method rejects with a `PanelError` (with `code` and `traceId`), or with the signal's reason.
 */
export class HermesPanelClient {
  readonly documentId: string;
  readonly workspaceId: string;
  readonly #base: string;
  readonly #fetch: typeof fetch;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #createTraceId: () => string;
  readonly #timeout: number;
  readonly #stream: {
    readonly silence: number;
    readonly giveUpAfter: number | undefined;
    readonly backoffBase: number;
    readonly backoffCap: number;
  };

  constructor(options: HermesPanelClientOptions) {
    this.documentId = options.documentId;
    this.workspaceId = options.workspaceId;
    this.#base = (options.baseUrl ?? DEFAULT_PANEL_BASE).replace(/\/+$/, "");
    // Called as a plain function: browsers refuse `fetch` as a method of another object.
    const own = options.fetch ?? globalThis.fetch;
    this.#fetch = (input, init) => own(input, init);
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? Math.random;
    this.#createTraceId = options.createTraceId ?? (() => `trace_${randomId()}`);
    this.#timeout = options.timeout ?? 60_000;
    this.#stream = {
      silence: options.silence ?? 45_000,
      giveUpAfter: options.giveUpAfter,
      backoffBase: options.backoffBase ?? 500,
      backoffCap: options.backoffCap ?? 15_000,
    };
  }

  /** Sessions of this document, newest first. */
  listSessions(options: CallOptions & { readonly limit?: number } = {}): Promise<SessionList> {
    const { limit } = options;
    const query = queryOf({
      ...this.#document(),
      ...(limit === undefined ? {} : { limit: String(limit) }),
    });
    return this.#get(`/sessions${query}`, options);
  }

  /** A new session. Hermes knows it once its first run has started. */
  createSession(options: CallOptions & { readonly title?: string } = {}): Promise<SessionCreated> {
    return this.#post("/sessions", { ...this.#document(), title: options.title }, options);
  }

  /** The messages of a session, from Hermes. */
  getSession(sessionId: string, options: CallOptions = {}): Promise<SessionDetail> {
    const query = queryOf(this.#document());
    return this.#get(`/sessions/${encodeURIComponent(sessionId)}${query}`, options);
  }

  /**
   * Starts a run; `watchRun` shows it. Two calls, so that a lost connection never starts it twice:
   * if the answer does not arrive, the start is repeated under the same key.
   */
  async startRun(request: RunRequest, options: StartOptions = {}): Promise<RunStarted> {
    const body = { ...this.#document(), ...request };
    const key = options.idempotencyKey ?? randomId();
    const fixed = { ...options, traceId: options.traceId ?? this.#createTraceId() };
    for (let repeats = 0; ; repeats += 1) {
      try {
        return await this.#post<RunStarted>("/runs", body, fixed, { "Idempotency-Key": key });
      } catch (error) {
        // A server in between that failed says nothing about the start either.
        const lost =
          error instanceof PanelError &&
          (error.code === "network" || (error.code === "bad_answer" && error.status >= 500));
        if (!lost || repeats >= START_REPEATS) throw error;
        const { backoffBase: base, backoffCap: cap } = this.#stream;
        await sleep(this.#clock, fullJitter(repeats, { base, cap }, this.#random), options.signal);
      }
    }
  }

  /**
   * The events of a run until its end, across lost connections. Leaving the loop or aborting the
   * signal ends watching and nothing else.
   */
  watchRun(runId: string, options: WatchOptions): AsyncGenerator<RunUpdate, void, undefined> {
    const query = queryOf({ sessionId: options.sessionId });
    const path = `/events/${encodeURIComponent(runId)}${query}`;
    const parts = {
      ...this.#stream,
      clock: this.#clock,
      random: this.#random,
      session: (signal: AbortSignal | undefined) =>
        this.getSession(options.sessionId, signal === undefined ? {} : { signal }),
      createTraceId: this.#createTraceId,
      open: (lastEventId: string, traceId: string, signal: AbortSignal) =>
        this.#fetch(this.#base + path, {
          headers: {
            Accept: "text/event-stream",
            "X-Trace-Id": traceId,
            ...(lastEventId === "" ? {} : { "Last-Event-ID": lastEventId }),
          },
          cache: "no-store",
          credentials: "same-origin",
          signal,
        }),
    };
    return runStream(parts, options.lastEventId ?? "", options.signal);
  }

  /** Asks Hermes to stop a run. Its end arrives as an event (`run.cancelled`, as a rule). */
  abortRun(runId: string, sessionId: string, options: CallOptions = {}): Promise<RunAborted> {
    const path = `/runs/${encodeURIComponent(runId)}/abort`;
    return this.#post(path, { ...this.#document(), sessionId }, options);
  }

  /** Answers an `approval.request`; the id is its `approvalId`. */
  approve(
    runId: string,
    answer: {
      readonly sessionId: string;
      readonly approvalId: string;
      readonly choice: ApprovalChoice;
    },
    options: CallOptions = {},
  ): Promise<ApprovalAnswered> {
    const path = `/runs/${encodeURIComponent(runId)}/approval`;
    return this.#post(path, { ...this.#document(), ...answer }, options);
  }

  listModels(options: CallOptions = {}): Promise<ModelList> {
    return this.#get("/models", options);
  }

  /** Whether the proxy is configured and reaches Hermes. Needs no sign-in. */
  health(options: CallOptions = {}): Promise<ProxyHealth> {
    return this.#get("/health", options);
  }

  listTools(options: CallOptions = {}): Promise<ToolList> {
    return this.#get("/tools", options);
  }

  // ---- inside -------------------------------------------------------------------------------

  #document(): { readonly workspaceId: string; readonly documentId: string } {
    return { workspaceId: this.workspaceId, documentId: this.documentId };
  }

  #get<Answer>(path: string, options: CallOptions): Promise<Answer> {
    const traceId = options.traceId ?? this.#createTraceId();
    return this.#ask(path, { method: "GET", headers: { "X-Trace-Id": traceId } }, traceId, options);
  }

  #post<Answer>(
    path: string,
    body: Readonly<Record<string, unknown>>,
    options: CallOptions,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer> {
    const traceId = options.traceId ?? this.#createTraceId();
    const init = {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Trace-Id": traceId, ...headers },
      body: JSON.stringify({ ...body, traceId }, wellFormedText),
    };
    return this.#ask(path, init, traceId, options);
  }

  async #ask<Answer>(
    path: string,
    init: RequestInit & { readonly headers: Readonly<Record<string, string>> },
    traceId: string,
    options: CallOptions,
  ): Promise<Answer> {
    const { signal } = options;
    signal?.throwIfAborted();
    const call = new AbortController();
    const leave = (): void => {
      call.abort(signal?.reason);
    };
    signal?.addEventListener("abort", leave, { once: true });
    let slow = false;
    const timer = this.#clock.setTimeout(() => {
      slow = true;
      call.abort();
    }, this.#timeout);
    let response: Response;
    let body: unknown;
    try {
      const asked = this.#fetch(this.#base + path, {
        ...init,
        headers: { Accept: "application/json", ...init.headers },
        cache: "no-store",
        credentials: "same-origin",
        signal: call.signal,
      });
      response = await abortable(asked, call.signal);
      if (!response.ok) throw await abortable(errorOfResponse(response, traceId), call.signal);
      body = await abortable(readJson(response), call.signal);
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof PanelError) throw error;
      const message = slow
        ? "The server did not answer in time."
        : "The server could not be reached, or its answer was cut off.";
      throw new PanelError({ code: "network", message, status: 0, traceId, cause: error });
    } finally {
      this.#clock.clearTimeout(timer);
      signal?.removeEventListener("abort", leave);
    }
    if (typeof body !== "object" || body === null || (body as { ok?: unknown }).ok !== true) {
      const message = "The server answered in a form that is not the Hermes proxy's.";
      throw new PanelError({ code: "bad_answer", message, status: response.status, traceId });
    }
    return body as Answer;
  }
}

/** A text that was cut inside a character is no JSON in UTF-8, and the whole request would be refused. */
function wellFormedText(_key: string, value: unknown): unknown {
  return typeof value === "string" ? wellFormed(value) : value;
}

function queryOf(fields: Readonly<Record<string, string>>): string {
  return `?${new URLSearchParams(fields).toString()}`;
}

/** Undefined for what is no JSON; rejects if the body breaks off. */
async function readJson(response: Response): Promise<unknown> {
  const text = await response.text();
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
