// The list of sinks, with how each fares.

import { html, useEffect, useState } from "../core/html.js";
import { place, navigate, setQuery, to } from "../core/router.js";
import { bindKey } from "../core/keyboard.js";
import { useDebounced, useList, useGet } from "../core/resource.js";
import { usesSpaces } from "../core/session.js";
import { number } from "../core/format.js";
import { Empty, Heading, LinkButton, State, Tabs, Time } from "../parts/basics.js";
import { SearchField, Select } from "../parts/forms.js";
import { Sparkline } from "../parts/charts.js";
import { Table } from "../parts/table.js";

const STATUSES = ["active", "failing", "dropping", "quarantined", "paused"];

export default function Sinks() {
  const { query } = place.value;
  const tab = query.tab === "methods" ? "methods" : "sinks";
  useEffect(() => bindKey("n", () => navigate(to("sinks", "new"))), []);
  return html`<${Heading} title="Sinks"><${LinkButton} kind="primary" icon="plus" href=${to("sinks", "new")}>New sink<//><//>
    ${usesSpaces.value && html`<${Tabs} current=${tab} href=${(id) => to("sinks", id === "methods" ? { tab: id } : {})} tabs=${[{ id: "sinks", name: "Sinks" }, { id: "methods", name: "Subscribed methods" }]} />`}
    ${tab === "methods" ? html`<${Subscriptions} />` : html`<${SinkList} query=${query} />`}`;
}

function SinkList({ query }) {
  const { q, status, owner } = query;
  const [words, setWords] = useState(q ?? "");
  const settled = useDebounced(words.trim());
  useEffect(() => {
    if (settled !== (q ?? "")) setQuery({ q: settled }, { replace: true });
  }, [settled]);
  const list = useList("/api/event-sinks", { q, status, owner }, { limit: 200 });
  const isFiltered = Boolean(q || status || owner);
  return html`<div class="filters" role="search" aria-label="Filter sinks">
      <${SearchField} label="Name, description or pattern" value=${words} onInput=${setWords} />
      <${Select} label="Status" value=${status} onInput=${(status) => setQuery({ status })} options=${[["", "any"], ...STATUSES]} />
      <${Select} label="Owner" value=${owner} onInput=${(owner) => setQuery({ owner })} options=${[["", "any"], ["me", "me"], ["global", "global"]]} />
    </div>
    ${list.items.length === 0 && list.isComplete && !list.error ? html`<${NoSinks} isFiltered=${isFiltered} />` : html`<${Table}
      label="Sinks" items=${list.items} more=${list.more} isLoading=${list.isLoading} error=${list.error} retry=${list.reload}
      href=${(sink) => to("sinks", sink.id)}
      columns=${[
        { name: "Name", width: "minmax(0, 2fr)", cell: (sink) => sink.name },
        { name: "Status", width: "120px", cell: (sink) => html`<${State} value=${sink.status} title=${sink.activity?.last_error?.message} />` },
        { name: "Type", width: "80px", secondary: true, tone: "muted", cell: (sink) => sink.type },
        { name: "Events", width: "minmax(0, 2fr)", secondary: true, tone: "mono", cell: (sink) => sink.events },
        { name: "Waiting", width: "70px", align: "right", tone: "hide-on-phone", cell: (sink) => number(sink.queue.depth) },
        { name: "Oldest", width: "90px", tone: "hide-on-phone", cell: (sink) => html`<${Time} at=${sink.queue.oldest_waiting_at} mode="relative" />` },
        { name: "Dead", width: "60px", align: "right", tone: "hide-on-phone", cell: (sink) => number(sink.queue.dead) },
        { name: "Failure rate", width: "90px", align: "right", tone: "hide-on-phone", cell: (sink) => failureRate(sink.activity) },
        { name: "Last hour", width: "90px", tone: "hide-on-phone", cell: (sink) => html`<${Sparkline} activity=${sink.activity} />` },
      ]} />`}`;
}

/** The share of attempts of the last hour that failed. */
export function failureRate(activity) {
  const sum = (counts) => counts.reduce((total, one) => total + one, 0);
  const failed = activity ? sum(activity.failed) : 0;
  const attempts = failed + (activity ? sum(activity.delivered) : 0);
  return attempts === 0 ? "–" : `${Math.round((failed / attempts) * 100)} %`;
}

function NoSinks({ isFiltered }) {
  if (isFiltered) return html`<${Empty} title="No sink matches">Widen the filter, or look at <a href=${to("sinks")}>all sinks</a>.<//>`;
  return html`<${Empty} title="No sinks yet" action=${html`<${LinkButton} kind="primary" icon="plus" href=${to("sinks", "new")}>New sink<//>`}>
    A sink receives events: a webhook posts them to an address of yours, a script runs Lua for each. Make one to hear of what happens.
  <//>`;
}

/** Methods that are called for events. They come and go with the registrations of spaces. */
function Subscriptions() {
  const list = useGet("/api/subscriptions", { limit: 200 });
  const items = list.data?.items ?? [];
  if (list.data && items.length === 0) return html`<${Empty} title="No method subscribes to events">A method does so with <code>events</code> in its registration.<//>`;
  return html`<${Table} label="Subscribed methods" items=${items} isLoading=${list.isLoading && !list.data} error=${list.error} retry=${list.reload}
    href=${(subscription) => to("sinks", subscription.id, { subscription: 1 })}
    columns=${[
      { name: "Method", width: "minmax(0, 2fr)", cell: (one) => one.method },
      { name: "Space", width: "minmax(0, 1fr)", cell: (one) => one.space },
      { name: "Events", width: "minmax(0, 2fr)", secondary: true, tone: "mono", cell: (one) => one.events },
      { name: "State", width: "110px", cell: (one) => html`<${State} value=${one.open ? "active" : "away"} />` },
      { name: "Waiting", width: "80px", align: "right", secondary: true, cell: (one) => number(one.queue.depth) },
      { name: "Dead", width: "70px", align: "right", secondary: true, cell: (one) => number(one.queue.dead) },
    ]} />`;
}
