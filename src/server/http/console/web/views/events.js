// Events: the live tail, the history with its filters, and raising one by hand.

import { html, useState } from "../core/html.js";
import { managesSinks } from "../core/session.js";
import { place, setQuery, to } from "../core/router.js";
import { useGet, useList } from "../core/resource.js";
import { useTyped } from "../core/typed.js";
import { Button, Empty, Freshness, Heading, State, Tabs, Time } from "../parts/basics.js";
import { SearchField, Select, Text, TimeFilter } from "../parts/forms.js";
import { findSinks, Picker } from "../parts/picker.js";
import { Table } from "../parts/table.js";
import { Tail } from "../parts/tail.js";
import { EmitDialog } from "../parts/emit_dialog.js";

const STATES = ["queued", "delivered", "skipped", "dropped", "dead", "discarded"];
const DELIVERIES = [["", "to any sink"], ["true", "to sinks and methods that I manage"]];
const ATTEMPTS = [["", "any"], ["delivered", "that delivered"], ["failed", "that failed"]];

export default function Events() {
  const { query } = place.value;
  const tab = query.tab === "live" ? "live" : "history";
  const [isEmitting, setEmitting] = useState(false);
  const href = (id) => to("events", { tab: id === "live" ? id : undefined, pattern: query.pattern });
  return html`<${Heading} title="Events"><${Button} icon="send" kind="primary" onClick=${() => setEmitting(true)}>Raise an event<//><//>
    <${Tabs} current=${tab} href=${href} tabs=${[{ id: "history", name: "History" }, { id: "live", name: "Live" }]} />
    ${tab === "live" ? html`<${Tail} pattern=${query.pattern} />` : html`<${History} query=${query} />`}
    ${isEmitting && html`<${EmitDialog} onClose=${() => setEmitting(false)} />`}`;
}

/** The state that says most of an event: the worst of its deliveries. */
export function worstState(deliveries) {
  const order = ["dead", "dropped", "queued", "skipped", "discarded", "delivered"];
  return order.find((state) => deliveries.some((delivery) => delivery.state === state));
}

function EventState({ deliveries }) {
  return deliveries.length > 0 ? html`<${State} value=${worstState(deliveries)} />` : html`<span class="muted">no sink</span>`;
}

function History({ query }) {
  const { pattern, sink, state, attempt, managed, since, until, text } = query;
  const filter = { pattern, sink, state, attempt, attempt_since: attempt && query.attempt_since, managed, since, until, text };
  const list = useList("/api/events", filter, { exact: true });
  const isFiltered = Object.values(filter).some(Boolean);
  const isEmpty = list.items.length === 0 && list.isComplete && !list.error;
  const columns = [
    { name: "Type", width: "minmax(0, 3fr)", cell: (event) => event.type },
    { name: "State", width: "110px", cell: (event) => html`<${EventState} deliveries=${event.deliveries} />` },
    {
      name: "Payload", width: "minmax(0, 4fr)", secondary: true, tone: "mono hide-on-phone",
      cell: (event) => JSON.stringify(event.data).slice(0, 200),
    },
    { name: "By", width: "minmax(0, 1fr)", secondary: true, cell: (event) => event.actor.username },
    { name: "Accepted", width: "170px", secondary: true, cell: (event) => html`<${Time} at=${event.accepted_at} />` },
  ];
  return html`<${Filters} query=${query} />
    <${Freshness} list=${list} />
    ${isEmpty ? html`<${NoEvents} isFiltered=${isFiltered} />`
      : html`<${Table} label="Events" items=${list.items} list=${list} more=${list.more}
      isLoading=${list.isLoading} href=${(event) => to("events", event.id)} columns=${columns} />`}
    ${list.isComplete && list.items.length > 0 && html`<p class="end-note">
      These are all events ${isFiltered ? "of the history that match" : "that history has"}.
    </p>`}`;
}

function Filters({ query }) {
  const [pattern, setPattern] = useTyped("pattern");
  const [text, setText] = useTyped("text", { isTrimmed: false });
  const clear = () => {
    setPattern("");
    setText("");
  };
  const setAttempt = (attempt) => setQuery({ attempt, attempt_since: attempt ? query.attempt_since : "" });
  return html`<div class="filters" role="search" aria-label="Filter events">
    <${SearchField} label="Text in the payload" value=${text} onInput=${setText} />
    <${Text} label="Type pattern" placeholder="custom.deploy.*" value=${pattern} onInput=${setPattern} />
    ${managesSinks.value && html`<${SinkFilter} id=${query.sink} />`}
    <${Select} label="State" value=${query.state} onInput=${(state) => setQuery({ state })} options=${[["", "any"], ...STATES]} />
    <${Select} label="An attempt" value=${query.attempt} onInput=${setAttempt} options=${ATTEMPTS} />
    ${(query.state || query.attempt || query.managed) && html`<${Select} label="Of deliveries" value=${query.managed}
      onInput=${(managed) => setQuery({ managed })} options=${DELIVERIES} />`}
    ${query.attempt && html`<${TimeFilter} label="Attempted since" field="attempt_since" query=${query} />`}
    <${TimeFilter} label="Since" field="since" query=${query} />
    <${TimeFilter} label="Until" field="until" query=${query} />
    ${Object.keys(query).length > 0 && html`<a class="button quiet" href=${to("events")} onClick=${clear}>Clear</a>`}
  </div>`;
}

function SinkFilter({ id }) {
  const sink = useGet(id ? `/api/event-sinks/${encodeURIComponent(id)}` : null);
  const name = sink.data?.id === id ? sink.data?.name : id;
  return html`<${Picker} label="Sink" value=${id} name=${name} search=${findSinks}
    onChoose=${(chosen) => setQuery({ sink: chosen?.id })} />`;
}

function NoEvents({ isFiltered }) {
  if (isFiltered) return html`<${Empty} title="No event matches">Widen the filter, or look at <a href=${to("events")}>all events</a>.<//>`;
  return html`<${Empty} title="No events yet">
    Raise one with the button above, or from a shell: <code>svc event deploy.done '{"version": "1.2"}'</code>
  <//>`;
}
