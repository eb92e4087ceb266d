/** What a slip of the fingers costs, in nats, as export/runtime/slips.py says, where each is told. */

export const NEIGHBOUR = 5.3;
export const DROPPED = 4.9;
export const DOUBLED = 5.3;
export const SWAPPED = 4.9;
export const WRONG = 8.3;
export const EXTRA = 8.0;
export const MARK = 1.5;
export const BLANK = 4.6;
export const MOST = 10.7;

const QWERTY = ["qwertyuiop", "asdfghjkl", "zxcvbnm"];
const QWERTZ = ["qwertzuiop", "asdfghjkl", "yxcvbnm"];
const LAYOUTS = new Map([
  ...same("cs sk hu", QWERTZ),
  ...same("bs hr sl sr", ["qwertzuiopšđ", "asdfghjklčć", "yxcvbnm"]),
  ["da", ["qwertyuiopå", "asdfghjklæø", "zxcvbnm"]],
  ["de", ["qwertzuiopü", "asdfghjklöä", "yxcvbnm"]],
  ["el", ["ςερτυθιοπ", "ασδφγηξκλ", "ζχψωβνμ"]],
  ...same("ca es", ["qwertyuiop", "asdfghjklñ", "zxcvbnm"]),
  ["fr", ["azertyuiop", "qsdfghjklm", "wxcvbn"]],
  ...same("nb nn no", ["qwertyuiopå", "asdfghjkløæ", "zxcvbnm"]),
  ["ru", ["йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю"]],
  ...same("fi sv", ["qwertyuiopå", "asdfghjklöä", "zxcvbnm"]),
  ["tr", ["qwertyuıopğü", "asdfghjklşi", "zxcvbnmöç"]],
  ["uk", ["йцукенгшщзхї", "фівапролджє", "ячсмитьбю"]],
]);
const PLAIN = new Map([..."ıłøđß"].map((letter, place) => [letter, "ilods"[place]]));
const ROW_STARTS = [0, 0.25, 0.75]; // in widths of a key
const REACH = 1.3;
const LETTER = /^[\p{L}\p{M}']$/u;

function same(languages, rows) {
  return languages.split(" ").map((language) => [language, rows]);
}

/** Return the rows of keys of the first of some BCP 47 tags that has a layout of its own. */
export function keyRows(languages) {
  const names = languages.map((language) => language.split("-")[0].toLowerCase());
  return LAYOUTS.get(names.find((name) => LAYOUTS.has(name))) ?? QWERTY;
}

export class Layout {
  #places = new Map();

  /** Lay the keys out by the first of some BCP 47 tags that has a layout of its own. */
  constructor(languages) {
    keyRows(languages).forEach((letters, row) =>
      [...letters].forEach((letter, column) =>
        this.#places.set(letter, [ROW_STARTS[row] + column, row]),
      ),
    );
  }

  /** Return the cost of typing one letter where another was meant. */
  replaced(meant, typed) {
    if ((PLAIN.get(meant) ?? meant.normalize("NFD")[0]) === typed) return MARK;
    const [one, other] = [this.#places.get(meant), this.#places.get(typed)];
    if (!one || !other) return one || LETTER.test(meant) ? WRONG : Infinity; // no emoji is meant
    return Math.hypot(one[0] - other[0], one[1] - other[1]) <= REACH ? NEIGHBOUR : WRONG;
  }
}
