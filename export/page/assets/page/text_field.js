/** Write into the text field at its cursor. */

import { typedWord } from "./cursor.js";

const CLINGS = /^[.,!?;:…)]$/u;
const ENDS = /^[\s.,!?;:…)]$/u;

export class TextField {
  #spaceIsOurs = false;
  #length = 0;
  #mended = null;

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

  /** Return whether a character ends the word that is begun. */
  static ends(character) {
    return ENDS.test(character);
  }

  /**
   * Type a character; a mark takes the place of the space that a suggestion left. One that ends the
   * word puts a correction, if there is any, in its place.
   */
  type(character, correction = null) {
    if (correction !== null && TextField.ends(character)) {
      this.#mend(correction, character);
      return;
    }
    const taken = this.#spaceIsOurs && CLINGS.test(character) ? 1 : 0;
    this.#replace(taken, character);
  }

  /**
   * Take back the selection, or the character before the cursor, and right after a correction that
   * too. Return the word that was corrected, if so, else null.
   */
  takeBack() {
    const undone = this.#mended;
    if (this.canUndo) {
      this.#replace(undone.after.length, undone.typed);
      return undone.typed;
    }
    const { selectionStart, selectionEnd } = this.area;
    const last = selectionStart === selectionEnd ? (Array.from(this.before).at(-1) ?? "") : "";
    this.#replace(last.length, "");
    return null;
  }

  /** Whether the cursor stands right behind a correction and the character that asked for it. */
  get canUndo() {
    const { selectionStart, selectionEnd } = this.area;
    return selectionStart === selectionEnd && this.before === this.#mended?.text;
  }

  /** Put a suggestion, and a space unless it is elided, in the place of the word that is begun. */
  take(word) {
    const blank = word.endsWith("'") ? "" : " ";
    this.#complete(`${word}${blank}`);
    this.#spaceIsOurs = blank !== "";
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

  #mend(word, character) {
    const after = `${word}${character}`;
    const typed = this.#complete(after);
    this.#mended = { typed, after, text: this.before };
  }

  /** Put a text in the place of the word that is begun, which is returned. */
  #complete(text) {
    const composed = this.before.normalize("NFC");
    const begun = typedWord(composed);
    const kept = composed.slice(0, composed.length - begun.length);
    this.#replace(this.before.length, `${kept}${text}`);
    return begun;
  }

  #replace(count, text) {
    const { selectionStart, selectionEnd } = this.area;
    this.area.setRangeText(text, selectionStart - count, selectionEnd, "end");
    this.#settle();
  }

  #settle() {
    this.#length = this.area.value.length;
    this.#spaceIsOurs = false;
    this.#mended = null;
  }
}
