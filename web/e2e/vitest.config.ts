import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    root: new URL("..", import.meta.url).pathname,
    include: ["e2e/**/*.test.ts"],
    testTimeout: 45_000,
    hookTimeout: 45_000,
    // One browser at a time: the tests share a small machine with the server they test.
    fileParallelism: false,
  },
});
