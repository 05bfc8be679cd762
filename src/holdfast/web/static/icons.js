/** Icons of 16 by 16, drawn as strokes. */

import { h } from "./dom.js";
const PATHS = {
  mark: "M8 2v5m0 0c0 3-4 2-4 6m4-6c0 3 4 2 4 6M8 7v7",
  sessions: "M2.5 4h11M2.5 8h11M2.5 12h7",
  runs: "M5 3.5v9l7-4.5z",
  approvals: "M3 8.5l3.2 3.2L13 4.5",
  inbox: "M2.5 9l2-5.5h7l2 5.5v3.5h-11zM2.5 9H6l.8 1.5h2.4L10 9h3.5",
  effects: "M9 2L4 9h3.5L7 14l5-7H8.5z",
  team: "M6 7.5a2 2 0 100-4 2 2 0 000 4zM2.5 13c0-2 1.5-3.2 3.5-3.2S9.5 11 9.5 13M10.5 7a1.7 1.7 0 100-3.4M11.5 9.6c1.3.3 2.2 1.5 2.2 3.2",
  topics: "M3 3.5h10v7H7l-3 2.5v-2.5H3z",
  storage: "M3 4.2c0-1 2.2-1.7 5-1.7s5 .7 5 1.7-2.2 1.7-5 1.7-5-.7-5-1.7zm0 0v7.6c0 1 2.2 1.7 5 1.7s5-.7 5-1.7V4.2M3 8c0 1 2.2 1.7 5 1.7s5-.7 5-1.7",
  log: "M8 2.5a5.5 5.5 0 105.5 5.5M8 5v3l2 1.5M13.5 2.5v3h-3",
  search: "M7 11.5a4.5 4.5 0 100-9 4.5 4.5 0 000 9zm3.3-1.2l3.2 3.2",
  fork: "M4.5 13.5v-11M4.5 9c0-2.5 7-1.5 7-5.5M11.5 3.5l-1.8 1.8m1.8-1.8l1.8 1.8",
  back: "M6 3.5L2.5 7 6 10.5M2.5 7h7a4 4 0 010 6.5H7",
  diff: "M5 3v6M2 6h6M8.5 12.5h5",
  tag: "M2.5 8V2.5H8l5.5 5.5L8 13.5zM5.5 5.5h.01",
  pin: "M5.5 2.5h5M6.5 2.5v4L4 9h8L9.5 6.5v-4M8 9v4.5",
  copy: "M5.5 5.5h8v8h-8zM3 10.5V2.5h8",
  file: "M4 2.5h5l3 3v8H4zM9 2.5v3h3",
  folder: "M2.5 4h4l1.5 1.5h5.5v7h-11z",
  close: "M4 4l8 8M12 4l-8 8",
  down: "M8 2.5v8M4.5 7L8 10.5 11.5 7M3 13.5h10",
  follow: "M8 3v7M4.5 6.5L8 3l3.5 3.5M3 13h10",
  keys: "M2 4.5h12v7H2zM4.5 7h.01M7 7h.01M9.5 7h.01M12 7h.01M5 9.5h6",
};

export function icon(name) {
  const line = { d: PATHS[name], fill: "none", stroke: "currentColor", "stroke-width": "1.4",
    "stroke-linecap": "round", "stroke-linejoin": "round" };
  return h("svg", { viewBox: "0 0 16 16", width: "16", height: "16", "aria-hidden": "true" }, h("path", line));
}
