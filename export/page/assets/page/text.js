/**
 * Turn what people type into words exactly as models/text/words.py does, which says why each rule is
 * there. Tests give both the same texts. Python's \w, \s and \b are written out, as JavaScript's
 * are ASCII; its possessive x*+ is (?=(x*))\1 here.
 */

import { MARKS, ONE_EMOJI, POINTS, isEmoji } from "./letters.js";

export const UNKNOWN = "<unk>";

const LETTER = String.raw`\p{L}\p{N}`; // inside [...]: \w without the underscore
const WORD = `[${LETTER}_]`;
export const SPACES =
  String.raw`\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000`;
const SOLID = `[^${SPACES}]`;
const EDGE = `(?:(?<=${WORD})(?!${WORD})|(?<!${WORD})(?=${WORD}))`;
const TOP_LEVEL = "com|org|net|edu|gov|info|biz|co|io|uk|de|fr|eu|sg|in|us|ca|au|tv|me"
  // Python matches these without case, to which the dotless i and the long s belong.
  .replaceAll("i", "[iı]")
  .replaceAll("s", "[sſ]");

const ADDRESS = new RegExp(
  [
    String.raw`(?<![${LETTER}_+.\-])[a-zıſ](?=([a-z0-9ıſ+.\-]*))\1:\/\/${SOLID}*[${LETTER}_\/]`,
    String.raw`(?<![${LETTER}_.\-])www\.${SOLID}*[${LETTER}_\/]`,
    String.raw`(?<![${LETTER}_.+\-])(?=([${LETTER}_.+\-]+))\2@${WORD}(?:[^${SPACES}@<>]*${WORD})?`,
    String.raw`(?<![${LETTER}_.\-])(?:(?=([${LETTER}_\-]+))\3\.)+(?:${TOP_LEVEL})${EDGE}` +
      String.raw`(?:\/(?:${SOLID}*[${LETTER}_\/])?)?`,
  ].join("|"),
  "gu",
);
const NOT_A_WORD = new RegExp(
  [
    `<[^<>${SPACES}]{1,30}>`,
    String.raw`(?<!${SOLID})[~.]{0,2}\/${SOLID}*[${LETTER}_\/]`,
    String.raw`${EDGE}(?=([\p{L}\p{Nl}\p{No}_]*))\1\p{Nd}(?:[.,:\/'\-]?${WORD})*`,
    String.raw`${EDGE}(?=([${LETTER}]*))\2_${WORD}*`,
  ].join("|"),
  "gu",
);
const EMOTICON = new RegExp(`(?<!${WORD})[:;=]['\\-]?[a-z](?!${WORD})`, "gu");
const SENTENCE_END = new RegExp(`[.!?…]{2,}|[!?…]|\\.(?=[${SPACES}]|$)|[\\r\\n]+`, "u");
/** Pattern of letters and digits with the marks on them. */
export const RUN = `[${LETTER}][${LETTER}${MARKS}]*`;
const WORDS = new RegExp(`${RUN}(?:'${RUN})*|${ONE_EMOJI}`, "gu");
const ALL_LETTERS = /^\p{L}+$/u;
const NO_LETTERS = new RegExp(`['${MARKS}]`, "gu");
const ALL_POINTS = new RegExp(`[${POINTS}]`, "gu");
const SURPLUS_MARKS = /(\p{M}{30})\p{M}+/gu;

/** Return a text with letter and accent as one character, and no more than 30 marks in a run. */
export function compose(text) {
  return text.replace(SURPLUS_MARKS, "$1").normalize("NFC");
}

/** Return a text in the one spelling in which words are read. */
export function asRead(text) {
  const alike = text.replace(/[’‘ʼ＇`´]/gu, "'").replaceAll("İ", "i");
  return compose(alike.toLowerCase()).replace(ALL_POINTS, "");
}

/** Return the sentences of a text, each as lower-case words; empty ones are left out. */
export function splitSentences(text) {
  const visible = asRead(text)
    .replace(ADDRESS, " 0 ")
    .replace(NOT_A_WORD, " 0 ")
    .replace(EMOTICON, " ");
  return visible
    .split(SENTENCE_END)
    .map(wordsOf)
    .filter((words) => words.length > 0);
}

function wordsOf(part) {
  return (part.match(WORDS) ?? []).map((word) => (isWord(word) ? word : UNKNOWN));
}

function isWord(word) {
  return ALL_LETTERS.test(word.replace(NO_LETTERS, "")) || isEmoji(word);
}
