/** When to try again. */

export interface BackoffBounds {
  /** Upper bound of the first delay, in milliseconds. */
  readonly base: number;
  /** Upper bound of every delay, in milliseconds. */
  readonly cap: number;
}

/**
 * Full jitter: a delay drawn evenly from zero to a bound that doubles with each failed attempt.
 * A door that restarts is thereby met by its devices one by one and not by all of them at once.
 *
 * @param attempt number of failed attempts so far, from 0
 * @param random 0 <= n < 1
 */
export function fullJitter(attempt: number, bounds: BackoffBounds, random: () => number): number {
  // 2 ** 30 times any base is past every cap; the minimum keeps the power finite.
  const bound = Math.min(bounds.cap, bounds.base * 2 ** Math.min(Math.max(attempt, 0), 30));
  return Math.floor(random() * bound);
}
