/**
 * A render helper over the plain DOM: h() describes, render() makes the document equal to it.
 *
 * Strings become text nodes, always. Nothing here parses markup, sets a style attribute or takes a
 * handler as text, so it runs under a strict policy with Trusted Types.
 *
 * @typedef {{tag: string, key: any, props: Record<string, any>, children: (VNode|string)[]}} VNode
 */

const SVG = "http://www.w3.org/2000/svg";
const DESCRIPTION = Symbol("description");
const LISTENERS = Symbol("listeners");
/** What the user changes is compared with the document, not with the last description. */
const LIVE = new Set(["value", "checked", "open", "selected", "indeterminate"]);
const LINKS = new Set(["href", "src", "action", "formaction"]);

/** Describes an element: `h("p", {class: "muted"}, "text", child)`. */
export function h(tag, props, ...children) {
  const given = props ?? {};
  return { tag, key: given.key, props: given, children: flatten(children, []) };
}

function flatten(from, into) {
  for (const child of from) {
    if (Array.isArray(child)) flatten(child, into);
    // What is left out keeps its place as an empty text, so its neighbours stay the nodes they were.
    else if (child === null || child === undefined || typeof child === "boolean") into.push("");
    else into.push(typeof child === "object" ? child : String(child));
  }
  return into;
}

/** Makes the children of `root` equal to the description. */
export function render(root, ...children) {
  patchChildren(root, flatten(children, []), root.namespaceURI === SVG);
}

/** First finds what stays, then removes the rest, then puts in order: what stays is not moved, so it keeps its scroll. */
function patchChildren(parent, wanted, inSvg) {
  const keyed = new Map();
  const free = [];
  for (let node = parent.firstChild; node; node = node.nextSibling) {
    const key = node[DESCRIPTION]?.key;
    if (key === undefined) free.push(node);
    else keyed.set(key, node);
  }
  let next = 0;
  const kept = new Set();
  const matches = wanted.map((child) => {
    const isKeyed = typeof child === "object" && child.key !== undefined;
    const node = isKeyed ? keyed.get(child.key) : free[next++];
    if (node === undefined || kept.has(node) || !isSame(node, child)) return null;
    kept.add(node);
    return node;
  });
  for (const node of [...keyed.values(), ...free]) if (!kept.has(node)) node.remove();
  let at = parent.firstChild;
  wanted.forEach((child, index) => {
    const match = matches[index];
    const node = match === null ? create(child, inSvg) : patch(match, child, inSvg);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  });
}

function isSame(node, child) {
  if (typeof child === "string") return node.nodeType === Node.TEXT_NODE;
  return node[DESCRIPTION]?.tag === child.tag;
}

function create(child, inSvg) {
  if (typeof child === "string") return document.createTextNode(child);
  const isSvg = inSvg || child.tag === "svg";
  const node = isSvg ? document.createElementNS(SVG, child.tag) : document.createElement(child.tag);
  patch(node, child, isSvg);
  child.props.ref?.(node);
  return node;
}

function patch(node, child, inSvg) {
  if (typeof child === "string") {
    if (node.data !== child) node.data = child;
    return node;
  }
  const before = node[DESCRIPTION]?.props ?? {};
  node[DESCRIPTION] = child;
  for (const name in before) if (!(name in child.props)) setProp(node, name, undefined, before[name]);
  // A select takes its value only once its options exist.
  patchChildren(node, child.children, inSvg || child.tag === "svg");
  for (const name in child.props) {
    const value = child.props[name];
    if (LIVE.has(name) ? node[name] !== value : before[name] !== value) setProp(node, name, value, before[name]);
  }
  return node;
}

function setProp(node, name, value, before) {
  if (name === "key" || name === "ref") return;
  if (name.startsWith("on")) listen(node, name.slice(2), value);
  else if (name === "style") {
    for (const part in before ?? {}) if (!(part in (value ?? {}))) node.style.removeProperty(part);
    for (const part in value ?? {}) node.style.setProperty(part, value[part]);
  } else if (LIVE.has(name)) node[name] = value ?? (name === "value" ? "" : false);
  else if (value === undefined || value === null || value === false) node.removeAttribute(name);
  else if (LINKS.has(name) && !/^(\/(?![/\\\s])|#)/.test(String(value))) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : String(value));
}

function listen(node, type, handler) {
  const all = (node[LISTENERS] ??= {});
  if (!(type in all)) node.addEventListener(type, (event) => node[LISTENERS][type]?.(event));
  all[type] = typeof handler === "function" ? handler : null;
}
