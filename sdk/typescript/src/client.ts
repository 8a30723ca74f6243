/** `HermesClient`: an app's side of the device door. */
import { doorAddress } from "./address.ts";
import { MediaAssembly, MessageAssembly, isWebAddress } from "./assembly.ts";
import type { FileData } from "./attachment.ts";
import { Cards, type CardAnswer } from "./cards.ts";
import { systemClock, type Clock } from "./clock.ts";
import { Connection, type ConnectionEnd } from "./connection.ts";
import { Delivery } from "./delivery.ts";
import { Emitter } from "./emitter.ts";
import { HermesError } from "./errors.ts";
import type {
  AgentMessage,
  Card,
  CardOutcome,
  ConnectionState,
  HermesEvents,
  Outgoing,
  OutgoingItem,
  ReadyInfo,
  StopReason,
} from "./events.ts";
import { countCharacters, hasForbiddenDeviceCharacter } from "./frames.ts";
import { randomId } from "./id.ts";
import type { HermesClientOptions, Timing, WebSocketConstructor } from "./options.ts";
import { Outbox } from "./outbox.ts";
import { pagePresence } from "./presence.ts";
import {
  MAX_DEVICE_CHARS,
  MEDIA_CHUNK_BYTES,
  MIN_MEDIA_CHUNK_BYTES,
  type AvatarState,
  type ErrorFrame,
  type HelloFrame,
  type ReadyFrame,
  type ServerFrame,
} from "./protocol.ts";
import { Sending, type FileOptions, type SendOptions, type VoiceOptions } from "./sending.ts";
import { memoryStorage } from "./storage.ts";

const DEFAULT_TIMING: Timing = {
  connectTimeout: 20_000,
  pingAfter: 20_000,
  pongTimeout: 15_000,
  probeTimeout: 4_000,
  backoffBase: 1_000,
  backoffCap: 30_000,
};
const DEFAULT_SUPPORTS: readonly string[] = ["accepted", "partial_edits"];
/** The user's typing is told at most this often, in milliseconds. */
const TYPING_PAUSE = 3_000;

/**
 * A conversation with one agent. Create it, listen, `connect()`.
 *
 * ```ts
 * const client = new HermesClient({ url, token, device: { id: "phone-1" } });
 * client.on("message", (message) => show(message.id, message.text));
 * client.connect();
 * client.sendText("Hello!");
 * ```
 *
 * Everything sent goes through an outbox: it may be called before the connection stands, and is
 * repeated under the same id until the agent has taken it.
 */
export class HermesClient {
  readonly #clock: Clock;
  readonly #emitter: Emitter<HermesEvents>;
  readonly #outbox: Outbox;
  readonly #delivery: Delivery;
  readonly #connection: Connection;
  readonly #cards: Cards;
  readonly #messages = new MessageAssembly();
  readonly #media: MediaAssembly;
  readonly #supports: readonly string[];
  readonly #sending: Sending;
  #ready: ReadyInfo | undefined;
  #typingTold = Number.NEGATIVE_INFINITY;
  #agentTyping = false;
  #avatar: AvatarState = "idle";

  /** @throws HermesError `bad_url`, `bad_argument` or `no_websocket` */
  constructor(options: HermesClientOptions) {
    checkDevice(options.device.id);
    const partBytes = options.uploadPartBytes ?? MEDIA_CHUNK_BYTES;
    if (!(partBytes >= MIN_MEDIA_CHUNK_BYTES && partBytes <= MEDIA_CHUNK_BYTES)) {
      throw new HermesError("bad_argument", "`uploadPartBytes` must be from 4096 to 3145728.");
    }
    this.#clock = options.clock ?? systemClock;
    this.#supports = options.supports ?? DEFAULT_SUPPORTS;
    this.#emitter = new Emitter((event, error) => {
      // The event `warning` itself may be what fails; telling it again would go round in circles.
      if (event === "warning") return;
      const message = `A listener of \`${event}\` threw an error.`;
      this.#emitter.emit("warning", { code: "listener_failed", message, error });
    });
    this.#media = new MediaAssembly({
      ...(options.maxMediaBytes === undefined ? {} : { maxBytes: options.maxMediaBytes }),
      ...(options.media === undefined ? {} : { as: options.media }),
    });
    const limit = {
      items: options.outboxLimit?.items ?? 500,
      bytes: options.outboxLimit?.bytes ?? 64 * 1024 * 1024,
    };
    this.#outbox = new Outbox(options.storage ?? memoryStorage(), this.#clock, limit, {
      loaded: () => {
        this.#delivery.pump();
      },
      changed: (item) => {
        this.#sending.changed(item);
        this.#emitter.emit("outbox", item);
      },
      warning: (warning) => {
        this.#emitter.emit("warning", warning);
      },
    });
    this.#delivery = new Delivery({
      clock: this.#clock,
      outbox: this.#outbox,
      partBytes: Math.floor(partBytes),
      send: (frame) => this.#connection.send(frame),
      renew: () => {
        this.#connection.renew();
      },
      buffered: () => this.#connection.buffered,
      progress: (progress) => {
        this.#sending.progressed(progress);
        this.#emitter.emit("uploadProgress", progress);
      },
    });
    this.#sending = new Sending({
      outbox: this.#outbox,
      delivery: this.#delivery,
      createId: options.createId ?? randomId,
      capabilities: () => this.#ready?.capabilities,
      progressFailed: (error) => {
        const message = "A progress callback threw an error.";
        this.#emitter.emit("warning", { code: "listener_failed", message, error });
      },
    });
    this.#cards = new Cards(this.#clock, (frame) => this.#connection.send(frame));
    this.#connection = new Connection({
      url: doorAddress(options.url),
      webSocket: options.webSocket ?? globalWebSocket(),
      clock: this.#clock,
      timing: { ...DEFAULT_TIMING, ...options.timing },
      presence: options.presence === undefined ? pagePresence() : options.presence,
      random: options.random ?? Math.random,
      hello: () => this.#hello(options),
      uploading: () => this.#delivery.uploading,
      stateChanged: (state) => {
        this.#emitter.emit("state", state);
      },
      ready: (frame) => {
        this.#nowReady(frame);
      },
      frame: (frame) => {
        this.#received(frame);
      },
      unknown: (frame) => {
        this.#emitter.emit("unknown", frame);
      },
      lost: (end) => {
        this.#lost(end);
      },
      stopped: (reason) => {
        this.#stopped(reason);
      },
      warning: (warning) => {
        this.#emitter.emit("warning", warning);
      },
    });
  }

  // ---- connection ---------------------------------------------------------------------------

  /** Where the connection stands. Changes are told by the event `state`. */
  get state(): ConnectionState {
    return this.#connection.state;
  }

  /** What the door said in its last `ready`; undefined while there is no connection. */
  get ready(): ReadyInfo | undefined {
    return this.#ready;
  }

  /** The agent is at work. */
  get agentTyping(): boolean {
    return this.#agentTyping;
  }

  get avatar(): AvatarState {
    return this.#avatar;
  }

  /** Connects and stays connected until `close()` or a terminal refusal. Harmless while connected. */
  connect(): void {
    void this.#outbox.load();
    this.#connection.start();
  }

  /** Ends the connection. What the agent has not taken stays in the outbox for the next `connect()`. */
  close(): void {
    this.#connection.stop({ code: "closed", message: "The app closed the connection." });
  }

  /** Call it when the device moved to another network (Wi-Fi to mobile, say): the line is tested at once. */
  networkChanged(): void {
    this.#connection.networkChanged();
  }

  /**
   * Resolves at the next (or the present) `ready`. Rejects with the reason's code if the client stops
   * first, or has stopped already; a client that was never connected is waited for.
   */
  whenReady(): Promise<ReadyInfo> {
    if (this.#ready !== undefined) return Promise.resolve(this.#ready);
    return new Promise((resolve, reject) => {
      const leave = (): void => {
        for (const stop of off) stop();
      };
      const look = (state: ConnectionState): void => {
        if (state.phase !== "stopped") return;
        leave();
        reject(
          new HermesError(state.reason?.code ?? "stopped", state.reason?.message ?? "Stopped."),
        );
      };
      const off = [
        this.on("ready", (ready) => {
          leave();
          resolve(ready);
        }),
        this.on("state", look),
      ];
      // Not at once: `connect()` may be the very next call.
      void Promise.resolve().then(() => {
        if (this.state.phase === "stopped" && this.state.reason !== undefined) look(this.state);
      });
    });
  }

  /** Listens; returns how to stop. */
  on<Name extends keyof HermesEvents>(
    event: Name,
    listener: (value: HermesEvents[Name]) => void,
  ): () => void {
    return this.#emitter.on(event, listener);
  }

  // ---- sending ------------------------------------------------------------------------------

  /**
   * Sends a text.
   *
   * @throws HermesError `bad_argument` for an empty text, `too_big` over 12 000 characters, `outbox_full`
   */
  sendText(text: string, options: SendOptions = {}): Outgoing {
    return this.#sending.text(text, options);
  }

  /**
   * Sends a recording, WAV or OGG. Its bytes decide, not its name.
   *
   * @throws HermesError `too_big` over 8 MiB, `bad_argument`. Anything found while reading the data
   *   (`unreadable`, `unsupported_format`, `outbox_full`) rejects the promises of the handle.
   */
  sendVoice(data: FileData, options: VoiceOptions = {}): Outgoing {
    return this.#sending.voice(data, options);
  }

  /**
   * Sends a file of up to 8 MiB, in parts where it is larger than one.
   *
   * @throws HermesError `too_big`, `bad_argument`. `unreadable` and `outbox_full` reject the promises
   *   of the handle.
   */
  sendFile(data: FileData, options: FileOptions = {}): Outgoing {
    return this.#sending.file(data, options);
  }

  /** What the agent has not taken yet, failed items included, in order of sending. */
  pending(): OutgoingItem[] {
    return this.#outbox.items();
  }

  /** Sends a failed item again under its id. Undefined if there is no failed item of this id. */
  retry(id: string): Outgoing | undefined {
    return this.#sending.retry(id);
  }

  /** Takes an item out of the outbox. What was written to the agent already may still be taken by it. */
  discard(id: string): void {
    this.#sending.discard(id, new HermesError("discarded", "The app took this item back."));
  }

  /**
   * Answers a card; resolves with what was applied, which may differ from what was chosen.
   *
   * @throws HermesError `bad_argument` without an option and a text, `too_big`
   */
  answer(cardId: string, answer: CardAnswer | string): Promise<CardOutcome> {
    const given = typeof answer === "string" ? { optionId: answer } : answer;
    if ((given.optionId ?? "").trim() === "" && (given.text ?? "").trim() === "") {
      throw new HermesError("bad_argument", "An answer needs an option or a text.");
    }
    const text = this.#sending.optionalText(given.text, "The answer");
    return this.#cards.answer(cardId, {
      ...(given.optionId === undefined ? {} : { optionId: given.optionId }),
      ...(text === undefined ? {} : { text }),
    });
  }

  /** Cards that wait for an answer. */
  cards(): Card[] {
    return this.#cards.list();
  }

  /** Tells that the user is typing. Call it on every key; it is sent every 3 s at most, and only while connected. */
  typing(): void {
    const now = this.#clock.now();
    if (now - this.#typingTold < TYPING_PAUSE) return;
    if (this.#connection.send({ t: "typing" })) this.#typingTold = now;
  }

  /** Tells that a message was shown or played. Only while connected. */
  ack(messageId: string): void {
    this.#connection.send({ t: "ack", id: messageId });
  }

  // ---- inside -------------------------------------------------------------------------------

  async #hello(options: HermesClientOptions): Promise<HelloFrame> {
    // Nothing is sent before the items of an earlier life are in line, or the order would be wrong.
    await this.#outbox.load();
    const token = typeof options.token === "function" ? await options.token() : options.token;
    return {
      t: "hello",
      token,
      device: options.device,
      ...(options.user === undefined ? {} : { user: options.user }),
      ...(this.#supports.length === 0 ? {} : { supports: this.#supports }),
    };
  }

  #nowReady(frame: ReadyFrame): void {
    // Only what was asked for is in use, whatever a door may claim.
    const offered = frame.capabilities.extensions;
    const extensions = new Set(
      Array.isArray(offered) ? this.#supports.filter((name) => offered.includes(name)) : [],
    );
    this.#ready = {
      session: frame.session,
      device: frame.device,
      avatarUrl: isWebAddress(frame.avatar_url) ? frame.avatar_url : "",
      capabilities: frame.capabilities,
      extensions,
    };
    this.#messages.connected(extensions.has("partial_edits"));
    this.#emitter.emit("ready", this.#ready);
    this.#cards.connected();
    this.#delivery.connected(extensions.has("accepted"));
  }

  #received(frame: ServerFrame): void {
    switch (frame.t) {
      case "ready":
        return;
      case "message": {
        const result = this.#messages.add(frame);
        if (typeof result === "string") {
          this.#emitter.emit("warning", {
            code: "bad_server_frame",
            message: `The door sent ${result}.`,
          });
        } else if (result !== undefined) {
          this.#emitter.emit("message", result satisfies AgentMessage);
        }
        return;
      }
      case "media":
        for (const step of this.#media.add(frame)) {
          if (step.kind === "media") this.#emitter.emit("media", step.media);
          else if (step.kind === "progress") this.#emitter.emit("mediaProgress", step.progress);
          else this.#emitter.emit("mediaFailed", step.failure);
        }
        return;
      case "prompt":
        this.#emitter.emit("prompt", this.#cards.shown(frame));
        return;
      case "prompt_done":
        this.#emitter.emit("promptDone", this.#cards.done(frame));
        return;
      case "avatar":
        this.#setAvatar(avatarState(frame.state));
        return;
      case "typing":
        this.#setTyping(frame.stop !== true);
        return;
      case "pong":
        this.#delivery.ponged(frame.ts);
        return;
      case "accepted":
        this.#delivery.accepted(frame.id);
        return;
      case "error":
        this.#refused(frame);
    }
  }

  #refused(frame: ErrorFrame): void {
    if (this.#delivery.refused(frame) || this.#cards.refused(frame)) return;
    this.#emitter.emit("error", {
      code: frame.code,
      message: frame.message,
      fatal: frame.fatal,
      ...(frame.id === undefined ? {} : { id: frame.id }),
    });
  }

  #lost(end: ConnectionEnd): void {
    this.#delivery.disconnected(end);
    this.#unready();
  }

  #stopped(reason: StopReason): void {
    this.#delivery.disconnected();
    this.#unready();
    const error = new HermesError("stopped", reason.message);
    this.#outbox.stopped(error);
    this.#cards.stopped(error);
  }

  /** What the agent is doing is unknown without a connection, and nothing would ever reset it. */
  #unready(): void {
    this.#ready = undefined;
    this.#typingTold = Number.NEGATIVE_INFINITY;
    this.#setTyping(false);
    this.#setAvatar("idle");
  }

  #setTyping(active: boolean): void {
    if (this.#agentTyping === active) return;
    this.#agentTyping = active;
    this.#emitter.emit("typing", active);
  }

  #setAvatar(state: AvatarState): void {
    if (this.#avatar === state) return;
    this.#avatar = state;
    this.#emitter.emit("avatar", state);
  }
}

function avatarState(state: string): AvatarState {
  return state === "thinking" || state === "speaking" ? state : "idle";
}

function checkDevice(id: string): void {
  if (id === "" || countCharacters(id) > MAX_DEVICE_CHARS || hasForbiddenDeviceCharacter(id)) {
    throw new HermesError(
      "bad_argument",
      "`device.id` has 1 to 120 characters, without control characters, `:` and `/`.",
    );
  }
}

function globalWebSocket(): WebSocketConstructor {
  const found = (globalThis as { WebSocket?: WebSocketConstructor }).WebSocket;
  if (found === undefined) {
    throw new HermesError(
      "no_websocket",
      "This platform has no WebSocket. On Node 20 pass the class of the package `ws` as `webSocket`.",
    );
  }
  return found;
}
