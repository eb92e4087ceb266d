/** Find the words of a list that begin with what is typed, likeliest first. */

import { Vocabulary } from "./vocabulary.js";
import { WordTree } from "./word_tree.js";

const NEVER_SUGGESTED = 2; // <unk> and <eos> are the first rows

export class WordIndex {
  /** Sort the rows of a list of words in which <unk> and <eos> come first. */
  constructor(words) {
    this.vocabulary = Vocabulary.of(words);
    this.words = words;
    const { typed } = this.vocabulary;
    this.typed = typed;
    const rows = words.map((_, row) => row).slice(NEVER_SUGGESTED);
    this.rows = rows.sort((a, b) => (typed[a] < typed[b] ? -1 : 1));
    this.tree = new WordTree(this.rows.map((row) => typed[row]));
    this.shown = this.rows.map((row) => words[row]);
  }

  /** Return at most `count` rows whose words begin so, likeliest first, none of `never`. */
  likeliest(begun, scores, count, never = new Set()) {
    const best = [];
    for (let place = this.#firstAtLeast(begun); place < this.rows.length; place++) {
      const row = this.rows[place];
      if (!this.typed[row].startsWith(begun)) break;
      if (!never.has(row)) insert(best, row, scores, count);
    }
    return best;
  }

  #firstAtLeast(begun) {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.typed[this.rows[middle]] < begun) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function insert(best, row, scores, count) {
  if (best.length === count && scores[row] <= scores[best[count - 1]]) return;
  let place = best.length;
  while (place > 0 && scores[best[place - 1]] < scores[row]) place--;
  best.splice(place, 0, row);
  if (best.length > count) best.pop();
}
