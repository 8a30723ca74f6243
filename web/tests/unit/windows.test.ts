import { describe, expect, test, vi } from "vitest";
import { Windows, type ChannelLike } from "../../chat/windows.ts";

/** Windows of one browser: what one posts, all others get, a busy one later. */
class Room {
  readonly #channels = new Set<ChannelLike>();
  readonly #held = new Map<ChannelLike, unknown[]>();

  hold(channel: ChannelLike): void {
    this.#held.set(channel, []);
  }

  release(channel: ChannelLike, between: () => void): void {
    // What the others answer meanwhile comes after what waits already.
    for (const data of this.#held.get(channel) ?? []) {
      channel.onmessage?.({ data } as MessageEvent);
      between();
    }
    this.#held.delete(channel);
  }

  join(): ChannelLike {
    const channel: ChannelLike = {
      onmessage: null,
      postMessage: (message) => {
        for (const other of this.#channels) {
          if (other === channel) continue;
          const held = this.#held.get(other);
          if (held !== undefined) held.push(message);
          else other.onmessage?.({ data: message } as MessageEvent);
        }
      },
      close: () => {
        this.#channels.delete(channel);
      },
    };
    this.#channels.add(channel);
    return channel;
  }
}

function windowIn(room: Room, id: string, state = { healthy: true, visible: true }) {
  const log: string[] = [];
  const channel = room.join();
  const windows = new Windows<string>({
    channel,
    id,
    lead: () => log.push("lead"),
    follow: () => log.push("follow"),
    receive: (content) => log.push(content),
    welcome: () => log.push("welcome"),
    healthy: () => state.healthy,
    visible: () => state.visible,
    patience: 100,
  });
  return { windows, log, state, channel };
}

describe("windows of one conversation", () => {
  vi.useFakeTimers();

  test("the only one leads", () => {
    const { windows, log } = windowIn(new Room(), "a");
    windows.start();
    expect(windows.leading).toBe(false);
    vi.advanceTimersByTime(100);
    expect(log).toEqual(["lead"]);
  });

  test("a later one follows and hears what happens", () => {
    const room = new Room();
    const first = windowIn(room, "a");
    first.windows.start();
    vi.advanceTimersByTime(100);
    const second = windowIn(room, "b");
    second.windows.start();
    vi.advanceTimersByTime(500);
    first.windows.tell("news");
    expect(first.log).toEqual(["lead", "welcome"]);
    expect(second.log).toEqual(["follow", "news"]);
  });

  test("the one that is used takes the lead", () => {
    const room = new Room();
    const [first, second] = [windowIn(room, "a"), windowIn(room, "b")];
    first.windows.start();
    vi.advanceTimersByTime(100);
    second.windows.start();
    vi.advanceTimersByTime(100);
    second.windows.take();
    expect([first.windows.leading, second.windows.leading]).toEqual([false, true]);
    first.windows.tell("nothing of a follower is heard");
    expect(second.log.at(-1)).toBe("lead");
    expect(first.log.at(-1)).toBe("follow");
  });

  test("of two that start at once exactly one leads", () => {
    const room = new Room();
    const [first, second] = [windowIn(room, "a"), windowIn(room, "b")];
    first.windows.start();
    second.windows.start();
    vi.advanceTimersByTime(1_000);
    expect([first.windows.leading, second.windows.leading]).toEqual([true, false]);
  });

  // The door lets the later connection replace the earlier one; the windows settle it by their ids.
  // What a busy window hears is first who leads, then that the new one does.
  test.each([
    ["a", "b", 0],
    ["a", "b", 1],
    ["a", "b", 2],
    ["b", "a", 0],
    ["b", "a", 1],
    ["b", "a", 2],
  ])(
    "a leader %s too busy to answer a new window %s, replaced after %i signals: one leads",
    (...[old, later, signals]) => {
      const room = new Room();
      const [first, second] = [windowIn(room, old), windowIn(room, later)];
      first.windows.start();
      vi.advanceTimersByTime(100);
      room.hold(first.channel);
      second.windows.start();
      vi.advanceTimersByTime(100);
      expect([first.windows.leading, second.windows.leading]).toEqual([true, true]);
      let heard = 0;
      if (signals === 0) first.windows.replaced();
      room.release(first.channel, () => {
        heard += 1;
        if (heard === signals) first.windows.replaced();
      });
      expect(heard).toBeGreaterThanOrEqual(2);
      vi.advanceTimersByTime(1_000);

      const [leader, follower] = first.windows.leading ? [first, second] : [second, first];
      expect([leader.windows.leading, follower.windows.leading]).toEqual([true, false]);
      const roles = ({ log }: typeof first): string[] => log.filter((entry) => entry !== "welcome");
      expect(roles(follower).at(-1)).toBe("follow");
      // It leads with a connection of its own, not with the one that the door closed.
      expect(roles(leader).at(-1)).toBe("lead");
      if (leader === first) expect(roles(first)).toEqual(["lead", "lead"]);
      // Another device of this name is no window that gives way: nobody fights it.
      vi.advanceTimersByTime(10_000);
      leader.windows.replaced();
      vi.advanceTimersByTime(1_000);
      expect([leader.windows.leading, follower.windows.leading]).toEqual([false, false]);
    },
  );

  test("when the leader goes, one that is seen follows it", () => {
    const room = new Room();
    const [first, second] = [windowIn(room, "a"), windowIn(room, "b")];
    first.windows.start();
    vi.advanceTimersByTime(100);
    second.windows.start();
    vi.advanceTimersByTime(100);
    first.windows.close();
    vi.advanceTimersByTime(200);
    expect(second.windows.leading).toBe(true);
  });

  test("a leader without a connection gives way to a window that is seen", () => {
    const room = new Room();
    const [first, second] = [windowIn(room, "a"), windowIn(room, "b")];
    first.windows.start();
    vi.advanceTimersByTime(100);
    second.windows.start();
    vi.advanceTimersByTime(100);
    second.windows.seen();
    vi.advanceTimersByTime(100);
    expect(second.windows.leading).toBe(false);
    first.state.healthy = false;
    second.windows.seen();
    vi.advanceTimersByTime(100);
    expect([first.windows.leading, second.windows.leading]).toEqual([false, true]);
  });

  test("a replaced connection makes a follower, who may take the lead again", () => {
    const { windows, log } = windowIn(new Room(), "a");
    windows.start();
    vi.advanceTimersByTime(100);
    windows.replaced();
    windows.take();
    expect(log).toEqual(["lead", "follow", "lead"]);
  });
});
