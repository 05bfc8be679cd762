/** A list of any length: pages from the server, rows in the document only where they are visible. */

import { isAbort } from "./api.js";
import { h } from "./dom.js";

export const PAGE = 100;
const PAGES_KEPT = 24;
const OVERSCAN = 6;
let ids = 0;

/**
 * @typedef {{rows: any[], total: number, [more: string]: any}} Page
 * `select` gets no row while the selected one is still read.
 *
 * @typedef {{load: (offset: number, limit: number, signal: AbortSignal) => Promise<Page>,
 *   row: (row: any, index: number) => any, keyOf: (row: any) => string, open?: (row: any) => void,
 *   hrefOf?: (row: any) => string, select?: (row: any, index: number) => void, redraw: () => void,
 *   label: string, rowHeight?: number, empty: () => any, rowClass?: (row: any) => string}} Options
 */
export class VirtualList {
  constructor(options) {
    this.options = options;
    this.id = `list-${(ids += 1)}`;
    this.rowHeight = options.rowHeight ?? 40;
    this.total = -1;
    this.selected = 0;
    /** Rows that arrived while the reader was not at the top. */
    this.waiting = 0;
    /** Whether the selection stays at its place, instead of with its row. */
    this.follows = false;
    this.again = false;
    this.selectOnceLoaded = false;
    this.error = null;
    this.head = null;
    this.pages = new Map();
    this.loading = new Map();
    this.top = 0;
    this.height = 600;
    this.box = null;
    this.resize = new ResizeObserver(() => this.measure());
  }

  measure() {
    if (!this.box || (this.box.clientHeight === this.height && this.box.scrollTop === this.top)) return;
    this.height = this.box.clientHeight;
    this.top = this.box.scrollTop;
    this.options.redraw();
  }

  close() {
    this.resize.disconnect();
    for (const one of this.loading.values()) one.abort();
    this.loading.clear();
  }

  /** Forgets everything and begins at the first row: for another query. */
  reset() {
    for (const one of this.loading.values()) one.abort();
    this.loading.clear();
    this.pages.clear();
    this.total = -1;
    this.selected = 0;
    this.waiting = 0;
    this.error = null;
    this.top = 0;
    if (this.box) this.box.scrollTop = 0;
    this.options.redraw();
  }

  /** Reads again what is visible. Rows stay until the new ones are here, so nothing jumps. */
  async refresh() {
    if (this.loading.has(-1)) {
      this.again = true;
      return;
    }
    const first = this.visible()[0];
    const page = Math.floor(first / PAGE);
    const control = new AbortController();
    this.loading.set(-1, control);
    try {
      const selected = this.rowAt(this.selected);
      const before = this.total;
      const answer = await this.options.load(page * PAGE, PAGE, control.signal);
      const last = Math.floor(this.visible()[1] / PAGE);
      const second = last > page ? await this.options.load(last * PAGE, PAGE, control.signal) : null;
      this.pages.clear();
      this.store(page, answer);
      if (second) this.store(last, second);
      this.waiting = 0;
      this.error = null;
      if (selected && !this.follows) this.keepSelected(selected, before);
    } catch (error) {
      if (!isAbort(error)) this.error = error;
    } finally {
      this.loading.delete(-1);
      this.options.redraw();
    }
    if (this.again) {
      this.again = false;
      await this.refresh();
    }
  }

  /** The selection stays with its row, wherever the row is now. */
  keepSelected(row, before) {
    const key = this.options.keyOf(row);
    for (const [page, rows] of this.pages) {
      const at = rows.findIndex((one) => this.options.keyOf(one) === key);
      if (at >= 0) {
        this.selected = page * PAGE + at;
        return;
      }
    }
    if (this.total > before) this.selected += this.total - before;
  }

  /** New rows exist: shows them if the reader is at the top, and counts them otherwise. */
  arrive(count = 1) {
    if (this.top < this.rowHeight) this.refresh();
    else {
      this.waiting += count;
      this.options.redraw();
    }
  }

  store(page, answer) {
    this.pages.delete(page);
    this.pages.set(page, answer.rows);
    this.total = answer.total;
    this.head = answer;
    this.selected = Math.max(0, Math.min(this.selected, this.total - 1));
    for (const old of this.pages.keys()) {
      if (this.pages.size <= PAGES_KEPT) break;
      this.pages.delete(old);
    }
  }

  async load(page) {
    const control = new AbortController();
    this.loading.set(page, control);
    try {
      this.store(page, await this.options.load(page * PAGE, PAGE, control.signal));
      this.error = null;
    } catch (error) {
      if (!isAbort(error)) this.error = error;
    } finally {
      if (this.loading.get(page) === control) this.loading.delete(page);
      this.options.redraw();
    }
  }
  visible() {
    const first = Math.max(0, Math.floor(this.top / this.rowHeight) - OVERSCAN);
    const last = Math.ceil((this.top + this.height) / this.rowHeight) + OVERSCAN;
    return [first, Math.min(last, this.total < 0 ? last : this.total - 1)];
  }

  rowAt(index) {
    return this.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
  }

  /** Makes the row with this index the selected one and brings it into view. */
  go(index) {
    if (this.total <= 0) return;
    this.selected = Math.max(0, Math.min(index, this.total - 1));
    this.reveal();
    const row = this.rowAt(this.selected);
    this.options.select?.(row ?? null, this.selected);
    this.selectOnceLoaded = !row;
    this.options.redraw();
  }

  reveal() {
    if (!this.box) return;
    const top = this.selected * this.rowHeight;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + this.rowHeight > this.box.scrollTop + this.height) {
      this.box.scrollTop = top + this.rowHeight - this.height;
    }
    this.top = this.box.scrollTop;
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.height / this.rowHeight) - 1);
    const moves = {
      ArrowDown: this.selected + 1, ArrowUp: this.selected - 1, j: this.selected + 1, k: this.selected - 1,
      PageDown: this.selected + page, PageUp: this.selected - page, Home: 0, End: this.total - 1,
    };
    const target = moves[event.key];
    if (target !== undefined) this.go(target);
    else if (event.key === "Enter" && this.rowAt(this.selected)) this.options.open?.(this.rowAt(this.selected));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  draw() {
    const { options } = this;
    if (this.error && this.total < 0) return h("div", { class: "pad" }, errorBox(this.error));
    if (this.total === 0) return options.empty();
    const [first, last] = this.visible();
    const rows = [];
    for (let index = first; index <= last; index += 1) {
      const page = Math.floor(index / PAGE);
      if (!this.pages.has(page) && !this.loading.has(page) && !this.error) this.load(page);
      if (this.total >= 0) rows.push(this.drawRow(index));
    }
    const current = this.rowAt(this.selected);
    if (current && this.selectOnceLoaded) {
      this.selectOnceLoaded = false;
      queueMicrotask(() => options.select?.(current, this.selected));
    }
    const inView = this.selected >= first && this.selected <= last;
    return h(
      "div",
      { class: "list-frame", key: this.id },
      this.waiting > 0 && h("button", { class: "arrivals", onclick: () => this.showNew() }, `${this.waiting} new ↑`),
      h(
        "div",
        {
          class: "list", role: "listbox", tabindex: "0", "aria-label": options.label,
            "aria-busy": String(this.total < 0),
          "aria-activedescendant": inView && this.total > 0 ? `${this.id}-${this.selected}` : undefined,
          onkeydown: (event) => this.onKey(event),
          onscroll: () => this.measure(),
          ref: (node) => {
            this.box = node;
            this.resize.disconnect();
            this.resize.observe(node);
          },
        },
        h("div", { class: "list-space", role: "presentation",
            style: { height: `${Math.max(0, this.total) * this.rowHeight}px` } }, rows),
      ),
      this.error && errorBox(this.error),
    );
  }

  drawRow(index) {
    const { options } = this;
    const row = this.rowAt(index);
    const href = row && options.hrefOf?.(row);
    const style = { transform: `translateY(${index * this.rowHeight}px)`, height: `${this.rowHeight}px` };
    return h(
      href ? "a" : "div",
      {
        key: index, id: `${this.id}-${index}`, href, style, role: "option", tabindex: href ? "-1" : undefined,
        class: `row ${index === this.selected ? "is-selected" : ""} ${row ? (options.rowClass?.(row) ?? "") : "is-pending"}`,
        "aria-selected": String(index === this.selected), "aria-posinset": index + 1, "aria-setsize": this.total,
        onclick: (event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
          event.preventDefault();
          this.go(index);
          this.box?.focus({ preventScroll: true });
          if (row && !options.select) options.open?.(row);
        },
        ondblclick: () => row && options.open?.(row),
      },
      row ? options.row(row, index) : h("span", { class: "ghost" }, "…"),
    );
  }

  showNew() {
    if (this.box) this.box.scrollTop = 0;
    this.top = 0;
    this.refresh().then(() => this.go(0));
    this.box?.focus();
  }
}

/** An error as a sentence, with what to do next. */
export function errorBox(error) {
  return h(
    "div",
    { class: "error-box", role: "alert" },
    h("p", null, error?.message ?? String(error)),
    error?.next && h("p", { class: "muted" }, error.next),
  );
}
