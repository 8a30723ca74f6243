/** Errors of the browser door, with the code to act on and the traceId to report. */
import type { PanelWireCode } from "./contract.ts";

export type PanelErrorCode =
  | PanelWireCode
  /** The request did not reach the proxy, or its answer did not reach the page. */
  | "network"
  /** Something answered that is not the proxy (a page of a server in between, say). */
  | "bad_answer"
  /** No attempt to reach the run's events succeeded in the time given. */
  | "stream_lost"
  /** Codes of a newer proxy arrive unchanged. */
  | (string & {});

export interface PanelErrorDetails {
  readonly code: PanelErrorCode;
  readonly message: string;
  /** HTTP status; 0 if there was no answer. */
  readonly status: number;
  readonly traceId?: string | undefined;
  readonly requestId?: string | undefined;
  /** When to ask again, in milliseconds from now, where the proxy said so. */
  readonly retryAfter?: number | undefined;
  readonly cause?: unknown;
}

export class PanelError extends Error {
  override readonly name = "PanelError";
  readonly code: PanelErrorCode;
  readonly status: number;
  readonly traceId: string | undefined;
  readonly requestId: string | undefined;
  readonly retryAfter: number | undefined;

  constructor(details: PanelErrorDetails) {
    super(details.message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = details.code;
    this.status = details.status;
    this.traceId = details.traceId;
    this.requestId = details.requestId;
    this.retryAfter = details.retryAfter;
  }

  /** Asking again later may help; nothing has to be changed first. */
  get transient(): boolean {
    return (
      this.status === 429 ||
      this.code === "network" ||
      this.code === "hermes_client_upstream_unavailable" ||
      (this.code === "bad_answer" && this.status >= 500)
    );
  }
}

/**
 * The error an HTTP answer stands for, whatever its body is.
 *
 * @param traceId of the request, where the answer names none
 */
export async function errorOfResponse(response: Response, traceId: string): Promise<PanelError> {
  const body = (await response.json().catch(() => undefined)) as unknown;
  const field = (name: string): string | undefined => {
    const value = (body as Record<string, unknown> | null | undefined)?.[name];
    return typeof value === "string" && value !== "" ? value : undefined;
  };
  const code = field("code");
  const ours = code !== undefined && field("message") !== undefined;
  return new PanelError({
    code: ours ? code : "bad_answer",
    message: ours
      ? (field("message") ?? "")
      : `The server answered ${response.status} in a form that is not the Hermes proxy's.`,
    status: response.status,
    traceId: field("traceId") ?? response.headers.get("x-trace-id") ?? traceId,
    requestId: field("requestId") ?? response.headers.get("x-request-id") ?? undefined,
    retryAfter: retryAfterOf(response.headers.get("retry-after")),
  });
}

function retryAfterOf(header: string | null): number | undefined {
  if (header === null) return undefined;
  if (/^\d+$/.test(header.trim())) return Number(header) * 1000;
  const date = Date.parse(header);
  return Number.isNaN(date) ? undefined : Math.max(0, date - Date.now());
}
