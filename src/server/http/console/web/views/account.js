// The user itself: roles, permissions, the end of the session, and the password.

import { html, useState } from "../core/html.js";
import { changePassword, logout, user } from "../core/session.js";
import { useAction } from "../core/resource.js";
import { announce, Button, ErrorBox, Fact, Facts, Heading, Time } from "../parts/basics.js";
import { Check, Choice, Text } from "../parts/forms.js";
import { setTheme, theme } from "../core/theme.js";

const THEMES = [["system", "As the system"], ["light", "Light"], ["dark", "Dark"]];

export default function Account() {
  const { name, roles, groups, permissions, expires_at: expiresAt, has_first_password: isFirst } = user.value;
  const leave = () => logout().catch((error) => announce(error.message, "bad"));
  return html`<${Heading} title="Account" subtitle=${name}><${Button} onClick=${leave}>Log out<//><//>
    <div class="columns">
      <section class="panel"><h2>Change the password</h2>
        ${isFirst && html`<p class="banner warn">Somebody else chose your password. Choose your own.</p>`}
        <${PasswordForm} />
      </section>
      <div class="stack">
        <section class="panel"><h2>You</h2>
          <${Facts}>
            <${Fact} name="Roles">${roles.map((role) => role.name).join(", ") || "none"}<//>
            <${Fact} name="Groups">${groups.map((group) => group.name).join(", ") || "none"}<//>
            <${Fact} name="Session ends"><${Time} at=${expiresAt} mode="date" /><//>
          <//>
          <h3 class="spaced">Permissions</h3>
          <div class="tags">${permissions.map((permission) => html`<span class="tag" key=${permission}>${permission}</span>`)}</div>
        </section>
        <section class="panel">
          <${Choice} legend="Colours" name="theme" value=${theme.value} onInput=${setTheme} options=${THEMES} />
        </section>
      </div>
    </div>`;
}

function PasswordForm() {
  const empty = { current: "", next: "", again: "", revoke: false };
  const [form, setForm] = useState(empty);
  const { isBusy, error, run } = useAction();
  const set = (field) => (value) => setForm((before) => ({ ...before, [field]: value }));
  const differs = form.again !== "" && form.again !== form.next;
  const submit = (event) => {
    event.preventDefault();
    if (form.next !== form.again) return;
    run(async () => {
      await changePassword(form.current, form.next, form.revoke);
      setForm(empty);
      announce("The password is changed. Other sessions of yours have ended.");
    });
  };
  return html`<form class="form" onSubmit=${submit}>
    <${Text} label="Present password" type="password" value=${form.current} onInput=${set("current")} autocomplete="current-password"
      required />
    <${Text} label="New password" type="password" value=${form.next} onInput=${set("next")} autocomplete="new-password" minlength="8"
      hint="At least 8 characters." required />
    <${Text} label="New password again" type="password" value=${form.again} onInput=${set("again")} autocomplete="new-password"
      error=${differs && "The two differ."} required />
    <${Check} label="Revoke my API tokens" hint="Programs that use them are refused from then on." value=${form.revoke}
      onInput=${set("revoke")} />
    <${ErrorBox} error=${error} />
    <div class="form-actions"><${Button} type="submit" kind="primary" busy=${isBusy} disabled=${differs}>Change the password<//></div>
  </form>`;
}
