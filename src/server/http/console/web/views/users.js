// The users, and making one.

import { html, useEffect, useState } from "../core/html.js";
import { all, post } from "../core/api.js";
import { mayGive } from "../core/session.js";
import { place, navigate, setQuery, to } from "../core/router.js";
import { bindKey } from "../core/keyboard.js";
import { useAction, useResource } from "../core/resource.js";
import { Button, CutNote, Empty, ErrorBox, Freshness, Heading, State, Time } from "../parts/basics.js";
import { Dialog, FormActions } from "../parts/dialogs.js";
import { Checks, errorOf, SearchField, Select, Text } from "../parts/forms.js";
import { Table } from "../parts/table.js";

const named = (refs) => refs.map((one) => one.name).join(", ") || "none";

const COLUMNS = [
  { name: "Name", width: "minmax(0, 2fr)", cell: (user) => user.name },
  { name: "State", width: "110px", cell: (user) => html`<${State} value=${user.active ? "active" : "inactive"} />` },
  { name: "Roles", width: "minmax(0, 2fr)", secondary: true, cell: (user) => named(user.roles) },
  { name: "Groups", width: "minmax(0, 2fr)", secondary: true, cell: (user) => named(user.groups) },
  { name: "Made", width: "190px", tone: "hide-on-phone", cell: (user) => html`<${Time} at=${user.created_at} mode="date" />` },
];

function matches(user, { q = "", role, group }) {
  const has = (refs, id) => !id || refs.some((one) => one.id === id);
  return user.name.toLowerCase().includes(q.toLowerCase()) && has(user.roles, role) && has(user.groups, group);
}

export default function Users() {
  const { query } = place.value;
  const { q, role, group } = query;
  const list = useResource(() => all("/api/users"), []);
  const [isMaking, setMaking] = useState(false);
  useEffect(() => bindKey("n", () => setMaking(true)), []);
  const users = list.data ?? [];
  const items = users.filter((user) => matches(user, query));
  const roles = unique(users.flatMap((user) => user.roles));
  const groups = unique(users.flatMap((user) => user.groups));
  return html`<${Heading} title="Users"><${Button} kind="primary" icon="plus" onClick=${() => setMaking(true)}>New user<//><//>
    <div class="filters" role="search" aria-label="Filter users">
      <${SearchField} label="Name" value=${q} onInput=${(text) => setQuery({ q: text }, { replace: true })} />
      <${Select} label="Role" value=${role} onInput=${(role) => setQuery({ role })} options=${[["", "any"], ...roles]} />
      <${Select} label="Group" value=${group} onInput=${(group) => setQuery({ group })} options=${[["", "any"], ...groups]} />
    </div>
    <${Freshness} list=${list} />
    <${CutNote} items=${list.data}>Those beyond are not shown here; <code>svc user list</code> has all.<//>
    ${list.data && items.length === 0 && !list.error ? html`<${Empty} title="No user matches"><a href=${to("users")}>All users</a><//>`
      : html`<${Table} label="Users" items=${items} list=${list} isLoading=${list.isLoading && !list.data}
        href=${(user) => to("users", user.id)} columns=${COLUMNS} />`}
    ${isMaking && html`<${NewUser} onClose=${() => setMaking(false)} />`}`;
}

function unique(refs) {
  return [...new Map(refs.map((one) => [one.id, one.name]))];
}

function NewUser({ onClose }) {
  const roles = useResource(() => all("/api/roles"), []);
  const groups = useResource(() => all("/api/groups"), []);
  const [draft, setDraft] = useState({ name: "", password: "", roles: [], groups: [] });
  const { isBusy, error, run } = useAction();
  const set = (field) => (value) => setDraft((before) => ({ ...before, [field]: value }));
  const submit = (event) => {
    event.preventDefault();
    run(async () => {
      const body = { name: draft.name.trim(), roles: draft.roles, groups: draft.groups };
      if (draft.password) body.password = draft.password;
      const made = await post("/api/users", body);
      onClose();
      navigate(to("users", made.id));
    });
  };
  const failure = roles.error ?? groups.error;
  const retry = () => Promise.all([roles.reload(), groups.reload()]);
  const options = (records = []) => records.map((one) => [one.id, one.name]);
  return html`<${Dialog} title="New user" onClose=${onClose}><form class="form" onSubmit=${submit}>
    <${Text} label="Name" value=${draft.name} onInput=${set("name")} required error=${errorOf(error, "name")} />
    <${Text} label="First password" type="password" autocomplete="new-password" value=${draft.password} onInput=${set("password")}
      hint="At least 8 characters. Without one the user cannot log in. The console asks the user to change it."
      error=${errorOf(error, "password")} />
    <${Checks} legend="Roles" value=${draft.roles} onInput=${set("roles")} options=${options(roles.data?.filter(mayGive))} />
    ${groups.data?.length > 0 && html`<${Checks} legend="Groups" value=${draft.groups} onInput=${set("groups")}
      options=${options(groups.data)} />`}
    <${ErrorBox} error=${failure} retry=${retry} /><${ErrorBox} error=${error} />
    <${FormActions} onClose=${onClose} isBusy=${isBusy}>Make the user<//>
  </form><//>`;
}
