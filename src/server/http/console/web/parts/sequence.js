// The numbers of a sink: what became of each, and the reasons of gaps.

import { html, useState } from "../core/html.js";
import { usesSpaces } from "../core/session.js";
import { to } from "../core/router.js";
import { useGet } from "../core/resource.js";
import { Empty, State } from "./basics.js";
import { Text } from "./forms.js";
import { Table } from "./table.js";

const COLUMNS = [
  { name: "Number", width: "110px", cell: (item) => item.sequence },
  { name: "State", width: "130px", cell: (item) => html`<${State} value=${item.state} />` },
  { name: "Why it is missing", width: "minmax(0, 1fr)", cell: (item) => item.reason ?? "" },
  { name: "Event", width: "minmax(0, 2fr)", secondary: true, tone: "mono hide-on-phone", cell: (item) => item.event_id ?? "" },
];

export function Sequence({ path }) {
  const [from, setFrom] = useState("");
  const list = useGet(`${path}/sequence`, { from: /^[1-9]\d*$/.test(from) ? from : undefined });
  const items = [...(list.data?.items ?? [])].reverse();
  const href = (item) => (item.event_id && usesSpaces.value ? to("events", item.event_id) : undefined);
  const isEmpty = list.data && items.length === 0 && !list.error;
  return html`<div class="filters">
      <${Text} label="From number" type="number" min="1" value=${from} onInput=${setFrom} placeholder="the last fifty" />
    </div>
    ${isEmpty ? html`<${Empty} title="No numbers yet">Each event that is routed to the sink gets one, a dropped one too.<//>`
      : html`<${Table} label="Numbers" items=${items} list=${list} keyOf=${(item) => item.sequence}
        isLoading=${list.isLoading && !list.data}
        href=${href} columns=${COLUMNS} />`}`;
}
