/** A screen over one list of the API: reads it, says what is missing, and reads it again when told. */

import { get, isAbort } from "../api.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { errorBox } from "../list.js";
import { button, head, throttle } from "../parts.js";

export class Pages {
  constructor(app, path, name, cursor = "after") {
    this.app = app;
    this.path = path;
    this.name = name;
    this.cursor = cursor;
    this.answer = null;
    this.rows = [];
    this.error = null;
    /** The selected row; -1 if it went away: then no key acts until the reader has chosen another one. */
    this.current = 0;
    /** The selected row that the last answer lacked, and where it was. */
    this.gone = null;
    this.asked = "";
    this.loads = 0;
    this.control = new AbortController();
    this.reload = throttle(() => this.load(), 500);
    /** Seconds after which the list is read again, for what no event tells; 0: never. */
    this.seconds = 0;
  }

  /** What tells rows apart. */
  keyOf(row) {
    return row?.approval_id ?? row?.effect_id ?? row?.operation_id ?? row?.handoff_id ?? row?.cursor ?? row?.topic
      ?? row?.session_id;
  }

  /** What the list is asked for; a screen adds its filters. */
  query() {
    return {};
  }

  start() {
    this.load();
    if (this.seconds) this.timer = setInterval(() => document.hidden || this.reload(), this.seconds * 1000);
  }

  close() {
    clearInterval(this.timer);
    this.control.abort();
  }

  refresh() {
    this.reload();
  }

  hear(_event) {
    this.reload();
  }

  async load() {
    this.loads += 1;
    const mine = this.loads;
    try {
      const answer = await get(this.path, { limit: Math.min(1000, Math.max(100, this.rows.length)), ...this.query() },
        this.control.signal);
      if (mine !== this.loads) return; // another query was asked since
      this.answer = answer;
      const asked = JSON.stringify(this.query());
      this.show(answer[this.name], asked !== this.asked ? 0 : -1);
      this.asked = asked;
      this.error = null;
    } catch (error) {
      if (mine !== this.loads) return;
      if (!isAbort(error)) this.error = error;
    }
    this.app.redraw();
  }

  /** Shows these rows. The selection stays with its row; if that is gone, it goes to `otherwise`. */
  show(rows, otherwise) {
    const before = this.rows[this.current];
    const selected = this.keyOf(before);
    const at = before ? rows.findIndex((row) => this.keyOf(row) === selected) : -1;
    const isFirst = this.rows.length === 0;
    if (before) this.gone = at < 0 ? { key: selected, at: this.current } : null;
    this.rows = rows;
    this.current = at >= 0 ? at : Math.min(isFirst ? 0 : otherwise, rows.length - 1);
  }

  /** Replaces a row, or removes it, before the list is read again: the next key must not act on it. */
  settle(row, now) {
    this.loads += 1; // an answer that is on its way is older
    const same = (one) => this.keyOf(one) === this.keyOf(row);
    // The list may have been read again, without the row, before the answer to what was done with it came.
    const at = this.current < 0 && this.gone?.key === this.keyOf(row) ? this.gone.at : this.current;
    this.show(this.rows.flatMap((one) => (same(one) ? now ?? [] : one)), at);
    if (!now && this.answer?.total) this.answer = { ...this.answer, total: this.answer.total - 1 };
    this.app.redraw();
    this.app.refresh();
  }

  async more() {
    try {
      const answer = await get(this.path, { ...this.query(), limit: 100, [this.cursor]: this.answer.next },
        this.control.signal);
      this.rows = [...this.rows, ...answer[this.name]];
      this.answer = { ...this.answer, next: answer.next };
    } catch (error) {
      if (!isAbort(error)) this.app.toast(error.message);
    }
    this.app.redraw();
  }

  /** Moves to another row by keyboard, and shows it. */
  move(step) {
    this.current = Math.max(0, Math.min(this.rows.length - 1, this.current + step));
    this.app.redraw();
    requestAnimationFrame(() => document.getElementById(`row-${this.current}`)?.scrollIntoView({ block: "nearest" }));
  }

  moveKeys() {
    return [
      { key: "j", label: "Next", run: () => this.move(1), hidden: true },
        { key: "ArrowDown", label: "Next", run: () => this.move(1), hidden: true },
      { key: "k", label: "Before", run: () => this.move(-1), hidden: true },
        { key: "ArrowUp", label: "Before", run: () => this.move(-1), hidden: true },
    ];
  }

  drawPage(title, more, content) {
    return h("div", { class: "body", key: this.path }, head(title, more), more.toolbar,
      h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title }, h("div", { class: "stack" },
        this.error && errorBox(this.error), this.answer?.damaged?.length > 0 && this.drawDamaged(), !this.answer && !this.error && h("p", { class: "muted" }, "Reading…"),
          this.answer && content,
        this.answer?.next && button("Show more", () => this.more(), { kind: "quiet" }))));
  }

  /** What the server could not read; the list has everything else. */
  drawDamaged() {
    const { damaged } = this.answer;
    return h("div", { class: "error-box", role: "alert", key: "damaged" },
      h("p", null, `${f.plural(damaged.length, "entry", "entries")} can't be read. All others are shown.`),
      h("ul", null, damaged.slice(0, 20).map((said, at) => h("li", { key: at }, said))));
  }
}
