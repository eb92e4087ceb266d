/** Draw the keys, and let them be reached by touch, mouse, Tab and the arrow keys. */

import { keyRows } from "./slips.js";

const LAST_ROW = ["marks", ",", "space", ".", "enter"];
const MARKS = [
  [..."1234567890"],
  [..."@#&*-+=()/"],
  ["shift", ...`"!?:;_%`, "back"],
  LAST_ROW,
];
const SPECIAL = {
  shift: { shown: "⇧", name: "Shift" },
  back: { shown: "⌫", name: "Delete the character before the cursor" },
  marks: { shown: "?123", name: "Numbers and marks" },
  space: { shown: "space", name: "Space" },
  enter: { shown: "⏎", name: "New line" },
};
const TYPED = { space: " ", enter: "\n" };
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export class OnScreenKeys {
  #isLarge = false;
  #hasMarks = false;
  #languages = [];

  /**
   * @param {HTMLElement} place where they are drawn
   * @param {{type: (character: string) => void, takeBack: () => void}} into what a key does
   */
  constructor(place, into) {
    this.place = place;
    this.into = into;
    place.addEventListener("keydown", (event) => this.#walk(event));
    // The text field keeps its cursor while a finger or the mouse types.
    place.addEventListener("pointerdown", (event) => event.preventDefault());
    this.#draw();
  }

  /** Show the keys of some languages, BCP 47 tags, as the strip takes slips on them. */
  layOut(languages) {
    this.#languages = languages;
    this.#draw();
  }

  #draw() {
    const rows = this.#hasMarks ? MARKS : lettersOf(this.#languages);
    this.place.replaceChildren(...rows.map((keys) => this.#row(keys)));
    this.place.querySelector("button").tabIndex = 0;
  }

  #row(keys) {
    const row = document.createElement("div");
    row.append(...keys.map((key) => this.#key(key)));
    return row;
  }

  #key(key) {
    const button = document.createElement("button");
    const special = SPECIAL[key];
    button.type = "button";
    button.tabIndex = -1;
    button.dataset.key = key;
    button.textContent = special?.shown ?? this.#cased(key);
    if (special) button.setAttribute("aria-label", special.name);
    if (key === "shift") button.setAttribute("aria-pressed", String(this.#isLarge));
    if (key === "marks") button.setAttribute("aria-pressed", String(this.#hasMarks));
    button.addEventListener("click", () => this.#press(key));
    return button;
  }

  #cased(key) {
    return this.#isLarge ? key.toLocaleUpperCase(this.#languages) : key;
  }

  #press(key) {
    if (key === "back") this.into.takeBack();
    else if (key === "shift") this.#change(() => (this.#isLarge = !this.#isLarge));
    else if (key === "marks") this.#change(() => (this.#hasMarks = !this.#hasMarks));
    else {
      this.into.type(TYPED[key] ?? this.#cased(key));
      if (this.#isLarge) this.#change(() => (this.#isLarge = false));
    }
  }

  /** Draw anew, and keep the focus on the key where it was. */
  #change(change) {
    const focused = this.place.contains(document.activeElement)
      ? this.#placeOf(document.activeElement)
      : null;
    change();
    this.#draw();
    if (focused) this.#focus(...focused);
  }

  #walk(event) {
    const step = STEPS[event.key];
    const from = this.#placeOf(event.target);
    if (!step || !from) return;
    event.preventDefault();
    this.#focus(from[0] + step[0], from[1] + step[1]);
  }

  #placeOf(button) {
    const rows = [...this.place.children];
    const row = rows.findIndex((one) => one.contains(button));
    return row < 0 ? null : [row, [...rows[row].children].indexOf(button)];
  }

  #focus(row, column) {
    const keys = this.place.children[row]?.children;
    if (!keys || column < 0) return;
    const next = keys[Math.min(column, keys.length - 1)];
    for (const key of this.place.querySelectorAll("button")) key.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}

function lettersOf(languages) {
  const [top, home, low] = keyRows(languages);
  return [[...top], [...home, "'"], ["shift", ...low, "back"], LAST_ROW];
}
