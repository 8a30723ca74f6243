/**
 * Bytes -> server-sent events, incrementally and purely: any split of the same bytes gives the same
 * events. Follows the HTML standard's rules for `text/event-stream`.
 */

export interface SseEvent {
  /** Name of the `event:` field; `message` where there is none. */
  readonly event: string;
  readonly data: string;
  /** The last `id:` seen up to this event; empty if none. */
  readonly lastEventId: string;
}

/** An event of more characters than this is refused rather than collected without end. */
const MAX_EVENT_CHARS = 16 * 1024 * 1024;

export class SseDecoder {
  readonly #utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
  #line = "";
  #skipLineFeed = false;
  #first = true;
  #data: string[] = [];
  #size = 0;
  #event = "";
  #lastEventId: string;
  #retry: number | undefined;

  /** @param lastEventId where an earlier connection stopped */
  constructor(lastEventId = "") {
    this.#lastEventId = lastEventId;
  }

  /** The newest id, also of an event that is not complete yet or had no data. */
  get lastEventId(): string {
    return this.#lastEventId;
  }

  /** The pause before reconnecting that the server asked for, in milliseconds. */
  get retry(): number | undefined {
    return this.#retry;
  }

  /**
   * Takes the next bytes in and gives the events they complete. An event without its empty line at
   * the end of the stream is dropped, as the standard says.
   *
   * @throws RangeError for an event of more than 16 Mi characters
   */
  push(bytes: Uint8Array): SseEvent[] {
    const events: SseEvent[] = [];
    let text = this.#utf8.decode(bytes, { stream: true });
    if (this.#first && text !== "") {
      this.#first = false;
      if (text.startsWith("\uFEFF")) text = text.slice(1);
    }
    let start = 0;
    if (this.#skipLineFeed && text !== "") {
      this.#skipLineFeed = false;
      if (text.startsWith("\n")) start = 1; // the second half of a CRLF that was cut in two
    }
    for (;;) {
      const end = lineEnd(text, start);
      if (end === -1) break;
      const line = this.#line + text.slice(start, end);
      this.#line = "";
      start = end + 1;
      if (text[end] === "\r") {
        if (start === text.length) this.#skipLineFeed = true;
        else if (text[start] === "\n") start += 1;
      }
      const event = this.#takeLine(line);
      if (event !== undefined) events.push(event);
    }
    this.#line += text.slice(start);
    if (this.#line.length + this.#size > MAX_EVENT_CHARS) {
      throw new RangeError("an event of more than 16 Mi characters");
    }
    return events;
  }

  #takeLine(line: string): SseEvent | undefined {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return undefined; // a comment
    const field = colon === -1 ? line : line.slice(0, colon);
    let value = colon === -1 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    switch (field) {
      case "data":
        this.#data.push(value);
        this.#size += value.length + 1;
        break;
      case "event":
        this.#event = value;
        break;
      case "id":
        if (!value.includes("\0")) this.#lastEventId = value;
        break;
      case "retry":
        if (/^\d+$/.test(value)) this.#retry = Number(value);
        break;
      default: // fields nobody knows are ignored
    }
    return undefined;
  }

  #dispatch(): SseEvent | undefined {
    const data = this.#data;
    const event = this.#event === "" ? "message" : this.#event;
    this.#data = [];
    this.#size = 0;
    this.#event = "";
    if (data.length === 0) return undefined;
    return { event, data: data.join("\n"), lastEventId: this.#lastEventId };
  }
}

function lineEnd(text: string, from: number): number {
  for (let at = from; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === 10 || code === 13) return at;
  }
  return -1;
}
