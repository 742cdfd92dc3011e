// Stored scripts: scripts, libraries and tools, the user's own and global ones.

import { html, useEffect } from "../core/html.js";
import { all } from "../core/api.js";
import { managesScripts } from "../core/session.js";
import { place, navigate, setQuery, to } from "../core/router.js";
import { bindKey } from "../core/keyboard.js";
import { useResource } from "../core/resource.js";
import { bytes } from "../core/format.js";
import { CutNote, Empty, Freshness, Heading, LinkButton, State, Time } from "../parts/basics.js";
import { SearchField, Select } from "../parts/forms.js";
import { Table } from "../parts/table.js";

const COLUMNS = [
  { name: "Name", width: "minmax(0, 2fr)", cell: (script) => script.name },
  { name: "State", width: "110px", cell: (script) => html`<${State} value=${script.active ? "active" : "inactive"} />` },
  { name: "Kind", width: "90px", secondary: true, cell: (script) => script.kind },
  { name: "Owner", width: "80px", secondary: true, cell: (script) => script.owner },
  { name: "Description", width: "minmax(0, 3fr)", tone: "hide-on-phone", cell: (script) => script.description },
  { name: "Size", width: "90px", align: "right", tone: "hide-on-phone", cell: (script) => bytes(script.size) },
  { name: "Changed", width: "170px", tone: "hide-on-phone", cell: (script) => html`<${Time} at=${script.updated_at} />` },
];

export default function Scripts() {
  const { query } = place.value;
  const { q = "", kind, owner } = query;
  const list = useResource(() => all("/api/scripts", { kind, owner }), [kind, owner]);
  useEffect(() => bindKey("n", () => managesScripts.value && navigate(to("scripts", "new"))), []);
  const items = (list.data ?? []).filter((script) => `${script.name} ${script.description}`.toLowerCase().includes(q.toLowerCase()));
  const create = managesScripts.value && html`<${LinkButton} kind="primary" icon="plus" href=${to("scripts", "new")}>New script<//>`;
  const title = q || kind || owner ? "No script matches" : "No scripts yet";
  return html`<${Heading} title="Scripts">${create}<//>
    <div class="filters" role="search" aria-label="Filter scripts">
      <${SearchField} label="Name or description" value=${q} onInput=${(text) => setQuery({ q: text }, { replace: true })} />
      <${Select} label="Kind" value=${kind} onInput=${(kind) => setQuery({ kind })} options=${[["", "any"], "script", "library", "tool"]} />
      <${Select} label="Owner" value=${owner} onInput=${(owner) => setQuery({ owner })} options=${[["", "any"], "me", "global"]} />
    </div>
    <${Freshness} list=${list} />
    <${CutNote} items=${list.data}>Choose a kind or an owner to see the others.<//>
    ${list.data && items.length === 0 && !list.error ? html`<${Empty} title=${title} action=${create}>
      Sinks run scripts, programs load libraries, and MCP clients call tools.
    <//>` : html`<${Table} label="Scripts" items=${items} list=${list} isLoading=${list.isLoading && !list.data}
      href=${(script) => to("scripts", script.id)} columns=${COLUMNS} />`}`;
}
