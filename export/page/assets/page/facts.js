/** Say which model suggests, from which round, and what training it has cost in privacy. */

const QUALITY = /recall|perplexity/;
const PERCENT = /recall/;

/** Return names and values to be shown. */
export function factsOf({ description, version, graph, bytes, openedMs }) {
  return [
    ["Person", description.client],
    ["Model", version.version],
    ["Round", String(version.round)],
    ["Own part", version.personal ? `yes, ${version.personal.method}` : "no, everyone's"],
    ["Privacy spent", version.privacy.guarantee],
    ...Object.entries(version.metrics)
      .filter(([name]) => QUALITY.test(name))
      .map(([name, value]) => [name.replaceAll("_", " "), figure(name, value)]),
    ["Words", `${version.words} in ${version.languages.join(", ") || "a language nobody named"}`],
    ["Fetched", `${(bytes / 1e6).toFixed(1)} MB, opened in ${(openedMs / 1000).toFixed(1)} s`],
    ["A word takes", graph.lastStepMs === null ? "" : `${graph.lastStepMs.toFixed(2)} ms`],
  ];
}

export function showFacts(list, facts) {
  list.replaceChildren(
    ...facts.flatMap(([name, value]) => [element("dt", name), element("dd", value)]),
  );
}

function figure(name, value) {
  if (typeof value !== "number") return String(value);
  return PERCENT.test(name) ? `${(100 * value).toFixed(1)} %` : String(Number(value.toPrecision(4)));
}

function element(kind, text) {
  const made = document.createElement(kind);
  made.textContent = text;
  return made;
}
