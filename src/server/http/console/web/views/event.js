// One event: who raised it, who heard it and who did not, each attempt, and the method that was called.

import { html, useState } from "../core/html.js";
import { post } from "../core/api.js";
import { usesSpaces } from "../core/session.js";
import { to } from "../core/router.js";
import { useAction, useGet, useResource } from "../core/resource.js";
import { count, pretty } from "../core/format.js";
import { announce, Block, Button, Code, ErrorBox, Fact, Facts, Heading, ListError, Loading, State, Time } from "../parts/basics.js";
import { Attempt } from "../parts/attempt.js";
import { EmitDialog } from "../parts/emit_dialog.js";
import { useManagedQueues } from "../parts/managed_queues.js";
import { mayUseSamples, UseAsSample } from "../parts/use_as_sample.js";
import { worstState } from "./events.js";

const NIL = "00000000-0000-0000-0000-000000000000";
const TONES = { delivered: "good", skipped: "", dead: "bad", dropped: "warn", queued: "busy", discarded: "", failed: "bad" };

/** The interval while deliveries are under way, in milliseconds. */
const EVERY = 2000;

export default function EventPage({ id }) {
  const [every, setEvery] = useState(EVERY);
  const { data: event, error, reload, loadedAt } = useGet(`/api/events/${encodeURIComponent(id)}`, {}, { every, texts: ["data"] });
  const managed = useManagedQueues();
  const back = { href: to("events"), name: "Events" };
  const failure = html`<${ListError} error=${error} retry=${reload} loadedAt=${event && loadedAt} />`;
  if (!event) return html`<${Heading} title="Event" back=${back} />${error ? failure : html`<${Loading} />`}`;
  const wanted = event.deliveries.some((delivery) => delivery.state === "queued") ? EVERY : 0;
  if (every !== wanted) setTimeout(() => setEvery(wanted));
  const state = worstState(event.deliveries);
  const subtitle = html`${state && html`<${State} value=${state} />`}<${Time} at=${event.ts} mode="date" />
    <${Code} text=${event.id} label="Copy the id" />`;
  return html`<${Heading} title=${event.type} back=${back} subtitle=${subtitle}><${Actions} event=${event} /><//>
    ${failure}<${ErrorBox} error=${managed.error} retry=${managed.reload} />
    <div class="columns">
      <section class="panel" aria-labelledby="timeline-title"><h2 id="timeline-title">What happened</h2>
        <${Timeline} event=${event} managed=${managed} reload=${reload} />
      </section>
      <div class="stack">
        <section class="panel"><h2>Payload</h2><${Block} text=${pretty(event.texts.data)} label="Payload" /></section>
        <${Origin} event=${event} />
      </div>
    </div>`;
}

function Actions({ event }) {
  const [isSending, setSending] = useState(false);
  const [isSampling, setSampling] = useState(false);
  const isCustom = event.type.startsWith("custom.");
  return html`${mayUseSamples() && html`<${Button} onClick=${() => setSampling(true)}>Use as sample<//>`}
    ${isCustom && html`<${Button} kind="primary" icon="send" onClick=${() => setSending(true)}>Send again<//>`}
    ${isSampling && html`<${UseAsSample} event=${event} onClose=${() => setSampling(false)} />`}
    ${isSending && html`<${EmitDialog} title="Send again, as a new event" type=${event.type.replace(/^custom\./, "")}
      payload=${event.texts.data} onClose=${() => setSending(false)} />`}`;
}

function Origin({ event }) {
  const isOfSpace = event.space_id !== NIL;
  return html`<section class="panel"><h2>Origin</h2>
    <${Facts}>
      <${Fact} name="Raised by">${event.actor.username} (${event.actor.kind})<//>
      <${Fact} name="Accepted"><${Time} at=${event.accepted_at} mode="date" /><//>
      <${Fact} name="Zone">${event.zone}<//>
      <${Fact} name="Space">${isOfSpace && usesSpaces.value && html`<a href=${to("spaces", event.space_id)}>${event.space_id}</a>`}<//>
    <//>
  </section>`;
}

function Timeline({ event, managed, reload }) {
  const heard = event.deliveries.length;
  return html`<ul class="timeline">
    <li class="good"><div class="step-head"><strong>Raised</strong> by ${event.actor.username} <${Time} at=${event.ts} /></div></li>
    <li class="good"><div class="step-head"><strong>Accepted</strong> and on disk <${Time} at=${event.accepted_at} /></div>
      <div class="muted">${heard === 0 ? "Nobody heard it." : `Heard by ${count(heard, "sink or method", "sinks and methods")}.`}</div>
      <${WhyNot} event=${event} managed=${managed} />
    </li>
    ${event.deliveries.map((delivery) => html`<${Delivery} key=${delivery.sink_id} event=${event} delivery=${delivery} managed=${managed}
      reload=${reload} />`)}
  </ul>`;
}

/** Sinks that did not hear the event, with their reasons: as they are now, which is not always as they were then. */
function WhyNot({ event, managed }) {
  const [isOpen, setOpen] = useState(false);
  const explained = useResource(async () => (isOpen ? post("/api/events/explain", { event_id: event.id }) : null), [isOpen, event.id]);
  const heard = new Set(event.deliveries.map((delivery) => delivery.sink_id));
  const others = explained.data?.sinks.filter((sink) => !heard.has(sink.sink_id)) ?? [];
  return html`<details class="why-not" onToggle=${(toggle) => setOpen(toggle.currentTarget.open)}>
    <summary>Why did others not hear it?</summary>
    <${ErrorBox} error=${explained.error} retry=${explained.reload} />
    ${isOpen && explained.isLoading && !explained.data && html`<${Loading} />`}
    ${isOpen && explained.data && others.length === 0 && html`<p class="muted">There are no others.</p>`}
    ${isOpen && others.length > 0 && html`<ul>
      ${others.map((sink) => html`<li key=${sink.sink_id}>
        <${SinkLink} id=${sink.sink_id} name=${sink.name} managed=${managed} />${" "}
        ${sink.matches ? `would hear it now: ${sink.reason}` : sink.reason}
      </li>`)}
    </ul><p class="small-text muted">By their definitions as they are now.</p>`}
  </details>`;
}

/** The name of the method if a delivery was to one: it is named SPACE/METHOD. */
const methodOf = (name) => (name.indexOf("/") > 0 ? name.slice(name.indexOf("/") + 1) : null);

/** A sink by its name, as a link if the user may look at it; a method leads to the method. */
function SinkLink({ id, name, managed }) {
  if (methodOf(name)) return html`<a href=${to("methods", methodOf(name))}>${name}</a>`;
  return managed.hasSink(id) ? html`<a href=${to("sinks", id)}>${name}</a>` : html`<strong>${name}</strong>`;
}

function Delivery({ event, delivery, managed, reload }) {
  const { isBusy, error, run } = useAction();
  const redeliver = () => run(async () => {
    const result = await post(`/api/event-sinks/${delivery.sink_id}/redeliver`, { event_ids: [event.id] });
    announce(result.redelivered > 0 ? "It is queued again." : "There was no dead letter of this event to queue.");
    await reload();
  });
  const method = methodOf(delivery.name);
  const mayRedeliver = delivery.state === "dead" && managed.hasQueue(delivery.sink_id);
  return html`<li class=${TONES[delivery.state] ?? ""}>
    <div class="step-head">
      <${State} value=${delivery.state} /><${SinkLink} id=${delivery.sink_id} name=${delivery.name} managed=${managed} />
      <span class="muted">number ${delivery.sequence}</span>
      ${mayRedeliver && html`<${Button} kind="quiet" icon="reload" busy=${isBusy} onClick=${redeliver}>Deliver again<//>`}
    </div>
    ${delivery.state === "dropped" && html`<p class="muted">Its queue was full when the event was accepted.</p>`}
    ${delivery.state === "queued" && delivery.attempts.length === 0 && html`<p class="muted">It waits for its turn.</p>`}
    ${method && html`<p class="muted">The event was passed on to a method. <a href=${to("methods", method)}>See the method</a></p>`}
    <${ErrorBox} error=${error} />
    ${delivery.attempts.map((attempt, at) => html`<${Attempt} key=${`${attempt.number}-${attempt.at}`} event=${event} delivery=${delivery}
      attempt=${attempt} isLast=${at === delivery.attempts.length - 1} mayLook=${!method && managed.hasSink(delivery.sink_id)} />`)}
  </li>`;
}
