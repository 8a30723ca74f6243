import { expect, test } from "vitest";
import { HermesClient } from "../src/client.ts";
import type { ConnectionState } from "../src/events.ts";
import type { Presence } from "../src/presence.ts";
import { settle } from "./support/fake-clock.ts";
import { FakeDoor, makeBench, readyFrame } from "./support/fake-door.ts";

const phases = (states: readonly ConnectionState[]): string[] => states.map((state) => state.phase);

class FakePresence implements Presence {
  cause: "hidden" | "offline" | undefined;
  #changed: (() => void) | undefined;

  paused(): "hidden" | "offline" | undefined {
    return this.cause;
  }

  subscribe(changed: () => void): () => void {
    this.#changed = changed;
    return () => {
      this.#changed = undefined;
    };
  }

  set(cause: "hidden" | "offline" | undefined): void {
    this.cause = cause;
    this.#changed?.();
  }

  get watched(): boolean {
    return this.#changed !== undefined;
  }
}

test("Hello is the first frame, with the token in it and not in the address.", async () => {
  const bench = makeBench({ user: { id: "u-1", name: "Ada" } });
  const socket = await bench.ready();

  expect(socket.url).toBe("wss://agent.example.com/ws");
  expect(socket.frames).toEqual([
    {
      t: "hello",
      token: "a-token-of-the-tests",
      device: { id: "tel-1", name: "Phone", platform: "test", app_version: "1.0.0" },
      user: { id: "u-1", name: "Ada" },
      supports: ["accepted", "partial_edits"],
    },
  ]);
  expect(phases(bench.values("state"))).toEqual(["connecting", "ready"]);
  expect(bench.client.ready).toMatchObject({
    session: "mobile:tel-1",
    avatarUrl: "https://agent.example.com/avatar/",
    extensions: new Set(["accepted", "partial_edits"]),
  });
});

test("Only extensions that were asked for are in use; asking for none leaves the field out.", async () => {
  const bench = makeBench({ supports: [] });
  const socket = await bench.ready(["accepted", "partial_edits"]);

  expect(socket.frames[0]).not.toHaveProperty("supports");
  expect(bench.client.ready?.extensions.size).toBe(0);
});

test("The token may come from a function, asked before each connection.", async () => {
  const tokens = ["first", "second"];
  const bench = makeBench({ token: () => Promise.resolve(tokens.shift() ?? "") });
  const first = await bench.ready();
  first.closeWith(1006);
  await bench.clock.advance(1000);
  bench.door.last.open();

  expect(bench.door.sockets.map((socket) => socket.frames[0]?.["token"])).toEqual([
    "first",
    "second",
  ]);
});

test("A token that cannot be had postpones the attempt; an empty one ends it.", async () => {
  let fails = true;
  const bench = makeBench({
    token: () => {
      if (fails) throw new Error("keychain locked");
      return "";
    },
  });
  bench.client.connect();
  await settle();

  expect(bench.client.state.phase).toBe("waiting");
  expect(bench.values("warning")[0]).toMatchObject({ code: "token_failed" });

  fails = false;
  await bench.clock.advance(1000);

  expect(bench.client.state).toMatchObject({ phase: "stopped", reason: { code: "no_token" } });
  expect(bench.door.sockets).toEqual([]);
});

test("A lost connection comes back after a random pause that grows, and starts over when it was stable.", async () => {
  const bench = makeBench();
  const pauses: number[] = [];
  bench.client.on("state", (state) => {
    if (state.phase === "waiting") pauses.push(state.retryAt - bench.clock.now());
  });
  const socket = await bench.ready();
  socket.closeWith(1006);
  for (let attempt = 0; attempt < 7; attempt += 1) {
    await bench.clock.advance(15_000);
    bench.door.last.closeWith(1006);
  }

  expect(pauses).toEqual([500, 1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]);

  await bench.clock.advance(15_000);
  bench.door.last.open();
  bench.door.last.tell(readyFrame());
  await bench.clock.advance(10_000);
  bench.door.last.closeWith(1013, "slow");

  expect(pauses.at(-1)).toBe(500);
});

test("A connection that dies right after ready does not reset the pause.", async () => {
  const bench = makeBench();
  const pauses: number[] = [];
  bench.client.on("state", (state) => {
    if (state.phase === "waiting") pauses.push(state.retryAt - bench.clock.now());
  });
  (await bench.ready()).closeWith(1011);
  await bench.clock.advance(500);
  bench.door.last.open();
  bench.door.last.tell(readyFrame());
  bench.door.last.closeWith(1011);

  expect(pauses).toEqual([500, 1000]);
});

test.each([
  ["auth_failed", "auth_failed"],
  ["forbidden", "forbidden"],
])("The refusal %s stops for good and says why.", async (code, reason) => {
  const bench = makeBench();
  bench.client.connect();
  await settle();
  bench.door.last.open();
  bench.door.last.tell({ t: "error", code, message: "no", fatal: true });
  bench.door.last.closeWith(1008, code);
  await bench.clock.advance(600_000);

  expect(bench.client.state).toMatchObject({ phase: "stopped", reason: { code: reason } });
  expect(bench.values("error")).toMatchObject([{ code, fatal: true }]);
  expect(bench.door.sockets).toHaveLength(1);
  expect(bench.clock.pendingTimers).toBe(0);
});

test("A refusal is understood from the close reason alone, also when access is revoked later.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.closeWith(1008, "auth_failed");

  expect(bench.client.state).toMatchObject({ phase: "stopped", reason: { code: "auth_failed" } });
});

test("A replaced connection does not fight; connect() takes it back.", async () => {
  const bench = makeBench();
  (await bench.ready()).closeWith(4001, "replaced");
  await bench.clock.advance(600_000);

  expect(bench.client.state).toMatchObject({ phase: "stopped", reason: { code: "replaced" } });
  expect(bench.door.sockets).toHaveLength(1);

  await bench.ready();

  expect(bench.client.state.phase).toBe("ready");
});

test("Every other close is a reason to come back.", async () => {
  for (const [code, reason] of [
    [1000, ""],
    [1001, "going away"],
    [1006, ""],
    [1008, "too_big"],
    [1009, ""],
    [1011, ""],
    [1012, ""],
    [1013, "slow"],
    [4000, ""],
  ] as const) {
    const bench = makeBench();
    (await bench.ready()).closeWith(code, reason);

    expect(bench.client.state.phase).toBe("waiting");
    bench.client.close();
  }
});

test("A non-fatal forbidden on a living connection is an error and no end.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.tell({ t: "error", code: "forbidden", message: "not yours", fatal: false });

  expect(bench.client.state.phase).toBe("ready");
  expect(bench.values("error")).toEqual([
    { code: "forbidden", message: "not yours", fatal: false },
  ]);
});

test("A greeting the door does not understand is given up after the third time.", async () => {
  const bench = makeBench();
  bench.client.connect();
  for (let attempt = 0; attempt < 3; attempt += 1) {
    await bench.clock.advance(5_000);
    bench.door.last.open();
    bench.door.last.tell({
      t: "error",
      code: "bad_frame",
      message: "`supports` is odd",
      fatal: true,
    });
    bench.door.last.closeWith(1008, "bad_frame");
  }
  await bench.clock.advance(600_000);

  expect(bench.door.sockets).toHaveLength(3);
  expect(bench.client.state).toMatchObject({ phase: "stopped", reason: { code: "hello_refused" } });
});

test("Another protocol version stops.", async () => {
  const bench = makeBench();
  bench.client.connect();
  await settle();
  bench.door.last.open();
  bench.door.last.tell({ ...readyFrame(), v: 2 });

  expect(bench.client.state).toMatchObject({
    phase: "stopped",
    reason: { code: "unsupported_version" },
  });
});

test("An attempt without ready in time is given up and repeated.", async () => {
  const bench = makeBench();
  bench.client.connect();
  await settle();
  bench.door.last.open();
  await bench.clock.advance(20_000);

  expect(bench.client.state.phase).toBe("waiting");
  expect(bench.door.last.closed).toBe(true);

  await bench.clock.advance(1000);

  expect(bench.door.sockets).toHaveLength(2);
});

test("A platform that refuses the address stops with the reason.", async () => {
  const bench = makeBench({
    webSocket: class {
      constructor() {
        throw new Error("insecure");
      }
    } as never,
  });
  bench.client.connect();
  await settle();

  expect(bench.client.state).toMatchObject({
    phase: "stopped",
    reason: { code: "bad_url", message: expect.stringContaining("insecure") as string },
  });
});

test("Silence is asked about, and any message at all is an answer.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  await bench.clock.advance(19_999);
  expect(socket.sent("ping")).toHaveLength(0);
  await bench.clock.advance(1);
  expect(socket.sent("ping")).toHaveLength(1);
  await bench.clock.advance(14_000);
  socket.tell({ t: "typing" });
  await bench.clock.advance(1_000);

  expect(bench.client.state.phase).toBe("ready");

  await bench.clock.advance(40_000);

  expect(socket.closed).toBe(true);
  expect(bench.client.state.phase).not.toBe("ready");
});

test("A steady talk needs no ping.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  for (let turn = 0; turn < 20; turn += 1) {
    await bench.clock.advance(15_000);
    socket.tell({ t: "hologram" });
  }

  expect(socket.sent("ping")).toHaveLength(0);
  expect(bench.client.state.phase).toBe("ready");
});

test("A line that still drains is alive, however long the pong takes.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.bufferedAmount = 4_000_000;
  for (let turn = 0; turn < 20; turn += 1) {
    await bench.clock.advance(10_000);
    socket.bufferedAmount -= 100_000;
  }
  expect(bench.client.state.phase).toBe("ready");

  await bench.clock.advance(40_000); // nothing moves any more

  expect(bench.client.state.phase).not.toBe("ready");
});

test("That the question leaves the socket is no sign of life.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.slow = true;
  bench.client.networkChanged();
  socket.bufferedAmount = 0; // taken by the system, which knows nothing of the line
  await bench.clock.advance(4_000);
  expect(bench.client.state.phase).toBe("waiting");
});

test("networkChanged() tests a standing line at once and drops a dead one.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  bench.client.networkChanged();
  expect(socket.sent("ping")).toHaveLength(1);
  socket.tell({ t: "pong", ts: socket.sent("ping")[0]?.["ts"] });
  await bench.clock.advance(4_000);
  expect(bench.client.state.phase).toBe("ready");

  bench.client.networkChanged();
  await bench.clock.advance(4_000);

  expect(bench.client.state.phase).toBe("waiting");
});

test("networkChanged() ends a pause between attempts and a hanging attempt.", async () => {
  const bench = makeBench();
  (await bench.ready()).closeWith(1006);
  bench.client.networkChanged();
  await settle();
  expect(bench.door.sockets).toHaveLength(2);
  bench.client.networkChanged();
  await settle();

  expect(bench.door.sockets).toHaveLength(3);
  expect(bench.door.sockets[1]?.closed).toBe(true);

  bench.client.close();
  bench.client.networkChanged();
  await settle();

  expect(bench.door.sockets).toHaveLength(3);
});

test("No attempts while the page is hidden or offline; back at once afterwards.", async () => {
  const presence = new FakePresence();
  const bench = makeBench({ presence });
  const socket = await bench.ready();
  presence.set("hidden");
  expect(bench.client.state.phase).toBe("ready"); // a living connection is kept
  socket.closeWith(1006);
  await bench.clock.advance(600_000);
  expect(bench.client.state).toEqual({ phase: "paused", cause: "hidden" });
  expect(bench.door.sockets).toHaveLength(1);
  presence.set("offline");
  expect(bench.client.state).toEqual({ phase: "paused", cause: "offline" });
  presence.set(undefined);
  await settle();

  expect(bench.door.sockets).toHaveLength(2);

  bench.client.close();

  expect(presence.watched).toBe(false);
});

test("A pause that begins while waiting is kept; a first connect in a hidden page waits too.", async () => {
  const presence = new FakePresence();
  presence.cause = "hidden";
  const bench = makeBench({ presence });
  bench.client.connect();
  await bench.clock.advance(60_000);
  expect(bench.door.sockets).toHaveLength(0);
  presence.set(undefined);
  await settle();
  bench.door.last.closeWith(1006);
  presence.set("offline");
  await bench.clock.advance(60_000);

  expect(bench.door.sockets).toHaveLength(1);
  expect(bench.client.state).toEqual({ phase: "paused", cause: "offline" });
});

test("Coming back into view tests the line at once.", async () => {
  const presence = new FakePresence();
  const bench = makeBench({ presence });
  const socket = await bench.ready();
  presence.set("hidden");
  presence.set(undefined);

  expect(socket.sent("ping")).toHaveLength(1);

  await bench.clock.advance(4_000);

  expect(bench.client.state.phase).toBe("waiting");
});

test("A network that is gone is asked about at once, and no attempt hangs in it.", async () => {
  const presence = new FakePresence();
  const bench = makeBench({ presence });
  const socket = await bench.ready();
  socket.answer = (frame) => {
    if (frame.t === "ping") socket.tell({ t: "pong", ts: frame["ts"] });
  };
  presence.set("offline");
  await bench.clock.advance(4_000);
  expect(bench.client.state.phase).toBe("ready"); // a line to this machine needs no network
  presence.set(undefined);
  await bench.clock.advance(4_000);

  socket.answer = undefined;
  presence.set("offline");
  await bench.clock.advance(4_000);
  expect(bench.client.state).toEqual({ phase: "paused", cause: "offline" });
  presence.set(undefined);
  await settle();
  expect(bench.client.state.phase).toBe("connecting");
  expect(bench.door.sockets).toHaveLength(2);

  presence.set("hidden");
  expect(bench.client.state.phase).toBe("connecting"); // an attempt under way is finished
  presence.set("offline");
  expect(bench.client.state).toEqual({ phase: "paused", cause: "offline" });
  expect(bench.door.last.closed).toBe(true);
  presence.set(undefined);
  await settle();
  bench.door.last.open();
  bench.door.last.tell(readyFrame());
  expect(bench.client.state.phase).toBe("ready");
  expect(bench.door.sockets).toHaveLength(3);
});

test("close() ends everything: no timer and no listener stays, connect() begins again.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  bench.client.close();

  expect(socket.closed).toBe(true);
  expect(bench.clock.pendingTimers).toBe(0);
  expect(bench.client.state).toMatchObject({ phase: "stopped", reason: { code: "closed" } });
  socket.tell({ t: "typing" });
  expect(bench.values("typing")).toEqual([]);

  await bench.ready();
  expect(bench.client.state.phase).toBe("ready");
});

test("whenReady() resolves at ready and rejects at a terminal refusal.", async () => {
  const bench = makeBench();
  const waiting = bench.client.whenReady();
  await bench.ready();
  expect((await waiting).session).toBe("mobile:tel-1");
  bench.door.last.closeWith(1006);
  const refused = expect(bench.client.whenReady()).rejects.toMatchObject({ code: "auth_failed" });
  await bench.clock.advance(1000);
  bench.door.last.open();
  bench.door.last.tell({ t: "error", code: "auth_failed", message: "no", fatal: true });

  await refused;
});

test("whenReady() of a client that has stopped tells why, unless it is connected again.", async () => {
  const bench = makeBench();
  await bench.ready();
  bench.client.close();
  await expect(bench.client.whenReady()).rejects.toMatchObject({ code: "closed" });

  const again = bench.client.whenReady();
  await bench.ready();
  expect((await again).session).toBe("mobile:tel-1");
});

test("Frames nobody knows pass through; broken ones are a warning and no end.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.tell({ t: "hologram", depth: 3 });
  socket.tellRaw("no json");
  socket.tell({ t: "message", id: 5 });
  socket.tellRaw({ odd: true });
  socket.tellRaw(new TextEncoder().encode('{"t":"avatar","state":"thinking"}').buffer);

  expect(bench.values("unknown")).toEqual([{ t: "hologram", depth: 3 }]);
  expect(bench.values("warning").map((warning) => warning.code)).toEqual([
    "bad_server_frame",
    "bad_server_frame",
    "binary_frame",
  ]);
  expect(bench.client.avatar).toBe("thinking");
  expect(bench.client.state.phase).toBe("ready");
});

test("Avatar and typing follow the door and end with the connection; unknown states are idle.", async () => {
  const bench = makeBench();
  const socket = await bench.ready();
  socket.tell({ t: "avatar", state: "thinking" });
  socket.tell({ t: "typing" });
  socket.tell({ t: "typing" });
  socket.tell({ t: "avatar", state: "levitating" });
  socket.tell({ t: "avatar", state: "speaking" });
  socket.closeWith(1006);

  expect(bench.values("avatar")).toEqual(["thinking", "idle", "speaking", "idle"]);
  expect(bench.values("typing")).toEqual([true, false]);
});

test("The user's typing is told at most every three seconds, and never queued.", async () => {
  const bench = makeBench();
  bench.client.typing();
  const socket = await bench.ready();
  bench.client.typing();
  bench.client.typing();
  await bench.clock.advance(3_000);
  bench.client.typing();
  bench.client.ack("m1");

  expect(socket.sent("typing")).toHaveLength(2);
  expect(socket.sent("ack")).toEqual([{ t: "ack", id: "m1" }]);
});

test("A listener that throws disturbs neither the others nor the connection.", async () => {
  const bench = makeBench();
  bench.client.on("ready", () => {
    throw new Error("app bug");
  });
  await bench.ready();

  expect(bench.client.state.phase).toBe("ready");
  expect(bench.values("warning")).toMatchObject([{ code: "listener_failed" }]);
});

test("Devices, addresses and platforms that cannot work are refused at once.", () => {
  const make = (options: object): HermesClient =>
    new HermesClient({
      url: "wss://a/ws",
      token: "t",
      device: { id: "d" },
      webSocket: new FakeDoor().socketClass,
      ...options,
    });

  for (const id of ["", "a:b", "a/b", "a\nb", "x".repeat(121)]) {
    expect(() => make({ device: { id } })).toThrow(
      expect.objectContaining({ code: "bad_argument" }),
    );
  }
  expect(() => make({ url: "wss://a/ws?token=x" })).toThrow(
    expect.objectContaining({ code: "bad_url" }),
  );
  expect(() => make({ uploadPartBytes: 1 })).toThrow(
    expect.objectContaining({ code: "bad_argument" }),
  );
  expect(() => make({ uploadPartBytes: Number.NaN })).toThrow(
    expect.objectContaining({ code: "bad_argument" }),
  );
});
