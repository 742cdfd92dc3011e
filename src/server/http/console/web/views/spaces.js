// The list of spaces, with their state, health and agent, and making one.

import { html, useEffect, useState } from "../core/html.js";
import { all, post } from "../core/api.js";
import { may } from "../core/session.js";
import { place, navigate, setQuery, to } from "../core/router.js";
import { bindKey } from "../core/keyboard.js";
import { useAction, useResource } from "../core/resource.js";
import { Button, CutNote, Empty, ErrorBox, Heading, State, Time } from "../parts/basics.js";
import { Dialog, FormActions } from "../parts/dialogs.js";
import { errorOf, Pairs, SearchField, Select, Text } from "../parts/forms.js";
import { Table } from "../parts/table.js";
import { AgentToken } from "../parts/agent_token.js";

/** The interval at which the list is read anew, in milliseconds. */
const EVERY = 5000;

const COLUMNS = [
  { name: "Name", width: "minmax(0, 2fr)", cell: (space) => space.name },
  { name: "State", width: "110px", cell: (space) => html`<${State} value=${space.state} />` },
  { name: "Health", width: "110px", cell: (space) => html`<${State} value=${space.health} title=${space.last_check?.detail} />` },
  { name: "Agent", width: "110px", secondary: true, cell: (space) => html`<${State} value=${agentState(space)} />` },
  { name: "Owner", width: "minmax(0, 1fr)", secondary: true, cell: (space) => space.owner },
  { name: "Driver", width: "90px", tone: "hide-on-phone", cell: (space) => space.driver },
  { name: "Changed", width: "170px", tone: "hide-on-phone", cell: (space) => html`<${Time} at=${space.updated_at} />` },
];

export default function Spaces() {
  const { query } = place.value;
  const list = useResource(() => all("/api/spaces"), [], { every: EVERY });
  const [isMaking, setMaking] = useState(false);
  useEffect(() => bindKey("n", () => setMaking(true)), []);
  const create = html`<${Button} kind="primary" icon="plus" onClick=${() => setMaking(true)}>New space<//>`;
  return html`<${Heading} title="Spaces">${create}<//>
    <${Filters} query=${query} />
    <${CutNote} items=${list.data}>Those beyond are not shown here; <code>svc space list</code> has all.<//>
    <${SpaceList} list=${list} query=${query} create=${create} />
    ${isMaking && html`<${NewSpace} onClose=${() => setMaking(false)} />`}`;
}

function Filters({ query }) {
  const select = (label, field, options) => html`<${Select} label=${label} value=${query[field]} options=${[["", "any"], ...options]}
    onInput=${(value) => setQuery({ [field]: value })} />`;
  return html`<div class="filters" role="search" aria-label="Filter spaces">
    <${SearchField} label="Name or owner" value=${query.q} onInput=${(q) => setQuery({ q }, { replace: true })} />
    ${select("State", "state", ["created", "deployed", "stopped"])}
    ${select("Health", "health", ["healthy", "unhealthy", "unknown"])}
    ${select("Agent", "agent", ["connected", "away"])}
  </div>`;
}

function SpaceList({ list, query, create }) {
  const items = (list.data ?? []).filter((space) => matches(space, query));
  if (list.data?.length === 0 && !list.error) {
    return html`<${Empty} title="No spaces yet" action=${create}>
      A space is a workspace that runs an agent. Code in it publishes methods and raises events.
    <//>`;
  }
  if (list.data && items.length === 0
    && !list.error) return html`<${Empty} title="No space matches"><a href=${to("spaces")}>All spaces</a><//>`;
  return html`<${Table} label="Spaces" items=${items} list=${list} isLoading=${list.isLoading && !list.data}
    href=${(space) => to("spaces", space.id)} columns=${COLUMNS} />`;
}

/** The link of a space's agent: one that is not expected is not away. */
export function agentState(space) {
  if (space.linked) return "connected";
  return space.state === "deployed" ? "away" : "–";
}

function matches(space, { q = "", state, health, agent }) {
  const text = `${space.name} ${space.owner}`.toLowerCase();
  const is = (wanted, value) => !wanted || value === wanted;
  return text.includes(q.toLowerCase()) && is(state, space.state) && is(health, space.health) && is(agent, agentState(space));
}

function NewSpace({ onClose }) {
  const templates = useResource(() => all("/api/templates"), []);
  const [draft, setDraft] = useState({ name: "", description: "", template: "", driver: "external", custom: [] });
  const [issued, setIssued] = useState(null);
  const { isBusy, error, run } = useAction();
  const set = (field) => (value) => setDraft((before) => ({ ...before, [field]: value }));
  const submit = (event) => {
    event.preventDefault();
    run(async () => {
      const custom = Object.fromEntries(draft.custom.filter(([name]) => name.trim() !== ""));
      const body = { name: draft.name.trim(), driver: draft.driver, custom };
      if (draft.description) body.description = draft.description;
      if (draft.template) body.template = draft.template;
      const space = await post("/api/spaces", body);
      if (space.agent_token) setIssued(space);
      else {
        onClose();
        navigate(to("spaces", space.id));
      }
    });
  };
  const done = () => {
    onClose();
    navigate(to("spaces", issued.id));
  };
  if (issued) return html`<${AgentToken} space=${issued} token=${issued.agent_token} onClose=${done} />`;
  const drivers = [
    ["external", "external: you run the agent"],
    may("manage_spaces") && ["process", "process: the server runs the agent"],
  ].filter(Boolean);
  const named = (templates.data ?? []).map((template) => [template.id, template.name]);
  return html`<${Dialog} title="New space" onClose=${onClose}>
    <form class="form" onSubmit=${submit}>
      <${Text} label="Name" hint="It cannot change." value=${draft.name} onInput=${set("name")} required error=${errorOf(error, "name")} />
      <${Text} label="Description" value=${draft.description} onInput=${set("description")} />
      <${Select} label="Template" value=${draft.template} onInput=${set("template")} options=${[["", "none"], ...named]} />
      <${ErrorBox} error=${templates.error} retry=${templates.reload} />
      <${Select} label="Driver" value=${draft.driver} onInput=${set("driver")} options=${drivers} />
      <${Pairs} legend="Custom fields" add="Add a field" value=${draft.custom} onInput=${set("custom")} />
      <${ErrorBox} error=${error} />
      <${FormActions} onClose=${onClose} isBusy=${isBusy}>Make the space<//>
    </form>
  <//>`;
}
