import { expect, test } from "vitest";
import { fullJitter } from "../src/backoff.ts";

const bounds = { base: 1000, cap: 30_000 };

test("The bound doubles up to the cap, and the delay lies anywhere below it.", () => {
  const highest = [0, 1, 2, 3, 4, 5, 6, 1000].map((attempt) =>
    fullJitter(attempt, bounds, () => 0.999_999),
  );
  const lowest = [0, 3, 1000].map((attempt) => fullJitter(attempt, bounds, () => 0));

  expect(highest).toEqual([999, 1999, 3999, 7999, 15_999, 29_999, 29_999, 29_999]);
  expect(lowest).toEqual([0, 0, 0]);
});
