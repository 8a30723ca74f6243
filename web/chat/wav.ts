/** Sound -> WAV, which every agent can read. */

/** 16 kHz mono is what speech recognition works with; 8 MiB hold four minutes of it. */
export const WAV_RATE = 16_000;
const HEADER_BYTES = 44;

/** One channel of samples (-1 to 1) as 16-bit PCM. */
export function wavOf(samples: Float32Array, rate: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(HEADER_BYTES + samples.length * 2);
  const view = new DataView(bytes.buffer);
  const text = (at: number, value: string): void => {
    for (let index = 0; index < value.length; index += 1) {
      bytes[at + index] = value.charCodeAt(index);
    }
  };
  text(0, "RIFF");
  view.setUint32(4, bytes.length - 8, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, samples.length * 2, true);
  samples.forEach((sample, index) => {
    const bounded = Math.max(-1, Math.min(1, sample));
    view.setInt16(HEADER_BYTES + index * 2, Math.round(bounded * 0x7fff), true);
  });
  return bytes;
}

/** Whatever the browser itself can play -> WAV, mixed to one channel. */
export async function toWav(recording: Blob): Promise<Blob> {
  const decoder = new OfflineAudioContext(1, 1, WAV_RATE);
  const decoded = await decoder.decodeAudioData(await recording.arrayBuffer());
  const length = Math.max(1, Math.ceil(decoded.duration * WAV_RATE));
  const mixer = new OfflineAudioContext(1, length, WAV_RATE);
  const source = mixer.createBufferSource();
  source.buffer = decoded;
  source.connect(mixer.destination);
  source.start();
  const mixed = await mixer.startRendering();
  return new Blob([wavOf(mixed.getChannelData(0), WAV_RATE)], { type: "audio/wav" });
}
