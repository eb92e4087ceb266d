/** Write a suggested word in the case of the person who types, as export/runtime/casing.py does. */

const UPRIGHT = new Set(["i", "i'm", "i'll", "i've", "i'd"]);
const DOTTED = new Set(["az", "tr"]);
const ALPHABETIC = /\p{L}/u;
const UPPER = /\p{Uppercase}/u;

// Where a capital at the beginning of a word is not the letter's upper case.
const TITLES = new Map([
  ["ŉ", "ʼN"],
  ...["ǆǅ", "ǉǈ", "ǌǋ", "ǳǲ", "Ǆǅ", "Ǉǈ", "Ǌǋ", "Ǳǲ", "ᾳᾼ", "ῃῌ", "ῳῼ"].map((pair) => [...pair]),
  ...greekWithIota(),
]);

export function cased(word, begun, { beginsSentence, languages }) {
  const letters = Array.from(begun).filter((letter) => ALPHABETIC.test(letter));
  const isUpper = (letter) => UPPER.test(letter);
  const own = languages.map((language) => language.split("-")[0].toLowerCase());
  const isDotted = own.some((language) => DOTTED.has(language));
  if (letters.length > 1 && letters.every(isUpper)) {
    return (isDotted ? word.replaceAll("i", "İ") : word).toUpperCase();
  }
  const beginsLarge = letters.length ? isUpper(letters[0]) : beginsSentence;
  const isUpright = UPRIGHT.has(word) && own.includes("en");
  if (!beginsLarge && !isUpright) return word;
  const [first = ""] = word;
  return (first === "i" && isDotted ? "İ" : title(first)) + word.slice(first.length);
}

function title(letter) {
  const known = TITLES.get(letter);
  if (known !== undefined) return known;
  if (letter >= "\u10d0" && letter <= "\u10ff") return letter; // Georgian has no capitals in text
  const [head = "", ...tail] = letter.toUpperCase();
  // ß becomes Ss, and a Greek iota that stood beneath stays there.
  return head + tail.join("").toLowerCase().replaceAll("ι", "\u0345");
}

function* greekWithIota() {
  for (const start of [0x1f80, 0x1f90, 0x1fa0]) {
    for (let offset = 0; offset < 8; offset++) {
      const large = String.fromCodePoint(start + 8 + offset);
      yield [String.fromCodePoint(start + offset), large];
      yield [large, large];
    }
  }
  for (const large of "ᾼῌῼǅǈǋǲ") yield [large, large];
}
