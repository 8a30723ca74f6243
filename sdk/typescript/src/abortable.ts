/**
 * Waits for `work`, but no longer than until `signal` aborts: then it rejects with the signal's reason.
 *
 * For work that may not heed the signal itself, as a `fetch` of another platform, or the body of a
 * response that came from elsewhere.
 *
 * @param late gets the result of work that ends after the abort, to let go of it
 */
export function abortable<Value>(
  work: Promise<Value>,
  signal: AbortSignal,
  late: (value: Value) => unknown = () => undefined,
): Promise<Value> {
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      reject(signal.reason as Error);
    };
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
    work.then(
      (value) => {
        signal.removeEventListener("abort", stop);
        if (signal.aborted) void late(value);
        resolve(value);
      },
      (error: unknown) => {
        signal.removeEventListener("abort", stop);
        reject(error as Error);
      },
    );
  });
}
