// The secret of a webhook: shown to those who manage the sink, and replaced with a grace for the former one.

import { html, useState } from "../core/html.js";
import { get, post } from "../core/api.js";
import { useAction, useResource } from "../core/resource.js";
import { isReference } from "../core/sink_draft.js";
import { announce, Button, Code, ErrorBox, Time } from "./basics.js";
import { Select } from "./forms.js";

export function RotateSecret({ sink, path, onChange }) {
  const [grace, setGrace] = useState("24h");
  const [isShown, setShown] = useState(false);
  const { isBusy, error, run } = useAction();
  const secret = sink.webhook.secret;
  const isText = typeof secret === "string";
  const isReferred = isReference(secret);
  const rotate = () => run(async () => {
    const changed = await post(`${path}/rotate-secret`, { grace });
    onChange(changed);
    setShown(true);
    announce("The secret is replaced. The new one is shown above.");
  });
  return html`<div class="stack">
    <section class="panel"><h2>The secret</h2>
      ${isText ? html`<p>Requests are signed with it, in <code>webhook-signature</code> and <code>X-Service-Signature</code>.</p>
        <p class="spaced">${isShown ? html`<${Code} text=${secret} label="Copy the secret" />`
          : html`<${Button} onClick=${() => setShown(true)}>Show<//>`}</p>`
        : html`<p class="muted">${secret ? `The server reads it at each delivery: ${JSON.stringify(secret)}` : "This sink has none."}</p>`}
      ${sink.previous_secret_until
        && html`<p class="muted">The former secret is used beside it until <${Time} at=${sink.previous_secret_until} mode="date" />.</p>`}
    </section>
    ${isReferred ? html`<section class="panel"><h2>Replace it</h2>
      <p>The server does not keep this secret, and cannot replace it: change it where it is kept. Deliveries from then on have the new one
        only. A secret that the server keeps can be given under Definition.</p>
    </section>` : html`<section class="panel form"><h2>Replace it</h2>
      <p>The server makes a new secret. For the time of the grace, requests carry both signatures, so that receivers can change over.</p>
      <div class="form-row">
        <${Select} label="Grace" value=${grace} onInput=${setGrace}
        options=${[["0s", "none"], ["1h", "1 hour"], ["24h", "1 day"], ["7d", "7 days"], ["30d", "30 days"]]} /></div>
      <${ErrorBox} error=${error} />
      <div class="form-actions"><${Button} kind="primary" busy=${isBusy} onClick=${rotate}>Replace the secret<//></div>
    </section>`}
    ${sink.webhook.ed25519 && html`<${PublicKey} path=${path} />`}
  </div>`;
}

function PublicKey({ path }) {
  const { data, error } = useResource(() => get(`${path}/public-key`), [path]);
  return html`<section class="panel"><h2>Public key</h2><${ErrorBox} error=${error} />
    ${data && html`<${Code} text=${data.public_key} label="Copy the public key" />`}</section>`;
}
