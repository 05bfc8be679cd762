/** The ledger: what was done to the outside world, the unknown outcomes first. */

import * as actions from "../actions.js";
import { h } from "../dom.js";
import { text } from "../edits.js";
import * as f from "../format.js";
import { button, chip, commands, empty, facts, idLink, sessionLink, table } from "../parts.js";
import { withQuery } from "../router.js";
import { Pages } from "./pages.js";

const STATES = ["in_doubt", "started", "done", "failed", "compensating", "compensated", "modified"];

export function drawEffect(effect, app, more = {}) {
  const history = effect.history ?? [];
  return h("article", { class: `card ${more.current ? "is-current" : ""}`, key: effect.effect_id, id: more.id,
      onclick: more.onclick, "aria-label": `Effect ${effect.tool}` },
    h("header", null, h("h2", { class: "grow mono" }, effect.tool), chip(effect.kind, ""),
      chip(effect.in_doubt ? "unknown" : effect.state)),
    h("div", { class: "inside stack-tight" },
      effect.in_doubt && h("p", { class: "note wait" },
        "It was started, and nothing says how it ended. Check the other system by the key below, then record the outcome. Until then no other call like it is carried out."),
      h("pre", { class: "block", tabindex: "0", "aria-label": "Arguments" }, text(effect.arguments, 4000)),
      effect.result !== null && effect.result !== undefined
        && h("div", null, h("div", { class: "figure-name" }, "Result"),
          h("pre", { class: "block", tabindex: "0", "aria-label": "Result" }, text(effect.result, 4000))),
      effect.error && h("div", { class: "error-box" }, text(effect.error)),
      facts([["Session", sessionLink(effect.session_id)],
          ["Key", effect.provider_key && h("code", null, effect.provider_key)],
          ["Attempts", effect.attempts ? f.count(Array.isArray(effect.attempts) ? effect.attempts.length
              : effect.attempts) : null], ["Result is in", effect.checkpoint_id && idLink(effect.checkpoint_id)],
          ["Effect", h("code", null, effect.short_id)]]),
      history.length > 0 && h("details", null, h("summary", { class: "muted" }, "History"),
        table("History", [["What"], ["When"], ["By"], ["Note"]],
          history.map((one) => [one.what, f.dateTime(one.at), one.by ?? "", one.note ?? ""]))),
      effect.in_doubt && h("div", { class: "line" },
        button("Record the outcome", more.resolve ?? (() => app.act(actions.resolve(effect, app.status?.user))),
          { kind: "primary", key: more.current ? "e" : undefined })),
      effect.in_doubt && commands({ shell: `holdfast resolve ${f.shell(effect.effect_id)} --done`,
          python: `client.resolve_effect(${f.python(effect.effect_id)}, "done", by=${f.python(app.status?.user ?? "me")})` }, (line) => app.copy(line))));
}

export default class Effects extends Pages {
  constructor(app, _params, query) {
    super(app, "effects", "effects");
    this.state = query.get("state") ?? "";
  }

  title() {
    return "Effects";
  }

  query() {
    return { state: this.state };
  }

  resolve(effect) {
    this.app.act({ ...actions.resolve(effect, this.app.status?.user),
      after: (answer) => this.settle(effect, answer.effect) });
  }

  keys() {
    const current = () => this.rows[this.current];
    return [...this.moveKeys(), { key: "e", label: "Record the outcome of an unknown effect",
        run: () => current()?.in_doubt && this.resolve(current()) }];
  }

  draw() {
    const choose = (event) => {
      this.state = event.target.value;
      this.app.replace(withQuery({ state: this.state }));
      this.load();
    };
    const { in_doubt: doubts, ...states } = this.answer?.counts ?? {};
    const counts = Object.entries(states).filter(([, count]) => count);
    const toolbar = h("div", { class: "toolbar" },
      h("select", { class: "input", "aria-label": "State", value: this.state, onchange: choose },
        h("option", { value: "" }, "All effects"),
        STATES.map((one) => h("option", { value: one }, one.replaceAll("_", " ")))),
      counts.map(([name, count]) => h("span", { class: "line small", key: name }, chip(name),
          h("span", { class: "num muted" }, f.count(count)))),
      doubts > 0 && h("span", { class: "line small muted" }, "of which", chip("unknown"),
        h("span", { class: "num" }, f.count(doubts))));
    return this.drawPage("Effects", { toolbar,
        under: h("p", { class: "small muted" },
          "What agents did to the outside world. A rollback removes no entry.") },
      this.rows.length ? this.rows.map((effect, at) =>
        drawEffect(effect, this.app, { id: `row-${at}`, current: at === this.current, resolve: () => this.resolve(effect), onclick: () => {
        this.current = at;
        this.app.redraw();
      } })) : this.state ? empty("effects", "No effect is in this state",
        h("p", null, "Choose another state above."))
      : empty("effects", "No effect was recorded yet",
        h("p", null, "An effect is a call that a run carries out once:"),
        h("code", { class: "block" }, "run.effect(\"pay\", bank.pay, amount=500, key=\"invoice-1\")")));
  }
}
