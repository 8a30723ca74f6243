import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/integration/**/*.test.ts"],
    fileParallelism: false,
    // Only a failure ever takes so long: a busy machine may be many times slower than this one.
    testTimeout: 240_000,
    // Real servers on a busy machine: what failed is tried once more, and the report says so.
    retry: 1,
    hookTimeout: 480_000,
  },
});
