/** Find the words meant by letters with a slip in them, as export/runtime/word_tree.py does. */

import { DOUBLED, DROPPED, EXTRA, MARK, MOST, SWAPPED } from "./slips.js";

const LETTERS_FOR_TWO = 4;

/** The words from `first` up to `last` of a sorted list: all that have one beginning. */
class Node {
  nexts = null;

  constructor(first, last, depth) {
    this.first = first;
    this.last = last;
    this.depth = depth;
  }
}

export class WordTree {
  /** @param {string[]} words sorted */
  constructor(words) {
    this.words = words;
    this.root = new Node(0, words.length, 0);
  }

  /** Return the nodes one letter further, by that letter. */
  nexts(node) {
    node.nexts ??= new Map(this.#parts(node));
    return node.nexts;
  }

  /** Return whether a word ends here; it is the node's first. */
  ends(node) {
    return node.first < node.last && this.words[node.first].length === node.depth;
  }

  /** Return {node, cost, left} where the typed letters may lead. */
  reach(typed, layout) {
    const search = new Search(this, layout, 1 + Number(typed.length >= LETTERS_FOR_TWO));
    for (const letter of typed.split("")) search.read(letter);
    return search.found();
  }

  *#parts(node) {
    const { words } = this;
    let at = node.first + Number(this.ends(node));
    while (at < node.last) {
      const letter = words[at][node.depth];
      let low = at + 1;
      let high = node.last;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (words[middle][node.depth] === letter) low = middle + 1;
        else high = middle;
      }
      yield [letter, new Node(at, low, node.depth + 1)];
      at = low;
    }
  }
}

/** Every node that the letters read so far may lead to, and the letter awaited after half a swap. */
class Search {
  #states = [];
  #known = new Map();
  #before = null;

  constructor(tree, layout, left) {
    this.tree = tree;
    this.layout = layout;
    this.#put(tree.root, "", 0, left);
  }

  read(letter) {
    const states = this.#states;
    this.#states = [];
    this.#known = new Map();
    for (const { node, awaited, cost, left } of states) {
      if (!awaited) {
        this.#keep(node, letter, cost, left);
        if (left) this.#slip(node, letter, cost, left);
      } else if (awaited === letter) this.#put(node, "", cost, left);
    }
    this.#before = letter;
  }

  found() {
    return this.#states.filter(({ awaited }) => !awaited);
  }

  #keep(node, letter, cost, left) {
    const nexts = this.tree.nexts(node);
    const next = nexts.get(letter);
    if (next) this.#put(next, "", cost, left);
    const mark = nexts.get("'");
    const follow = mark && this.tree.nexts(mark).get(letter);
    if (follow) this.#put(follow, "", cost + MARK, left);
  }

  #slip(node, letter, cost, left) {
    const after = left - 1;
    this.#put(node, "", cost + (letter === this.#before ? DOUBLED : EXTRA), after);
    for (const [meant, child] of this.tree.nexts(node)) {
      if (meant === letter) continue;
      const replaced = this.layout.replaced(meant, letter);
      this.#put(child, "", cost + replaced, replaced === MARK ? left : after);
      const follow = this.tree.nexts(child).get(letter);
      if (follow) {
        this.#put(follow, "", cost + DROPPED, after);
        this.#put(follow, meant, cost + SWAPPED, after);
      }
    }
  }

  #put(node, awaited, cost, left) {
    if (cost > MOST) return;
    if (!this.#known.has(node)) this.#known.set(node, new Map());
    const known = this.#known.get(node);
    const before = known.get(awaited);
    if (before === undefined) {
      const state = { node, awaited, cost, left };
      known.set(awaited, state);
      this.#states.push(state);
    } else if (cost < before.cost) Object.assign(before, { cost, left });
  }
}
