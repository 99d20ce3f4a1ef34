import OpenAI from "openai";

/** Where the server under test listens, without a slash at the end. */
export const url = (process.env.MOTET_URL ?? "").replace(/\/$/, "");

/** Why there is nothing to test, or false. */
export const skip = url === "" && "set MOTET_URL to the address of a running server";

export const client = new OpenAI({
  baseURL: `${url || "http://127.0.0.1:0"}/v1`,
  apiKey: "unused",
  maxRetries: 0,
});

/** The id of the served model. */
export async function servedModel() {
  const { data } = await client.models.list();
  return data[0].id;
}

/** Sequences in the engine, as `/metrics` tells. */
export async function runningSequences() {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^motet_sequences_running(?:{.*})? (\S+)$/m.exec(text)?.[1]);
}

/** Tries `isTrue` until it holds; gives up after `ms`. */
export async function eventually(isTrue, ms = 5000) {
  const end = Date.now() + ms;
  while (!(await isTrue())) {
    if (Date.now() > end) throw new Error(`not true within ${ms} ms: ${isTrue}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
