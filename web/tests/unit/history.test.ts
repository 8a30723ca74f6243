/** The conversation on the disk, where the disk does not do its part. */
import { afterEach, expect, test, vi } from "vitest";
import { History } from "../../chat/history.ts";

afterEach(() => {
  vi.unstubAllGlobals();
});

test("a storage that never answers is as good as none, and that is said", async () => {
  class IDBRequest extends EventTarget {}
  vi.stubGlobal("IDBRequest", IDBRequest);
  vi.stubGlobal("indexedDB", { open: () => new IDBRequest() });
  const failed = vi.fn();
  expect(await new History("agent", failed).load(10)).toEqual([]);
  expect(failed).toHaveBeenCalledOnce();
});

test("so is a browser without one", async () => {
  const failed = vi.fn();
  expect(await new History("agent", failed).load()).toEqual([]);
  expect(failed).toHaveBeenCalledOnce();
});
