// What a sink would send for a sample, rendered by the server shortly after typing stops.

import { html } from "../core/html.js";
import { post } from "../core/api.js";
import { useDebounced, useResource } from "../core/resource.js";
import { Block, ErrorBox } from "./basics.js";
import { sampleBody } from "./sample.js";

/** The definition with what a preview needs, where the form does not have it yet. */
function previewed(spec) {
  const sink = { ...spec, name: spec.name || "preview", events: spec.events || "*" };
  if (sink.webhook && !sink.webhook.url) sink.webhook = { ...sink.webhook, url: "https://example.com" };
  return sink;
}

export function Preview({ spec, sample }) {
  const isScript = spec.type === "script";
  const isChosen = sample.mode === "written" || Boolean(sample.eventId);
  const request = useDebounced(JSON.stringify({ spec, sample: { ...sample, data: undefined } }), 500);
  const preview = useResource(async () => {
    if (isScript || !isChosen) return null;
    return post("/api/event-sinks/preview", { sink: previewed(spec), ...sampleBody(sample) });
  }, [request]);
  if (isScript) {
    return html`<p class="muted">
      A script sends what it wants to, so there is nothing to render. Its errors are marked while you type.${" "}
      Once it is saved, try it under Test.
    </p>`;
  }
  return html`<div class="preview-body" aria-live="polite" aria-busy=${preview.isLoading}>
    <${ErrorBox} error=${preview.error} />
    ${!preview.error && preview.data && html`<${Block} text=${preview.data.body} label="Body that would be sent" />
      <div class="hint">${preview.data.content_type}</div>`}
    ${!preview.error && !isChosen && html`<p class="muted">Choose an event to see the body.</p>`}
  </div>`;
}
