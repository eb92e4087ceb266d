/**
 * The characters that make words, in the ranges of models/text/letters.py, which says whose they
 * are: parts of a pattern's [...].
 */

export const MARKS =
  "\\u0300-\\u036f\\u0483-\\u0487\\u0591-\\u05bd\\u05bf\\u05c1\\u05c2\\u05c4\\u05c5\\u05c7" +
  "\\u0610-\\u061a\\u064b-\\u065f\\u0670\\u06d6-\\u06dc\\u06df-\\u06e4\\u06e7\\u06e8\\u06ea-\\u06ed" +
  "\\u07a6-\\u07b0\\u0900-\\u0903\\u093a-\\u093c\\u093e-\\u094f\\u0951-\\u0957\\u0962\\u0963" +
  "\\u0981-\\u0983\\u09bc\\u09be-\\u09cd\\u09d7\\u09e2\\u09e3\\u0a01-\\u0a03\\u0a3c-\\u0a51\\u0a70\\u0a71" +
  "\\u0a75\\u0a81-\\u0a83\\u0abc\\u0abe-\\u0acd\\u0ae2\\u0ae3\\u0b01-\\u0b03\\u0b3c\\u0b3e-\\u0b57\\u0b62" +
  "\\u0b63\\u0b82\\u0bbe-\\u0bcd\\u0bd7\\u0c00-\\u0c04\\u0c3c\\u0c3e-\\u0c56\\u0c62\\u0c63\\u0c81-\\u0c83" +
  "\\u0cbc\\u0cbe-\\u0cd6\\u0ce2\\u0ce3\\u0d00-\\u0d03\\u0d3b\\u0d3c\\u0d3e-\\u0d4d\\u0d57\\u0d62\\u0d63" +
  "\\u0d81-\\u0d83\\u0dca-\\u0ddf\\u0df2\\u0df3\\u0e31\\u0e34-\\u0e3a\\u0e47-\\u0e4e\\u0eb1" +
  "\\u0eb4-\\u0ebc\\u0ec8-\\u0ecd\\u0f71-\\u0f84\\u0f8d-\\u0fbc\\u102b-\\u103e\\u17b4-\\u17d3\\u17dd" +
  "\\u200c\\u200d";
export const POINTS =
  "\\u0591-\\u05bd\\u05bf\\u05c1\\u05c2\\u05c4\\u05c5\\u05c7\\u0610-\\u061a\\u0640\\u064b-\\u065f\\u0670";
const UNPARTED =
  "\\u0e00-\\u0eff\\u0f00-\\u0fff\\u1000-\\u109f\\u1780-\\u17ff" +
  "\\u3005-\\u3007\\u3040-\\u30ff\\u31f0-\\u31ff\\u3400-\\u4dbf\\u4e00-\\u9fff\\uf900-\\ufaff" +
  "\\uff66-\\uff9f\\u{20000}-\\u{3ffff}";
const EMOJI =
  "\\u2600\\u2615\\u2639\\u263a\\u2665\\u26a1\\u26bd\\u2705\\u270a-\\u270c\\u2714\\u2728\\u274c\\u2753" +
  "\\u2757\\u2764\\u2b50\\u{1f300}-\\u{1f3fa}\\u{1f400}-\\u{1f64f}\\u{1f680}-\\u{1f6ff}" +
  "\\u{1f900}-\\u{1f9ff}\\u{1fa70}-\\u{1faff}";
export const ONE_EMOJI =
  `(?<!\\u200d)[${EMOJI}]` +
  "(?![\\u{1f3fb}-\\u{1f3ff}]?\\ufe0f?\\u200d(?![\\u2640\\u2642]))";

const HAS_UNPARTED = new RegExp(`[${UNPARTED}]`, "u");
const IS_EMOJI = new RegExp(`^[${EMOJI}]$`, "u");

/** Return whether a word has a letter of writing that puts no blanks between words. */
export function isUnparted(word) {
  return HAS_UNPARTED.test(word);
}

/** Return whether a word is one emoji. */
export function isEmoji(word) {
  return IS_EMOJI.test(word);
}
