// One source: its requests since the start, its definition, trying its transform, and its dead letters.

import { html } from "../core/html.js";
import { del, get, patch } from "../core/api.js";
import { manages } from "../core/session.js";
import { navigate, place, to } from "../core/router.js";
import { useAction, useGet } from "../core/resource.js";
import { count, number } from "../core/format.js";
import { announce, Button, Code, ErrorBox, Fact, Facts, Heading, ListError, Loading, State, Tabs, Time } from "../parts/basics.js";
import { ConfirmButton } from "../parts/dialogs.js";
import { SourceLetters } from "../parts/source_letters.js";
import { SourceForm } from "./source_form.js";
import { sourceState } from "./sources.js";

export default function SourcePage({ id }) {
  if (id === "new") return html`<${SourceForm} />`;
  return html`<${Source} id=${id} tab=${place.value.query.tab ?? "state"} />`;
}

function Source({ id, tab }) {
  const path = `/api/sources/${encodeURIComponent(id)}`;
  const { data: source, error, reload, set, loadedAt } = useGet(path, {}, { every: tab === "edit" ? 0 : 5000 });
  const back = { href: to("sources"), name: "Sources" };
  const failure = html`<${ListError} error=${error} retry=${reload} loadedAt=${source && loadedAt} />`;
  if (!source) return html`<${Heading} title="Source" back=${back} />${error ? failure : html`<${Loading} />`}`;
  const mayChange = manages(source.owner, "event_sinks");
  const tabs = [
    { id: "state", name: "State" },
    mayChange && { id: "edit", name: "Definition" },
    { id: "letters", name: "Dead letters", count: source.dead_letters },
  ].filter(Boolean);
  const shown = tabs.find((offered) => offered.id === tab)?.id ?? "state";
  const subtitle = html`<${State} value=${sourceState(source)} /><span>${source.verify.type}</span>
    <span>${source.owner === "global" ? "global" : "yours"}</span>`;
  return html`<${Heading} title=${source.slug} back=${back} subtitle=${subtitle}>
      ${mayChange && html`<${ActiveButton} source=${source} path=${path} onChange=${set} />
        <${DeleteButton} source=${source} path=${path} />`}
    <//>
    ${failure}
    <${Tabs} current=${shown} href=${(next) => to("sources", id, next === "state" ? {} : { tab: next })} tabs=${tabs} />
    ${shown === "edit" && html`<${SourceForm} source=${source} onSaved=${set} />`}
    ${shown === "letters" && html`<${SourceLetters} path=${path} mayChange=${mayChange} onChange=${reload} />`}
    ${shown === "state" && html`<${SourceState} source=${source} />`}`;
}

function DeleteButton({ source, path }) {
  const consequences = async () => {
    const now = await get(path);
    const lost = [`Requests at ${now.path} are answered as if it had never been there.`];
    if (now.dead_letters > 0) lost.push(`Its ${count(now.dead_letters, "dead letter")} will be gone.`);
    return lost;
  };
  const remove = async () => {
    await del(path);
    announce(`The source ${source.slug} is deleted.`);
    navigate(to("sources"), { isSaved: true });
  };
  return html`<${ConfirmButton} label="Delete" title=${`Delete the source ${source.slug}?`} consequences=${consequences}
    action=${remove} />`;
}

function ActiveButton({ source, path, onChange }) {
  const { isBusy, error, run } = useAction();
  const isOff = source.active === false;
  const toggle = () => run(async () => onChange(await patch(path, { active: isOff })));
  return html`<${Button} icon=${isOff ? "play" : "pause"} busy=${isBusy} onClick=${toggle}>${isOff ? "Activate" : "Deactivate"}<//>
    <${ErrorBox} error=${error} />`;
}

function Figure({ href, value, name, tone = "" }) {
  const content = html`<strong>${number(value)}</strong><span>${name}</span>`;
  const look = `figure ${value > 0 ? tone : ""}`;
  return href ? html`<a class=${look} href=${href}>${content}</a>` : html`<div class=${look}>${content}</div>`;
}

function SourceState({ source }) {
  const { activity, quarantine } = source;
  const letters = to("sources", source.id, { tab: "letters" });
  // Only the dead letters are kept one by one: requests are not, and their events may be older than the start, or of other types.
  return html`<div class="figures">
      <${Figure} value=${activity.accepted} name="accepted since the start" />
      <${Figure} value=${activity.refused} name="refused" tone="warn" />
      <${Figure} value=${activity.failed} name="failed in the transform" tone="bad" />
      <${Figure} href=${letters} value=${source.dead_letters} name="dead letters" tone="warn" />
    </div>
    ${quarantine && html`<p class="banner bad">Its Lua is in quarantine until <${Time} at=${quarantine.until} />: ${quarantine.reason}</p>`}
    ${activity.last_refusal && html`<p class="banner warn">
      The last refusal, <${Time} at=${activity.last_refusal.at} mode="relative" />: ${activity.last_refusal.reason}
    </p>`}
    <section class="panel"><h2>About</h2><${Facts}>
      <${Fact} name="Address for the provider"><${Code} text=${`${location.origin}${source.path}`} label="Copy the address" /><//>
      <${Fact} name="Description">${source.description}<//>
      <${Fact} name="Rate">${source.rate} requests a second<//>
      <${Fact} name="Former secrets until">
        ${source.former_secrets.map((until) => html`<${Time} key=${until} at=${until} mode="date" /> `)}<//>
      <${Fact} name="Changed"><${Time} at=${source.updated_at} mode="date" /><//>
    <//></section>`;
}
