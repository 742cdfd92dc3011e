// Events: the live tail, the history with its filters, and raising one by hand.

import { html, useEffect, useState } from "../core/html.js";
import { managesSinks } from "../core/session.js";
import { place, setQuery, to } from "../core/router.js";
import { useDebounced, useGet, useList } from "../core/resource.js";
import { fromLocalInput, toLocalInput } from "../core/format.js";
import { Button, Empty, Heading, State, Tabs, Time } from "../parts/basics.js";
import { Field, SearchField, Select, Text } from "../parts/forms.js";
import { Table } from "../parts/table.js";
import { Tail } from "../parts/tail.js";
import { EmitDialog } from "../parts/emit_dialog.js";

const STATES = ["queued", "delivered", "skipped", "dropped", "dead", "discarded"];

export default function Events() {
  const { query } = place.value;
  const tab = query.tab === "live" ? "live" : "history";
  const [isEmitting, setEmitting] = useState(false);
  return html`<${Heading} title="Events"><${Button} icon="send" kind="primary" onClick=${() => setEmitting(true)}>Raise an event<//><//>
    <${Tabs} current=${tab} href=${(id) => to("events", id === "live" ? { tab: id, pattern: query.pattern } : { pattern: query.pattern })} tabs=${[{ id: "history", name: "History" }, { id: "live", name: "Live" }]} />
    ${tab === "live" ? html`<${Tail} pattern=${query.pattern} onPattern=${(pattern) => setQuery({ pattern }, { replace: true })} />` : html`<${History} query=${query} />`}
    ${isEmitting && html`<${EmitDialog} onClose=${() => setEmitting(false)} />`}`;
}

/** The state that says most of an event: the worst of its deliveries. */
export function worstState(deliveries) {
  const order = ["dead", "dropped", "queued", "skipped", "discarded", "delivered"];
  return order.find((state) => deliveries.some((delivery) => delivery.state === state));
}

function History({ query }) {
  const { pattern, sink, state, since, until, text } = query;
  const filter = { pattern, sink, state, since, until, text };
  const list = useList("/api/events", filter);
  const isFiltered = Object.values(filter).some(Boolean);
  return html`<${Filters} query=${query} />
    ${list.items.length === 0 && list.isComplete && !list.error ? html`<${NoEvents} isFiltered=${isFiltered} />` : html`<${Table}
      label="Events" items=${list.items} more=${list.more} isLoading=${list.isLoading} error=${list.error} retry=${list.reload}
      href=${(event) => to("events", event.id)}
      columns=${[
        { name: "Type", width: "minmax(0, 3fr)", cell: (event) => event.type },
        { name: "State", width: "110px", cell: (event) => (event.deliveries.length ? html`<${State} value=${worstState(event.deliveries)} />` : html`<span class="muted">no sink</span>`) },
        { name: "Payload", width: "minmax(0, 4fr)", secondary: true, tone: "mono hide-on-phone", cell: (event) => JSON.stringify(event.data).slice(0, 200) },
        { name: "By", width: "minmax(0, 1fr)", secondary: true, cell: (event) => event.actor.username },
        { name: "Accepted", width: "170px", secondary: true, cell: (event) => html`<${Time} at=${event.accepted_at} />` },
      ]} />`}
    ${list.isComplete && list.items.length > 0 && html`<p class="end-note">These are all events that history has.</p>`}`;
}

function Filters({ query }) {
  const sinks = useGet(managesSinks.value ? "/api/event-sinks" : null, { limit: 200 });
  const [pattern, setPattern] = useState(query.pattern ?? "");
  const [text, setText] = useState(query.text ?? "");
  useQuery("pattern", useDebounced(pattern), query.pattern);
  useQuery("text", useDebounced(text), query.text);
  const time = (field, label) => html`<${Field} label=${label}>
    ${(bound) => html`<input type="datetime-local" value=${toLocalInput(query[field])} onChange=${(event) => setQuery({ [field]: fromLocalInput(event.target.value) })} ...${bound} />`}
  <//>`;
  const named = (sinks.data?.items ?? []).map((sink) => [sink.id, sink.name]);
  if (query.sink && !named.some(([id]) => id === query.sink)) named.push([query.sink, query.sink]);
  return html`<div class="filters" role="search" aria-label="Filter events">
    <${SearchField} label="Text in the payload" value=${text} onInput=${setText} />
    <${Text} label="Type pattern" placeholder="custom.deploy.*" value=${pattern} onInput=${setPattern} />
    ${(managesSinks.value || query.sink) && html`<${Select} label="Sink" value=${query.sink} onInput=${(sink) => setQuery({ sink })} options=${[["", "any"], ...named]} />`}
    <${Select} label="State" value=${query.state} onInput=${(state) => setQuery({ state })} options=${[["", "any"], ...STATES]} />
    ${time("since", "Since")}${time("until", "Until")}
    ${Object.keys(query).length > 0 && html`<a class="button quiet" href=${to("events")} onClick=${() => { setPattern(""); setText(""); }}>Clear</a>`}
  </div>`;
}

/** Puts a settled value into the query of the address. */
function useQuery(field, value, present = "") {
  useEffect(() => {
    if (value !== present) setQuery({ [field]: value }, { replace: true });
  }, [value]);
}

function NoEvents({ isFiltered }) {
  if (isFiltered) return html`<${Empty} title="No event matches">Widen the filter, or look at <a href=${to("events")}>all events</a>.<//>`;
  return html`<${Empty} title="No events yet">Raise one with the button above, or from a shell: <code>svc event deploy.done '{"version": "1.2"}'</code><//>`;
}
