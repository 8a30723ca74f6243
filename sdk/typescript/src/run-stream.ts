/**
 * The events of one run, across as many connections as it takes.
 *
 * A lost stream says nothing about the run, which goes on in Hermes: the stream is opened again
 * after the last event that was seen, and the run is over only when the proxy says so.
 */
import { abortable } from "./abortable.ts";
import { fullJitter } from "./backoff.ts";
import { sleep, type Clock } from "./clock.ts";
import { RUN_END_EVENTS, type RunEvent, type SessionDetail } from "./contract.ts";
import { PanelError, errorOfResponse } from "./panel-error.ts";
import { SseDecoder, type SseEvent } from "./sse.ts";

/** What `watchRun` yields. */
export type RunUpdate =
  /** An event of the run. `id` is where to continue after it. */
  | { readonly kind: "event"; readonly event: RunEvent; readonly id: string }
  /** The stream stands: the first time, or again. */
  | { readonly kind: "connected" }
  /** The stream broke; the run goes on. The next attempt starts in `retryIn` milliseconds. */
  | { readonly kind: "lost"; readonly error: PanelError | undefined; readonly retryIn: number }
  /**
   * The server does not know the last event that was seen, as after a restart of it, and tells the run
   * anew: the events that follow begin before that event. Text shown so far is not to be continued
   * with theirs.
   */
  | { readonly kind: "replayed" }
  /**
   * Comes last where no last event can be had. `already_seen`: the run is over and all of it was
   * seen before. `unknown_run`: the proxy knows no such run any more; `session` is what Hermes keeps
   * of the conversation, if it could be read.
   */
  | {
      readonly kind: "gone";
      readonly reason: "already_seen" | "unknown_run";
      readonly session?: SessionDetail;
    };

export interface RunStreamParts {
  /** Opens the stream after this event id (empty: from the start). */
  open(lastEventId: string, traceId: string, signal: AbortSignal): Promise<Response>;
  /** Names an attempt. */
  createTraceId(): string;
  /** What is kept of the conversation, for a run that is not known any more. */
  session(signal: AbortSignal | undefined): Promise<SessionDetail>;
  readonly clock: Clock;
  readonly random: () => number;
  /** Silence after which a stream counts as lost, in milliseconds. */
  readonly silence: number;
  readonly backoffBase: number;
  readonly backoffCap: number;
  /** Time without a stream after which to give up, in milliseconds; undefined: never. */
  readonly giveUpAfter: number | undefined;
}

/** The longest pause a `retry:` field can ask for, in milliseconds. */
const MAX_SERVER_PAUSE = 60_000;

/**
 * @param lastEventId continue after this event
 * @param signal ends watching; the run goes on
 * @throws PanelError for a refusal that asking again would not change; the signal's reason if it aborts
 */
export async function* runStream(
  parts: RunStreamParts,
  lastEventId: string,
  signal: AbortSignal | undefined,
): AsyncGenerator<RunUpdate, void, undefined> {
  let position = lastEventId;
  let failures = 0;
  let lastStream = parts.clock.now();
  let serverPause: number | undefined;

  for (;;) {
    let error: PanelError | undefined;
    // One controller per attempt: it ends this request alone, for silence or with the caller.
    const attempt = new AbortController();
    const traceId = parts.createTraceId();
    const forward = (): void => {
      attempt.abort(signal?.reason);
    };
    signal?.throwIfAborted();
    signal?.addEventListener("abort", forward, { once: true });
    try {
      const watchdog = new Watchdog(parts.clock, parts.silence, attempt, traceId);
      try {
        const response = await abortable(
          parts.open(position, traceId, attempt.signal),
          attempt.signal,
          letGo,
        );
        watchdog.fed();
        if (response.status === 204) {
          yield { kind: "gone", reason: "already_seen" };
          return;
        }
        if (!response.ok) {
          throw await abortable(errorOfResponse(response, traceId), attempt.signal);
        }
        if (!isEventStream(response) || response.body === null) {
          letGo(response);
          throw new PanelError({
            code: "bad_answer",
            message: "The server answered with something else than the run's events.",
            status: response.status,
            traceId,
          });
        }
        yield { kind: "connected" };
        failures = 0;
        const decoder = new SseDecoder(position);
        let resumed = position;
        for await (const events of chunksOf(response.body, decoder, watchdog, attempt.signal)) {
          for (const sse of events) {
            position = sse.lastEventId;
            const event = runEventOf(sse);
            if (event === undefined) continue;
            if (event.event !== "proxy.closing") {
              if (isNotAfter(sse.lastEventId, resumed)) yield { kind: "replayed" };
              resumed = "";
            }
            yield { kind: "event", event, id: sse.lastEventId };
            if (RUN_END_EVENTS.has(event.event)) return;
          }
          lastStream = parts.clock.now();
          serverPause = decoder.retry ?? serverPause;
        }
        serverPause = decoder.retry ?? serverPause;
      } finally {
        watchdog.stop();
        attempt.abort();
      }
    } catch (thrown) {
      signal?.throwIfAborted();
      error = asPanelError(thrown, traceId);
      if (error.code === "hermes_client_not_found") {
        const session = await parts.session(signal).catch(() => undefined);
        yield {
          kind: "gone",
          reason: "unknown_run",
          ...(session === undefined ? {} : { session }),
        };
        return;
      }
      if (!error.transient) throw error;
    } finally {
      signal?.removeEventListener("abort", forward);
    }

    const { giveUpAfter } = parts;
    if (giveUpAfter !== undefined && parts.clock.now() - lastStream >= giveUpAfter) {
      throw new PanelError({
        code: "stream_lost",
        message: "The run's events could not be reached. The run itself may go on.",
        status: error?.status ?? 0,
        traceId: error?.traceId,
        cause: error,
      });
    }
    const bounds = { base: parts.backoffBase, cap: parts.backoffCap };
    const retryIn = Math.max(
      fullJitter(failures, bounds, parts.random),
      Math.min(serverPause ?? 0, MAX_SERVER_PAUSE),
      error?.retryAfter ?? 0,
    );
    failures += 1;
    yield { kind: "lost", error, retryIn };
    await sleep(parts.clock, retryIn, signal);
  }
}

/** Ends an attempt that has been silent for too long. Every byte counts, comments included. */
class Watchdog {
  readonly #clock: Clock;
  readonly #silence: number;
  readonly #attempt: AbortController;
  readonly #traceId: string;
  #timer: unknown;

  constructor(clock: Clock, silence: number, attempt: AbortController, traceId: string) {
    this.#clock = clock;
    this.#silence = silence;
    this.#attempt = attempt;
    this.#traceId = traceId;
    this.fed();
  }

  fed(): void {
    this.stop();
    this.#timer = this.#clock.setTimeout(() => {
      this.#attempt.abort(
        new PanelError({
          code: "network",
          message: "The stream has fallen silent.",
          status: 0,
          traceId: this.#traceId,
        }),
      );
    }, this.#silence);
  }

  stop(): void {
    if (this.#timer !== undefined) this.#clock.clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

async function* chunksOf(
  body: ReadableStream<Uint8Array>,
  decoder: SseDecoder,
  watchdog: Watchdog,
  signal: AbortSignal,
): AsyncGenerator<SseEvent[], void, undefined> {
  // A reader and not `for await`, which Safari's streams do not have.
  const reader = body.getReader();
  try {
    for (;;) {
      watchdog.fed();
      const { done, value } = await abortable(reader.read(), signal);
      // While the consumer is busy with an event, silence is ours and not the stream's.
      watchdog.stop();
      if (done) return;
      yield decoder.push(value);
    }
  } finally {
    // Not waited for: a stream that does not end would hold up the next attempt.
    void reader.cancel().catch(() => undefined);
  }
}

/** Nobody reads this answer. */
function letGo(response: Response): void {
  void response.body?.cancel().catch(() => undefined);
}

function isEventStream(response: Response): boolean {
  return /^text\/event-stream\b/i.test(response.headers.get("content-type") ?? "");
}

/** Undefined for heartbeats and for what is no event of the contract. */
function runEventOf(sse: SseEvent): RunEvent | undefined {
  if (sse.event === "heartbeat") return undefined;
  try {
    const value: unknown = JSON.parse(sse.data);
    const named = typeof value === "object" && value !== null && "event" in value;
    return named && typeof value.event === "string" ? (value as RunEvent) : undefined;
  } catch {
    return undefined;
  }
}

/** Whether an event id is not one that follows `seen`. Ids without a number tell nothing. */
function isNotAfter(id: string, seen: string): boolean {
  const [number, last] = [id, seen].map((one) => /^\d+/.exec(one)?.[0]);
  return number !== undefined && last !== undefined && Number(number) <= Number(last);
}

function asPanelError(thrown: unknown, traceId: string): PanelError {
  if (thrown instanceof PanelError) return thrown;
  return new PanelError({
    code: "network",
    message: "The connection to the server was lost.",
    status: 0,
    traceId,
    cause: thrown,
  });
}
