// The live tail: the newest events on top, with the state of their deliveries as it comes in. It can be paused and keeps the last rows.

import { html, useEffect, useRef, useState } from "../core/html.js";
import { follow } from "../core/live.js";
import { bindKey } from "../core/keyboard.js";
import { to } from "../core/router.js";
import { useDebounced } from "../core/resource.js";
import { localTime, number } from "../core/format.js";
import { Button, State, Time } from "./basics.js";
import { SearchField } from "./forms.js";

/** Rows that are kept, and the height of one in pixels. */
const KEPT = 2000;
const ROW = 32;

/** What a failed delivery is not made better by. */
const RANK = { dead: 5, dropped: 4, queued: 3, skipped: 1, delivered: 0 };

const emptyTail = () => ({ rows: [], byId: new Map(), seen: 0, missed: 0 });

export function Tail({ pattern = "", onPattern }) {
  const [typed, setTyped] = useState(pattern);
  const settled = useDebounced(typed.trim(), 400);
  const [isPaused, setPaused] = useState(false);
  const [connection, setConnection] = useState({ state: "connecting" });
  const [version, setVersion] = useState(0);
  const [top, setTop] = useState(0);
  const tail = useRef(emptyTail());
  const paused = useRef(false);
  paused.current = isPaused;

  useEffect(() => bindKey("p", () => setPaused((before) => !before)), []);
  useEffect(() => {
    if (settled !== pattern) onPattern(settled);
    tail.current = emptyTail();
    return follow({
      pattern: settled,
      onState: (state, refusal) => setConnection({ state, refusal }),
      onItems: (items) => {
        add(tail.current, items, paused.current);
        setVersion((before) => before + 1);
      },
    });
  }, [settled]);

  const { rows, seen, missed } = tail.current;
  const first = Math.max(0, Math.floor(top / ROW) - 6);
  const shown = rows.slice(first, first + 40);
  const isEmpty = rows.length === 0 && connection.state === "connected";
  return html`<div class="tail" data-version=${version}>
    <div class="tail-bar">
      <${State} value=${isPaused && connection.state === "connected" ? "paused" : connection.state} />
      <span class="muted" aria-live="off"><span class="tail-seen">${number(seen)}</span> events${missed > 0 && html`,
        ${" "}<span class="tail-missed">${number(missed)}</span> items were skipped to keep up`}</span>
      <span class="grow"></span>
      <${SearchField} label="Type pattern of the tail" placeholder="custom.deploy.*" value=${typed} onInput=${setTyped} />
      <${Button} icon=${isPaused ? "play" : "pause"} onClick=${() => setPaused(!isPaused)}>${isPaused ? "Continue" : "Pause"}<//>
    </div>
    ${connection.refusal && html`<${Refusal} refusal=${connection.refusal} />`}
    <div class="tail-rows" tabindex="0" role="log" aria-live="off" aria-label="Live events, newest first"
      onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
      <div style=${{ height: `${first * ROW}px` }}></div>
      ${shown.map((row) => html`<${TailRow} key=${row.event.id} row=${row} state=${row.state} />`)}
      <div style=${{ height: `${Math.max(0, rows.length - first - shown.length) * ROW}px` }}></div>
      ${isEmpty && html`<div class="end-note">Waiting for events. They appear here as they are accepted.</div>`}
    </div>
  </div>`;
}

/** The server's reason for not opening the stream, and when it is asked again. */
function Refusal({ refusal: { error, nextAt } }) {
  return html`<div class="banner bad" role="alert">The live events are refused: ${error.message}
    ${nextAt ? html` The next try is at <${Time} at=${nextAt} />.` : " Change the pattern to try again."}</div>`;
}

function TailRow({ row, state }) {
  return html`<a class="tail-row" href=${to("events", row.event.id)}>
    <span class="muted" title=${`${row.event.ts} (UTC)`}>${row.time}</span><strong>${row.event.type}</strong>
    <span>${state && html`<${State} value=${state} />`}</span><span class="mono muted">${row.payload}</span>
  </a>`;
}

/** Adds items to the tail. While it is paused, new events are only counted; the states of shown ones change. */
function add(tail, items, isPaused) {
  const fresh = [];
  for (const { kind, data } of items) {
    if (kind === "lagged") tail.missed += data.missed;
    else if (kind === "delivery") note(tail.byId.get(data.event_id), data);
    else {
      tail.seen += 1;
      if (isPaused) continue;
      const row = { event: data, time: localTime(data.ts), payload: JSON.stringify(data.data).slice(0, 160), state: null };
      fresh.push(row);
      tail.byId.set(data.id, row);
    }
  }
  if (fresh.length === 0) return;
  tail.rows = [...fresh.reverse(), ...tail.rows];
  for (const row of tail.rows.splice(KEPT)) tail.byId.delete(row.event.id);
}

function note(row, delivery) {
  if (!row) return;
  const state = delivery.state === "queued" ? "failed" : delivery.state;
  if (row.state === null || (RANK[state] ?? 2) >= (RANK[row.state] ?? 2) || row.state === "failed") row.state = state;
}
