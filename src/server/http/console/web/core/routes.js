// The views: address, name, key, the permissions that offer them, and the module that shows them.

import { loadFile } from "./load.js";
import { may } from "./session.js";

const SINKS = ["manage_own_event_sinks", "manage_global_event_sinks"];
const SPACES = ["use_spaces", "manage_spaces"];

/** The views of the navigation, in groups. `view` is loaded when it is first shown. */
export const GROUPS = [
  {
    name: "Operate",
    views: [
      { path: "overview", name: "Overview", key: "o", permissions: [...SINKS, ...SPACES], load: () => loadFile("../views/overview.js") },
      { path: "events", name: "Events", key: "e", permissions: SPACES, load: () => loadFile("../views/events.js"),
        one: () => loadFile("../views/event.js") },
      { path: "sinks", name: "Sinks", key: "s", permissions: SINKS, load: () => loadFile("../views/sinks.js"),
        one: () => loadFile("../views/sink.js") },
      { path: "sources", name: "Sources", key: "i", permissions: SINKS, load: () => loadFile("../views/sources.js"),
        one: () => loadFile("../views/source.js") },
      { path: "spaces", name: "Spaces", key: "p", permissions: SPACES, load: () => loadFile("../views/spaces.js"),
        one: () => loadFile("../views/space.js") },
    ],
  },
  {
    name: "Build",
    views: [
      { path: "methods", name: "Methods", key: "m", permissions: [], load: () => loadFile("../views/methods.js"),
        one: () => loadFile("../views/method.js") },
      { path: "scripts", name: "Scripts", key: "c", permissions: [], load: () => loadFile("../views/scripts.js"),
        one: () => loadFile("../views/script.js") },
      { path: "mcp", name: "MCP", key: "x", permissions: ["use_mcp_server"], load: () => loadFile("../views/mcp.js") },
      { path: "tokens", name: "Tokens", key: "t", permissions: [], load: () => loadFile("../views/tokens.js") },
    ],
  },
  {
    name: "Administer",
    views: [
      { path: "users", name: "Users", key: "u", permissions: ["manage_users"], load: () => loadFile("../views/users.js"),
        one: () => loadFile("../views/user.js") },
      { path: "roles", name: "Roles", key: "r", permissions: ["manage_roles"], load: () => loadFile("../views/roles.js") },
      { path: "groups", name: "Groups", key: "b", permissions: ["manage_groups"], load: () => loadFile("../views/groups.js") },
      { path: "audit", name: "Audit", key: "a", permissions: ["view_audit_log"], load: () => loadFile("../views/audit.js") },
    ],
  },
];

/** Views that are not in the navigation. */
const OTHERS = [
  { path: "account", name: "Account", permissions: [], load: () => loadFile("../views/account.js") },
  {
    path: "subscriptions", name: "Subscribed methods", permissions: SPACES,
    load: () => loadFile("../views/subscriptions.js"), one: () => loadFile("../views/subscription.js"),
  },
];

/** The groups with the views that are offered to the user. */
export function offeredGroups() {
  const offered = GROUPS.map((group) => ({ ...group, views: group.views.filter((view) => may(...view.permissions)) }));
  return offered.filter((group) => group.views.length > 0);
}

export function offeredViews() {
  return offeredGroups().flatMap((group) => group.views);
}

/** The view of a path, and the function that loads it; `null` if there is none. */
export function findView([name, id]) {
  const views = [...GROUPS.flatMap((group) => group.views), ...OTHERS];
  const view = name === undefined ? offeredViews()[0] : views.find((view) => view.path === name);
  if (!view) return null;
  const load = id === undefined ? view.load : view.one;
  return load ? { view, load, isOffered: may(...view.permissions) } : null;
}

export const loadLogin = () => loadFile("../views/login.js");
