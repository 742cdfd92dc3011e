// The live stream of events and deliveries. Items are collected and handed over once a frame, so that a thousand a second do
// not freeze the page.

import { get, queryString } from "./api.js";

/** The wait before the stream is opened again, in milliseconds. */
const RETRY = 1500;

/** The most items that wait for a frame. A hidden page has no frames. */
const MAX_WAITING = 2000;

/**
 * Follows `/api/events/stream`. `onItems` gets lists of `{kind: "event" | "delivery" | "lagged", data}`, `onState` `connected` or
 * `connecting`. Returns the function that ends it.
 */
export function follow({ pattern, onItems, onState }) {
  let waiting = [];
  let frame = 0;
  let source;
  let timer;
  let isEnded = false;

  const flush = () => {
    frame = 0;
    const items = waiting;
    waiting = [];
    onItems(items);
  };
  const take = (kind) => (event) => {
    waiting.push({ kind, data: JSON.parse(event.data) });
    if (waiting.length > MAX_WAITING) {
      const dropped = waiting.splice(0, MAX_WAITING / 2);
      const missed = dropped.reduce((sum, item) => sum + (item.kind === "lagged" ? item.data.missed : 1), 0);
      waiting.unshift({ kind: "lagged", data: { missed } });
    }
    frame ||= requestAnimationFrame(flush);
  };
  const open = () => {
    onState("connecting");
    source = new EventSource(`/api/events/stream${queryString({ pattern })}`);
    source.onopen = () => onState("connected");
    for (const kind of ["event", "delivery", "lagged"]) source.addEventListener(kind, take(kind));
    source.onerror = () => {
      source.close();
      if (isEnded) return;
      onState("connecting");
      // The stream does not tell why it ended: a request does, and ends the session if that is the reason.
      get("/api/whoami").catch(() => {}).then(() => (timer = setTimeout(reopen, RETRY)));
    };
  };
  const reopen = () => isEnded || open();
  open();
  return () => {
    isEnded = true;
    clearTimeout(timer);
    cancelAnimationFrame(frame);
    source.close();
  };
}
