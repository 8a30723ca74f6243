import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import * as api from "../src/index.ts";

test("The public values are these and no others.", () => {
  expect(Object.keys(api).sort()).toEqual([
    "CloseCode",
    "DEDUP_WINDOW",
    "DEFAULT_CHUNK_LIMIT",
    "DEFAULT_PANEL_BASE",
    "DEFAULT_PROMPT_TTL",
    "HELLO_TIMEOUT",
    "HermesClient",
    "HermesError",
    "HermesPanelClient",
    "MAX_AUDIO_BYTES",
    "MAX_DEVICE_CHARS",
    "MAX_FILENAME_CHARS",
    "MAX_FRAME_BYTES",
    "MAX_ID_CHARS",
    "MAX_MEDIA_BYTES",
    "MAX_MEDIA_PARTS",
    "MAX_OPEN_UPLOADS",
    "MAX_TEXT_CHARS",
    "MAX_UPLOAD_BUFFER_BYTES",
    "MEDIA_CHUNK_BYTES",
    "MIN_MEDIA_CHUNK_BYTES",
    "PROTOCOL_VERSION",
    "PanelError",
    "RUN_END_EVENTS",
    "SseDecoder",
    "checkClientFrame",
    "indexedDbStorage",
    "isRunEvent",
    "keyValueStorage",
    "memoryStorage",
    "pagePresence",
    "parseServerFrame",
    "randomId",
  ]);
});

test("The package depends on nothing at run time and carries no download addresses.", () => {
  const read = (name: string): Record<string, unknown> =>
    JSON.parse(readFileSync(new URL(`../${name}`, import.meta.url), "utf8")) as Record<
      string,
      unknown
    >;
  const manifest = read("package.json");
  for (const field of ["dependencies", "peerDependencies", "optionalDependencies"]) {
    expect(manifest[field]).toBeUndefined();
  }
  expect(JSON.stringify(read("package-lock.json"))).not.toContain('"resolved"');
});
