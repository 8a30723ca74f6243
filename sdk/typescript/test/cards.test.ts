import { expect, test } from "vitest";
import { settle } from "./support/fake-clock.ts";
import { makeBench } from "./support/fake-door.ts";

const CARD = {
  t: "prompt",
  id: "p1",
  kind: "exec_approval",
  text: "Run this?",
  options: [
    { id: "once", label: "Once", style: "primary" },
    { id: "deny", label: "No", style: "danger" },
  ],
  command: "rm -rf build",
  description: "Deletes the build folder",
  session: "mobile:tel-1",
  timeout_seconds: 300,
};

test("A card carries its exact command and a deadline of this device's clock.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.tell(CARD);

  expect(bench.values("prompt")).toEqual([
    {
      id: "p1",
      kind: "exec_approval",
      text: "Run this?",
      options: CARD.options,
      command: "rm -rf build",
      description: "Deletes the build folder",
      session: "mobile:tel-1",
      deadline: bench.clock.now() + 300_000,
    },
  ]);
  expect(bench.client.cards()).toHaveLength(1);
});

test("An answer resolves with what was applied, which may differ from what was chosen.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.tell(CARD);
  const outcome = bench.client.answer("p1", "always");
  expect(socket.sent("prompt")).toEqual([{ t: "prompt", prompt_id: "p1", option_id: "always" }]);
  expect(bench.client.cards()).toHaveLength(1); // open until the door says so
  socket.tell({ t: "prompt_done", id: "p1", option_id: "deny" });

  expect(await outcome).toEqual({ id: "p1", optionId: "deny", expired: false });
  expect(bench.values("promptDone")).toHaveLength(1);
  expect(bench.client.cards()).toEqual([]);
});

test("An answer without a connection, or cut off by a drop, is repeated until the outcome is told.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.tell({ ...CARD, kind: "clarify" });
  socket.closeWith(1006);
  const outcome = bench.client.answer("p1", { optionId: "other", text: "blue" });
  expect(bench.client.answer("p1", "c0")).toBe(outcome); // the first answer stands
  await bench.clock.advance(1000);
  const second = await bench.ready();
  expect(second.sent("prompt")).toEqual([
    { t: "prompt", prompt_id: "p1", option_id: "other", text: "blue" },
  ]);
  second.closeWith(1006);
  await bench.clock.advance(2000);
  const third = await bench.ready();
  expect(third.sent("prompt")).toHaveLength(1);
  third.tell({ t: "prompt_done", id: "p1", option_id: "other" });
  await outcome;
  third.closeWith(1006);
  await bench.clock.advance(5000);

  expect((await bench.ready()).sent("prompt")).toEqual([]);
});

test("A card that ran out, or that another way closed, is told without an answer.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.tell(CARD);
  socket.tell({ t: "prompt_done", id: "p1", option_id: "deny", expired: true });

  expect(bench.values("promptDone")).toEqual([{ id: "p1", optionId: "deny", expired: true }]);
  expect(bench.client.cards()).toEqual([]);
});

test("A card shown again after a reconnect is the same card with a newer deadline.", async () => {
  const bench = makeBench();
  (await bench.ready()).tell(CARD);
  bench.door.last.closeWith(1006);
  await bench.clock.advance(1000);
  (await bench.ready()).tell({ ...CARD, timeout_seconds: 250 });

  expect(bench.client.cards()).toMatchObject([{ id: "p1", deadline: bench.clock.now() + 250_000 }]);
});

test("A refused answer rejects, whether the door names the card or not; it is not repeated.", async () => {
  for (const id of [{ id: "p1" }, {}]) {
    const bench = makeBench();
    const socket = await bench.ready();
    socket.tell(CARD);
    const outcome = bench.client.answer("p1", "once");
    socket.tell({
      t: "error",
      code: "forbidden",
      message: "another device's card",
      fatal: false,
      ...id,
    });

    await expect(outcome).rejects.toMatchObject({ code: "forbidden" });
    expect(bench.values("error")).toEqual([]);
  }
});

test("An empty answer is refused at the call; stopping ends the waiting.", async () => {
  const bench = makeBench();
  await bench.ready();

  expect(() => bench.client.answer("p1", "")).toThrow(
    expect.objectContaining({ code: "bad_argument" }),
  );
  expect(() => bench.client.answer("p1", { text: " " })).toThrow(
    expect.objectContaining({ code: "bad_argument" }),
  );

  const outcome = bench.client.answer("p1", "once");
  bench.client.close();
  await settle();

  await expect(outcome).rejects.toMatchObject({ code: "stopped" });
});
