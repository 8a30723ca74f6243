import { defineConfig } from "vitest/config";

/** A browser and real servers: one file at a time, so that they do not take each other's time. */
export default defineConfig({
  test: {
    include: ["tests/e2e/**/*.e2e.ts"],
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // A browser on a busy machine now and then misses a deadline: a second try is said in the
    // report, and a test that needs it is to be mended.
    retry: 1,
  },
});
