/** Random ids; also where `crypto.randomUUID` is missing (plain http pages, React Native). */

interface Randomness {
  randomUUID?(): string;
  getRandomValues?(array: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer>;
}

export function randomId(): string {
  const source = (globalThis as { crypto?: Randomness }).crypto;
  if (source?.randomUUID !== undefined) return source.randomUUID();
  const bytes = new Uint8Array(16);
  if (source?.getRandomValues !== undefined) source.getRandomValues(bytes);
  // An id has to differ, not to be secret, so this is enough where there is nothing better.
  else for (let at = 0; at < bytes.length; at += 1) bytes[at] = Math.floor(Math.random() * 256);
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
