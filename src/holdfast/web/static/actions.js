/** Every action of the page, with the command line and the Python line that do the same. */

import { h } from "./dom.js";
import { hasCut, text } from "./edits.js";
import * as f from "./format.js";
import { facts } from "./parts.js";
import { link, literal } from "./router.js";

/** A command line of non-empty parts; `--option=value` where a value may begin with a dash. */
const sh = (...parts) => parts.filter((part) => part !== "" && part !== false && part !== null && part !== undefined)
  .join(" ");
const py = f.python;
/** Whether JSON alone can't say what a value is: a decimal, a date. Then no Python line is shown. */
const isTyped = (value) => value !== null && typeof value === "object"
  && ("$type" in value || Object.values(value).some(isTyped));
const call = (name, positional, named = {}) => {
  if (Object.values(named).some(isTyped)) return undefined;
  const rest = Object.entries(named).filter(([, value]) =>
    value !== undefined && value !== null && value !== "" && value !== false)
  .map(([key, value]) => `${key}=${py(value)}`);
  return `client.${name}(${[...positional.map(py), ...rest].join(", ")})`;
};

/** What a rollback or a fork does not undo, for people. */
function leftBehind(answer) {
  const rows = [
    [answer.effects, "stays done", "effect", "stay done"],
      [answer.unknown, "has an unknown outcome", "effect", "have an unknown outcome"],
    [answer.approvals_voided, "becomes void", "approval", "become void"],
      [answer.consumers, "was taken up by another agent", "handoff", "were taken up by other agents"],
  ];
  const said = rows.filter(([ids]) => ids?.length)
    .map(([ids, one, noun, many]) => h("li", { key: noun + one },
        `${f.plural(ids.length, noun)} ${ids.length === 1 ? one : many}.`));
  return said.length ? h("ul", { class: "note wait" }, said)
    : h("p", { class: "note" }, "No effect, approval or handoff stands in the way.");
}

function filePlan(answer) {
  const actions = answer.actions ?? [];
  return h("div", { class: "stack-tight" },
    h("p", { class: actions.length ? "note wait" : "note" },
      actions.length
      ? `${f.plural(actions.length, "path")} will change. A safety snapshot is taken first, and Undo brings everything back.` : "No file will change."),
    (answer.conflicts ?? []).length > 0 && h("p", { class: "note wait" },
      `Changed since the last snapshot: ${answer.conflicts.slice(0, 8).join(", ")}. Choose what happens to them.`),
    actions.length > 0 && h("ul", { class: "block mono", tabindex: "0", "aria-label": "What the restore changes" },
      actions.slice(0, 200).map((one) => h("li", { key: one.path }, `${one.action} ${one.path}`))),
    (answer.left ?? []).length > 0 && h("p", { class: "muted" },
      `${f.plural(answer.left.length, "path")} stay as they are.`));
}

/** A value as the user typed it: JSON where it is, text otherwise. */
export function readValue(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Lines of PATH=VALUE as an object. */
function readEdits(text) {
  const edits = {};
  for (const line of text.split("\n").filter((one) => one.trim())) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`Write PATH=VALUE: ${line}`);
    edits[line.slice(0, at).trim()] = readValue(line.slice(at + 1).trim());
  }
  return edits;
}

/** The directory that the server makes for the files of a fork. */
function forkDirectory(app, session) {
  return `${app.status?.workspace}-${session.replaceAll(/[^A-Za-z0-9_-]+/g, "-").replaceAll(/^-+|-+$/g, "") || "fork"}`;
}

function forkPlan(answer) {
  return h("div", { class: "stack-tight" }, leftBehind(answer), answer.directory
    && h("p", { class: "note" }, "The files go to the new directory ", h("code", null, answer.directory), "."));
}

export function fork(app, checkpoint, edits = "") {
  const id = checkpoint.checkpoint_id;
  return {
    title: `Fork at ${checkpoint.short_id}`, verb: "Fork", preview: forkPlan,
    about: "Starts a new session here. Nothing is copied, and this session does not change.",
    fields: [
      { name: "session", label: "Name of the new session", placeholder: `${checkpoint.session_id}-fork-1` },
      { name: "edits", label: "Changed values, one PATH=VALUE a line", kind: "area", value: edits,
        placeholder: "messages.-1.content=\"another prompt\"",
        hint: "VALUE is JSON, otherwise text. +PATH adds a key." },
      ...(app.status?.workspace ? [{ name: "files", kind: "check",
            label: "Write its files into a new directory beside this one" }] : []),
    ],
    path: () => `checkpoints/${literal(id)}/fork`,
    body: (values) => ({ ...(values.session && { session: values.session }), ...(values.files && { files: true }),
        ...(values.edits.trim() && { set: readEdits(values.edits) }) }),
    lines: (values) => {
      const set = readEdits(values.edits);
      const directory = values.files ? forkDirectory(app, values.session) : undefined;
      const options = Object.entries(set).map(([path, value]) =>
        `--set ${f.shell(`${path}=${JSON.stringify(value)}`)}`);
      return {
        shell: sh("holdfast fork", f.shell(id), directory && f.shell(directory), values.session && `--session ${f.shell(values.session)}`, ...options),
        python: call("fork", [id], { session_id: values.session, set: options.length ? set : undefined,
            workspace: directory }),
      };
    },
    done: (answer) => `Forked to ${answer.session_id}${answer.directory ? `, with its files in ${answer.directory}` : ""}.`,
    after: (answer) => app.go(link.session(answer.session_id)),
  };
}

export function rollback(session, checkpoint) {
  const id = checkpoint.checkpoint_id;
  return {
    title: `Roll ${session} back to ${checkpoint.short_id}`, verb: "Roll back", preview: leftBehind,
    about: "Moves the session's head here. Nothing is removed: later checkpoints stay as a branch.",
    fields: [{ name: "strict", label: "Refuse if effects stay done", kind: "check" }],
    path: () => `sessions/${literal(session)}/rollback`,
    body: (values) => ({ to: id, strict: values.strict }),
    lines: (values) => ({
      shell: sh("holdfast rollback", f.shell(session), f.shell(id), values.strict && "--strict"),
      python: call("rollback", [session], { to: id, strict: values.strict }),
    }),
    done: () => `${session} is at ${checkpoint.short_id}.`,
  };
}

export function restoreFiles(checkpoint) {
  const id = checkpoint.checkpoint_id;
  return {
    title: `Restore files of ${checkpoint.short_id}`, verb: "Restore", preview: filePlan,
    about: "Makes the directory equal to this checkpoint. The plan below changes nothing yet.",
    fields: [
      { name: "scope", label: "Restore", kind: "choice", value: "files",
        choices: [["files", "Files"], ["both", "Files and the session's state"]] },
      { name: "changed", label: "Files changed since the last snapshot", kind: "choice", value: "",
        choices: [["", "Refuse"], ["user", "Keep them"], ["force", "Overwrite them"]] },
    ],
    plan: { path: "restore/plan", apply: "restore/apply" },
    path: () => "restore/plan",
    body: (values) => ({ ref: id, scope: values.scope, keep: values.changed === "user" ? "user" : null,
        force: values.changed === "force" }),
    lines: (values) => ({
      shell: sh("holdfast restore", f.shell(id), values.scope === "both" && "--all",
        values.changed === "user" && "--keep-user", values.changed === "force" && "--force"),
      python: call('workspace(".").restore', [id], { scope: values.scope === "both" && "both",
          keep: values.changed === "user" && "user", force: values.changed === "force" }),
    }),
    done: (answer) => `Restored ${f.plural(answer.actions?.length ?? 0, "path")}.`,
  };
}

export function tag(checkpoint) {
  const id = checkpoint.checkpoint_id;
  return {
    title: `Tag ${checkpoint.short_id}`, verb: "Tag",
    about: "Commands take the tag instead of the id, and a tagged checkpoint does not expire.",
    fields: [{ name: "name", label: "Tag", placeholder: "best" },
      { name: "move", label: "Move the tag if it exists", kind: "check" }],
    path: () => `checkpoints/${literal(id)}/tag`,
    body: (values) => ({ name: values.name, move: values.move }),
    lines: (values) => ({ shell: sh("holdfast tag", f.shell(values.name || "NAME"), f.shell(id),
          values.move && "--force"), python: call("tag", [values.name || "NAME", id], { force: values.move }) }),
    done: (_answer, values) => `Tagged ${checkpoint.short_id} as ${values.name}.`,
  };
}

export function pin(checkpoint, remove) {
  const id = checkpoint.checkpoint_id;
  return {
    title: remove ? `Unpin ${checkpoint.short_id}` : `Pin ${checkpoint.short_id}`, verb: remove ? "Unpin" : "Pin",
    about: remove ? "It may expire again."
      : "Neither a command, a policy nor its TTL expires it until it is unpinned.",
    fields: remove ? [] : [{ name: "note", label: "Note" }],
    path: () => `checkpoints/${literal(id)}/pin`,
    body: (values) => (remove ? { remove: true } : { note: values.note || null }),
    lines: (values) => ({
      shell: sh("holdfast pin", f.shell(id), remove && "--remove", values.note && `--note ${f.shell(values.note)}`),
      python: remove ? call("unpin", [id]) : call("pin", [id], { note: values.note }),
    }),
    done: () => (remove ? "Unpinned." : "Pinned."),
  };
}

/** The exact call that a person decides about. */
export function drawCall(approval) {
  return h("div", { class: "stack-tight" },
    approval.summary && h("p", { class: "said" }, approval.summary),
    h("pre", { class: "block", tabindex: "0", role: "group", "aria-label": "Arguments" },
      text(approval.arguments, 200_000)),
    hasCut(approval.arguments) && h("p", { class: "note wait" },
      "Some arguments are too large to be shown here. Before you decide, read them whole with ",
      h("code", null, "holdfast approvals --json"), "."),
    approval.session_id !== undefined && h("p", { class: "small muted" }, `Of the session ${approval.session_id}.`));
}

export function decide(approval, answer, user, change = undefined) {
  const id = approval.approval_id;
  const verbs = { approve: "Approve", reject: "Reject", modify: "Approve with changes" };
  return {
    title: `${verbs[answer]}: ${approval.tool}`, verb: verbs[answer],
    about: h("div", { class: "stack-tight" },
      h("p", null, answer === "reject" ? "The call is not carried out. The agent gets your note as the reason."
        : "The call may be carried out once, with exactly these arguments."),
      drawCall(approval)),
    fields: [{ name: "note", label: answer === "reject" ? "Reason, shown to the agent"
        : "Note, shown to the agent" }],
    path: () => `approvals/${literal(id)}/decide`,
    body: (values) => ({ answer, note: values.note || null, ...(answer === "modify" && { change }) }),
    lines: (values) => ({
      shell: answer === "reject" ? sh("holdfast reject", f.shell(id), values.note && `--note ${f.shell(values.note)}`)
        : sh("holdfast approve", f.shell(id), answer === "modify" && `--modify ${f.shell(JSON.stringify(change))}`,
          values.note && `--note ${f.shell(values.note)}`),
      python: answer === "modify" && hasCut(approval.arguments) ? undefined : call("decide", [id, answer], { by: user ?? "me", note: values.note,
          arguments: answer === "modify" ? { ...approval.arguments, ...change } : undefined }),
    }),
    done: () => `${approval.tool}: ${answer === "reject" ? "rejected" : "approved"}.`,
  };
}

export function resolve(effect, user) {
  const id = effect.effect_id;
  return {
    title: `Resolve ${effect.tool}`, verb: "Record the outcome",
    about: h("div", { class: "stack-tight" },
      h("p", null, "First check the other system by this key. Then record what you found; the next run acts on it."),
      facts([["Key", h("code", null, effect.provider_key ?? "–")],
          ["Arguments", h("code", null, f.inline(effect.arguments, 400))]])),
    fields: [
      { name: "outcome", label: "Outcome", kind: "choice", value: "done",
        choices: [["done", "It was carried out"], ["not_done", "It was not carried out: the next run may do it"],
          ["acknowledge", "Accept the doubt: it blocks no other call"]] },
      { name: "result", label: "Its result, as JSON", kind: "area", when: (values) => values.outcome === "done" },
      { name: "note", label: "Note" },
    ],
    path: () => `effects/${literal(id)}/resolve`,
    body: (values) => ({ outcome: values.outcome, note: values.note || null,
        ...(values.outcome === "done" && values.result.trim() && { result: readValue(values.result) }) }),
    lines: (values) => {
      const result = values.outcome === "done" && values.result.trim() ? readValue(values.result) : undefined;
      return {
        shell: sh("holdfast resolve", f.shell(id), `--${values.outcome.replace("_", "-")}`,
          result !== undefined && `--result ${f.shell(JSON.stringify(result))}`,
          values.note && `--note ${f.shell(values.note)}`),
        python: call("resolve_effect", [id, values.outcome], { result, by: user ?? "me", note: values.note }),
      };
    },
    done: () => `Recorded: ${effect.tool}.`,
  };
}

export function takeBack(kind, operation) {
  const id = operation?.operation_id;
  const verb = kind === "undo" ? "Undo" : "Redo";
  return {
    title: operation ? `${verb}: ${operation.kind}` : `${verb} the last operation`, verb,
    about: kind === "undo" ? "Refuses if later work depends on it, and says so."
      : "Refuses if anything changed since the undo.",
    preview: (answer) => h("ul", { class: "note wait" }, (answer.changes ?? []).map((one, at) =>
      h("li", { key: at }, `${one.kind} ${one.name}: ${f.inline(one.before ?? "nothing", 40)} → ${f.inline(one.after ?? "nothing", 40)}`))),
    path: () => kind, body: () => (id ? { operation: id } : {}),
    lines: () => ({ shell: sh("holdfast", kind, id && f.shell(id)), python: call(kind, id ? [id] : []) }),
    done: () => (kind === "undo" ? "Undone." : "Redone."),
  };
}
