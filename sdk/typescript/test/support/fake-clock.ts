import type { Clock } from "../../src/clock.ts";

interface Timer {
  readonly at: number;
  readonly callback: () => void;
}

/** Lets everything run that is ready to run: promises, and the platform's own short work. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) {
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
  }
}

/** A clock that moves only when told to. */
export class FakeClock implements Clock {
  #now = 1_800_000_000_000;
  readonly #timers = new Map<number, Timer>();
  #count = 0;

  now(): number {
    return this.#now;
  }

  setTimeout(callback: () => void, delay: number): unknown {
    this.#count += 1;
    this.#timers.set(this.#count, { at: this.#now + Math.max(0, delay), callback });
    return this.#count;
  }

  clearTimeout(handle: unknown): void {
    this.#timers.delete(handle as number);
  }

  get pendingTimers(): number {
    return this.#timers.size;
  }

  /** Moves on by `duration` milliseconds, running what becomes due in its order. */
  async advance(duration: number): Promise<void> {
    const end = this.#now + duration;
    await settle();
    for (;;) {
      const [next] = [...this.#timers]
        .filter(([, timer]) => timer.at <= end)
        .sort(([firstId, first], [secondId, second]) => first.at - second.at || firstId - secondId);
      if (next === undefined) break;
      const [id, timer] = next;
      this.#timers.delete(id);
      this.#now = Math.max(this.#now, timer.at);
      timer.callback();
      await settle();
    }
    this.#now = end;
  }
}
