// Keys: `/` to search, `g` and a letter to go to a view, `?` for help, `n` to make something new. Nothing happens while the user types,
// and every key has a button or link as well.

import { signal } from "./html.js";
import { navigate, to } from "./router.js";

/** The dialog that is open: `help`, `search` or nothing. */
export const openPanel = signal(null);

/** Keys of the present view, `{key: action}`, set by the view. */
const viewKeys = new Map();

let isGoing = false;
let timer;

/** Adds a key while a view is shown; returns its removal, as effects want it. */
export function bindKey(key, action) {
  viewKeys.set(key, action);
  return () => viewKeys.get(key) === action && viewKeys.delete(key);
}

/** Follows the keys. `views` are those with a key that the user may see. */
export function listen(views) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
    if (isGoing) {
      stopGoing();
      const view = views().find((view) => view.key === event.key);
      if (view) {
        event.preventDefault();
        navigate(to(view.path));
      }
      return;
    }
    if (event.key === "g") {
      isGoing = true;
      timer = setTimeout(stopGoing, 1500);
    } else if (event.key === "/") {
      event.preventDefault();
      focusSearch();
    } else if (event.key === "?") {
      openPanel.value = "help";
    } else if (viewKeys.has(event.key)) {
      event.preventDefault();
      viewKeys.get(event.key)();
    }
  });
}

/** Focuses the search field of the view; without one, opens the search over everything. */
function focusSearch() {
  const field = document.querySelector("main input[type=search]");
  if (field) field.focus();
  else openPanel.value = "search";
}

function stopGoing() {
  isGoing = false;
  clearTimeout(timer);
}

function isTyping(event) {
  if (document.querySelector("dialog[open]")) return true;
  const target = event.composedPath()[0];
  return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}
