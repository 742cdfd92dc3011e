// The live tail: the newest events on top, with the state of their deliveries as it comes in. It can be paused and keeps the last rows.

import { html, useEffect, useRef, useState } from "../core/html.js";
import { follow, SILENCE } from "../core/live.js";
import { bindKey } from "../core/keyboard.js";
import { to } from "../core/router.js";
import { useTyped } from "../core/typed.js";
import { localTime, number } from "../core/format.js";
import { Button, State, Time } from "./basics.js";
import { SearchField } from "./forms.js";

/** Rows that are kept, and the height of one in pixels. */
const KEPT = 2000;
const ROW = 32;

/** Characters of a payload that a row keeps. */
const CUT = 160;

/** How bad a state is: a row shows the worst that its sinks have now. */
const RANK = { dead: 5, dropped: 4, failed: 3, skipped: 1, delivered: 0 };

const emptyTail = () => ({ rows: [], byId: new Map(), seen: 0, missed: 0 });

export function Tail({ pattern = "" }) {
  const [typed, setTyped] = useTyped("pattern");
  const [isPaused, setPaused] = useState(false);
  const [connection, setConnection] = useState({ state: "connecting" });
  const [lostAt, setLostAt] = useState(null);
  const [version, setVersion] = useState(0);
  const [top, setTop] = useState(0);
  const tail = useRef(emptyTail());
  const paused = useRef(false);
  paused.current = isPaused;

  useEffect(() => bindKey("p", () => setPaused((before) => !before)), []);
  useEffect(() => {
    let wasConnected = false;
    tail.current = emptyTail();
    setLostAt(null);
    return follow({
      pattern,
      onState: (state, refusal) => {
        setConnection({ state, refusal });
        // It may have been silent for a while before that was noticed.
        if (wasConnected && state !== "connected") setLostAt((before) => before ?? new Date(Date.now() - SILENCE).toISOString());
        wasConnected ||= state === "connected";
      },
      onItems: (items) => {
        add(tail.current, items, paused.current);
        setVersion((before) => before + 1);
      },
    });
  }, [pattern]);

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
    ${lostAt && connection.state === "connected" && html`<${Gap} pattern=${pattern} since=${lostAt} />`}
    <div class="tail-rows" tabindex="0" role="log" aria-live="off" aria-label="Live events, newest first"
      onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
      <div style=${{ height: `${first * ROW}px` }}></div>
      ${shown.map((row) => html`<${TailRow} key=${row.id} row=${row} state=${row.state} />`)}
      <div style=${{ height: `${Math.max(0, rows.length - first - shown.length) * ROW}px` }}></div>
      ${isEmpty && html`<div class="end-note">Waiting for events. They appear here as they are accepted.</div>`}
    </div>
  </div>`;
}

/** Where the events are that were not seen because the connection was lost. */
function Gap({ pattern, since }) {
  return html`<p class="banner warn">The connection was lost for a while. Events of the time without it are in the${" "}
    <a href=${to("events", { pattern, since })}>history</a>.</p>`;
}

/** The server's reason for not opening the stream, and when it is asked again. */
function Refusal({ refusal: { error, nextAt } }) {
  return html`<div class="banner bad" role="alert">The live events are refused: ${error.message}
    ${nextAt ? html` The next try is at <${Time} at=${nextAt} />.` : " Change the pattern to try again."}</div>`;
}

function TailRow({ row, state }) {
  return html`<a class="tail-row" href=${to("events", row.id)}>
    <span class="muted" title=${`${row.ts} (UTC)`}>${row.time}</span><strong>${row.type}</strong>
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
      const { id, type, ts } = data;
      const row = { id, type, ts, time: localTime(ts), payload: cut(JSON.stringify(data.data)), states: new Map(), state: null };
      fresh.push(row);
      tail.byId.set(data.id, row);
    }
  }
  if (fresh.length === 0) return;
  tail.rows = [...fresh.reverse(), ...tail.rows];
  for (const row of tail.rows.splice(KEPT)) tail.byId.delete(row.id);
}

/** The first characters of a text. As a part of the text it would keep all of it in memory. */
function cut(text) {
  return text.length > CUT ? JSON.parse(JSON.stringify(text.slice(0, CUT))) : text;
}

/** Notes how a sink fares with the event of a row. A delivery that is queued after an attempt has failed so far. */
function note(row, delivery) {
  if (!row) return;
  row.states.set(delivery.sink_id, delivery.state === "queued" ? "failed" : delivery.state);
  const rank = (state) => RANK[state] ?? 2;
  row.state = [...row.states.values()].reduce((worst, state) => (rank(state) > rank(worst) ? state : worst));
}
