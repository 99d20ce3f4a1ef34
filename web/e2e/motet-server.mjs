// A `motet serve --auth on` with an empty database of its own.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const TARGET = process.env.CARGO_TARGET_DIR ?? fileURLToPath(new URL("../../target", import.meta.url));

/** The development build, which reads the page from web/dist; `MOTET_BIN` names another. */
export const BINARY = process.env.MOTET_BIN ?? join(TARGET, "debug/motet");

export const isBuilt = existsSync(BINARY);

export async function startMotet() {
  const folder = mkdtempSync(join(tmpdir(), "motet-e2e-"));
  const env = { ...process.env, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder };
  for (const name of Object.keys(env)) if (name.startsWith("MOTET_")) delete env[name];
  const server = spawn(BINARY, ["serve", "--auth", "on", "--port", "0"], {
    env,
    stdio: ["ignore", "ignore", "pipe"],
  });
  const ended = new Promise((resolve) => server.once("exit", resolve));
  const close = async () => {
    server.kill();
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  const url = await address(server);
  return { url, close };
}

/** What the server says first: where it listens. */
function address(server) {
  return new Promise((resolve, reject) => {
    let said = "";
    server.once("error", reject);
    server.once("exit", (code) => reject(new Error(`motet ended with ${code}: ${said}`)));
    server.stderr.on("data", (data) => {
      said += data;
      const url = /http:\/\/127\.0\.0\.1:\d+/.exec(said)?.[0];
      if (url) resolve(url);
    });
  });
}
