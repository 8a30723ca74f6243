import { defineConfig } from "vitest/config";

/** A browser and real servers: one file at a time, so that they do not take each other's time. */
export default defineConfig({
  test: {
    include: ["tests/e2e/**/*.e2e.ts"],
    fileParallelism: false,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
