/** Fill the suggestion strip: three places, the best word in the centre (export/runtime/strip.py). */

import { cased } from "./casing.js";
import { Corrections } from "./corrections.js";
import { typedWord } from "./cursor.js";
import { splitSentences } from "./text.js";

export const SLOTS = 3;
const OFFERED = SLOTS + 1; // one of them may be what is typed, which is left out
const EMPTY = Object.freeze({ left: null, centre: null, right: null });

/** Put words, likeliest first, into their places, but what is typed only where one stays free. */
export function fillStrip(words, typed, isMended = false) {
  const mends = isMended && words.length > 0 && words[0] !== typed;
  const [best = null, second = null, third = null] = words
    .filter((word) => word !== typed)
    .slice(0, SLOTS)
    .map((text) => ({ text, kind: "word" }));
  const verbatim = { text: typed, kind: "verbatim" };
  if (mends) return { left: verbatim, centre: { ...best, kind: "correction" }, right: second };
  if (third === null && typed) return { left: verbatim, centre: best, right: second };
  return { left: second, centre: best, right: third };
}

export class Keyboard {
  /**
   * @param {NextWords} words follows the text
   * @param {WordIndex} index of the same words
   * @param {{languages: string[], never: number[], blocked?: string[], offensive?: number[]}} rules
   *   rows that are never shown, words that are neither shown nor corrected, and those rows of them
   *   that are shown if the person allows it
   * @param {RareWords[]} rare words that the index lacks
   */
  constructor(words, index, { languages, never, blocked = [], offensive = [] }, rare = []) {
    this.words = words;
    this.index = index;
    this.languages = languages;
    this.rules = { never, blocked, offensive };
    this.kept = new Set();
    this.typed = new Set();
    this.corrections = new Corrections(index, languages, rare);
    this.allowOffensive(false);
  }

  /** Show offensive words, too, or not. */
  allowOffensive(isAllowed) {
    const rows = new Set(isAllowed ? this.rules.offensive : []);
    const shown = new Set([...rows].map((row) => this.index.words[row]));
    this.never = new Set(this.rules.never.filter((row) => !rows.has(row)));
    this.blocked = new Set(this.rules.blocked.filter((word) => !shown.has(word)));
  }

  /** Never correct a word again: its person took the correction back. */
  keep(word) {
    for (const one of splitSentences(word).flat()) this.kept.add(one);
  }

  /** Take a text as done: what its person has typed twice by now is never corrected again. */
  finish(text) {
    for (const word of splitSentences(text).flat()) {
      if (this.typed.has(word)) this.kept.add(word);
      this.typed.add(word);
    }
  }

  /** Take over what the same person's other keyboard spares. */
  spare(other) {
    this.kept = other.kept;
    this.typed = other.typed;
  }

  /** Return the strip for the text before the cursor, which may be all empty. */
  async suggest(text) {
    const reading = await this.words.read(text);
    if (reading === null) return EMPTY;
    const { begun, distribution, head: elided = "" } = reading;
    const rows = this.index.likeliest(begun, distribution, OFFERED, this.never);
    const typed = typedWord(text);
    // What is elided stays as it was typed, in front of every word.
    const [head, rest] = [typed.slice(0, elided.length), typed.slice(elided.length)];
    const { never, blocked, kept } = this;
    const limits = { never, blocked, kept, offered: OFFERED };
    const { words, isMended } = this.corrections.offer(rows, reading, rest, limits);
    const beginsSentence = reading.beginsSentence && !head;
    const rules = { beginsSentence, languages: this.languages };
    const shown = words.map((word) => head + cased(word, rest, rules));
    return fillStrip([...new Set(shown)], typed, isMended);
  }
}
