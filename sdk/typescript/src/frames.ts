/** Wire text <-> frames: what the client reads is checked here, and so is what it is about to send. */
import {
  MAX_AUDIO_BYTES,
  MAX_MEDIA_BYTES,
  MAX_MEDIA_PARTS,
  MAX_TEXT_CHARS,
  type ClientFrame,
  type ErrorCode,
  type ServerFrame,
  type UnknownFrame,
} from "./protocol.ts";
import { decodedLength } from "./base64.ts";

export type ParsedFrame =
  | { readonly kind: "frame"; readonly frame: ServerFrame }
  | { readonly kind: "unknown"; readonly frame: UnknownFrame }
  | { readonly kind: "bad"; readonly problem: string };

type Shape = "string" | "boolean" | "count" | "number" | "object" | "array" | "any";
/** A trailing `?` marks a field that may be missing or null. */
type Rule = Shape | `${Shape}?`;
type Rules = Readonly<Record<string, Rule>>;

const SERVER_RULES: { readonly [T in ServerFrame["t"]]: Rules } = {
  ready: {
    v: "count",
    session: "string",
    device: "object",
    avatar_url: "string?",
    capabilities: "object?",
  },
  message: {
    id: "string",
    text: "string",
    chunk: "object",
    final: "boolean",
    edit: "boolean?",
    reply_to: "string?",
  },
  media: {
    id: "string",
    kind: "string",
    mime: "string",
    filename: "string",
    caption: "string?",
    part: "count",
    parts: "count",
    final: "boolean",
    size: "count",
    data: "string?",
    url: "string?",
    reply_to: "string?",
  },
  prompt: {
    id: "string",
    kind: "string",
    text: "string",
    options: "array",
    command: "string?",
    description: "string?",
    session: "string?",
    timeout_seconds: "number",
  },
  prompt_done: { id: "string", option_id: "string?", expired: "boolean?" },
  avatar: { state: "string" },
  typing: { stop: "boolean?" },
  pong: { ts: "any?" },
  error: { code: "string", message: "string?", fatal: "boolean?", id: "string?" },
  accepted: { id: "string" },
};

function hasShape(value: unknown, shape: string): boolean {
  switch (shape) {
    case "count":
      return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
    case "number":
      return typeof value === "number" && Number.isFinite(value);
    case "object":
      return isObject(value);
    case "array":
      return Array.isArray(value);
    case "any":
      return true;
    default:
      return typeof value === shape;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Reads one text message of the door.
 *
 * `null` in an optional field is the same as its absence; fields nobody knows stay in the frame.
 * A frame of an unknown type is handed on as it came. A known frame with a wrong field is `bad`:
 * it is to be skipped, the connection goes on.
 */
export function parseServerFrame(text: string): ParsedFrame {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { kind: "bad", problem: "a message that is no JSON" };
  }
  if (!isObject(value)) return { kind: "bad", problem: "a message that is no JSON object" };
  const named = value["t"];
  if (typeof named !== "string") return { kind: "bad", problem: "a frame without a type `t`" };
  const t = named.toLowerCase();
  if (!Object.hasOwn(SERVER_RULES, t)) {
    return { kind: "unknown", frame: value as UnknownFrame };
  }
  const frame: Record<string, unknown> = { ...value, t };
  for (const [field, rule] of Object.entries(SERVER_RULES[t as ServerFrame["t"]])) {
    const optional = rule.endsWith("?");
    const found = frame[field];
    if (optional && (found === undefined || found === null)) {
      delete frame[field];
    } else if (!hasShape(found, optional ? rule.slice(0, -1) : rule)) {
      return {
        kind: "bad",
        problem: `a \`${t}\` frame whose \`${field}\` is missing or of a wrong type`,
      };
    }
  }
  const problem = INNER_CHECKS[t as ServerFrame["t"]]?.(frame);
  if (problem !== undefined) return { kind: "bad", problem };
  return { kind: "frame", frame: frame as unknown as ServerFrame };
}

/** What the table cannot say: nested fields, and defaults the rest of the client relies on. */
const INNER_CHECKS: {
  readonly [T in ServerFrame["t"]]?: (frame: Record<string, unknown>) => string | undefined;
} = {
  ready(frame) {
    frame["avatar_url"] ??= "";
    frame["capabilities"] ??= {};
    return typeof (frame["device"] as Record<string, unknown>)["id"] === "string"
      ? undefined
      : "a `ready` frame whose `device.id` is missing or of a wrong type";
  },
  message(frame) {
    const { index, total } = frame["chunk"] as Record<string, unknown>;
    const sound =
      hasShape(index, "count") && hasShape(total, "count") && (index as number) < (total as number);
    return sound ? undefined : "a `message` frame whose `chunk` does not name one of its parts";
  },
  media(frame) {
    const parts = frame["parts"] as number;
    if ((frame["part"] as number) >= parts || parts > MAX_MEDIA_PARTS) {
      return "a `media` frame whose `part` and `parts` do not agree";
    }
    return frame["data"] === undefined && frame["url"] === undefined
      ? "a `media` frame with neither `data` nor `url`"
      : undefined;
  },
  prompt(frame) {
    const sound = (frame["options"] as unknown[]).every(
      (option) =>
        isObject(option) && typeof option["id"] === "string" && typeof option["label"] === "string",
    );
    frame["session"] ??= "";
    return sound ? undefined : "a `prompt` frame with an option that lacks `id` or `label`";
  },
  error(frame) {
    frame["message"] ??= "";
    frame["fatal"] ??= false;
    return undefined;
  },
};

/** What `deliver` can carry: the kinds a device is shown, and `audio`, which becomes `voice`. */
const DELIVERED_KINDS = ["image", "voice", "video", "document", "animation", "audio"];
/** Largest `ts` of a `ping`, in bytes as JSON. */
const MAX_TS_BYTES = 1024;

/** Why a client frame would be refused: the code the door answers with, and the reason. */
export interface FrameProblem {
  readonly code: ErrorCode;
  readonly message: string;
}

/** Number of Unicode characters (code points), as the door counts them. */
export function countCharacters(text: string): number {
  let count = 0;
  for (const _character of text) count += 1;
  return count;
}

/** A lone half of a surrogate pair is no Unicode text and the door refuses it: replaced by U+FFFD. */
export function wellFormed(text: string): string {
  // With the flag `u` a whole pair is one character, so only lone halves match.
  return text.replace(/[\uD800-\uDFFF]/gu, "\uFFFD");
}

// Without a repeated group, whose backtracking would overflow on megabytes; the length is checked apart.
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;

/**
 * Checks a client frame by the door's rules, before it is sent.
 *
 * @returns the first problem, or `undefined` for a frame the door would read
 */
export function checkClientFrame(value: unknown): FrameProblem | undefined {
  if (!isObject(value)) return bad("a frame is a JSON object");
  if (typeof value["t"] !== "string") return bad("`t` is missing or no string");
  const t = value["t"].toLowerCase();
  // An unknown type is ignored by the door, so it is no problem.
  if (!Object.hasOwn(CLIENT_CHECKS, t)) return undefined;
  return CLIENT_CHECKS[t as ClientFrame["t"]](withoutNulls(value));
}

type Check = (frame: Record<string, unknown>) => FrameProblem | undefined;

const CLIENT_CHECKS: { readonly [T in ClientFrame["t"]]: Check } = {
  hello(frame) {
    const { token, device, user, supports } = frame;
    if (token !== undefined && typeof token !== "string") return bad("`token` is no string");
    if (token === undefined || token === "") {
      return { code: "auth_failed", message: "`token` is missing or empty" };
    }
    const strings = (found: unknown): boolean =>
      found === undefined ||
      (isObject(found) &&
        ["id", "name", "platform", "app_version"].every(
          (field) => (found[field] ?? undefined) === undefined || typeof found[field] === "string",
        ));
    if (!strings(device)) return bad("`device` holds something that is no string");
    if (!strings(user)) return bad("`user` holds something that is no string");
    const id = (device as Record<string, unknown> | undefined)?.["id"];
    if (typeof id === "string" && hasForbiddenDeviceCharacter(id)) {
      return bad("`device.id` must not hold control characters, `:` or `/`");
    }
    const named =
      supports === undefined ||
      (Array.isArray(supports) && supports.every((name) => typeof name === "string"));
    return named ? undefined : bad("`supports` is no list of strings");
  },
  text: (frame) => checkId(frame) ?? checkText(frame, "text", true),
  audio(frame) {
    const problem = checkId(frame);
    if (problem !== undefined) return problem;
    if (typeof frame["format"] !== "string") return bad("`format` is missing or no string");
    if (!["wav", "ogg"].includes(frame["format"])) {
      return { code: "unsupported_frame", message: "`format` is neither `wav` nor `ogg`" };
    }
    return checkText(frame, "text", false) ?? checkData(frame, MAX_AUDIO_BYTES);
  },
  media(frame) {
    const problem = checkId(frame);
    if (problem !== undefined) return problem;
    if (typeof frame["kind"] !== "string") return bad("`kind` is missing or no string");
    if (!["image", "video", "document", "audio"].includes(frame["kind"])) {
      return {
        code: "unsupported_frame",
        message: "`kind` is none of image, video, document, audio",
      };
    }
    const names = checkNames(frame);
    if (names !== undefined) return names;
    const part = frame["part"] ?? 0;
    const parts = frame["parts"] ?? 1;
    if (!Number.isInteger(parts) || (parts as number) < 1 || (parts as number) > MAX_MEDIA_PARTS) {
      return bad("`parts` is no whole number from 1 to 2048");
    }
    if (!Number.isInteger(part) || (part as number) < 0 || (part as number) >= (parts as number)) {
      return bad("`part` is no whole number below `parts`");
    }
    return checkText(frame, "caption", false) ?? checkData(frame, MAX_MEDIA_BYTES);
  },
  prompt(frame) {
    if (!isText(frame["prompt_id"]) || frame["prompt_id"] === "") {
      return bad("`prompt_id` is missing or empty");
    }
    const given = [frame["option_id"], frame["text"]];
    if (given.some((value) => value !== undefined && !isText(value))) {
      return bad("`option_id` or `text` is no text");
    }
    const problem = checkText(frame, "text", false);
    if (problem !== undefined) return problem;
    return given.some((value) => typeof value === "string" && value.trim() !== "")
      ? undefined
      : bad("one of `option_id` and `text` must be given");
  },
  typing: () => undefined,
  ping(frame) {
    const ts = JSON.stringify(frame["ts"] ?? null);
    if (utf8Length(ts) > MAX_TS_BYTES) return bad("`ts` is longer than 1024 bytes");
    // JSON writes what is no Unicode text as an escape.
    return /\\u[dD][89a-fA-F]/.test(ts) ? bad("`ts` holds half of a surrogate pair") : undefined;
  },
  ack: () => undefined,
  deliver(frame) {
    const problem = checkId(frame);
    if (problem !== undefined) return problem;
    if (frame["text"] === undefined && frame["media"] === undefined) {
      return bad("one of `text` and `media` must be given");
    }
    const { target, media } = frame;
    if (target !== undefined && (!isText(target) || !isTarget(target))) {
      return bad("`target` is no device: write its id, with or without `mobile:` before it");
    }
    if (media !== undefined) {
      if (!isObject(media)) return bad("`media` is no object");
      const file = withoutNulls(media);
      if (typeof file["kind"] !== "string") return bad("`media.kind` is missing or no string");
      if (!DELIVERED_KINDS.includes(file["kind"])) {
        const message = `\`media.kind\` is none of ${DELIVERED_KINDS.join(", ")}`;
        return { code: "unsupported_frame", message };
      }
      const inner =
        checkNames(file) ?? checkText(file, "caption", false) ?? checkData(file, MAX_MEDIA_BYTES);
      if (inner !== undefined) return inner;
    }
    return checkText(frame, "text", media === undefined);
  },
};

function bad(message: string): FrameProblem {
  return { code: "bad_frame", message };
}

/** Control, format and separator characters: invisible, and a device id becomes part of addresses. */
const INVISIBLE =
  // eslint-disable-next-line no-control-regex, no-misleading-character-class -- they are what is looked for
  /[\u0000-\u001F\u007F-\u009F\u00AD\u0600-\u0605\u061C\u06DD\u070F\u08E2\u180E\u200B-\u200F\u2028-\u202E\u2060-\u206F\uFEFF\uFFF9-\uFFFB]/;

export function hasForbiddenDeviceCharacter(id: string): boolean {
  return INVISIBLE.test(id) || /[:/]/.test(id) || wellFormed(id) !== id;
}

function isText(value: unknown): value is string {
  return typeof value === "string" && wellFormed(value) === value;
}

function isTarget(target: string): boolean {
  return !hasForbiddenDeviceCharacter(target.replace(/^mobile:/, ""));
}

function withoutNulls(value: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).filter(([, found]) => found !== null));
}

function utf8Length(text: string): number {
  let length = 0;
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    length += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  }
  return length;
}

function checkId(frame: Record<string, unknown>): FrameProblem | undefined {
  return isText(frame["id"]) && frame["id"] !== "" ? undefined : bad("`id` is missing or empty");
}

function checkNames(frame: Record<string, unknown>): FrameProblem | undefined {
  const odd = ["mime", "filename"].find(
    (field) => frame[field] !== undefined && !isText(frame[field]),
  );
  return odd === undefined ? undefined : bad(`\`${odd}\` is no text`);
}

function checkText(
  frame: Record<string, unknown>,
  field: string,
  required: boolean,
): FrameProblem | undefined {
  const text = frame[field];
  if (text === undefined && !required) return undefined;
  if (typeof text !== "string") return bad(`\`${field}\` is missing or no string`);
  if (wellFormed(text) !== text) return bad(`\`${field}\` holds half of a surrogate pair`);
  if (countCharacters(text) > MAX_TEXT_CHARS) {
    const message = `\`${field}\` is longer than ${MAX_TEXT_CHARS} characters`;
    return { code: "too_big", message };
  }
  return required && text.trim() === "" ? bad(`\`${field}\` is empty`) : undefined;
}

function checkData(frame: Record<string, unknown>, limit: number): FrameProblem | undefined {
  const data = frame["data"];
  if (typeof data !== "string" || data === "") return bad("`data` is missing or empty");
  if (decodedLength(data) > limit) {
    return { code: "too_big", message: `\`data\` is larger than ${limit} bytes` };
  }
  return data.length % 4 === 0 && BASE64.test(data)
    ? undefined
    : bad("`data` is no standard padded base64");
}
