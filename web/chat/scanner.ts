/** Reads a QR code from the camera or from a picture. Loaded only when it is needed. */
import jsQR from "jsqr";

/** Larger pictures are read smaller: a code fills enough of them. */
const LONGEST_SIDE = 1_200;

/** The text of the code in a picture; undefined if there is none. */
export async function readPicture(file: Blob): Promise<string | undefined> {
  const picture = await createImageBitmap(file);
  try {
    return readFrame(picture, picture.width, picture.height);
  } finally {
    picture.close();
  }
}

/**
 * Shows the camera in `video` and waits for a code.
 *
 * @throws DOMException if there is no camera or it is not allowed; the signal's reason if it aborts
 */
export async function readCamera(video: HTMLVideoElement, signal: AbortSignal): Promise<string> {
  const stream = await navigator.mediaDevices.getUserMedia({
    video: { facingMode: "environment" },
  });
  try {
    signal.throwIfAborted();
    video.srcObject = stream;
    await video.play();
    for (;;) {
      signal.throwIfAborted();
      if (video.videoWidth > 0) {
        const text = readFrame(video, video.videoWidth, video.videoHeight);
        if (text !== undefined) return text;
      }
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
  } finally {
    for (const track of stream.getTracks()) track.stop();
    video.srcObject = null;
  }
}

function readFrame(source: CanvasImageSource, width: number, height: number): string | undefined {
  const scale = Math.min(1, LONGEST_SIDE / Math.max(width, height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (context === null) return undefined;
  context.drawImage(source, 0, 0, canvas.width, canvas.height);
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height);
  const text = jsQR(pixels.data, pixels.width, pixels.height)?.data;
  return text === undefined || text === "" ? undefined : text;
}
