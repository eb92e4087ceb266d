/** Mend slips as export/runtime/corrections.py does, which says why each rule is there. */

import { BLANK, DROPPED, Layout, MOST } from "./slips.js";

const UNFINISHED = 3.0;
const UNKNOWN = 2.7;
const LETTER = 1.5;
const KNOWN_MARGIN = 6.0;
const LONGEST = 24;
const SHORTEST_PART = 2;
const SHORTEST_BEGUN = 3;
const UNK = 0;

export class Corrections {
  /**
   * @param {WordIndex} index of the words
   * @param {string[]} languages of the layout of the keys
   */
  constructor(index, languages) {
    this.index = index;
    this.layout = new Layout(languages);
    this.rows = new Map(index.words.map((word, row) => [word, row]));
    this.zipf = Math.log(Math.log(index.words.length) + 0.58);
  }

  /**
   * Return {words, isMended}: completions and mended words together.
   *
   * @param {number[]} completions rows of words that begin so, likeliest first
   * @param reading the end of the text
   * @param {string} typed the word that is begun, as it was typed
   * @param {{never: Set<number>, stays: (word: string) => boolean, slots: number}} rules rows that are
   *   never offered, words that are never corrected, and how many are offered
   */
  offer(completions, reading, typed, { never, stays, slots }) {
    const { begun, distribution } = reading;
    const completed = completions.map((row) => this.index.words[row]);
    if (!begun || begun.length > LONGEST) return { words: completed, isMended: false };
    const { whole, other } = this.#meant(begun, distribution, never);
    const worth = new Map(completions.map((row, place) => [completed[place], distribution[row]]));
    for (const [word, value] of [...whole, ...other]) {
      worth.set(word, Math.max(value, worth.get(word) ?? -Infinity));
    }
    const words = [...worth.keys()].sort((a, b) => worth.get(b) - worth.get(a)).slice(0, slots);
    const isMended =
      whole.has(words[0]) &&
      mayMend(reading, typed, stays) &&
      this.#isClear(begun, whole.get(words[0]), distribution);
    return { words, isMended };
  }

  #meant(begun, scores, never) {
    const { tree, rows } = this.index;
    const whole = new Map();
    const other = new Map();
    const worth = (place) => (never.has(rows[place]) ? -Infinity : scores[rows[place]]);
    for (const { node, cost, left } of tree.reach(begun, this.layout)) {
      if (cost && tree.ends(node)) {
        keepBest(whole, tree.words[node.first], worth(node.first) - cost, begun);
      }
      if (left && cost + DROPPED <= MOST) {
        for (const { first } of [...tree.nexts(node).values()].filter((one) => tree.ends(one))) {
          keepBest(whole, tree.words[first], worth(first) - (cost + DROPPED), begun);
        }
      }
      if (cost && begun.length >= SHORTEST_BEGUN) {
        const place = likeliest(node.first + Number(tree.ends(node)), node.last, worth);
        if (place !== null) {
          keepBest(other, tree.words[place], worth(place) - cost - UNFINISHED, begun);
        }
      }
    }
    for (const [pair, value] of this.#parted(begun, scores, never)) other.set(pair, value);
    return { whole, other };
  }

  *#parted(begun, scores, never) {
    if (this.rows.has(begun)) return;
    for (let cut = SHORTEST_PART; cut <= begun.length - SHORTEST_PART; cut++) {
      const parts = [begun.slice(0, cut), begun.slice(cut)];
      const [first, second] = parts.map((part) => this.rows.get(part) ?? UNK);
      if (Math.min(first, second) > UNK && !never.has(first) && !never.has(second)) {
        yield [parts.join(" "), scores[first] - BLANK - Math.log(second - 1) - this.zipf];
      }
    }
  }

  #isClear(begun, worth, scores) {
    const row = this.rows.get(begun) ?? UNK;
    if (row !== UNK) return worth - scores[row] >= KNOWN_MARGIN;
    return worth > scores[UNK] - UNKNOWN - LETTER * begun.length;
  }
}

function mayMend({ begun, beginsSentence, sentences }, typed, stays) {
  const isWrittenLarge =
    typed !== typed.slice(0, 1) + typed.slice(1).toLowerCase() ||
    (typed.slice(0, 1) !== typed.slice(0, 1).toLowerCase() && !beginsSentence);
  return !isWrittenLarge && !stays(begun) && !sentences.some((words) => words.includes(begun));
}

function likeliest(first, last, worth) {
  let best = first < last ? first : null;
  for (let place = first + 1; place < last; place++) {
    if (worth(place) > worth(best)) best = place;
  }
  return best;
}

function keepBest(kept, word, value, begun) {
  if (word !== begun && value > (kept.get(word) ?? -Infinity)) kept.set(word, value);
}
