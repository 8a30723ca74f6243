/**
 * The connection code that an owner shows as a QR code: JSON and no link, so that a token in it never
 * ends in an address bar, a history or a log.
 *
 *     {"hermes_mobile":1,"url":"wss://agent.example.com/ws","token":"…","name":"Home","device":"tel-1"}
 */
export interface ConnectionCode {
  readonly url: string;
  readonly token: string;
  readonly name: string;
  /** The device id the token is bound to; empty if it is bound to none. */
  readonly device: string;
}

/** Undefined for whatever is no connection code. A bare `ws://` or `wss://` address is one without a token. */
export function readConnectionCode(text: string): ConnectionCode | undefined {
  const trimmed = text.trim();
  if (/^wss?:\/\/[^\s?#@]+$/i.test(trimmed)) {
    return { url: trimmed, token: "", name: "", device: "" };
  }
  let value: unknown;
  try {
    value = JSON.parse(trimmed);
  } catch {
    return undefined;
  }
  if (typeof value !== "object" || value === null) return undefined;
  const code = value as Record<string, unknown>;
  const field = (name: string): string => {
    const found = code[name];
    return typeof found === "string" ? found.trim() : "";
  };
  if (typeof code["hermes_mobile"] !== "number" || field("url") === "") return undefined;
  return { url: field("url"), token: field("token"), name: field("name"), device: field("device") };
}
