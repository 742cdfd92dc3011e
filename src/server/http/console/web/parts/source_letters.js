// Verified requests that did not become events, and giving them to the transform again.

import { html } from "../core/html.js";
import { post } from "../core/api.js";
import { useAction, useList } from "../core/resource.js";
import { count, pretty } from "../core/format.js";
import { announce, Block, Button, Empty, ErrorBox, Time } from "./basics.js";

export function SourceLetters({ path, onChange }) {
  const list = useList(`${path}/dead-letters`, {}, { limit: 100 });
  const { isBusy, error, run } = useAction();
  const send = (ids) => run(async () => {
    const result = await post(`${path}/redeliver`, ids ? { letter_ids: ids } : {});
    announce(`${count(result.redelivered, "request")} became events, ${result.failed} failed again.`);
    await Promise.all([list.reload(), onChange()]);
  });
  if (list.items.length === 0 && list.isComplete && !list.error) return html`<${Empty} title="No dead letters">A verified request on which the transform fails is kept here, until the Lua is mended and you give it again.<//>`;
  return html`<div class="filters"><${Button} icon="reload" busy=${isBusy} onClick=${() => send(null)}>Give all again<//></div>
    <${ErrorBox} error=${error ?? list.error} />
    ${list.items.map((letter) => html`<details class="attempt" key=${letter.id}>
      <summary><${Time} at=${letter.received_at} mode="date" /><span>${letter.reason}</span></summary>
      <div class="attempt-body">
        <div class="form-actions"><${Button} icon="reload" busy=${isBusy} onClick=${() => send([letter.id])}>Give again<//></div>
        <div><h3>Body</h3><${Block} text=${pretty(letter.body)} label="Body of the request" /></div>
        <div><h3>Headers</h3><${Block} text=${Object.entries(letter.headers).map(([name, value]) => `${name}: ${value}`).join("\n")} label="Headers" /></div>
        ${letter.log.length > 0 && html`<div><h3>Log</h3><${Block} text=${letter.log.join("\n")} label="Log" /></div>`}
      </div>
    </details>`)}
    ${list.next && html`<${Button} onClick=${list.more}>More<//>`}`;
}
