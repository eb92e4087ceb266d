/** Open a keyboard: fetch onnxruntime and the model's files, check them, load the graph. */

import { NextWords } from "./next_words.js";
import { KeyboardGraph } from "./keyboard_graph.js";
import { decodeTensors } from "./tensor_file.js";
import { PERSONAL_FILE, readFiles } from "./library.js";
import { RareWords, wordsOf } from "./rare_words.js";
import { Keyboard } from "./strip.js";
import { WordIndex } from "./word_index.js";

// A function that makes a vector of 16 bytes: valid only where WebAssembly has SIMD.
const SIMD = Uint8Array.of(
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 8, 1, 6, 0, 65, 0, 253, 15, 11,
);

export class OpeningError extends Error {}

/**
 * Open one version of a person's keyboard.
 *
 * @param source where its files are: a Library, or `kept`
 * @param description what the source says of the person's keyboard
 * @param version the version, as the description has it
 * @param {string|null} onnxruntime folder of onnxruntime-web; null where it was not fetched
 * @param {(text: string) => void} tell shows how far it is
 */
export async function openKeyboard(source, description, version, onnxruntime, tell) {
  const began = performance.now();
  checkPossible(version, onnxruntime);
  let bytes = 0;
  const onBytes = (count) => tell(`Loading, ${((bytes += count) / 1e6).toFixed(1)} MB…`);
  const loading = loadRuntime(onnxruntime);
  loading.catch(() => {}); // it is awaited below; a file that fails first is told instead
  const files = await readFiles(source, version, onBytes);
  const lists = await wordLists(version.word_lists ?? []); // an older page kept none
  const personal = files[PERSONAL_FILE];
  const graph = await KeyboardGraph.load(await loading, files["model.onnx"], {
    personal: personal ? decodeTensors(personal) : new Map(),
    contextSize: version.context_size,
  });
  const words = new TextDecoder("utf-8", { fatal: true })
    .decode(files["vocabulary.txt"])
    .replace(/\n$/, "")
    .split("\n");
  const index = new WordIndex(words);
  const rare = lists.map((list) => new RareWords(list, index.vocabulary));
  const keyboard = new Keyboard(new NextWords(graph, words), index, version, rare);
  await keyboard.suggest("");
  return {
    keyboard,
    graph,
    bytes,
    openedMs: performance.now() - began,
    files,
    close: () => graph.release(),
  };
}

function checkPossible(version, onnxruntime) {
  if (onnxruntime === null) {
    throw new OpeningError(
      "onnxruntime-web is not here yet: run `sotto-serve fetch` where this page is served (it needs " +
        "npm), and start the server again",
    );
  }
  if (!WebAssembly.validate(SIMD)) {
    throw new OpeningError("This browser has no WebAssembly SIMD, which the model needs: update it.");
  }
  if (version.personal && !version.personal.available) {
    throw new OpeningError(
      "There is no model of yours on this version; `sotto-serve person` adds one.",
    );
  }
}

/** Fetch lists of rarer words; they come with the page, and a later one may lack some. */
function wordLists(addresses) {
  return Promise.all(
    addresses.map(async (address) => {
      const answer = await fetch(new URL(address, document.baseURI));
      if (answer.status === 404) return [];
      if (!answer.ok) throw new OpeningError(`${address} cannot be had: ${answer.status}`);
      return wordsOf(await answer.text());
    }),
  );
}

async function loadRuntime(onnxruntime) {
  const folder = new URL(onnxruntime, document.baseURI).href;
  const ort = await import(`${folder}ort.wasm.min.mjs`);
  ort.env.wasm.wasmPaths = folder;
  ort.env.wasm.numThreads = 1; // so that the page needs no cross-origin isolation
  return ort;
}
