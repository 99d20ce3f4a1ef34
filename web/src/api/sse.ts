import { createParser } from "eventsource-parser";

/** Longest event held while its end is awaited, in UTF-16 units. A chat chunk is far below 1 MiB; more is a broken peer. */
const MAX_EVENT = 4 * 1024 * 1024;

/** The `data` of an event, or a comment line without its colon. */
export type Sent = { kind: "data"; data: string } | { kind: "comment"; text: string };

/**
 * The server-sent events and comments in `body`, in order.
 *
 * Chunks may end anywhere, inside a character too. An event whose closing blank line
 * never came is dropped, as the standard asks: what ends early must not look complete.
 * `onBytes` is called for every chunk, comments included, so that a caller can tell a quiet stream from a dead one.
 */
export async function* readEvents(
  body: ReadableStream<Uint8Array>,
  onBytes: () => void = () => {},
): AsyncGenerator<Sent, void, undefined> {
  const ready: Sent[] = [];
  let broken: Error | null = null;
  const parser = createParser({
    maxBufferSize: MAX_EVENT,
    onEvent: (event) => ready.push({ kind: "data", data: event.data }),
    onComment: (text) => ready.push({ kind: "comment", text }),
    onError: (error) => {
      if (error.type === "max-buffer-size-exceeded") broken = error;
    },
  });
  const decoder = new TextDecoder();
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onBytes();
      parser.feed(decoder.decode(value, { stream: true }));
      yield* ready.splice(0);
      if (broken) throw broken;
    }
  } finally {
    // Closes the connection when the caller leaves early; the server then frees the sequence.
    reader.cancel().catch(() => {});
  }
}
