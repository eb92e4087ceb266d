/** Show the strip, and follow the text: only the newest one is asked for, one at a time. */

const PLACES = ["left", "centre", "right"];

export class SuggestionStrip {
  #wanted = null;
  #isAsking = false;
  #keyboard = null;
  #shown = { text: null, correction: null };

  /**
   * @param {HTMLElement} place with one button for each of the three places
   * @param {{take: (word: string, kind: string) => void, failed: (error: Error) => void}} into what happens
   */
  constructor(place, into) {
    this.buttons = PLACES.map((name) => place.querySelector(`[data-place=${name}]`));
    this.into = into;
    place.addEventListener("pointerdown", (event) => event.preventDefault());
    for (const button of this.buttons) {
      button.addEventListener("click", () => into.take(button.dataset.word, button.dataset.kind));
    }
    this.#show({}, null);
  }

  /** Suggest with another keyboard from now on; null shows nothing. */
  use(keyboard) {
    this.#keyboard = keyboard;
    this.#wanted = null;
    this.#show({}, null);
  }

  /** Return what a blank takes after a text; null if nothing, or if the strip is not its. */
  correctionOf(text) {
    return text === this.#shown.text ? this.#shown.correction : null;
  }

  /** Suggest for the text before the cursor. */
  async follow(text) {
    this.#wanted = text;
    if (this.#isAsking || this.#keyboard === null) return;
    this.#isAsking = true;
    try {
      while (this.#wanted !== null && this.#keyboard !== null) await this.#ask();
    } catch (error) {
      this.#wanted = null;
      this.into.failed(error);
    } finally {
      this.#isAsking = false;
    }
  }

  /** Take the suggestion of one place, counted from 1; return whether there was one. */
  take(number) {
    const button = this.buttons[number - 1];
    if (!button || button.disabled) return false;
    button.click();
    return true;
  }

  async #ask() {
    const [text, keyboard] = [this.#wanted, this.#keyboard];
    this.#wanted = null;
    try {
      const strip = await keyboard.suggest(text);
      if (keyboard === this.#keyboard && this.#wanted === null) this.#show(strip, text);
    } catch (error) {
      if (keyboard === this.#keyboard) throw error; // else it was closed while it was asked
    }
  }

  #show(strip, text) {
    const isMended = strip.centre?.kind === "correction";
    this.#shown = { text, correction: isMended ? strip.centre.text : null };
    PLACES.forEach((name, place) => {
      const slot = strip[name] ?? null;
      const button = this.buttons[place];
      button.disabled = slot === null;
      button.dataset.word = slot?.text ?? "";
      button.dataset.kind = slot?.kind ?? "";
      button.textContent = slot?.text ?? "";
      button.setAttribute("aria-label", nameOf(slot, place + 1));
    });
  }
}

function nameOf(slot, number) {
  if (slot === null) return `Suggestion ${number}: none`;
  if (slot.kind === "verbatim") return `Keep ${slot.text}`;
  if (slot.kind === "correction") return `Correction, which a space takes: ${slot.text}`;
  return `Suggestion ${number}: ${slot.text}`;
}
