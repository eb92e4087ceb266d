/** A list of words, <unk> and <eos> first, as models/text/vocabulary.py reads it. */

import { isEmoji, isUnparted } from "./letters.js";
import { asRead } from "./text.js";

const UNK = 0;
const ALIKE = [
  ["ı", "i"],
  ["ß", "ss"],
];
const made = new WeakMap();

export class Vocabulary {
  #rows;

  /** Return the vocabulary of an array of words, made once. */
  static of(words) {
    if (!made.has(words)) made.set(words, new Vocabulary(words));
    return made.get(words);
  }

  /** @param {string[]} words as a strip shows them */
  constructor(words) {
    this.words = words;
    const rows = new Map(words.map((word, row) => [word, row]));
    this.typed = words.map((word, row) => {
      const small = asRead(word);
      setDefault(rows, small, row);
      return rows.get(small) === row ? small : word;
    });
    this.typed.forEach((word, row) => {
      for (const [letter, alike] of ALIKE) setDefault(rows, word.replaceAll(letter, alike), row);
    });
    this.elided = new Set(this.typed.filter((word) => /^.+'$/su.test(word)));
    this.#rows = rows;
  }

  has(word) {
    return this.#rows.has(word);
  }

  /** Return the row of a word, that of <unk> if the list does not have it. */
  row(word) {
    return this.#rows.get(word) ?? UNK;
  }

  /** Return typed words as the list reads them, as Vocabulary.parts says. */
  parts(words) {
    return words.flatMap((word) => {
      if (this.has(word)) return [word];
      if (isEmoji(word) || isUnparted(word)) return [];
      const [head, rest] = this.elision(word);
      return head ? [head, ...this.parts([rest])] : [word];
    });
  }

  /** Return the elided word with which a word begins, or "", and what is left of it. */
  elision(word) {
    const at = word.indexOf("'") + 1;
    const isWhole = this.has(word) && at < word.length;
    const head = word.slice(0, at);
    return isWhole || !this.elided.has(head) ? ["", word] : [head, word.slice(at)];
  }
}

function setDefault(rows, word, row) {
  if (!rows.has(word)) rows.set(word, row);
}
