// The frame around every view: navigation, search, the user, and what concerns all views: an unreachable server, a session that ends.

import { html, classes, useEffect, useRef, useState } from "../core/html.js";
import { isReachable } from "../core/api.js";
import { isEnding, logout, user } from "../core/session.js";
import { place, to } from "../core/router.js";
import { offeredGroups } from "../core/routes.js";
import { openPanel } from "../core/keyboard.js";
import { loadFile } from "../core/load.js";
import { setTheme, theme } from "../core/theme.js";
import { localTime } from "../core/format.js";
import { announce, notice } from "./basics.js";
import { Icon } from "./icons.js";
import { LeaveQuestion } from "./leaving.js";

export function Layout({ children }) {
  const [isMenuOpen, setMenuOpen] = useState(false);
  const path = place.value.path;
  const shown = path.join("/");
  const before = useRef(shown);
  useEffect(() => {
    setMenuOpen(false);
    if (before.current === shown) return;
    before.current = shown;
    window.scrollTo(0, 0);
    // The new view is read from its heading.
    document.getElementById("main")?.focus({ preventScroll: true });
  }, [shown]);
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <div class="frame">
      <header class="topbar">
        <button type="button" class="button quiet menu-button" aria-label="Menu" aria-expanded=${isMenuOpen} aria-controls="navigation"
          onClick=${() => setMenuOpen(!isMenuOpen)}>
          <${Icon} name=${isMenuOpen ? "close" : "menu"} />
        </button>
        <a class="brand" href="#/" aria-label="svc, first view"><${Mark} /><span>svc</span></a>
        <span class="zone" title="The zone of this server">${user.value.zone}</span>
        <button type="button" class="search-button" onClick=${() => (openPanel.value = "search")}>
          <${Icon} name="search" size=${16} /><span>Search</span><kbd>/</kbd>
        </button>
        <div class="topbar-right">
          <${ThemeButton} />
          <button type="button" class="button quiet" aria-label="Keys and help" onClick=${() => (openPanel.value = "help")}>
            <${Icon} name="help" />
          </button>
          <${UserMenu} />
        </div>
      </header>
      <nav id="navigation" class=${classes("sidebar", isMenuOpen && "open")} aria-label="Views">
        ${offeredGroups().map((group) => html`<${Group} key=${group.name} group=${group} current=${path[0] ?? "overview"} />`)}
      </nav>
      <main id="main" tabindex="-1"><${Banners} />${children}</main>
    </div>
    <${Panels} /><${LeaveQuestion} />
    <div class=${classes("notice", notice.value.text && "shown", notice.value.tone)} role="status" aria-live="polite">
      ${notice.value.text}
    </div>`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Mark() {
  return html`<svg width="26" height="26" viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" class="mark-back" />
    <g class="mark-lines"><path d="M9 16h5M14 16c4 0 3-7 9-7M14 16h9M14 16c4 0 3 7 9 7" /><circle cx="8.500" cy="16" r="1.600" /></g>
  </svg>`;
}

function Group({ group, current }) {
  const id = `nav-${group.name}`;
  return html`<div class="nav-group">
    <div class="nav-title" id=${id}>${group.name}</div>
    <ul aria-labelledby=${id}>
      ${group.views.map((view) => html`<li key=${view.path}>
        <a href=${to(view.path)} aria-current=${view.path === current ? "page" : undefined} title=${`g ${view.key}`}>
          <${Icon} name=${view.path} /><span>${view.name}</span>
        </a>
      </li>`)}
    </ul>
  </div>`;
}

function ThemeButton() {
  const isDark = theme.value === "dark" || theme.value === "system" && matchMedia("(prefers-color-scheme: dark)").matches;
  const toggle = () => setTheme(isDark ? "light" : "dark");
  return html`<button type="button" class="button quiet" aria-label=${isDark ? "Light colours" : "Dark colours"} onClick=${toggle}>
    <${Icon} name=${isDark ? "sun" : "moon"} />
  </button>`;
}

function UserMenu() {
  const leave = () => logout().catch((error) => announce(error.message, "bad"));
  return html`<details class="user-menu">
    <summary title="Your account"><span class="avatar" aria-hidden="true">${user.value.name.slice(0, 1).toUpperCase()}</span>
      <span class="user-name">${user.value.name}</span></summary>
    <div class="menu">
      <div class="muted">${user.value.roles.map((role) => role.name).join(", ") || "no roles"}</div>
      <a href=${to("account")}>Account and password</a>
      <button type="button" onClick=${leave}>Log out</button>
      <div class="muted small-text">svc ${user.value.version}</div>
    </div>
  </details>`;
}

function Banners() {
  return html`${!isReachable.value && html`<div class="banner bad" role="alert">
      The server cannot be reached. What you see may be out of date; this page tries again by itself.
    </div>`}
    ${user.value.has_first_password && place.value.path[0] !== "account" && html`<div class="banner warn">
      Your password was chosen by somebody else. <a href=${to("account")}>Choose your own</a>.
    </div>`}
    ${isEnding.value && html`<div class="banner warn" role="status">
      Your session ends at ${localTime(user.value.expires_at)}. Save what you are writing, then log in again.
    </div>`}`;
}

/** The dialogs of the search and of the help, loaded when they are first opened. */
function Panels() {
  const [panels, setPanels] = useState(null);
  useEffect(() => {
    if (!openPanel.value || panels) return;
    loadFile("../views/panels.js").then(setPanels, () => {
      openPanel.value = null;
      announce("This could not be loaded. Try again.", "bad");
    });
  }, [openPanel.value]);
  if (!panels || !openPanel.value) return null;
  const Panel = openPanel.value === "help" ? panels.Help : panels.Search;
  return html`<${Panel} onClose=${() => (openPanel.value = null)} />`;
}
