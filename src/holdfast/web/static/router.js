/** Addresses: each screen has a permalink, with its view in the query. */

/** A name as one segment of a path: plain if it is harmless, otherwise a JSON string. */
export function segment(name) {
  return /^[\w@:+~-][\w.@:+~-]*$/.test(name) ? name : literal(name);
}

/** A name in an address of the API: survives "/", "..", the empty name and lone surrogates. */
export function literal(value) {
  return encodeURIComponent(JSON.stringify(value));
}

function readSegment(text) {
  try {
    const name = decodeURIComponent(text);
    const value = name.startsWith('"') ? JSON.parse(name) : name;
    return typeof value === "string" ? value : name;
  } catch {
    return text; // not our encoding: the text as it stands
  }
}

export const link = {
  session: (id, at = undefined) =>
    `/s/${segment(id)}${at ? `?at=${encodeURIComponent(at)}` : ""}`,
  checkpoint: (id, tab = "state") => `/c/${segment(id)}${tab === "state" ? "" : `/${tab}`}`,
  diff: (a, b) => `/diff/${segment(a)}/${segment(b)}`,
  compare: (a, b) => `/compare/${segment(a)}/${segment(b)}`,
  topic: (name) => `/topics/${segment(name)}`,
  team: (id) => `/team/${segment(id)}`,
};

/** The screen of a path and its parameters, or null. */
export function match(routes, pathname) {
  const given = pathname.split("/").filter(Boolean);
  for (const [pattern, screen] of Object.entries(routes)) {
    const wanted = pattern.split("/").filter(Boolean);
    const optional = wanted.filter((part) => part.endsWith("?")).length;
    if (given.length > wanted.length || given.length < wanted.length - optional) continue;
    const params = {};
    const fits = wanted.every((part, index) => {
      if (!part.startsWith(":")) return part === given[index];
      if (given[index] !== undefined) params[part.replace(/[:?]/g, "")] = readSegment(given[index]);
      return true;
    });
    if (fits) return { screen, params };
  }
  return null;
}

/** The current address with changes to its query; an empty value removes a parameter. */
export function withQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined || value === false) query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  return location.pathname + (text ? `?${text}` : "");
}
