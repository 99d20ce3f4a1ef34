import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const server = process.env.MOTET_URL ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [react()],
  build: {
    target: "es2022",
    // Everything is a file of its own: the content security policy of the server has no `data:` for scripts or fonts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: { "/v1": server, "/api": server, "/metrics": server } },
  test: {
    include: ["src/**/*.test.{ts,tsx}"],
    environment: "jsdom",
  },
});
