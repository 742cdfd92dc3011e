// Taking a recorded event as the sample of an editor: of a sink or script that exists, or of a new one.

import { html } from "../core/html.js";
import { all } from "../core/api.js";
import { manages, managesScripts, managesSinks } from "../core/session.js";
import { navigate, to } from "../core/router.js";
import { LinkButton } from "./basics.js";
import { Dialog } from "./dialogs.js";
import { findSinks, LISTED, Picker } from "./picker.js";

/** True if the user may edit anything that takes a sample. */
export const mayUseSamples = () => managesSinks.value || managesScripts.value;

/** Sinks that the user may change. */
async function changeableSinks(words) {
  const found = await findSinks(words);
  return Object.assign(found.filter((option) => manages(option.record.owner, "event_sinks")), { isCut: found.isCut });
}

async function changeableScripts(words) {
  const scripts = await all("/api/scripts", { kind: "script" });
  const lower = words.toLowerCase();
  const found = scripts.filter((script) => manages(script.owner, "scripts") && script.name.toLowerCase().includes(lower));
  const options = found.slice(0, LISTED).map((script) => ({ id: script.id, name: script.name, kind: `script, ${script.owner}` }));
  return Object.assign(options, { isCut: scripts.isCut || found.length > LISTED });
}

export function UseAsSample({ event, onClose }) {
  const sample = event.id;
  const open = (href) => {
    onClose();
    navigate(href);
  };
  const openSink = (sink) => sink && open(to("sinks", sink.id, { tab: "edit", sample }));
  const openScript = (script) => script && open(to("scripts", script.id, { sample }));
  return html`<${Dialog} title="Use as sample" onClose=${onClose}>
    <p>The editor opens with this event as the sample of its preview.</p>
    <div class="form spaced">
      ${managesSinks.value && html`<${Picker} label="A sink" placeholder="its name" search=${changeableSinks} onChoose=${openSink} />`}
      ${managesScripts.value
        && html`<${Picker} label="A stored script" placeholder="its name" search=${changeableScripts} onChoose=${openScript} />`}
    </div>
    <div class="dialog-actions">
      ${managesScripts.value && html`<${LinkButton} href=${to("scripts", "new", { sample })}>New script<//>`}
      ${managesSinks.value && html`<${LinkButton} kind="primary" href=${to("sinks", "new", { sample })}>New sink<//>`}
    </div>
  <//>`;
}
