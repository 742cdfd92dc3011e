// The views: address, name, key, the permissions that offer them, and the module that shows them.

import { may } from "./session.js";

const SINKS = ["manage_own_event_sinks", "manage_global_event_sinks"];
const SPACES = ["use_spaces", "manage_spaces"];

/** The views of the navigation, in groups. `view` is loaded when it is first shown. */
export const GROUPS = [
  {
    name: "Operate",
    views: [
      { path: "overview", name: "Overview", key: "o", permissions: [...SINKS, ...SPACES], load: () => import("../views/overview.js") },
      { path: "events", name: "Events", key: "e", permissions: SPACES, load: () => import("../views/events.js"),
        one: () => import("../views/event.js") },
      { path: "sinks", name: "Sinks", key: "s", permissions: SINKS, load: () => import("../views/sinks.js"),
        one: () => import("../views/sink.js") },
      { path: "sources", name: "Sources", key: "i", permissions: SINKS, load: () => import("../views/sources.js"),
        one: () => import("../views/source.js") },
      { path: "spaces", name: "Spaces", key: "p", permissions: SPACES, load: () => import("../views/spaces.js"),
        one: () => import("../views/space.js") },
    ],
  },
  {
    name: "Build",
    views: [
      { path: "methods", name: "Methods", key: "m", permissions: [], load: () => import("../views/methods.js"),
        one: () => import("../views/method.js") },
      { path: "scripts", name: "Scripts", key: "c", permissions: [], load: () => import("../views/scripts.js"),
        one: () => import("../views/script.js") },
      { path: "mcp", name: "MCP", key: "x", permissions: ["use_mcp_server"], load: () => import("../views/mcp.js") },
      { path: "tokens", name: "Tokens", key: "t", permissions: [], load: () => import("../views/tokens.js") },
    ],
  },
  {
    name: "Administer",
    views: [
      { path: "users", name: "Users", key: "u", permissions: ["manage_users"], load: () => import("../views/users.js"),
        one: () => import("../views/user.js") },
      { path: "roles", name: "Roles", key: "r", permissions: ["manage_roles"], load: () => import("../views/roles.js") },
      { path: "groups", name: "Groups", key: "b", permissions: ["manage_groups"], load: () => import("../views/groups.js") },
      { path: "audit", name: "Audit", key: "a", permissions: ["view_audit_log"], load: () => import("../views/audit.js") },
    ],
  },
];

/** Views that are not in the navigation. */
const OTHERS = [
  { path: "account", name: "Account", permissions: [], load: () => import("../views/account.js") },
  {
    path: "subscriptions", name: "Subscribed methods", permissions: SPACES,
    load: () => import("../views/subscriptions.js"), one: () => import("../views/subscription.js"),
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
