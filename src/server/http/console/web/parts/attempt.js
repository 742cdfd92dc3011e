// One attempt at a delivery: its request, response, duration and log.

import { html, useState } from "../core/html.js";
import { get, post } from "../core/api.js";
import { useResource } from "../core/resource.js";
import { duration, pretty } from "../core/format.js";
import { valueText } from "../core/sink_draft.js";
import { Block, ErrorBox, Loading, State, Time } from "./basics.js";

/** `mayLook` is true if the user may see the sink's definition, from which the request is made anew. */
export function Attempt({ event, delivery, attempt, isLast, mayLook }) {
  const [isOpen, setOpen] = useState(isLast && attempt.outcome !== "delivered");
  const { error, response, log = [] } = attempt;
  return html`<details class="attempt" open=${isOpen} onToggle=${(toggle) => setOpen(toggle.currentTarget.open)}>
    <summary>
      <span>Attempt ${attempt.number}</span><${State} value=${attempt.outcome} />
      ${attempt.status && html`<span class="tag">HTTP ${attempt.status}</span>`}
      <span class="muted">${duration(attempt.duration_ms)}</span><span class="muted"><${Time} at=${attempt.at} /></span>
    </summary>
    <div class="attempt-body">
      ${error && html`<div><h3>Error</h3><${Block} text=${error} label="Error" copy=${false} /></div>`}
      ${isOpen && mayLook && html`<${Request} event=${event} delivery=${delivery} attempt=${attempt} />`}
      ${response && html`<div><h3>Response</h3><${Block} text=${response} label="Response" /></div>`}
      ${log.length > 0 && html`<div><h3>Log of the script</h3><${Block} text=${log.join("\n")} label="Log" /></div>`}
      ${!error && !response && log.length === 0 && html`<p class="muted">No response and no log were recorded.</p>`}
    </div>
  </details>`;
}

/** The headers that the service adds for this attempt, beside those of the signature. */
function ownHeaders(event, delivery, attempt) {
  return {
    "X-Service-Event-Id": event.id, "X-Service-Event-Type": event.type, "X-Service-Event-Ts": event.ts,
    "X-Service-Sequence": delivery.sequence, "X-Service-Attempt": attempt.number,
  };
}

/**
 * The request of an attempt. Requests are not stored: address, headers and body are those that the sink as it is now makes of the
 * event, and labelled so.
 */
function Request({ event, delivery, attempt }) {
  const id = delivery.sink_id;
  const sink = useResource(() => get(`/api/event-sinks/${id}`), [id]);
  if (sink.error?.status === 404) return html`<p class="muted">The sink has been deleted, and with it the form of its requests.</p>`;
  if (sink.error) return html`<div><h3>Request</h3><${ErrorBox} error=${sink.error} retry=${sink.reload} /></div>`;
  if (!sink.data) return html`<${Loading} />`;
  if (sink.data.type !== "webhook") return html`<p class="muted">The sink runs its Lua for the event, and makes no request of its own.</p>`;
  const { url, headers = {}, batch } = sink.data.webhook;
  const shown = batch ? headers : { ...headers, ...ownHeaders(event, delivery, attempt) };
  const text = (value) => (typeof value === "object" ? `read on the server: ${JSON.stringify(value)}` : value);
  const lines = Object.entries(shown).map(([name, value]) => `${name}: ${text(value)}`);
  return html`<div><h3>Request <span class="muted small-text">as the sink makes it now: requests are not stored</span></h3>
    <${Block} text=${[`POST ${valueText(url)}`, ...lines].join("\n")} label="Address and headers" />
    <p class="hint">With the signatures beside these${batch ? ", and possibly with other events in one batch" : ""}.</p>
    <${Body} id=${id} event=${event} />
  </div>`;
}

function Body({ id, event }) {
  const preview = useResource(() => post("/api/event-sinks/preview", { sink_id: id, event_id: event.id }), [id, event.id]);
  if (preview.error) return html`<p class="muted">The body cannot be rendered: ${preview.error.message}</p>`;
  if (!preview.data) return html`<${Loading} />`;
  return html`<${Block} text=${pretty(preview.data.body)} label="Request body" /><p class="hint">${preview.data.content_type}</p>`;
}
