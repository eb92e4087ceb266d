/** Mend slips as export/runtime/corrections.py does, which says why each rule is there. */

import { BLANK, DROPPED, Layout, MARK, MOST } from "./slips.js";

const UNFINISHED = 3.5;
const UNKNOWN = 2.0;
const LETTER = 1.5;
const KNOWN_MARGIN = 4.0;
const LONGEST = 24;
const SHORTEST_PART = 2;
const SHORTEST_BEGUN = 3;
const UNK = 0;

export class Corrections {
  /**
   * @param {WordIndex} index of the words
   * @param {string[]} languages of the layout of the keys
   * @param {RareWords[]} rare words that they lack
   */
  constructor(index, languages, rare) {
    this.index = index;
    this.rare = rare;
    this.layout = new Layout(languages);
    this.vocabulary = index.vocabulary;
    this.zipf = Math.log(Math.log(index.words.length) + 0.58);
  }

  /**
   * Return {words, isMended}: completions and mended words together.
   *
   * @param {number[]} completions rows of words that begin so, likeliest first
   * @param reading the end of the text
   * @param {string} typed the word that is begun, as it was typed
   * @param {{never: Set<number>, blocked: Set<string>, kept: Set<string>, offered: number}} rules rows
   *   and words that are never offered, words that are not corrected either, and how many are offered
   */
  offer(completions, reading, typed, { never, blocked, kept, offered }) {
    const { begun, distribution } = reading;
    const completed = completions.map((row) => this.index.words[row]);
    if (!begun || begun.length > LONGEST) return { words: completed, isMended: false };
    const { whole, other } = this.#meant(begun, distribution, never, blocked);
    const worth = new Map(
      completions.map((row, place) => [completed[place], distribution[row] - UNFINISHED]),
    );
    for (const [word, value] of [...whole, ...other]) {
      worth.set(word, Math.max(value, worth.get(word) ?? -Infinity));
    }
    const words = [...worth.keys()].sort((a, b) => worth.get(b) - worth.get(a)).slice(0, offered);
    const stays = (word) => kept.has(word) || blocked.has(word);
    const isMended =
      whole.has(words[0]) &&
      mayMend(reading, typed, words[0], stays) &&
      this.#isClear(begun, whole.get(words[0]), distribution);
    return { words, isMended };
  }

  #meant(begun, scores, never, blocked) {
    const { tree, rows, shown } = this.index;
    const meant = { whole: new Map(), other: new Map() };
    const worth = (place) => (never.has(rows[place]) ? -Infinity : scores[rows[place]]);
    this.#add(meant, begun, tree, { worth, shown });
    for (const rare of this.rare) {
      const { words } = rare.tree;
      const ofRare = (place) =>
        blocked.has(words[place]) ? -Infinity : scores[UNK] + rare.worth[place];
      this.#add(meant, begun, rare.tree, { worth: ofRare, shown: words });
    }
    for (const [pair, value] of this.#parted(begun, scores, never)) meant.other.set(pair, value);
    return meant;
  }

  #add({ whole, other }, begun, tree, { worth, shown }) {
    const keep = (kept, place, cost) => {
      if (tree.words[place] !== begun) keepBest(kept, shown[place], worth(place) - cost);
    };
    for (const { node, cost, left } of tree.reach(begun, this.layout)) {
      if (cost && tree.ends(node)) keep(whole, node.first, cost);
      if (!cost && tree.ends(node)) keepBest(other, shown[node.first], worth(node.first));
      if (left && cost + DROPPED <= MOST) {
        for (const { first } of [...tree.nexts(node).values()].filter((one) => tree.ends(one))) {
          keep(whole, first, cost + DROPPED);
        }
      }
      if (!cost || begun.length >= SHORTEST_BEGUN) {
        const place = likeliest(node.first + Number(tree.ends(node)), node.last, worth);
        if (place !== null) keep(other, place, cost + UNFINISHED);
      }
    }
  }

  *#parted(begun, scores, never) {
    const { vocabulary } = this;
    if (vocabulary.has(begun)) return;
    for (let cut = 1; cut < begun.length; cut++) {
      const [first, second] = [begun.slice(0, cut), begun.slice(cut)];
      if (vocabulary.elided.has(`${first}'`)) {
        yield* this.#pair(`${first}'`, second, MARK, scores, never);
      }
      if (Math.min(first.length, second.length) >= SHORTEST_PART) {
        yield* this.#pair(first, second, BLANK, scores, never);
      }
    }
  }

  *#pair(first, second, cost, scores, never) {
    const { vocabulary } = this;
    const [row, next] = [vocabulary.row(first), vocabulary.row(second)];
    if (Math.min(row, next) > UNK && !never.has(row) && !never.has(next)) {
      const blank = vocabulary.elided.has(first) ? "" : " ";
      const pair = `${vocabulary.words[row]}${blank}${vocabulary.words[next]}`;
      yield [pair, scores[row] - cost - Math.log(next - 1) - this.zipf];
    }
  }

  #isClear(begun, worth, scores) {
    const row = this.vocabulary.row(begun);
    if (row !== UNK) return worth > scores[row] + KNOWN_MARGIN;
    const known = this.rare.map((one) => (one.worthOf(begun) ?? -Infinity) + KNOWN_MARGIN);
    return worth > scores[UNK] + Math.max(-UNKNOWN - LETTER * begun.length, ...known);
  }
}

function mayMend({ begun, beginsSentence, sentences }, typed, meant, stays) {
  const expectsLarge = beginsSentence || /^\p{Uppercase}/u.test(meant);
  const isWrittenLarge =
    typed !== typed.slice(0, 1) + typed.slice(1).toLowerCase() ||
    (typed.slice(0, 1) !== typed.slice(0, 1).toLowerCase() && !expectsLarge);
  return !isWrittenLarge && !stays(begun) && !sentences.some((words) => words.includes(begun));
}

function likeliest(first, last, worth) {
  let best = first < last ? first : null;
  for (let place = first + 1; place < last; place++) {
    if (worth(place) > worth(best)) best = place;
  }
  return best;
}

function keepBest(kept, word, value) {
  if (value > (kept.get(word) ?? -Infinity)) kept.set(word, value);
}
