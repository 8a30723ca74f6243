/**
 * Several windows of one conversation.
 *
 * The door has one connection per device, so one window leads and holds it; the others follow and
 * show the same. A window that the person uses takes the lead. Two that believe to lead settle it by
 * their ids, and the door's own rule (the later connection replaces the earlier) is the last resort.
 */

export interface ChannelLike {
  onmessage: ((event: MessageEvent) => void) | null;
  postMessage(message: unknown): void;
  close(): void;
}

type Signal =
  | { readonly kind: "who" }
  | { readonly kind: "lead"; readonly healthy: boolean }
  | { readonly kind: "take" }
  | { readonly kind: "left" };

type Note<Content> =
  { readonly kind: "content"; readonly content: Content } | (Signal & { readonly from: string });

export interface WindowsParts<Content> {
  readonly channel: ChannelLike;
  readonly id: string;
  /** This window leads from now on. */
  lead(): void;
  /** Another one does. */
  follow(): void;
  /** Something the leading window tells. */
  receive(content: Content): void;
  /** A window came that has not seen what is not on the disk yet. */
  welcome(): void;
  /** Whether this window's connection stands. */
  healthy(): boolean;
  visible(): boolean;
  readonly patience?: number;
}

/** A window that was told to go has gone after so many milliseconds, with its connection. */
const RIVAL_GOES = 10_000;

export class Windows<Content> {
  readonly #parts: WindowsParts<Content>;
  #role: "undecided" | "leading" | "following" | "closed" = "undecided";
  #timer: ReturnType<typeof setTimeout> | undefined;
  #answered = false;
  /** Another window led at the same time and was told to go: until then its connection may replace ours. */
  #rivalUntil = 0;

  constructor(parts: WindowsParts<Content>) {
    this.#parts = parts;
    parts.channel.onmessage = (event) => {
      this.#received(event.data as Note<Content>);
    };
  }

  get leading(): boolean {
    return this.#role === "leading";
  }

  /** Asks who leads; if nobody does, this window. */
  start(): void {
    this.#role = "undecided";
    this.#ask();
  }

  /** This window leads, whoever did before. */
  take(): void {
    if (this.#role === "leading" || this.#role === "closed") return;
    this.#signal({ kind: "take" });
    this.#lead();
  }

  /** The door says that another connection of this device replaced ours. */
  replaced(): void {
    if (this.#role !== "leading") return;
    // By the one that gives way to this window: nobody would be left if this one went as well.
    const rival = Date.now() < this.#rivalUntil;
    this.#rivalUntil = 0;
    if (rival) this.#parts.lead();
    else this.#follow();
  }

  /** The person looks at this window: if nobody leads well, it does. */
  seen(): void {
    if (this.#role === "following") this.#ask();
  }

  /** Tells the following windows. */
  tell(content: Content): void {
    if (this.#role === "leading") this.#parts.channel.postMessage({ kind: "content", content });
  }

  close(): void {
    if (this.#role === "leading") this.#signal({ kind: "left" });
    clearTimeout(this.#timer);
    this.#role = "closed";
    this.#parts.channel.onmessage = null;
    this.#parts.channel.close();
  }

  #ask(): void {
    this.#answered = false;
    this.#after(this.#parts.patience ?? 250);
    this.#signal({ kind: "who" });
  }

  #after(delay: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      // Only a leader that is there is told to go: two windows that start at once would both go.
      if (this.#answered) this.take();
      else if (this.#role !== "closed") this.#lead();
    }, delay);
  }

  #lead(): void {
    clearTimeout(this.#timer);
    this.#role = "leading";
    this.#signal({ kind: "lead", healthy: true });
    this.#parts.lead();
  }

  #follow(): void {
    clearTimeout(this.#timer);
    if (this.#role === "following" || this.#role === "closed") return;
    this.#role = "following";
    this.#rivalUntil = 0;
    this.#parts.follow();
  }

  #signal(signal: Signal): void {
    this.#parts.channel.postMessage({ ...signal, from: this.#parts.id });
  }

  #received(note: Note<Content>): void {
    if (this.#role === "closed") return;
    switch (note.kind) {
      case "content":
        // Also while leading: the last words of the one that led before.
        this.#parts.receive(note.content);
        return;
      case "who":
        if (this.#role !== "leading") return;
        this.#signal({ kind: "lead", healthy: this.#parts.healthy() });
        this.#parts.welcome();
        return;
      case "lead":
        if (this.#role === "leading") {
          // Two at once: the smaller id stays.
          if (note.from < this.#parts.id) {
            this.#follow();
            this.#ask(); // the door may have sent the other one away already
          } else {
            this.#rivalUntil = Date.now() + RIVAL_GOES;
            this.#signal({ kind: "lead", healthy: this.#parts.healthy() });
          }
          return;
        }
        this.#answered = true;
        // One that leads without a connection does not keep this window from trying, if seen.
        if (note.healthy || !this.#parts.visible() || this.#role === "undecided") this.#follow();
        return;
      case "take":
        this.#follow();
        return;
      case "left":
        if (this.#role === "following" && this.#parts.visible()) this.#after(Math.random() * 150);
    }
  }
}
