/** Follow one text and carry the model's state, so that a new word costs one step. */

import { inContext, splitAtCursor } from "./cursor.js";
import { isEmoji, isUnparted } from "./letters.js";
import { UNKNOWN } from "./text.js";
import { Vocabulary } from "./vocabulary.js";

const EOS = 1;

export class NextWords {
  #read = [];
  #prediction = null;

  /**
   * @param {{contextSize: number|null, freshState: Function, step: Function}} model
   * @param {string[]} words of the model's rows
   */
  constructor(model, words) {
    this.model = model;
    this.vocabulary = Vocabulary.of(words);
  }

  /**
   * Return what the model expects; null where a number, an address or writing without blanks is
   * begun. One at a time.
   */
  async read(text) {
    const [sentences, typed] = splitAtCursor(text);
    if (typed === UNKNOWN || isUnparted(typed)) return null;
    const current = sentences.at(-1);
    const beginsSentence = current.every(isEmoji);
    const [head, begun] = this.#withoutElided(typed, current);
    const { distribution } = await this.#predict(this.#tokens(sentences));
    return { begun, beginsSentence, sentences, distribution, head };
  }

  /** Move the elided words in front of a begun one to its sentence; return them and it. */
  #withoutElided(begun, sentence) {
    let heads = "";
    for (let [head, rest] = this.vocabulary.elision(begun); head; ) {
      sentence.push(head);
      heads += head;
      begun = rest;
      [head, rest] = this.vocabulary.elision(begun);
    }
    return [heads, begun];
  }

  #tokens(sentences) {
    const read = sentences.map((words) => this.vocabulary.parts(words));
    return read
      .filter((words, place) => words.length > 0 || place === read.length - 1)
      .flatMap((words) => [EOS, ...words.map((word) => this.vocabulary.row(word))]);
  }

  async #predict(all) {
    const tokens = inContext(all, this.model.contextSize);
    const goesOn =
      this.#prediction !== null && this.#read.every((token, place) => tokens[place] === token);
    const known = goesOn ? this.#read.length : 0;
    if (goesOn && known === tokens.length) return this.#prediction;
    const state = goesOn ? this.#prediction.state : this.model.freshState();
    this.#prediction = await this.model.step(tokens.slice(known), state);
    this.#read = tokens;
    return this.#prediction;
  }
}
