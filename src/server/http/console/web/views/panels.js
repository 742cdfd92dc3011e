// The dialogs of the keys and of the search over everything.

import { html, useEffect, useState } from "../core/html.js";
import { get } from "../core/api.js";
import { managesSinks, usesSpaces } from "../core/session.js";
import { navigate, to } from "../core/router.js";
import { offeredViews } from "../core/routes.js";
import { useDebounced } from "../core/resource.js";
import { Dialog } from "../parts/dialogs.js";

export function Help({ onClose }) {
  const general = [["/", "Search this view, or everything"], ["?", "This help"], ["n", "Make a new one, in a list"], ["p", "Pause and continue the live tail"], ["Esc", "Close a dialog"]];
  return html`<${Dialog} title="Keys" onClose=${onClose} wide>
    <ul class="keys">
      ${general.map(([key, name]) => html`<li key=${key}><span>${name}</span><kbd>${key}</kbd></li>`)}
      ${offeredViews().map((view) => html`<li key=${view.path}><span>${view.name}</span><span><kbd>g</kbd> <kbd>${view.key}</kbd></span></li>`)}
    </ul>
    <p class="hint spaced">In the editor: Ctrl-Space completes, F8 goes to the next error, Tab leaves it. Times are local; hover over one to see it in UTC.</p>
  <//>`;
}

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Views by name, sinks and methods by words, spaces by name, and an event by its id. */
export function Search({ onClose }) {
  const [text, setText] = useState("");
  const [records, setRecords] = useState([]);
  const [chosen, setChosen] = useState(0);
  const words = useDebounced(text.trim(), 150);
  const found = [...findViews(text.trim()), ...(words === text.trim() ? records : [])];
  useEffect(() => {
    let isGone = false;
    findRecords(words).then((results) => isGone || setRecords(results));
    return () => (isGone = true);
  }, [words]);
  useEffect(() => setChosen(0), [text]);
  const open = (result) => {
    onClose();
    navigate(result.href);
  };
  const onKeyDown = (event) => {
    if (event.key === "ArrowDown") setChosen(Math.min(chosen + 1, found.length - 1));
    else if (event.key === "ArrowUp") setChosen(Math.max(chosen - 1, 0));
    else if (event.key === "Enter" && found[chosen]) open(found[chosen]);
    else return;
    event.preventDefault();
  };
  return html`<${Dialog} title="Search" onClose=${onClose}>
    <input type="search" aria-label="Search views, sinks, methods and spaces" placeholder="A view, sink, method, space or event id" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${onKeyDown} autocomplete="off" />
    <ul class="search-list" aria-label="Results">
      ${found.map((result, at) => html`<li key=${result.href}><a href=${result.href} class=${at === chosen ? "chosen" : ""} onClick=${onClose}>${result.name}<span class="kind">${result.kind}</span></a></li>`)}
    </ul>
    ${found.length === 0 && html`<p class="muted" role="status">Nothing found.</p>`}
  <//>`;
}

function findViews(words) {
  const lower = words.toLowerCase();
  return offeredViews().filter((view) => view.name.toLowerCase().includes(lower)).map((view) => ({ name: view.name, kind: "view", href: to(view.path) }));
}

async function findRecords(words) {
  if (words === "") return [];
  if (ID.test(words)) return [{ name: words, kind: "event", href: to("events", words) }];
  const none = { items: [], methods: [] };
  const [sinks, methods, spaces] = await Promise.all([
    managesSinks.value ? get("/api/event-sinks", { q: words, limit: 8 }).catch(() => none) : none,
    get("/api/methods", { q: words }).catch(() => none),
    usesSpaces.value ? get("/api/spaces", { name: words, limit: 5 }).catch(() => none) : none,
  ]);
  return [
    ...sinks.items.map((sink) => ({ name: sink.name, kind: "sink", href: to("sinks", sink.id) })),
    ...methods.methods.slice(0, 8).map((method) => ({ name: method.name, kind: "method", href: to("methods", method.name) })),
    ...spaces.items.map((space) => ({ name: space.name, kind: "space", href: to("spaces", space.id) })),
  ];
}
