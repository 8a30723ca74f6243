/** The vocabulary of the browser door: "Hermes client proxy contract v1" as it stands on the wire. */

export const DEFAULT_PANEL_BASE = "/api/hermes/client";

/** Codes of the error body; a newer proxy may send others. */
export type PanelWireCode =
  | "hermes_client_unauthorized"
  | "hermes_client_unconfigured"
  | "hermes_client_bad_request"
  | "hermes_client_upstream_unauthorized"
  | "hermes_client_upstream_rate_limited"
  | "hermes_client_upstream_unavailable"
  | "hermes_client_forbidden"
  | "hermes_client_not_found"
  | "hermes_client_conflict"
  | "hermes_client_too_large"
  | "hermes_client_rate_limited";

export interface SessionSummary {
  readonly sessionId: string;
  readonly title: string;
  readonly preview: string;
  readonly messageCount: number | null;
  readonly toolCallCount: number | null;
  /** Whole epoch seconds. */
  readonly updatedAt: number | null;
  readonly model: string;
}

export interface SessionList {
  readonly ok: true;
  readonly traceId: string;
  readonly sessions: readonly SessionSummary[];
}

export interface SessionCreated {
  readonly ok: true;
  readonly sessionId: string;
  readonly traceId: string;
  /** `hermes_on_first_run`: the session exists in Hermes once its first run has started. */
  readonly persistence: string;
}

export interface SessionMessage {
  readonly messageId: string;
  readonly role: string;
  readonly content: string;
  readonly toolCallId: string | null;
  readonly toolName: string | null;
  readonly timestamp: number | null;
  readonly reasoning: string | null;
}

/** Token counts; `null` is unknown, never zero. */
export interface Usage {
  readonly inputTokens: number | null;
  readonly outputTokens: number | null;
  readonly totalTokens: number | null;
}

export interface SessionDetail {
  readonly ok: true;
  readonly sessionId: string;
  readonly traceId: string;
  readonly messages: readonly SessionMessage[];
  readonly usage: Usage;
}

export interface RunStarted {
  readonly ok: true;
  readonly sessionId: string;
  readonly runId: string;
  readonly messageId: string | null;
  readonly events: readonly RunEvent[];
  readonly traceId: string;
}

export interface RunAborted {
  readonly ok: true;
  readonly runId: string;
  readonly sessionId: string;
  readonly traceId: string;
  readonly events: readonly RunEvent[];
}

export type ApprovalChoice = "once" | "session" | "always" | "deny";

export interface ApprovalAnswered {
  readonly ok: true;
  readonly runId: string;
  readonly sessionId: string;
  readonly traceId: string;
  readonly approvalId: string;
  readonly choice: string;
  /** How many waiting requests the answer settled, as Hermes tells it. */
  readonly resolved: number;
}

export interface Model {
  readonly id: string;
  readonly label: string;
  readonly provider: string;
}

export interface ModelList {
  readonly ok: true;
  readonly traceId: string;
  readonly defaultModel: string;
  readonly models: readonly Model[];
}

export interface Tool {
  readonly name: string;
  readonly scope: string;
  readonly schemaVersion: string;
}

export interface ToolList {
  readonly ok: true;
  readonly traceId: string;
  readonly tools: readonly Tool[];
}

export interface ProxyHealth {
  readonly ok: true;
  readonly traceId: string;
  readonly version: string;
  readonly configured: boolean;
  /** `ok`, `unauthorized`, `unavailable` or `unconfigured`. */
  readonly upstream: string;
  /** `replayable` for the newer run interface of Hermes, `basic` for the older one; null if unknown. */
  readonly runInterface: string | null;
  readonly runningRuns: number;
  readonly openStreams: number;
}

export interface ErrorBody {
  readonly ok: false;
  readonly code: string;
  readonly message: string;
  readonly traceId: string;
  readonly requestId: string;
}

// ---- events of a run ------------------------------------------------------------------------

interface EventBase {
  readonly run_id: string;
  readonly session_id?: string;
  readonly timestamp?: number;
}

export interface MessageDelta extends EventBase {
  readonly event: "message.delta";
  readonly delta: string;
}

export interface ToolStarted extends EventBase {
  readonly event: "tool.started";
  readonly tool: string;
  readonly preview?: string | null;
}

export interface ToolCompleted extends EventBase {
  readonly event: "tool.completed";
  readonly tool: string;
  /** Seconds. */
  readonly duration?: number | null;
  readonly error?: unknown;
}

export interface ReasoningAvailable extends EventBase {
  readonly event: "reasoning.available";
  readonly text: string;
}

export interface ApprovalRequest extends EventBase {
  readonly event: "approval.request";
  /** Give this back with the answer; an answer to another id resolves nothing. */
  readonly approvalId: string;
  readonly command?: string;
  readonly description?: string;
  readonly choices?: readonly string[];
}

export interface ApprovalResponded extends EventBase {
  readonly event: "approval.responded";
  readonly approvalId?: string;
  readonly choice?: string;
}

export interface WireUsage {
  readonly input_tokens: number | null;
  readonly output_tokens: number | null;
  readonly total_tokens: number | null;
}

export interface RunCompleted extends EventBase {
  readonly event: "run.completed";
  readonly output: string;
  readonly usage?: WireUsage | null;
}

export interface RunFailed extends EventBase {
  readonly event: "run.failed";
  readonly error: string;
}

export interface RunCancelled extends EventBase {
  readonly event: "run.cancelled";
}

export interface RunInterrupted extends EventBase {
  readonly event: "run.interrupted";
  readonly error?: string;
}

export interface ReplayTruncated extends EventBase {
  readonly event: "replay.truncated";
  /** Number of the first event that can still be seen. */
  readonly from?: number;
}

export interface ProxyClosing {
  readonly event: "proxy.closing";
  readonly run_id?: string;
  readonly session_id?: string;
}

export interface AbortStarted extends EventBase {
  readonly event: "abort.started";
}

export type KnownRunEvent =
  | MessageDelta
  | ToolStarted
  | ToolCompleted
  | ReasoningAvailable
  | ApprovalRequest
  | ApprovalResponded
  | RunCompleted
  | RunFailed
  | RunCancelled
  | RunInterrupted
  | ReplayTruncated
  | ProxyClosing
  | AbortStarted;

/** An event of a kind this version does not know, untouched. */
export interface UnknownRunEvent {
  readonly event: string;
  readonly run_id?: string;
  readonly session_id?: string;
  readonly [field: string]: unknown;
}

export type RunEvent = KnownRunEvent | UnknownRunEvent;

/** Events after which a run sends nothing more. */
export const RUN_END_EVENTS: ReadonlySet<string> = new Set([
  "run.completed",
  "run.failed",
  "run.cancelled",
  "run.interrupted",
]);

/** Narrows a run event to the known kind of that name. */
export function isRunEvent<Name extends KnownRunEvent["event"]>(
  event: RunEvent,
  name: Name,
): event is Extract<KnownRunEvent, { readonly event: Name }> {
  return event.event === name;
}
