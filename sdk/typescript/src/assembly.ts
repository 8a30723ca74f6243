/** Frames -> whole messages and files. Pure: no socket, no clock. */
import { base64ToBytes, decodedLength } from "./base64.ts";
import type { AgentMedia, AgentMediaFailure, AgentMediaProgress, AgentMessage } from "./events.ts";
import { MAX_MEDIA_BYTES, type MediaOutFrame, type MessageFrame } from "./protocol.ts";

/** A message of more chunks than this is nothing an agent would write; it would only eat memory. */
const MAX_CHUNKS = 4096;

interface OpenMessage {
  chunks: (string | undefined)[];
  /** All chunks were here at least once. */
  whole: boolean;
  /** The connection changed since the last frame: a restatement may have begun. */
  stale: boolean;
  /** As last told. */
  told?: AgentMessage;
}

/**
 * Puts the agent's messages together.
 *
 * A frame that leaves the text in a half-revised state (the first chunk of a new revision beside
 * the others of the old one) is taken in and not told: what is told is a revision the agent wrote,
 * or the growing beginning of a message that is arriving for the first time.
 */
export class MessageAssembly {
  readonly #messages = new Map<string, OpenMessage>();
  readonly #kept: number;
  #partialEdits = false;

  /** @param kept messages remembered, so that a late edit still finds its other chunks */
  constructor(kept = 200) {
    this.#kept = kept;
  }

  /** A new connection: unfinished messages are continued or restated on it. */
  connected(partialEdits: boolean): void {
    this.#partialEdits = partialEdits;
    for (const message of this.#messages.values()) message.stale = true;
  }

  /**
   * Takes one frame in.
   *
   * @returns the message if there is something new to show, a text about what is wrong, or `undefined`
   */
  add(frame: MessageFrame): AgentMessage | string | undefined {
    const { index, total } = frame.chunk;
    if (total > MAX_CHUNKS) return `a \`message\` frame that announces ${total} chunks`;
    const message = this.#open(frame.id);
    message.chunks.length = total; // chunks from `total` on are gone, new ones are holes
    message.chunks[index] = frame.text;

    const last = index === total - 1;
    const whole = !message.chunks.includes(undefined);
    const settled =
      last || frame.final || (this.#partialEdits && !message.stale && frame.edit === true);
    if (last) message.stale = false;
    if (whole) {
      if (!settled && message.whole) return undefined;
      message.whole = true;
    } else if (message.whole && !frame.final) {
      return undefined;
    }
    const text = whole || frame.final ? message.chunks.join("") : beginning(message.chunks);
    if (text === "" && !whole && message.told === undefined) return undefined; // no beginning yet
    return this.#tell(message, frame, text, whole);
  }

  #open(id: string): OpenMessage {
    const message = this.#messages.get(id) ?? { chunks: [], whole: false, stale: false };
    // Re-inserted at the end, so that the front is what was silent longest.
    this.#messages.delete(id);
    this.#messages.set(id, message);
    if (this.#messages.size > this.#kept) {
      for (const oldest of this.#messages.keys()) {
        this.#messages.delete(oldest);
        break;
      }
    }
    return message;
  }

  #tell(
    message: OpenMessage,
    frame: MessageFrame,
    text: string,
    complete: boolean,
  ): AgentMessage | undefined {
    const before = message.told;
    const replyTo = frame.reply_to ?? before?.replyTo;
    // A restated message that was final stays final: its end is not taken back by its first chunk.
    const final = frame.final || (before?.final === true && before.text === text);
    if (before?.text === text && before.final === final && before.complete === complete) {
      return undefined;
    }
    message.told = {
      id: frame.id,
      text,
      final,
      complete,
      revision: (before?.revision ?? 0) + 1,
      ...(replyTo === undefined ? {} : { replyTo }),
    };
    return message.told;
  }
}

function beginning(chunks: readonly (string | undefined)[]): string {
  // `findIndex`, because `indexOf` passes over holes.
  const hole = chunks.findIndex((chunk) => chunk === undefined);
  return chunks.slice(0, hole === -1 ? undefined : hole).join("");
}

export type MediaStep =
  | { readonly kind: "media"; readonly media: AgentMedia }
  | { readonly kind: "progress"; readonly progress: AgentMediaProgress }
  | { readonly kind: "failed"; readonly failure: AgentMediaFailure };

interface OpenMedia {
  readonly parts: (Uint8Array<ArrayBuffer> | undefined)[];
  received: number;
  sawFinal: boolean;
  caption: string | undefined;
}

export interface MediaAssemblyOptions {
  /** Largest file, in bytes. Default 8 MiB. */
  readonly maxBytes?: number;
  /** Most files in progress at once; the one begun first makes room. Default 8. */
  readonly maxOpen?: number;
  readonly as?: "blob" | "bytes";
}

/** Puts the agent's files together. Parts may come in any order and more than once. */
export class MediaAssembly {
  readonly #open = new Map<string, OpenMedia>();
  /** Files given up, so that their remaining parts do not start them anew. */
  readonly #dropped = new RecentIds();
  /** Files told already, so that one that is sent again after a reconnect is not shown twice. */
  readonly #finished = new RecentIds();
  readonly #maxBytes: number;
  readonly #maxOpen: number;
  readonly #as: "blob" | "bytes";

  constructor(options: MediaAssemblyOptions = {}) {
    this.#maxBytes = options.maxBytes ?? MAX_MEDIA_BYTES;
    this.#maxOpen = options.maxOpen ?? 8;
    this.#as = options.as ?? (typeof Blob === "undefined" ? "bytes" : "blob");
  }

  add(frame: MediaOutFrame): MediaStep[] {
    if (this.#finished.has(frame.id)) return [];
    if (frame.part === 0) this.#dropped.delete(frame.id); // its start: the door sends it once more
    if (this.#dropped.has(frame.id)) return [];
    if (frame.url !== undefined && frame.data === undefined)
      return [this.#linked(frame, frame.url)];

    const data = frame.data ?? "";
    if (frame.size > this.#maxBytes) {
      return [
        this.#drop(
          frame,
          "too_big",
          `the file has ${frame.size} bytes, ${this.#maxBytes} are allowed`,
        ),
      ];
    }
    const steps: MediaStep[] = [];
    let media = this.#open.get(frame.id);
    if (media !== undefined && media.parts.length !== frame.parts) {
      // The door began the file again in another cut.
      this.#open.delete(frame.id);
      media = undefined;
    }
    if (media === undefined) {
      media = {
        parts: new Array<undefined>(frame.parts).fill(undefined),
        received: 0,
        sawFinal: false,
        caption: undefined,
      };
      this.#open.set(frame.id, media);
      steps.push(...this.#makeRoom(frame.id));
    }

    const known = media.parts[frame.part]?.length ?? 0;
    if (media.received - known + decodedLength(data) > Math.min(this.#maxBytes, frame.size)) {
      return [
        ...steps,
        this.#drop(frame, "too_big", "the parts hold more bytes than the file's size"),
      ];
    }
    let bytes: Uint8Array<ArrayBuffer>;
    try {
      bytes = base64ToBytes(data);
    } catch {
      return [...steps, this.#drop(frame, "bad_data", "a part is no standard padded base64")];
    }
    media.received += bytes.length - known;
    media.parts[frame.part] = bytes;
    media.sawFinal ||= frame.final;
    media.caption ??= frame.caption;

    if (!media.parts.includes(undefined)) return [...steps, this.#finish(frame, media)];
    if (media.sawFinal && frame.final && frame.part === frame.parts - 1) {
      return [
        ...steps,
        this.#drop(frame, "incomplete", "the last part came while others are missing"),
      ];
    }
    steps.push({
      kind: "progress",
      progress: {
        id: frame.id,
        kind: frame.kind,
        filename: frame.filename,
        received: media.received,
        size: frame.size,
      },
    });
    return steps;
  }

  #finish(frame: MediaOutFrame, media: OpenMedia): MediaStep {
    if (media.received !== frame.size) {
      const message = `the file has ${media.received} bytes, ${frame.size} were announced`;
      return this.#drop(frame, "size_mismatch", message);
    }
    this.#open.delete(frame.id);
    this.#finished.add(frame.id);
    const parts = media.parts.filter((part) => part !== undefined);
    const caption = frame.caption ?? media.caption;
    const url = frame.url !== undefined && isWebAddress(frame.url) ? frame.url : undefined;
    return {
      kind: "media",
      media: {
        ...described(frame, caption),
        ...(url === undefined ? {} : { url }),
        ...(this.#as === "blob"
          ? { blob: new Blob(parts, { type: frame.mime }) }
          : { bytes: joined(parts, media.received) }),
      },
    };
  }

  #linked(frame: MediaOutFrame, url: string): MediaStep {
    if (!isWebAddress(url)) {
      return this.#drop(frame, "bad_url", "the file's address is no http or https address");
    }
    this.#open.delete(frame.id);
    this.#finished.add(frame.id);
    return { kind: "media", media: { ...described(frame, frame.caption), url } };
  }

  #drop(
    frame: Pick<MediaOutFrame, "id" | "kind" | "filename">,
    code: AgentMediaFailure["code"],
    message: string,
  ): MediaStep {
    this.#open.delete(frame.id);
    this.#dropped.add(frame.id);
    return {
      kind: "failed",
      failure: { id: frame.id, kind: frame.kind, filename: frame.filename, code, message },
    };
  }

  #makeRoom(newest: string): MediaStep[] {
    const steps: MediaStep[] = [];
    for (const id of this.#open.keys()) {
      if (this.#open.size <= this.#maxOpen) break;
      if (id === newest) continue;
      const message = `more than ${this.#maxOpen} files were being received at once`;
      steps.push(this.#drop({ id, kind: "", filename: "" }, "crowded_out", message));
    }
    return steps;
  }
}

/** The newest ids of something, bounded. */
class RecentIds {
  readonly #ids = new Set<string>();

  has(id: string): boolean {
    return this.#ids.has(id);
  }

  add(id: string): void {
    this.#ids.add(id);
    if (this.#ids.size <= 512) return;
    for (const oldest of this.#ids) {
      this.#ids.delete(oldest);
      break;
    }
  }

  delete(id: string): void {
    this.#ids.delete(id);
  }
}

/** An agent's address is opened by the app: only web addresses, never `javascript:` and the like. */
export function isWebAddress(url: string): boolean {
  return /^https?:\/\/[^\s/]/i.test(url);
}

function described(frame: MediaOutFrame, caption: string | undefined): AgentMedia {
  return {
    id: frame.id,
    kind: frame.kind,
    mime: frame.mime,
    filename: frame.filename,
    size: frame.size,
    ...(caption === undefined ? {} : { caption }),
    ...(frame.reply_to === undefined ? {} : { replyTo: frame.reply_to }),
  };
}

function joined(parts: readonly Uint8Array[], size: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
