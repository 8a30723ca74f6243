/** What `HermesClient` tells an app: its events, with the values they carry. */
import type { HermesError } from "./errors.ts";
import type {
  AvatarState,
  Capabilities,
  MediaInKind,
  PromptOption,
  UnknownFrame,
} from "./protocol.ts";

/** Why the client stopped for good. It connects again only when `connect()` is called. */
export interface StopReason {
  readonly code:
    | "closed"
    | "auth_failed"
    | "forbidden"
    | "replaced"
    | "unsupported_version"
    | "hello_refused"
    | "bad_url"
    | "no_token";
  /** One English sentence: what is wrong and what to do. */
  readonly message: string;
}

/**
 * Where the connection stands.
 *
 * - `stopped`: not connected and not trying. `reason` is absent before the first `connect()`.
 * - `connecting`: a socket is being opened, or `hello` was sent and `ready` is awaited.
 * - `ready`: frames flow.
 * - `waiting`: the connection was lost; the next attempt starts at `retryAt` (epoch milliseconds).
 * - `paused`: no attempts while the page is hidden or the machine is offline.
 */
export type ConnectionState =
  | { readonly phase: "stopped"; readonly reason?: StopReason }
  | { readonly phase: "connecting"; readonly attempt: number }
  | { readonly phase: "ready"; readonly session: string }
  | { readonly phase: "waiting"; readonly attempt: number; readonly retryAt: number }
  | { readonly phase: "paused"; readonly cause: "hidden" | "offline" };

/** What the door said about itself in `ready`. */
export interface ReadyInfo {
  /** Address of this device, `mobile:<device.id>`. */
  readonly session: string;
  readonly device: { readonly id: string; readonly name?: string };
  /** Page that draws the avatar; empty if there is none. */
  readonly avatarUrl: string;
  readonly capabilities: Capabilities;
  /** The additions in use on this connection. */
  readonly extensions: ReadonlySet<string>;
}

/** One message of the agent, put together from all chunks and edits seen so far. */
export interface AgentMessage {
  readonly id: string;
  readonly text: string;
  /** No more revisions follow. */
  readonly final: boolean;
  /** All chunks of the newest revision are here. `false` only while the first one is arriving, or if a part was lost. */
  readonly complete: boolean;
  /** Counts up with every change of this message, from 1. */
  readonly revision: number;
  readonly replyTo?: string;
}

/** A file of the agent. Either `blob` or `bytes` (see the option `media`), or only `url`. */
export interface AgentMedia {
  readonly id: string;
  /** `image`, `voice`, `video`, `document`, `animation`, or a kind of a newer door. */
  readonly kind: string;
  readonly mime: string;
  readonly filename: string;
  readonly caption?: string;
  readonly replyTo?: string;
  readonly size: number;
  readonly blob?: Blob;
  readonly bytes?: Uint8Array<ArrayBuffer>;
  /** http(s) address to fetch the file from, where the agent gave one. */
  readonly url?: string;
}

export interface AgentMediaProgress {
  readonly id: string;
  readonly kind: string;
  readonly filename: string;
  readonly received: number;
  readonly size: number;
}

export interface AgentMediaFailure {
  readonly id: string;
  readonly kind: string;
  readonly filename: string;
  readonly code:
    "too_big" | "incomplete" | "size_mismatch" | "bad_data" | "bad_url" | "crowded_out";
  readonly message: string;
}

/** A question of the agent with buttons. */
export interface Card {
  readonly id: string;
  /** `exec_approval`, `slash_confirm`, `clarify`, or a kind of a newer door. */
  readonly kind: string;
  readonly text: string;
  readonly options: readonly PromptOption[];
  /** The exact command to be approved: show it beside the buttons. */
  readonly command?: string;
  readonly description?: string;
  readonly session: string;
  /** When the door closes the card by itself, in epoch milliseconds of this device's clock. */
  readonly deadline: number;
}

/** How a card ended. */
export interface CardOutcome {
  readonly id: string;
  /** The option that was applied; it may differ from the one that was sent. */
  readonly optionId?: string;
  /** The time ran out, or the door no longer knew the card. */
  readonly expired: boolean;
}

/** An error frame of the door. */
export interface DoorError {
  readonly code: string;
  readonly message: string;
  /** The door closes this connection after it. */
  readonly fatal: boolean;
  /** Id of the frame that was refused, where the door knows it. */
  readonly id?: string;
}

export type OutgoingKind = "text" | "voice" | "file";

/**
 * - `queued`: not on the wire yet.
 * - `sending`: a file or recording is being written.
 * - `sent`: written, the agent has not confirmed it yet.
 * - `accepted`: the agent has it; the item leaves the outbox.
 * - `failed`: refused; kept until `retry(id)` or `discard(id)`.
 * - `discarded`: taken out by the app.
 */
export type OutgoingState = "queued" | "sending" | "sent" | "accepted" | "failed" | "discarded";

/** One item of the outbox as the app sees it. */
export interface OutgoingItem {
  readonly id: string;
  readonly kind: OutgoingKind;
  readonly state: OutgoingState;
  /** Epoch milliseconds. */
  readonly createdAt: number;
  /** The text, the caption of a file or the transcript of a recording. */
  readonly text: string;
  readonly mediaKind?: MediaInKind;
  readonly mime?: string;
  readonly filename?: string;
  /** Bytes; 0 for texts. */
  readonly size: number;
  /** Why it failed, while `state` is `failed`. */
  readonly failure?: { readonly code: string; readonly message: string };
}

export interface UploadProgress {
  readonly id: string;
  /** Bytes that left this device, as far as the socket tells. Starts at 0 again after a lost connection. */
  readonly sent: number;
  readonly size: number;
}

/** Something the client had to put up with; worth a log line, never a reason to stop. */
export interface Warning {
  readonly code:
    "bad_server_frame" | "storage_failed" | "listener_failed" | "binary_frame" | "token_failed";
  readonly message: string;
  readonly error?: unknown;
}

export interface HermesEvents {
  state: ConnectionState;
  ready: ReadyInfo;
  message: AgentMessage;
  media: AgentMedia;
  mediaProgress: AgentMediaProgress;
  mediaFailed: AgentMediaFailure;
  /** A card was opened, or is shown again after a reconnect (same id, newer deadline). */
  prompt: Card;
  promptDone: CardOutcome;
  avatar: AvatarState;
  /** The agent is at work (`true`) or not. */
  typing: boolean;
  error: DoorError;
  outbox: OutgoingItem;
  uploadProgress: UploadProgress;
  /** A frame of a type this version does not know, untouched. */
  unknown: UnknownFrame;
  warning: Warning;
}

/** Handle of one thing on its way to the agent. */
export interface Outgoing {
  readonly id: string;
  /** Settles when the item is in the storage: from then on a killed app does not lose it. */
  readonly stored: Promise<void>;
  /** Settles when the agent has taken it; rejects with a `HermesError` when it was refused, discarded or aborted. */
  readonly accepted: Promise<void>;
}

export type { HermesError };
