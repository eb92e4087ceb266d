/** Run an exported next-word graph with onnxruntime-web; export/runtime/word_graph.py does the same. */

const DISTRIBUTION = "distribution";
const PERSONAL = "personal.";

export class GraphError extends Error {}

export class KeyboardGraph {
  /**
   * Load a graph.
   *
   * @param ort onnxruntime-web
   * @param {Uint8Array} bytes the ONNX graph
   * @param {Map<string, {shape: number[], values: Float32Array}>} personal one person's tensors
   * @param {number|null} contextSize most tokens that it reads of one text
   */
  static async load(ort, bytes, { personal = new Map(), contextSize = null } = {}) {
    const session = await ort.InferenceSession.create(bytes, { executionProviders: ["wasm"] });
    return new KeyboardGraph(ort, session, personal, contextSize);
  }

  constructor(ort, session, personal, contextSize) {
    this.ort = ort;
    this.session = session;
    this.contextSize = contextSize;
    this.lastStepMs = null;
    const inputs = session.inputMetadata;
    this.personal = personalInputs(ort, inputs, personal);
    this.states = inputs.filter(
      ({ name }) => name !== "tokens" && name !== "k" && !name.startsWith(PERSONAL),
    );
    this.outputs = [DISTRIBUTION, ...this.states.map(({ name }) => `next_${name}`)];
  }

  /** Return the state of a text that has not begun: zeros, nothing in a cache. */
  freshState() {
    const made = {};
    for (const { name, shape } of this.states) {
      const extents = shape.map((axis) => (axis === "batch" ? 1 : Number.isInteger(axis) ? axis : 0));
      const count = extents.reduce((product, extent) => product * extent, 1);
      made[name] = new this.ort.Tensor("float32", new Float32Array(count), extents);
    }
    return made;
  }

  /** Read tokens; return the log-probabilities of every word, and the state to go on from. */
  async step(tokens, state) {
    const began = performance.now();
    const feeds = {
      tokens: new this.ort.Tensor("int64", BigInt64Array.from(tokens, BigInt), [1, tokens.length]),
      k: new this.ort.Tensor("int64", BigInt64Array.of(1n), [1]),
      ...state,
      ...this.personal,
    };
    const found = await this.session.run(feeds, this.outputs);
    this.lastStepMs = (performance.now() - began) / tokens.length;
    const carried = this.states.map(({ name }) => [name, found[`next_${name}`]]);
    return { distribution: found[DISTRIBUTION].data, state: Object.fromEntries(carried) };
  }

  async release() {
    await this.session.release();
  }
}

function personalInputs(ort, inputs, personal) {
  const taken = inputs.filter(({ name }) => name.startsWith(PERSONAL));
  const foreign = [...personal.keys()].filter((name) => !taken.some((one) => one.name === name));
  if (foreign.length) throw new GraphError(`the model does not take ${foreign[0]}`);
  return Object.fromEntries(
    taken.map(({ name, shape }) => {
      const own = personal.get(name);
      if (own === undefined || own.shape.join() !== shape.join()) {
        throw new GraphError(`${name} must have the shape ${shape}, got ${own?.shape ?? "none"}`);
      }
      return [name, new ort.Tensor("float32", own.values, own.shape)];
    }),
  );
}
