// One source: its requests since the start, its definition, trying its transform, and its dead letters.

import { html } from "../core/html.js";
import { del, patch } from "../core/api.js";
import { manages } from "../core/session.js";
import { navigate, place, to } from "../core/router.js";
import { useAction, useGet } from "../core/resource.js";
import { count, number } from "../core/format.js";
import { announce, Button, Code, ErrorBox, Fact, Facts, Heading, Loading, State, Tabs, Time } from "../parts/basics.js";
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
  const { data: source, error, reload, set } = useGet(path, {}, { every: tab === "edit" ? 0 : 5000 });
  const back = { href: to("sources"), name: "Sources" };
  if (!source) return html`<${Heading} title="Source" back=${back} />${error ? html`<${ErrorBox} error=${error} retry=${reload} />` : html`<${Loading} />`}`;
  const mayChange = manages(source.owner, "event_sinks");
  return html`<${Heading} title=${source.slug} back=${back} subtitle=${html`<${State} value=${sourceState(source)} /><span>${source.verify.type}</span><span>${source.owner === "global" ? "global" : "yours"}</span>`}>
      ${mayChange && html`<${ActiveButton} source=${source} path=${path} onChange=${set} /><${ConfirmButton} label="Delete" title=${`Delete the source ${source.slug}?`} action=${() => remove(path, source)}
        consequences=${[`Requests at ${source.path} are answered as if it had never been there.`, source.dead_letters > 0 && `Its ${count(source.dead_letters, "dead letter")} will be gone.`].filter(Boolean)} />`}
    <//>
    <${Tabs} current=${tab} href=${(next) => to("sources", id, next === "state" ? {} : { tab: next })} tabs=${[
      { id: "state", name: "State" }, mayChange && { id: "edit", name: "Definition" }, { id: "letters", name: "Dead letters", count: source.dead_letters },
    ]} />
    ${tab === "edit" && mayChange ? html`<${SourceForm} source=${source} onSaved=${set} />` : tab === "letters" ? html`<${SourceLetters} path=${path} onChange=${reload} />` : html`<${SourceState} source=${source} />`}`;
}

async function remove(path, source) {
  await del(path);
  announce(`The source ${source.slug} is deleted.`);
  navigate(to("sources"));
}

function ActiveButton({ source, path, onChange }) {
  const { isBusy, run } = useAction();
  const isOff = source.active === false;
  const toggle = () => run(async () => onChange(await patch(path, { active: isOff })));
  return html`<${Button} icon=${isOff ? "play" : "pause"} busy=${isBusy} onClick=${toggle}>${isOff ? "Activate" : "Deactivate"}<//>`;
}

function SourceState({ source }) {
  const { activity, quarantine } = source;
  return html`<div class="figures">
      <a class="figure" href=${to("events", { pattern: `custom.source.${source.slug}` })}><strong>${number(activity.accepted)}</strong><span>accepted since the start</span></a>
      <div class=${`figure ${activity.refused > 0 ? "warn" : ""}`}><strong>${number(activity.refused)}</strong><span>refused</span></div>
      <a class=${`figure ${activity.failed > 0 ? "bad" : ""}`} href=${to("sources", source.id, { tab: "letters" })}><strong>${number(activity.failed)}</strong><span>failed in the transform</span></a>
      <a class=${`figure ${source.dead_letters > 0 ? "warn" : ""}`} href=${to("sources", source.id, { tab: "letters" })}><strong>${number(source.dead_letters)}</strong><span>dead letters</span></a>
    </div>
    ${quarantine && html`<p class="banner bad">Its Lua is in quarantine until <${Time} at=${quarantine.until} />: ${quarantine.reason}</p>`}
    ${activity.last_refusal && html`<p class="banner warn">The last refusal, <${Time} at=${activity.last_refusal.at} mode="relative" />: ${activity.last_refusal.reason}</p>`}
    <section class="panel"><h2>About</h2><${Facts}>
      <${Fact} name="Address for the provider"><${Code} text=${`${location.origin}${source.path}`} label="Copy the address" /><//>
      <${Fact} name="Description">${source.description}<//>
      <${Fact} name="Rate">${source.rate} requests a second<//>
      <${Fact} name="Former secrets until">${source.former_secrets.map((until) => html`<${Time} key=${until} at=${until} mode="date" /> `)}<//>
      <${Fact} name="Changed"><${Time} at=${source.updated_at} mode="date" /><//>
    <//></section>`;
}
