/** A session's tree: lanes of branches beside the checkpoints, a scrubber, and what changed at each. */

import * as actions from "../actions.js";
import { get, isAbort } from "../api.js";
import * as charts from "../charts.js";
import { h } from "../dom.js";
import { drawEdit } from "../edits.js";
import * as f from "../format.js";
import { drawLanes, lanesWidth } from "../lanes.js";
import { PAGE, VirtualList, errorBox } from "../list.js";
import { button, chip, commands, empty, facts, head, idLink, sessionLink, throttle, time } from "../parts.js";
import { link, literal, withQuery } from "../router.js";

const ROW = 34;
const FILTERS = [["failed", "Failed"], ["effects", "Effects"], ["forks", "Forks"], ["tags", "Tags"],
  ["handoffs", "Handoffs"]];
/** The checkpoint marked for a diff, kept between screens. */
const marks = { id: "", short: "" };

export default class Timeline {
  constructor(app, params, query) {
    this.app = app;
    this.id = params.session;
    this.at = query.get("at") ?? "";
    this.only = new Set((query.get("only") ?? "").split(",").filter(Boolean));
    this.line = query.get("line") === "1";
    this.session = null;
    this.error = null;
    this.chart = null;
    this.charted = false;
    this.row = null;
    this.detail = null;
    this.lanes = 1;
    this.list = new VirtualList({
      label: "Checkpoints, newest first", rowHeight: ROW, redraw: app.redraw,
        keyOf: (row) => row.checkpoint_id ?? `${row.session_id} ${row.sequence}`,
        load: (offset, limit, signal) => this.load(offset, limit, signal),
      row: (row) => this.drawRow(row), open: (row) =>
        row.checkpoint_id && app.go(link.checkpoint(row.checkpoint_id)), select: (row) => this.select(row),
        empty: () => this.drawEmpty(),
      hrefOf: (row) => (row.checkpoint_id ? link.checkpoint(row.checkpoint_id) : ""),
        rowClass: (row) => (row.checkpoint_id === marks.id ? "is-marked" : ""),
    });
    this.arrived = throttle(() => this.list.arrive(this.fresh), 400);
    this.drawn = throttle(() => this.loadChart(), 3000);
    this.fresh = 0;
  }

  title() {
    return this.id;
  }

  async start() {
    try {
      this.opening = get(`sessions/${literal(this.id)}`);
      this.session = await this.opening;
      const first = this.at || this.session.head?.checkpoint_id;
      if (first) await this.goTo(first);
      else {
        this.list.selectOnceLoaded = true;
        this.app.redraw();
      }
      this.list.box?.focus();
    } catch (error) {
      this.error = error;
      this.app.redraw();
    }
    this.loadChart();
  }

  close() {
    this.list.close();
    this.reading?.abort();
  }

  query() {
    return { line: this.line ? JSON.stringify(this.id) : undefined, only: [...this.only].join(",") };
  }

  async load(offset, limit, signal) {
    const session = this.session ?? await this.opening;
    if (!session.tree_id) return { rows: [], total: 0 };
    if (this.sought) { // the first page comes with the checkpoint that is looked for
      const answer = await this.sought;
      if (answer.offset === offset) return answer;
      throw new DOMException("The list begins elsewhere.", "AbortError");
    }
    const answer = await get(`trees/${literal(session.tree_id)}/graph`, { ...this.query(), offset, limit },
      signal);
    this.lanes = Math.max(answer.lanes ?? 1, 1);
    return answer;
  }

  async loadChart() {
    try {
      this.chart = await get(`sessions/${literal(this.id)}/chart`, { points: 200 });
    } catch {
      this.chart = null;
    }
    this.charted = true;
    this.app.redraw();
  }

  /** Selects a checkpoint wherever it is in the tree. */
  async goTo(id) {
    this.seeking?.abort();
    this.seeking = new AbortController();
    try {
      this.sought = get(`trees/${literal(this.session.tree_id)}/graph`,
        { ...this.query(), at: JSON.stringify(id), limit: PAGE }, this.seeking.signal);
      const answer = await this.sought;
      const found = answer.rows.find((row) => row.checkpoint_id === id) ?? answer.rows[0];
      this.lanes = Math.max(answer.lanes ?? 1, 1);
      this.list.store(answer.offset / PAGE, answer);
      if (found) {
        this.select(found);
        const index = found.position ?? found.row;
        this.list.selected = index;
        this.app.redraw();
        requestAnimationFrame(() => {
          const { box } = this.list;
          const top = index * ROW;
          if (box && (top < box.scrollTop
              || top + ROW > box.scrollTop + box.clientHeight)) box.scrollTop = Math.max(0,
            top - box.clientHeight / 3);
          this.list.measure();
          this.app.redraw();
        });
      }
    } catch (error) {
      if (isAbort(error)) return;
      if (this.list.total < 0) this.error = error;
      else this.app.toast(error.message);
    } finally {
      this.sought = null;
    }
    this.app.redraw();
  }

  select(row, again = false) {
    this.row = row;
    if (!row) return void this.app.redraw(); // no key acts on the row that was selected before
    this.app.replace(withQuery({ at: row.checkpoint_id }));
    if (this.detail?.id === row.checkpoint_id && !again) return;
    this.reading?.abort();
    const control = new AbortController();
    this.reading = control;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.loadDetail(row.checkpoint_id, control.signal), 90);
  }

  async loadDetail(id, signal) {
    if (!id) return;
    try {
      // A parent that can't be read must not hide its child.
      const [diff, checkpoint] = await Promise.all([
        get("diff", { b: JSON.stringify(id), part: "state,files", limit: 40 }, signal).catch((error) => ({ error })),
        get(`checkpoints/${literal(id)}`, {}, signal)]);
      if (isAbort(diff.error)) return;
      this.detail = { id, diff, checkpoint };
    } catch (error) {
      if (isAbort(error)) return;
      this.detail = { id, error };
    }
    this.app.redraw();
  }

  async refresh() {
    try {
      this.session = await get(`sessions/${literal(this.id)}`);
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    await this.list.refresh();
    if (this.list.follows) this.list.go(0);
    const row = this.list.rowAt(this.list.selected);
    if (row) this.select(row, true);
    this.loadChart();
  }

  hear(event) {
    const saved = event.data?.checkpoint;
    if (event.kind === "operation" || event.kind === "approval") return void this.refresh();
    if (!saved || saved.tree_id !== this.session?.tree_id) return;
    if (saved.session_id === this.id) this.session = { ...this.session, head: saved, saves: saved.sequence };
    this.fresh = 1;
    if (this.list.top >= ROW) this.list.arrive();
    else this.arrivals();
    this.drawn();
  }

  async arrivals() {
    this.arrived();
    if (this.list.follows) {
      clearTimeout(this.followTimer);
      this.followTimer = setTimeout(() => this.list.go(0), 450);
    }
  }

  filter(change) {
    change();
    this.app.replace(withQuery({ only: [...this.only].join(","), line: this.line ? "1" : "", at: "" }));
    this.select(null);
    this.list.reset();
    this.list.selectOnceLoaded = true;
  }

  // Actions

  withRow(run) {
    if (this.row?.checkpoint_id) run(this.row);
  }

  mark() {
    this.withRow((row) => {
      const same = marks.id === row.checkpoint_id;
      Object.assign(marks, same ? { id: "", short: "" } : { id: row.checkpoint_id, short: row.short_id });
      this.app.toast(same ? "No checkpoint is marked."
        : `Marked ${row.short_id}. Press d on another one to compare them.`);
    });
  }

  diff() {
    this.withRow((row) => {
      const other = marks.id && marks.id !== row.checkpoint_id ? marks.id : row.nearest_parent_id;
      if (other) this.app.go(link.diff(other, row.checkpoint_id));
      else this.app.toast("This is the first checkpoint: press m on another one first.");
    });
  }

  toSibling(step) {
    this.sibling(step).catch((error) => this.app.toast(error.message));
  }

  /** Another child of the nearest fork above. */
  async sibling(step) {
    let child = this.row;
    while (child) {
      const parent = child.nearest_parent_row === null ? null : this.list.rowAt(child.nearest_parent_row);
      if (!parent) break;
      if (parent.joins?.length) {
        const { children } = await get(`checkpoints/${literal(parent.checkpoint_id)}`);
        if (!children?.length) break;
        const at = children.findIndex((one) => one.checkpoint_id === child.checkpoint_id);
        return this.goTo(children[(at + step + children.length) % children.length].checkpoint_id);
      }
      child = parent;
    }
    this.app.toast("There is no other branch here.");
  }

  keys() {
    const { app, list } = this;
    return [
      { key: "j", label: "Next row", run: () => list.go(list.selected + 1), hidden: true },
      { key: "ArrowDown", label: "Next row", run: () => list.go(list.selected + 1), hidden: true },
      { key: "k", label: "Row before", run: () => list.go(list.selected - 1), hidden: true },
      { key: "ArrowUp", label: "Row before", run: () => list.go(list.selected - 1), hidden: true },
      { key: "Home", label: "First row", run: () => list.go(0), hidden: true },
      { key: "End", label: "Last row", run: () => list.go(list.total - 1), hidden: true },
      { key: "Enter", label: "Open the checkpoint",
        run: () => this.withRow((row) => app.go(link.checkpoint(row.checkpoint_id))) },
      { key: "[", label: "Sibling branch before", run: () => this.toSibling(-1) },
      { key: "]", label: "Next sibling branch", run: () => this.toSibling(1) },
      { key: "m", label: "Mark for a diff", run: () => this.mark() },
      { key: "d", label: "Diff with the mark, or the parent", run: () => this.diff() },
      { key: "f", label: "Fork here", run: () => this.withRow((row) => app.act(actions.fork(app, row))) },
      { key: "r", label: "Roll back to here",
        run: () => this.withRow((row) => app.act(actions.rollback(this.id, row))) },
      { key: "w", label: "Restore files as of here",
        run: () => this.withRow((row) => app.act(actions.restoreFiles(row))) },
      { key: "t", label: "Tag", run: () => this.withRow((row) => app.act(actions.tag(row))) },
      { key: "p", label: "Pin or unpin", run: () => this.withRow((row) => app.act(actions.pin(row, row.pinned))) },
      { key: "y", label: "Copy the id", run: () => this.withRow((row) => app.copy(row.checkpoint_id)) },
      { key: "l", label: "Follow new checkpoints", run: () => this.follow() },
    ];
  }

  follow() {
    this.list.follows = !this.list.follows;
    if (this.list.follows) this.list.go(0);
    this.app.redraw();
  }

  // Drawing

  draw() {
    const { session, app } = this;
    const crumb = [h("a", { href: "/" }, "Sessions"),
      session?.parent && [" · forked from ", sessionLink(session.parent.session_id), " at ",
        idLink(session.parent.checkpoint_id)]];
    const under = session && h("div", { class: "line wrap small muted" }, session.status && chip(session.status),
      h("span", null, session.agent_id), h("span", { class: "num" }, f.plural(session.saves ?? 0, "save")),
      time(session.head?.created_at));
    return h("div", { class: "body", key: "timeline" },
      head(this.id || "(no name)", { crumb, under, actions: [
        button("Follow", () => this.follow(), { symbol: "follow", key: "l",
            "aria-pressed": String(this.list.follows), kind: this.list.follows ? "primary" : "" }),
        h("a", { class: "button", href: link.team(this.id) }, "Team")] }),
      session?.damaged && h("div", { class: "banner", role: "alert" }, session.damaged),
      this.error ? h("div", { class: "pad" }, errorBox(this.error)) : [
        this.drawFilters(), this.drawScrubber(),
        h("div", { class: "split", key: "split" },
          h("div", { class: "left timeline" }, this.list.draw()),
          h("aside", { class: "right", "aria-label": "Selected checkpoint", tabindex: "0" }, this.drawDetail()))],
    );
  }

  drawFilters() {
    const toggle = (name) => this.filter(() =>
      void (this.only.has(name) ? this.only.delete(name) : this.only.add(name)));
    return h("div", { class: "toolbar", key: "filters" },
      h("select", { class: "input", "aria-label": "Branches", value: this.line ? "line" : "tree",
          onchange: (event) => this.filter(() => void (this.line = event.target.value === "line")) },
        h("option", { value: "tree" }, "Whole tree"), h("option", { value: "line" }, "Only this line")),
      h("span", { class: "small muted" }, "Only"),
      FILTERS.map(([name, label]) => h("label", { class: "check", key: name },
          h("input", { type: "checkbox", checked: this.only.has(name), onchange: () => toggle(name) }), label)),
      h("span", { class: "grow" }), h("span", { class: "small muted num" },
        this.list.total >= 0 ? f.plural(this.list.total, "checkpoint") : ""),
      marks.id && h("span", { class: "chip wait" }, `marked ${marks.short}`));
  }

  drawScrubber() {
    const points = this.chart?.points ?? [];
    if (points.length < 2) { // its place is kept, so that the list does not jump once it is here
      const coming = !this.charted && (this.session?.saves > 1 || this.session?.parent);
      return coming ? h("div", { class: "scrubber", key: "scrubber" }) : null;
    }
    const at = points.findIndex((one) => one.checkpoint_id === this.row?.checkpoint_id);
    const near = at >= 0 ? at : points.findLastIndex((one) => one.sequence <= (this.row?.sequence ?? Infinity));
    const point = points[Math.max(0, near)];
    const scrub = (event) => {
      const id = points[Number(event.target.value)].checkpoint_id;
      clearTimeout(this.scrubTimer);
      this.scrubTimer = setTimeout(() => this.goTo(id), 60);
    };
    return h("div", { class: "scrubber", key: "scrubber" }, charts.strip(points, near),
      h("input", { type: "range", min: 0, max: points.length - 1, value: String(Math.max(0, near)),
          "aria-label": "Step", "aria-valuetext": `step ${point.step_index ?? ""} ${point.step_name ?? ""}`,
          oninput: scrub }));
  }

  drawRow(row) {
    return [
      h("span", { class: "lanes", style: { width: `${lanesWidth(this.lanes)}px` } }, drawLanes(row, this.lanes, ROW)),
      h("span", { class: "t-step" }, row.step_index ?? ""),
      h("span", { class: "cell grow" }, row.damaged ? "damaged" : row.step_name
        || h("span", { class: "muted" }, "save")),
      row.damaged && chip("damaged"), row.failed && chip("failed"),
        row.effects > 0 && chip(f.plural(row.effects, "effect"), "info"),
        row.handoff_target && chip(`to ${row.handoff_target}`, "wait"),
      (row.tags ?? []).map((name) => h("span", { class: "chip accent", key: `tag-${name}`, title: name }, name)),
      row.pinned && h("span", { class: "chip" }, "pinned"),
      (row.heads ?? []).slice(0, 2).map((name) =>
        h("span", { class: `chip ${name === this.id ? "good" : ""}`, key: `head-${name}`, title: `Head of ${name}` },
          name)),
      h("span", { class: "cell dim nowrap" }, time(row.created_at)),
    ];
  }

  drawEmpty() {
    if (this.only.size || this.line) return empty("search", "No checkpoint matches these filters",
      button("Show all", () => this.filter(() => {
      this.only.clear();
      this.line = false;
    })));
    return empty("sessions", "Nothing is saved in this session yet",
      h("p", null, "It appears here as soon as the agent saves."));
  }

  drawDetail() {
    const { row, app } = this;
    if (!row) return h("p", { class: "muted" }, this.list.selectOnceLoaded ? "Reading…"
      : "Choose a checkpoint to see what changed.");
    if (row.damaged) return h("div", { class: "stack" }, h("h2", null, "Damaged checkpoint"),
      h("div", { class: "error-box" }, row.damaged),
      h("p", { class: "muted" },
        "Restores of other checkpoints are not affected. `holdfast verify` names every checkpoint that cannot be restored exactly."));
    const detail = this.detail?.id === row.checkpoint_id ? this.detail : null;
    const edits = detail?.diff?.edits ?? [];
    return h("div", { class: "stack", key: row.checkpoint_id },
      h("div", { class: "stack-tight" },
        h("div", { class: "line wrap" }, h("h2", { class: "grow" },
            `${row.step_index ?? ""} ${row.step_name || "save"}`),
          h("a", { class: "button primary", href: link.checkpoint(row.checkpoint_id) }, "Open",
            h("kbd", { "aria-hidden": "true" }, "↵"))),
        facts([["Checkpoint", h("code", null, row.checkpoint_id)], ["Session", sessionLink(row.session_id)],
            ["Agent", row.agent_id], ["Saved", f.dateTime(row.created_at)], ["Handed to", row.handoff_target],
            ["State", detail?.checkpoint ? f.bytes(detail.checkpoint.logical_bytes) : "…"]])),
      h("div", { class: "line wrap" },
        button("Diff", () => this.diff(), { symbol: "diff", key: "d" }),
          button("Fork", () => app.act(actions.fork(app, row)), { symbol: "fork", key: "f" }),
          button("Roll back", () => app.act(actions.rollback(this.id, row)), { symbol: "back", key: "r" }),
        button("Tag", () => app.act(actions.tag(row)), { symbol: "tag", key: "t" }),
          button(row.pinned ? "Unpin" : "Pin", () => app.act(actions.pin(row, row.pinned)),
            { symbol: "pin", key: "p" })),
      h("section", { class: "stack-tight" }, h("h2", null, "What changed here"), this.drawChanges(detail, edits)),
      detail?.checkpoint?.effects?.length > 0
        && h("section", { class: "stack-tight" }, h("h2", null, "Effects"), detail.checkpoint.effects.map((one) =>
        h("div", { class: "line", key: one.effect_id }, chip(one.in_doubt ? "unknown" : one.state),
          h("span", { class: "mono clip grow" }, `${one.tool} ${f.inline(one.arguments, 80)}`)))),
      this.chart?.points?.length > 1 && h("details", null,
        h("summary", { class: "muted" }, "Charts of this session"), charts.drawCharts(this.chart)),
      commands({ shell: `holdfast show ${f.shell(row.checkpoint_id)}`,
          python: `client.restore(${f.python(row.checkpoint_id)})` }, (text) => app.copy(text)));
  }

  drawChanges(detail, edits) {
    if (!detail) return h("p", { class: "muted" }, "Reading…");
    if (detail.error) return errorBox(detail.error);
    if (detail.diff.error && detail.checkpoint.parent_id) return errorBox(detail.diff.error);
    const files = detail.diff.changes ?? [];
    if (!edits.length && !files.length) return h("p", { class: "muted" },
      detail.diff.a ? "Nothing: the state equals its parent's." : "This is the first checkpoint of the tree.");
    return h("div", null, edits.map((edit, at) => drawEdit(edit, { key: at })),
      detail.diff.edits_total > edits.length && h("p", { class: "muted" },
        h("a", { href: link.diff(detail.diff.a.checkpoint_id, detail.id) },
          `${f.count(detail.diff.edits_total - edits.length)} more`)),
      files.length > 0 && h("p", null, h("a", { href: link.checkpoint(detail.id, "files") },
          f.plural(files.length, "changed file"))));
  }
}
