// Lists of rows. Only the rows in view are in the page, so that ten thousand stay smooth; all have one height.

import { html, classes, useEffect, useLayoutEffect, useRef, useState } from "../core/html.js";
import { navigate } from "../core/router.js";
import { ListError, Loading } from "./basics.js";

/** The height of a row in pixels, as the style has it: rows of a phone have two lines. */
const ROW = 44;
const ROW_ON_PHONE = 68;

/** Rows beyond the window on either side. */
const MARGIN = 12;

const phone = matchMedia("(max-width: 720px)");

/**
 * A table of `items`, which `list` was loaded for. A column is `{name, width, cell, label?, secondary?}`; `href(item)` makes rows
 * links, `more` is called near the end. `secondary` columns go to the second line on a phone. An error of the list stands above the rows.
 */
export function Table({ label, items, columns, href, keyOf = (item) => item.id, more, list, isLoading, selection }) {
  const { error, reload: retry, loadedAt } = list ?? {};
  const body = useRef();
  const [range, setRange] = useState([0, 40]);
  const [height, setHeight] = useState(phone.matches ? ROW_ON_PHONE : ROW);

  useLayoutEffect(() => {
    const measure = () => {
      const row = phone.matches ? ROW_ON_PHONE : ROW;
      const top = body.current ? body.current.getBoundingClientRect().top : 0;
      const first = Math.max(0, Math.floor(-top / row) - MARGIN);
      const last = Math.min(items.length, Math.ceil((window.innerHeight - top) / row) + MARGIN);
      setHeight(row);
      setRange((before) => (before[0] === first && before[1] === last ? before : [first, last]));
    };
    measure();
    window.addEventListener("scroll", measure, { passive: true });
    window.addEventListener("resize", measure);
    return () => {
      window.removeEventListener("scroll", measure);
      window.removeEventListener("resize", measure);
    };
  }, [items.length]);
  useEffect(() => {
    // After an error the rest is asked for by hand.
    if (more && !error && range[1] >= items.length - MARGIN) more();
  }, [range[1], items.length, isLoading, error]);

  const [first, last] = range;
  const shown = items.slice(first, last);
  const template = columns.map((column) => column.width ?? "minmax(0, 1fr)").join(" ");
  const columnsStyle = { "--columns": selection ? `32px ${template}` : template };
  const failure = html`<${ListError} error=${error} retry=${retry} loadedAt=${loadedAt} />`;
  if (error && items.length === 0) return failure;
  return html`${failure}
    <div class=${classes("table", error && "stale")} role="table" aria-label=${label} aria-rowcount=${items.length} style=${columnsStyle}>
    <div role="rowgroup" class="table-head">
      <div role="row" class="row">
        ${selection && html`<span role="columnheader"><input type="checkbox" aria-label="Select all"
          checked=${items.length > 0 && selection.size === items.length} onChange=${(event) => selection.all(event.target.checked)} />
            </span>`}
        ${columns.map((column) => html`<span role="columnheader" key=${column.name} class=${column.align ?? ""}>${column.name}</span>`)}
      </div>
    </div>
    <div role="rowgroup" ref=${body} class="table-body" style=${{ height: `${items.length * height}px` }}>
      <div role="presentation" style=${{ height: `${first * height}px` }}></div>
      ${shown.map((item, index) => html`<${Row} key=${keyOf(item)} item=${item} columns=${columns} href=${href?.(item)}
        index=${first + index} selection=${selection} keyOf=${keyOf} />`)}
    </div>
  </div>
  ${isLoading && html`<${Loading} />`}`;
}

function Row({ item, columns, href, index, selection, keyOf }) {
  const open = (event) => {
    if (!href || event.target.closest("a, button, input, label") || getSelection().toString()) return;
    navigate(href);
  };
  const cells = columns.map((column, at) => {
    const content = column.cell(item);
    const inner = at === 0 && href ? html`<a href=${href} class="row-link">${content}</a>` : content;
    return html`<span role="cell" key=${column.name} class=${classes(column.align, column.secondary && "secondary", column.tone)}>${inner}
      </span>`;
  });
  return html`<div role="row" class=${classes("row", href && "linked")} aria-rowindex=${index + 1} onClick=${open}>
    ${selection && html`<span role="cell" class="select-cell"><input type="checkbox" aria-label=${`Select row ${index + 1}`}
      checked=${selection.has(keyOf(item))} onChange=${(event) => selection.toggle(keyOf(item), event.target.checked)} /></span>`}
    ${cells}
  </div>`;
}

/** Selected keys of a table's rows. */
export function useSelection(items, keyOf = (item) => item.id) {
  const [chosen, setSelected] = useState(new Set());
  // A row that is gone is no longer selected.
  const selected = new Set(items.map(keyOf).filter((key) => chosen.has(key)));
  return {
    size: selected.size,
    keys: [...selected],
    has: (key) => selected.has(key),
    toggle: (key, isOn) => setSelected((before) => {
      const next = new Set(before);
      if (isOn) next.add(key);
      else next.delete(key);
      return next;
    }),
    all: (isOn) => setSelected(new Set(isOn ? items.map(keyOf) : [])),
    clear: () => setSelected(new Set()),
  };
}
