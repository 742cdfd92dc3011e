// One user: name, roles, groups, password, and API tokens.

import { html, useState } from "../core/html.js";
import { all, del, patch } from "../core/api.js";
import { loadSession, may, mayGive, user as self } from "../core/session.js";
import { navigate, to } from "../core/router.js";
import { useAction, useGet, useList, useResource } from "../core/resource.js";
import { count } from "../core/format.js";
import { announce, Button, ErrorBox, Heading, Loading, State, Time } from "../parts/basics.js";
import { Confirm, ConfirmButton } from "../parts/dialogs.js";
import { Check, Checks, errorOf, Text } from "../parts/forms.js";
import { useLeaveQuestion } from "../parts/leaving.js";
import { TokenTable } from "./tokens.js";

export default function UserPage({ id }) {
  const path = `/api/users/${encodeURIComponent(id)}`;
  const { data: user, error, reload, set } = useGet(path);
  const roles = useResource(() => all("/api/roles"), []);
  const back = { href: to("users"), name: "Users" };
  const failure = html`<${ErrorBox} error=${error} retry=${reload} />`;
  if (!user) return html`<${Heading} title="User" back=${back} />${error ? failure : html`<${Loading} />`}`;
  const remove = async () => {
    await del(path);
    announce(`The user ${user.name} is deleted.`);
    navigate(to("users"), { isSaved: true });
  };
  const subtitle = html`<${State} value=${user.active ? "active" : "inactive"} />
    <span>since <${Time} at=${user.created_at} mode="date" /></span>`;
  const isSelf = user.id === self.value.id;
  const saved = async (changed) => {
    set(changed);
    if (isSelf) await loadSession();
  };
  const isHeld = (role) => user.roles.some((held) => held.id === role.id);
  const mayChange = roles.data?.filter(isHeld).every(mayGive) ?? false;
  return html`<${Heading} title=${user.name} back=${back} subtitle=${subtitle}>
      ${!isSelf && mayChange && html`<${ConfirmButton} label="Delete" title=${`Delete the user ${user.name}?`}
        consequences=${() => consequences(user)} action=${remove} />`}
    <//>
    ${failure}<${ErrorBox} error=${roles.error} retry=${roles.reload} />
    ${!roles.data && !roles.error && html`<${Loading} />`}
    ${roles.data && !mayChange && html`<p class="banner warn">
      This user has permissions that you lack: only somebody who has them, or who manages roles, changes the user. It has
      ${" "}${user.roles.map((role) => role.name).join(", ")}.
    </p>`}
    ${mayChange && html`<div class="columns">
      <${UserForm} user=${user} roles=${roles.data.filter((role) => mayGive(role) || isHeld(role))} path=${path} onSaved=${saved} />
      <${PasswordForm} user=${user} path=${path} onSaved=${saved} />
    </div>`}
    ${mayChange && html`<section class="stack spaced"><h2>API tokens</h2><${UserTokens} path=${path} /></section>`}`;
}

async function consequences(user) {
  const sentences = [
    "All sinks, sources, scripts and spaces of the user are deleted, with their queues.",
    "Tokens and sessions of the user are refused from then on.",
  ];
  const [tokens, spaces] = await Promise.all([
    all(`/api/users/${user.id}/tokens`), may("manage_spaces") ? all("/api/spaces", { owner: user.id }) : null,
  ]);
  sentences.push(`${counted(tokens, "API token")}.`);
  if (spaces) sentences.push(`${counted(spaces, "space")}${spaces.length > 0 ? `: ${names(spaces)}` : ""}.`);
  return sentences;
}

/** The number of items of a list, which may have been cut. */
function counted(items, noun) {
  return `${items.isCut ? "More than " : ""}${count(items.length, noun)}`;
}

/** The first names of a list. */
function names(items) {
  return `${items.slice(0, 5).map((item) => item.name).join(", ")}${items.length > 5 ? " and more" : ""}`;
}

function UserForm({ user, roles, path, onSaved }) {
  const groups = useResource(() => all("/api/groups"), []);
  const ids = (refs) => refs.map((one) => one.id);
  const stored = { name: user.name, active: user.active, roles: ids(user.roles), groups: ids(user.groups) };
  const [draft, setDraft] = useState(stored);
  const isChanged = JSON.stringify(draft) !== JSON.stringify(stored);
  useLeaveQuestion(isChanged);
  const { isBusy, error, run } = useAction();
  const set = (field) => (value) => setDraft((before) => ({ ...before, [field]: value }));
  const save = (event) => {
    event.preventDefault();
    run(async () => {
      await onSaved(await patch(path, draft));
      announce("Saved.");
    });
  };
  const options = (records) => records.map((one) => [one.id, one.name]);
  return html`<section class="panel"><h2>User</h2><form class="form" onSubmit=${save}>
    <${Text} label="Name" value=${draft.name} onInput=${set("name")} required error=${errorOf(error, "name")} />
    <${Checks} legend="Roles" value=${draft.roles} onInput=${set("roles")} options=${options(roles)} />
    ${groups.data?.length > 0
      && html`<${Checks} legend="Groups" value=${draft.groups} onInput=${set("groups")} options=${options(groups.data)} />`}
    <${ErrorBox} error=${groups.error} retry=${groups.reload} />
    <${Check} label="Active" hint="An inactive user can neither log in nor use tokens." value=${draft.active} onInput=${set("active")} />
    <${ErrorBox} error=${error} /><div class="form-actions"><${Button} type="submit" kind="primary" busy=${isBusy}>Save<//></div>
  </form></section>`;
}

function PasswordForm({ user, path, onSaved }) {
  const [password, setPassword] = useState("");
  const [revoke, setRevoke] = useState(false);
  const { isBusy, error, run } = useAction();
  const save = (event) => {
    event.preventDefault();
    run(async () => {
      await onSaved(await patch(path, { password, revoke_tokens: revoke }));
      setPassword("");
      announce(`The password of ${user.name} is set, and the user's sessions have ended.`);
    });
  };
  return html`<section class="panel"><h2>Set a password</h2><form class="form" onSubmit=${save}>
    <${Text} label="New password" type="password" autocomplete="new-password" minlength="8" value=${password} onInput=${setPassword}
      required hint="The console asks the user to change it." />
    <${Check} label="Revoke the user's API tokens" value=${revoke} onInput=${setRevoke} />
    <${ErrorBox} error=${error} /><div class="form-actions"><${Button} type="submit" busy=${isBusy}>Set the password<//></div>
  </form></section>`;
}

function UserTokens({ path }) {
  const list = useList(`${path}/tokens`, {}, { limit: 200 });
  const [deleted, setDeleted] = useState(null);
  const remove = async () => {
    await del(`/api/tokens/${deleted.id}`);
    await list.reload();
  };
  if (list.isComplete && list.items.length === 0 && !list.error) return html`<p class="muted">None.</p>`;
  return html`<${TokenTable} list=${list} onDelete=${setDeleted} />
    ${deleted && html`<${Confirm} title=${`Delete the token ${deleted.name}?`}
      consequences=${["Programs that use it are refused from then on."]} action=${remove} onClose=${() => setDeleted(null)} />`}`;
}
