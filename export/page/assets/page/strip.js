/** Fill the suggestion strip: three places, the best word in the centre (export/runtime/strip.py). */

import { cased } from "./casing.js";
import { typedWord } from "./cursor.js";

export const SLOTS = 3;
const EMPTY = Object.freeze({ left: null, centre: null, right: null });

/** Put words, likeliest first, into their places; keep what is typed where one stays free. */
export function fillStrip(words, typed) {
  const [best = null, second = null, third = null] = words
    .slice(0, SLOTS)
    .map((text) => ({ text, kind: "word" }));
  const strip = { left: second, centre: best, right: third };
  if (third === null && typed && !words.slice(0, SLOTS).includes(typed)) {
    strip.left = { text: typed, kind: "verbatim" };
    strip.right = second;
  }
  return strip;
}

export class Keyboard {
  /**
   * @param {NextWords} words follows the text
   * @param {WordIndex} index of the same words
   * @param {{languages: string[], never: number[], offensive?: number[]}} rules rows that are never
   *   shown, and those of them that are shown if the person allows it
   */
  constructor(words, index, { languages, never, offensive = [] }) {
    this.words = words;
    this.index = index;
    this.languages = languages;
    this.rules = { never, offensive };
    this.allowOffensive(false);
  }

  /** Show offensive words, too, or not. */
  allowOffensive(isAllowed) {
    const shown = new Set(isAllowed ? this.rules.offensive : []);
    this.never = new Set(this.rules.never.filter((row) => !shown.has(row)));
  }

  /** Return the strip for the text before the cursor, which may be all empty. */
  async suggest(text) {
    const reading = await this.words.read(text);
    if (reading === null) return EMPTY;
    const { begun, beginsSentence, distribution } = reading;
    const rows = this.index.likeliest(begun, distribution, SLOTS, this.never);
    const typed = typedWord(text);
    const rules = { beginsSentence, languages: this.languages };
    const shown = rows.map((row) => cased(this.index.words[row], typed, rules));
    return fillStrip([...new Set(shown)], typed);
  }
}
