/** Write into the text field at its cursor. */

import { typedWord } from "./cursor.js";

const CLINGS = /^[.,!?;:…)]$/u;

export class TextField {
  #spaceIsOurs = false;
  #length = 0;

  /** @param {HTMLTextAreaElement} area */
  constructor(area) {
    this.area = area;
  }

  /** What stands before the cursor. */
  get before() {
    return this.area.value.slice(0, this.area.selectionStart);
  }

  get text() {
    return this.area.value;
  }

  /** Type a character; a mark takes the place of the space that a suggestion left. */
  type(character) {
    const taken = this.#spaceIsOurs && CLINGS.test(character) ? 1 : 0;
    this.#replace(taken, character);
  }

  /** Take back the selection, or the character before the cursor. */
  takeBack() {
    const { selectionStart, selectionEnd } = this.area;
    const last = selectionStart === selectionEnd ? (Array.from(this.before).at(-1) ?? "") : "";
    this.#replace(last.length, "");
  }

  /** Put a suggestion, and a space, in the place of the word that is begun. */
  take(word) {
    const composed = this.before.normalize("NFC");
    const begun = typedWord(composed);
    const kept = composed.slice(0, composed.length - begun.length);
    this.#replace(this.before.length, `${kept}${word} `);
    this.#spaceIsOurs = true;
  }

  clear() {
    this.area.value = "";
    this.#settle();
  }

  /** Return how many characters the person put in by other means, at least 1. */
  changed() {
    const added = this.area.value.length - this.#length;
    this.#settle();
    return Math.max(1, added);
  }

  #replace(count, text) {
    const { selectionStart, selectionEnd } = this.area;
    this.area.setRangeText(text, selectionStart - count, selectionEnd, "end");
    this.#settle();
  }

  #settle() {
    this.#length = this.area.value.length;
    this.#spaceIsOurs = false;
  }
}
