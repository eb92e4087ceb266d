/** Make the log-mel spectrogram of a sound, as models/sound/mel.py does (librosa's, Slaney's scale). */

const LINEAR_HZ = 200 / 3;
const BREAK_HZ = 1000;
const BREAK_MEL = BREAK_HZ / LINEAR_HZ;
const MELS_PER_LOG = 27 / Math.log(6.4);

/**
 * Return frames of natural logarithms; none of a sound shorter than half a transform.
 *
 * @param {Float32Array} samples in [-1, 1]
 * @param settings of the voice, named as in models/settings/audio.py
 * @returns {Float32Array[]} one array of mel channels for each frame
 */
export function logMel(samples, settings) {
  const { fft_size: size, hop_size: hop, floor } = settings;
  if (samples.length <= size / 2) return [];
  const window = hannWindow(settings);
  const filters = melFilters(settings);
  const frames = [];
  for (let centre = 0; centre <= samples.length; centre += hop) {
    const windowed = Float64Array.from(window, (weight, place) => {
      return weight === 0 ? 0 : weight * reflected(samples, centre + place - size / 2);
    });
    const heights = amplitudes(windowed);
    frames.push(Float32Array.from(filters, (filter) => Math.log(Math.max(floor, under(filter, heights)))));
  }
  return frames;
}

function reflected(samples, place) {
  const last = samples.length - 1;
  const positive = Math.abs(place);
  return samples[positive > last ? 2 * last - positive : positive];
}

function hannWindow({ fft_size: size, window_size: width }) {
  const start = Math.floor((size - width) / 2);
  return Float64Array.from({ length: size }, (_, place) => {
    const inside = place - start;
    if (inside < 0 || inside >= width) return 0;
    return 0.5 - 0.5 * Math.cos((2 * Math.PI * inside) / width);
  });
}

/** Return each triangle as its first bin and its weights. */
function melFilters({ sample_rate_hz: rate, fft_size: size, mel_count: count, lowest_hz: lowest, highest_hz: highest }) {
  const [from, to] = [melOf(lowest), melOf(highest)];
  const corners = Array.from({ length: count + 2 }, (_, place) => {
    return hertzOf(from + ((to - from) * place) / (count + 1));
  });
  const binHz = rate / size;
  return Array.from({ length: count }, (_, channel) => {
    const [low, centre, high] = corners.slice(channel, channel + 3);
    const first = Math.ceil(low / binHz);
    const weights = [];
    for (let bin = first; bin <= size / 2 && bin * binHz <= high; bin++) {
      const hertz = bin * binHz;
      const height = Math.min((hertz - low) / (centre - low), (high - hertz) / (high - centre));
      weights.push((Math.max(0, height) * 2) / (high - low));
    }
    return { first, weights };
  });
}

function under({ first, weights }, heights) {
  return weights.reduce((sum, weight, place) => sum + weight * heights[first + place], 0);
}

function amplitudes(real) {
  const [re, im] = transform(real, new Float64Array(real.length));
  return Float64Array.from({ length: real.length / 2 + 1 }, (_, bin) => Math.hypot(re[bin], im[bin]));
}

/** Return the discrete Fourier transform: halves while the size is even, then the plain sum. */
function transform(re, im) {
  const size = re.length;
  if (size % 2) return plainSum(re, im);
  const half = size / 2;
  const part = (values, offset) => Float64Array.from({ length: half }, (_, place) => values[2 * place + offset]);
  const [evenRe, evenIm] = transform(part(re, 0), part(im, 0));
  const [oddRe, oddIm] = transform(part(re, 1), part(im, 1));
  const [outRe, outIm] = [new Float64Array(size), new Float64Array(size)];
  for (let bin = 0; bin < half; bin++) {
    const [cos, sin] = turned(bin, size);
    const turnedRe = cos * oddRe[bin] - sin * oddIm[bin];
    const turnedIm = cos * oddIm[bin] + sin * oddRe[bin];
    outRe[bin] = evenRe[bin] + turnedRe;
    outIm[bin] = evenIm[bin] + turnedIm;
    outRe[bin + half] = evenRe[bin] - turnedRe;
    outIm[bin + half] = evenIm[bin] - turnedIm;
  }
  return [outRe, outIm];
}

function plainSum(re, im) {
  const size = re.length;
  const [outRe, outIm] = [new Float64Array(size), new Float64Array(size)];
  for (let bin = 0; bin < size; bin++) {
    for (let place = 0; place < size; place++) {
      const [cos, sin] = turned(bin * place, size);
      outRe[bin] += cos * re[place] - sin * im[place];
      outIm[bin] += cos * im[place] + sin * re[place];
    }
  }
  return [outRe, outIm];
}

function turned(steps, size) {
  const angle = (-2 * Math.PI * (steps % size)) / size;
  return [Math.cos(angle), Math.sin(angle)];
}

function melOf(hertz) {
  if (hertz < BREAK_HZ) return hertz / LINEAR_HZ;
  return BREAK_MEL + MELS_PER_LOG * Math.log(hertz / BREAK_HZ);
}

function hertzOf(mel) {
  return mel < BREAK_MEL ? mel * LINEAR_HZ : BREAK_HZ * Math.exp((mel - BREAK_MEL) / MELS_PER_LOG);
}
