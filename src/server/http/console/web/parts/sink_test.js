// Delivering a sample or a recorded event to a sink now, beside its queue.

import { html, useState } from "../core/html.js";
import { LONG, post } from "../core/api.js";
import { useAction } from "../core/resource.js";
import { duration, pretty } from "../core/format.js";
import { valueText } from "../core/sink_draft.js";
import { Block, Button, ErrorBox, State } from "./basics.js";
import { sampleBody, SamplePicker, useSample } from "./sample.js";

export function SinkTest({ sink, path }) {
  const [sample, setSample] = useSample();
  const [result, setResult] = useState(null);
  const { isBusy, error, run } = useAction();
  const test = () => run(async () => {
    setResult(null);
    setResult(await post(`${path}/test`, sampleBody(sample), { limit: LONG }));
  });
  const way = sink.type === "script" ? "through the script" : `to ${valueText(sink.webhook?.url ?? "")}`;
  return html`<div class="columns">
    <section class="panel form"><h2>Deliver one now</h2>
      <p class="muted">It goes ${way} at once, beside the queue, and is not recorded.</p>
      <${SamplePicker} sample=${sample} onChange=${setSample} pattern=${sink.events} />
      <div class="form-actions"><${Button} kind="primary" icon="send" busy=${isBusy} onClick=${test}>Deliver<//></div>
    </section>
    <section class="panel" aria-live="polite"><h2>Outcome</h2><${ErrorBox} error=${error} />
      ${result ? html`<${Outcome} result=${result} />` : !error && !isBusy && html`<p class="muted">Nothing was delivered yet.</p>`}
    </section>
  </div>`;
}

function Outcome({ result }) {
  return html`<div class="stack">
    <div class="side-by-side">
      <${State} value=${result.outcome} />${result.status && html`<span class="tag">HTTP ${result.status}</span>`}
      <span class="muted">${duration(result.duration_ms)}</span>
    </div>
    ${result.error && html`<div><h3>Error</h3><${Block} text=${result.error} label="Error" copy=${false} /></div>`}
    ${result.sent && html`<div><h3>Request</h3><${Block} text=${pretty(result.sent)} label="Request body" /></div>`}
    ${result.response && html`<div><h3>Response</h3><${Block} text=${pretty(result.response)} label="Response" /></div>`}
    ${result.log?.length > 0 && html`<div><h3>Log</h3><${Block} text=${result.log.join("\n")} label="Log" /></div>`}
  </div>`;
}
