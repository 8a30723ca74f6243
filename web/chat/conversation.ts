/**
 * One conversation: the client of the device door on one side, what is shown and kept on the other.
 * Everything the views know comes from here; nothing here knows the views.
 */
import {
  HermesClient,
  HermesError,
  indexedDbStorage,
  type AvatarState,
  type CardOutcome,
  type ConnectionState,
  type FileData,
  type HermesClientOptions,
  type Outgoing,
  type OutgoingItem,
  type ReadyInfo,
} from "@hermes-mobile/client";
import type { Agent } from "./agents.ts";
import { EntryList, isDraft, keyOf, type Asked, type Entry, type Mine } from "./entries.ts";
import { History, outboxName } from "./history.ts";
import { Windows, type ChannelLike } from "./windows.ts";

/** The connection as it is shown; `elsewhere`: another window of this browser leads. */
export type Line = ConnectionState | { readonly phase: "elsewhere" };

export interface Progress {
  readonly done: number;
  readonly size: number;
}

/** What lives only as long as the page. */
export interface Live {
  readonly line: Line;
  readonly typing: boolean;
  readonly avatar: AvatarState;
  readonly avatarUrl: string;
  readonly limits: {
    readonly media: number;
    readonly text: number;
    readonly kinds?: readonly string[];
  };
  /** Texts of the agent that grow right now. */
  readonly growing: ReadonlySet<string>;
}

/** A file of the agent on its way. */
export interface Arriving extends Progress {
  readonly id: string;
  readonly filename: string;
}

/** A short trouble to tell: a failure code, or the door's own words. */
export interface Trouble {
  readonly code: string;
  readonly message: string;
}

export interface ConversationParts {
  readonly agent: Agent;
  readonly userName: string;
  readonly changed: () => void;
  readonly trouble: (trouble: Trouble) => void;
  readonly said: (entry: Entry) => void;
  readonly channel?: ChannelLike;
  readonly client?: Partial<HermesClientOptions>;
}

type Told =
  | { readonly entries: readonly Entry[] }
  | { readonly live: Live }
  | { readonly removed: string }
  | { readonly cleared: true };

const APP_VERSION = "1.0.0";
/** A growing text is written to the disk this much later: the door shows it again anyway. */
const DRAFT_SAVE_DELAY = 600;
const DEFAULT_MEDIA = 8 * 1024 * 1024;
const DEFAULT_TEXT = 12_000;

export class Conversation {
  readonly agent: Agent;
  readonly #parts: ConversationParts;
  readonly #entries = new EntryList();
  readonly #history: History;
  readonly #windows: Windows<Told>;
  readonly #progress = new Map<string, Progress>();
  readonly #arriving = new Map<string, Arriving>();
  readonly #growing = new Set<string>();
  readonly #unsaved = new Set<string>();
  readonly #unwanted = new Set<string>();
  #client: HermesClient | undefined;
  #reconciled = false;
  #loaded = false;
  #storageFailed = false;
  #saveTimer: ReturnType<typeof setTimeout> | undefined;
  #live: Live = {
    line: { phase: "stopped" },
    typing: false,
    avatar: "idle",
    avatarUrl: "",
    limits: { media: DEFAULT_MEDIA, text: DEFAULT_TEXT },
    growing: new Set(),
  };

  constructor(parts: ConversationParts) {
    this.agent = parts.agent;
    this.#parts = parts;
    this.#history = new History(parts.agent.id, () => {
      if (this.#storageFailed) return;
      this.#storageFailed = true;
      parts.trouble({ code: "storage_closed", message: "" });
    });
    this.#windows = new Windows<Told>({
      channel: parts.channel ?? new BroadcastChannel(`hermes-chat:${parts.agent.id}`),
      id: crypto.getRandomValues(new Uint32Array(2)).join("-"),
      lead: () => {
        this.#lead();
      },
      follow: () => {
        this.#follow();
      },
      receive: (told) => {
        this.#mirror(told);
      },
      welcome: () => {
        this.#windows.tell({ entries: this.#entries.all().slice(-20) });
        this.#windows.tell({ live: this.#live });
      },
      healthy: () => this.#live.line.phase === "ready",
      visible: () => document.visibilityState === "visible",
    });
  }

  // ---- what is shown --------------------------------------------------------------------------

  get entries(): readonly Entry[] {
    return this.#entries.all();
  }

  get live(): Live {
    return this.#live;
  }

  /** The entries of the disk are here: an empty conversation is really empty. */
  get loaded(): boolean {
    return this.#loaded;
  }

  get arriving(): readonly Arriving[] {
    return [...this.#arriving.values()];
  }

  progressOf(id: string): Progress | undefined {
    return this.#progress.get(id);
  }

  // ---- life -----------------------------------------------------------------------------------

  async start(): Promise<void> {
    for (const entry of await this.#history.load()) {
      if (this.#entries.get(entry.key) === undefined) this.#entries.restore(entry);
    }
    this.#loaded = true;
    this.#parts.changed();
    this.#windows.start();
  }

  /** The page goes, or another agent is chosen. What waits in the outbox stays there. */
  close(): void {
    this.#flush();
    this.#windows.close();
    this.#dropClient();
    this.#history.close();
  }

  /** The page may be gone in a moment. */
  hidden(): void {
    this.#flush();
  }

  /** The page is looked at again. */
  seen(): void {
    this.#windows.seen();
  }

  /** Connects now: from another window, after a stop, or instead of waiting. */
  use(): void {
    if (!this.#windows.leading) {
      this.#windows.take();
      return;
    }
    if (this.#live.line.phase === "stopped") this.#lead();
    else this.#client?.networkChanged();
  }

  // ---- what the person does -------------------------------------------------------------------

  /** @throws HermesError with a code that has words */
  sendText(text: string): void {
    const outgoing = this.#lead().sendText(text);
    this.#watch(outgoing);
  }

  /** @throws HermesError with a code that has words */
  sendFile(file: Blob, filename: string, caption: string): void {
    const mime = file.type;
    const outgoing = this.#lead().sendFile(file, { filename, caption, mime });
    this.#own(outgoing, {
      kind: "file",
      text: caption,
      file: { mime, filename, size: file.size },
      blob: file,
    });
  }

  /** @throws HermesError with a code that has words */
  sendVoice(recording: Blob): void {
    const outgoing = this.#lead().sendVoice(recording);
    const file = { mime: recording.type, filename: "", size: recording.size };
    this.#own(outgoing, { kind: "voice", text: "", file, blob: recording });
  }

  typing(): void {
    this.#client?.typing();
  }

  /** Sends what failed once more, under its id. */
  retry(entry: Mine): void {
    const client = this.#lead();
    const again = client.retry(entry.id);
    if (again !== undefined) {
      this.#watch(again);
      return;
    }
    // The outbox does not have it (it was full, or the browser lost it), but we do.
    const { id, text, kind, blob, file } = entry;
    if (kind === "text") this.#watch(client.sendText(text, { id }));
    else if (blob === undefined) this.#fail(entry, "unreadable", "");
    else if (kind === "voice") this.#watch(client.sendVoice(blob, { id }));
    else {
      const options = { id, caption: text, mime: file?.mime ?? blob.type };
      this.#watch(client.sendFile(blob, { ...options, filename: file?.filename ?? "" }));
    }
  }

  /** Takes back what the agent does not have yet, and removes it. */
  discard(entry: Mine): void {
    const client = this.#lead();
    // The outbox of an earlier life may still be on its way from the disk.
    this.#unwanted.add(entry.id);
    client.discard(entry.id);
    this.#remove(entry.key);
  }

  answer(entry: Asked, optionId: string | undefined, text: string | undefined): void {
    const client = this.#lead();
    const chosen = {
      ...(optionId === undefined ? {} : { optionId }),
      ...(text === undefined ? {} : { text }),
    };
    this.#put({ ...entry, chosen });
    client.answer(entry.card.id, chosen).then(
      (outcome) => {
        this.#closed(outcome);
      },
      (error: unknown) => {
        const now = this.#entries.get(entry.key);
        if (now?.type !== "asked" || now.outcome !== undefined) return;
        const { chosen: _gone, ...open } = now;
        this.#put(open);
        this.#parts.trouble({ code: "not_taken", message: messageOf(error) });
      },
    );
  }

  /** Removes everything that was said from this browser. */
  async clear(): Promise<void> {
    // What still waits goes on waiting; another window that led until now has it in its outbox.
    const pending = this.#client?.pending().map((item) => item.id);
    const kept = this.#entries
      .all()
      .filter(
        (entry) =>
          entry.type === "mine" &&
          (pending?.includes(entry.id) ?? ["queued", "sending", "sent"].includes(entry.state)),
      );
    this.#windows.take(); // only a window that leads is heard by the others
    this.#entries.clear();
    this.#windows.tell({ cleared: true });
    await this.#history.clear();
    for (const entry of kept) this.#put(entry);
    this.#parts.changed();
  }

  // ---- leading and following ------------------------------------------------------------------

  /** The client of the window that leads, which is this one from now on. */
  #lead(): HermesClient {
    this.#windows.take();
    if (this.#client !== undefined && this.#client.state.phase !== "stopped") return this.#client;
    this.#dropClient();
    const { agent, userName } = this.#parts;
    const client = new HermesClient({
      url: agent.url,
      token: agent.token,
      device: {
        id: agent.deviceId,
        name: "Hermes Chat",
        platform: "web",
        app_version: APP_VERSION,
      },
      ...(userName === "" ? {} : { user: { id: agent.deviceId, name: userName } }),
      storage: indexedDbStorage(outboxName(agent.id)),
      // Small parts: on a slow line the progress moves and a cancel is heard soon.
      uploadPartBytes: 256 * 1024,
      ...this.#parts.client,
    });
    this.#client = client;
    this.#reconciled = false;
    this.#reopenCards();
    this.#listen(client);
    client.connect();
    return client;
  }

  /** An answer that was under way in an earlier life is not under way in this one. */
  #reopenCards(): void {
    for (const entry of this.#entries.all()) {
      if (entry.type !== "asked" || entry.outcome !== undefined) continue;
      const { chosen, ...open } = entry;
      if (chosen !== undefined) this.#put(open);
    }
  }

  #follow(): void {
    this.#flush();
    this.#dropClient();
    this.#progress.clear();
    this.#arriving.clear();
    this.#change({ line: { phase: "elsewhere" }, typing: false, avatar: "idle" });
  }

  #dropClient(): void {
    const client = this.#client;
    this.#client = undefined;
    client?.close();
  }

  #mirror(told: Told): void {
    if ("entries" in told) {
      for (const entry of told.entries) this.#entries.restore(entry);
    } else if ("live" in told) {
      if (this.#windows.leading) return;
      this.#live = { ...told.live, line: { phase: "elsewhere" } };
    } else if ("removed" in told) {
      this.#entries.remove(told.removed);
    } else {
      this.#entries.clear();
    }
    this.#parts.changed();
  }

  // ---- what the client tells ------------------------------------------------------------------

  #listen(client: HermesClient): void {
    const on: HermesClient["on"] = (event, listener) =>
      client.on(event, (value) => {
        if (this.#client === client) listener(value);
      });
    on("state", (state) => {
      if (state.phase === "stopped" && state.reason?.code === "replaced") this.#windows.replaced();
      if (this.#client !== client) return;
      this.#change({ line: state });
    });
    on("ready", (ready) => {
      this.#nowReady(client, ready);
    });
    on("message", (message) => {
      if (message.final) this.#growing.delete(message.id);
      else this.#growing.add(message.id);
      const { id, text, final, complete } = message;
      const entry = this.#put({ type: "said", key: keyOf.said(id), id, text, final, complete });
      if (final && complete) {
        client.ack(id);
        this.#parts.said(entry);
      }
      this.#change({ growing: new Set(this.#growing) });
    });
    on("media", (media) => {
      this.#arriving.delete(media.id);
      const { id, kind, mime, filename, caption, size, blob, url } = media;
      const entry = this.#put({
        ...{ type: "shown", key: keyOf.file(id), id, kind, mime, filename, size },
        ...(caption === undefined ? {} : { caption }),
        ...(blob === undefined ? {} : { blob }),
        ...(url === undefined ? {} : { url }),
      });
      client.ack(id);
      this.#parts.said(entry);
    });
    on("mediaProgress", ({ id, filename, received, size }) => {
      this.#arriving.set(id, { id, filename, done: received, size });
      this.#parts.changed();
    });
    on("mediaFailed", ({ id, filename }) => {
      this.#arriving.delete(id);
      this.#put({ type: "missed", key: keyOf.file(id), id, filename });
    });
    on("prompt", (card) => {
      const old = this.#entries.get(keyOf.card(card.id));
      // The door shows it again after a reconnect; an answer under way stays under way.
      const chosen = old?.type === "asked" ? old.chosen : undefined;
      const entry = this.#put({
        ...{ type: "asked", key: keyOf.card(card.id), card },
        ...(chosen === undefined ? {} : { chosen }),
      });
      if (old === undefined) this.#parts.said(entry);
    });
    on("promptDone", (outcome) => {
      this.#closed(outcome);
    });
    on("avatar", (avatar) => {
      this.#change({ avatar });
    });
    on("typing", (typing) => {
      this.#change({ typing });
    });
    on("outbox", (item) => {
      this.#itemChanged(item);
    });
    on("uploadProgress", ({ id, sent, size }) => {
      this.#progress.set(id, { done: sent, size });
      this.#parts.changed();
    });
    on("error", ({ code, message, fatal }) => {
      // A fatal one ends the connection, and the connection's own state tells why.
      if (!fatal) this.#parts.trouble({ code, message });
    });
    on("warning", ({ code, message }) => {
      if (code === "storage_failed") this.#parts.trouble({ code: "storage_closed", message });
    });
  }

  #nowReady(client: HermesClient, ready: ReadyInfo): void {
    // Whatever was growing is shown again by the door now, or will not grow any more.
    this.#growing.clear();
    this.#arriving.clear();
    if (!this.#reconciled) {
      this.#reconciled = true;
      const pending = new Set(client.pending().map((item) => item.id));
      for (const entry of this.#entries.all()) {
        if (entry.type !== "mine" || pending.has(entry.id)) continue;
        if (["queued", "sending", "sent"].includes(entry.state)) this.#fail(entry, "unknown", "");
      }
    }
    const { max_media_bytes: media, max_text_chars: text, media_in: kinds } = ready.capabilities;
    this.#change({
      avatarUrl: ready.avatarUrl,
      growing: new Set(),
      limits: {
        media: media ?? DEFAULT_MEDIA,
        text: text ?? DEFAULT_TEXT,
        ...(kinds === undefined ? {} : { kinds }),
      },
    });
  }

  #closed(outcome: CardOutcome): void {
    const entry = this.#entries.get(keyOf.card(outcome.id));
    if (entry?.type !== "asked" || entry.outcome !== undefined) return;
    const { chosen, ...rest } = entry;
    const answerText = outcome.expired ? undefined : chosen?.text;
    this.#put({ ...rest, outcome, ...(answerText === undefined ? {} : { answerText }) });
  }

  #itemChanged(item: OutgoingItem): void {
    const key = keyOf.mine(item.id);
    const old = this.#entries.get(key);
    if (item.state === "accepted" || item.state === "failed") this.#progress.delete(item.id);
    if (item.state === "discarded") {
      this.#progress.delete(item.id);
      this.#remove(key);
      return;
    }
    if (this.#unwanted.has(item.id)) {
      const client = this.#client;
      queueMicrotask(() => client?.discard(item.id));
      return;
    }
    const known = old?.type === "mine" ? old : undefined;
    const file = known?.file ?? {
      mime: item.mime ?? "",
      filename: item.filename ?? "",
      size: item.size,
    };
    this.#put({
      ...{ type: "mine", key, id: item.id, kind: item.kind, text: item.text, state: item.state },
      ...(item.failure === undefined ? {} : { failure: item.failure }),
      ...(item.kind === "text" ? {} : { file }),
      ...(known?.blob === undefined ? {} : { blob: known.blob }),
    });
  }

  // ---- entries --------------------------------------------------------------------------------

  /** Shows a file at once, while its bytes are still being read. */
  #own(outgoing: Outgoing, what: Pick<Mine, "kind" | "text" | "file" | "blob">): void {
    const { id } = outgoing;
    const key = keyOf.mine(id);
    if (this.#entries.get(key) === undefined) {
      this.#put({ ...what, type: "mine", key, id, state: "queued" });
    }
    this.#watch(outgoing);
  }

  #watch(outgoing: Outgoing): void {
    outgoing.stored.catch((error: unknown) => {
      const code = error instanceof HermesError ? error.code : "unreadable";
      const entry = this.#entries.get(keyOf.mine(outgoing.id));
      // Not stored but sent all the same: it is in memory, and its own state tells the rest.
      if (code === "storage_failed" || code === "aborted" || entry?.type !== "mine") return;
      this.#fail(entry, code, messageOf(error));
    });
  }

  #fail(entry: Mine, code: string, message: string): void {
    this.#put({ ...entry, state: "failed", failure: { code, message } });
  }

  #put(entry: Parameters<EntryList["put"]>[0]): Entry {
    const placed = this.#entries.put(entry, Date.now());
    this.#unsaved.add(placed.key);
    if (isDraft(placed)) {
      this.#saveTimer ??= setTimeout(() => {
        this.#flush();
      }, DRAFT_SAVE_DELAY);
    } else {
      this.#flush();
    }
    this.#windows.tell({ entries: [placed] });
    this.#parts.changed();
    return placed;
  }

  #remove(key: string): void {
    if (!this.#entries.remove(key)) return;
    this.#unsaved.delete(key);
    void this.#history.remove(key);
    this.#windows.tell({ removed: key });
    this.#parts.changed();
  }

  #flush(): void {
    clearTimeout(this.#saveTimer);
    this.#saveTimer = undefined;
    const entries = [...this.#unsaved].flatMap((key) => this.#entries.get(key) ?? []);
    this.#unsaved.clear();
    void this.#history.save(entries);
  }

  #change(live: Partial<Live>): void {
    this.#live = { ...this.#live, ...live };
    this.#windows.tell({ live: this.#live });
    this.#parts.changed();
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : "";
}

export type { FileData };
