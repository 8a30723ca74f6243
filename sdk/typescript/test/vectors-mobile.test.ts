/** The device door's vectors, as far as they concern a client. */
import { describe, expect, test } from "vitest";
import { checkClientFrame } from "../src/frames.ts";
import { expanded, vectorNames, vectors } from "./support/vectors.ts";

interface ClientVector {
  readonly name: string;
  readonly state: string;
  readonly frame?: unknown;
  readonly raw?: unknown;
  readonly binary?: unknown;
  readonly expect: Readonly<Record<string, unknown>>;
}

interface VectorFile {
  readonly direction: string;
  readonly vectors: readonly ClientVector[];
}

const FILES = vectorNames("mobile-v1").map(
  (name) => [name, vectors("mobile-v1", name) as VectorFile] as const,
);
/** Something that only the written form shows, and that no client writes. */
const ON_THE_WIRE_ONLY = Symbol("on the wire only");
const NO_JSON = Symbol("no JSON");
/** What a frame itself decides; the other codes depend on who sends it. */
const OF_THE_FRAME = ["bad_frame", "too_big", "unsupported_frame"];

const OF_CLIENTS = FILES.filter(([, file]) => file.direction === "client");

test("There are vectors for every frame a client sends.", () => {
  expect(OF_CLIENTS.length).toBeGreaterThanOrEqual(8);
});

describe.each(OF_CLIENTS)("%s", (_name, file) => {
  const rows = file.vectors.flatMap((vector) => {
    const frame = frameOf(vector);
    return frame === ON_THE_WIRE_ONLY ? [] : [[vector.name, frame, vector] as const];
  });

  test.each(rows)("%s", (_title, frame, vector) => {
    const error = vector.expect["error"] as { readonly code: string } | undefined;
    const verdict = frame === NO_JSON ? "bad_frame" : checkClientFrame(frame)?.code;

    if (error === undefined) expect(verdict).toBeUndefined();
    else if (OF_THE_FRAME.includes(error.code)) expect(verdict).toBe(error.code);
  });
});

/** The same vectors say whether the client's own way of sending would have let the frame pass. */
function frameOf(vector: ClientVector): unknown {
  if (vector.binary !== undefined) return ON_THE_WIRE_ONLY;
  let frame = expanded(vector.frame);
  if (vector.raw !== undefined) {
    const raw = expanded(vector.raw) as string;
    try {
      frame = JSON.parse(raw);
      if (JSON.stringify(frame) !== raw.replace(/(?<=[:,]) /g, "")) return ON_THE_WIRE_ONLY;
    } catch {
      return NO_JSON;
    }
  }
  // Whether a hello comes first or second is a matter of the connection, not of the frame.
  const hello = String((frame as { readonly t?: unknown } | null)?.t).toLowerCase() === "hello";
  const first = vector.state === "before_hello";
  const t = typeof (frame as { readonly t?: unknown } | null)?.t === "string";
  return t && hello !== first ? ON_THE_WIRE_ONLY : frame;
}
