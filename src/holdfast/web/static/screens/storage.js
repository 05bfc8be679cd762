/** What takes how much, what a retention policy would remove, and whether everything is whole. */

import { get, isAbort, post } from "../api.js";
import { h } from "../dom.js";
import * as f from "../format.js";
import { errorBox } from "../list.js";
import { button, card, commands, empty, figures, head, sessionLink, table } from "../parts.js";

const PARTS = [["state", "States"], ["files", "Files"], ["records", "Records"],
  ["indexes", "Indexes and free pages"], ["garbage", "Garbage"]];
const UNITS = { h: 3600, d: 86400, w: 604800 };

export default class Storage {
  constructor(app) {
    this.app = app;
    this.usage = null;
    this.error = null;
    this.policy = { keep_last: "10", keep_every: "", older: "30", unit: "d" };
    this.plan = null;
    this.verified = null;
    this.control = new AbortController();
  }

  title() {
    return "Storage";
  }

  close() {
    this.control.abort();
  }

  async start() {
    try {
      this.usage = await get("du", { limit: 50 }, this.control.signal);
      this.error = null;
    } catch (error) {
      if (!isAbort(error)) this.error = error;
    }
    this.app.redraw();
  }

  refresh() {
    this.start();
  }

  terms() {
    const { keep_last, keep_every, older, unit } = this.policy;
    const number = (text) => (text.trim() === "" ? null : Number(text));
    return { keep_last: number(keep_last), keep_every: number(keep_every),
      older_than: older.trim() === "" ? null : Number(older) * UNITS[unit] };
  }

  async dryRun() {
    this.plan = { busy: true };
    this.app.redraw();
    try {
      this.plan = this.app.status?.writable ? await post("retain/plan", this.terms())
        : await post("retain/plan", { ...this.terms(), dry_run: true });
    } catch (error) {
      this.plan = { error };
    }
    this.app.redraw();
  }

  apply() {
    const { plan } = this.plan;
    this.app.act({
      title: "Apply the retention policy", danger: true, verb: `Remove ${f.plural(this.plan.going, "checkpoint")}`,
        about: "This cannot be undone. Heads, pins, tags and open handoffs stay.",
      path: () => "retain/apply", body: () => ({ plan }), lines: () => this.lines(true),
        done: (answer) => `Removed ${f.plural(answer.going ?? 0, "checkpoint")}.`,
      after: () => {
        this.plan = null;
        this.start();
      },
    });
  }

  async verify() {
    if (this.verified?.busy) return;
    this.verified = { busy: true };
    this.app.redraw();
    try {
      this.verified = await get("verify", {}, this.control.signal);
    } catch (error) {
      if (!isAbort(error)) this.verified = { error };
    }
    this.app.redraw();
  }

  lines(apply) {
    const { keep_last, keep_every, older, unit } = this.policy;
    const terms = this.terms();
    const shell = ["holdfast retain", keep_last && `--keep-last ${f.shell(keep_last)}`,
      keep_every && `--keep-every ${f.shell(keep_every)}`, older && `--older-than ${f.shell(older + unit)}`,
      apply && "--yes"].filter(Boolean).join(" ");
    const named = [terms.keep_last !== null && `keep_last=${terms.keep_last}`,
      terms.keep_every !== null && `keep_every=${terms.keep_every}`,
      terms.older_than !== null && `older_than=timedelta(seconds=${terms.older_than})`,
      apply && "dry_run=False"].filter(Boolean).join(", ");
    return { shell, python: `client.retain(${named})` };
  }

  keys() {
    return [{ key: "v", label: "Verify the store", run: () => this.verify() }];
  }

  draw() {
    const { usage } = this;
    return h("div", { class: "body", key: "storage" },
      head("Storage", { under: h("p", { class: "small muted" }, this.app.status?.store ?? "") ,
          actions: button("Verify", () => this.verify(), { key: "v" }) }),
      h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Storage" },
        h("div", { class: "stack" },
        this.error && errorBox(this.error), !usage && !this.error && h("p", { class: "muted" }, "Measuring…"),
        this.verified && this.drawVerified(), usage && this.drawUsage(usage), this.drawRetention(),
          usage && this.drawSessions(usage),
        usage && commands({ shell: "holdfast du", python: "client.du()" }, (line) => this.app.copy(line)))));
  }

  drawVerified() {
    const found = this.verified;
    if (found.busy) return h("p", { class: "note" }, "Reading everything and checking it. This may take a while.");
    if (found.error) return errorBox(found.error);
    if (found.ok) return h("p", { class: "note", role: "status" },
      `${f.plural(found.checked, "checkpoint")} checked: everything is whole.`);
    return h("div", { class: "error-box", role: "alert" },
      h("p", null, `${f.plural(found.problems.length, "problem")} in ${f.plural(found.checked, "checkpoint")}:`),
      h("ul", null, found.problems.slice(0, 50).map((one, at) => h("li", { key: at }, one.message))));
  }

  drawUsage(usage) {
    const parts = PARTS.map(([name, label], tone) =>
      ({ name, label, tone, bytes: usage.parts?.[name]?.total_bytes ?? usage.parts?.[name] ?? 0 }))
    .filter((one) => one.bytes > 0);
    const whole = Math.max(1, parts.reduce((sum, one) => sum + one.bytes, 0));
    const ratio = usage.logical_bytes && usage.total_bytes ? usage.logical_bytes / usage.total_bytes : null;
    return card("What takes the space", null, this.drawDamaged(usage),
      figures([["On disk", f.bytes(usage.total_bytes)],
          ["Without sharing", usage.logical_bytes ? f.bytes(usage.logical_bytes) : "–"],
          ["Saved by sharing", ratio && ratio > 1 ? `${ratio.toFixed(1)} ×` : "–"],
          ["gc would free", usage.damaged_total ? "–" : f.bytes(usage.unused_bytes)]]),
      h("div", { class: "share", role: "img",
          "aria-label": parts.map((one) => `${one.label} ${f.bytes(one.bytes)}`).join(", ") },
        parts.map((one) => h("i", { key: one.name, class: `tone-${one.tone}`,
              style: { width: `${(one.bytes / whole) * 100}%` } }))),
      h("ul", { class: "line wrap legend small muted" },
        parts.map((one) => h("li", { class: "line", key: one.name }, h("span", { class: `swatch tone-${one.tone}` }),
            one.label, h("span", { class: "num" }, f.bytes(one.bytes))))));
  }

  drawDamaged(usage) {
    if (!usage.damaged_total) return null;
    return h("div", { class: "error-box", role: "alert" },
      h("p", null, `${f.plural(usage.damaged_total, "checkpoint")} can't be read. The figures are of all others.`),
      h("ul", null, usage.damaged.slice(0, 20).map((one) => h("li", { class: "line wrap", key: one.checkpoint_id },
          sessionLink(one.session_id), h("span", null, `number ${f.count(one.sequence)}`),
          h("span", null, one.message)))));
  }

  drawSessions(usage) {
    const sessions = usage.sessions ?? [];
    if (!sessions.length) return empty("storage", "Nothing is stored yet",
      h("p", null, "Sessions appear here with the space they take."));
    const most = Math.max(1, ...sessions.map((one) => one.exclusive_bytes + one.record_bytes));
    return card("By session", h("span", { class: "muted small" },
        usage.sessions_total > sessions.length ? `${sessions.length} of ${f.count(usage.sessions_total)}`
        : f.plural(sessions.length, "session")),
      table("Space by session", [["Session"], ["Checkpoints", "right"], ["Its own", "right"], ["Shared", "right"],
          [""]], sessions.map((one) => ({ key: one.session_id, cells: [
        sessionLink(one.session_id), f.count(one.checkpoints), f.bytes(one.exclusive_bytes),
          f.bytes(one.shared_bytes), h("div", { class: "meter", "aria-hidden": "true" },
            h("i", { style: { width: `${((one.exclusive_bytes + one.record_bytes) / most) * 100}%` } }))] }))));
  }

  drawRetention() {
    const { policy, plan } = this;
    const take = (name) => (event) => {
      this.policy = { ...policy, [name]: event.target.value };
      this.plan = null;
      this.app.redraw();
    };
    const field = (name, label) => h("div", { class: "field", key: name },
      h("label", { for: `policy-${name}` }, label),
      h("input", { id: `policy-${name}`, class: "input", type: "number", min: "0", value: policy[name],
          oninput: take(name) }));
    const submit = (event) => {
      event.preventDefault();
      this.dryRun();
    };
    return card("Retention", null,
      h("p", { class: "muted" }, "A dry run shows what a policy would remove. It removes nothing."),
      h("form", { class: "policy", onsubmit: submit }, field("keep_last", "Keep the newest N of each session"),
        field("keep_every", "Keep every Nth"), field("older", "Only older than"),
        h("div", { class: "field" }, h("label", { for: "policy-unit" }, "Unit"),
          h("select", { id: "policy-unit", class: "input", value: policy.unit, onchange: take("unit") },
            [["h", "hours"], ["d", "days"], ["w", "weeks"]].map(([name, label]) =>
              h("option", { value: name }, label)))),
        h("button", { type: "submit", class: "button" }, "Dry run")),
      plan?.busy && h("p", { class: "muted" }, "Working out what would go…"), plan?.error && errorBox(plan.error),
      plan?.kept !== undefined && [
        h("p", { class: plan.going ? "note wait" : "note", role: "status", key: "outcome" },
          plan.going
          ? `${f.plural(plan.going, "checkpoint")} would go, ${f.count(plan.kept)} stay. ${f.bytes((plan.store_bytes_before ?? plan.bytes_before) - (plan.store_bytes_after ?? plan.bytes_after))} would be freed.` : "Nothing would go: the policy keeps everything."),
        plan.going > 0 && h("div", { key: "sessions" },
          table("Sessions that would lose checkpoints", [["Session"], ["Would go", "right"], ["Stay", "right"]],
            plan.sessions.slice(0, 20).map((one) =>
              [sessionLink(one.session_id), f.count(one.going.length), f.count(one.kept)]))),
        plan.going > 0 && plan.plan && h("div", { class: "line", key: "apply" },
          button("Apply…", () => this.apply(), { kind: "danger" }))],
      commands(this.lines(false), (line) => this.app.copy(line)));
  }
}
