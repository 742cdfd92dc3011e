// The list of sources: addresses at which other services raise events.

import { html, useEffect } from "../core/html.js";
import { navigate, to } from "../core/router.js";
import { bindKey } from "../core/keyboard.js";
import { useList } from "../core/resource.js";
import { number } from "../core/format.js";
import { Empty, Freshness, Heading, LinkButton, State } from "../parts/basics.js";
import { Table } from "../parts/table.js";

/** The interval at which the list is read anew, in milliseconds. */
const EVERY = 5000;

const COLUMNS = [
  { name: "Address", width: "minmax(0, 2fr)", cell: (source) => source.path },
  { name: "State", width: "110px", cell: (source) => html`<${State} value=${sourceState(source)} />` },
  { name: "Verified by", width: "minmax(0, 1fr)", secondary: true, cell: (source) => source.verify.type },
  { name: "Owner", width: "80px", tone: "hide-on-phone", cell: (source) => source.owner },
  { name: "Accepted", width: "90px", align: "right", secondary: true, cell: (source) => number(source.activity.accepted) },
  { name: "Refused", width: "90px", align: "right", secondary: true, cell: (source) => number(source.activity.refused) },
  { name: "Dead letters", width: "100px", align: "right", tone: "hide-on-phone", cell: (source) => number(source.dead_letters) },
];

export default function Sources() {
  const list = useList("/api/sources", {}, { limit: 200, every: EVERY });
  useEffect(() => bindKey("n", () => navigate(to("sources", "new"))), []);
  const create = html`<${LinkButton} kind="primary" icon="plus" href=${to("sources", "new")}>New source<//>`;
  const isEmpty = list.items.length === 0 && list.isComplete && !list.error;
  return html`<${Heading} title="Sources">${create}<//>
    ${isEmpty ? html`<${Empty} title="No sources yet" action=${create}>
      A source takes the webhooks of other services, such as GitHub or Stripe, verifies their signature, and raises events of them.
    <//>` : html`<${Freshness} list=${list} every=${EVERY} />
      <${Table} label="Sources" items=${list.items} list=${list} more=${list.more} isLoading=${list.isLoading}
        href=${(source) => to("sources", source.id)} columns=${COLUMNS} />`}`;
}

export function sourceState(source) {
  if (source.quarantine) return "quarantined";
  return source.active === false ? "inactive" : "active";
}
