// The form of the login. A page that asked for it is shown again afterwards, since its address stays.

import { html, useEffect, useRef, useState } from "../core/html.js";
import { login, loginNotice } from "../core/session.js";
import { isReachable } from "../core/api.js";
import { useAction } from "../core/resource.js";
import { Button, ErrorBox } from "../parts/basics.js";
import { Text } from "../parts/forms.js";

export function Login() {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const { isBusy, error, run } = useAction();
  const form = useRef();
  useEffect(() => {
    document.title = "Log in · svc";
    form.current.querySelector("input").focus();
  }, []);
  const submit = (event) => {
    event.preventDefault();
    run(() => login(name.trim(), password));
  };
  return html`<main class="login">
    <div class="login-card">
      <h1>Log in to svc</h1>
      ${!isReachable.value && html`<div class="banner bad" role="alert">The server cannot be reached.</div>`}
      ${loginNotice.value && html`<p class="muted" role="status">${loginNotice.value}</p>`}
      <form ref=${form} onSubmit=${submit}>
        <${Text} label="Name" value=${name} onInput=${setName} autocomplete="username" required />
        <${Text} label="Password" type="password" value=${password} onInput=${setPassword} autocomplete="current-password" required />
        <${ErrorBox} error=${error} />
        <${Button} type="submit" kind="primary" busy=${isBusy}>Log in<//>
      </form>
      <p class="hint">
        The first password of <code>admin</code> is in the file <code>admin.password</code> of the server's data directory.
      </p>
    </div>
  </main>`;
}
