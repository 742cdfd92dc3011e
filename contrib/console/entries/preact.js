// Preact with its hooks, signals, and htm bound to it.
import { h } from "preact";
import htm from "htm";

export { render, Component, Fragment, createContext } from "preact";
export { useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useId } from "preact/hooks";
export { signal, computed, effect, batch } from "@preact/signals";
export const html = htm.bind(h);
