/** What can be sent, with its checks: everything between an app's call and the outbox. */
import {
  cleanFilename,
  mediaKindOf,
  nameOfData,
  readBytes,
  sizeOfData,
  typeOfData,
  voiceFormatOf,
  type FileData,
} from "./attachment.ts";
import type { Delivery } from "./delivery.ts";
import { HermesError } from "./errors.ts";
import type { Outgoing, OutgoingItem, UploadProgress } from "./events.ts";
import { countCharacters, wellFormed } from "./frames.ts";
import type { Outbox } from "./outbox.ts";
import {
  MAX_AUDIO_BYTES,
  MAX_ID_CHARS,
  MAX_MEDIA_BYTES,
  MAX_TEXT_CHARS,
  type Capabilities,
  type MediaInKind,
  type VoiceFormat,
} from "./protocol.ts";
import type { OutboxContent } from "./storage.ts";

export interface SendOptions {
  /** A stable id of the app's own; default: a random one. At most 128 characters. */
  readonly id?: string;
  /** Takes the item back. What the agent has taken already stays taken. */
  readonly signal?: AbortSignal;
}

export interface UploadOptions extends SendOptions {
  readonly onProgress?: (progress: UploadProgress) => void;
}

export interface VoiceOptions extends UploadOptions {
  /** Default: found out from the bytes. */
  readonly format?: VoiceFormat;
  /** What was said, if the app recognised it itself: the agent gets both. */
  readonly transcript?: string;
}

export interface FileOptions extends UploadOptions {
  /** Default: by the MIME type. */
  readonly kind?: MediaInKind;
  /** Default: the Blob's type. */
  readonly mime?: string;
  /** Default: the File's name. Matters for documents. */
  readonly filename?: string;
  readonly caption?: string;
}

export interface SendingParts {
  readonly outbox: Outbox;
  readonly delivery: Delivery;
  createId(): string;
  /** What the door said about its limits, if it has said anything yet. */
  capabilities(): Capabilities | undefined;
  progressFailed(error: unknown): void;
}

export class Sending {
  readonly #parts: SendingParts;
  readonly #progress = new Map<string, (progress: UploadProgress) => void>();
  /** Files being read into memory, before they are in the outbox. */
  readonly #reading = new Set<string>();
  /** How to let go of the abort signal of an item that is done. */
  readonly #signals = new Map<string, () => void>();

  constructor(parts: SendingParts) {
    this.#parts = parts;
  }

  text(text: string, options: SendOptions): Outgoing {
    const sound = wellFormed(text);
    if (sound.trim() === "") throw new HermesError("bad_argument", "There is no text to send.");
    this.#checkLength(sound, "The text");
    const id = this.#idFor(options);
    const entry = this.#parts.outbox.add(id, { kind: "text", text: sound });
    this.#abortable(id, options.signal);
    this.#parts.delivery.pump();
    return entry.outgoing;
  }

  voice(data: FileData, options: VoiceOptions): Outgoing {
    checkSize(data, MAX_AUDIO_BYTES, "The recording");
    const transcript = this.optionalText(options.transcript, "The transcript");
    return this.#read(data, options, (bytes) => {
      const format = voiceFormatOf(bytes);
      if (format === undefined || (options.format !== undefined && options.format !== format)) {
        throw new HermesError(
          "unsupported_format",
          "The recording is neither WAV nor OGG, or not what `format` says. Convert it before sending.",
        );
      }
      return { kind: "voice", format, bytes, ...(transcript === undefined ? {} : { transcript }) };
    });
  }

  file(data: FileData, options: FileOptions): Outgoing {
    const limit = this.#parts.capabilities()?.max_media_bytes ?? MAX_MEDIA_BYTES;
    checkSize(data, Math.min(limit, MAX_MEDIA_BYTES), "The file");
    const caption = this.optionalText(options.caption, "The caption");
    const mime = options.mime ?? typeOfData(data);
    const filename = cleanFilename(options.filename ?? nameOfData(data) ?? "");
    return this.#read(data, options, (bytes) => ({
      kind: "file",
      mediaKind: options.kind ?? mediaKindOf(mime),
      mime,
      bytes,
      ...(filename === "" ? {} : { filename }),
      ...(caption === undefined ? {} : { caption }),
    }));
  }

  retry(id: string): Outgoing | undefined {
    const outgoing = this.#parts.outbox.retry(id);
    this.#parts.delivery.pump();
    return outgoing;
  }

  discard(id: string, error: HermesError): void {
    this.#reading.delete(id);
    const entry = this.#parts.outbox.get(id);
    if (entry !== undefined) this.#parts.delivery.discard(entry, error);
  }

  /** An item changed its state: what belongs to a finished one is let go. */
  changed(item: OutgoingItem): void {
    if (item.state === "accepted" || item.state === "discarded") this.#forget(item.id);
  }

  progressed(progress: UploadProgress): void {
    try {
      this.#progress.get(progress.id)?.(progress);
    } catch (error) {
      this.#parts.progressFailed(error);
    }
  }

  /**
   * The text without lone surrogates; undefined if it is blank.
   *
   * @throws HermesError `too_big`
   */
  optionalText(text: string | undefined, what: string): string | undefined {
    if (text === undefined || text.trim() === "") return undefined;
    const sound = wellFormed(text);
    this.#checkLength(sound, what);
    return sound;
  }

  #checkLength(text: string, what: string): void {
    const told = this.#parts.capabilities()?.max_text_chars ?? MAX_TEXT_CHARS;
    const limit = Math.min(told, MAX_TEXT_CHARS);
    if (countCharacters(text) > limit) {
      throw new HermesError("too_big", `${what} is longer than ${limit} characters. Split it.`);
    }
  }

  #idFor(options: SendOptions): string {
    if (options.signal?.aborted === true) throw aborted();
    const id = options.id ?? this.#parts.createId();
    if (id === "" || countCharacters(id) > MAX_ID_CHARS || wellFormed(id) !== id) {
      throw new HermesError("bad_argument", "An id has 1 to 128 characters.");
    }
    if (this.#reading.has(id)) {
      throw new HermesError("bad_argument", "An item with this id is in the outbox already.");
    }
    return id;
  }

  #read(
    data: FileData,
    options: UploadOptions,
    toContent: (bytes: Uint8Array<ArrayBuffer>) => OutboxContent,
  ): Outgoing {
    const { outbox, delivery } = this.#parts;
    const id = this.#idFor(options);
    if (outbox.get(id) !== undefined) {
      throw new HermesError("bad_argument", "An item with this id is in the outbox already.");
    }
    this.#reading.add(id);
    const place = outbox.reserve();
    if (options.onProgress !== undefined) this.#progress.set(id, options.onProgress);
    const added = readBytes(data)
      .then((bytes) => {
        if (!this.#reading.has(id)) throw aborted();
        return outbox.add(id, toContent(bytes), place).outgoing;
      })
      .catch((error: unknown) => {
        this.#forget(id);
        throw error;
      })
      .finally(() => {
        this.#reading.delete(id);
        outbox.release(place);
        delivery.pump();
      });
    const outgoing: Outgoing = {
      id,
      stored: added.then((inner) => inner.stored),
      accepted: added.then((inner) => inner.accepted),
    };
    outgoing.stored.catch(() => undefined);
    outgoing.accepted.catch(() => undefined);
    this.#abortable(id, options.signal);
    return outgoing;
  }

  #abortable(id: string, signal: AbortSignal | undefined): void {
    if (signal === undefined) return;
    const stop = (): void => {
      this.discard(id, aborted());
    };
    signal.addEventListener("abort", stop, { once: true });
    this.#signals.set(id, () => {
      signal.removeEventListener("abort", stop);
    });
  }

  #forget(id: string): void {
    this.#progress.delete(id);
    this.#signals.get(id)?.(); // a long-lived signal must not collect listeners
    this.#signals.delete(id);
  }
}

function aborted(): HermesError {
  return new HermesError("aborted", "The app aborted this item.");
}

function checkSize(data: FileData, limit: number, what: string): void {
  const size = sizeOfData(data);
  if (size === 0) throw new HermesError("bad_argument", `${what} is empty.`);
  if (size > limit) {
    throw new HermesError(
      "too_big",
      `${what} has ${size} bytes, ${limit} are allowed. Make it smaller.`,
    );
  }
}
