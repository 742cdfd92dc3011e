// One space: state, health, agent, methods, its settings, a new token, start and stop.

import { html, useState } from "../core/html.js";
import { all, del, patch, post } from "../core/api.js";
import { managesSinks, may, user } from "../core/session.js";
import { navigate, to } from "../core/router.js";
import { useAction, useGet, useResource } from "../core/resource.js";
import { count } from "../core/format.js";
import { announce, Button, Code, ErrorBox, Fact, Facts, Heading, ListError, Loading, State, Time } from "../parts/basics.js";
import { Confirm, ConfirmButton } from "../parts/dialogs.js";
import { AgentToken } from "../parts/agent_token.js";
import { Pairs, Text } from "../parts/forms.js";
import { useLeaveQuestion } from "../parts/leaving.js";
import { agentState } from "./spaces.js";

/** The interval at which the lists of a space are read anew, in milliseconds. */
const EVERY = 5000;

/** True if the user owns the space: only the owner sees its methods and makes its agent token, which acts as the owner. */
const isOwn = (space) => space.owner_id === user.value.id;

export default function SpacePage({ id }) {
  const path = `/api/spaces/${encodeURIComponent(id)}`;
  const { data: space, error, reload, set, loadedAt } = useGet(path, {}, { every: 3000 });
  const back = { href: to("spaces"), name: "Spaces" };
  const failure = html`<${ListError} error=${error} retry=${reload} loadedAt=${space && loadedAt} />`;
  if (!space) return html`<${Heading} title="Space" back=${back} />${error ? failure : html`<${Loading} />`}`;
  const subtitle = html`<${State} value=${space.state} /><${State} value=${space.health} />
    <span>agent <${State} value=${agentState(space)} /></span><span>of ${space.owner}</span>`;
  return html`<${Heading} title=${space.name} back=${back} subtitle=${subtitle}><${SpaceActions} space=${space} path=${path} set=${set} />
    <//>
    ${failure}<${Troubles} space=${space} />
    <div class="columns">
      <${SpaceState} space=${space} />
      <div class="stack">
        ${isOwn(space) && html`<${Methods} space=${space} />`}
        <${Settings} space=${space} path=${path} set=${set} />
      </div>
    </div>`;
}

function SpaceState({ space }) {
  const { last_check: check, process } = space;
  const launches = process && `pid ${process.pid}, ${count(process.launches, "launch", "launches")}`;
  return html`<section class="panel"><h2>State</h2><${Facts}>
    <${Fact} name="Driver">${space.driver}<//>
    <${Fact} name="Started">${space.started_at && html`<${Time} at=${space.started_at} mode="date" />`}<//>
    <${Fact} name="Stopped">${space.stopped_at && html`<${Time} at=${space.stopped_at} mode="date" />`}<//>
    <${Fact} name="Machine">${space.node_id}<//>
    <${Fact} name="Last check">${check && html`<${State} value=${check.ok ? "ok" : "failed"} />${" "}
      <${Time} at=${check.checked_at} mode="relative" /> ${check.detail}`}<//>
    <${Fact} name="Process">${process && (process.pid ? launches : "between two launches")}<//>
    <${Fact} name="Addresses">
      ${space.urls.map((url) => html`<div key=${url}><a href=${safeUrl(url)} rel="noreferrer noopener">${url}</a></div>`)}<//>
    <${Fact} name="Startup script">${space.startup_script_id && html`<a href=${to("scripts", space.startup_script_id)}>open</a>`}<//>
    <${Fact} name="Health check">${space.health_check && html`<code>${JSON.stringify(space.health_check)}</code>`}<//>
    <${Fact} name="Id"><${Code} text=${space.id} /><//>
  <//></section>`;
}

/** Only addresses of the web become links. */
function safeUrl(url) {
  return /^https?:\/\//.test(url) ? url : undefined;
}

function Troubles({ space }) {
  const refused = space.refused_registration;
  return html`${refused
    && html`<p class="banner bad">Its registration is refused since <${Time} at=${refused.since} />: ${refused.reason}</p>`}
    ${space.process?.trouble && html`<p class="banner bad">Its agent ended: ${space.process.trouble}</p>`}
    ${agentState(space) === "away" && html`<p class="banner warn">Its agent is not connected. Events for its methods wait.</p>`}`;
}

function SpaceActions({ space, path, set }) {
  const { isBusy, error, run } = useAction();
  const isProcess = space.driver === "process";
  const mayStart = isProcess && may("manage_spaces") && !space.launched;
  const start = () => run(async () => set(await post(`${path}/start`)));
  return html`${mayStart && html`<${Button} icon="play" busy=${isBusy} onClick=${start}>Start<//>`}
    ${(space.state === "deployed" || space.launched) && html`<${StopButton} space=${space} path=${path} set=${set} />`}
    ${!isProcess && isOwn(space) && html`<${TokenButton} space=${space} path=${path} />`}
    <${DeleteButton} space=${space} path=${path} />
    <${ErrorBox} error=${error} />`;
}

function StopButton({ space, path, set }) {
  const consequences = ["Its agent ends and its methods are gone until it starts again.", "Events that wait for its methods are dropped."];
  const stop = async () => set(await post(`${path}/stop`));
  return html`<${ConfirmButton} label="Stop" icon="pause" verb="Stop" title=${`Stop ${space.name}?`} consequences=${consequences}
    action=${stop} />`;
}

function TokenButton({ space, path }) {
  const [token, setToken] = useState(null);
  const [isAsking, setAsking] = useState(false);
  const rotate = async () => setToken((await post(`${path}/token`)).agent_token);
  return html`<${Button} onClick=${() => setAsking(true)}>New agent token<//>
    ${isAsking && html`<${Confirm} title="Make a new agent token?" verb="Make a new token" kind="primary" action=${rotate}
      consequences=${["The present token is refused from then on, and its agent is cut off."]} onClose=${() => setAsking(false)} />`}
    ${token && html`<${AgentToken} space=${space} token=${token} onClose=${() => setToken(null)} />`}`;
}

function DeleteButton({ space, path }) {
  const remove = async () => {
    await del(path);
    announce(`The space ${space.name} is deleted.`);
    navigate(to("spaces"), { isSaved: true });
  };
  return html`<${ConfirmButton} label="Delete" title=${`Delete the space ${space.name}?`} consequences=${() => consequences(space)}
    action=${remove} />`;
}

async function consequences(space) {
  const sentences = ["Its agent's token is refused from then on.", "Its methods are gone, and events that wait for them are dropped."];
  if (!managesSinks.value) return sentences;
  const sinks = await all("/api/event-sinks");
  const made = sinks.filter((sink) => sink.space_id === space.id);
  const more = sinks.isCut ? " Only the first of your sinks were looked at." : "";
  if (made.length > 0 || more) {
    sentences.push(`${count(made.length, "sink")} that its agent made: ${made.map((sink) => sink.name).join(", ") || "none"}.${more}`);
  }
  return sentences;
}

/** The methods that the owner publishes, and those of this space that are called for events. */
function Methods({ space }) {
  const list = useGet("/api/methods", {}, { every: EVERY });
  const subscribed = useResource(() => all("/api/subscriptions"), [], { every: EVERY });
  const own = (list.data?.methods ?? []).filter((method) => method.owner === space.owner);
  const here = (subscribed.data ?? []).filter((one) => one.space_id === space.id);
  return html`<section class="panel"><h2>Methods of ${space.owner}</h2>
    <${ErrorBox} error=${list.error} retry=${list.reload} />
    ${!list.data && !list.error && html`<${Loading} />`}
    ${list.data && own.length === 0
      && html`<p class="muted">None is published. In the space: <code>svc methods register methods.toml</code></p>`}
    <ul class="plain-list">${own.slice(0, 50).map((method) => html`<${MethodItem} key=${method.name} method=${method} />`)}</ul>
    ${own.length > 50 && html`<p class="muted">and ${own.length - 50} more: <a href=${to("methods")}>all methods</a></p>`}
    <${ErrorBox} error=${subscribed.error} retry=${subscribed.reload} />
    ${here.length > 0 && html`<h3 class="spaced">Subscribed here</h3><ul class="plain-list">
      ${here.map((one) => html`<li key=${one.id}><a href=${to("subscriptions", one.id)}>${one.method}</a><span class="mono muted">
        ${one.events}</span></li>`)}
    </ul>`}
  </section>`;
}

function MethodItem({ method }) {
  return html`<li><a class="grow" href=${to("methods", method.name)}>${method.name}</a>
    <span class="muted">${method.available_count}/${method.provider_count} available</span></li>`;
}

function Settings({ space, path, set }) {
  const stored = { description: space.description, custom: Object.entries(space.custom) };
  const [draft, setDraft] = useState(stored);
  const { isBusy, error, run } = useAction();
  const isChanged = JSON.stringify(draft) !== JSON.stringify(stored);
  const mayChange = space.driver !== "process" || may("manage_spaces");
  useLeaveQuestion(mayChange && isChanged);
  const save = (event) => {
    event.preventDefault();
    run(async () => {
      const custom = Object.fromEntries(draft.custom.filter(([name]) => name.trim() !== ""));
      const saved = await patch(path, { description: draft.description, custom });
      setDraft({ description: saved.description, custom: Object.entries(saved.custom) });
      set(saved);
      announce("Saved.");
    });
  };
  if (!mayChange) return null;
  return html`<section class="panel"><h2>Settings</h2><form class="form" onSubmit=${save}>
    <${Text} label="Description" value=${draft.description} onInput=${(description) => setDraft({ ...draft, description })} />
    <${Pairs} legend="Custom fields" hint="Templates of sinks see them as custom." add="Add a field" value=${draft.custom}
      onInput=${(custom) => setDraft({ ...draft, custom })} />
    <${ErrorBox} error=${error} />
    <div class="form-actions"><${Button} type="submit" busy=${isBusy} disabled=${!isChanged}>Save<//></div>
  </form></section>`;
}
