// Dark and light: as the system, or as the user chose. The choice is kept in the browser.

import { signal } from "./html.js";

const KEY = "svc.theme";

/** `system`, `light` or `dark`. */
export const theme = signal(read());

function read() {
  try {
    const stored = localStorage.getItem(KEY);
    return ["light", "dark"].includes(stored) ? stored : "system";
  } catch {
    return "system";
  }
}

export function setTheme(next) {
  theme.value = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
  apply();
}

export function apply() {
  const root = document.documentElement;
  if (theme.value === "system") root.removeAttribute("data-theme");
  else root.setAttribute("data-theme", theme.value);
}
