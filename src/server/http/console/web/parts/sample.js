// The event on which a sink or script is tried: written by hand, or a recorded one.

import { html, useEffect, useState } from "../core/html.js";
import { get } from "../core/api.js";
import { usesSpaces } from "../core/session.js";
import { useResource } from "../core/resource.js";
import { localTime, pretty } from "../core/format.js";
import { Block, ErrorBox } from "./basics.js";
import { Choice, Select, Text } from "./forms.js";
import { Editor } from "./editor.js";

const EXAMPLE = `{
  "version": "1.2",
  "branch": "main"
}`;

/** A sample as the forms keep it. */
export function newSample(eventId) {
  return { mode: eventId ? "recorded" : "written", type: "deploy.done", payload: EXAMPLE, eventId: eventId ?? "", data: undefined };
}

/** The fields of a sample in the body of a request; an error if the payload is no JSON. */
export function sampleBody(sample) {
  if (sample.mode === "recorded") return { event_id: sample.eventId };
  return { type: sample.type, payload: sample.payload.trim() === "" ? {} : JSON.parse(sample.payload) };
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
  return html`<div class="form">
    <${Choice} legend="Event" name="sample-mode" value=${sample.mode} onInput=${(mode) => set({ mode })} options=${[["written", "Written by hand"], ["recorded", "A recorded one"]]} />
    ${sample.mode === "written" ? html`<${Text} label="Type" hint="The service puts custom. in front." value=${sample.type} onInput=${(type) => set({ type })} />
      <div class="field"><span>Payload</span><${Editor} label="Payload of the sample" language="json" lines=${5} value=${sample.payload} onInput=${(payload) => set({ payload })} /></div>`
      : html`<${Recorded} sample=${sample} set=${set} pattern=${pattern} />`}
  </div>`;
}

function Recorded({ sample, set, pattern }) {
  const [isPatternGood, setPatternGood] = useState(true);
  const recent = useResource(async () => {
    if (!usesSpaces.value) return [];
    try {
      setPatternGood(true);
      return (await get("/api/events", { limit: 30, pattern })).items;
    } catch (error) {
      if (error.status !== 400) throw error;
      setPatternGood(false);
      return (await get("/api/events", { limit: 30 })).items;
    }
  }, [pattern]);
  const one = useResource(async () => (sample.eventId ? get(`/api/events/${encodeURIComponent(sample.eventId)}`) : null), [sample.eventId]);
  useEffect(() => {
    if (one.data) set({ data: one.data.data });
  }, [one.data?.id]);
  const options = (recent.data ?? []).map((event) => [event.id, `${event.type}, ${localTime(event.accepted_at)}`]);
  if (sample.eventId && !options.some(([id]) => id === sample.eventId)) options.unshift([sample.eventId, one.data ? `${one.data.type}, ${localTime(one.data.accepted_at)}` : sample.eventId]);
  return html`${usesSpaces.value && html`<${Select} label="Recent events" hint=${pattern && isPatternGood ? `Those that match ${pattern}.` : undefined} value=${sample.eventId} onInput=${(eventId) => set({ eventId, data: undefined })} options=${[["", "choose one"], ...options]} />`}
    <${Text} label="Or its id" value=${sample.eventId} onInput=${(eventId) => set({ eventId: eventId.trim(), data: undefined })} />
    <${ErrorBox} error=${one.error} />
    ${one.data && html`<details><summary>Payload</summary><${Block} text=${pretty(one.data.data)} label="Payload of the recorded event" /></details>`}`;
}
