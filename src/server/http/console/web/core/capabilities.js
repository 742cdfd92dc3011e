// What the server offers for sinks, read from its OpenAPI document: parts of the console that need a route or a field which is not there
// are not shown.

import { get } from "./api.js";

let loading;

/** `{hasReplay, hasSequence, sinkFields, webhookFields}`, asked for once. */
export function capabilities() {
  loading ??= get("/api/openapi.json").then(({ paths, components }) => {
    const fields = (name) => new Set(Object.keys(components.schemas[name]?.properties ?? {}));
    return {
      hasReplay: "/api/event-sinks/{id}/replay" in paths, hasSequence: "/api/event-sinks/{id}/sequence" in paths,
      sinkFields: fields("SinkSpec"), webhookFields: fields("WebhookSpec"),
    };
  });
  loading.catch(() => (loading = undefined));
  return loading;
}
