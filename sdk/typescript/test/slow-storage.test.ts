/** A storage that hangs (a browser's database may) must not keep an app from its agent. */
import { expect, test } from "vitest";
import { memoryStorage, type OutboxRecord } from "../src/storage.ts";
import { settle } from "./support/fake-clock.ts";
import { makeBench, readyFrame } from "./support/fake-door.ts";

const EARLIER: OutboxRecord = {
  id: "earlier",
  seq: 1,
  createdAt: 1,
  content: { kind: "text", text: "of an earlier life" },
};

test("A storage that does not answer is not waited for; what it brings later is sent.", async () => {
  let answer: (records: readonly OutboxRecord[]) => void = () => undefined;
  const storage = {
    ...memoryStorage(),
    load: () =>
      new Promise<readonly OutboxRecord[]>((resolve) => {
        answer = resolve;
      }),
  };
  const bench = makeBench({ storage, timing: { connectTimeout: 20_000 } });
  bench.client.connect();
  bench.client.sendText("new");
  await bench.clock.advance(9_999);
  expect(bench.door.sockets).toHaveLength(0); // the order would be wrong
  await bench.clock.advance(1);
  bench.door.last.open();
  bench.door.last.tell(readyFrame());
  await settle();
  expect(bench.values("warning").map(({ code }) => code)).toEqual(["storage_failed"]);
  expect(bench.door.last.sent("text").map(({ text }) => text)).toEqual(["new"]);

  answer([EARLIER]);
  await settle();
  expect(bench.door.last.sent("text").map(({ id }) => id)).toEqual(["id-1", "earlier"]);
  expect(bench.client.pending().map(({ id }) => id)).toEqual(["earlier", "id-1"]);
});

test("A storage that answers in time leaves no timer behind.", async () => {
  const bench = makeBench();
  await bench.ready();
  bench.client.close();
  await bench.clock.advance(60_000);
  expect(bench.values("warning")).toEqual([]);
});
