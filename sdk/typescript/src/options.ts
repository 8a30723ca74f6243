/** Everything an app can set on `HermesClient`, and the seams tests and other platforms use. */
import type { Clock } from "./clock.ts";
import type { OutboxStorage } from "./storage.ts";
import type { Presence } from "./presence.ts";
import type { DeviceInfo, UserInfo } from "./protocol.ts";

/** The part of the WebSocket interface that is used; browsers, React Native, Deno, Node 22 and `ws` all fit. */
export interface WebSocketLike {
  readonly readyState: number;
  readonly bufferedAmount?: number;
  binaryType?: string;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- implementations disagree on their event classes
  onopen: ((event: any) => void) | null;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  onmessage: ((event: any) => void) | null;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  onerror: ((event: any) => void) | null;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  onclose: ((event: any) => void) | null;
  send(data: string): void;
  close(code?: number, reason?: string): void;
}

export type WebSocketConstructor = new (url: string) => WebSocketLike;

export interface HermesClientOptions {
  /**
   * Address of the door, `wss://agent.example.com/ws` (`https://` is read as `wss://`, a missing path as `/ws`).
   * It always comes from the app; an address that carries a token or a login is refused.
   */
  readonly url: string;
  /** The app's token, or a function that fetches it before each connection (from a keychain, say). */
  readonly token: string | (() => string | Promise<string>);
  readonly device: DeviceInfo;
  readonly user?: UserInfo;
  /** Additions to ask the door for. Default: `["accepted", "partial_edits"]`. */
  readonly supports?: readonly string[];
  /** Where unsent items survive a killed app. Default: memory only. */
  readonly storage?: OutboxStorage;
  /** Default: the global `WebSocket`. On Node 20 pass the class of the package `ws`. */
  readonly webSocket?: WebSocketConstructor;
  /** Files of the agent as `Blob` or as bytes. Default: `blob` where the platform has it. React Native: `bytes`. */
  readonly media?: "blob" | "bytes";
  /** Largest file of the agent to put together, in bytes. Default 8 MiB. */
  readonly maxMediaBytes?: number;
  /** Bytes per part of a file; 4 KiB to 3 MiB, default 3 MiB. Smaller parts give finer progress on slow lines. */
  readonly uploadPartBytes?: number;
  /** Most items and bytes the outbox holds. Default 500 items, 64 MiB. */
  readonly outboxLimit?: { readonly items?: number; readonly bytes?: number };
  readonly timing?: Partial<Timing>;
  /** When to pause. Default: page visibility and `navigator.onLine` where they exist; `null` never pauses. */
  readonly presence?: Presence | null;
  readonly clock?: Clock;
  /** Makes message ids. Default: random UUIDs. */
  readonly createId?: () => string;
  /** 0 <= n < 1, for the reconnect jitter. Default `Math.random`. */
  readonly random?: () => number;
}

/** All in milliseconds. */
export interface Timing {
  /** From opening the socket to `ready`. Default 20 000. */
  readonly connectTimeout: number;
  /** Silence after which a `ping` is sent. Default 20 000. */
  readonly pingAfter: number;
  /** Further silence after which the connection counts as lost. Default 15 000. */
  readonly pongTimeout: number;
  /** The same after `networkChanged()` or a return to the foreground. Default 4 000. */
  readonly probeTimeout: number;
  /** First and largest upper bound of the random reconnect delay. Defaults 1 000 and 30 000. */
  readonly backoffBase: number;
  readonly backoffCap: number;
}
