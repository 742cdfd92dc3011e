// One sink: how it fares, its definition, its dead letters, and trying it out. `new` in place of an id makes one.

import { html } from "../core/html.js";
import { del, get, patch } from "../core/api.js";
import { manages } from "../core/session.js";
import { navigate, place, to } from "../core/router.js";
import { useAction, useGet } from "../core/resource.js";
import { count } from "../core/format.js";
import { announce, Button, ErrorBox, Heading, ListError, Loading, State, Tabs } from "../parts/basics.js";
import { ConfirmButton } from "../parts/dialogs.js";
import { DeadLetters } from "../parts/dead_letters.js";
import { SinkState } from "../parts/sink_state.js";
import { SinkTest } from "../parts/sink_test.js";
import { Replays } from "../parts/replay.js";
import { RotateSecret } from "../parts/rotate_secret.js";
import { Sequence } from "../parts/sequence.js";
import { SinkForm } from "./sink_form.js";

export default function SinkPage({ id }) {
  return id === "new" ? html`<${SinkForm} />` : html`<${Sink} id=${id} query=${place.value.query} />`;
}

/** The parts of a sink's page that are offered. */
function tabsOf(sink, mayChange) {
  const receives = sink.type !== "json-rpc";
  return [
    { id: "state", name: "State" },
    mayChange && { id: "edit", name: "Definition" },
    receives && mayChange && { id: "test", name: "Test" },
    receives && { id: "letters", name: "Dead letters", count: sink.queue.dead },
    receives && mayChange && { id: "replay", name: "Replay" },
    receives && { id: "numbers", name: "Numbers" },
    mayChange && sink.type === "webhook" && { id: "secret", name: "Secret" },
  ].filter(Boolean);
}

function Sink({ id, query }) {
  const path = `/api/event-sinks/${encodeURIComponent(id)}`;
  const isEditing = query.tab === "edit";
  const { data: sink, error, reload, set, loadedAt } = useGet(path, {}, { every: isEditing ? 0 : 3000 });
  const back = { href: to("sinks"), name: "Sinks" };
  const failure = html`<${ListError} error=${error} retry=${reload} loadedAt=${sink && loadedAt} />`;
  if (!sink) return html`<${Heading} title="Sink" back=${back} />${error ? failure : html`<${Loading} />`}`;
  const mayChange = manages(sink.owner, "event_sinks");
  const tabs = tabsOf(sink, mayChange);
  const shown = tabs.find((tab) => tab.id === query.tab)?.id ?? "state";
  const href = (tab) => to("sinks", id,
    { tab: tab === "state" ? undefined : tab, sample: ["edit", "test"].includes(tab) ? query.sample : undefined });
  const subtitle = html`<${State} value=${sink.failure?.state ?? sink.status} /><span>${sink.type}</span>
    <span>${sink.owner === "global" ? "global" : "yours"}</span><span class="mono">${sink.events}</span>`;
  return html`<${Heading} title=${sink.name} back=${back} subtitle=${subtitle}>
      ${mayChange && html`<${PauseButton} sink=${sink} path=${path} onChange=${set} /><${DeleteButton} sink=${sink} path=${path} />`}
    <//>
    ${failure}
    <${Tabs} current=${shown} href=${href} tabs=${tabs} />
    <${Part} part=${shown} sink=${sink} path=${path} reload=${reload} set=${set} />`;
}

function Part({ part, sink, path, reload, set }) {
  switch (part) {
    case "edit":
      return html`<${SinkForm} sink=${sink} onSaved=${set} />`;
    case "test":
      return html`<${SinkTest} sink=${sink} path=${path} />`;
    case "letters":
      return html`<${DeadLetters} path=${path} mayChange=${manages(sink.owner, "event_sinks")} onChange=${reload} />`;
    case "replay":
      return html`<${Replays} path=${path} />`;
    case "numbers":
      return html`<${Sequence} path=${path} />`;
    case "secret":
      return html`<${RotateSecret} sink=${sink} path=${path} onChange=${set} />`;
    default:
      return html`<${SinkState} sink=${sink} />`;
  }
}

function PauseButton({ sink, path, onChange }) {
  const { isBusy, error, run } = useAction();
  const isPaused = sink.active === false;
  const toggle = () => run(async () => {
    onChange(await patch(path, { active: isPaused }));
    announce(isPaused ? "The sink delivers again." : "The sink is paused. Its events wait, up to its queue's size.");
  });
  return html`<${Button} icon=${isPaused ? "play" : "pause"} busy=${isBusy} onClick=${toggle}>${isPaused ? "Continue" : "Pause"}<//>
    <${ErrorBox} error=${error} />`;
}

function DeleteButton({ sink, path }) {
  const consequences = async () => {
    const now = await get(path);
    const lost = [];
    if (now.queue.depth > 0) lost.push(`${count(now.queue.depth, "event")} that wait for it will not be delivered.`);
    if (now.queue.dead > 0) lost.push(`Its ${count(now.queue.dead, "dead letter")} will be gone.`);
    if (now.type === "json-rpc") lost.push("Methods that name it in event_sinks get the default format.");
    return [...lost, "The history of its deliveries stays as long as the events do."];
  };
  const remove = async () => {
    await del(path);
    announce(`The sink ${sink.name} is deleted.`);
    navigate(to("sinks"), { isSaved: true });
  };
  return html`<${ConfirmButton} label="Delete" title=${`Delete the sink ${sink.name}?`} consequences=${consequences} action=${remove} />`;
}
