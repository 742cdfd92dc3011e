// Dead letters of a queue: select, look at the event, deliver again.

import { html } from "../core/html.js";
import { post } from "../core/api.js";
import { usesSpaces } from "../core/session.js";
import { to } from "../core/router.js";
import { useAction, useList } from "../core/resource.js";
import { count } from "../core/format.js";
import { announce, Button, Empty, ErrorBox, Freshness, Time } from "./basics.js";
import { ConfirmButton } from "./dialogs.js";
import { Table, useSelection } from "./table.js";

const keyOf = (letter) => letter.event_id;

const COLUMNS = [
  { name: "Event", width: "minmax(0, 2fr)", cell: (letter) => letter.event_type },
  { name: "Why", width: "minmax(0, 3fr)", secondary: true, cell: (letter) => html`<span title=${letter.why}>${letter.why}</span>` },
  { name: "Attempts", width: "80px", align: "right", tone: "hide-on-phone", cell: (letter) => letter.attempts },
  { name: "Number", width: "80px", align: "right", tone: "hide-on-phone", cell: (letter) => letter.sequence },
  { name: "Given up", width: "170px", secondary: true, cell: (letter) => html`<${Time} at=${letter.died_at} />` },
];

export function DeadLetters({ path, mayChange = true, onChange }) {
  const list = useList(`${path}/dead-letters`, {}, { limit: 200 });
  const selection = useSelection(list.items, keyOf);
  const send = async (ids) => {
    const { redelivered, remaining, damaged = 0 } = await post(`${path}/redeliver`, ids ? { event_ids: ids } : {});
    const unfit = damaged > 0 ? ` ${damaged} of them ${damaged === 1 ? "is" : "are"} damaged and cannot be delivered again.` : "";
    const stay = `${remaining} ${remaining === 1 ? "stays" : "stay"}`;
    announce(`${count(redelivered, "letter")} queued again, ${stay}.${unfit}`, damaged > 0 ? "bad" : "");
    selection.clear();
    await Promise.all([list.reload(), onChange?.()]);
  };
  if (list.items.length === 0 && list.isComplete && !list.error) {
    return html`<${Empty} title="No dead letters">An event whose attempts have all failed is kept here, until you deliver it again.<//>`;
  }
  return html`${mayChange && list.items.length > 0 && html`<${Actions} selection=${selection} send=${send} />`}
    <${Freshness} list=${list} />
    <${Table} label="Dead letters" items=${list.items} list=${list} keyOf=${keyOf} more=${list.more} isLoading=${list.isLoading}
      selection=${mayChange ? selection : undefined} href=${(letter) => (usesSpaces.value ? to("events", letter.event_id) : undefined)}
      columns=${COLUMNS} />`;
}

function Actions({ selection, send }) {
  const { isBusy, error, run } = useAction();
  const consequences = [
    "They go to the end of the queue, as far as it has room, under new numbers.",
    "If the cause is not mended, they come back here.",
  ];
  return html`<div class="filters">
      <${Button} icon="reload" disabled=${selection.size === 0} busy=${isBusy} onClick=${() => run(() => send(selection.keys))}>
        Deliver ${selection.size > 0 ? selection.size : ""} again
      <//>
      <${ConfirmButton} label="Deliver all again" icon="reload" kind="primary" title="Deliver all dead letters again?"
        consequences=${consequences} action=${() => send(null)} />
    </div>
    <${ErrorBox} error=${error} />`;
}
