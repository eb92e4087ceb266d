/** Say which model suggests or speaks, from which round, and what its training cost in privacy. */

const QUALITY = /recall|unknown_words|perplexity|^mel_l1$/;
const MODEL = { spent: "Privacy spent", promise: "Promise for the whole run" };
const VOCODER = { spent: "Privacy spent on the vocoder", promise: "Promise for the vocoder's run" };
const PERCENT = /recall|unknown_words/;

/** Return names and values to be shown of a keyboard. */
export function factsOf({ description, version, graph, bytes, openedMs }) {
  return [
    ...factsOfModel(description.client, version),
    ["Words", `${version.words} in ${version.languages.join(", ") || "a language nobody named"}`],
    ["Fetched", `${(bytes / 1e6).toFixed(1)} MB, opened in ${(openedMs / 1000).toFixed(1)} s`],
    ["A word takes", graph.lastStepMs === null ? "" : `${graph.lastStepMs.toFixed(2)} ms`],
  ];
}

/** Return names and values to be shown of a voice. */
export function factsOfVoice({ client, voice }) {
  const { mel, vocoder } = voice;
  const maker = vocoder ? `the vocoder of round ${vocoder.round}` : "Griffin-Lim";
  return [
    ...factsOfModel(client, voice),
    ["Sound", `${mel.sample_rate_hz} Hz, made by ${maker}`],
    ...(vocoder ? factsOfPrivacy(vocoder, VOCODER) : []),
  ];
}

function factsOfModel(client, one) {
  return [
    ["Person", client],
    ["Model", one.version],
    ["Round", String(one.round)],
    ["Own part", ownPart(one)],
    ...factsOfPrivacy(one),
    ...Object.entries(one.metrics)
      .filter(([name]) => QUALITY.test(name))
      .map(([name, value]) => [name.replaceAll("_", " "), figure(name, value)]),
  ];
}

/** What this release has spent, and below it what the run will not pass. */
function factsOfPrivacy({ privacy, privacy_spent }, { spent, promise } = MODEL) {
  return [
    [spent, privacy_spent ?? "not said"], // a keyboard that an older page kept has none
    [promise, privacy.guarantee],
  ];
}

function ownPart({ personal }) {
  if (personal === null) return "no, everyone's";
  if (!personal.available) return "not yet";
  return personal.method === "global" ? "yes, who speaks" : `yes, ${personal.method}`;
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
