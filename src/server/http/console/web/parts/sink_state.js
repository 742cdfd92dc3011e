// How a sink fares: its figures, each leading to the list of what it counts, its troubles, and its definition in short.

import { html } from "../core/html.js";
import { usesSpaces } from "../core/session.js";
import { to } from "../core/router.js";
import { count, number } from "../core/format.js";
import { valueText } from "../core/sink_draft.js";
import { Code, Fact, Facts, Time } from "./basics.js";
import { Sparkline } from "./charts.js";

const sum = (counts) => counts.reduce((total, one) => total + one, 0);

/** The start of the hour that a sink's figures count: 59 whole minutes before the present one. */
function hourStart() {
  return new Date((Math.floor(Date.now() / 60_000) - 59) * 60_000).toISOString();
}

/** A figure, which leads to its list if the user may see that. */
function Figure({ href, value, name, tone = "" }) {
  const content = html`<strong>${number(value)}</strong><span>${name}</span>`;
  const look = `figure ${value > 0 ? tone : ""}`;
  return href ? html`<a class=${look} href=${href}>${content}</a>` : html`<div class=${look}>${content}</div>`;
}

export function SinkState({ sink }) {
  return html`<${Figures} sink=${sink} /><${Warnings} sink=${sink} /><${About} sink=${sink} />`;
}

function Figures({ sink }) {
  const { queue, activity } = sink;
  const [delivered, failed, dropped] = [activity.delivered, activity.failed, activity.dropped].map(sum);
  const since = hourStart();
  const events = (query) => usesSpaces.value && to("events", { sink: sink.id, ...query });
  const attempts = (attempt) => events({ attempt, attempt_since: since });
  const rate = failed + delivered > 0 ? `failed attempts, ${Math.round((failed / (failed + delivered)) * 100)} %` : "failed attempts";
  return html`<div class="figures">
    <${Figure} href=${events({ state: "queued" })} value=${queue.depth} name="waiting" />
    <${Figure} href=${attempts("delivered")} value=${delivered} name="delivered in the last hour" />
    <${Figure} href=${attempts("failed")} value=${failed} name=${rate} tone="bad" />
    <${Figure} href=${events({ state: "dropped", since })} value=${dropped} name="dropped" tone="warn" />
    <${Figure} href=${to("sinks", sink.id, { tab: "letters" })} value=${queue.dead} name="dead letters" tone="warn" />
  </div>`;
}

function Warnings({ sink }) {
  const { activity, failure, quarantine, filter_errors: filterErrors, previous_secret_until: until } = sink;
  return html`${failure && html`<${Failure} failure=${failure} />`}
    ${quarantine && html`<p class="banner bad">
      Its Lua is in quarantine until <${Time} at=${quarantine.until} />, or until it is changed: ${quarantine.reason}
    </p>`}
    ${filterErrors && html`<p class="banner warn">
      Its filter failed ${count(filterErrors.count, "time")}, each of which counted as a match. The last,${" "}
      <${Time} at=${filterErrors.last_at} />: ${filterErrors.last}
    </p>`}
    ${activity.last_error && html`<p class="banner warn">
      The last error, <${Time} at=${activity.last_error.at} mode="relative" />: ${activity.last_error.message}
    </p>`}
    ${until && html`<p class="banner warn">Requests are also signed with the former secret until <${Time} at=${until}
      mode="date" />.</p>`}`;
}

function Failure({ failure }) {
  return html`<p class="banner bad">It is ${failure.state} since <${Time} at=${failure.since} mode="date" />: ${failure.reason}
    ${failure.needs_change && " Attempts alone do not mend it: change the sink, its script or the egress policy."}
    ${failure.next_attempt_at && html` The next attempt is due <${Time} at=${failure.next_attempt_at} mode="relative" />.`}
  </p>`;
}

function batchText(batch) {
  return batch && `up to ${batch.max} events${batch.wait ? `, waiting ${batch.wait}` : ""}`;
}

function About({ sink }) {
  const { queue } = sink;
  const space = usesSpaces.value ? html`<a href=${to("spaces", sink.space_id)}>${sink.space_id}</a>` : sink.space_id;
  return html`<section class="panel"><h2>About</h2>
    <${Facts}>
      <${Fact} name="Description">${sink.description}<//>
      <${Fact} name="Address">${valueText(sink.webhook?.url ?? "")}<//>
      <${Fact} name="Filter">${sink.filter && html`<code>${sink.filter}</code>`}<//>
      <${Fact} name="Stored script">${sink.script?.script_id && html`<a href=${to("scripts", sink.script.script_id)}>open</a>`}<//>
      <${Fact} name="Batches">${batchText(sink.webhook?.batch)}<//>
      <${Fact} name="After the last attempt">${sink.on_failure === "hold" && "held, and tried again with growing waits"}<//>
      <${Fact} name="Hears the service's own reports">${sink.internal && "yes"}<//>
      <${Fact} name="Oldest waiting">${queue.oldest_waiting_at && html`<${Time} at=${queue.oldest_waiting_at} mode="relative" />`}<//>
      <${Fact} name="Next number">${queue.next_sequence}<//>
      <${Fact} name="Made by the space">${sink.space_id && space}<//>
      <${Fact} name="Changed"><${Time} at=${sink.updated_at} mode="date" /><//>
      <${Fact} name="Last hour"><${Sparkline} activity=${sink.activity} /><//>
      <${Fact} name="Id"><${Code} text=${sink.id} /><//>
    <//>
  </section>`;
}
