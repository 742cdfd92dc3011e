// Small parts of every view: headings, states, times, errors, empty states, buttons, copying.

import { html, classes, signal, useEffect, useState } from "../core/html.js";
import { localDate, localTime, number, relative } from "../core/format.js";
import { Icon } from "./icons.js";

/** The heading of a view, with its actions, and the title of the page. */
export function Heading({ title, subtitle, back, children }) {
  useEffect(() => {
    document.title = `${title} · svc`;
  }, [title]);
  return html`<header class="heading">
    <div class="heading-text">
      ${back && html`<a class="back" href=${back.href}><${Icon} name="left" size=${14} />${back.name}</a>`}
      <h1 tabindex="-1" id="view-title">${title}</h1>
      ${subtitle && html`<div class="subtitle">${subtitle}</div>`}
    </div>
    ${children && html`<div class="actions">${children}</div>`}
  </header>`;
}

const TONES = {
  delivered: "good", active: "good", healthy: "good", deployed: "good", running: "good", done: "good", ok: "good", completed: "good",
  queued: "busy", paused: "idle", created: "idle", unknown: "idle", skipped: "idle", discarded: "idle", inactive: "idle", stopped: "idle",
  cancelled: "idle", connected: "good",
  failed: "bad", dead: "bad", failing: "bad", unhealthy: "bad", quarantined: "bad", unlinked: "bad", away: "bad", refused: "bad",
    held: "bad",
  dropped: "warn", dropping: "warn", restarting: "warn", filtered: "idle", expired: "bad",
};

/** A state in words, with a colour and a shape. */
export function State({ value, title }) {
  const tone = TONES[value] ?? "idle";
  return html`<span class=${`state ${tone}`} title=${title}><span class="dot" aria-hidden="true"></span>${value}</span>`;
}

/** A local time; the exact one in UTC is in its title. */
export function Time({ at, mode = "time" }) {
  if (!at) return html`<span class="muted">–</span>`;
  const text = mode === "relative" ? relative(at, Math.max(tick.value, Date.now())) : mode === "date" ? localDate(at) : localTime(at);
  const other = mode === "relative" ? `${localDate(at)}, ` : "";
  return html`<time datetime=${at} title=${`${other}${at} (UTC)`}>${text}</time>`;
}

/** The present moment, every ten seconds, for relative times. */
const tick = signal(Date.now());
setInterval(() => (tick.value = Date.now()), 10_000);

export function Loading({ label = "Loading" }) {
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 250);
    return () => clearTimeout(timer);
  }, []);
  return html`<div class="loading" role="status">${isLate && html`<span class="spinner" aria-hidden="true"></span>${label}…`}</div>`;
}

export function ErrorBox({ error, retry }) {
  if (!error) return null;
  return html`<div class="error-box" role="alert">
    <span>${error.message}</span>
    ${retry && html`<button type="button" class="quiet" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** The error of a list: above its rows, which are then of an earlier moment. */
export function ListError({ error, retry, loadedAt }) {
  if (!error) return null;
  const stale = loadedAt && html` What is shown is of <${Time} at=${loadedAt} /> and may be out of date.`;
  return html`<div class="error-box" role="alert">
    <span>${error.message}${stale}</span>
    ${retry && html`<button type="button" class="quiet" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** The time of a list's rows, and reading them anew. */
export function Freshness({ list, every }) {
  if (!list.loadedAt) return null;
  const mode = list.isRefreshed ? `, read anew every ${every / 1000} s` : "";
  return html`<div class="freshness">
    <span class="muted">As of <${Time} at=${list.loadedAt} />${mode}</span>
    <${Button} kind="quiet" icon="reload" busy=${list.isRefreshing} onClick=${list.reload}>Refresh<//>
  </div>`;
}

/** Says that a list was cut, and what to do about it. */
export function CutNote({ items, children }) {
  return items?.isCut ? html`<p class="banner warn">Only the first ${number(items.length)} were read. ${children}</p>` : null;
}

/** Nothing is there yet: what it is for, and what to do first. */
export function Empty({ title, children, action }) {
  return html`<div class="empty"><h2>${title}</h2><p>${children}</p>${action}</div>`;
}

export function Button({ kind = "", icon, busy = false, disabled = false, type = "button", children, ...rest }) {
  return html`<button type=${type} class=${classes("button", kind)} disabled=${disabled || busy} aria-busy=${busy} ...${rest}>
    ${busy ? html`<span class="spinner" aria-hidden="true"></span>` : icon && html`<${Icon} name=${icon} size=${16} />`}${children}
  </button>`;
}

export function LinkButton({ href, icon, kind = "", children }) {
  return html`<a class=${classes("button", kind)} href=${href}>${icon && html`<${Icon} name=${icon} size=${16} />`}${children}</a>`;
}

/** A button that copies text, and says so. */
export function Copy({ text, label = "Copy", small = false }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    if (!(await copyText(text))) {
      announce("It could not be copied: select the text and copy it by hand.", "bad");
      return;
    }
    setCopied(true);
    announce("Copied");
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<button type="button" class=${classes("button quiet", small && "small")} onClick=${copy} aria-label=${label}>
    <${Icon} name=${isCopied ? "check" : "copy"} size=${14} />${!small && (isCopied ? "Copied" : label)}
  </button>`;
}

/** Copies a text, and tells whether that worked. The clipboard needs https or loopback; elsewhere a selection is copied. */
async function copyText(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Refused: the selection below works without a permission.
    }
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}

/** A value in monospace that can be copied. */
export function Code({ text, label }) {
  return html`<span class="code-line"><code>${text}</code><${Copy} small text=${text} label=${label ?? "Copy"} /></span>`;
}

/** A block of text as it came: a body, a response, a log. */
export function Block({ text, label, copy = true }) {
  return html`<div class="block">
    <pre tabindex="0" aria-label=${label}>${text}</pre>
    ${copy && html`<${Copy} small text=${text} label=${`Copy ${label ?? ""}`} />`}
  </div>`;
}

/** Names and values in two columns; pairs without a value are left out. */
export function Facts({ children }) {
  return html`<dl class="facts">${children}</dl>`;
}

export function Fact({ name, children }) {
  if (children === undefined || children === null || children === "" || children === false) return null;
  return html`<div><dt>${name}</dt><dd>${children}</dd></div>`;
}

/** Links between the parts of a view. */
export function Tabs({ tabs, current, href }) {
  return html`<nav class="tabs" aria-label="Parts of this view">
    ${tabs.filter(Boolean).map((tab) => html`<a key=${tab.id} href=${href(tab.id)} aria-current=${tab.id === current ? "page" : undefined}>
      ${tab.name}${tab.count ? html`<span class="badge">${tab.count}</span>` : ""}
    </a>`)}
  </nav>`;
}

/** A polite message for screen readers, also shown for a moment. */
export const notice = signal({ text: "", tone: "" });
let noticeTimer;

export function announce(text, tone = "") {
  notice.value = { text, tone };
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => (notice.value = { text: "", tone: "" }), 4000);
}
