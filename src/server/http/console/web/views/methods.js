// The methods that the user can call.

import { html } from "../core/html.js";
import { usesSpaces } from "../core/session.js";
import { place, to } from "../core/router.js";
import { useGet } from "../core/resource.js";
import { useTyped } from "../core/typed.js";
import { Empty, Freshness, Heading, State, Time } from "../parts/basics.js";
import { SearchField } from "../parts/forms.js";
import { Table } from "../parts/table.js";

/** The interval at which the list is read anew, in milliseconds. */
const EVERY = 5000;

const COLUMNS = [
  { name: "Name", width: "minmax(0, 2fr)", cell: (method) => method.name },
  { name: "State", width: "110px", cell: (method) => html`<${State} value=${method.available_count > 0 ? "active" : "away"} />` },
  { name: "Description", width: "minmax(0, 3fr)", secondary: true, cell: (method) => method.description },
  { name: "Scope", width: "80px", tone: "hide-on-phone", cell: (method) => method.scope },
  { name: "Owner", width: "minmax(0, 1fr)", tone: "hide-on-phone", cell: (method) => method.owner },
  { name: "MCP", width: "60px", tone: "hide-on-phone", cell: (method) => (method.mcp_tool ? "tool" : "") },
];

export default function Methods() {
  const { q } = place.value.query;
  const [words, setWords] = useTyped("q");
  const list = useGet("/api/methods", { q }, { every: EVERY });
  const items = list.data?.methods ?? [];
  const isEmpty = list.data && items.length === 0 && !list.error;
  return html`<${Heading} title="Methods" />
    <div class="filters" role="search" aria-label="Search methods">
      <${SearchField} label="Name, description or keywords" value=${words} onInput=${setWords} />
    </div>
    <${Freshness} list=${list} every=${EVERY} />
    ${(list.data?.refused ?? []).map((refused) => html`<${Refused} key=${refused.space_id} refused=${refused} />`)}
    ${isEmpty ? html`<${NoMethods} isFiltered=${Boolean(q)} />` : html`<${Table} label="Methods" items=${items} list=${list}
      keyOf=${(method) => method.name} isLoading=${list.isLoading && !list.data} href=${(method) => to("methods", method.name)}
      columns=${COLUMNS} />`}`;
}

function Refused({ refused }) {
  const space = usesSpaces.value ? html`<a href=${to("spaces", refused.space_id)}>${refused.space}</a>` : refused.space;
  return html`<p class="banner bad">
    The registration of ${space} is refused since <${Time} at=${refused.since} />: ${refused.reason}
  </p>`;
}

function NoMethods({ isFiltered }) {
  if (isFiltered) return html`<${Empty} title="No method matches"><a href=${to("methods")}>All methods</a><//>`;
  return html`<${Empty} title="No methods yet">
    Code in a space publishes methods: <code>svc methods register methods.toml</code>.${" "}
    ${usesSpaces.value && html`Make a <a href=${to("spaces")}>space</a> first.`}
  <//>`;
}
