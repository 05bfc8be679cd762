/** Two sessions side by side since their fork point, with the first difference found. */

import { get, isAbort } from "../api.js";
import { h } from "../dom.js";
import { drawEdit, fileStatus } from "../edits.js";
import * as f from "../format.js";
import { errorBox } from "../list.js";
import { button, card, commands, empty, facts, head, idLink, sessionLink, table, time } from "../parts.js";
import { link } from "../router.js";

export default class Compare {
  constructor(app, params) {
    this.app = app;
    this.a = params.a;
    this.b = params.b;
    this.found = null;
    this.error = null;
    this.limit = 100;
    this.control = new AbortController();
  }

  title() {
    return `${this.a} and ${this.b}`;
  }

  close() {
    this.control.abort();
  }

  async start() {
    try {
      this.found = await get("compare", { a: JSON.stringify(this.a), b: JSON.stringify(this.b), limit: this.limit },
        this.control.signal);
      this.error = null;
    } catch (error) {
      if (!isAbort(error)) this.error = error;
    }
    this.app.redraw();
  }

  refresh() {
    this.start();
  }

  keys() {
    return [
      { key: "n", label: "To the first difference",
        run: () => document.getElementById("first-difference")?.scrollIntoView({ block: "start" }) },
      { key: "s", label: "Swap the sides", run: () => this.app.go(link.compare(this.b, this.a)) },
    ];
  }

  draw() {
    const { found } = this;
    const under = h("div", { class: "line wrap" }, sessionLink(this.a), h("span", { class: "muted" }, "and"),
      sessionLink(this.b));
    const top = head("Side by side", { crumb: h("a", { href: "/" }, "Sessions"), under,
        actions: [button("First difference", () => this.keys()[0].run(), { key: "n" }),
          button("Swap", () => this.keys()[1].run(), { key: "s" })] });
    if (this.error) return h("div", { class: "body", key: "compare" }, top,
      h("div", { class: "pad" }, errorBox(this.error)));
    if (!found) return h("div", { class: "body", key: "compare" }, top, h("p", { class: "pad muted" }, "Comparing…"));
    return h("div", { class: "body", key: "compare" }, top,
      h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Comparison" },
        h("div", { class: "stack" },
        h("p", { class: "note" }, found.ancestor
          ? ["Both come from ", idLink(found.ancestor.checkpoint_id,
              `${found.ancestor.step_index ?? ""} ${found.ancestor.step_name || found.ancestor.short_id}`), ", saved ",
            time(found.ancestor.created_at), "."] : "These two have no checkpoint in common."),
        this.drawFirst(found.first_difference, found.ancestor),
        h("div", { class: "pair" }, this.drawSide(found.a, found.first_difference, "a"),
          this.drawSide(found.b, found.first_difference, "b")),
        found.paths?.length > 0 && card("Where they differ", null,
          table("Differences by path", [["Path"], [`${this.a}`, "right"], [`${this.b}`, "right"], ["Heads", "right"]],
          found.paths.slice(0, 100).map((one) => [h("code", null, one.path), counts(one.a), counts(one.b),
              counts(one.between)]))),
        card("Differences of the heads", h("span", { class: "muted small" },
            f.plural(found.edits_total ?? found.edits.length, "difference")),
          found.edits.length ? found.edits.slice(0, 200).map((edit, at) => drawEdit(edit, { key: at }))
          : h("p", { class: "muted" }, "Both heads have the same state.")),
        commands({ shell: `holdfast compare ${f.shell(this.a)} ${f.shell(this.b)}`,
            python: `client.compare(${f.python(this.a)}, ${f.python(this.b)})` }, (line) => this.app.copy(line)))));
  }

  drawFirst(first, ancestor) {
    if (!first) return empty("diff", "No step differs",
      h("p", null, "As far as both go, each step has the same state."));
    const side = (one) => (one ? idLink(one.checkpoint_id,
        `${one.step_index ?? ""} ${one.step_name || one.short_id}`) : h("span", { class: "muted" }, "has ended"));
    return h("section", { class: "card is-current", id: "first-difference" },
      h("header", null, h("h2", { class: "grow" },
          `First difference: step ${f.count(first.index + 1)}${ancestor ? " after the fork" : ""}`),
        first.a && first.b && h("a", { class: "button tiny",
            href: link.diff(first.a.checkpoint_id, first.b.checkpoint_id) }, "Diff")),
      h("div", { class: "inside stack-tight" },
        h("div", { class: "line wrap" }, side(first.a), h("span", { class: "muted" }, "and"), side(first.b)),
        (first.edits ?? []).map((edit, at) => drawEdit(edit, { key: at }))));
  }

  drawSide(side, first, name) {
    const total = side.steps_total ?? side.steps.length;
    const more = () => {
      this.limit *= 5;
      this.start();
    };
    const usage = Object.entries(side.usage ?? {});
    return h("section", { class: "card" }, h("header", null, h("h2", { class: "grow clip" }, side.session_id),
        h("span", { class: "muted small num" }, f.plural(total, "step"))),
      h("div", { class: "inside stack-tight" },
        (usage.length > 0 || side.outcome) && facts([...usage.map(([key, value]) =>
              ([key.replaceAll("_", " "), f.count(value)])), ["Outcome", side.outcome && f.inline(side.outcome)]]),
        h("ol", { class: "stack-tight" }, side.steps.map((one, at) =>
            h("li", { class: `line step ${first?.index === at ? "is-first" : ""}`, key: one.checkpoint_id },
          h("span", { class: "muted num small" }, one.step_index ?? at + 1),
            h("span", { class: "grow clip" }, idLink(one.checkpoint_id, one.step_name || one.short_id)),
            first?.index === at && h("span", { class: "chip accent" }, "differs"),
            time(one.created_at, "muted small")))),
        total > side.steps.length && button(`${f.count(total - side.steps.length)} more`, more,
          { kind: "quiet tiny" }),
        (side.files ?? []).slice(0, 30).map((change) =>
          h("div", { class: "line", key: `${name}${change.path}` }, fileStatus(change.status),
            h("span", { class: "mono clip" }, change.path)))));
  }
}

function counts(one) {
  const parts = [["+", one?.added], ["−", one?.removed], ["~", one?.changed]].filter(([, value]) => value > 0);
  return parts.length ? parts.map(([sign, value]) => `${sign}${value}`).join(" ") : "";
}
