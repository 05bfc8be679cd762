/** Charts as SVG: few marks, one colour, and the figures as text for everyone. */

import { h } from "./dom.js";
import * as f from "./format.js";

const WIDTH = 320;
const HEIGHT = 96;

function scale(values) {
  return Math.max(1e-9, ...values.map(value => value ?? 0));
}

/** A chart with its title and a sentence that says the same. */
function frame(title, sentence, top, ...marks) {
  return h("figure", { class: "card chart-card", key: title },
    h("figcaption", null, h("h2", null, title), h("p", { class: "small muted" }, sentence)),
    h("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT + 16}`, role: "img",
        "aria-label": `${title}: ${sentence}` },
      h("path", { class: "grid", d: `M0 ${HEIGHT + 0.5}H${WIDTH}M0 12.5H${WIDTH}` }),
        h("text", { x: WIDTH, y: 9, "text-anchor": "end" }, top), marks));
}

const y = (value, most) => HEIGHT - (value / most) * (HEIGHT - 14);

/** Lines over steps: the first one filled. */
export function lines(title, sentence, series, format) {
  const most = scale(series.flatMap((one) => one.values));
  return frame(title, sentence, format(most), series.map((one) => {
    const step = WIDTH / Math.max(1, one.values.length - 1);
    const points = one.values.map((value, index) =>
      (value === null ? null : `${(index * step).toFixed(1)} ${y(value, most).toFixed(1)}`)).filter(Boolean);
    if (points.length === 0) return null;
    const path = `M${points.join("L")}`;
    return h("path", { class: one.kind, d: one.kind === "area" ? `${path}V${HEIGHT}H0Z` : path });
  }));
}

/** Bars over steps. */
export function bars(title, sentence, points, format) {
  const most = scale(points.map((one) => one.value));
  const step = WIDTH / Math.max(1, points.length);
  return frame(title, sentence, format(most), h("g", { class: "bars" }, points.map((one, index) => {
    const height = ((one.value ?? 0) / most) * (HEIGHT - 14);
    return h("rect", { class: one.failed ? "is-failed" : "", x: (index * step).toFixed(2),
        y: (HEIGHT - height).toFixed(2), width: Math.max(0.5, step - Math.min(1, step / 4)).toFixed(2),
        height: Math.max(0.5, height).toFixed(2) });
  })));
}

/** The strip above a scrubber: a bar for each point, its height by the logarithm of what it added. */
export function strip(points, current) {
  const height = 36;
  const size = (one) => Math.log10(1 + Math.max(0, one.grown_bytes ?? one.logical_bytes ?? 1));
  const most = scale(points.map(size));
  const step = 1000 / Math.max(1, points.length);
  return h("svg", { class: "strip", viewBox: `0 0 1000 ${height}`, preserveAspectRatio: "none",
      "aria-hidden": "true" }, points.map((one, index) => {
    const tall = Math.max(2, (size(one) / most) * (height - 2));
    return h("rect", { key: index,
        class: `bar ${index === current ? "is-current" : ""} ${one.failed ? "is-failed" : ""}`,
        x: (index * step).toFixed(2), y: height - tall, width: Math.max(0.6, step * 0.8).toFixed(2), height: tall });
  }));
}

/** What all steps up to each one would take without sharing, and what they take. */
function drawSharing(points) {
  const last = points.at(-1);
  if (!last.stored_bytes || last.total_bytes <= last.stored_bytes) return null;
  const ratio = (last.total_bytes / last.stored_bytes).toFixed(1);
  return lines("Saved by sharing",
    `${ratio} ×: ${f.bytes(last.total_bytes)} of states are kept in ${f.bytes(last.stored_bytes)}.`,
    [{ values: points.map((one) => one.total_bytes), kind: "curve" },
      { values: points.map((one) => one.stored_bytes), kind: "area" }], f.bytes);
}

/** Bytes over steps, their growth, the duration of steps, and tokens where they are known. */
export function drawCharts(chart) {
  const { points } = chart;
  const logical = points.map((one) => one.logical_bytes);
  const tokens = points.map((one) => (one.tokens
      ? Object.values(one.tokens).reduce((sum, value) => sum + (typeof value === "number" ? value : 0), 0) : null));
  const grown = points.map((one) => one.grown_bytes).filter((size) => typeof size === "number");
  const added = grown.reduce((sum, size) => sum + size, 0);
  const slowest = Math.max(...points.map((one) => one.seconds ?? 0));
  return h("div", { class: "charts" },
    lines("Size of the state", `${f.bytes(logical.at(-1))} at the last step.`,
      [{ values: logical, kind: "area" }, { values: logical, kind: "curve" }], f.bytes),
    drawSharing(points),
    added > 0 && bars("Growth by step", `${f.bytes(added / grown.length)} on average.`,
      points.map((one) => ({ value: Math.max(0, one.grown_bytes ?? 0), failed: one.failed })), f.bytes),
    bars("Duration of steps", `The longest took ${f.duration(slowest)}.`,
      points.map((one) => ({ value: one.seconds, failed: one.failed })), f.duration),
    tokens.some((one) => one !== null) && bars("Tokens",
      `${f.count(tokens.reduce((sum, one) => sum + (one ?? 0), 0))} in all steps shown.`,
      tokens.map(value => ({ value })), f.count));
}
