/** What an app hands over (Blob, File, bytes) -> what the outbox keeps. */
import { base64ToBytes } from "./base64.ts";
import { HermesError } from "./errors.ts";
import { wellFormed } from "./frames.ts";
import { MAX_FILENAME_CHARS, type MediaInKind, type VoiceFormat } from "./protocol.ts";

/** Bytes of a file: a `Blob` or `File`, or the bytes themselves (React Native, Node). */
export type FileData = Blob | Uint8Array | ArrayBuffer;

export function sizeOfData(data: FileData): number {
  return isBlob(data) ? data.size : data.byteLength;
}

export function typeOfData(data: FileData): string {
  return isBlob(data) ? data.type : "";
}

export function nameOfData(data: FileData): string | undefined {
  const name = (data as { name?: unknown }).name;
  return typeof name === "string" && name !== "" ? name : undefined;
}

function isBlob(data: FileData): data is Blob {
  return !(data instanceof ArrayBuffer) && !ArrayBuffer.isView(data);
}

/**
 * A copy of the bytes: what is sent again after a restart must be what was sent before it, also if
 * the file changed or the caller reuses the buffer.
 *
 * @throws HermesError `unreadable`
 */
export async function readBytes(data: FileData): Promise<Uint8Array<ArrayBuffer>> {
  if (data instanceof ArrayBuffer) return new Uint8Array(data.slice(0));
  if (ArrayBuffer.isView(data)) return new Uint8Array(data);
  try {
    return typeof data.arrayBuffer === "function"
      ? new Uint8Array(await data.arrayBuffer())
      : await readAsDataUrl(data);
  } catch (error) {
    throw new HermesError(
      "unreadable",
      "The file could not be read; it may have been moved or deleted.",
      {
        cause: error,
      },
    );
  }
}

/** React Native's Blob has no `arrayBuffer`, and its `FileReader` gives nothing but a data URL. */
function readAsDataUrl(data: Blob): Promise<Uint8Array<ArrayBuffer>> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onerror = () => {
      reject(reader.error ?? new Error("The file could not be read."));
    };
    reader.onload = () => {
      try {
        const url = String(reader.result);
        resolve(base64ToBytes(url.slice(url.indexOf(",") + 1)));
      } catch (error) {
        reject(error as Error);
      }
    };
    reader.readAsDataURL(data);
  });
}

export function mediaKindOf(mime: string): MediaInKind {
  const [major] = mime.toLowerCase().split("/");
  return major === "image" || major === "video" || major === "audio" ? major : "document";
}

/** What the bytes are, whatever they are called: the agent takes WAV and OGG recordings only. */
export function voiceFormatOf(bytes: Uint8Array): VoiceFormat | undefined {
  const text = (from: number): string => String.fromCharCode(...bytes.subarray(from, from + 4));
  if (text(0) === "OggS") return "ogg";
  return text(0) === "RIFF" && text(8) === "WAVE" ? "wav" : undefined;
}

/** The last component without control characters, at most 200 characters, its extension kept. */
export function cleanFilename(name: string): string {
  const last = wellFormed(name).split(/[/\\]/).at(-1) ?? "";
  // eslint-disable-next-line no-control-regex -- control characters are what is removed
  const characters = [...last.replace(/[\u0000-\u001F\u007F-\u009F]/g, "").trim()];
  if (characters.length <= MAX_FILENAME_CHARS) return characters.join("");
  const dot = characters.lastIndexOf(".");
  const extension = dot > 0 && characters.length - dot <= 20 ? characters.slice(dot) : [];
  return [...characters.slice(0, MAX_FILENAME_CHARS - extension.length), ...extension].join("");
}
