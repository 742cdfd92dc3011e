// The list of sinks, with how each fares.

import { html, useEffect } from "../core/html.js";
import { place, navigate, setQuery, to } from "../core/router.js";
import { bindKey } from "../core/keyboard.js";
import { useList } from "../core/resource.js";
import { useTyped } from "../core/typed.js";
import { usesSpaces } from "../core/session.js";
import { number } from "../core/format.js";
import { Empty, Freshness, Heading, LinkButton, State, Tabs, Time } from "../parts/basics.js";
import { SearchField, Select } from "../parts/forms.js";
import { Sparkline } from "../parts/charts.js";
import { Table } from "../parts/table.js";
import { SubscriptionTable } from "../parts/subscription_table.js";

const STATUSES = [
  ["", "any"], "active", "failing", ["failing,quarantined", "failing or quarantined"], "dropping",
  ["failing,quarantined,dropping", "failing, quarantined or dropping"], "quarantined", "paused",
];

/** The interval at which the list is read anew, in milliseconds. */
const EVERY = 5000;

const total = (counts = []) => counts.reduce((sum, one) => sum + one, 0);

/** Sinks that have something to show, by the figure that leads to them. */
const HAVING = {
  waiting: ["waiting events", (sink) => sink.queue.depth > 0],
  dead: ["dead letters", (sink) => sink.queue.dead > 0],
  delivered: ["deliveries in the last hour", (sink) => total(sink.activity?.delivered) > 0],
  failed: ["failed attempts in the last hour", (sink) => total(sink.activity?.failed) > 0],
  dropped: ["drops in the last hour", (sink) => total(sink.activity?.dropped) > 0],
};

export default function Sinks() {
  const { query } = place.value;
  const tab = query.tab === "methods" ? "methods" : "sinks";
  useEffect(() => bindKey("n", () => navigate(to("sinks", "new"))), []);
  const href = (id) => to("sinks", id === "methods" ? { tab: id } : {});
  const tabs = [{ id: "sinks", name: "Sinks" }, { id: "methods", name: "Subscribed methods" }];
  return html`<${Heading} title="Sinks"><${NewSink} /><//>
    ${usesSpaces.value && html`<${Tabs} current=${tab} href=${href} tabs=${tabs} />`}
    ${tab === "methods" ? html`<${SubscriptionTable} />` : html`<${SinkList} query=${query} />`}`;
}

function NewSink() {
  return html`<${LinkButton} kind="primary" icon="plus" href=${to("sinks", "new")}>New sink<//>`;
}

function SinkList({ query }) {
  const { q, status, owner, having } = query;
  const keep = HAVING[having]?.[1];
  const list = useList("/api/event-sinks", { q, status, owner }, { limit: 200, keep, every: EVERY });
  const isEmpty = list.items.length === 0 && list.isComplete && !list.error;
  return html`<${Filters} query=${query} />
    <${Freshness} list=${list} every=${EVERY} />
    ${isEmpty ? html`<${NoSinks} isFiltered=${Boolean(q || status || owner || having)} />`
      : html`<${Table} label="Sinks" items=${list.items}
      list=${list} more=${list.more} isLoading=${list.isLoading} href=${(sink) => to("sinks", sink.id)} columns=${COLUMNS} />`}`;
}

function Filters({ query }) {
  const { status, owner, having } = query;
  const [words, setWords] = useTyped("q");
  const havings = Object.entries(HAVING).map(([key, [name]]) => [key, name]);
  return html`<div class="filters" role="search" aria-label="Filter sinks">
    <${SearchField} label="Name, description or pattern" value=${words} onInput=${setWords} />
    <${Select} label="Status" value=${status} onInput=${(status) => setQuery({ status })} options=${STATUSES} />
    <${Select} label="Owner" value=${owner} onInput=${(owner) => setQuery({ owner })} options=${[["", "any"], "me", "global"]} />
    <${Select} label="Having" value=${having} onInput=${(having) => setQuery({ having })} options=${[["", "anything"], ...havings]} />
  </div>`;
}

const COLUMNS = [
  { name: "Name", width: "minmax(0, 2fr)", cell: (sink) => sink.name },
  { name: "Status", width: "120px", cell: (sink) => html`<${State} value=${sink.status} title=${sink.activity?.last_error?.message} />` },
  { name: "Type", width: "80px", secondary: true, tone: "muted", cell: (sink) => sink.type },
  { name: "Events", width: "minmax(0, 2fr)", secondary: true, tone: "mono", cell: (sink) => sink.events },
  { name: "Waiting", width: "70px", align: "right", tone: "hide-on-phone", cell: (sink) => number(sink.queue.depth) },
  { name: "Oldest", width: "90px", tone: "hide-on-phone",
    cell: (sink) => html`<${Time} at=${sink.queue.oldest_waiting_at} mode="relative" />` },
  { name: "Dead", width: "60px", align: "right", tone: "hide-on-phone", cell: (sink) => number(sink.queue.dead) },
  { name: "Failure rate", width: "90px", align: "right", tone: "hide-on-phone", cell: (sink) => failureRate(sink.activity) },
  { name: "Last hour", width: "90px", tone: "hide-on-phone", cell: (sink) => html`<${Sparkline} activity=${sink.activity} />` },
];

/** The share of attempts of the last hour that failed. */
export function failureRate(activity) {
  const failed = total(activity?.failed);
  const attempts = failed + total(activity?.delivered);
  return attempts === 0 ? "–" : `${Math.round((failed / attempts) * 100)} %`;
}

function NoSinks({ isFiltered }) {
  if (isFiltered) return html`<${Empty} title="No sink matches">Widen the filter, or look at <a href=${to("sinks")}>all sinks</a>.<//>`;
  return html`<${Empty} title="No sinks yet" action=${html`<${NewSink} />`}>
    A sink receives events: a webhook posts them to an address of yours, a script runs Lua for each. Make one to hear of what happens.
  <//>`;
}
