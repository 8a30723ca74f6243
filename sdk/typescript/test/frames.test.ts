import { expect, test } from "vitest";
import { checkClientFrame, countCharacters, parseServerFrame, wellFormed } from "../src/frames.ts";
import { readyFrame } from "./support/fake-door.ts";

const MESSAGE = { t: "message", id: "m1", text: "Hi", chunk: { index: 0, total: 1 }, final: true };
const MEDIA = {
  t: "media",
  id: "f1",
  kind: "image",
  mime: "image/png",
  filename: "a.png",
  part: 0,
  parts: 1,
  final: true,
  size: 3,
  data: "TWFu",
};
const PROMPT = {
  t: "prompt",
  id: "p1",
  kind: "clarify",
  text: "Which?",
  options: [{ id: "c0", label: "A", style: "" }],
  session: "mobile:tel-1",
  timeout_seconds: 300,
};

test("Each known frame is read; null is absence, unknown fields stay, the type's case does not matter.", () => {
  for (const frame of [
    readyFrame(),
    MESSAGE,
    MEDIA,
    PROMPT,
    { t: "prompt_done", id: "p1" },
    { t: "avatar", state: "idle" },
    { t: "typing" },
    { t: "pong", ts: 1.5 },
    { t: "error", code: "too_big", message: "x", fatal: false },
    { t: "accepted", id: "a" },
  ]) {
    expect(parseServerFrame(JSON.stringify(frame))).toMatchObject({ kind: "frame", frame });
  }
  expect(
    parseServerFrame(
      '{"t":"MESSAGE","id":"m","text":"","chunk":{"index":0,"total":1},"final":true,"edit":null,"new":[1]}',
    ),
  ).toEqual({
    kind: "frame",
    frame: {
      t: "message",
      id: "m",
      text: "",
      chunk: { index: 0, total: 1 },
      final: true,
      new: [1],
    },
  });
});

test("A frame of an unknown type is handed on as it came.", () => {
  const frame = { t: "Hologram", depth: null };

  expect(parseServerFrame(JSON.stringify(frame))).toEqual({ kind: "unknown", frame });
  expect(parseServerFrame('{"t":"constructor"}').kind).toBe("unknown");
  expect(parseServerFrame('{"t":"__proto__"}').kind).toBe("unknown");
});

test.each([
  "",
  "no json",
  "[]",
  "null",
  '"text"',
  "{}",
  '{"t":5}',
  JSON.stringify({ ...MESSAGE, id: undefined }),
  JSON.stringify({ ...MESSAGE, text: null }),
  JSON.stringify({ ...MESSAGE, final: "yes" }),
  JSON.stringify({ ...MESSAGE, chunk: null }),
  JSON.stringify({ ...MESSAGE, chunk: { index: 1, total: 1 } }),
  JSON.stringify({ ...MESSAGE, chunk: { index: -1, total: 1 } }),
  JSON.stringify({ ...MESSAGE, chunk: { index: 0.5, total: 1 } }),
  JSON.stringify({ ...MEDIA, data: null }),
  JSON.stringify({ ...MEDIA, part: 1 }),
  JSON.stringify({ ...MEDIA, part: 0, parts: 9999 }),
  JSON.stringify({ ...MEDIA, size: -1 }),
  JSON.stringify({ ...PROMPT, options: [{ id: "c0" }] }),
  JSON.stringify({ ...PROMPT, options: [null] }),
  JSON.stringify({ ...readyFrame(), device: {} }),
])("%s is bad and no more than that.", (text) => {
  expect(parseServerFrame(text).kind).toBe("bad");
});

test.each([
  [{ t: "text", id: "1", text: "hi" }, undefined],
  [{ t: "TEXT", id: "1", text: "hi" }, undefined],
  [{ t: "text", id: "1", text: "😀".repeat(12_000) }, undefined],
  [{ t: "text", id: "1", text: "😀".repeat(12_001) }, "too_big"],
  [{ t: "text", id: "1", text: " \n" }, "bad_frame"],
  [{ t: "text", id: "1", text: "\uD83D" }, "bad_frame"],
  [{ t: "text", text: "hi" }, "bad_frame"],
  [{ t: "audio", id: "1", format: "wav", data: "TWFu", text: null }, undefined],
  [{ t: "audio", id: "1", format: "mp3", data: "TWFu" }, "unsupported_frame"],
  [{ t: "audio", id: "1", format: "wav", data: "" }, "bad_frame"],
  [{ t: "audio", id: "1", format: "wav", data: "TW-u" }, "bad_frame"],
  [{ t: "media", id: "1", kind: "image", data: "TWFu" }, undefined],
  [{ t: "media", id: "1", kind: "voice", data: "TWFu" }, "unsupported_frame"],
  [{ t: "media", id: "1", kind: "image", data: "TWFu", part: 1, parts: 1 }, "bad_frame"],
  [{ t: "media", id: "1", kind: "image", data: "TWFu", part: 0, parts: 2049 }, "bad_frame"],
  [{ t: "media", id: "1", kind: "image", data: "TWFu", part: true, parts: 2 }, "bad_frame"],
  [{ t: "media", id: "1", kind: "image", data: "A".repeat(11_184_816) }, "too_big"],
  [{ t: "prompt", prompt_id: "p", option_id: "once" }, undefined],
  [{ t: "prompt", prompt_id: "p", option_id: "", text: "mine" }, undefined],
  [{ t: "prompt", prompt_id: "p" }, "bad_frame"],
  [{ t: "prompt", option_id: "once" }, "bad_frame"],
  [{ t: "ack", id: 7 }, undefined],
  [{ t: "ping", ts: 1 }, undefined],
  [{ t: "hologram" }, undefined],
  [{ t: 5 }, "bad_frame"],
  [[], "bad_frame"],
  [{ t: "hello", token: "x", device: { id: "a/b" } }, "bad_frame"],
  [{ t: "hello", token: "x", device: { id: 5 } }, "bad_frame"],
  [{ t: "hello", token: "" }, "auth_failed"],
  [{ t: "deliver", id: "d", text: "hi" }, undefined],
  [{ t: "deliver", id: "d" }, "bad_frame"],
])("Client frame %#: checked by the door's rules.", (frame, code) => {
  expect(checkClientFrame(frame)?.code).toBe(code);
});

test("Characters are counted as the door counts them, and lone surrogates are replaced.", () => {
  expect(countCharacters("a😀é")).toBe(3);
  expect(wellFormed("a\uD83Db\uDE00c😀")).toBe("a\uFFFDb\uFFFDc😀");
});
