import { describe, expect, test, vi } from "vitest";
import { Windows, type ChannelLike } from "../../chat/windows.ts";

/** Windows of one browser: what one posts, all others get. */
class Room {
  readonly #channels = new Set<ChannelLike>();

  join(): ChannelLike {
    const channel: ChannelLike = {
      onmessage: null,
      postMessage: (message) => {
        for (const other of this.#channels) {
          if (other !== channel) other.onmessage?.({ data: message } as MessageEvent);
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
  const windows = new Windows<string>({
    channel: room.join(),
    id,
    lead: () => log.push("lead"),
    follow: () => log.push("follow"),
    receive: (content) => log.push(content),
    welcome: () => log.push("welcome"),
    healthy: () => state.healthy,
    visible: () => state.visible,
    patience: 100,
  });
  return { windows, log, state };
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
