import { expect, test } from "vitest";
import type { OutgoingItem } from "../src/events.ts";
import {
  keyValueStorage,
  memoryStorage,
  type KeyValueStore,
  type OutboxStorage,
} from "../src/storage.ts";
import { FakeClock, settle } from "./support/fake-clock.ts";
import { makeBench, type Frame } from "./support/fake-door.ts";

const MIB = 1024 * 1024;

const states = (items: readonly OutgoingItem[]): string[] =>
  items.map((item) => `${item.id} ${item.state}`);
const ids = (frames: readonly Frame[]): unknown[] => frames.map((frame) => frame["id"]);

function bytesOf(frames: readonly Frame[]): Buffer {
  return Buffer.concat(frames.map((frame) => Buffer.from(frame["data"] as string, "base64")));
}

function wav(length = 64): Uint8Array {
  const bytes = new Uint8Array(length);
  bytes.set(Buffer.from("RIFF0000WAVE"));
  return bytes;
}

function patterned(length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  for (let index = 0; index < length; index += 1) bytes[index] = index * 31 + (index >> 8);
  return bytes;
}

// ---- texts ------------------------------------------------------------------------------------

test("A text written before the connection stands goes out in order and is done when accepted.", async () => {
  const bench = makeBench();
  const first = bench.client.sendText("one");
  bench.client.sendText("two");
  const socket = await bench.ready();

  expect(socket.sent("text")).toEqual([
    { t: "text", id: "id-1", text: "one" },
    { t: "text", id: "id-2", text: "two" },
  ]);
  expect(bench.client.pending().map((item) => item.state)).toEqual(["sent", "sent"]);

  socket.tell({ t: "accepted", id: "id-1" });
  await first.accepted;

  expect(ids(bench.client.pending() as never)).toEqual(["id-2"]);
  expect(states(bench.values("outbox"))).toEqual([
    "id-1 queued",
    "id-2 queued",
    "id-1 sent",
    "id-2 sent",
    "id-1 accepted",
  ]);
});

test("What was not accepted is sent again under its id on the next connection, and only that.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  bench.client.sendText("one");
  bench.client.sendText("two");
  await settle();
  socket.tell({ t: "accepted", id: "id-1" });
  socket.closeWith(1006);
  bench.client.sendText("three");
  const again = await reconnect(bench);

  expect(ids(again.sent("text"))).toEqual(["id-2", "id-3"]);
});

async function reconnect(bench: ReturnType<typeof makeBench>, extensions?: readonly string[]) {
  await bench.clock.advance(1000);
  return bench.ready(extensions);
}

test("On a living connection an item without an answer is sent again under its id, others are not.", async () => {
  const bench = makeBench({ timing: { pingAfter: 3_600_000 } });
  const socket = await bench.ready();
  const first = bench.client.sendText("one");
  bench.client.sendText("two");
  await settle();
  socket.tell({ t: "accepted", id: "id-2" });
  await bench.clock.advance(30_000);
  bench.client.sendText("three");
  await bench.clock.advance(29_999);
  expect(ids(socket.sent("text"))).toEqual(["id-1", "id-2", "id-3"]);
  await bench.clock.advance(1);
  expect(ids(socket.sent("text"))).toEqual(["id-1", "id-2", "id-3", "id-1"]);
  await bench.clock.advance(30_000);
  expect(ids(socket.sent("text"))).toEqual(["id-1", "id-2", "id-3", "id-1", "id-3"]);
  for (const id of ["id-1", "id-3"]) socket.tell({ t: "accepted", id });
  await first.accepted;
  await bench.clock.advance(600_000);

  expect(socket.sent("text")).toHaveLength(5);
});

test("What still leaves through a slow line is not late, and not sent twice.", async () => {
  const bench = makeBench({ timing: { pingAfter: 3_600_000 }, uploadPartBytes: 4_096 });
  const socket = await bench.ready();
  socket.slow = true;
  bench.client.sendFile(new Uint8Array(4_096), { filename: "slow.bin" });
  bench.client.sendText("behind the file");
  await settle();
  await bench.clock.advance(1_000);
  expect(socket.sent("text")).toHaveLength(1);
  await bench.clock.advance(150_000); // two and a half minutes on a very slow line
  expect(socket.sent("media")).toHaveLength(1);
  expect(socket.sent("text")).toHaveLength(1);

  socket.bufferedAmount = 0;
  socket.slow = false;
  await bench.clock.advance(54_000); // from now on an answer may be expected
  expect(socket.sent("media")).toHaveLength(1);
  await bench.clock.advance(10_000);
  expect(socket.sent("media")).toHaveLength(2);
  expect(socket.sent("text")).toHaveLength(2);
});

test("A file that has left just now is given its time for an answer.", async () => {
  const bench = makeBench({ timing: { pingAfter: 3_600_000 }, uploadPartBytes: 4_096 });
  const socket = await bench.ready();
  socket.slow = true;
  bench.client.sendFile(new Uint8Array(4_096), { filename: "slow.bin" });
  await settle();
  await bench.clock.advance(58_000);
  socket.bufferedAmount = 0;
  await bench.clock.advance(59_000);
  expect(socket.sent("media")).toHaveLength(1);
  await bench.clock.advance(2_000);
  expect(socket.sent("media")).toHaveLength(2);
});

test("An answer that comes before `send` returns is not missed.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.answer = (frame) => {
    if (frame.t === "text") socket.tell({ t: "accepted", id: frame["id"] });
  };
  const sent = Array.from({ length: 100 }, (_, index) => bench.client.sendText(`text ${index}`));
  await Promise.all(sent.map((outgoing) => outgoing.accepted));

  expect(bench.client.pending()).toEqual([]);
  expect(socket.sent("text")).toHaveLength(100);
});

test("Only so many texts are unconfirmed at once.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  for (let index = 0; index < 50; index += 1) bench.client.sendText("x");
  await settle();
  expect(socket.sent("text")).toHaveLength(32);
  for (const frame of socket.sent("text")) socket.tell({ t: "accepted", id: frame["id"] });
  await settle();

  expect(socket.sent("text")).toHaveLength(50);
});

test("Texts that cannot be sent are refused at the call.", async () => {
  const bench = makeBench();

  expect(() => bench.client.sendText(" \n\t")).toThrow(
    expect.objectContaining({ code: "bad_argument" }),
  );
  expect(() => bench.client.sendText("x".repeat(12_001))).toThrow(
    expect.objectContaining({ code: "too_big" }),
  );
  expect(() => bench.client.sendText("x", { id: "" })).toThrow(
    expect.objectContaining({ code: "bad_argument" }),
  );
  bench.client.sendText("x", { id: "mine" });
  expect(() => bench.client.sendText("y", { id: "mine" })).toThrow(
    expect.objectContaining({ code: "bad_argument" }),
  );
  bench.client.sendText("😀".repeat(12_000));
  bench.client.sendText("half \uD83D pair");
  const socket = await bench.ready();

  expect(socket.sent("text").at(-1)?.["text"]).toBe("half \uFFFD pair");
});

test("The outbox is bounded in items and bytes.", async () => {
  const bench = makeBench({ outboxLimit: { items: 2, bytes: 100 } });
  bench.client.sendText("a");
  bench.client.sendText("b");

  expect(() => bench.client.sendText("c")).toThrow(
    expect.objectContaining({ code: "outbox_full" }),
  );

  bench.client.discard("id-1");

  await expect(bench.client.sendFile(new Uint8Array(200)).accepted).rejects.toMatchObject({
    code: "outbox_full",
  });
  bench.client.sendText("d"); // the refused file holds nobody up
  expect((await bench.ready()).sent("text")).toHaveLength(2);
});

// ---- refusals ---------------------------------------------------------------------------------

test("A refused text fails, stays, and can be sent again under its id or discarded.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  const sent = bench.client.sendText("one");
  await settle();
  socket.tell({ t: "error", code: "bad_frame", message: "odd", fatal: false, id: "id-1" });

  await expect(sent.accepted).rejects.toMatchObject({ code: "bad_frame", message: "odd" });
  expect(bench.client.pending()).toMatchObject([
    { id: "id-1", state: "failed", failure: { code: "bad_frame", message: "odd" } },
  ]);
  expect(bench.values("error")).toEqual([]);

  const retried = bench.client.retry("id-1");
  await settle();
  socket.tell({ t: "accepted", id: "id-1" });
  await retried?.accepted;

  expect(ids(socket.sent("text"))).toEqual(["id-1", "id-1"]);
  expect(bench.client.pending()).toEqual([]);
  expect(bench.client.retry("id-1")).toBeUndefined();
});

test("A failed hand-over is tried again with growing pauses, then fails.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  const sent = bench.client.sendText("one");
  bench.client.sendText("two");
  const refuse = (): void => {
    socket.tell({ t: "error", code: "internal_error", message: "later", fatal: false, id: "id-1" });
  };
  await settle();
  socket.tell({ t: "accepted", id: "id-2" });
  const counts: number[] = [];
  for (const pause of [1_000, 4_000, 15_000]) {
    refuse();
    await bench.clock.advance(pause - 1);
    counts.push(socket.sent("text").length);
    await bench.clock.advance(1);
    counts.push(socket.sent("text").length);
  }
  refuse();

  await expect(sent.accepted).rejects.toMatchObject({ code: "internal_error" });
  expect(counts).toEqual([2, 3, 3, 4, 4, 5]);
});

test("An error about something else is an event and touches no item.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  bench.client.sendText("one");
  await settle();
  socket.tell({ t: "error", code: "bad_frame", message: "odd", fatal: false });
  socket.tell({ t: "error", code: "bad_frame", message: "odd", fatal: false, id: "another" });

  expect(bench.values("error")).toHaveLength(2);
  expect(bench.client.pending()).toMatchObject([{ state: "sent" }]);
});

test("An item the door closes over is blamed for it instead of being sent for ever.", async () => {
  for (const [code, reason] of [
    [1009, ""],
    [1008, "too_big"],
  ] as const) {
    const bench = makeBench();
    const socket = await bench.ready();
    const text = bench.client.sendText("small");
    const file = bench.client.sendFile(new Uint8Array(1000));
    await settle();
    socket.closeWith(code, reason);

    await expect(file.accepted).rejects.toMatchObject({ code: "too_big" });
    const again = await reconnect(bench);
    expect(ids(again.frames.slice(1))).toEqual([text.id]);
  }
});

// ---- a door without `accepted` ----------------------------------------------------------------

test("Without `accepted` a pong behind the item is the receipt, one item at a time.", async () => {
  const bench = makeBench();
  const socket = await bench.ready([]);
  const first = bench.client.sendText("one");
  bench.client.sendText("two");
  await settle();
  expect(socket.frames.slice(1).map((frame) => frame.t)).toEqual(["text", "ping"]);
  socket.tell({ t: "pong", ts: "another ping" });
  expect(bench.client.pending()).toHaveLength(2);
  socket.tell({ t: "pong", ts: socket.sent("ping")[0]?.["ts"] });
  await first.accepted;
  await settle();

  expect(ids(socket.sent("text"))).toEqual(["id-1", "id-2"]);
});

test("Without `accepted` and without an id, an error between an item and its receipt is the item's.", async () => {
  const bench = makeBench();
  const socket = await bench.ready([]);
  const sent = bench.client.sendText("one");
  await settle();
  socket.tell({ t: "error", code: "forbidden", message: "a card", fatal: false });
  socket.tell({ t: "error", code: "too_big", message: "too long", fatal: false });
  socket.tell({ t: "pong", ts: socket.sent("ping")[0]?.["ts"] });

  await expect(sent.accepted).rejects.toMatchObject({ code: "too_big" });
  expect(bench.values("error")).toMatchObject([{ code: "forbidden" }]);
});

test("Without `accepted` a drop before the receipt means sending again.", async () => {
  const bench = makeBench();
  const socket = await bench.ready([]);
  bench.client.sendText("one");
  await settle();
  socket.closeWith(1006);
  const again = await reconnect(bench, []);
  again.tell({
    t: "pong",
    ts: socket.sent("ping")[0]?.["ts"] === again.sent("ping")[0]?.["ts"] ? "" : "receipt-1",
  });

  expect(ids(again.sent("text"))).toEqual(["id-1"]);
  expect(bench.client.pending()).toHaveLength(1);
});

// ---- files ------------------------------------------------------------------------------------

test("A small file is one frame, described by its File.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  bench.client.sendFile(new File([Buffer.from("Man")], "a/b\u0000.txt", { type: "text/plain" }), {
    caption: "Look",
  });
  await settle();

  expect(socket.frames.slice(1)).toEqual([
    {
      t: "media",
      id: "id-1",
      kind: "document",
      mime: "text/plain",
      filename: "b.txt",
      caption: "Look",
      data: "TWFu",
      part: 0,
      parts: 1,
    },
  ]);
});

test("A file of 8 MiB goes in parts of 3 MiB that join to its bytes; one byte more is refused.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  const bytes = patterned(8 * MIB);
  bench.client.sendFile(new Blob([bytes as Uint8Array<ArrayBuffer>], { type: "image/png" }));
  await settle();
  await settle();
  const parts = socket.sent("media");

  expect(parts.map((frame) => [frame["id"], frame["kind"], frame["part"], frame["parts"]])).toEqual(
    [
      ["id-1", "image", 0, 3],
      ["id-1", "image", 1, 3],
      ["id-1", "image", 2, 3],
    ],
  );
  expect(parts.map((frame) => bytesOf([frame]).length)).toEqual([3 * MIB, 3 * MIB, 2 * MIB]);
  expect(bytesOf(parts).equals(Buffer.from(bytes))).toBe(true);
  expect(() => bench.client.sendFile(new Uint8Array(8 * MIB + 1))).toThrow(
    expect.objectContaining({ code: "too_big" }),
  );
  expect(() => bench.client.sendFile(new Uint8Array(0))).toThrow(
    expect.objectContaining({ code: "bad_argument" }),
  );
});

test("A slow line gets the next part only when it has drained, and progress tells the truth.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.slow = true;
  const progress: number[] = [];
  bench.client.sendFile(patterned(7 * MIB), {
    onProgress: ({ sent }) => {
      progress.push(Math.round(sent / MIB));
    },
  });
  await bench.clock.advance(500);
  expect(socket.sent("media")).toHaveLength(1);
  expect(progress.every((sent) => sent === 0)).toBe(true);
  socket.bufferedAmount = 2 * MIB;
  await bench.clock.advance(50);
  expect(progress.at(-1)).toBe(2); // 3 MiB given to the socket, 1.5 of them still in it
  socket.bufferedAmount = 0;
  await bench.clock.advance(50);
  expect(socket.sent("media")).toHaveLength(2);
  socket.bufferedAmount = 0;
  await bench.clock.advance(50);
  expect(socket.sent("media")).toHaveLength(3);
  expect(bench.client.pending()).toMatchObject([{ state: "sent" }]);
  socket.bufferedAmount = 0;
  await bench.clock.advance(50);
  expect(progress.at(-1)).toBe(7);
  socket.tell({ t: "accepted", id: "id-1" });

  expect(bench.client.pending()).toEqual([]);
});

test("Progress never goes back, whatever else waits in the socket.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.slow = true;
  const progress: number[] = [];
  bench.client.sendFile(patterned(7 * MIB), {
    onProgress: ({ sent }) => progress.push(sent),
  });
  for (let part = 1; part <= 3; part += 1) {
    await bench.clock.advance(50);
    expect(socket.sent("media")).toHaveLength(part);
    socket.bufferedAmount = 0; // the next part comes onto this, with its frame around the base64
    await bench.clock.advance(50);
  }
  socket.bufferedAmount = 400; // a ping, texts
  await bench.clock.advance(100);
  socket.bufferedAmount = 0;
  await bench.clock.advance(100);

  expect(progress.at(-1)).toBe(7 * MIB);
  expect([...progress].sort((one, other) => one - other)).toEqual(progress);
});

test("A drop in the middle of a file starts it again from part 0 under the same id.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.slow = true;
  bench.client.sendFile(patterned(7 * MIB));
  await settle();
  expect(socket.sent("media")).toHaveLength(1);
  socket.closeWith(1006);
  const again = await reconnect(bench);
  await bench.clock.advance(1000);

  expect(again.sent("media").map((frame) => [frame["id"], frame["part"]])).toEqual([
    ["id-1", 0],
    ["id-1", 1],
    ["id-1", 2],
  ]);
  expect(socket.sent("media")).toHaveLength(1);
});

test("A text after a file is sent after it, even while the file is still being read.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  bench.client.sendFile(new Blob(["photo"], { type: "image/png" }));
  bench.client.sendText("What is this?");
  await settle();

  expect(socket.frames.slice(1).map((frame) => frame.t)).toEqual(["media", "text"]);
});

test("Aborting takes a file back: no further part is sent.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.slow = true;
  const abort = new AbortController();
  const sent = bench.client.sendFile(patterned(7 * MIB), { signal: abort.signal, kind: "video" });
  await settle();
  abort.abort();
  await expect(sent.accepted).rejects.toMatchObject({ code: "aborted" });
  socket.bufferedAmount = 0;
  await bench.clock.advance(50);

  expect(socket.sent("media")).toHaveLength(1);
  expect(bench.client.pending()).toEqual([]);
  expect(states(bench.values("outbox")).at(-1)).toBe("id-1 discarded");
});

test("Where parts of files taken back leave no room at the door, a new connection frees them first.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.slow = true;
  bench.client.sendFile(patterned(7 * MIB));
  await settle();
  bench.client.discard("id-1"); // 3 MiB of it are held by the door now
  bench.client.sendFile(patterned(2 * MIB)); // one frame, never held
  bench.client.sendFile(patterned(4 * MIB)); // fits beside the rest
  socket.slow = false;
  socket.bufferedAmount = 0;
  await bench.clock.advance(50);
  expect(ids(socket.sent("media"))).toEqual(["id-1", "id-2", "id-3", "id-3"]);
  for (const id of ["id-2", "id-3"]) socket.tell({ t: "accepted", id });
  expect(socket.closed).toBe(false);

  bench.client.sendFile(patterned(6 * MIB));
  await settle();
  expect(socket.closed).toBe(true);
  const again = await bench.ready(); // at once, without a pause

  expect(ids(again.sent("media"))).toEqual(["id-4", "id-4"]);
});

test("Aborting before anything was sent leaves no trace; an aborted signal sends nothing.", async () => {
  const bench = makeBench();
  const abort = new AbortController();
  const read = bench.client.sendFile(new Blob(["x"]), { signal: abort.signal });
  const queued = bench.client.sendText("x", { signal: abort.signal });
  abort.abort();
  await expect(read.accepted).rejects.toMatchObject({ code: "aborted" });
  await expect(queued.accepted).rejects.toMatchObject({ code: "aborted" });
  expect(() => bench.client.sendText("x", { signal: abort.signal })).toThrow(
    expect.objectContaining({ code: "aborted" }),
  );

  expect((await bench.ready()).frames).toHaveLength(1);
});

test("A file refused half-way is not sent on.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.slow = true;
  const sent = bench.client.sendFile(patterned(7 * MIB));
  await settle();
  socket.tell({ t: "error", code: "too_big", message: "no room", fatal: false, id: "id-1" });
  socket.bufferedAmount = 0;
  await bench.clock.advance(1000);

  await expect(sent.accepted).rejects.toMatchObject({ code: "too_big" });
  expect(socket.sent("media")).toHaveLength(1);
});

test("A file that cannot be read fails, and what comes after it is sent.", async () => {
  const bench = makeBench();
  const broken = { size: 5, type: "", arrayBuffer: () => Promise.reject(new Error("gone")) };
  const sent = bench.client.sendFile(broken as unknown as Blob);
  bench.client.sendText("after");
  await expect(sent.accepted).rejects.toMatchObject({ code: "unreadable" });

  expect((await bench.ready()).sent("text")).toHaveLength(1);
});

test("The bytes are those of the call, whatever the caller does with the buffer afterwards.", async () => {
  const bench = makeBench();
  const bytes = Uint8Array.from([77, 97, 110]);
  bench.client.sendFile(bytes);
  bytes.fill(0);
  await settle();

  expect((await bench.ready()).sent("media")[0]?.["data"]).toBe("TWFu");
});

// ---- voice ------------------------------------------------------------------------------------

test("A recording is one audio frame; its bytes say what it is.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  bench.client.sendVoice(wav(), { transcript: "hello" });
  bench.client.sendVoice(Buffer.from("OggS...."));
  await settle();

  expect(socket.sent("audio")).toMatchObject([
    { id: "id-1", format: "wav", text: "hello" },
    { id: "id-2", format: "ogg" },
  ]);
  expect(socket.sent("audio")[1]).not.toHaveProperty("text");
  await expect(bench.client.sendVoice(Buffer.from("webm....")).accepted).rejects.toMatchObject({
    code: "unsupported_format",
  });
  await expect(bench.client.sendVoice(wav(), { format: "ogg" }).accepted).rejects.toMatchObject({
    code: "unsupported_format",
  });
  expect(() => bench.client.sendVoice(wav(8 * MIB + 1))).toThrow(
    expect.objectContaining({ code: "too_big" }),
  );
});

// ---- a killed app -----------------------------------------------------------------------------

function fakeStore(): KeyValueStore & { readonly map: Map<string, string> } {
  const map = new Map<string, string>();
  return {
    map,
    getItem: (key) => Promise.resolve(map.get(key) ?? null),
    setItem: (key, value) => {
      map.set(key, value);
    },
    removeItem: (key) => {
      map.delete(key);
    },
  };
}

test("A killed app loses nothing: the next life sends what was not accepted, in order, under its ids.", async () => {
  const store = fakeStore();
  const clock = new FakeClock();
  const before = makeBench({ storage: keyValueStorage(store, "agent"), clock });
  const socket = await before.ready();
  const texts = [before.client.sendText("one"), before.client.sendText("two")];
  const file = before.client.sendFile(patterned(1000), { filename: "a.bin", caption: "c" });
  const voice = before.client.sendVoice(wav(), { transcript: "t" });
  const failed = before.client.sendText("bad");
  await Promise.all([...texts, file, voice, failed].map((outgoing) => outgoing.stored));
  socket.tell({ t: "accepted", id: texts[0]?.id });
  socket.tell({ t: "error", code: "too_big", message: "x", fatal: false, id: failed.id });
  await settle();
  // Killed here: nothing is closed, nobody is asked.

  const after = makeBench({
    storage: keyValueStorage(store, "agent"),
    clock,
    createId: () => "new",
  });
  after.client.sendText("later");
  const next = await after.ready();
  await settle();

  expect(next.frames.slice(1).map((frame) => [frame.t, frame["id"]])).toEqual([
    ["text", texts[1]?.id],
    ["media", file.id],
    ["audio", voice.id],
    ["text", "new"],
  ]);
  expect(bytesOf(next.sent("media")).equals(Buffer.from(patterned(1000)))).toBe(true);
  expect(next.sent("media")[0]).toMatchObject({ filename: "a.bin", caption: "c" });
  expect(after.client.pending().find((item) => item.id === failed.id)).toMatchObject({
    state: "failed",
  });

  for (const frame of next.frames.slice(1)) next.tell({ t: "accepted", id: frame["id"] });
  after.client.discard(failed.id);
  await settle();

  expect([...store.map]).toEqual([["agent:outbox", "[]"]]);
});

test("Another prefix is another outbox, and damaged entries are skipped.", async () => {
  const store = fakeStore();
  await keyValueStorage(store, "a").put({
    id: "1",
    seq: 1,
    createdAt: 1,
    content: { kind: "text", text: "x" },
  });
  await keyValueStorage(store, "a").put({
    id: "2",
    seq: 2,
    createdAt: 1,
    content: { kind: "text", text: "y" },
  });
  store.map.set("a:outbox:1", "{broken");

  expect(await keyValueStorage(store, "b").load()).toEqual([]);
  expect((await keyValueStorage(store, "a").load()).map((record) => record.id)).toEqual(["2"]);
});

test("Overlapping writes of a key-value storage lose nothing.", async () => {
  const store = fakeStore();
  const storage = keyValueStorage(store, "a");
  const all = Array.from({ length: 20 }, (_, index) => String(index));
  await Promise.all(
    all.map((id) => storage.put({ id, seq: 1, createdAt: 1, content: { kind: "text", text: id } })),
  );
  await Promise.all(["3", "4"].map((id) => storage.remove(id)));

  expect((await keyValueStorage(store, "a").load()).map((record) => record.id)).toEqual(
    all.filter((id) => id !== "3" && id !== "4"),
  );
});

test("A storage that fails is a warning; the conversation goes on from memory.", async () => {
  const broken: OutboxStorage = {
    load: () => Promise.reject(new Error("no")),
    put: () => Promise.reject(new Error("quota")),
    remove: () => Promise.reject(new Error("no")),
  };
  const bench = makeBench({ storage: broken });
  const socket = await bench.ready();
  const sent = bench.client.sendText("one");
  await expect(sent.stored).rejects.toMatchObject({ code: "storage_failed" });
  await settle();
  socket.tell({ t: "accepted", id: sent.id });
  await sent.accepted;
  await settle();

  expect(bench.values("warning").every((warning) => warning.code === "storage_failed")).toBe(true);
  expect(bench.values("warning")).toHaveLength(3);
});

test("An item discarded while the storage is still being read does not come back.", async () => {
  const storage = memoryStorage();
  let give: (() => void) | undefined;
  const slow: OutboxStorage = {
    ...storage,
    load: () =>
      new Promise((resolve) => {
        give = () => {
          void storage.load().then(resolve);
        };
      }),
  };
  const bench = makeBench({ storage: slow });
  bench.client.connect();
  const sent = bench.client.sendText("one");
  await sent.stored;
  const snapshot = await storage.load();
  expect(snapshot).toHaveLength(1);
  bench.client.discard(sent.id);
  give?.();
  await settle();

  expect(bench.client.pending()).toEqual([]);
});

// ---- stopping ---------------------------------------------------------------------------------

test("Stopping tells whoever waits and keeps the items for the next connect().", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  const sent = bench.client.sendText("one");
  await settle();
  socket.closeWith(4001, "replaced");

  await expect(sent.accepted).rejects.toMatchObject({ code: "stopped" });
  expect(bench.client.pending()).toMatchObject([{ id: "id-1", state: "queued" }]);

  const again = await bench.ready();

  expect(ids(again.sent("text"))).toEqual(["id-1"]);
});

test("A signal that lives long does not collect listeners.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.answer = (frame) => {
    if (frame.t === "text") socket.tell({ t: "accepted", id: frame["id"] });
  };
  const abort = new AbortController();
  let listeners = 0;
  const { addEventListener, removeEventListener } = AbortSignal.prototype;
  abort.signal.addEventListener = function (...given: unknown[]) {
    listeners += 1;
    addEventListener.apply(this, given as never);
  };
  abort.signal.removeEventListener = function (...given: unknown[]) {
    listeners -= 1;
    removeEventListener.apply(this, given as never);
  };
  for (let index = 0; index < 5; index += 1) {
    await bench.client.sendText("x", { signal: abort.signal }).accepted;
  }

  expect(listeners).toBe(0);
});
