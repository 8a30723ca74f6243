import { expect, test } from "vitest";
import { SseDecoder, type SseEvent } from "../src/sse.ts";

function decode(pieces: readonly Uint8Array[]): { events: SseEvent[]; decoder: SseDecoder } {
  const decoder = new SseDecoder();
  return { events: pieces.flatMap((piece) => decoder.push(piece)), decoder };
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

test.each<[string, readonly Partial<SseEvent>[]]>([
  ["data: a\n\n", [{ event: "message", data: "a", lastEventId: "" }]],
  ["data:a\ndata:  b\n\n", [{ data: "a\n b" }]],
  ["data\n\n", [{ data: "" }]],
  ["data:\ndata:\n\n", [{ data: "\n" }]],
  [
    "event: heartbeat\ndata: {}\n\ndata: x\n\n",
    [{ event: "heartbeat" }, { event: "message", data: "x" }],
  ],
  ["event: lost\n\ndata: x\n\n", [{ event: "message", data: "x" }]],
  [
    "id: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
    [{ lastEventId: "7" }, { lastEventId: "7" }, { lastEventId: "" }],
  ],
  ["id: 7\nid: 8\u0000\ndata: a\n\n", [{ lastEventId: "7" }]],
  [": comment\n:\n\n", []],
  ["unknown: x\ndata: a\nfoo\n\n", [{ data: "a" }]],
  ["data: cut off\n", []],
  ["\uFEFFdata: bom\n\n", [{ data: "bom" }]],
  ["data: \uFEFFkept\n\n", [{ data: "\uFEFFkept" }]],
  ["data: a\r\rdata: b\r\n\r\ndata: c\n\n", [{ data: "a" }, { data: "b" }, { data: "c" }]],
  ["data: a\n\r\ndata: b\r\r\n", [{ data: "a" }, { data: "b" }]],
  ["data: 当前页 😀\n\n", [{ data: "当前页 😀" }]],
])("%j", (text, expected) => {
  expect(decode([bytes(text)]).events).toMatchObject(expected);
});

test("Any split of the bytes gives the same events.", () => {
  const text =
    "\uFEFF: hello\r\nretry: 1500\r\n\r\nid: a:1\rdata: 当前页\rdata: 😀\r\revent: heartbeat\ndata: {}\n\n" +
    'id: a:2\r\ndata: {"x":"é"}\r\n\r\n\r\nevent: tick\r\ndata: 1\r\ndata: 2\r\n\r\ndata\n\ndata: end';
  const all = bytes(text);
  const whole = decode([all]);
  expect(whole.events).toHaveLength(5);

  for (let first = 0; first <= all.length; first += 1) {
    for (let second = first; second <= all.length; second += 7) {
      const pieces = [all.subarray(0, first), all.subarray(first, second), all.subarray(second)];
      expect(decode(pieces).events).toEqual(whole.events);
    }
  }
  const single = decode(Array.from(all, (_, index) => all.subarray(index, index + 1)));

  expect(single.events).toEqual(whole.events);
  expect(single.decoder.retry).toBe(1500);
  expect(single.decoder.lastEventId).toBe("a:2");
});

test("Bytes that are no UTF-8 become replacement characters and end nothing.", () => {
  const { events } = decode([Uint8Array.from([...bytes("data: "), 0xff, 0xe5, ...bytes("x\n\n")])]);

  expect(events[0]?.data).toBe("\uFFFD\uFFFDx");
});

test("retry takes whole numbers only.", () => {
  const { decoder } = decode([bytes("retry: 1e3\nretry: -5\nretry:\n\n")]);

  expect(decoder.retry).toBeUndefined();
});

test("An event without an end is not collected without end.", () => {
  const decoder = new SseDecoder();
  const piece = bytes("x".repeat(1024 * 1024));
  decoder.push(bytes("data: "));

  expect(() => {
    for (let count = 0; count < 20; count += 1) decoder.push(piece);
  }).toThrow(RangeError);
});
