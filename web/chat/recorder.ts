/** Records the microphone; the result is always WAV or OGG, whatever the browser records. */
import { toWav } from "./wav.ts";

/** What fits into 8 MiB: four minutes as WAV; OGG takes a sixth of that. */
const LONGEST_WAV = 4 * 60_000;
const LONGEST_OGG = 20 * 60_000;
const OGG = "audio/ogg;codecs=opus";
const WEBM = "audio/webm;codecs=opus";
/** How often the recorder hands over what it has, in milliseconds. */
const SLICE = 200;
/** The first bytes are the container's head, with no sound in it. */
const HEAD_BYTES = 256;
/** A recorder that was only just started, or on a busy machine, has not heard anything yet. */
const FIRST_SOUND = 10_000;

export class Recording {
  /** Milliseconds it may last; it ends by itself then. */
  readonly longest: number;
  readonly startedAt = Date.now();
  readonly #stream: MediaStream;
  readonly #recorder: MediaRecorder;
  readonly #chunks: Blob[] = [];
  readonly #stopped: Promise<void>;
  readonly #heard: Promise<void>;
  readonly #timer: ReturnType<typeof setTimeout>;

  private constructor(stream: MediaStream, ended: () => void) {
    const mimeType = [OGG, WEBM].find((type) => MediaRecorder.isTypeSupported(type));
    this.longest = mimeType === OGG ? LONGEST_OGG : LONGEST_WAV;
    this.#stream = stream;
    this.#recorder = new MediaRecorder(stream, {
      audioBitsPerSecond: 32_000,
      ...(mimeType === undefined ? {} : { mimeType }),
    });
    this.#heard = new Promise((resolve) => {
      let size = 0;
      this.#recorder.ondataavailable = ({ data }) => {
        if (data.size === 0) return;
        this.#chunks.push(data);
        size += data.size;
        if (size >= HEAD_BYTES) resolve();
      };
      // Other containers are not certain to be whole in pieces: there, a moment has to do.
      if (mimeType === undefined) setTimeout(resolve, SLICE);
    });
    this.#stopped = new Promise((resolve) => {
      this.#recorder.onstop = () => {
        resolve();
      };
    });
    this.#timer = setTimeout(ended, this.longest);
    this.#recorder.start(mimeType === undefined ? undefined : SLICE);
  }

  /**
   * @param ended called when it has lasted as long as it may
   * @throws DOMException if there is no microphone or it is not allowed
   */
  static async start(ended: () => void): Promise<Recording> {
    const stream = await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: true, noiseSuppression: true, channelCount: 1 },
    });
    return new Recording(stream, ended);
  }

  /** Ends the recording and gives it as WAV or OGG. */
  async finish(): Promise<Blob> {
    clearTimeout(this.#timer);
    await Promise.race([
      this.#heard,
      this.#stopped,
      new Promise((resolve) => setTimeout(resolve, FIRST_SOUND)),
    ]);
    this.#end();
    await this.#stopped;
    const type = this.#recorder.mimeType;
    const recorded = new Blob(this.#chunks, { type });
    if (recorded.size === 0) throw new Error("The recording is empty.");
    return type.startsWith("audio/ogg") ? recorded : toWav(recorded);
  }

  /** Ends the recording and throws it away. */
  discard(): void {
    this.#end();
    this.#chunks.length = 0;
  }

  #end(): void {
    clearTimeout(this.#timer);
    if (this.#recorder.state !== "inactive") this.#recorder.stop();
    // The browser shows a red light as long as a track lives.
    for (const track of this.#stream.getTracks()) track.stop();
  }
}

/** Whether this page may record at all; pages without https may not. */
export function canRecord(): boolean {
  return (
    typeof MediaRecorder === "function" &&
    typeof OfflineAudioContext === "function" &&
    (navigator as Partial<Navigator>).mediaDevices !== undefined
  );
}
