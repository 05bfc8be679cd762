/** The lanes of branches beside a row: lines that pass by, lines that join, and the dot of the row. */

import { h } from "./dom.js";

const WIDTH = 14;
const FOLDED = 16; // width of the "+n" beside the lanes

const narrow = matchMedia("(max-width: 700px)");
/** Lanes that have a column of their own. */
const shown = () => (narrow.matches ? 5 : 12);
const column = (lane) => Math.min(lane, shown() - 1) * WIDTH + WIDTH / 2 + 2;
const color = (lane) => `lane lane-${lane % 8}`;

export function lanesWidth(lanes) {
  return Math.min(Math.max(1, lanes), shown()) * WIDTH + 6 + (lanes > shown() ? FOLDED : 0);
}

export function drawLanes(row, lanes, height) {
  const width = lanesWidth(lanes);
  const middle = height / 2;
  const x = column(row.lane ?? 0);
  const folded = new Set([...(row.through ?? []), ...(row.joins ?? [])].filter((lane) => lane >= shown())).size;
  return h("svg", { class: "lanes", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    (row.through ?? []).filter((lane) => lane < shown()).map((lane) =>
      h("path", { key: `t${lane}`, class: color(lane), d: `M${column(lane)} 0V${height}` })),
    (row.joins ?? []).map((lane) => {
      const from = column(lane);
      return h("path", { key: `j${lane}`, class: color(lane),
          d: `M${from} 0C${from} ${middle * 0.9} ${x} ${middle * 0.3} ${x} ${middle}` });
    }),
    !row.is_leaf && h("path", { class: color(row.lane), d: `M${x} 0V${middle}` }),
    row.nearest_parent_id && h("path", { class: color(row.lane), d: `M${x} ${middle}V${height}` }),
    h("circle",
      { class: `dot ${color(row.lane ?? 0)} ${row.heads?.length ? "is-head" : ""} ${row.failed || row.damaged ? "is-failed" : ""}`, cx: x, cy: middle, r: row.heads?.length ? 5 : 3.5 }),
    folded > 0 && h("text", { class: "lane-more", x: width - 3, y: middle + 3, "text-anchor": "end" }, `+${folded}`));
}
