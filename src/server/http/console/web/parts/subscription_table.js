// Methods that are called for events. They come and go with the registrations of spaces.

import { html } from "../core/html.js";
import { to } from "../core/router.js";
import { useList } from "../core/resource.js";
import { number } from "../core/format.js";
import { Empty, Freshness, State } from "./basics.js";
import { Table } from "./table.js";

const EVERY = 5000;

const COLUMNS = [
  { name: "Method", width: "minmax(0, 2fr)", cell: (one) => one.method },
  { name: "Space", width: "minmax(0, 1fr)", cell: (one) => one.space },
  { name: "Events", width: "minmax(0, 2fr)", secondary: true, tone: "mono", cell: (one) => one.events },
  { name: "State", width: "110px", cell: (one) => html`<${State} value=${one.open ? "active" : "away"} />` },
  { name: "Waiting", width: "80px", align: "right", secondary: true, cell: (one) => number(one.queue.depth) },
  { name: "Dead", width: "70px", align: "right", secondary: true, cell: (one) => number(one.queue.dead) },
];

export function SubscriptionTable() {
  const list = useList("/api/subscriptions", {}, { limit: 200, every: EVERY });
  if (list.items.length === 0 && list.isComplete && !list.error) {
    return html`<${Empty} title="No method subscribes to events">A method does so with <code>events</code> in its registration.<//>`;
  }
  return html`<${Freshness} list=${list} every=${EVERY} />
    <${Table} label="Subscribed methods" items=${list.items} list=${list} more=${list.more} isLoading=${list.isLoading}
      href=${(one) => to("subscriptions", one.id)} columns=${COLUMNS} />`;
}
