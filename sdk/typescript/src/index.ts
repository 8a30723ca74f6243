/** Public surface of `@hermes-mobile/client`. Pinned by `test/exports.test.ts`. */
export { HermesClient } from "./client.ts";
export type { FileOptions, SendOptions, UploadOptions, VoiceOptions } from "./sending.ts";
export type { FileData } from "./attachment.ts";
export type { CardAnswer } from "./cards.ts";
export type { Clock } from "./clock.ts";
export { HermesError } from "./errors.ts";
export type { HermesErrorCode } from "./errors.ts";
export type {
  AgentMedia,
  AgentMediaFailure,
  AgentMediaProgress,
  AgentMessage,
  Card,
  CardOutcome,
  ConnectionState,
  DoorError,
  HermesEvents,
  Outgoing,
  OutgoingItem,
  OutgoingKind,
  OutgoingState,
  ReadyInfo,
  StopReason,
  UploadProgress,
  Warning,
} from "./events.ts";
export type {
  HermesClientOptions,
  Timing,
  WebSocketConstructor,
  WebSocketLike,
} from "./options.ts";
export { pagePresence } from "./presence.ts";
export type { Presence } from "./presence.ts";
export { randomId } from "./id.ts";
export { indexedDbStorage, keyValueStorage, memoryStorage } from "./storage.ts";
export type { KeyValueStore, OutboxContent, OutboxRecord, OutboxStorage } from "./storage.ts";
export { checkClientFrame, parseServerFrame } from "./frames.ts";
export type { FrameProblem, ParsedFrame } from "./frames.ts";
export * from "./protocol.ts";

export { HermesPanelClient } from "./panel.ts";
export type {
  CallOptions,
  HermesPanelClientOptions,
  RunRequest,
  StartOptions,
  WatchOptions,
} from "./panel.ts";
export { PanelError } from "./panel-error.ts";
export type { PanelErrorCode } from "./panel-error.ts";
export type { RunUpdate } from "./run-stream.ts";
export { SseDecoder } from "./sse.ts";
export type { SseEvent } from "./sse.ts";
export * from "./contract.ts";
