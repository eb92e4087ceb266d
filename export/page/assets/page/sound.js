/** Turn the server's sound into samples, and samples into a file that a browser plays. */

const LARGEST = 32768;
const HEADER_BYTES = 44;

/** Return samples in [-1, 1) of whole numbers of 16 bits, little-endian. */
export function samplesOf(pcm) {
  const view = new DataView(pcm.buffer, pcm.byteOffset, pcm.byteLength);
  const count = Math.floor(pcm.byteLength / 2);
  return Float32Array.from({ length: count }, (_, place) => view.getInt16(2 * place, true) / LARGEST);
}

/** Return a WAV file of one channel around whole numbers of 16 bits. */
export function wavOf(pcm, rateHz) {
  const header = new DataView(new ArrayBuffer(HEADER_BYTES));
  const text = (place, letters) =>
    [...letters].forEach((letter, offset) => header.setUint8(place + offset, letter.charCodeAt(0)));
  text(0, "RIFF");
  header.setUint32(4, HEADER_BYTES - 8 + pcm.byteLength, true);
  text(8, "WAVEfmt ");
  header.setUint32(16, 16, true);
  header.setUint16(20, 1, true); // whole numbers
  header.setUint16(22, 1, true);
  header.setUint32(24, rateHz, true);
  header.setUint32(28, 2 * rateHz, true);
  header.setUint16(32, 2, true);
  header.setUint16(34, 16, true);
  text(36, "data");
  header.setUint32(40, pcm.byteLength, true);
  return new Blob([header, pcm], { type: "audio/wav" });
}
