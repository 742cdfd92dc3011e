// Replays of a sink: jobs that send events of the history again, with their progress.

import { html, useState } from "../core/html.js";
import { del, post } from "../core/api.js";
import { useAction, useGet } from "../core/resource.js";
import { fromLocalInput, number } from "../core/format.js";
import { announce, Button, ErrorBox, ListError, Loading, State, Time } from "./basics.js";
import { ConfirmButton } from "./dialogs.js";
import { Checks, Text, TimeField } from "./forms.js";

const STATES = [["dropped", "Dropped: the queue was full"], ["dead", "Dead: given up"], ["delivered", "Delivered before"]];

export function Replays({ path }) {
  const list = useGet(`${path}/replays`, {}, { every: 1500 });
  const jobs = list.data?.items ?? [];
  const isOpen = jobs.some((job) => ["running", "paused"].includes(job.state));
  return html`<div class="columns">
    <section class="panel"><h2>Jobs</h2><${ListError} error=${list.error} retry=${list.reload} loadedAt=${list.loadedAt} />
      ${!list.data && !list.error && html`<${Loading} />`}
      ${list.data && jobs.length === 0 && html`<p class="muted">
        None yet. A job queues events of the history again, in order, as the queue has room, and never before events that already wait.
      </p>`}
      ${jobs.map((job) => html`<${Job} key=${job.id} job=${job} path=${path} reload=${list.reload} />`)}
    </section>
    <${NewReplay} path=${path} isOpen=${isOpen} reload=${list.reload} />
  </div>`;
}

function Job({ job, path, reload }) {
  const { isBusy, error, run } = useAction();
  const change = (action) => run(async () => {
    await post(`${path}/replay/${action}`);
    await reload();
  });
  const cancel = async () => {
    await del(`${path}/replay`);
    await reload();
  };
  const isOpen = ["running", "paused"].includes(job.state);
  const share = job.matched ? Math.min(100, Math.round((job.queued / job.matched) * 100)) : job.state === "done" ? 100 : 0;
  const counts = job.matched === undefined ? `${number(job.queued)} queued`
    : `${number(job.queued)} of ${number(job.matched)} queued${job.gone ? `, ${number(job.gone)} gone` : ""}`;
  return html`<div class="attempt"><div class="attempt-body">
    <div class="side-by-side"><${State} value=${job.state} /><span>${job.states.join(", ")}</span>
      ${job.type && html`<code>${job.type}</code>`}<span class="muted">begun <${Time} at=${job.created_at} mode="relative" /></span>
    </div>
    <div class="progress" role="progressbar" aria-label="Progress of the replay" aria-valuemin="0" aria-valuemax="100"
      aria-valuenow=${share}><div style=${{ width: `${share}%` }}></div></div>
    <div class="muted">${counts}</div>
    <${ErrorBox} error=${error} />
    ${isOpen && html`<div class="form-actions">
      ${job.state === "running" ? html`<${Button} icon="pause" busy=${isBusy} onClick=${() => change("pause")}>Pause<//>`
        : html`<${Button} icon="play" busy=${isBusy} onClick=${() => change("resume")}>Continue<//>`}
      <${ConfirmButton} label="Cancel the job" icon="close" title="Cancel the replay?"
        consequences=${["Events that it has queued stay in the queue."]}
        action=${cancel} />
    </div>`}
  </div></div>`;
}

function NewReplay({ path, isOpen, reload }) {
  const [draft, setDraft] = useState({ states: ["dropped", "dead"], since: "", until: "", type: "", sequences: "", rate: "" });
  const { isBusy, error, run } = useAction();
  const set = (field) => (value) => setDraft((before) => ({ ...before, [field]: value }));
  const start = (event) => {
    event.preventDefault();
    run(async () => {
      const body = { states: draft.states };
      if (draft.since) body.since = fromLocalInput(draft.since);
      if (draft.until) body.until = fromLocalInput(draft.until);
      if (draft.type.trim()) body.type = draft.type.trim();
      if (draft.sequences.trim()) body.sequences = draft.sequences.split(",").map((range) => range.trim());
      if (draft.rate) body.rate = Number(draft.rate);
      await post(`${path}/replay`, body);
      announce("The replay has begun.");
      await reload();
    });
  };
  return html`<section class="panel"><h2>Send events again</h2><form class="form" onSubmit=${start}>
    <${Checks} legend="Whose delivery was" value=${draft.states} onInput=${set("states")} options=${STATES} />
    <div class="form-row">
      <${TimeField} label="Accepted since" value=${draft.since} onInput=${set("since")} />
      <${TimeField} label="Accepted until" value=${draft.until} onInput=${set("until")} />
    </div>
    <div class="form-row"><${Text} label="Type pattern" placeholder="any" value=${draft.type} onInput=${set("type")} />
      <${Text} label="Numbers" placeholder="17-19, 25" value=${draft.sequences} onInput=${set("sequences")} />
      <${Text} label="Events a second" type="number" min="1" max="10000" placeholder="as the queue has room" value=${draft.rate}
        onInput=${set("rate")} /></div>
    <p class="hint">Receivers see such deliveries by the header X-Service-Replay.</p>
    <${ErrorBox} error=${error} />
    <div class="form-actions">
      <${Button} type="submit" kind="primary" icon="reload" busy=${isBusy} disabled=${isOpen || draft.states.length === 0}>
        Start the replay
      <//>
    </div>
    ${isOpen && html`<p class="hint">A job is under way: a sink has one at a time.</p>`}
  </form></section>`;
}
