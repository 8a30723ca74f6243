/**
 * Moves the outbox onto the connection: in order, files part by part as the socket drains, again
 * after a drop, until the agent has taken each item.
 *
 * Where the door offers `accepted`, that frame is the proof. Where it does not, an item counts as
 * taken once the door has answered a `ping` written right behind it: a door reads its messages in
 * order, so by then it has read the item and has not refused it.
 */
import { bytesToBase64 } from "./base64.ts";
import { sleep, type Clock } from "./clock.ts";
import { HermesError } from "./errors.ts";
import type { UploadProgress } from "./events.ts";
import type { ConnectionEnd } from "./connection.ts";
import type { Outbox, OutboxEntry } from "./outbox.ts";
import {
  CloseCode,
  MAX_OPEN_UPLOADS,
  MAX_UPLOAD_BUFFER_BYTES,
  type ClientFrame,
  type ErrorFrame,
  type MediaInFrame,
} from "./protocol.ts";

export interface DeliveryParts {
  readonly clock: Clock;
  readonly outbox: Outbox;
  readonly partBytes: number;
  /** Writes a frame; false if the connection is gone. */
  send(frame: ClientFrame): boolean;
  /** Ends the connection and opens another one at once. */
  renew(): void;
  /** Bytes the socket has not written yet. */
  buffered(): number;
  progress(progress: UploadProgress): void;
}

/** Items written and not confirmed at once. */
const WINDOW = 32;
/** The next part is handed to the socket when no more than this waits in it, in bytes. */
const DRAINED = 256 * 1024;
/** How often a draining socket is looked at, in milliseconds. */
const DRAIN_POLL = 50;
/**
 * On a living connection an item that is still not confirmed after this time is sent again under its
 * id (milliseconds): a door that has it says so once more, one that lost it takes it now.
 */
const RESEND_AFTER = 60_000;
/** That time runs from when the socket has let everything go, which is looked at this often (milliseconds). */
const LEAVING_POLL = 5_000;
/** A hand-over that failed at the door is tried again after these pauses (milliseconds), then given up. */
const HANDOVER_PAUSES = [1_000, 4_000, 15_000];
/** Refusals that concern an item even if the door does not say which (receipts by `pong` only). */
const ITEM_REFUSALS = new Set(["bad_frame", "too_big", "unsupported_frame", "internal_error"]);

/** One writing of an item: again from its beginning after every change of connection. */
interface Writing {
  readonly entry: OutboxEntry;
  readonly generation: number;
  /** Bytes of the file that were told as sent. */
  told: number;
}

export class Delivery {
  readonly #parts: DeliveryParts;
  /** Raised with every change of connection: what an older loop does no longer counts. */
  #generation = 0;
  #connected = false;
  #pumping = false;
  #again = false;
  #accepts = false;
  #dueTimer: unknown;
  #resendTimer: unknown;
  /** When each unconfirmed item was written, by its id. */
  readonly #writtenAt = new Map<string, number>();
  /** `ts` of the ping behind an item -> the item's id, where the door does not offer `accepted`. */
  readonly #receipts = new Map<string, string>();
  #receiptCount = 0;
  /**
   * Uploads taken back half-way on this connection, and their bytes. The protocol has no way to
   * withdraw them; the door frees them when the connection ends.
   */
  #leftovers = { count: 0, bytes: 0 };

  constructor(parts: DeliveryParts) {
    this.#parts = parts;
  }

  /** A large item is on its way. */
  get uploading(): boolean {
    return this.#parts.outbox.unconfirmed().some((entry) => entry.record.content.kind !== "text");
  }

  connected(accepts: boolean): void {
    this.#generation += 1;
    this.#connected = true;
    this.#accepts = accepts;
    this.#leftovers = { count: 0, bytes: 0 };
    this.#receipts.clear();
    this.pump();
  }

  disconnected(end?: ConnectionEnd): void {
    this.#generation += 1;
    this.#connected = false;
    this.#pumping = false;
    this.#receipts.clear();
    this.#clearDue();
    this.#clearResend();
    this.#writtenAt.clear();
    if (end !== undefined) this.#blameSize(end);
    this.#parts.outbox.requeue();
  }

  /** Sends whatever is due. */
  pump(): void {
    if (!this.#connected) return;
    // A loop that is about to end may have looked before the change that is being told here.
    this.#again = true;
    if (this.#pumping) return;
    this.#pumping = true;
    const generation = this.#generation;
    void (async () => {
      while (this.#again && generation === this.#generation) {
        this.#again = false;
        await this.#run(generation);
      }
      if (generation === this.#generation) this.#pumping = false;
    })();
  }

  async #run(generation: number): Promise<void> {
    const { outbox, clock } = this.#parts;
    for (;;) {
      if (generation !== this.#generation) return;
      if (outbox.unconfirmed().length >= (this.#accepts ? WINDOW : 1)) return;
      const entry = outbox.next(clock.now());
      if (entry === undefined) {
        this.#pumpWhenDue();
        return;
      }
      if (!(await this.#write(entry, generation))) return;
    }
  }

  /** @returns false if the connection went away meanwhile */
  async #write(entry: OutboxEntry, generation: number): Promise<boolean> {
    const { outbox } = this.#parts;
    const { content, id } = entry.record;
    if (content.kind === "text") {
      outbox.mark(entry, "sent"); // before the write: the answer may be quicker than this function
      if (!this.#parts.send({ t: "text", id, text: content.text })) return false;
    } else {
      outbox.mark(entry, "sending");
      const parts =
        content.kind === "voice" ? 1 : Math.ceil(content.bytes.length / this.#parts.partBytes);
      if (!this.#roomFor(parts, content.bytes.length)) {
        this.#parts.renew();
        return false;
      }
      const writing: Writing = { entry, generation, told: 0 };
      for (let part = 0; part < parts; part += 1) {
        await this.#drained(writing, part * this.#parts.partBytes);
        if (generation !== this.#generation) return false;
        if (entry.state !== "sending") {
          // Refused meanwhile: the door has let go of it. Discarded: it has not.
          if (entry.state === "discarded" && part > 0) {
            this.#leftovers.count += 1;
            this.#leftovers.bytes += part * this.#parts.partBytes;
          }
          return true;
        }
        if (!this.#parts.send(this.#frameOf(entry, part, parts))) return false;
      }
      outbox.mark(entry, "sent");
      void this.#watchTail(writing);
    }
    if (this.#accepts) this.#resendLater(id);
    else this.#askReceipt(id);
    return true;
  }

  #frameOf(entry: OutboxEntry, part: number, parts: number): ClientFrame {
    const { content, id } = entry.record;
    if (content.kind === "text") return { t: "text", id, text: content.text };
    if (content.kind === "voice") {
      return {
        t: "audio",
        id,
        format: content.format,
        data: bytesToBase64(content.bytes),
        ...(content.transcript === undefined ? {} : { text: content.transcript }),
      };
    }
    const begin = part * this.#parts.partBytes;
    const frame: MediaInFrame = {
      t: "media",
      id,
      kind: content.mediaKind,
      mime: content.mime,
      ...(content.filename === undefined ? {} : { filename: content.filename }),
      ...(content.caption === undefined ? {} : { caption: content.caption }),
      data: bytesToBase64(content.bytes.subarray(begin, begin + this.#parts.partBytes)),
      part,
      parts,
    };
    return frame;
  }

  /** Whether the door has room for these parts beside the leftovers of uploads taken back. */
  #roomFor(parts: number, size: number): boolean {
    const { count, bytes } = this.#leftovers;
    if (parts === 1 || count === 0) return true; // files of one frame are never held open
    return count < MAX_OPEN_UPLOADS && bytes + size <= MAX_UPLOAD_BUFFER_BYTES;
  }

  // ---- progress -----------------------------------------------------------------------------

  async #drained(writing: Writing, written: number): Promise<void> {
    this.#tellProgress(writing, written);
    while (
      this.#parts.buffered() > DRAINED &&
      writing.generation === this.#generation &&
      writing.entry.state === "sending"
    ) {
      await sleep(this.#parts.clock, DRAIN_POLL);
      this.#tellProgress(writing, written);
    }
  }

  async #watchTail(writing: Writing): Promise<void> {
    const { content, id } = writing.entry.record;
    const size = content.kind === "text" ? 0 : content.bytes.length;
    for (;;) {
      if (writing.generation !== this.#generation || writing.entry.state !== "sent") return;
      this.#tellProgress(writing, size);
      if (this.#parts.buffered() === 0) {
        if (this.#writtenAt.has(id)) this.#writtenAt.set(id, this.#parts.clock.now());
        return;
      }
      await sleep(this.#parts.clock, DRAIN_POLL);
    }
  }

  #tellProgress(writing: Writing, written: number): void {
    const { content, id } = writing.entry.record;
    if (content.kind === "text") return;
    // What waits in the socket is base64: three bytes of the file are four in there.
    const waiting = Math.ceil((this.#parts.buffered() * 3) / 4);
    const left = Math.min(written, content.bytes.length) - waiting;
    // Frames of other items and what is around the base64 wait in there too: nothing that was told
    // as sent is taken back for them.
    writing.told = Math.max(writing.told, left);
    this.#parts.progress({ id, sent: writing.told, size: content.bytes.length });
  }

  // ---- outcomes -----------------------------------------------------------------------------

  accepted(id: string): void {
    const entry = this.#parts.outbox.get(id);
    if (entry === undefined || (entry.state !== "sent" && entry.state !== "sending")) return;
    this.#confirm(entry);
  }

  ponged(ts: unknown): void {
    const id = typeof ts === "string" ? this.#receipts.get(ts) : undefined;
    if (id === undefined) return;
    this.#receipts.delete(ts as string);
    this.accepted(id);
  }

  /** @returns false if the error is about something else than the outbox */
  refused(error: ErrorFrame): boolean {
    const entry = this.#blamed(error);
    if (entry === undefined) return false;
    for (const [ts, id] of this.#receipts) if (id === entry.record.id) this.#receipts.delete(ts);
    const pause = HANDOVER_PAUSES[entry.failures];
    if (error.code === "internal_error" && pause !== undefined) {
      entry.failures += 1;
      entry.notBefore = this.#parts.clock.now() + pause;
      this.#parts.outbox.mark(entry, "queued");
    } else {
      this.#parts.outbox.fail(entry, { code: error.code, message: error.message });
    }
    this.pump();
    return true;
  }

  #blamed(error: ErrorFrame): OutboxEntry | undefined {
    const unconfirmed = this.#parts.outbox.unconfirmed();
    if (error.id !== undefined) return unconfirmed.find((entry) => entry.record.id === error.id);
    const [only] = unconfirmed;
    return !this.#accepts && ITEM_REFUSALS.has(error.code) ? only : undefined;
  }

  /** A door that closes over a message's size would do so for ever: the item fails, not the connection. */
  #blameSize(end: ConnectionEnd): void {
    const tooBig =
      end.code === CloseCode.messageTooBig ||
      (end.code === CloseCode.policyViolation && end.reason === "too_big");
    if (!tooBig) return;
    const large = this.#parts.outbox
      .unconfirmed()
      .filter((entry) => entry.record.content.kind !== "text");
    const newest = large.at(-1);
    if (newest === undefined) return;
    const message =
      "The agent's door closed the connection because this item was too large for it.";
    this.#parts.outbox.fail(newest, { code: "too_big", message });
  }

  #confirm(entry: OutboxEntry): void {
    const { content, id } = entry.record;
    if (content.kind !== "text") {
      this.#parts.progress({ id, sent: content.bytes.length, size: content.bytes.length });
    }
    this.#parts.outbox.accept(entry);
    this.pump();
  }

  discard(entry: OutboxEntry, error: HermesError): void {
    this.#parts.outbox.discard(entry, error);
    this.pump();
  }

  #resendLater(id: string): void {
    this.#writtenAt.set(id, this.#parts.clock.now());
    this.#resendTimer ??= this.#parts.clock.setTimeout(() => {
      this.#resend();
    }, RESEND_AFTER);
  }

  #resend(): void {
    this.#resendTimer = undefined;
    const now = this.#parts.clock.now();
    const waiting = this.#parts.outbox.unconfirmed().filter((entry) => entry.state === "sent");
    const oldest = new Map(
      waiting.map((entry) => [entry, this.#writtenAt.get(entry.record.id) ?? now]),
    );
    this.#writtenAt.clear();
    if (oldest.size > 0 && this.#parts.buffered() > 0) {
      // On a slow line it is still leaving: another copy behind it would only make the line slower.
      for (const entry of oldest.keys()) this.#writtenAt.set(entry.record.id, now);
      this.#resendTimer = this.#parts.clock.setTimeout(() => {
        this.#resend();
      }, LEAVING_POLL);
      return;
    }
    let next = Number.POSITIVE_INFINITY;
    for (const [entry, since] of oldest) {
      if (now - since >= RESEND_AFTER) {
        this.#parts.outbox.mark(entry, "queued");
      } else {
        this.#writtenAt.set(entry.record.id, since);
        next = Math.min(next, since + RESEND_AFTER);
      }
    }
    if (next !== Number.POSITIVE_INFINITY) {
      this.#resendTimer = this.#parts.clock.setTimeout(() => {
        this.#resend();
      }, next - now);
    }
    this.pump();
  }

  #clearResend(): void {
    if (this.#resendTimer !== undefined) this.#parts.clock.clearTimeout(this.#resendTimer);
    this.#resendTimer = undefined;
  }

  #askReceipt(id: string): void {
    this.#receiptCount += 1;
    const ts = `receipt-${this.#receiptCount}`;
    this.#receipts.set(ts, id);
    this.#parts.send({ t: "ping", ts });
  }

  #pumpWhenDue(): void {
    this.#clearDue();
    const due = this.#parts.outbox.nextDue();
    if (due === undefined) return;
    const delay = Math.max(0, due - this.#parts.clock.now());
    this.#dueTimer = this.#parts.clock.setTimeout(() => {
      this.pump();
    }, delay);
  }

  #clearDue(): void {
    if (this.#dueTimer !== undefined) this.#parts.clock.clearTimeout(this.#dueTimer);
    this.#dueTimer = undefined;
  }
}
