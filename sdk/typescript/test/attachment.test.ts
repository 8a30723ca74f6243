import { afterEach, expect, test, vi } from "vitest";
import { cleanFilename, mediaKindOf, readBytes, voiceFormatOf } from "../src/attachment.ts";

afterEach(() => {
  vi.unstubAllGlobals();
});

test("Bytes come out of everything an app may hand over.", async () => {
  const bytes = Uint8Array.from([0, 77, 97, 110, 0]);
  for (const data of [new Blob(["Man"]), bytes.subarray(1, 4), bytes.slice(1, 4).buffer]) {
    expect(Buffer.from(await readBytes(data)).toString()).toBe("Man");
  }
});

test("A Blob without `arrayBuffer`, as on React Native, is read by its FileReader.", async () => {
  class DataUrlReader {
    result = "";
    error: Error | null = null;
    onload: (() => void) | undefined;
    onerror: (() => void) | undefined;

    readAsDataURL(blob: { readonly url: string }): void {
      this.result = blob.url;
      if (blob.url === "") this.onerror?.();
      else this.onload?.();
    }
  }
  vi.stubGlobal("FileReader", DataUrlReader);
  const blob = (url: string): Blob => ({ size: 3, type: "", url }) as unknown as Blob;

  expect(Buffer.from(await readBytes(blob("data:text/plain;base64,TWFu"))).toString()).toBe("Man");
  await expect(readBytes(blob(""))).rejects.toMatchObject({ code: "unreadable" });
  await expect(readBytes(blob("data:;base64,*"))).rejects.toMatchObject({ code: "unreadable" });
});

test.each([
  ["image/png", "image"],
  ["Video/mp4", "video"],
  ["audio/ogg; codecs=opus", "audio"],
  ["application/pdf", "document"],
  ["", "document"],
])("%j is a %s.", (mime, kind) => {
  expect(mediaKindOf(mime)).toBe(kind);
});

test("Recordings are known by their bytes.", () => {
  expect(voiceFormatOf(Buffer.from("RIFF....WAVEfmt "))).toBe("wav");
  expect(voiceFormatOf(Buffer.from("OggS"))).toBe("ogg");
  expect(voiceFormatOf(Buffer.from("RIFF....AVI "))).toBeUndefined();
  expect(voiceFormatOf(Buffer.from("\x1aE\xdf\xa3", "latin1"))).toBeUndefined();
  expect(voiceFormatOf(new Uint8Array(0))).toBeUndefined();
});

test.each([
  ["a.txt", "a.txt"],
  ["../../etc/passwd", "passwd"],
  ["C:\\Users\\me\\a.txt", "a.txt"],
  ["a\u0000b\n.txt", "ab.txt"],
  ["x".repeat(300) + ".tar", "x".repeat(196) + ".tar"],
  ["😀".repeat(300), "😀".repeat(200)],
  ["half \uD83D.txt", "half \uFFFD.txt"],
  ["folder/", ""],
])("The filename %j becomes %j.", (given, expected) => {
  expect(cleanFilename(given)).toBe(expected);
});
