// One sink: how it fares, its definition, its dead letters, and trying it out. `new` in place of an id makes one.

import { html, useState } from "../core/html.js";
import { del, get, patch, post } from "../core/api.js";
import { manages } from "../core/session.js";
import { navigate, place, to } from "../core/router.js";
import { useAction, useGet, useResource } from "../core/resource.js";
import { capabilities } from "../core/capabilities.js";
import { count, number } from "../core/format.js";
import { announce, Button, Code, ErrorBox, Fact, Facts, Heading, Loading, State, Tabs, Time } from "../parts/basics.js";
import { ConfirmButton } from "../parts/dialogs.js";
import { Sparkline } from "../parts/charts.js";
import { DeadLetters } from "../parts/dead_letters.js";
import { SinkTest } from "../parts/sink_test.js";
import { Replays } from "../parts/replay.js";
import { RotateSecret } from "../parts/rotate_secret.js";
import { Sequence } from "../parts/sequence.js";
import { SinkForm } from "./sink_form.js";
import { failureRate } from "./sinks.js";

export default function SinkPage({ id }) {
  const { query } = place.value;
  if (id === "new") return html`<${SinkForm} eventId=${query.event} />`;
  if (query.subscription) return html`<${Subscription} id=${id} />`;
  return html`<${Sink} id=${id} tab=${query.tab ?? "state"} />`;
}

function Sink({ id, tab }) {
  const path = `/api/event-sinks/${encodeURIComponent(id)}`;
  const { data: sink, error, reload, set } = useGet(path, {}, { every: tab === "edit" ? 0 : 3000 });
  const { data: offers } = useResource(capabilities, []);
  const back = { href: to("sinks"), name: "Sinks" };
  if (!sink) return html`<${Heading} title="Sink" back=${back} />${error ? html`<${ErrorBox} error=${error} retry=${reload} />` : html`<${Loading} />`}`;
  const mayChange = manages(sink.owner, "event_sinks");
  const receives = sink.type !== "json-rpc";
  const tabs = [
    { id: "state", name: "State" }, mayChange && { id: "edit", name: "Definition" }, receives && mayChange && { id: "test", name: "Test" },
    receives && { id: "letters", name: "Dead letters", count: sink.queue.dead },
    receives && mayChange && offers?.hasReplay && { id: "replay", name: "Replay" }, receives && offers?.hasSequence && { id: "numbers", name: "Numbers" },
    mayChange && sink.type === "webhook" && { id: "secret", name: "Secret" },
  ].filter(Boolean);
  const shown = tabs.some(({ id: offered }) => offered === tab) ? tab : "state";
  return html`<${Heading} title=${sink.name} back=${back} subtitle=${html`<${State} value=${sink.failure?.state ?? sink.status} /><span>${sink.type}</span><span>${sink.owner === "global" ? "global" : "yours"}</span><span class="mono">${sink.events}</span>`}>
      ${mayChange && html`<${PauseButton} sink=${sink} path=${path} onChange=${set} /><${DeleteButton} sink=${sink} path=${path} />`}
    <//>
    <${Tabs} current=${shown} href=${(next) => to("sinks", id, next === "state" ? {} : { tab: next })} tabs=${tabs} />
    ${!offers && ["replay", "numbers"].includes(tab) ? html`<${Loading} />`
      : shown === "edit" ? html`<${SinkForm} sink=${sink} onSaved=${set} />`
      : shown === "test" ? html`<${SinkTest} sink=${sink} path=${path} />`
      : shown === "letters" ? html`<${DeadLetters} path=${path} onChange=${reload} />`
      : shown === "replay" ? html`<${Replays} path=${path} />`
      : shown === "numbers" ? html`<${Sequence} path=${path} />`
      : shown === "secret" ? html`<${RotateSecret} sink=${sink} path=${path} onChange=${set} />`
      : html`<${SinkState} sink=${sink} />`}`;
}

function PauseButton({ sink, path, onChange }) {
  const { isBusy, error, run } = useAction();
  const isPaused = sink.active === false;
  const toggle = () => run(async () => {
    onChange(await patch(path, { active: isPaused }));
    announce(isPaused ? "The sink delivers again." : "The sink is paused. Its events wait, up to its queue's size.");
  });
  return html`<${Button} icon=${isPaused ? "play" : "pause"} busy=${isBusy} onClick=${toggle}>${isPaused ? "Continue" : "Pause"}<//>${error && html`<${ErrorBox} error=${error} />`}`;
}

function DeleteButton({ sink, path }) {
  const consequences = async () => {
    const now = await get(path);
    const lost = [];
    if (now.queue.depth > 0) lost.push(`${count(now.queue.depth, "event")} that wait for it will not be delivered.`);
    if (now.queue.dead > 0) lost.push(`Its ${count(now.queue.dead, "dead letter")} will be gone.`);
    if (now.type === "json-rpc") lost.push("Methods that name it in event_sinks get the default format.");
    return [...lost, "The history of its deliveries stays as long as the events do."];
  };
  const remove = async () => {
    await del(path);
    announce(`The sink ${sink.name} is deleted.`);
    navigate(to("sinks"));
  };
  return html`<${ConfirmButton} label="Delete" title=${`Delete the sink ${sink.name}?`} consequences=${consequences} action=${remove} />`;
}

function SinkState({ sink }) {
  const { queue, activity } = sink;
  const sum = (counts) => counts.reduce((total, one) => total + one, 0);
  return html`<div class="figures">
      <a class="figure" href=${to("events", { sink: sink.id, state: "queued" })}><strong>${number(queue.depth)}</strong><span>waiting</span></a>
      <a class="figure" href=${to("events", { sink: sink.id, state: "delivered" })}><strong>${number(sum(activity.delivered))}</strong><span>delivered in the last hour</span></a>
      <a class=${`figure ${sum(activity.failed) > 0 ? "bad" : ""}`} href=${to("events", { sink: sink.id })}><strong>${number(sum(activity.failed))}</strong><span>failed attempts, ${failureRate(activity)}</span></a>
      <a class=${`figure ${sum(activity.dropped) > 0 ? "warn" : ""}`} href=${to("events", { sink: sink.id, state: "dropped" })}><strong>${number(sum(activity.dropped))}</strong><span>dropped</span></a>
      <a class=${`figure ${queue.dead > 0 ? "warn" : ""}`} href=${to("sinks", sink.id, { tab: "letters" })}><strong>${number(queue.dead)}</strong><span>dead letters</span></a>
    </div>
    <${Warnings} sink=${sink} />
    <section class="panel"><h2>About</h2>
      <${Facts}>
        <${Fact} name="Description">${sink.description}<//>
        <${Fact} name="Address">${sink.webhook?.url}<//>
        <${Fact} name="Filter">${sink.filter && html`<code>${sink.filter}</code>`}<//>
        <${Fact} name="Stored script">${sink.script?.script_id && html`<a href=${to("scripts", sink.script.script_id)}>open</a>`}<//>
        <${Fact} name="Batches">${sink.webhook?.batch && `up to ${sink.webhook.batch.max} events${sink.webhook.batch.wait ? `, waiting ${sink.webhook.batch.wait}` : ""}`}<//>
        <${Fact} name="After the last attempt">${sink.on_failure === "hold" && "held, and tried again with growing waits"}<//>
        <${Fact} name="Hears the service's own reports">${sink.internal && "yes"}<//>
        <${Fact} name="Oldest waiting">${queue.oldest_waiting_at && html`<${Time} at=${queue.oldest_waiting_at} mode="relative" />`}<//>
        <${Fact} name="Next number">${queue.next_sequence}<//>
        <${Fact} name="Made by the space">${sink.space_id && html`<a href=${to("spaces", sink.space_id)}>${sink.space_id}</a>`}<//>
        <${Fact} name="Changed"><${Time} at=${sink.updated_at} mode="date" /><//>
        <${Fact} name="Last hour"><${Sparkline} activity=${activity} /><//>
        <${Fact} name="Id"><${Code} text=${sink.id} /><//>
      <//>
    </section>`;
}

function Warnings({ sink }) {
  const { activity, failure, quarantine, filter_errors: filterErrors, previous_secret_until: until } = sink;
  return html`${failure && html`<p class="banner bad">It is ${failure.state} since <${Time} at=${failure.since} mode="date" />: ${failure.reason}${failure.needs_change ? " Attempts alone do not mend it: change the sink, its script or the egress policy." : ""}${failure.next_attempt_at ? html` The next attempt is due <${Time} at=${failure.next_attempt_at} mode="relative" />.` : ""}</p>`}
    ${quarantine && html`<p class="banner bad">Its Lua is in quarantine until <${Time} at=${quarantine.until} />, or until it is changed: ${quarantine.reason}</p>`}
    ${filterErrors && html`<p class="banner warn">Its filter failed ${count(filterErrors.count, "time")}, each of which counted as a match. The last, <${Time} at=${filterErrors.last_at} />: ${filterErrors.last}</p>`}
    ${activity.last_error && html`<p class="banner warn">The last error, <${Time} at=${activity.last_error.at} mode="relative" />: ${activity.last_error.message}</p>`}
    ${until && html`<p class="banner warn">Requests are also signed with the former secret until <${Time} at=${until} mode="date" />.</p>`}`;
}

/** The queue of a subscribed method, whose definition is in the registration of its space. */
function Subscription({ id }) {
  const list = useGet("/api/subscriptions", { limit: 200 });
  const one = list.data?.items.find((subscription) => subscription.id === id);
  const back = { href: to("sinks", { tab: "methods" }), name: "Subscribed methods" };
  if (!one) return html`<${Heading} title="Subscription" back=${back} />${list.isLoading ? html`<${Loading} />` : html`<${ErrorBox} error=${list.error ?? { message: "There is no such subscription of yours." }} />`}`;
  return html`<${Heading} title=${`${one.space}/${one.method}`} back=${back} subtitle=${html`<${State} value=${one.open ? "active" : "away"} /><span class="mono">${one.events}</span>`} />
    <div class="stack"><section class="panel"><${Facts}>
      <${Fact} name="Method"><a href=${to("methods", one.method)}>${one.method}</a><//>
      <${Fact} name="Space"><a href=${to("spaces", one.space_id)}>${one.space}</a><//>
      <${Fact} name="Filter">${one.filter && html`<code>${one.filter}</code>`}<//>
      <${Fact} name="Formatters">${one.event_sinks.join(", ")}<//>
      <${Fact} name="Waiting">${number(one.queue.depth)}<//>
    <//></section>
    <section><h2>Dead letters</h2><${DeadLetters} path=${`/api/event-sinks/${id}`} onChange=${list.reload} /></section></div>`;
}
