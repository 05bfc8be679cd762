/** The differences of two checkpoints: state, messages and files on one page. */

import { get, isAbort } from "../api.js";
import { h } from "../dom.js";
import { drawEdit, drawFileLines, drawMessage, fileStatus } from "../edits.js";
import * as f from "../format.js";
import { errorBox } from "../list.js";
import { button, commands, empty, head, time } from "../parts.js";
import { link } from "../router.js";

export default class DiffScreen {
  constructor(app, params) {
    this.app = app;
    this.a = params.b === undefined ? null : params.a;
    this.b = params.b ?? params.a;
    this.diff = null;
    this.error = null;
    this.current = -1;
    this.files = new Map();
    this.limit = 200;
    this.control = new AbortController();
  }

  title() {
    return "Differences";
  }

  close() {
    this.control.abort();
  }

  async start() {
    try {
      this.diff = await get("diff", { a: this.a && JSON.stringify(this.a), b: JSON.stringify(this.b),
          limit: this.limit }, this.control.signal);
      this.error = null;
    } catch (error) {
      if (!isAbort(error)) this.error = error;
    }
    this.app.redraw();
  }

  refresh() {
    if (this.error) this.start();
  }

  async openFile(change) {
    if (this.files.delete(change.path)) return this.app.redraw();
    this.files.set(change.path, null);
    this.app.redraw();
    try {
      this.files.set(change.path, await get("diff/file",
          { a: JSON.stringify(this.diff.a.checkpoint_id), b: JSON.stringify(this.diff.b.checkpoint_id),
            path: JSON.stringify(change.path) }, this.control.signal));
    } catch (error) {
      if (!isAbort(error)) this.files.set(change.path, { error });
    }
    this.app.redraw();
  }

  move(step) {
    const count = document.querySelectorAll(".edit, .message, .file-change").length;
    if (!count) return;
    this.current = (this.current + step + count) % count;
    const node = document.querySelectorAll(".edit, .message, .file-change")[this.current];
    for (const one of document.querySelectorAll(".is-here")) one.classList.remove("is-here");
    node.classList.add("is-here");
    node.scrollIntoView({ block: "center" });
  }

  keys() {
    const { app, diff } = this;
    return [
      { key: "n", label: "Next difference", run: () => this.move(1) },
      { key: "p", label: "Difference before", run: () => this.move(-1) },
      { key: "s", label: "Swap the sides", run: () =>
        diff && app.go(link.diff(diff.b.checkpoint_id, diff.a.checkpoint_id)) },
      { key: "b", label: "Back to the timeline",
        run: () => diff && app.go(link.session(diff.b.session_id, diff.b.checkpoint_id)) },
    ];
  }

  draw() {
    const { diff, app } = this;
    if (this.error) return h("div", { class: "body", key: "diff" }, head("Differences"),
      h("div", { class: "pad" }, errorBox(this.error)));
    if (!diff) return h("div", { class: "body", key: "diff" }, head("Differences"),
      h("p", { class: "pad muted" }, "Comparing…"));
    const side = (one) => (one ? h("a", { href: link.checkpoint(one.checkpoint_id) },
        `${one.step_index ?? ""} ${one.step_name ?? ""} (${one.short_id})`) : "nothing");
    const edits = diff.edits ?? [];
    const { removed = [], added = [], common = 0 } = diff.messages ?? {};
    const changes = diff.changes ?? [];
    const none = edits.length + removed.length + added.length + changes.length === 0;
    const a = diff.a?.checkpoint_id;
    const more = () => {
      this.limit *= 5;
      this.start();
    };
    return h("div", { class: "body", key: "diff" },
      head("Differences", { crumb: [h("a", { href: "/" }, "Sessions"), " / ",
            h("a", { href: link.session(diff.b.session_id, diff.b.checkpoint_id) }, diff.b.session_id)],
        under: h("div", { class: "line wrap" }, side(diff.a), h("span", { class: "muted" }, "→"), side(diff.b),
          h("span", { class: "muted small" }, time(diff.b.created_at))),
        actions: [button("Before", () => this.move(-1), { key: "p" }),
          button("Next", () => this.move(1), { key: "n" }),
          a && h("a", { class: "button", href: link.diff(diff.b.checkpoint_id, a) }, "Swap",
            h("kbd", { "aria-hidden": "true" }, "s"))] }),
      h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Differences" },
        h("div", { class: "stack" },
        none && empty("diff", "These two are equal",
          h("p", null, "State, context, messages and files are the same.")),
        edits.length > 0 && h("section", { class: "card", key: "state" },
          h("header", null, h("h2", { class: "grow" }, "State"),
            h("span", { class: "muted small" }, f.plural(diff.edits_total ?? edits.length, "difference"))),
          h("div", { class: "inside" }, edits.map((edit, at) => drawEdit(edit, { key: at })),
            diff.edits_total > edits.length && button(`${f.count(diff.edits_total - edits.length)} more`, more,
              { kind: "quiet" }))),
        removed.length + added.length > 0 && h("section", { class: "card", key: "talk" },
          h("header", null, h("h2", { class: "grow" }, "Messages"),
            h("span", { class: "muted small" }, `${f.count(common)} in common`)),
          h("div", { class: "inside" }, removed.map((one, at) =>
              h("div", { class: "said-change", key: `r${at}` }, h("span", { class: "chip bad" }, "removed"),
                drawMessage(one))), added.map((one, at) =>
              h("div", { class: "said-change", key: `a${at}` }, h("span", { class: "chip good" }, "added"), drawMessage(one))))),
        changes.length > 0 && h("section", { class: "card", key: "files" },
          h("header", null, h("h2", { class: "grow" }, "Files"),
            h("span", { class: "muted small" }, f.plural(changes.length, "path"))),
          h("div", { class: "inside stack-tight" },
            changes.slice(0, 500).map((change) => h("div", { class: "stack-tight file-change", key: change.path },
            h("div", { class: "line" }, fileStatus(change.status),
              h("button", { type: "button", class: "more mono clip",
                  "aria-expanded": String(this.files.has(change.path)), onclick: () => this.openFile(change) },
                change.path)),
            this.files.has(change.path) && this.drawFile(this.files.get(change.path)))))),
        (diff.recorded ?? []).length > 0 && h("section", { class: "card", key: "recorded" },
          h("header", null, h("h2", null, "Steps and effects of the run")),
          h("ul", { class: "inside stack-tight" }, diff.recorded.map((one, at) =>
          h("li", { class: "line", key: at }, h("span", { class: `chip ${one.came ? "good" : "bad"}` },
              one.came ? "added" : "removed"), h("span", { class: "muted" }, one.kind),
            h("span", { class: "mono" }, one.name), one.effect_state ?? one.status)))),
        a && commands({ shell: `holdfast diff ${f.shell(a)} ${f.shell(diff.b.checkpoint_id)}`,
            python: `client.diff(${f.python(a)}, ${f.python(diff.b.checkpoint_id)})` }, (line) => app.copy(line)))));
  }

  drawFile(answer) {
    if (answer === null) return h("p", { class: "muted" }, "Reading…");
    return answer.error ? errorBox(answer.error) : drawFileLines(answer);
  }
}
