// The start of the console: who is logged in decides between the form of the login and the view of the address.

import { Component, html, render, useEffect, useState } from "./core/html.js";
import { apply } from "./core/theme.js";
import { listen } from "./core/keyboard.js";
import { loadSession, user } from "./core/session.js";
import { isReachable, recoveries } from "./core/api.js";
import { place } from "./core/router.js";
import { findView, loadLogin, offeredViews } from "./core/routes.js";
import { Layout } from "./parts/layout.js";
import { Button, Empty, ErrorBox, Loading } from "./parts/basics.js";

apply();
listen(() => (user.value ? offeredViews() : []));

function Console() {
  const [Login, setLogin] = useState(null);
  const [failed, setFailed] = useState(false);
  const recovered = recoveries.value;
  useEffect(() => {
    if (user.value === undefined) loadSession().catch(() => {});
  }, [recovered]);
  useEffect(() => {
    if (user.value !== null || Login) return;
    loadLogin().then((module) => setLogin(() => module.Login), () => setFailed(true));
  }, [user.value, recovered]);
  if (user.value === undefined) return isReachable.value ? null : html`<main class="alone"><${Unreachable} /></main>`;
  if (user.value === null && failed && !Login) return html`<main class="alone"><${NotLoaded} /></main>`;
  if (user.value === null) return Login && html`<${Login} />`;
  return html`<${Layout}><${View} /><//>`;
}

function Unreachable() {
  return html`<${Empty} title="The server cannot be reached">This page tries again by itself.<//>`;
}

/** The view of the address, loaded when it is first shown. */
function View() {
  const { path } = place.value;
  const found = findView(path);
  const [loaded, setLoaded] = useState({});
  const key = found && `${found.view.path}${path.length > 1 ? "/one" : ""}`;
  useEffect(() => {
    if (!found || !found.isOffered || loaded[key]?.view) return;
    found.load().then(
      (module) => setLoaded((before) => ({ ...before, [key]: { view: module.default } })),
      () => setLoaded((before) => ({ ...before, [key]: { failed: true } })),
    );
  }, [key, recoveries.value]);
  if (!found) return html`<${NotFound} />`;
  if (!found.isOffered) return html`<${NotOffered} name=${found.view.name} />`;
  const { view: Shown, failed } = loaded[key] ?? {};
  if (failed) return html`<${NotLoaded} />`;
  return Shown ? html`<${Guard} key=${path.join("/")}><${Shown} id=${path[1]} /><//>` : html`<${Loading} />`;
}

function NotLoaded() {
  const message = isReachable.value ? "This view could not be loaded." : "This view could not be loaded. It is tried again by itself.";
  return html`<${ErrorBox} error=${{ message }} />
    <${Button} icon="reload" onClick=${() => location.reload()}>Reload the page<//>`;
}

/** Keeps a defect of one view from taking the navigation with it. */
class Guard extends Component {
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }

  render({ children }, { error }) {
    return error ? html`<${ErrorBox} error=${{ message: `This view has failed: ${error.message}. Reload the page.` }} />` : children;
  }
}

function NotFound() {
  return html`<${Empty} title="There is nothing at this address"><a href="#/">Go to the first view</a><//>`;
}

function NotOffered({ name }) {
  return html`<${Empty} title=${`${name} are not for you`}>
    Your roles do not have the permission for this view. An administrator can give it to you.
  <//>`;
}

render(html`<${Console} />`, document.getElementById("app"));
