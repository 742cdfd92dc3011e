// The overview: the last hour, and what needs attention. Every figure leads to the list of what it counts.

import { html } from "../core/html.js";
import { useGet } from "../core/resource.js";
import { managesSinks, usesSpaces } from "../core/session.js";
import { to } from "../core/router.js";
import { count, number, relative } from "../core/format.js";
import { Empty, Heading, LinkButton, ListError, Loading, State } from "../parts/basics.js";
import { MinuteChart } from "../parts/charts.js";

/** The interval of the figures, in milliseconds. */
const EVERY = 3000;

export default function Overview() {
  const { data, error, reload, loadedAt } = useGet("/api/activity", {}, { every: EVERY });
  const failure = html`<${ListError} error=${error} retry=${reload} loadedAt=${data && loadedAt} />`;
  if (!data) return html`<${Heading} title="Overview" />${error ? failure : html`<${Loading} />`}`;
  return html`<${Heading} title="Overview" subtitle="The last hour" />
    ${failure}
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
  return html`<a class=${`figure ${value > 0 ? tone : ""}`} href=${href}><strong>${number(value)}</strong><span>${name}</span></a>`;
}

function Figures({ data }) {
  return html`<div class="figures">
    ${usesSpaces.value ? html`<${EventFigures} data=${data} />` : html`<${SinkFigures} data=${data} />`}
    ${managesSinks.value && html`<${TroubleFigures} sinks=${data.sinks} />`}
    ${usesSpaces.value && html`<${SpaceFigures} spaces=${data.spaces} />`}
  </div>`;
}

function waitingName({ oldest_waiting_at: oldest }) {
  return oldest ? `waiting, the oldest since ${relative(oldest).replace(" ago", "")}` : "waiting";
}

/** Figures that lead to their events. Attempts are found by their own time, since an event may be older than the hour. */
function EventFigures({ data }) {
  const { from, queues } = data;
  // Others' sinks, whose deliveries the figures do not count, may have heard the same events.
  const managed = (query) => to("events", { ...query, managed: "true" });
  const attempts = (attempt) => managed({ attempt, attempt_since: from });
  return html`<${Figure} href=${to("events", { since: from })} value=${sum(data.events)} name="events" />
    <${Figure} href=${attempts("delivered")} value=${sum(data.delivered)} name="deliveries" />
    <${Figure} href=${attempts("failed")} value=${sum(data.failed)} name="failed attempts" tone="bad" />
    <${Figure} href=${managed({ state: "dropped", since: from })} value=${sum(data.dropped)} name="dropped" tone="warn" />
    <${Figure} href=${managed({ state: "queued" })} value=${queues.depth} name=${waitingName(queues)} />
    <${Figure} href=${managed({ state: "dead" })} value=${queues.dead} name="dead letters" tone="warn" />`;
}

/** The same for users who see no events: they lead to the sinks that have such. */
function SinkFigures({ data }) {
  const { queues } = data;
  const having = (what) => to("sinks", { having: what });
  return html`<${Figure} href=${having("delivered")} value=${sum(data.delivered)} name="deliveries" />
    <${Figure} href=${having("failed")} value=${sum(data.failed)} name="failed attempts" tone="bad" />
    <${Figure} href=${having("dropped")} value=${sum(data.dropped)} name="dropped" tone="warn" />
    <${Figure} href=${having("waiting")} value=${queues.depth} name=${waitingName(queues)} />
    <${Figure} href=${having("dead")} value=${queues.dead} name="dead letters" tone="warn" />`;
}

const FAILING = "failing,quarantined";

function TroubleFigures({ sinks }) {
  return html`<${Figure} href=${to("sinks", { status: FAILING })} value=${sinks.failing + sinks.quarantined} name="sinks that fail"
    tone="bad" />
    <${Figure} href=${to("sinks", { status: "dropping" })} value=${sinks.dropping} name="sinks that drop" tone="warn" />`;
}

function SpaceFigures({ spaces }) {
  return html`<${Figure} href=${to("spaces", { health: "unhealthy" })} value=${spaces.unhealthy} name="unhealthy spaces" tone="bad" />
    <${Figure} href=${to("spaces", { agent: "away" })} value=${spaces.away} name="agents away" tone="bad" />`;
}

function Troubled({ data }) {
  const { troubled, sinks } = data;
  const rest = sinks.failing + sinks.dropping + sinks.quarantined - troubled.length;
  const all = to("sinks", { status: `${FAILING},dropping` });
  return html`<section class="panel" aria-labelledby="troubled-title">
    <div class="panel-head">
      <h2 id="troubled-title">Sinks that need attention</h2><a href=${to("sinks")}>${count(sinks.total, "sink")}</a>
    </div>
    ${troubled.length === 0 && html`<p class="muted">None: no sink fails or drops.</p>`}
    <ul class="plain-list">${troubled.map((sink) => html`<${TroubledSink} key=${sink.sink_id} sink=${sink} />`)}</ul>
    ${rest > 0 && html`<p class="muted">and ${number(rest)} more: <a href=${all}>all that fail or drop</a></p>`}
  </section>`;
}

function TroubledSink({ sink }) {
  return html`<li>
    <${State} value=${sink.status} /><a href=${to("sinks", sink.sink_id)}>${sink.name}</a>
    <span class="grow muted">${sink.last_error ?? ""}</span>
    <span class="muted nowrap">${count(sink.depth, "waiting", "waiting")}${sink.dead > 0 ? `, ${sink.dead} dead` : ""}</span>
  </li>`;
}

function SpacesSummary({ spaces }) {
  const link = (query, text) => html`<a href=${to("spaces", query)}>${text}</a>`;
  return html`<section class="panel">
    <div class="panel-head"><h2>Spaces</h2><a href=${to("spaces")}>${count(spaces.total, "space")}</a></div>
    <p class="muted">
      ${link({ state: "deployed" }, `${number(spaces.deployed)} deployed`)}, ${link({ health: "unhealthy" },
        `${number(spaces.unhealthy)} unhealthy`)},
      ${" "}${link({ agent: "away" }, count(spaces.away, "agent away", "agents away"))}.
    </p>
  </section>`;
}

/** What to do first, while there is nothing. */
function First({ data }) {
  if (data.sinks.total > 0 || data.spaces.total > 0 || !managesSinks.value) return null;
  const action = html`<${LinkButton} kind="primary" icon="plus" href=${to("sinks", "new")}>New sink<//>`;
  return html`<div class="panel"><${Empty} title="Nothing is connected yet" action=${action}>
    A sink receives events: a webhook of yours, or a script.${" "}
    Make one, then raise an event with <code>svc event hello</code> and watch it arrive.
  <//></div>`;
}
