// Everything of Preact, htm and signals that the console uses, from one place.

export {
  html, render, Component, Fragment, useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useId,
  signal, computed, effect, batch,
} from "../vendor/preact.js";

/** Joins the class names that are not empty. */
export function classes(...names) {
  return names.filter(Boolean).join(" ");
}
