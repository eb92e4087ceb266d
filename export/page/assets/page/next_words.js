/** Follow one text and carry the model's state, so that a new word costs one step. */

import { inContext, splitAtCursor } from "./cursor.js";
import { UNKNOWN } from "./text.js";

const UNK = 0;
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
    this.rows = new Map(words.map((word, row) => [word, row]));
  }

  /** Return what the model expects; null where a number or an address is begun. One at a time. */
  async read(text) {
    const [sentences, begun] = splitAtCursor(text);
    if (begun === UNKNOWN) return null;
    const { distribution } = await this.#predict(this.#tokens(sentences));
    return { begun, beginsSentence: sentences.at(-1).length === 0, sentences, distribution };
  }

  #tokens(sentences) {
    return sentences.flatMap((words) => [EOS, ...words.map((word) => this.rows.get(word) ?? UNK)]);
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
