// The overview: the last hour, and what needs attention. Every figure leads to its list.

import { html } from "../core/html.js";
import { useGet } from "../core/resource.js";
import { managesSinks, usesSpaces } from "../core/session.js";
import { to } from "../core/router.js";
import { count, number, relative } from "../core/format.js";
import { Empty, ErrorBox, Heading, LinkButton, Loading, State } from "../parts/basics.js";
import { MinuteChart } from "../parts/charts.js";

/** The interval of the figures, in milliseconds. */
const EVERY = 3000;

export default function Overview() {
  const { data, error, reload } = useGet("/api/activity", {}, { every: EVERY });
  if (!data) return html`<${Heading} title="Overview" />${error ? html`<${ErrorBox} error=${error} retry=${reload} />` : html`<${Loading} />`}`;
  return html`<${Heading} title="Overview" subtitle="The last hour" />
    <${Figures} data=${data} />
    <section class="panel" aria-labelledby="chart-title"><h2 id="chart-title">Events and deliveries by minute</h2>
      <${MinuteChart} label="Events and deliveries by minute" from=${data.from} height=${210} series=${[
        { name: "events", colour: "--chart-events", values: data.events, fill: true },
        { name: "delivered", colour: "--chart-delivered", values: data.delivered },
        { name: "failed", colour: "--chart-failed", values: data.failed },
        { name: "dropped", colour: "--chart-dropped", values: data.dropped },
      ]} />
    </section>
    ${managesSinks.value && html`<${Troubled} data=${data} />`}
    ${usesSpaces.value && html`<${SpacesSummary} spaces=${data.spaces} />`}
    <${First} data=${data} />`;
}

const sum = (counts) => counts.reduce((total, one) => total + one, 0);

function Figure({ href, value, name, tone = "" }) {
  return html`<a class=${`figure ${tone}`} href=${href}><strong>${typeof value === "number" ? number(value) : value}</strong><span>${name}</span></a>`;
}

function Figures({ data }) {
  const { queues, sinks, spaces } = data;
  const failed = sum(data.failed);
  const oldest = queues.oldest_waiting_at ? `waiting, the oldest since ${relative(queues.oldest_waiting_at).replace(" ago", "")}` : "waiting";
  const events = usesSpaces.value;
  const list = (state) => (events ? to("events", { state }) : to("sinks"));
  return html`<div class="figures">
    ${events && html`<${Figure} href=${to("events")} value=${sum(data.events)} name="events" />`}
    <${Figure} href=${list("delivered")} value=${sum(data.delivered)} name="deliveries" />
    <${Figure} href=${managesSinks.value ? to("sinks", { status: "failing" }) : list("dead")} value=${failed} name="failed attempts" tone=${failed > 0 ? "bad" : ""} />
    <${Figure} href=${list("queued")} value=${queues.depth} name=${oldest} />
    <${Figure} href=${list("dead")} value=${queues.dead} name="dead letters" tone=${queues.dead > 0 ? "warn" : ""} />
    ${managesSinks.value && html`<${Figure} href=${to("sinks", { status: "failing" })} value=${sinks.failing + sinks.quarantined} name="sinks that fail" tone=${sinks.failing + sinks.quarantined > 0 ? "bad" : ""} />
      <${Figure} href=${to("sinks", { status: "dropping" })} value=${sinks.dropping} name="sinks that drop" tone=${sinks.dropping > 0 ? "warn" : ""} />`}
    ${events && html`<${Figure} href=${to("spaces", { health: "unhealthy" })} value=${spaces.unhealthy} name="unhealthy spaces" tone=${spaces.unhealthy > 0 ? "bad" : ""} />
      <${Figure} href=${to("spaces", { agent: "away" })} value=${spaces.away} name="agents away" tone=${spaces.away > 0 ? "bad" : ""} />`}
  </div>`;
}

function Troubled({ data }) {
  const { troubled, sinks } = data;
  const rest = sinks.failing + sinks.dropping + sinks.quarantined - troubled.length;
  return html`<section class="panel" aria-labelledby="troubled-title">
    <div class="panel-head"><h2 id="troubled-title">Sinks that need attention</h2><a href=${to("sinks")}>${count(sinks.total, "sink")}</a></div>
    ${troubled.length === 0 ? html`<p class="muted">None: no sink fails or drops.</p>` : html`<ul class="plain-list">
      ${troubled.map((sink) => html`<li key=${sink.sink_id}>
        <${State} value=${sink.status} /><a href=${to("sinks", sink.sink_id)}>${sink.name}</a>
        <span class="grow muted">${sink.last_error ?? ""}</span>
        <span class="muted nowrap">${count(sink.depth, "waiting", "waiting")}${sink.dead > 0 ? `, ${sink.dead} dead` : ""}</span>
      </li>`)}
    </ul>`}
    ${rest > 0 && html`<p class="muted">and ${rest} more: <a href=${to("sinks", { status: "failing" })}>all that fail</a></p>`}
  </section>`;
}

function SpacesSummary({ spaces }) {
  return html`<section class="panel"><div class="panel-head"><h2>Spaces</h2><a href=${to("spaces")}>${count(spaces.total, "space")}</a></div>
    <p class="muted">${number(spaces.deployed)} deployed, ${number(spaces.unhealthy)} unhealthy, ${spaces.away === 1 ? "1 agent away" : `${number(spaces.away)} agents away`}.</p>
  </section>`;
}

/** What to do first, while there is nothing. */
function First({ data }) {
  if (data.sinks.total > 0 || data.spaces.total > 0 || !managesSinks.value) return null;
  return html`<div class="panel"><${Empty} title="Nothing is connected yet" action=${html`<${LinkButton} kind="primary" icon="plus" href=${to("sinks", "new")}>New sink<//>`}>
    A sink receives events: a webhook of yours, or a script. Make one, then raise an event with <code>svc event hello</code> and watch it arrive.
  <//></div>`;
}
