// The queue of one subscribed method, whose definition is in the registration of its space.

import { html } from "../core/html.js";
import { all } from "../core/api.js";
import { managesSinks } from "../core/session.js";
import { to } from "../core/router.js";
import { useResource } from "../core/resource.js";
import { number } from "../core/format.js";
import { Empty, Fact, Facts, Heading, ListError, Loading, State } from "../parts/basics.js";
import { DeadLetters } from "../parts/dead_letters.js";

export default function SubscriptionPage({ id }) {
  const list = useResource(() => all("/api/subscriptions"), [], { every: 5000 });
  const one = list.data?.find((subscription) => subscription.id === id);
  const back = { href: managesSinks.value ? to("sinks", { tab: "methods" }) : to("subscriptions"), name: "Subscribed methods" };
  const failure = html`<${ListError} error=${list.error} retry=${list.reload} loadedAt=${list.data && list.loadedAt} />`;
  if (!one) {
    return html`<${Heading} title="Subscription" back=${back} />${failure}
      ${!list.data && !list.error && html`<${Loading} />`}
      ${list.data && html`<${Empty} title="There is no such subscription of yours">It ends when its method is registered without it.<//>`}`;
  }
  const subtitle = html`<${State} value=${one.open ? "active" : "away"} /><span class="mono">${one.events}</span>`;
  return html`<${Heading} title=${`${one.space}/${one.method}`} back=${back} subtitle=${subtitle} />${failure}
    <div class="stack">
      <section class="panel"><${Facts}>
        <${Fact} name="Method"><a href=${to("methods", one.method)}>${one.method}</a><//>
        <${Fact} name="Space"><a href=${to("spaces", one.space_id)}>${one.space}</a><//>
        <${Fact} name="Filter">${one.filter && html`<code>${one.filter}</code>`}<//>
        <${Fact} name="Formatters">${one.event_sinks.join(", ")}<//>
        <${Fact} name="Waiting"><a href=${to("events", { sink: id, state: "queued" })}>${number(one.queue.depth)}</a><//>
      <//></section>
      <section><h2>Dead letters</h2><${DeadLetters} path=${`/api/event-sinks/${id}`} onChange=${list.reload} /></section>
    </div>`;
}
