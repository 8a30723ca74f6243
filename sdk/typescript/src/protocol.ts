/**
 * The vocabulary of the device door: every constant, frame and code of protocol v1 as it stands on
 * the wire. Wire names stay as they are (`app_version`, `prompt_id`); the client's own events use
 * camelCase and live in `events.ts`.
 */

export const PROTOCOL_VERSION = 1;

/** Largest WebSocket message the door reads, in bytes. */
export const MAX_FRAME_BYTES = 16 * 1024 * 1024;
/** Longest `text` or `caption`, in Unicode characters (code points). */
export const MAX_TEXT_CHARS = 12_000;
/** Largest voice recording, in bytes before base64. */
export const MAX_AUDIO_BYTES = 8 * 1024 * 1024;
/** Largest file in either direction, in bytes before base64; sending it in parts does not lift this. */
export const MAX_MEDIA_BYTES = 8 * 1024 * 1024;
/** Size of one part of a larger file, in bytes before base64. */
export const MEDIA_CHUNK_BYTES = 3 * 1024 * 1024;
/** Smallest sensible part; `MAX_MEDIA_PARTS` follows from it. */
export const MIN_MEDIA_CHUNK_BYTES = 4 * 1024;
export const MAX_MEDIA_PARTS = 2048;
/** Unfinished uploads in parts that the door holds for one device. */
export const MAX_OPEN_UPLOADS = 8;
/** What all unfinished uploads of one device may hold together, in bytes before base64. */
export const MAX_UPLOAD_BUFFER_BYTES = 8 * 1024 * 1024;
/** Most characters in one `message` frame. */
export const DEFAULT_CHUNK_LIMIT = 3500;
/** How long a card stays open unless the door says otherwise, in seconds. */
export const DEFAULT_PROMPT_TTL = 300;
/** How long the door waits for `hello`, in seconds. */
export const HELLO_TIMEOUT = 15;
/** How long the door remembers a message id, in seconds. */
export const DEDUP_WINDOW = 600;
export const MAX_ID_CHARS = 128;
export const MAX_DEVICE_CHARS = 120;
export const MAX_FILENAME_CHARS = 200;

/** Close codes that mean something to a client. All others are "come back later". */
export const CloseCode = {
  /** Refused: the reason is an error code. */
  policyViolation: 1008,
  /** A message was too large for the door to read. */
  messageTooBig: 1009,
  /** The door is full or this connection was too slow: come back. */
  tryAgainLater: 1013,
  /** The same device connected again elsewhere: do not fight for the connection. */
  replaced: 4001,
} as const;

export type ErrorCode =
  | "bad_frame"
  | "auth_failed"
  | "forbidden"
  | "unsupported_frame"
  | "too_big"
  | "device_offline"
  | "auth_required"
  | "internal_error";

/** Additions to protocol v1 that both sides have to name before they are used. */
export type Extension = "accepted" | "partial_edits";

export type AvatarState = "idle" | "thinking" | "speaking";
export type MediaInKind = "image" | "video" | "document" | "audio";
export type MediaOutKind = "image" | "voice" | "video" | "document" | "animation";
export type PromptKind = "exec_approval" | "slash_confirm" | "clarify";
export type VoiceFormat = "wav" | "ogg";

export interface DeviceInfo {
  /** Stable for the life of the installation; becomes the address `mobile:<id>`. No control characters, `:` or `/`. */
  readonly id: string;
  readonly name?: string;
  readonly platform?: string;
  readonly app_version?: string;
}

export interface UserInfo {
  readonly id?: string;
  readonly name?: string;
}

// ---- client -> door -------------------------------------------------------------------------

export interface HelloFrame {
  readonly t: "hello";
  readonly token: string;
  readonly device?: Partial<DeviceInfo>;
  readonly user?: UserInfo;
  readonly supports?: readonly string[];
}

export interface TextFrame {
  readonly t: "text";
  readonly id: string;
  readonly text: string;
}

export interface AudioFrame {
  readonly t: "audio";
  readonly id: string;
  readonly format: VoiceFormat;
  readonly data: string;
  readonly text?: string;
}

export interface MediaInFrame {
  readonly t: "media";
  readonly id: string;
  readonly kind: MediaInKind;
  readonly mime?: string;
  readonly filename?: string;
  readonly caption?: string;
  readonly data: string;
  readonly part?: number;
  readonly parts?: number;
}

export interface PromptAnswerFrame {
  readonly t: "prompt";
  readonly prompt_id: string;
  readonly option_id?: string;
  readonly text?: string;
}

export interface UserTypingFrame {
  readonly t: "typing";
}

export interface PingFrame {
  readonly t: "ping";
  readonly ts?: number | string;
}

export interface AckFrame {
  readonly t: "ack";
  readonly id: string;
}

export interface DeliverFrame {
  readonly t: "deliver";
  readonly id: string;
  readonly target?: string;
  readonly text?: string;
  readonly media?: {
    readonly kind: string;
    readonly mime?: string;
    readonly filename?: string;
    readonly data: string;
  };
}

export type ClientFrame =
  | HelloFrame
  | TextFrame
  | AudioFrame
  | MediaInFrame
  | PromptAnswerFrame
  | UserTypingFrame
  | PingFrame
  | AckFrame
  | DeliverFrame;

// ---- door -> client -------------------------------------------------------------------------

export interface Capabilities {
  readonly text?: boolean;
  readonly voice?: boolean;
  readonly typing?: boolean;
  readonly avatar_states?: readonly string[];
  readonly media_in?: readonly string[];
  readonly media_out?: readonly string[];
  readonly prompts?: readonly string[];
  readonly edit?: boolean;
  readonly max_media_bytes?: number;
  readonly max_text_chars?: number;
  /** The additions the door will use on this connection, out of those `hello.supports` named. */
  readonly extensions?: readonly string[];
}

export interface ReadyFrame {
  readonly t: "ready";
  readonly v: number;
  readonly session: string;
  readonly device: { readonly id: string; readonly name?: string };
  readonly avatar_url: string;
  readonly capabilities: Capabilities;
}

export interface MessageFrame {
  readonly t: "message";
  readonly id: string;
  readonly text: string;
  readonly chunk: { readonly index: number; readonly total: number };
  readonly final: boolean;
  readonly edit?: boolean;
  readonly reply_to?: string;
}

export interface MediaOutFrame {
  readonly t: "media";
  readonly id: string;
  readonly kind: string;
  readonly mime: string;
  readonly filename: string;
  readonly caption?: string;
  readonly part: number;
  readonly parts: number;
  readonly final: boolean;
  readonly size: number;
  readonly data?: string;
  readonly url?: string;
  readonly reply_to?: string;
}

export interface PromptOption {
  readonly id: string;
  readonly label: string;
  readonly style?: string;
}

export interface PromptFrame {
  readonly t: "prompt";
  readonly id: string;
  readonly kind: string;
  readonly text: string;
  readonly options: readonly PromptOption[];
  readonly command?: string;
  readonly description?: string;
  readonly session: string;
  readonly timeout_seconds: number;
}

export interface PromptDoneFrame {
  readonly t: "prompt_done";
  readonly id: string;
  readonly option_id?: string;
  readonly expired?: boolean;
}

export interface AvatarFrame {
  readonly t: "avatar";
  readonly state: string;
}

export interface AgentTypingFrame {
  readonly t: "typing";
  readonly stop?: boolean;
}

export interface PongFrame {
  readonly t: "pong";
  readonly ts?: unknown;
}

export interface ErrorFrame {
  readonly t: "error";
  readonly code: string;
  readonly message: string;
  readonly fatal: boolean;
  /** Id of the frame that was refused, where the door knows it. */
  readonly id?: string;
}

/** Extension `accepted`: the agent has taken the text, voice or file with this id. */
export interface AcceptedFrame {
  readonly t: "accepted";
  readonly id: string;
}

export type ServerFrame =
  | ReadyFrame
  | MessageFrame
  | MediaOutFrame
  | PromptFrame
  | PromptDoneFrame
  | AvatarFrame
  | AgentTypingFrame
  | PongFrame
  | ErrorFrame
  | AcceptedFrame;

/** A frame whose type this version does not know. It is handed on untouched, never an error. */
export interface UnknownFrame {
  readonly t: string;
  readonly [field: string]: unknown;
}
