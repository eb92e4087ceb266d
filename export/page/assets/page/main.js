/** Put the page together: who types, with which model, and what happens at every key. */

import { DESCRIPTION, FILES, NEEDS_TOKEN, ONNXRUNTIME } from "./source.js"; // made by site.py
import { SavedKeys } from "./saved_keys.js";
import { Library, kept } from "./library.js";
import { openKeyboard } from "./opening.js";
import { OnScreenKeys } from "./on_screen_keys.js";
import { SuggestionStrip } from "./suggestions.js";
import { TextField } from "./text_field.js";
import { VoiceBox } from "./voice_box.js";
import { factsOf, showFacts } from "./facts.js";
import { typedWord } from "./cursor.js";
import { isUnparted } from "./letters.js";

const NO_WORDS = "No suggestions: this writing has no blanks between words.";

const at = (id) => document.getElementById(id);
const saved = new SavedKeys();
const field = new TextField(at("text"));
const strip = new SuggestionStrip(at("strip"), { take: takeSuggestion, failed: tellFailure });
const voiceBox = new VoiceBox(at("voice"));
let opened = null;
let opening = 0;
let turn = Promise.resolve();

const keys = new OnScreenKeys(at("keys"), {
  type: (character) => pressed(() => field.type(character, correction())),
  takeBack: () => pressed(takeBack),
});

/** What a blank takes here: only what the strip shows. */
function correction() {
  return strip.correctionOf(field.before);
}

function takeBack() {
  const undone = field.takeBack();
  if (undone !== null) opened.keyboard.keep(undone);
}

function pressed(change) {
  change();
  saved.press();
  follow();
}

function takeSuggestion(word, kind) {
  if (kind === "verbatim") opened.keyboard.keep(word);
  pressed(() => field.take(word));
  field.area.focus();
}

function suggest() {
  const isWithoutBlanks = isUnparted(typedWord(field.before));
  at("saved").textContent = isWithoutBlanks ? NO_WORDS : saved.told(field.text);
  return strip.follow(field.before);
}

async function follow() {
  await suggest();
  if (opened) showFacts(at("facts"), factsOf(opened));
}

function tell(text, { failed = false } = {}) {
  at("status").textContent = text;
  at("status").toggleAttribute("data-failed", failed);
}

function tellFailure(error) {
  tell(error.message, { failed: true });
}

/** Open one version of a keyboard, one at a time; of several asked for, the last one stays. */
function open(source, description, wanted = description.versions[0].version) {
  const mine = ++opening;
  turn = turn.then(() => openInTurn(mine, source, description, wanted));
  return turn;
}

async function openInTurn(mine, source, description, wanted) {
  if (mine !== opening) return;
  const version = description.versions.find((one) => one.version === wanted);
  try {
    const made = await openKeyboard(source, description, version, ONNXRUNTIME, tell);
    if (mine !== opening) {
      await made.close();
      return;
    }
    const before = opened;
    opened = { ...made, source, description, version };
    if (before) opened.keyboard.spare(before.keyboard);
    opened.keyboard.allowOffensive(at("offensive").checked);
    strip.use(opened.keyboard);
    keys.layOut(version.languages);
    await before?.close();
    showKeyboard();
  } catch (error) {
    if (mine === opening) tellFailure(error);
  }
}

async function signIn(token) {
  try {
    const library = new Library(DESCRIPTION, FILES, token);
    const description = await library.describe();
    if (description.voice) showVoice(library, description);
    if (description.versions.length) await open(library, description);
    else if (description.voice) voiceBox.focus();
    else throw new Error("Nothing is served yet: `sotto-serve promote`.");
  } catch (error) {
    tellFailure(error);
  }
}

function showVoice(library, description) {
  voiceBox.use(library, description);
  at("sign-in").hidden = true;
  at("leave").hidden = false;
  tell(`This is ${description.client}'s page.`);
}

function showKeyboard() {
  at("sign-in").hidden = true;
  at("keyboard").hidden = false;
  at("leave").hidden = !NEEDS_TOKEN;
  at("keep").checked = opened.source === kept;
  at("offensive-choice").hidden = !opened.version.offensive?.length;
  showVersions();
  tell(`This is ${opened.description.client}'s keyboard. What you type stays in this page.`);
  field.area.focus();
  follow();
}

function showVersions() {
  const { versions } = opened.description;
  at("version-choice").hidden = versions.length < 2 || opened.source === kept;
  at("version").replaceChildren(
    ...versions.map(({ version }) => new Option(version, version, false, version === opened.version.version)),
  );
}

/** Forget the person: token, model and text. */
async function leave() {
  opening++;
  strip.use(null);
  const before = opened;
  opened = null;
  clearText();
  voiceBox.leave();
  localStorage.removeItem("offensive");
  at("offensive").checked = false;
  await before?.close();
  at("keyboard").hidden = true;
  at("leave").hidden = true;
  await showSignIn();
}

async function showSignIn() {
  at("sign-in").hidden = false;
  tell("Whose keyboard?");
  const found = await kept.describe();
  for (const id of ["open-kept", "remove-kept"]) at(id).hidden = found === null;
  if (found) {
    at("open-kept").textContent = `Open ${found.client}'s, kept on this device`;
    at("remove-kept").textContent = `Remove ${found.client}'s from this device`;
  }
  at("token").focus();
}

function clearText() {
  field.clear();
  saved.clear();
  at("saved").textContent = "";
}

function keep() {
  const description = { ...opened.description, versions: [opened.version], voice: null };
  return kept.replace(description, opened.files);
}

async function changeKept(isKept) {
  try {
    if (isKept) await keep();
    else await kept.remove();
    tell(isKept ? "Kept on this device." : "Removed from this device.");
  } catch (error) {
    at("keep").checked = !isKept;
    tellFailure(error);
  }
}

at("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = at("token").value.trim();
  at("token").value = "";
  signIn(token);
});
at("open-kept").addEventListener("click", async () => open(kept, await kept.describe()));
at("remove-kept").addEventListener("click", async () => {
  await kept.remove();
  await showSignIn();
});
at("keep").addEventListener("change", (event) => changeKept(event.target.checked));
at("leave").addEventListener("click", leave);
at("clear").addEventListener("click", () => {
  opened.keyboard.finish(field.text);
  clearText();
  field.area.focus();
  follow();
});
at("offensive").addEventListener("change", (event) => {
  localStorage.setItem("offensive", event.target.checked);
  opened.keyboard.allowOffensive(event.target.checked);
  follow();
});
at("version").addEventListener("change", (event) =>
  open(opened.source, opened.description, event.target.value),
);
field.area.addEventListener("beforeinput", (event) => {
  const typed = event.inputType === "insertLineBreak" ? "\n" : (event.data ?? "");
  const { selectionStart, selectionEnd } = field.area;
  if (event.isComposing || !opened || selectionStart !== selectionEnd) return;
  if (event.inputType === "deleteContentBackward" && field.canUndo) {
    event.preventDefault();
    pressed(takeBack);
  } else if (correction() !== null && TextField.ends(typed)) {
    event.preventDefault();
    pressed(() => field.type(typed, correction()));
  }
});
field.area.addEventListener("input", () => {
  saved.press(field.changed()); // what is pasted costs as many keys as it has characters
  follow();
});
document.addEventListener("selectionchange", () => {
  if (opened && document.activeElement === field.area) suggest();
});
field.area.addEventListener("keydown", (event) => {
  const number = event.altKey && /^Digit[123]$/.test(event.code) ? Number(event.code.at(-1)) : 0;
  if (number && strip.take(number)) event.preventDefault();
});

async function begin() {
  if (!globalThis.isSecureContext) {
    tell("This page must come over https or from this device itself.", { failed: true });
    return;
  }
  navigator.serviceWorker?.register("service_worker.js").catch(tellFailure);
  at("offensive").checked = localStorage.getItem("offensive") === "true";
  if (NEEDS_TOKEN) await showSignIn();
  else await signIn(null);
}

begin();
