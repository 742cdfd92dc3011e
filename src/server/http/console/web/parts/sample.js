// The event on which a sink or script is tried: written by hand, or a recorded one, which the address of the view then names.

import { html, useEffect, useState } from "../core/html.js";
import { get } from "../core/api.js";
import { usesSpaces } from "../core/session.js";
import { place, setQuery } from "../core/router.js";
import { useResource } from "../core/resource.js";
import { localTime, pretty } from "../core/format.js";
import { Block, ErrorBox } from "./basics.js";
import { Choice, Select, Text } from "./forms.js";
import { Editor } from "./editor.js";
import { parsePayload } from "./emit_dialog.js";

const EXAMPLE = `{
  "version": "1.2",
  "branch": "main"
}`;

/** Recorded events that are offered. */
const RECENT = 30;

/** The sample of a view, `[sample, setSample]`: at first the event that the address names as `sample`. */
export function useSample() {
  const named = usesSpaces.value ? place.value.query.sample : undefined;
  const [sample, setSample] = useState(() => newSample(named));
  const eventId = sample.mode === "recorded" ? sample.eventId : "";
  useEffect(() => {
    if (eventId !== (named ?? "")) setQuery({ sample: eventId }, { replace: true });
  }, [eventId]);
  return [sample, setSample];
}

function newSample(eventId) {
  return { mode: eventId ? "recorded" : "written", type: "deploy.done", payload: EXAMPLE, eventId: eventId ?? "", data: undefined };
}

/** The fields of a sample in the body of a request; an error if the payload is no JSON. */
export function sampleBody(sample) {
  if (sample.mode === "recorded") {
    if (!sample.eventId) throw new Error("Choose an event first.");
    return { event_id: sample.eventId };
  }
  try {
    return { type: sample.type, payload: parsePayload(sample.payload) };
  } catch (error) {
    throw new Error(`The sample: ${error.message}`);
  }
}

/** The payload of a sample, for completion; undefined while it is not known. */
export function sampleData(sample) {
  if (sample.mode === "recorded") return sample.data;
  try {
    return JSON.parse(sample.payload);
  } catch {
    return undefined;
  }
}

export function SamplePicker({ sample, onChange, pattern }) {
  const set = (changes) => onChange({ ...sample, ...changes });
  const modes = [["written", "Written by hand"], ["recorded", "A recorded one"]];
  return html`<div class="form">
    ${usesSpaces.value && html`<${Choice} legend="Event" name="sample-mode" value=${sample.mode} onInput=${(mode) => set({ mode })}
      options=${modes} />`}
    ${sample.mode === "written" ? html`<${Written} sample=${sample} set=${set} />`
      : html`<${Recorded} sample=${sample} set=${set} pattern=${pattern} />`}
  </div>`;
}

function Written({ sample, set }) {
  return html`<${Text} label="Type" hint="The service puts custom. in front." value=${sample.type} onInput=${(type) => set({ type })} />
    <div class="field"><span>Payload</span>
      <${Editor} label="Payload of the sample" language="json" lines=${5} value=${sample.payload}
        onInput=${(payload) => set({ payload })} />
    </div>`;
}

/** Recent events that match the pattern; without a good one, all of them. */
async function recentEvents(pattern) {
  try {
    return { items: (await get("/api/events", { limit: RECENT, pattern })).items, pattern };
  } catch (error) {
    if (error.status !== 400) throw error;
    return { items: (await get("/api/events", { limit: RECENT })).items };
  }
}

function Recorded({ sample, set, pattern }) {
  const recent = useResource(() => recentEvents(pattern), [pattern]);
  const path = `/api/events/${encodeURIComponent(sample.eventId)}`;
  const one = useResource(async () => (sample.eventId ? get(path, {}, { texts: ["data"] }) : null), [sample.eventId]);
  useEffect(() => {
    if (one.data) set({ data: one.data.data });
  }, [one.data?.id]);
  const label = (event) => `${event.type}, ${localTime(event.accepted_at)}`;
  const options = (recent.data?.items ?? []).map((event) => [event.id, label(event)]);
  if (sample.eventId && !options.some(([id]) => id === sample.eventId)) {
    options.unshift([sample.eventId, one.data?.id === sample.eventId ? label(one.data) : sample.eventId]);
  }
  const choose = (eventId) => set({ eventId: eventId.trim(), data: undefined });
  const hint = recent.data?.pattern ? `The last ${RECENT} that match ${recent.data.pattern}.` : `The last ${RECENT}.`;
  return html`<${Select} label="Recent events" hint=${hint} value=${sample.eventId} onInput=${choose}
    options=${[["", "choose one"], ...options]} />
    <${Text} label="Or its id" value=${sample.eventId} onInput=${choose} />
    <${ErrorBox} error=${recent.error} retry=${recent.reload} /><${ErrorBox} error=${one.error} retry=${one.reload} />
    ${one.data && html`<details><summary>Payload</summary>
      <${Block} text=${pretty(one.data.texts.data)} label="Payload of the recorded event" />
    </details>`}`;
}
