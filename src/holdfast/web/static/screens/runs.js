/** Runs with their status, and a bar of their steps over time. */

import { get, isAbort } from "../api.js";
import { drawCharts } from "../charts.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { chip, commands, empty, facts, RUN_STATUSES, sessionLink, time } from "../parts.js";
import { link, literal, withQuery } from "../router.js";
import { Pages } from "./pages.js";

const CONTINUED = ["interrupted", "stopped"]; // a resume continues them
const CHARTED = 20; // runs at the top that show their steps

export default class Runs extends Pages {
  constructor(app, _params, query) {
    super(app, "runs", "runs", "offset");
    this.status = query.get("status") ?? "";
    this.series = new Map();
  }

  title() {
    return "Runs";
  }

  query() {
    return { status: this.status };
  }

  async load() {
    await super.load();
    for (const run of this.rows.slice(0, CHARTED)) {
      const known = this.series.get(run.session_id);
      if (known?.saves === run.saves) continue;
      try {
        this.series.set(run.session_id, { saves: run.saves,
            chart: await get(`sessions/${literal(run.session_id)}/chart`, { points: 120 }, this.control.signal) });
      } catch (error) {
        if (isAbort(error)) return;
        this.series.set(run.session_id, { saves: run.saves, chart: null });
      }
      this.app.redraw();
    }
  }

  keys() {
    return [...this.moveKeys(), { key: "Enter", label: "Open the timeline",
        run: () => this.rows[this.current] && this.app.go(link.session(this.rows[this.current].session_id)) }];
  }

  draw() {
    const choose = (event) => {
      this.status = event.target.value;
      this.app.replace(withQuery({ status: this.status }));
      this.load();
    };
    const counts = this.answer?.counts ?? {};
    const toolbar = h("div", { class: "toolbar" },
      h("select", { class: "input", "aria-label": "Status", value: this.status, onchange: choose },
        h("option", { value: "" }, "Any status"), RUN_STATUSES.map((one) => h("option", { value: one }, one))),
      RUN_STATUSES.filter((one) => counts[one]).map((one) => h("span", { class: "line small", key: one }, chip(one),
          h("span", { class: "num muted" }, f.count(counts[one])))));
    return this.drawPage("Runs", { toolbar },
      this.rows.length ? this.rows.map((run, at) => this.drawRun(run, at))
      : empty("runs", this.status ? "No run has this status" : "No run yet",
        h("p", null, "A run resumes where it stopped:"),
        h("code", { class: "block" }, "with client.run(\"order-42\", agent_id=\"buyer\") as run: …")));
  }

  drawRun(run, at) {
    const chart = this.series.get(run.session_id)?.chart;
    const points = chart?.points ?? [];
    const current = at === this.current;
    return h("article", { class: `card ${current ? "is-current" : ""}`, key: run.session_id, id: `row-${at}`,
        "aria-label": `Run ${run.session_id}`, onclick: () => {
      this.current = at;
      this.app.redraw();
    } },
    h("header", null, h("h2", { class: "grow clip" }, sessionLink(run.session_id)),
      run.approvals > 0 && h("a", { href: "/approvals" }, chip(f.plural(run.approvals, "approval"), "wait")),
      chip(run.status)),
    h("div", { class: "inside stack-tight" },
      h("div", { class: "line wrap small muted" }, h("span", { class: "num" }, f.plural(run.saves, "save")),
        h("span", null, run.head ? `at ${run.head.step_index ?? ""} ${run.head.step_name ?? ""}`
          : "before its first save"), run.head && time(run.head.created_at)),
      points.length > 1 && [drawSteps(points),
        h("p", { class: "small muted" },
          `${f.plural(chart.total, "step")} in ${f.duration((Date.parse(points.at(-1).created_at) - Date.parse(points[0].created_at)) / 1000)}`)],
      current && points.length > 1 && drawCharts(chart),
      facts([["Held by", run.holder], ["Until", run.expires_at && time(run.expires_at)],
          ["Failed", run.status === "failed" && run.failure
            ? [run.failure.error_type?.replace(/^builtins\./, ""), run.failure.message].filter(Boolean).join(": ") : null]]),
      current && CONTINUED.includes(run.status)
        && commands({ shell: `holdfast resume ${f.shell(run.session_id)} MODULE:NAME`,
            python: `with client.run(${f.python(run.session_id)}) as run: …` }, (line) => this.app.copy(line))));
  }
}

/** Steps on a line of time: each as long as it took. */
export function drawSteps(points) {
  const first = Date.parse(points[0].created_at);
  const whole = Math.max(1, Date.parse(points.at(-1).created_at) - first);
  return h("svg", { class: "strip steps", viewBox: "0 0 1000 16", preserveAspectRatio: "none", role: "img",
      "aria-label": `${f.plural(points.length, "step")} over time` }, points.map((one, at) => {
    const end = ((Date.parse(one.created_at) - first) / whole) * 1000;
    const start = at === 0 ? 0 : ((Date.parse(points[at - 1].created_at) - first) / whole) * 1000;
    return h("rect", { key: at, class: `step-bar ${at % 2 ? "is-odd" : ""} ${one.failed ? "is-failed" : ""}`,
        x: start.toFixed(2), y: 0, height: 16, width: Math.max(1.5, end - start - 1).toFixed(2) });
  }));
}
