// Verified requests that did not become events, and giving them to the transform again.

import { html } from "../core/html.js";
import { LONG, post } from "../core/api.js";
import { useAction, useList } from "../core/resource.js";
import { count, pretty } from "../core/format.js";
import { announce, Block, Button, Empty, ErrorBox, ListError, Loading, Time } from "./basics.js";

export function SourceLetters({ path, mayChange = true, onChange }) {
  const list = useList(`${path}/dead-letters`, {}, { limit: 100 });
  const { isBusy, error, run } = useAction();
  const send = (ids) => run(async () => {
    const result = await post(`${path}/redeliver`, ids ? { letter_ids: ids } : {}, { limit: LONG });
    announce(`${count(result.redelivered, "request")} became events, ${result.failed} failed again.`);
    await Promise.all([list.reload(), onChange()]);
  });
  if (list.items.length === 0 && list.isComplete && !list.error) {
    return html`<${Empty} title="No dead letters">
      A verified request on which the transform fails is kept here, until the Lua is mended and you give it again.
    <//>`;
  }
  const again = (label, ids) => mayChange && html`<${Button} icon="reload" busy=${isBusy} onClick=${() => send(ids)}>${label}<//>`;
  return html`<div class="filters">${list.items.length > 0 && again("Give all again", null)}</div>
    <${ErrorBox} error=${error} />
    <${ListError} error=${list.error} retry=${list.reload} loadedAt=${list.loadedAt} />
    ${list.items.map((letter) => html`<${Letter} key=${letter.id} letter=${letter} action=${again("Give again", [letter.id])} />`)}
    ${list.isLoading && html`<${Loading} />`}
    ${list.next && html`<${Button} onClick=${list.more}>More<//>`}`;
}

function Letter({ letter, action }) {
  const headers = Object.entries(letter.headers).map(([name, value]) => `${name}: ${value}`).join("\n");
  return html`<details class="attempt">
    <summary><${Time} at=${letter.received_at} mode="date" /><span>${letter.reason}</span></summary>
    <div class="attempt-body">
      ${action && html`<div class="form-actions">${action}</div>`}
      <div><h3>Body</h3><${Block} text=${pretty(letter.body)} label="Body of the request" /></div>
      <div><h3>Headers</h3><${Block} text=${headers} label="Headers" /></div>
      ${letter.log.length > 0 && html`<div><h3>Log</h3><${Block} text=${letter.log.join("\n")} label="Log" /></div>`}
    </div>
  </details>`;
}
