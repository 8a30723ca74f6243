/** Every reason for which the device-door client itself refuses or gives something up. */
export type HermesErrorCode =
  | "bad_argument"
  | "bad_url"
  | "too_big"
  | "unsupported_format"
  | "unreadable"
  | "outbox_full"
  | "aborted"
  | "discarded"
  | "stopped"
  | "storage_failed"
  | "no_websocket"
  /** Codes the door itself answers with (see `ErrorCode`) arrive unchanged. */
  | (string & {});

/** An error of the device door or of its client. `code` is stable; `message` is for people. */
export class HermesError extends Error {
  override readonly name = "HermesError";
  readonly code: HermesErrorCode;

  constructor(code: HermesErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
