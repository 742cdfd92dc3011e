// The live stream of events and deliveries. Items are collected and handed over once a frame, so that a thousand a second do
// not freeze the page.
//
// It is read by `fetch`: the browser's own `EventSource` tells neither the status of a refusal nor that the stream has fallen silent.

import { lost, openStream } from "./api.js";
import { parseExact } from "./json.js";

/** Waits before the stream is opened again, in milliseconds: the first, and the longest. */
const FIRST_WAIT = 1500;
const LONGEST_WAIT = 30_000;

/** Silence after which the server is taken for unreachable. It writes something every 15 seconds. */
export const SILENCE = 45_000;

/** The most items that wait for a frame. A hidden page has no frames. */
const MAX_WAITING = 2000;

/**
 * Follows `/api/events/stream`. `onItems` gets lists of `{kind: "event" | "delivery" | "lagged", data}`, `onState` gets `connecting`,
 * `connected`, or `refused` with the error and the time of the next try. Returns the function that ends it.
 */
export function follow({ pattern, onItems, onState }) {
  const ended = new AbortController();
  const frames = collector(onItems);
  let wait = FIRST_WAIT;
  let timer;

  const open = async () => {
    let pause = wait;
    try {
      const response = await openStream("/api/events/stream", { pattern }, ended.signal);
      wait = FIRST_WAIT;
      onState("connected");
      await read(response.body, frames.add);
      onState("connecting");
    } catch (error) {
      if (ended.signal.aborted || error.status === 401) return;
      // Asking again does not mend a wrong pattern.
      if (error.status === 400) {
        onState("refused", { error });
        return;
      }
      pause = Math.max(wait, error.retryAfter ?? 0);
      if (error.status > 0) onState("refused", { error, nextAt: new Date(Date.now() + pause).toISOString() });
      else onState("connecting");
    }
    if (ended.signal.aborted) return;
    timer = setTimeout(open, pause);
    wait = Math.min(wait * 2, LONGEST_WAIT);
  };

  onState("connecting");
  open();
  return () => {
    ended.abort();
    clearTimeout(timer);
    frames.end();
  };
}

/** Hands items over once a frame. Beyond `MAX_WAITING`, the oldest are counted as missed. */
function collector(onItems) {
  let waiting = [];
  let frame = 0;
  const flush = () => {
    frame = 0;
    const items = waiting;
    waiting = [];
    onItems(items);
  };
  const add = (kind, data) => {
    waiting.push({ kind, data });
    if (waiting.length > MAX_WAITING) {
      const dropped = waiting.splice(0, MAX_WAITING / 2);
      const missed = dropped.reduce((sum, item) => sum + (item.kind === "lagged" ? item.data.missed : 1), 0);
      waiting.unshift({ kind: "lagged", data: { missed } });
    }
    frame ||= requestAnimationFrame(flush);
  };
  return { add, end: () => cancelAnimationFrame(frame) };
}

/** Reads the messages of a stream until it ends, calling `onMessage(kind, data)`. Silence is an error. */
async function read(body, onMessage) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await orSilence(reader);
    if (done) return;
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    for (const message of messages) take(message, onMessage);
  }
}

async function orSilence(reader) {
  let timer;
  const silence = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("the stream is silent")), SILENCE);
  });
  try {
    return await Promise.race([reader.read(), silence]);
  } catch (error) {
    lost();
    reader.cancel().catch(() => {});
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** One message of the stream, `event:` and `data:`. A comment, which keeps the connection, has no data. */
function take(message, onMessage) {
  let kind = "";
  let data = "";
  for (const line of message.split("\n")) {
    if (line.startsWith("event:")) kind = line.slice(6).trim();
    else if (line.startsWith("data:")) data += line.slice(5);
  }
  if (data !== "" && ["event", "delivery", "lagged"].includes(kind)) onMessage(kind, parseExact(data));
}
