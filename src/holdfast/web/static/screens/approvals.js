/** Calls that wait for a person: the exact call, what is at stake, and the decision. */

import * as actions from "../actions.js";
import { h } from "../dom.js";
import { hasCut, text } from "../edits.js";
import * as f from "../format.js";
import { button, chip, commands, empty, facts, idLink, sessionLink, time } from "../parts.js";
import { withQuery } from "../router.js";
import { Pages } from "./pages.js";

const STAKES = { irreversible: ["bad", "cannot be undone"], reversible: ["wait", "can be undone"],
  idempotent: ["good", "safe to repeat"], read: ["good", "reads only"] };

export default class Approvals extends Pages {
  constructor(app, _params, query) {
    super(app, "approvals", "approvals");
    this.all = query.get("all") === "1";
    this.editing = null;
  }

  title() {
    return "Approvals";
  }

  query() {
    return { state: this.all ? "all" : "pending" };
  }

  hear(event) {
    if (event.kind !== "checkpoint") super.hear(event);
  }

  decide(answer) {
    const approval = this.rows[this.current];
    if (!approval || approval.status !== "pending") return;
    if (answer === "modify") return this.edit(approval);
    this.app.act({ ...actions.decide(approval, answer, this.app.status?.user), after: this.decided(approval) });
  }

  decided(approval) {
    return (answer) => this.settle(approval, this.all ? { ...approval, ...answer } : null);
  }

  /** Opens the arguments for a change: a form where each is plain, JSON otherwise. */
  edit(approval) {
    const { app } = this;
    const given = approval.arguments ?? {};
    const plain = Object.entries(given).filter(([, value]) => ["string", "number", "boolean"].includes(typeof value));
    const whole = Object.fromEntries(Object.entries(given).filter(([, value]) => !hasCut(value)));
    const usesForm = plain.length > 0 && plain.length === Object.keys(given).length;
    const change = (values) => {
      if (values.form === "json") return changedOf(JSON.parse(values.json), given);
      return Object.fromEntries(plain.map(([name, value]) =>
          [name, typeof value === "string" ? values[`arg:${name}`] : typeof value === "boolean"
            ? Boolean(values[`arg:${name}`]) : readNumber(values[`arg:${name}`], name)])
        .filter(([name, value]) => value !== given[String(name)]));
    };
    const base = actions.decide(approval, "modify", app.status?.user);
    app.act({
      ...base,
      after: this.decided(approval),
      about: "Change the arguments. The call is carried out once, with exactly what you enter here.",
      fields: [
        ...(usesForm ? [{ name: "form", label: "Enter as", kind: "choice", value: "form",
              choices: [["form", "Form"], ["json", "JSON"]] }]
          : [{ name: "form", label: "", value: "json", when: () => false }]),
        ...(usesForm ? plain : []).map(([name, value]) => ({ name: `arg:${name}`, label: name,
              kind: typeof value === "boolean" ? "check" : "text",
              value: typeof value === "boolean" ? value : String(value), when: (values) => values.form === "form" })),
        { name: "json", label: "Arguments to replace, as JSON", kind: "area", value: JSON.stringify(whole, null, 2),
          hint: "Those that you leave out stay as they are.",
          when: (values) => values.form === "json" },
        ...(base.fields ?? []),
      ],
      body: (values) => ({ answer: "modify", note: values.note || null, change: change(values) }),
      lines: (values) => actions.decide(approval, "modify", app.status?.user, change(values)).lines(values),
    });
  }

  keys() {
    return [
      ...this.moveKeys(),
      { key: "a", label: "Approve", run: () => this.decide("approve") },
      { key: "x", label: "Reject", run: () => this.decide("reject") },
      { key: "e", label: "Approve with changes", run: () => this.decide("modify") },
    ];
  }

  draw() {
    const toggle = () => {
      this.all = !this.all;
      this.app.replace(withQuery({ all: this.all ? "1" : "" }));
      this.load();
    };
    const under = this.answer && h("p", { class: "small muted" },
      this.all ? f.plural(this.answer.total ?? this.rows.length, "approval")
      : `${f.count(this.answer.total ?? this.rows.length)} waiting`);
    return this.drawPage("Approvals", { under,
        actions: h("label", { class: "check" },
          h("input", { type: "checkbox", checked: this.all, onchange: toggle }), "Also decided ones") },
      this.rows.length ? this.rows.map((approval, at) => this.drawApproval(approval, at))
        : empty("approvals", "Nothing waits for you",
          h("p", null, "An agent asks with an effect that needs approval:"),
          h("code", { class: "block" }, "run.effect(\"pay\", bank.pay, amount=500, approve=\"finance\")")));
  }

  drawApproval(approval, at) {
    const [kind, stakes] = STAKES[approval.kind] ?? ["", approval.kind];
    const pending = approval.status === "pending";
    const here = () => void (this.current = at);
    const decision = approval.decision;
    const run = (answer) => {
      here();
      this.decide(answer);
    };
    return h("article", { class: `card ${at === this.current ? "is-current" : ""}`, key: approval.approval_id,
        id: `row-${at}`, "aria-label": `Call of ${approval.tool}`, onclick: () => {
      here();
      this.app.redraw();
    } },
    h("header", null, h("h2", { class: "grow mono" }, approval.tool), chip(stakes, kind), chip(approval.status)),
    h("div", { class: "inside stack-tight" },
      actions.drawCall({ ...approval, session_id: undefined }),
      facts([["Session", sessionLink(approval.session_id)], ["Asked", time(approval.requested_at)],
          ["Expires", approval.expires_at && time(approval.expires_at)], ["Approvers", approval.approvers],
          ["At", approval.checkpoint_id && idLink(approval.checkpoint_id)],
        ["Decided", decision && `${decision.answer} by ${decision.by}, ${f.age(decision.at)}`],
          ["Note", decision?.note], ["With", decision?.arguments && h("code", null, text(decision.arguments))]]),
      pending && h("div", { class: "line wrap" },
        button("Approve", () => run("approve"), { kind: "primary", key: "a" }),
        button("Reject", () => run("reject"), { kind: "danger", key: "x" }),
        button("Change", () => run("modify"), { key: "e" })),
      at === this.current && pending && commands({ shell: `holdfast approve ${f.shell(approval.approval_id)}`,
          python: `client.decide(${f.python(approval.approval_id)}, "approve", by=${f.python(this.app.status?.user ?? "me")})` }, (line) => this.app.copy(line))));
  }
}

/** The arguments that differ: an unchanged one keeps its exact value, which JSON may not have. */
function changedOf(values, given) {
  if (values === null || typeof values !== "object" || Array.isArray(values)) {
    throw new Error("Write the arguments as a JSON object.");
  }
  return Object.fromEntries(Object.entries(values)
    .filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(given[name])));
}

function readNumber(text, name) {
  const value = Number(text);
  if (String(text).trim() === "" || Number.isNaN(value)) throw new Error(`${name} is a number.`);
  return value;
}
