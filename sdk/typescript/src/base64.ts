/** Base64 without `btoa` or `Buffer`, which React Native and browsers do not all have. */

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const CODES = Uint8Array.from(ALPHABET, (character) => character.charCodeAt(0));
const PADDING = 61; // "="
const INVALID = 255;
const VALUES = new Uint8Array(256).fill(INVALID);
CODES.forEach((code, value) => {
  VALUES[code] = value;
});

/** Characters built at once; `String.fromCharCode` has an argument limit. */
const SLICE = 0x2000;

/** Standard padded base64 of `bytes`. */
export function bytesToBase64(bytes: Uint8Array): string {
  const whole = bytes.length - (bytes.length % 3);
  const characters = new Uint8Array(Math.ceil(bytes.length / 3) * 4);
  let out = 0;
  for (let at = 0; at < whole; at += 3) {
    const group = (bytes[at]! << 16) | (bytes[at + 1]! << 8) | bytes[at + 2]!;
    characters[out++] = CODES[group >> 18]!;
    characters[out++] = CODES[(group >> 12) & 63]!;
    characters[out++] = CODES[(group >> 6) & 63]!;
    characters[out++] = CODES[group & 63]!;
  }
  const rest = bytes.length - whole;
  if (rest > 0) {
    const group = (bytes[whole]! << 16) | ((bytes[whole + 1] ?? 0) << 8);
    characters[out++] = CODES[group >> 18]!;
    characters[out++] = CODES[(group >> 12) & 63]!;
    characters[out++] = rest === 2 ? CODES[(group >> 6) & 63]! : PADDING;
    characters[out] = PADDING;
  }
  if (typeof TextDecoder !== "undefined") return new TextDecoder().decode(characters);
  let text = "";
  for (let at = 0; at < characters.length; at += SLICE) {
    text += String.fromCharCode(...characters.subarray(at, at + SLICE));
  }
  return text;
}

/**
 * The bytes of standard padded base64.
 *
 * @throws RangeError for anything outside the alphabet, wrong padding or a wrong length.
 */
export function base64ToBytes(text: string): Uint8Array<ArrayBuffer> {
  if (text.length % 4 !== 0) throw new RangeError("base64 text whose length is no multiple of 4");
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const end = text.length - padding;
  const bytes = new Uint8Array((text.length / 4) * 3 - padding);
  let out = 0;
  for (let at = 0; at < text.length; at += 4) {
    let group = 0;
    for (let offset = 0; offset < 4; offset += 1) {
      const position = at + offset;
      const code = text.charCodeAt(position);
      const value = position >= end ? 0 : code < 256 ? (VALUES[code] ?? INVALID) : INVALID;
      if (value === INVALID) throw new RangeError(`no base64 character at position ${position}`);
      group = (group << 6) | value;
    }
    if (out < bytes.length) bytes[out++] = (group >> 16) & 255;
    if (out < bytes.length) bytes[out++] = (group >> 8) & 255;
    if (out < bytes.length) bytes[out++] = group & 255;
  }
  return bytes;
}

/** Number of bytes that padded base64 text of this length stands for, without decoding it. */
export function decodedLength(text: string): number {
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  return Math.floor(text.length / 4) * 3 - padding;
}
