import { expect, test } from "vitest";
import { base64ToBytes, bytesToBase64, decodedLength } from "../src/base64.ts";

function noise(length: number): Uint8Array {
  let state = 12345 + length;
  return Uint8Array.from({ length }, () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return (state >> 16) & 255;
  });
}

test("Text and bytes agree with another implementation, whatever the length.", () => {
  for (const length of [0, 1, 2, 3, 4, 5, 255, 256, 257, 8191, 8192, 8193, 100_001]) {
    const bytes = noise(length);
    const text = bytesToBase64(bytes);

    expect(text).toBe(Buffer.from(bytes).toString("base64"));
    expect(Buffer.from(base64ToBytes(text)).equals(Buffer.from(bytes))).toBe(true);
    expect(decodedLength(text)).toBe(length);
  }
});

test("A view into a larger buffer gives its own bytes only.", () => {
  expect(bytesToBase64(Uint8Array.from([9, 77, 97, 110, 9]).subarray(1, 4))).toBe("TWFu");
});

test.each(["A", "AAA", "A===", "AA=A", "AA-_", "AA\n=", "ÀAAA", "AAAA AAA", "=AAA", "===="])(
  "%j is no standard padded base64.",
  (text) => {
    expect(() => base64ToBytes(text)).toThrow(RangeError);
  },
);
