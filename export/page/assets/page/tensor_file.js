/** Read float32 tensors from a safetensors file, as models/vector/tensor_file.py writes them. */

export class TensorFileError extends Error {}

const SIZE_BYTES = 8;
const FLOAT_BYTES = 4;

/** Return a file's tensors by name: their shape, and a Float32Array of finite values. */
export function decodeTensors(file) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const [entries, start] = headerOf(file, view);
  const tensors = new Map();
  let end = 0;
  for (const [name, { dtype, shape, data_offsets: offsets }] of entries) {
    const count = shape.reduce((product, extent) => product * extent, 1);
    const begin = end;
    end += count * FLOAT_BYTES;
    if (dtype !== "F32" || offsets[0] !== begin || offsets[1] !== end || start + end > file.length) {
      throw new TensorFileError(`${name} must be float32 without gaps, inside the file`);
    }
    tensors.set(name, { shape, values: floats(name, view, start + begin, count) });
  }
  if (start + end !== file.length) {
    throw new TensorFileError(`the file must have ${start + end} bytes, got ${file.length}`);
  }
  return tensors;
}

function headerOf(file, view) {
  const size = file.length < SIZE_BYTES ? Infinity : Number(view.getBigUint64(0, true));
  const start = SIZE_BYTES + size;
  if (start > file.length) throw new TensorFileError("the file must have a header");
  try {
    const described = JSON.parse(new TextDecoder().decode(file.subarray(SIZE_BYTES, start)));
    return [Object.entries(described).filter(([name]) => name !== "__metadata__"), start];
  } catch {
    throw new TensorFileError("the header of the file must be JSON");
  }
}

function floats(name, view, start, count) {
  const values = new Float32Array(count);
  for (let place = 0; place < count; place++) {
    values[place] = view.getFloat32(start + place * FLOAT_BYTES, true);
    if (!Number.isFinite(values[place])) throw new TensorFileError(`${name} must be finite`);
  }
  return values;
}
