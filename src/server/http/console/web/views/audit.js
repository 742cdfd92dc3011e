// The audit log, newest first, with its filters.

import { html, useState } from "../core/html.js";
import { place, to } from "../core/router.js";
import { useList } from "../core/resource.js";
import { useTyped } from "../core/typed.js";
import { pretty } from "../core/format.js";
import { Block, Empty, Freshness, Heading, Time } from "../parts/basics.js";
import { Dialog } from "../parts/dialogs.js";
import { Text, TimeFilter } from "../parts/forms.js";
import { Table } from "../parts/table.js";

/** The columns of the log; `show` opens an entry. */
const columnsOf = (show) => [
  {
    name: "Action", width: "minmax(0, 2fr)",
    cell: (entry) => html`<button type="button" class="row-button" onClick=${() => show(entry)}>${entry.action}</button>`,
  },
  { name: "Object", width: "minmax(0, 3fr)", secondary: true, cell: (entry) => entry.object },
  {
    name: "By", width: "minmax(0, 1fr)", secondary: true,
    cell: (entry) => entry.actor?.username ?? html`<span class="muted">unknown</span>`,
  },
  {
    name: "Detail", width: "minmax(0, 3fr)", tone: "mono hide-on-phone",
    cell: (entry) => (entry.detail ? JSON.stringify(entry.detail).slice(0, 160) : ""),
  },
  { name: "When", width: "190px", secondary: true, cell: (entry) => html`<${Time} at=${entry.at} />` },
];

export default function Audit() {
  const { query } = place.value;
  const { actor, action, since, until } = query;
  const list = useList("/api/audit", { actor, action, since, until }, { limit: 200 });
  const [shown, setShown] = useState(null);
  const isEmpty = list.items.length === 0 && list.isComplete && !list.error;
  return html`<${Heading} title="Audit" subtitle="Who did what, with drops and give-ups among it" />
    <${Filters} query=${query} />
    <${Freshness} list=${list} />
    ${isEmpty ? html`<${Empty} title="No entry matches"><a href=${to("audit")}>All entries</a><//>` : html`<${Table} label="Audit log"
      items=${list.items} list=${list} more=${list.more} isLoading=${list.isLoading} columns=${columnsOf(setShown)} />`}
    ${shown && html`<${Dialog} title=${shown.action} onClose=${() => setShown(null)} wide>
      <${Block} text=${pretty(shown)} label="Entry" />
    <//>`}`;
}

function Filters({ query }) {
  const [actor, setActor] = useTyped("actor");
  const [action, setAction] = useTyped("action");
  const clear = () => {
    setActor("");
    setAction("");
  };
  return html`<div class="filters" role="search" aria-label="Filter the audit log">
    <${Text} label="By" placeholder="a user's name" value=${actor} onInput=${setActor} />
    <${Text} label="Action" placeholder="sink.*" value=${action} onInput=${setAction} />
    <${TimeFilter} label="Since" field="since" query=${query} />
    <${TimeFilter} label="Until" field="until" query=${query} />
    ${Object.keys(query).length > 0 && html`<a class="button quiet" href=${to("audit")} onClick=${clear}>Clear</a>`}
  </div>`;
}
