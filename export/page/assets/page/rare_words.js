/** Words of a language that a model's list lacks, as export/runtime/rare_words.py has them. */

import { WordTree } from "./word_tree.js";

const ZIPF = 2.0;
const NO_WORD = /^(#|<unk>$|<eos>$|$)/;

export class RareWords {
  #worth;

  /**
   * @param {string[]} ranked words, most frequent first
   * @param {Vocabulary} vocabulary whose words are none of them
   */
  constructor(ranked, vocabulary) {
    const worth = ranked.map((word, place) => [word, -Math.log(place + 1) - ZIPF]);
    this.#worth = new Map(worth.filter(([word]) => !vocabulary.has(word)));
    const words = [...this.#worth.keys()].sort();
    this.tree = new WordTree(words);
    this.worth = words.map((word) => this.#worth.get(word));
  }

  /** Return the worth of a word; undefined if it is not one of them. */
  worthOf(word) {
    return this.#worth.get(word);
  }
}

/** Return the words of a language's file, most frequent first; notes begin with #. */
export function wordsOf(file) {
  return file.split("\n").filter((line) => !NO_WORD.test(line));
}
