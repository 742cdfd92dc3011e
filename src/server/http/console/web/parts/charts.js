// Charts: the lines of the overview by uPlot, loaded when they are first shown, and the sparklines of lists as plain SVG.

import { html, useEffect, useRef, useState } from "../core/html.js";
import { recoveries } from "../core/api.js";
import { loadFile } from "../core/load.js";
import { theme } from "../core/theme.js";
import { number } from "../core/format.js";

let style;

async function loadPlot() {
  const [module] = await Promise.all([loadFile("../vendor/uplot.js"), style ??= loadStyle()]);
  return module.uPlot;
}

function loadStyle() {
  const base = new URL("../vendor/uplot.css", import.meta.url);
  return new Promise((resolve) => {
    const onerror = () => {
      style = undefined;
      link.remove();
      resolve();
    };
    const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: base.href, onload: resolve, onerror });
    document.head.append(link);
  });
}

function showLast(plot) {
  if (!(plot.cursor.left >= 0)) queueMicrotask(() => plot.setLegend({ idx: plot.data[0].length - 1 }));
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });

/** A colour of the style as a canvas takes it: `rgb(…)` of the present scheme. */
function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const resolved = getComputedStyle(probe).color;
  probe.remove();
  return resolved;
}

const faint = (rgb) => rgb.replace("rgb(", "rgba(").replace(")", ", 0.13)");

/**
 * Counts by minute as lines. `series` are `{name, colour, values}`, with the name of a colour in the style. The sums are said in
 * the label, since a canvas says nothing to screen readers.
 */
export function MinuteChart({ label, from, series, height = 180 }) {
  const element = useRef();
  const plot = useRef();
  const [failed, setFailed] = useState(false);
  const start = Date.parse(from) / 1000;
  const times = series[0].values.map((_, minute) => start + minute * 60);
  const data = [times, ...series.map((one) => one.values)];
  const recovered = recoveries.value;
  useEffect(() => setFailed(false), [recovered]);
  useEffect(() => {
    if (failed) return undefined;
    let isGone = false;
    let observer;
    loadPlot().then((uPlot) => {
      if (isGone || !element.current) return;
      const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false },
        font: "12px system-ui" };
      plot.current = new uPlot({
        width: element.current.clientWidth,
        height,
        cursor: { drag: { x: false, y: false }, points: { size: 6 } },
        legend: { live: true },
        // Without a pointer on it, the legend has the present minute.
        hooks: { ready: [showLast], setData: [showLast] },
        scales: { x: { time: true }, y: { range: (_, __, most) => [0, Math.max(4, Math.ceil(most * 1.1))] } },
        axes: [{ ...axis, space: 70, values: (_, ticks) => ticks.map((at) => clock.format(at * 1000)) }, { ...axis, size: 44, space: 36 }],
        series: [
          { label: "Minute", value: (_, at) => (at ? clock.format(at * 1000) : "") },
          ...series.map((one) => ({
            label: one.name, stroke: colour(one.colour), width: 2, fill: one.fill && faint(colour(one.colour)), points: { show: false },
          })),
        ],
      }, data, element.current);
      observer = new ResizeObserver(() => element.current && plot.current?.setSize({ width: element.current.clientWidth, height }));
      observer.observe(element.current);
    }, () => isGone || setFailed(true));
    return () => {
      isGone = true;
      observer?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [theme.value, failed, series.map((one) => one.name).join()]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [from, JSON.stringify(data.slice(1))]);
  const sums = series.map((one) => `${one.name} ${number(one.values.reduce((sum, value) => sum + value, 0))}`);
  if (failed) return html`<p class="muted">The chart could not be loaded. In the last hour: ${sums.join(", ")}.</p>`;
  return html`<div class="chart" role="img" aria-label=${`${label}: ${sums.join(", ")} in the last hour`}>
    <div ref=${element} aria-hidden="true" style=${{ minHeight: `${height + 34}px` }}></div>
  </div>`;
}

/** Deliveries and failures of the last hour, in steps of five minutes. */
export function Sparkline({ activity }) {
  if (!activity) return html`<span class="muted">–</span>`;
  const { delivered, failed, dropped } = activity;
  const totals = delivered.map((count, at) => count + failed[at] + dropped[at]);
  const most = Math.max(1, ...totals);
  const sum = (counts) => counts.reduce((sum, count) => sum + count, 0);
  const label = `last hour: ${sum(delivered)} delivered, ${sum(failed)} failed, ${sum(dropped)} dropped`;
  const bars = totals.map((total, at) => {
    const bad = failed[at] + dropped[at];
    const high = (count) => (count === 0 ? 0 : Math.max(1.5, (count / most) * 20));
    return html`<rect class="bar-all" x=${at * 7} width="5" y=${22 - high(total)} height=${high(total)} />
      <rect class="bar-bad" x=${at * 7} width="5" y=${22 - high(bad)} height=${high(bad)} />`;
  });
  return html`<svg class="sparkline" viewBox="0 0 84 22" width="84" height="22" role="img" aria-label=${label}>
    <title>${label}</title><path d="M0 21.500h84" class="bar-line" />${bars}
  </svg>`;
}
