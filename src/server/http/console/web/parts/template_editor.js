// The editor of a template: Lua, or text with Lua in it, with the names that are in scope and its errors.

import { html } from "../core/html.js";
import { checkLua, checkTextTemplate } from "../core/lua_check.js";
import { luaModules, luaScope } from "../core/lua_scope.js";
import { Choice } from "./forms.js";
import { Editor } from "./editor.js";

const LANGUAGES = [["lua", "Lua"], ["text", "Text with ${{ Lua }}"]];

/** `place` is `template`, or `batch` for the template of a webhook with batches; `data` is the payload of the sample. */
export function TemplateEditor({ label, value, onInput, place = "template", data, errors }) {
  const isLua = value.lang === "lua";
  const names = place === "batch" ? "events" : "event, space, actor, custom";
  return html`<${Choice} legend="Language" name=${`lang-${label}`} value=${value.lang} onInput=${(lang) => onInput({ ...value, lang })}
      options=${LANGUAGES} />
    <div class="field"><span>${label}</span>
      <${Editor} key=${value.lang} label=${label} language=${isLua ? "lua" : "template"} value=${value.source}
        onInput=${(source) => onInput({ ...value, source })} scope=${luaScope(place, data)} modules=${luaModules(place)}
        check=${isLua ? checkLua : checkTextTemplate} errors=${errors} />
      <div class="hint">
        ${isLua ? "A chunk that returns a table, sent as JSON, or a string, sent as it is."
          : "Each ${{ expression }} is replaced by its value."}
        ${" "}In scope: ${names} and the pure libraries.
      </div>
    </div>`;
}
