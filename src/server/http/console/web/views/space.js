// One space: state, health, agent, methods, its settings, a new token, start and stop.

import { html, useState } from "../core/html.js";
import { del, get, patch, post } from "../core/api.js";
import { may, user } from "../core/session.js";
import { navigate, to } from "../core/router.js";
import { useAction, useGet } from "../core/resource.js";
import { count } from "../core/format.js";
import { announce, Button, Code, ErrorBox, Fact, Facts, Heading, Loading, State, Time } from "../parts/basics.js";
import { Confirm, ConfirmButton } from "../parts/dialogs.js";
import { AgentToken } from "../parts/agent_token.js";
import { Pairs, Text } from "../parts/forms.js";
import { agentState } from "./spaces.js";

export default function SpacePage({ id }) {
  const path = `/api/spaces/${encodeURIComponent(id)}`;
  const { data: space, error, reload, set } = useGet(path, {}, { every: 3000 });
  const back = { href: to("spaces"), name: "Spaces" };
  if (!space) return html`<${Heading} title="Space" back=${back} />${error ? html`<${ErrorBox} error=${error} retry=${reload} />` : html`<${Loading} />`}`;
  return html`<${Heading} title=${space.name} back=${back} subtitle=${html`<${State} value=${space.state} /><${State} value=${space.health} /><span>agent <${State} value=${agentState(space)} /></span><span>of ${space.owner}</span>`}>
      <${SpaceActions} space=${space} path=${path} set=${set} />
    <//>
    <${Troubles} space=${space} />
    <div class="columns">
      <section class="panel"><h2>State</h2><${Facts}>
        <${Fact} name="Driver">${space.driver}<//>
        <${Fact} name="Started">${space.started_at && html`<${Time} at=${space.started_at} mode="date" />`}<//>
        <${Fact} name="Stopped">${space.stopped_at && html`<${Time} at=${space.stopped_at} mode="date" />`}<//>
        <${Fact} name="Machine">${space.node_id}<//>
        <${Fact} name="Last check">${space.last_check && html`<${State} value=${space.last_check.ok ? "ok" : "failed"} /> <${Time} at=${space.last_check.checked_at} mode="relative" /> ${space.last_check.detail}`}<//>
        <${Fact} name="Process">${space.process && (space.process.pid ? `pid ${space.process.pid}, ${count(space.process.launches, "launch", "launches")}` : "between two launches")}<//>
        <${Fact} name="Addresses">${space.urls.map((url) => html`<div key=${url}><a href=${safeUrl(url)} rel="noreferrer noopener">${url}</a></div>`)}<//>
        <${Fact} name="Startup script">${space.startup_script_id && html`<a href=${to("scripts", space.startup_script_id)}>open</a>`}<//>
        <${Fact} name="Health check">${space.health_check && html`<code>${JSON.stringify(space.health_check)}</code>`}<//>
        <${Fact} name="Id"><${Code} text=${space.id} /><//>
      <//></section>
      <div class="stack">
        <${Methods} space=${space} />
        <${Settings} space=${space} path=${path} set=${set} />
      </div>
    </div>`;
}

/** Only addresses of the web become links. */
function safeUrl(url) {
  return /^https?:\/\//.test(url) ? url : undefined;
}

function Troubles({ space }) {
  return html`${space.refused_registration && html`<p class="banner bad">Its registration is refused since <${Time} at=${space.refused_registration.since} />: ${space.refused_registration.reason}</p>`}
    ${space.process?.trouble && html`<p class="banner bad">Its agent ended: ${space.process.trouble}</p>`}
    ${agentState(space) === "away" && html`<p class="banner warn">Its agent is not connected. Events for its methods wait.</p>`}`;
}

function SpaceActions({ space, path, set }) {
  const { isBusy, error, run } = useAction();
  const [token, setToken] = useState(null);
  const [isAsking, setAsking] = useState(false);
  const isProcess = space.driver === "process";
  const change = (action) => run(async () => set(await post(`${path}/${action}`)));
  const rotate = async () => setToken((await post(`${path}/token`)).agent_token);
  return html`${isProcess && may("manage_spaces") && !space.launched && html`<${Button} icon="play" busy=${isBusy} onClick=${() => change("start")}>Start<//>`}
    ${space.state === "deployed" || space.launched ? html`<${ConfirmButton} label="Stop" icon="pause" verb="Stop" title=${`Stop ${space.name}?`} consequences=${["Its agent ends and its methods are gone until it starts again.", "Events that wait for its methods are dropped."]} action=${async () => set(await post(`${path}/stop`))} />` : ""}
    ${!isProcess && html`<${Button} onClick=${() => setAsking(true)}>New agent token<//>`}
    <${ConfirmButton} label="Delete" title=${`Delete the space ${space.name}?`} consequences=${() => consequences(space)} action=${async () => {
      await del(path);
      announce(`The space ${space.name} is deleted.`);
      navigate(to("spaces"));
    }} />
    ${error && html`<${ErrorBox} error=${error} />`}
    ${isAsking && html`<${Confirm} title="Make a new agent token?" verb="Make a new token" kind="primary" consequences=${["The present token is refused from then on, and its agent is cut off."]} action=${rotate} onClose=${() => setAsking(false)} />`}
    ${token && html`<${AgentToken} space=${space} token=${token} onClose=${() => setToken(null)} />`}`;
}

async function consequences(space) {
  const sentences = ["Its agent's token is refused from then on.", "Its methods are gone, and events that wait for them are dropped."];
  const none = { items: [] };
  const [sinks] = await Promise.all([may("manage_own_event_sinks", "manage_global_event_sinks") ? get("/api/event-sinks", { limit: 200 }).catch(() => none) : none]);
  const made = sinks.items.filter((sink) => sink.space_id === space.id);
  if (made.length > 0) sentences.push(`${count(made.length, "sink")} that its agent made: ${made.map((sink) => sink.name).join(", ")}.`);
  return sentences;
}

/** The methods that the space serves, as far as the user sees its providers. */
function Methods({ space }) {
  const list = useGet(space.owner_id === user.value.id ? "/api/methods" : null);
  const details = useGet(space.owner_id === user.value.id ? "/api/subscriptions" : null, { limit: 200 });
  const own = (list.data?.methods ?? []).filter((method) => method.owner === space.owner);
  const subscriptions = (details.data?.items ?? []).filter((one) => one.space_id === space.id);
  return html`<section class="panel"><h2>Methods of ${space.owner}</h2>
    ${own.length === 0 ? html`<p class="muted">None is published. In the space: <code>svc methods register methods.toml</code></p>` : html`<ul class="plain-list">${own.slice(0, 50).map((method) => html`<li key=${method.name}><a class="grow" href=${to("methods", method.name)}>${method.name}</a><span class="muted">${method.available_count}/${method.provider_count} available</span></li>`)}</ul>`}
    ${subscriptions.length > 0 && html`<h3 class="spaced">Subscribed here</h3><ul class="plain-list">${subscriptions.map((one) => html`<li key=${one.id}><a href=${to("sinks", one.id, { subscription: 1 })}>${one.method}</a><span class="mono muted">${one.events}</span></li>`)}</ul>`}
  </section>`;
}

function Settings({ space, path, set }) {
  const [draft, setDraft] = useState({ description: space.description, custom: Object.entries(space.custom) });
  const { isBusy, error, run } = useAction();
  const mayChange = space.driver !== "process" || may("manage_spaces");
  const save = (event) => {
    event.preventDefault();
    run(async () => {
      set(await patch(path, { description: draft.description, custom: Object.fromEntries(draft.custom.filter(([name]) => name.trim() !== "")) }));
      announce("Saved.");
    });
  };
  if (!mayChange) return null;
  return html`<section class="panel"><h2>Settings</h2><form class="form" onSubmit=${save}>
    <${Text} label="Description" value=${draft.description} onInput=${(description) => setDraft({ ...draft, description })} />
    <${Pairs} legend="Custom fields" hint="Templates of sinks see them as custom." add="Add a field" value=${draft.custom} onInput=${(custom) => setDraft({ ...draft, custom })} />
    <${ErrorBox} error=${error} /><div class="form-actions"><${Button} type="submit" busy=${isBusy}>Save<//></div>
  </form></section>`;
}
