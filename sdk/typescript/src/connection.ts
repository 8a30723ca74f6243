/**
 * One living connection to the door, again and again: open, `hello`, `ready`, watch, reconnect.
 * Knows sockets and timers and what ends a connection for good; knows nothing of messages.
 */
import { fullJitter } from "./backoff.ts";
import type { Clock } from "./clock.ts";
import type { ConnectionState, StopReason, Warning } from "./events.ts";
import { parseServerFrame } from "./frames.ts";
import type { Timing, WebSocketConstructor, WebSocketLike } from "./options.ts";
import type { Presence } from "./presence.ts";
import {
  CloseCode,
  PROTOCOL_VERSION,
  type ClientFrame,
  type ErrorFrame,
  type HelloFrame,
  type ReadyFrame,
  type ServerFrame,
  type UnknownFrame,
} from "./protocol.ts";

export interface ConnectionParts {
  readonly url: string;
  readonly webSocket: WebSocketConstructor;
  readonly clock: Clock;
  readonly timing: Timing;
  readonly presence: Presence | null;
  readonly random: () => number;
  /** Runs before each attempt; what it throws postpones the attempt. */
  hello(): Promise<HelloFrame>;
  /** A large frame may still be on its way, though the socket does not tell. */
  uploading(): boolean;
  stateChanged(state: ConnectionState): void;
  ready(frame: ReadyFrame): void;
  frame(frame: ServerFrame): void;
  unknown(frame: UnknownFrame): void;
  /** The connection that was `ready` is gone. */
  lost(end: ConnectionEnd): void;
  stopped(reason: StopReason): void;
  warning(warning: Warning): void;
}

/** How a connection ended: the close code, or 1006 where there was none. */
export interface ConnectionEnd {
  readonly code: number;
  readonly reason: string;
}

/** `ready` for this long, and the next failure counts as the first one again. Milliseconds. */
const STABLE_AFTER = 10_000;
/** Refusals of `hello` in a row that are no matter of access. Then asking again is pointless. */
const MAX_HELLO_REFUSALS = 3;
/** Silence that is borne while a large frame leaves through a socket that does not tell its progress. */
const BLIND_UPLOAD_TIMEOUT = 120_000;
const OPEN = 1;
const DROPPED: ConnectionEnd = { code: 1006, reason: "" };

interface Attempt {
  readonly socket: WebSocketLike;
  ready: boolean;
  readySince: number;
  /** When a message was received last, and how many there were. */
  lastLife: number;
  heard: number;
  /** The error frame that announced the end, if there was one. */
  fatal?: ErrorFrame;
}

export class Connection {
  readonly #parts: ConnectionParts;
  #state: ConnectionState = { phase: "stopped" };
  #wanted = false;
  #attempt: Attempt | undefined;
  #failures = 0;
  #helloRefusals = 0;
  /** Counts attempts, so that a token fetched for an abandoned one is not used. */
  #round = 0;
  #timer: unknown;
  #watchdog: unknown;
  #unsubscribe: (() => void) | undefined;

  constructor(parts: ConnectionParts) {
    this.#parts = parts;
  }

  get state(): ConnectionState {
    return this.#state;
  }

  /** Bytes the socket has taken and not yet written; 0 where it does not tell. */
  get buffered(): number {
    return this.#attempt?.socket.bufferedAmount ?? 0;
  }

  start(): void {
    if (this.#wanted) return;
    this.#wanted = true;
    this.#failures = 0;
    this.#helloRefusals = 0;
    this.#unsubscribe = this.#parts.presence?.subscribe(() => {
      this.#presenceChanged();
    });
    this.#openOrPause();
  }

  stop(reason: StopReason): void {
    if (!this.#wanted) return;
    this.#wanted = false;
    this.#unsubscribe?.();
    this.#unsubscribe = undefined;
    this.#abandon(1000, "");
    this.#clearTimer();
    this.#setState({ phase: "stopped", reason });
    this.#parts.stopped(reason);
  }

  /** @returns false if there is no `ready` connection to write to */
  send(frame: ClientFrame): boolean {
    const attempt = this.#attempt;
    if (attempt?.ready !== true) return false;
    return this.#write(attempt, frame);
  }

  /** The device moved to another network: the old socket may be dead without knowing it. */
  networkChanged(): void {
    if (!this.#wanted) return;
    this.#failures = 0;
    if (this.#attempt?.ready === true) {
      this.#probe(this.#attempt, this.#parts.timing.probeTimeout);
    } else {
      this.#abandon(1000, "");
      this.#openOrPause();
    }
  }

  /** Ends this connection, for what only its end frees at the door, and opens another at once. */
  renew(): void {
    if (this.#attempt?.ready !== true) return;
    this.#abandon(1000, "");
    this.#parts.lost(DROPPED);
    if (this.#wanted) this.#openOrPause();
  }

  #presenceChanged(): void {
    const cause = this.#parts.presence?.paused();
    const { phase } = this.#state;
    if (cause !== undefined) {
      if (phase === "waiting" || phase === "paused") this.#pause(cause);
      else if (cause === "offline") this.#networkGone(cause);
    } else if (phase === "waiting" || phase === "paused") {
      this.#failures = 0;
      this.#openOrPause();
    } else if (this.#attempt?.ready === true) {
      this.#probe(this.#attempt, this.#parts.timing.probeTimeout);
    }
  }

  /** A line that stands all the same (to this very machine, say) answers; any other is given up soon. */
  #networkGone(cause: "offline"): void {
    if (this.#attempt?.ready === true) {
      this.#probe(this.#attempt, this.#parts.timing.probeTimeout);
    } else if (this.#wanted) {
      this.#abandon(1000, "");
      this.#pause(cause);
    }
  }

  #pause(cause: "hidden" | "offline"): void {
    this.#clearTimer();
    this.#setState({ phase: "paused", cause });
  }

  #openOrPause(): void {
    this.#clearTimer();
    const cause = this.#parts.presence?.paused();
    if (cause !== undefined) this.#pause(cause);
    else void this.#open();
  }

  async #open(): Promise<void> {
    const round = ++this.#round;
    this.#setState({ phase: "connecting", attempt: this.#failures + 1 });
    this.#timer = this.#parts.clock.setTimeout(() => {
      this.#retryLater();
    }, this.#parts.timing.connectTimeout);

    let hello: HelloFrame;
    try {
      hello = await this.#parts.hello();
    } catch (error) {
      if (round !== this.#round) return;
      const message = error instanceof Error ? error.message : String(error);
      this.#parts.warning({
        code: "token_failed",
        message: `The token could not be had: ${message}`,
        error,
      });
      this.#retryLater();
      return;
    }
    if (round !== this.#round || !this.#wanted) return;
    if (hello.token === "") {
      this.stop({
        code: "no_token",
        message: "There is no token. Ask the owner of the agent for one.",
      });
      return;
    }

    let socket: WebSocketLike;
    try {
      socket = new this.#parts.webSocket(this.#parts.url);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      const message = `This platform does not connect to the agent's address: ${why}`;
      this.stop({ code: "bad_url", message });
      return;
    }
    const attempt: Attempt = {
      socket,
      ready: false,
      readySince: 0,
      lastLife: this.#parts.clock.now(),
      heard: 0,
    };
    this.#attempt = attempt;
    try {
      socket.binaryType = "arraybuffer";
    } catch {
      // A platform that fixes it is welcome to.
    }
    socket.onopen = () => {
      if (this.#attempt === attempt) this.#write(attempt, hello);
    };
    socket.onmessage = (event: { data: unknown }) => {
      if (this.#attempt === attempt) this.#received(attempt, event.data);
    };
    socket.onerror = () => {
      // Every error is followed by `close`, which says all there is to know.
    };
    socket.onclose = (event: { code?: number; reason?: unknown }) => {
      if (this.#attempt !== attempt) return;
      const reason = typeof event.reason === "string" ? event.reason : "";
      this.#ended(attempt, { code: event.code ?? 1006, reason });
    };
  }

  #write(attempt: Attempt, frame: ClientFrame): boolean {
    if (attempt.socket.readyState !== OPEN) return false;
    try {
      attempt.socket.send(JSON.stringify(frame));
      return true;
    } catch {
      return false; // closing: `close` follows
    }
  }

  #received(attempt: Attempt, data: unknown): void {
    attempt.lastLife = this.#parts.clock.now();
    attempt.heard += 1;
    const text = typeof data === "string" ? data : decoded(data);
    if (text === undefined) {
      this.#parts.warning({
        code: "binary_frame",
        message: "The door sent a binary message that is no text.",
      });
      return;
    }
    const parsed = parseServerFrame(text);
    switch (parsed.kind) {
      case "bad":
        this.#parts.warning({
          code: "bad_server_frame",
          message: `The door sent ${parsed.problem}.`,
        });
        return;
      case "unknown":
        this.#parts.unknown(parsed.frame);
        return;
      case "frame":
        this.#understood(attempt, parsed.frame);
    }
  }

  #understood(attempt: Attempt, frame: ServerFrame): void {
    if (frame.t === "ready") {
      if (!attempt.ready) this.#nowReady(attempt, frame);
      return;
    }
    this.#parts.frame(frame);
    // A listener may have stopped the client meanwhile.
    if (frame.t !== "error" || this.#attempt !== attempt) return;
    if (frame.fatal || !attempt.ready) {
      attempt.fatal = frame;
      const reason = accessRefused(frame.code, frame.message);
      if (reason !== undefined) this.stop(reason);
    }
  }

  #nowReady(attempt: Attempt, frame: ReadyFrame): void {
    if (frame.v !== PROTOCOL_VERSION) {
      const message =
        `The agent speaks version ${frame.v} of the protocol, this app version ${PROTOCOL_VERSION}. ` +
        "Update the app.";
      this.stop({ code: "unsupported_version", message });
      return;
    }
    this.#clearTimer();
    attempt.ready = true;
    attempt.readySince = this.#parts.clock.now();
    this.#helloRefusals = 0;
    this.#watch(attempt, this.#parts.timing.pingAfter);
    this.#setState({ phase: "ready", session: frame.session });
    if (this.#attempt === attempt) this.#parts.ready(frame);
  }

  // ---- the end of an attempt ----------------------------------------------------------------

  #ended(attempt: Attempt, end: ConnectionEnd): void {
    const wasReady = attempt.ready;
    const { fatal } = attempt;
    this.#abandon(1000, "");
    const reason = this.#terminal(end, fatal, wasReady);
    if (reason !== undefined) {
      if (wasReady) this.#parts.lost(end);
      this.stop(reason);
      return;
    }
    if (wasReady && this.#parts.clock.now() - attempt.readySince >= STABLE_AFTER)
      this.#failures = 0;
    if (wasReady) this.#parts.lost(end);
    this.#retryLater();
  }

  #terminal(
    end: ConnectionEnd,
    fatal: ErrorFrame | undefined,
    wasReady: boolean,
  ): StopReason | undefined {
    if (end.code === CloseCode.replaced) {
      const message =
        "This device connected to the agent from another place (another tab or a second copy of the app). " +
        "Connect again to use it here.";
      return { code: "replaced", message };
    }
    if (end.code !== CloseCode.policyViolation && fatal === undefined) return undefined;
    const code = fatal?.code ?? end.reason;
    const refused = accessRefused(code, fatal?.message ?? "");
    if (refused !== undefined || wasReady) return refused;
    this.#helloRefusals += 1;
    if (this.#helloRefusals < MAX_HELLO_REFUSALS) return undefined;
    const detail = fatal?.message ?? code;
    return {
      code: "hello_refused",
      message: `The agent does not understand this app's greeting: ${detail}`,
    };
  }

  /** A failed attempt or a lost connection: the next attempt at a random time, if at all. */
  #retryLater(): void {
    const lost = this.#attempt?.ready === true;
    this.#abandon(1000, "");
    if (!this.#wanted) return;
    if (lost) this.#parts.lost(DROPPED);
    this.#round += 1;
    const { clock, timing, random, presence } = this.#parts;
    const bounds = { base: timing.backoffBase, cap: timing.backoffCap };
    const delay = fullJitter(this.#failures, bounds, random);
    this.#failures += 1;
    this.#clearTimer();
    const cause = presence?.paused();
    if (cause !== undefined) {
      this.#pause(cause);
      return;
    }
    this.#setState({ phase: "waiting", attempt: this.#failures + 1, retryAt: clock.now() + delay });
    this.#timer = clock.setTimeout(() => {
      this.#openOrPause();
    }, delay);
  }

  /** Lets go of the socket without waiting for its close handshake, which a dead line never answers. */
  #abandon(code: number, reason: string): void {
    const attempt = this.#attempt;
    this.#attempt = undefined;
    this.#round += 1;
    this.#clearWatchdog();
    if (attempt === undefined) return;
    const { socket } = attempt;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.onerror = () => undefined; // `ws` throws an error nobody listens to
    try {
      socket.close(code, reason);
    } catch {
      // It is gone already.
    }
  }

  // ---- the watchdog -------------------------------------------------------------------------

  /** After a silence of `pingAfter` asks for a sign of life. */
  #watch(attempt: Attempt, delay: number): void {
    this.#clearWatchdog();
    this.#watchdog = this.#parts.clock.setTimeout(() => {
      const { pingAfter, pongTimeout } = this.#parts.timing;
      const silent = this.#parts.clock.now() - attempt.lastLife;
      if (silent < pingAfter) this.#watch(attempt, pingAfter - silent);
      else this.#probe(attempt, pongTimeout);
    }, delay);
  }

  /** Sends a `ping`; if nothing at all is received and nothing leaves in time, the line is dead. */
  #probe(attempt: Attempt, timeout: number): void {
    const { clock, timing } = this.#parts;
    const asked = clock.now();
    const heard = attempt.heard;
    // What waited before the question: that the question itself leaves the socket is no sign of life.
    let left = attempt.socket.bufferedAmount;
    if (!this.#write(attempt, { t: "ping", ts: asked })) {
      this.#retryLater();
      return;
    }
    let quietSince = asked;
    const check = (): void => {
      if (attempt.heard > heard) {
        this.#watch(attempt, timing.pingAfter);
        return;
      }
      const now = attempt.socket.bufferedAmount;
      if (now !== undefined && left !== undefined && now < left) quietSince = clock.now();
      left = now;
      const blind = now === undefined && this.#parts.uploading();
      const patience = blind ? Math.max(timeout, BLIND_UPLOAD_TIMEOUT) : timeout;
      const rest = quietSince + patience - clock.now();
      if (rest <= 0) {
        this.#connectionSilent(attempt);
        return;
      }
      this.#watchdog = clock.setTimeout(check, Math.min(rest, timeout));
    };
    this.#clearWatchdog();
    this.#watchdog = clock.setTimeout(check, timeout);
  }

  #connectionSilent(attempt: Attempt): void {
    if (this.#parts.clock.now() - attempt.readySince >= STABLE_AFTER) this.#failures = 0;
    this.#retryLater();
  }

  #setState(state: ConnectionState): void {
    this.#state = state;
    this.#parts.stateChanged(state);
  }

  #clearTimer(): void {
    if (this.#timer !== undefined) this.#parts.clock.clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #clearWatchdog(): void {
    if (this.#watchdog !== undefined) this.#parts.clock.clearTimeout(this.#watchdog);
    this.#watchdog = undefined;
  }
}

/** The refusals that asking again would not change. */
function accessRefused(code: string, detail: string): StopReason | undefined {
  const because = detail === "" ? "" : ` (${detail})`;
  switch (code) {
    case "auth_failed":
      return { code, message: `The agent does not accept this token or this device${because}.` };
    case "forbidden":
      return {
        code,
        message: `This device id belongs to another token${because}. Use the token it came with, or another device id.`,
      };
    default:
      return undefined;
  }
}

function decoded(data: unknown): string | undefined {
  if (!(data instanceof ArrayBuffer) && !ArrayBuffer.isView(data)) return undefined;
  if (typeof TextDecoder === "undefined") return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(data);
  } catch {
    return undefined;
  }
}
