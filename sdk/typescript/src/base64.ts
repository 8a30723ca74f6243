/** Base64 without `btoa` or `Buffer`, which React Native and browsers do not all have. */

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const CODES = Uint8Array.from(ALPHABET, (character) => character.charCodeAt(0));
const INVALID = 255;
const VALUES = new Uint8Array(256).fill(INVALID);
CODES.forEach((code, value) => {
  VALUES[code] = value;
});

/** Characters built at once; `String.fromCharCode` has an argument limit. A multiple of 4. */
const SLICE = 0x2000;

/** Standard padded base64 of `bytes`. */
export function bytesToBase64(bytes: Uint8Array): string {
  const characters = new Uint8Array(Math.ceil(bytes.length / 3) * 4);
  let out = 0;
  for (let at = 0; at < bytes.length; at += 3) {
    const first = bytes[at] ?? 0;
    const second = bytes[at + 1] ?? 0;
    const third = bytes[at + 2] ?? 0;
    characters[out++] = CODES[first >> 2] ?? 0;
    characters[out++] = CODES[((first & 3) << 4) | (second >> 4)] ?? 0;
    characters[out++] = CODES[((second & 15) << 2) | (third >> 6)] ?? 0;
    characters[out++] = CODES[third & 63] ?? 0;
  }
  const padding = (3 - (bytes.length % 3)) % 3;
  for (let at = 1; at <= padding; at += 1) characters[characters.length - at] = 61; // "="
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
