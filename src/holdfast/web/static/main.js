/** The page: its frame, its address, its keys, and the screen that is open. */

import { Sheet } from "./action.js";
import { connection, get, post } from "./api.js";
import { h, render } from "./dom.js";
import * as f from "./format.js";
import { icon } from "./icons.js";
import { dispatch } from "./keys.js";
import { errorBox } from "./list.js";
import * as live from "./live.js";
import { Palette } from "./palette.js";
import { button, empty, head } from "./parts.js";
import { match } from "./router.js";

/** A screen is read when it is opened first. */
const ROUTES = {
  "/": () => import("./screens/sessions.js"),
  "/s/:session": () => import("./screens/timeline.js"),
  "/c/:id/:tab?": () => import("./screens/checkpoint.js"),
  "/diff/:a/:b?": () => import("./screens/diff.js"),
  "/compare/:a/:b": () => import("./screens/compare.js"),
  "/runs": () => import("./screens/runs.js"),
  "/approvals": () => import("./screens/approvals.js"),
  "/inbox": () => import("./screens/inbox.js"),
  "/effects": () => import("./screens/effects.js"),
  "/topics": () => import("./screens/topics.js"),
  "/topics/:topic": () => import("./screens/topic.js"),
  "/team/:session?": () => import("./screens/team.js"),
  "/storage": () => import("./screens/storage.js"),
  "/log": () => import("./screens/log.js"),
};
const STATES = { live: "Live", connecting: "Connecting…", offline: "Not live: the server does not answer",
  "signed out": "Not live: signed out" };

const root = document.getElementById("app");

class App {
  constructor() {
    this.status = null;
    this.error = null;
    this.screen = null;
    this.opened = ""; // the path whose screen this is
    this.sheet = null;
    this.toasts = [];
    this.doubts = 0;
    this.sheets = 0;
    this.lost = false;
    this.isBehind = false;
    this.redraw = this.redraw.bind(this);
  }

  start() {
    connection.listeners.add(() => this.watch());
    addEventListener("popstate", () => this.open());
    // A sheet that is on its way takes the keys, too: none acts on the screen under it.
    addEventListener("keydown", (event) => this.sheet && !document.querySelector("dialog[open]")
      || dispatch(event, [this.keys(), this.isDrawn() ? this.screenKeys() : []]));
    document.addEventListener("click", (event) => this.follow(event));
    live.listen((event) => this.hear(event));
    this.open();
    this.loading = this.loadStatus();
    this.loading.then(() => live.start(this.status?.cursor));
    setInterval(this.redraw, 30_000); // ages of things
  }

  /** Catches up once the server answers again: what failed meanwhile is read again. */
  watch() {
    if (connection.state === "offline") this.isBehind = true;
    if (connection.state === "live" && this.isBehind) {
      this.isBehind = false;
      if (this.opened === location.pathname) this.refresh();
      else this.open(); // the script of its screen did not come
      this.loadStatus();
    }
    this.redraw();
  }

  async loadStatus() {
    try {
      const [status, effects] = await Promise.all([get("status"), get("effects", { state: "in_doubt", limit: 1 })]);
      this.status = status;
      this.doubts = effects.total ?? effects.effects.length;
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    this.redraw();
  }

  hear(event) {
    if (event.kind !== "checkpoint" && event.kind !== "hello") {
      clearTimeout(this.statusTimer);
      this.statusTimer = setTimeout(() => this.loadStatus(), 200);
    }
    if (event.kind === "resync") this.refresh();
    else this.screen?.hear?.(event);
  }

  refresh() {
    this.screen?.refresh?.();
  }

  /** Follows links of this page without loading it again. */
  follow(event) {
    const target = event.target;
    const found = target?.closest?.("a[href]");
    if (!found || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey
      || event.shiftKey) return;
    const href = found.getAttribute("href");
    if (found.hasAttribute("download") || !href.startsWith("/")) return;
    event.preventDefault();
    this.go(href);
  }

  go(href) {
    history.pushState(null, "", href);
    this.open();
  }

  /** Changes the address of the open screen and keeps the screen. */
  replace(href) {
    if (href !== location.pathname + location.search) history.replaceState(null, "", href);
    this.opened = location.pathname;
  }

  async open() {
    const address = location.href;
    const found = match(ROUTES, location.pathname);
    const query = new URLSearchParams(location.search);
    if (found && this.route === found.screen && this.screen?.accepts?.(found.params, query)) {
      this.opened = location.pathname;
      return this.redraw();
    }
    this.sheet = null;
    let screen = null;
    try {
      screen = found && (await found.screen()).default;
    } catch {
      connection.set("offline");
      return;
    }
    if (location.href !== address) return; // the reader is elsewhere already
    this.opened = location.pathname;
    this.screen?.close?.();
    this.lost = !screen;
    this.route = found?.screen;
    this.screen = screen ? new screen(this, found.params, query) : null;
    this.screen?.start?.();
    this.redraw();
    requestAnimationFrame(() => document.querySelector(".places [aria-current]")?.scrollIntoView({ block: "nearest" }));
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.draw();
    });
  }

  // Actions

  async act(action) {
    if (!this.status) await this.loading; // a key of the first moment
    if (!this.status) this.toast("The server has not said yet what may be changed here. Try again in a moment.");
    else if (!this.status.writable) this.toast(this.status.read_only_because
      ?? "This server is read-only: start `holdfast ui --write` to change something.");
    else this.openSheet(new Sheet(action, this));
  }

  openSheet(sheet) {
    if (!this.sheet) this.returnTo = document.activeElement;
    this.sheets += 1;
    this.sheet = sheet;
    this.redraw();
  }

  closeSheet() {
    this.sheet = null;
    this.redraw();
    const back = this.returnTo;
    requestAnimationFrame(() => this.sheet || (back?.isConnected && back.focus?.({ preventScroll: true })));
  }

  toast(text, operation = undefined) {
    const id = Math.random();
    this.toasts = [...this.toasts.slice(-2), { id, text, operation }];
    setTimeout(() => this.dismiss(id), operation ? 12_000 : 5_000);
    this.redraw();
  }

  dismiss(id) {
    this.toasts = this.toasts.filter((one) => one.id !== id);
    this.redraw();
  }

  async undo(toast) {
    this.dismiss(toast.id);
    try {
      await post("undo", { operation: toast.operation });
      this.toast("Undone.");
      this.refresh();
    } catch (error) {
      this.toast(error.message);
    }
  }

  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      this.toast("Copied.");
    } catch {
      this.toast("The browser does not allow copying: select the text.");
    }
  }

  // Keys

  keys() {
    const keys = [
      { key: "?", label: "Show keys", run: () => this.openSheet({ help: true }) },
      { key: "Ctrl+k", label: "Open the palette", run: () => this.openSheet(new Palette(this)) },
      { key: "Escape", label: "Close or leave a field",
        run: () => (this.sheet ? this.closeSheet() : document.activeElement?.blur()) },
      { key: "/", label: "Search", run: () => document.querySelector("[data-search]")?.focus() },
    ];
    return [...keys, ...this.places().slice(0, 9)
      .map((one, index) => ({ key: `Ctrl+${index + 1}`, label: `Go to ${one.label}`, run: () => this.go(one.href),
            hidden: true }))];
  }

  /** Whether what the reader sees is what the address says: a key never acts on the screen before. */
  isDrawn() {
    return root.dataset.drawn === location.pathname;
  }

  screenKeys() {
    return this.screen?.keys?.() ?? [];
  }

  places() {
    return [
      { href: "/", label: "Sessions", symbol: "sessions", count: 0 },
      { href: "/runs", label: "Runs", symbol: "runs", count: 0 },
      { href: "/approvals", label: "Approvals", symbol: "approvals", count: this.status?.approvals ?? 0 },
      { href: "/inbox", label: "Inbox", symbol: "inbox", count: 0 },
      { href: "/effects", label: "Effects", symbol: "effects", count: this.doubts, doubt: true },
      { href: "/topics", label: "Topics", symbol: "topics", count: 0 },
      { href: "/team", label: "Team", symbol: "team", count: 0 },
      { href: "/storage", label: "Storage", symbol: "storage", count: 0 },
      { href: "/log", label: "Log", symbol: "log", count: 0 },
    ];
  }

  // Drawing

  draw() {
    const { screen } = this;
    const title = screen?.title?.() ?? (this.lost ? "Not found" : "Opening");
    document.title = `${title} · holdfast`;
    render(root,
      h("div", { class: "frame" }, h("a", { class: "skip", href: "#screen", onclick: (event) => this.skip(event) },
          "Skip to the content"), this.drawSide(),
        h("main", { class: "main", id: "screen", tabindex: "-1", "aria-label": title, key: "main" },
          this.drawBanner(), screen ? screen.draw() : this.lost && this.drawLost())),
      h("div", { class: "toasts", role: "status", "aria-live": "polite", key: "toasts" }, this.toasts.map((one) =>
        h("div", { class: "toast fade", key: one.id }, h("span", { class: "grow" }, one.text),
          one.operation && button("Undo", () => this.undo(one), { kind: "tiny" })))),
      this.drawSheet());
    root.dataset.drawn = this.opened;
  }

  skip(event) {
    event.preventDefault();
    document.getElementById("screen")?.focus();
  }

  drawLost() {
    return h("div", { class: "body" }, head("There is no such page"), empty("search", "The address leads nowhere",
        h("a", { href: "/" }, "Go to the sessions")));
  }

  drawBanner() {
    const state = connection.state;
    if (state === "signed out") return h("div", { class: "banner", role: "alert" }, "This page is signed out. Run ",
      h("code", null, "holdfast ui"), " again, or open the link that it printed.");
    if (state === "offline") return h("div", { class: "banner", role: "alert" },
      "Not live: the server does not answer. What you see may be old. This page tries again by itself.");
    if (this.error) return errorBox(this.error);
    return null;
  }

  drawSide() {
    const { status } = this;
    const state = connection.state;
    const place = location.pathname === "/"
      || /^\/(s|c|diff|compare)\//.test(location.pathname) ? "/" : `/${location.pathname.split("/")[1]}`;
    return h("nav", { class: "side", "aria-label": "Places" },
      h("a", { class: "brand", href: "/", "aria-label": "holdfast: sessions" }, icon("mark"),
        h("span", null, "holdfast")),
      h("div", { class: "places" }, this.places()
        .map((one) => h("a", { key: one.href, href: one.href,
              "aria-current": one.href === place ? "page" : undefined },
        icon(one.symbol), one.label, one.count > 0
          && h("span", { class: `badge ${one.doubt ? "doubt" : ""}`,
              "aria-label": `${one.count} ${one.doubt ? "in doubt" : "waiting"}` }, f.count(one.count))))),
      h("div", { class: "side-foot" },
        h("button", { type: "button", class: "button find", onclick: () => this.openSheet(new Palette(this)) },
          icon("search"), h("span", { class: "grow" }, "Search"), h("kbd", { "aria-hidden": "true" }, "Ctrl K")),
        status && h("div", { class: "store small muted" },
          h("div", { class: "clip", title: status.store },
            status.source === "bundle" ? "Exported file" : status.store),
          h("div", null, `${f.bytes(status.stored_bytes)}${status.writable ? "" : " · read-only"}`)),
        h("div", { class: `live is-${state.replace(" ", "-")}`, role: "status", title: STATES[state] },
          h("span", null, STATES[state].split(":")[0]))));
  }

  drawSheet() {
    if (!this.sheet) return null;
    const palette = this.sheet instanceof Palette;
    const show = (node) => queueMicrotask(() => {
      node.showModal();
      const first = node.querySelector("[role=combobox], .inside input, .inside textarea, .inside select")
        ?? node.querySelector("[data-first]");
      if (first?.tagName === "TEXTAREA") first.setSelectionRange(0, 0); // its beginning is shown
      first?.focus();
    });
    const close = (event) => {
      event.preventDefault();
      this.closeSheet();
    };
    // Pressed outside, not released there: selecting a text may end anywhere. What was typed is not lost.
    const outside = (event) => event.target?.tagName === "DIALOG" && !this.sheet?.changed && this.closeSheet();
    return h("dialog", { key: `sheet-${this.sheets}`, class: palette ? "palette" : "", ref: show,
        oncancel: close, onpointerdown: outside, "aria-label": palette ? "Palette" : undefined,
        "aria-labelledby": palette ? undefined : "sheet-title" },
      this.sheet.help ? this.drawHelp() : this.sheet.draw());
  }

  drawHelp() {
    const list = (keys) => h("ul", { class: "keys" },
      keys.filter((one) => !one.hidden).map((one) =>
        h("li", null, one.label, h("kbd", null, one.key.replace("+", " ")))));
    const screen = this.screenKeys();
    const inLists = [["↓ / j", "Next row"], ["↑ / k", "Row before"], ["Home / End", "First, last row"],
      ["Enter", "Open"]];
    return h("div", { class: "sheet" },
      h("header", null, h("h2", { class: "grow", id: "sheet-title" }, "Keys"),
        button("", () => this.closeSheet(), { kind: "quiet", symbol: "close", "aria-label": "Close" })),
      h("div", { class: "inside", tabindex: "0", role: "group", "aria-label": "Keys" },
        screen.length > 0 && h("h3", null, "On this screen"), screen.length > 0 && list(screen),
        h("h3", null, "In lists"),
        list(inLists.map(([key, label]) => ({ key, label }))), h("h3", null, "Everywhere"), list(this.keys())));
  }
}

new App().start();
