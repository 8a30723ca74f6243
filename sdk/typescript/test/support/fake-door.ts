/**
 * A door without a network. `FakeDoor.socketClass` goes into the client; `door.last` is the newest
 * connection, on which a test reads what was sent (`frames`) and answers (`tell`, `closeWith`).
 */
import { HermesClient } from "../../src/client.ts";
import type {
  HermesClientOptions,
  WebSocketConstructor,
  WebSocketLike,
} from "../../src/options.ts";
import type { HermesEvents } from "../../src/events.ts";
import { FakeClock, settle } from "./fake-clock.ts";

export type Frame = Record<string, unknown> & { readonly t: string };

export class FakeSocket implements WebSocketLike {
  readyState = 0;
  bufferedAmount = 0;
  binaryType = "blob";
  onopen: ((event: unknown) => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onerror: ((event: unknown) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  readonly frames: Frame[] = [];
  closed = false;
  /** Adds what is sent to `bufferedAmount`, as a slow line would. */
  slow = false;
  /** Called with each frame the client sends, before `send` returns. */
  answer: ((frame: Frame) => void) | undefined;
  readonly url: string;

  constructor(url: string) {
    this.url = url;
  }

  send(data: string): void {
    if (this.readyState !== 1) throw new Error("not open");
    const frame = JSON.parse(data) as Frame;
    this.frames.push(frame);
    if (this.slow) this.bufferedAmount += data.length;
    this.answer?.(frame);
  }

  close(): void {
    this.closed = true;
    this.readyState = 3;
  }

  open(): void {
    this.readyState = 1;
    this.onopen?.({});
  }

  tell(frame: Readonly<Record<string, unknown>>): void {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }

  tellRaw(data: unknown): void {
    this.onmessage?.({ data });
  }

  closeWith(code: number, reason = ""): void {
    this.readyState = 3;
    this.onclose?.({ code, reason });
  }

  sent(t: string): Frame[] {
    return this.frames.filter((frame) => frame.t === t);
  }
}

export const EXTENSIONS: readonly string[] = ["accepted", "partial_edits"];

export function readyFrame(extensions: readonly string[] = EXTENSIONS): Frame {
  return {
    t: "ready",
    v: 1,
    session: "mobile:tel-1",
    device: { id: "tel-1", name: "Phone" },
    avatar_url: "https://agent.example.com/avatar/",
    capabilities: {
      text: true,
      voice: true,
      typing: true,
      avatar_states: ["idle", "thinking", "speaking"],
      media_in: ["image", "video", "document", "audio"],
      media_out: ["image", "voice", "video", "document", "animation"],
      prompts: ["exec_approval", "slash_confirm", "clarify"],
      edit: true,
      max_media_bytes: 8_388_608,
      max_text_chars: 12_000,
      extensions,
    },
  };
}

export class FakeDoor {
  readonly sockets: FakeSocket[] = [];
  readonly socketClass: WebSocketConstructor;

  constructor() {
    const { sockets } = this;
    this.socketClass = class extends FakeSocket {
      constructor(url: string) {
        super(url);
        sockets.push(this);
      }
    };
  }

  get last(): FakeSocket {
    const socket = this.sockets.at(-1);
    if (socket === undefined) throw new Error("no connection was tried");
    return socket;
  }
}

export interface Bench {
  readonly client: HermesClient;
  readonly door: FakeDoor;
  readonly clock: FakeClock;
  /** Everything the client told, in order. */
  readonly told: { readonly event: keyof HermesEvents; readonly value: unknown }[];
  values<Name extends keyof HermesEvents>(event: Name): HermesEvents[Name][];
  /** Lets the newest attempt reach `ready`. */
  ready(extensions?: readonly string[]): Promise<FakeSocket>;
}

const EVENTS: readonly (keyof HermesEvents)[] = [
  "state",
  "ready",
  "message",
  "media",
  "mediaProgress",
  "mediaFailed",
  "prompt",
  "promptDone",
  "avatar",
  "typing",
  "error",
  "outbox",
  "uploadProgress",
  "unknown",
  "warning",
];

export function makeBench(options: Partial<HermesClientOptions> = {}): Bench {
  const door = new FakeDoor();
  const clock = (options.clock as FakeClock | undefined) ?? new FakeClock();
  let ids = 0;
  const client = new HermesClient({
    url: "wss://agent.example.com/ws",
    token: "a-token-of-the-tests",
    device: { id: "tel-1", name: "Phone", platform: "test", app_version: "1.0.0" },
    webSocket: door.socketClass,
    clock,
    presence: null,
    random: () => 0.5,
    createId: () => `id-${(ids += 1)}`,
    ...options,
  });
  const told: Bench["told"] = [];
  for (const event of EVENTS) {
    client.on(event, (value) => {
      told.push({ event, value });
    });
  }
  return {
    client,
    door,
    clock,
    told,
    values: <Name extends keyof HermesEvents>(event: Name) =>
      told
        .filter((entry) => entry.event === event)
        .map((entry) => entry.value as HermesEvents[Name]),
    async ready(extensions = EXTENSIONS) {
      client.connect();
      await settle();
      door.last.open();
      door.last.tell(readyFrame(extensions));
      await settle();
      return door.last;
    },
  };
}
