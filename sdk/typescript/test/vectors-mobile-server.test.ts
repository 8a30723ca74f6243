/** What a client has after the door's frames, from the contract's vectors. */
import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { AgentMedia } from "../src/events.ts";
import { parseServerFrame } from "../src/frames.ts";
import { settle } from "./support/fake-clock.ts";
import { makeBench, readyFrame, type Bench } from "./support/fake-door.ts";
import { expanded, vectorNames, vectors } from "./support/vectors.ts";

interface ServerVector {
  readonly name: string;
  readonly extensions?: readonly string[];
  readonly frames: readonly Readonly<Record<string, unknown>>[];
  readonly expect: Readonly<Record<string, unknown>>;
}

interface VectorFile {
  readonly direction: string;
  readonly vectors: readonly ServerVector[];
}

const FILES = vectorNames("mobile-v1")
  .map((name) => [name, vectors("mobile-v1", name) as VectorFile] as const)
  .filter(([, file]) => file.direction === "server");

test("There are vectors for messages, files and the rest.", () => {
  expect(FILES.length).toBeGreaterThanOrEqual(3);
});

describe.each(FILES)("%s", (_name, file) => {
  test.each(file.vectors.map((each) => [each.name, each] as const))(
    "%s",
    async (_title, vector) => {
      const bench = makeBench({ supports: vector.extensions ?? [] });
      bench.client.connect();
      await settle();
      const socket = bench.door.last;
      socket.open();
      if (vector.frames[0]?.["t"] !== "ready") socket.tell(readyFrame(vector.extensions ?? []));
      const taken = vector.frames.filter((frame) => frame["t"] === "accepted");
      for (const id of new Set(taken.map((frame) => frame["id"] as string))) {
        bench.client.sendText("hello", { id });
      }
      await settle();
      for (const frame of vector.frames) {
        if (typeof frame["$raw"] === "string") socket.tellRaw(frame["$raw"]);
        else socket.tell(expanded(frame) as Record<string, unknown>);
      }
      await settle();

      for (const [what, expected] of Object.entries(vector.expect)) {
        expect({ [what]: await found(bench, what, vector) }).toMatchObject({
          [what]: expanded(expected),
        });
      }
    },
  );
});

/** What the client has, in the words of the vectors. */
async function found(bench: Bench, what: string, vector: ServerVector): Promise<unknown> {
  switch (what) {
    case "messages": {
      const newest = new Map(bench.values("message").map((message) => [message.id, message]));
      return [...newest.values()].map(({ id, text, final }) => ({ id, text, final }));
    }
    case "files":
      return Promise.all(bench.values("media").map(fileOf));
    case "cards":
      return cardsOf(bench);
    case "ready": {
      const ready = bench.values("ready")[0];
      return {
        session: ready?.session,
        device: ready?.device.id,
        avatar_url: ready?.avatarUrl,
        extensions: ready?.capabilities.extensions ?? [],
      };
    }
    case "errors":
      return bench.values("error").map(({ code, fatal, id }) => ({ code, fatal, id: id ?? null }));
    case "accepted": {
      const states = bench.values("outbox").filter(({ state }) => state === "accepted");
      // The second one finds nothing left to accept.
      expect(bench.client.pending()).toEqual([]);
      return states.flatMap(({ id }) =>
        vector.frames.map((frame) => frame["id"]).filter((each) => each === id),
      );
    }
    case "pongs":
      return vector.frames.map((frame) => {
        const parsed = parseServerFrame(JSON.stringify(frame));
        return parsed.kind === "frame" && parsed.frame.t === "pong"
          ? (parsed.frame.ts ?? null)
          : parsed;
      });
    case "avatar":
      return bench.client.avatar;
    case "typing":
      return bench.client.agentTyping;
    case "unknown":
      return bench.values("unknown").length;
    case "bad":
      return bench.values("warning").filter(({ code }) => code === "bad_server_frame").length;
    default:
      throw new Error(`a word of the vectors that this test does not know: ${what}`);
  }
}

async function fileOf(media: AgentMedia): Promise<object> {
  const bytes = media.blob === undefined ? undefined : Buffer.from(await media.blob.arrayBuffer());
  return {
    ...media,
    reply_to: media.replyTo,
    sha256: bytes === undefined ? undefined : createHash("sha256").update(bytes).digest("hex"),
  };
}

function cardsOf(bench: Bench): object {
  const cards = new Map(bench.values("prompt").map((card) => [card.id, card]));
  return [...cards.values()].map((card) => {
    const outcome = bench.values("promptDone").find(({ id }) => id === card.id);
    return {
      ...card,
      options: card.options.map(({ id }) => id),
      timeout_seconds: (card.deadline - bench.clock.now()) / 1000,
      open: bench.client.cards().some(({ id }) => id === card.id),
      option_id: outcome?.optionId ?? null,
      expired: outcome?.expired,
    };
  });
}
