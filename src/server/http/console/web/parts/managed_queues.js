// The sinks and subscriptions that the user may act on, so that only what the server would allow is offered.

import { all } from "../core/api.js";
import { managesSinks, may, usesSpaces } from "../core/session.js";
import { useResource } from "../core/resource.js";

/**
 * `hasSink(id)` for sinks that the user may look at and change, `hasQueue(id)` for queues that it may change: of these sinks, and of its
 * own subscribed methods. Nothing is offered before the server has answered.
 */
export function useManagedQueues() {
  const isGlobal = may("manage_global_event_sinks");
  const loaded = useResource(async () => {
    // Who manages global sinks sees deliveries to these and to its own, so nothing needs to be told apart.
    const [sinks, subscriptions] = await Promise.all([
      managesSinks.value && !isGlobal ? all("/api/event-sinks", { owner: "me" }) : [],
      usesSpaces.value ? all("/api/subscriptions") : [],
    ]);
    const ids = (items) => new Set(items.map((item) => item.id));
    return { sinks: ids(sinks), subscriptions: ids(subscriptions) };
  }, [isGlobal]);
  const { data, error, reload } = loaded;
  const hasSink = (id) => Boolean(data) && !data.subscriptions.has(id) && (isGlobal || data.sinks.has(id));
  return { error, reload, hasSink, hasQueue: (id) => hasSink(id) || Boolean(data?.subscriptions.has(id)) };
}
