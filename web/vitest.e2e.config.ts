import { defineConfig } from "vitest/config";
import { PATIENCE } from "./tests/e2e/patience.ts";

/** A browser and real servers: one file at a time, so that they do not take each other's time. */
export default defineConfig({
  test: {
    include: ["tests/e2e/**/*.e2e.ts"],
    fileParallelism: false,
    // Only a failure ever takes so long: a busy machine may be many times slower than this one.
    testTimeout: 300_000,
    hookTimeout: 480_000,
    expect: { poll: { timeout: PATIENCE, interval: 40 } },
    // A browser on a busy machine now and then misses a deadline: a second try is said in the
    // report, and a test that needs it is to be mended.
    retry: 1,
  },
});
