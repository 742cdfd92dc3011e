// One event: who raised it, who heard it and who did not, each attempt, and the method that was called.

import { html, useState } from "../core/html.js";
import { post } from "../core/api.js";
import { managesSinks } from "../core/session.js";
import { to } from "../core/router.js";
import { useAction, useGet, useResource } from "../core/resource.js";
import { count, duration, pretty } from "../core/format.js";
import { announce, Block, Button, Code, ErrorBox, Fact, Facts, Heading, LinkButton, Loading, State, Time } from "../parts/basics.js";
import { EmitDialog } from "../parts/emit_dialog.js";
import { worstState } from "./events.js";

const NIL = "00000000-0000-0000-0000-000000000000";
const TONES = { delivered: "good", skipped: "", dead: "bad", dropped: "warn", queued: "busy", discarded: "", failed: "bad" };

export default function EventPage({ id }) {
  const isOpen = (event) => event?.deliveries.some((delivery) => delivery.state === "queued");
  const [every, setEvery] = useState(2000);
  const { data: event, error, reload } = useGet(`/api/events/${encodeURIComponent(id)}`, {}, { every });
  const [isSending, setSending] = useState(false);
  const back = { href: to("events"), name: "Events" };
  if (!event) return html`<${Heading} title="Event" back=${back} />${error ? html`<${ErrorBox} error=${error} retry=${reload} />` : html`<${Loading} />`}`;
  const wanted = isOpen(event) ? 2000 : 0;
  if (every !== wanted) setTimeout(() => setEvery(wanted));
  const isCustom = event.type.startsWith("custom.");
  const state = worstState(event.deliveries);
  return html`<${Heading} title=${event.type} back=${back} subtitle=${html`${state && html`<${State} value=${state} />`}<${Time} at=${event.ts} mode="date" /><${Code} text=${event.id} label="Copy the id" />`}>
      ${managesSinks.value && html`<${LinkButton} href=${to("sinks", "new", { event: event.id })}>Use as sample<//>`}
      ${isCustom && html`<${Button} kind="primary" icon="send" onClick=${() => setSending(true)}>Send again<//>`}
    <//>
    <div class="columns">
      <section class="panel" aria-labelledby="timeline-title"><h2 id="timeline-title">What happened</h2><${Timeline} event=${event} reload=${reload} /></section>
      <div class="stack">
        <section class="panel"><h2>Payload</h2><${Block} text=${pretty(event.data)} label="Payload" /></section>
        <section class="panel"><h2>Origin</h2>
          <${Facts}>
            <${Fact} name="Raised by">${event.actor.username} (${event.actor.kind})<//>
            <${Fact} name="Accepted"><${Time} at=${event.accepted_at} mode="date" /><//>
            <${Fact} name="Zone">${event.zone}<//>
            <${Fact} name="Space">${event.space_id !== NIL && html`<a href=${to("spaces", event.space_id)}>${event.space_id}</a>`}<//>
          <//>
        </section>
      </div>
    </div>
    ${isSending && html`<${EmitDialog} title="Send again, as a new event" type=${event.type.replace(/^custom\./, "")} payload=${pretty(event.data)} onClose=${() => setSending(false)} />`}`;
}

function Timeline({ event, reload }) {
  return html`<ul class="timeline">
    <li class="good"><div class="step-head"><strong>Raised</strong> by ${event.actor.username} <${Time} at=${event.ts} /></div></li>
    <li class="good"><div class="step-head"><strong>Accepted</strong> and on disk <${Time} at=${event.accepted_at} /></div>
      <div class="muted">${event.deliveries.length === 0 ? "Nobody heard it." : `Heard by ${count(event.deliveries.length, "sink or method", "sinks and methods")}.`}</div>
      <${WhyNot} event=${event} />
    </li>
    ${event.deliveries.map((delivery) => html`<${Delivery} key=${delivery.sink_id} event=${event} delivery=${delivery} reload=${reload} />`)}
  </ul>`;
}

/** Sinks that did not hear the event, with their reasons: as they are now, which is not always as they were then. */
function WhyNot({ event }) {
  const [isOpen, setOpen] = useState(false);
  const explained = useResource(async () => (isOpen ? post("/api/events/explain", { event_id: event.id }) : null), [isOpen, event.id]);
  const heard = new Set(event.deliveries.map((delivery) => delivery.sink_id));
  const others = explained.data?.sinks.filter((sink) => !heard.has(sink.sink_id)) ?? [];
  return html`<details class="why-not" onToggle=${(toggle) => setOpen(toggle.currentTarget.open)}>
    <summary>Why did others not hear it?</summary>
    ${explained.error && html`<${ErrorBox} error=${explained.error} />`}
    ${isOpen && explained.data && (others.length === 0 ? html`<p class="muted">There are no others.</p>` : html`<ul>
      ${others.map((sink) => html`<li key=${sink.sink_id}><${SinkLink} id=${sink.sink_id} name=${sink.name} /> ${sink.matches ? `would hear it now: ${sink.reason}` : sink.reason}</li>`)}
    </ul><p class="small-text muted">By their definitions as they are now.</p>`)}
  </details>`;
}

/** A sink by its name; a method, named SPACE/METHOD, leads to the method. */
function SinkLink({ id, name }) {
  const slash = name.indexOf("/");
  if (slash > 0) return html`<a href=${to("methods", name.slice(slash + 1))}>${name}</a>`;
  return managesSinks.value ? html`<a href=${to("sinks", id)}>${name}</a>` : html`<strong>${name}</strong>`;
}

function Delivery({ event, delivery, reload }) {
  const { isBusy, error, run } = useAction();
  const redeliver = () => run(async () => {
    const result = await post(`/api/event-sinks/${delivery.sink_id}/redeliver`, { event_ids: [event.id] });
    announce(result.redelivered > 0 ? "It is queued again." : "There was no dead letter of this event to queue.");
    await reload();
  });
  const isMethod = delivery.name.includes("/");
  return html`<li class=${TONES[delivery.state] ?? ""}>
    <div class="step-head">
      <${State} value=${delivery.state} /><${SinkLink} id=${delivery.sink_id} name=${delivery.name} />
      <span class="muted">number ${delivery.sequence}</span>
      ${delivery.state === "dead" && html`<${Button} kind="quiet" icon="reload" busy=${isBusy} onClick=${redeliver}>Deliver again<//>`}
    </div>
    ${delivery.state === "dropped" && html`<p class="muted">Its queue was full when the event was accepted.</p>`}
    ${delivery.state === "queued" && delivery.attempts.length === 0 && html`<p class="muted">It waits for its turn.</p>`}
    ${isMethod && html`<p class="muted">The event was passed on to a method. <a href=${to("methods", delivery.name.slice(delivery.name.indexOf("/") + 1))}>See the method</a></p>`}
    <${ErrorBox} error=${error} />
    ${delivery.attempts.map((attempt, at) => html`<${Attempt} key=${`${attempt.number}-${attempt.at}`} event=${event} delivery=${delivery} attempt=${attempt} isLast=${at === delivery.attempts.length - 1} />`)}
  </li>`;
}

function Attempt({ event, delivery, attempt, isLast }) {
  const [isOpen, setOpen] = useState(isLast && attempt.outcome !== "delivered");
  return html`<details class="attempt" open=${isOpen} onToggle=${(toggle) => setOpen(toggle.currentTarget.open)}>
    <summary>
      <span>Attempt ${attempt.number}</span><${State} value=${attempt.outcome} />
      ${attempt.status && html`<span class="tag">HTTP ${attempt.status}</span>`}
      <span class="muted">${duration(attempt.duration_ms)}</span><span class="muted"><${Time} at=${attempt.at} /></span>
    </summary>
    <div class="attempt-body">
      ${attempt.error && html`<div><h3>Error</h3><${Block} text=${attempt.error} label="Error" copy=${false} /></div>`}
      ${isOpen && managesSinks.value && !delivery.name.includes("/") && html`<${Request} event=${event} delivery=${delivery} />`}
      ${attempt.response && html`<div><h3>Response</h3><${Block} text=${attempt.response} label="Response" /></div>`}
      ${attempt.log?.length > 0 && html`<div><h3>Log of the script</h3><${Block} text=${attempt.log.join("\n")} label="Log" /></div>`}
      ${!attempt.error && !attempt.response && !attempt.log?.length && html`<p class="muted">Nothing more was recorded.</p>`}
    </div>
  </details>`;
}

/** The body that the sink sends for this event. It is rendered anew, since bodies are not stored. */
function Request({ event, delivery }) {
  const preview = useResource(() => post("/api/event-sinks/preview", { sink_id: delivery.sink_id, event_id: event.id }), [delivery.sink_id, event.id]);
  if (preview.isLoading) return null;
  if (preview.error) return preview.error.status === 400 ? null : html`<p class="muted">The request cannot be rendered: ${preview.error.message}</p>`;
  return html`<div><h3>Request <span class="muted small-text">as the sink renders it now, ${preview.data.content_type}</span></h3><${Block} text=${pretty(preview.data.body)} label="Request body" /></div>`;
}
