// Answers what a test asks the page's own modules: JSON on standard input, JSON on standard output.
import { readFileSync } from "node:fs";

const { assets, asked } = JSON.parse(readFileSync(0, "utf8"));
const page = (name) => import(`${assets}/page/${name}`);
const modules = ["text", "cursor", "casing", "strip", "word_index", "keyboard_graph", "next_words"];
const [text, cursor, casing, strip, index, graphs, words] = await Promise.all(
  modules.map((name) => page(`${name}.js`)),
);
const [tensors, mels, sound, library, trees, slips, rares] = await Promise.all(
  ["tensor_file", "log_mel", "sound", "library", "word_tree", "slips", "rare_words"].map((name) =>
    page(`${name}.js`),
  ),
);

const answers = {
  sentences: ({ texts }) => texts.map(text.splitSentences),
  cursors: ({ texts }) => texts.map(cursor.splitAtCursor),
  normalised: ({ texts }) => texts.map(lengthsNormalised),
  typed: ({ texts }) => texts.map(cursor.typedWord),
  contexts: ({ cases }) => cases.map(([tokens, size]) => cursor.inContext(tokens, size)),
  cased: ({ cases }) =>
    cases.map(([word, begun, beginsSentence, languages]) =>
      casing.cased(word, begun, { beginsSentence, languages }),
    ),
  strips: ({ cases }) => cases.map((one) => strip.fillStrip(...one)),
  begun: ({ list, cases }) => {
    const made = new index.WordIndex(list);
    return cases.map(([begun, scores, count]) => made.likeliest(begun, scores, count));
  },
  offensive: showOffensive,
  offers,
  reached: ({ list, languages, cases }) => {
    const tree = new trees.WordTree(list);
    const layout = new slips.Layout(languages);
    return cases.map((typed) =>
      tree.reach(typed, layout).map(({ node, cost, left }) => [node.first, node.last, cost, left]),
    );
  },
  tensors: ({ files }) => files.map(readTensors),
  keyboard: typeAll,
  checked: ({ cases }) => Promise.all(cases.map(namesRead)),
  mels: ({ cases }) =>
    cases.map(([samples, settings]) =>
      mels.logMel(Float32Array.from(samples), settings).map((frame) => [...frame]),
    ),
  sounds: async ({ pcm, rateHz }) => {
    const bytes = new Uint8Array(Buffer.from(pcm, "base64"));
    const wav = await sound.wavOf(bytes, rateHz).arrayBuffer();
    return { samples: [...sound.samplesOf(bytes)], wav: Buffer.from(wav).toString("base64") };
  },
};

async function showOffensive({ list, scores, never, offensive }) {
  const distribution = Float32Array.from(scores);
  const reader = { read: async () => ({ begun: "", beginsSentence: false, distribution }) };
  const rules = { languages: [], never, offensive };
  const keyboard = new strip.Keyboard(reader, new index.WordIndex(list), rules);
  const found = [await keyboard.suggest("")];
  for (const isAllowed of [true, false]) {
    keyboard.allowOffensive(isAllowed);
    found.push(await keyboard.suggest(""));
  }
  return found.map(({ centre }) => centre.text);
}

/** Ask keyboards whose models expect the same words wherever they are asked. */
async function offers({ list, languages, files, models, cases }) {
  const made = new index.WordIndex(list);
  const rare = rareOf(files, made);
  const found = [];
  for (const { model: number, text: typed, isAllowed, kept, ...rules } of cases) {
    const distribution = Float32Array.from(models[number]);
    const model = {
      contextSize: null,
      freshState: () => ({}),
      step: async () => ({ distribution, state: {} }),
    };
    const follower = new words.NextWords(model, list);
    const keyboard = new strip.Keyboard(follower, made, { languages, ...rules }, rare);
    keyboard.allowOffensive(isAllowed);
    kept.forEach((word) => keyboard.keep(word));
    found.push(await keyboard.suggest(typed));
  }
  return found;
}

function rareOf(files, { vocabulary }) {
  return files.map((file) => new rares.RareWords(rares.wordsOf(file), vocabulary));
}

function lengthsNormalised(typed) {
  const { normalize } = String.prototype;
  const lengths = [];
  String.prototype.normalize = function (form) {
    lengths.push(this.length);
    return normalize.call(this, form);
  };
  cursor.splitAtCursor(typed);
  String.prototype.normalize = normalize;
  return lengths;
}

function readTensors(encoded) {
  try {
    const found = tensors.decodeTensors(new Uint8Array(Buffer.from(encoded, "base64")));
    return Object.fromEntries([...found].map(([name, one]) => [name, { ...one, values: [...one.values] }]));
  } catch (error) {
    return error instanceof tensors.TensorFileError ? error.message : Promise.reject(error);
  }
}

async function namesRead({ version, served }) {
  const source = { read: async (_, name) => new TextEncoder().encode(served[name]) };
  try {
    return Object.keys(await library.readFiles(source, version, () => {}));
  } catch (error) {
    return error instanceof library.RefusedError ? error.message : Promise.reject(error);
  }
}

async function typeAll({ runtime, keyboards }) {
  const ort = await import(`${runtime}/ort.wasm.min.mjs`);
  ort.env.wasm.numThreads = 1;
  const found = [];
  for (const one of keyboards) found.push(await typeOn(ort, one));
  return found;
}

async function typeOn(ort, { model, list, personal, contextSize, texts, files, ...rules }) {
  const graph = await graphs.KeyboardGraph.load(ort, new Uint8Array(readFileSync(model)), {
    personal: personal ? tensors.decodeTensors(new Uint8Array(readFileSync(personal))) : new Map(),
    contextSize,
  });
  const follower = new words.NextWords(graph, list);
  const made = new index.WordIndex(list);
  const keyboard = new strip.Keyboard(follower, made, rules, rareOf(files, made));
  const found = [];
  for (const typed of texts) {
    const reading = await follower.read(typed);
    const distribution = reading ? Array.from(reading.distribution) : null;
    found.push({ distribution, strip: await keyboard.suggest(typed) });
  }
  return found;
}

const found = {};
for (const [name, question] of Object.entries(asked)) found[name] = await answers[name](question);
process.stdout.write(JSON.stringify(found));
