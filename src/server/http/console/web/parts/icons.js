// Line icons of the navigation and of buttons. They are decoration: the text beside or the label of the button says what it is.

import { html } from "../core/html.js";

const PATHS = {
  overview: "M3 12l4-5 4 6 3-4 3 3M3 17h14",
  events: "M4 5h12M4 10h12M4 15h7",
  sinks: "M4 10h6M10 10l4-5M10 10l4 5M10 10h5",
  sources: "M16 10h-6M10 10L6 5M10 10l-4 5M10 10H5",
  spaces: "M4 4h5v5H4zM11 4h5v5h-5zM4 11h5v5H4zM11 11h5v5h-5z",
  methods: "M7 4c-3 0-1 6-4 6 3 0 1 6 4 6M13 4c3 0 1 6 4 6-3 0-1 6-4 6",
  scripts: "M5 3h7l3 3v11H5zM8 9h4M8 12h4",
  mcp: "M6 4v4M14 4v4M4 8h12v2a6 6 0 01-12 0zM10 16v2",
  tokens: "M7.5 12.5a3.5 3.5 0 110-.1zM10 10l6-6M13 7l2 2",
  users: "M10 9a3 3 0 100-6 3 3 0 000 6zM4 17c0-3.5 2.7-5.500 6-5.500s6 2 6 5.500",
  roles: "M10 3l6 2v5c0 4-3 6-6 7-3-1-6-3-6-7V5z",
  groups: "M7 9a2.500 2.500 0 100-5 2.500 2.500 0 000 5zM13.500 9.500a2 2 0 100-4M2.500 16c0-3 2-4.500 4.500-4.500s4.500 1.500 4.500 4.500M14 11.500c2 .3 3.500 1.700 3.500 4",
  audit: "M6 3h8v14H6zM8 7h4M8 10h4M8 13h2",
  account: "M10 9a3 3 0 100-6 3 3 0 000 6zM4 17c0-3.500 2.700-5.500 6-5.500s6 2 6 5.500",
  menu: "M3 6h14M3 10h14M3 14h14",
  search: "M9 14A5 5 0 109 4a5 5 0 000 10zM13 13l4 4",
  close: "M5 5l10 10M15 5L5 15",
  copy: "M7 7h9v9H7zM4 13V4h9",
  plus: "M10 4v12M4 10h12",
  play: "M6 4l10 6-10 6z",
  pause: "M7 4v12M13 4v12",
  reload: "M15.500 8A6 6 0 105 13.500M16 4v4h-4",
  trash: "M4 6h12M8 6V4h4v2M6 6l1 11h6l1-11",
  sun: "M10 13a3 3 0 100-6 3 3 0 000 6zM10 2v2M10 16v2M2 10h2M16 10h2M4.500 4.500l1.400 1.400M14.100 14.100l1.400 1.400M4.500 15.500l1.400-1.400M14.100 5.900l1.400-1.400",
  moon: "M16 11.500A6.500 6.500 0 118.500 4a5 5 0 007.500 7.500z",
  send: "M3 10l14-6-5 13-3-5z",
  check: "M4 10l4 4 8-8",
  left: "M12 4l-6 6 6 6",
  help: "M7.500 7.500a2.500 2.500 0 113.600 2.300c-.8.4-1.100.9-1.100 1.700M10 15v.1M10 18a8 8 0 100-16 8 8 0 000 16z",
};

export function Icon({ name, size = 18 }) {
  return html`<svg class="icon" width=${size} height=${size} viewBox="0 0 20 20" aria-hidden="true" focusable="false">
    <path d=${PATHS[name] ?? ""} />
  </svg>`;
}
