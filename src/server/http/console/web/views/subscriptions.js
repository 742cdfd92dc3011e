// The methods that are called for events, for users of spaces who have no sinks.

import { html } from "../core/html.js";
import { Heading } from "../parts/basics.js";
import { SubscriptionTable } from "../parts/subscription_table.js";

export default function Subscriptions() {
  return html`<${Heading} title="Subscribed methods" /><${SubscriptionTable} />`;
}
