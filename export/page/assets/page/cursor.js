/** Read what stands before the cursor, as export/runtime/next_word.py and export/runtime/strip.py do. */

import { MARKS } from "./letters.js";
import { RUN, SPACES, UNKNOWN, compose, splitSentences } from "./text.js";

const PROBE = "x";
const BLOCK_CHARACTERS = 1024;
const LONGEST_WORD = 256;
const WHITE_SPACE = new RegExp(`[${SPACES}]`, "u");
const ENDS_IN_WORD = new RegExp(`[\\p{L}\\p{N}${MARKS}]['’]?$`, "u");
const TYPED = new RegExp(`${RUN}(?:['’][\\p{L}\\p{N}${MARKS}]*)*$`, "u");

/** Return [sentences, begun]: the finished words, and the one that is begun, lower-case. */
export function splitAtCursor(text) {
  const recent = compose(recentPart(text));
  const isTyping = ENDS_IN_WORD.test(recent);
  const sentences = splitSentences(recent + (isTyping ? "" : " ") + PROBE);
  const probed = sentences.at(-1).pop();
  return [sentences, probed.endsWith(PROBE) && probed !== UNKNOWN ? probed.slice(0, -1) : probed];
}

/** Return the word that is begun at the end of a text, as it was typed; empty if none is. */
export function typedWord(text) {
  const end = Array.from(text.slice(-2 * LONGEST_WORD)).slice(-LONGEST_WORD).join("");
  return end.normalize("NFC").match(TYPED)?.[0] ?? "";
}

/** Return the end of a list of tokens that a model can read: all, or at least half a context. */
export function inContext(tokens, contextSize) {
  if (contextSize === null || tokens.length <= contextSize) return tokens;
  const half = Math.max(1, Math.floor(contextSize / 2));
  return tokens.slice(Math.ceil((tokens.length - contextSize) / half) * half);
}

function recentPart(text) {
  if (text.length < 2 * BLOCK_CHARACTERS) return text;
  const characters = Array.from(text);
  const start = Math.max(0, Math.floor(characters.length / BLOCK_CHARACTERS) - 1) * BLOCK_CHARACTERS;
  if (start === 0) return text;
  const space = characters
    .slice(start, start + LONGEST_WORD)
    .findIndex((character) => WHITE_SPACE.test(character));
  return characters.slice(start + space + 1).join("");
}
