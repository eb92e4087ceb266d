/** Draw a sound: its wave, and the energy of its mel channels over time. */

const QUIET = -9; // natural logarithm that is drawn as nothing
const LOUD = 1;

/** Draw the highest and the lowest sample of every column. */
export function drawWave(canvas, samples) {
  const { pen, width, height, ink } = begin(canvas);
  pen.fillStyle = ink;
  for (let column = 0; column < width; column++) {
    const [from, to] = [column, column + 1].map((one) => Math.floor((one * samples.length) / width));
    let [low, high] = [0, 0];
    for (let place = from; place < to; place++) {
      low = Math.min(low, samples[place]);
      high = Math.max(high, samples[place]);
    }
    const top = ((1 - high) * height) / 2;
    pen.fillRect(column, top, 1, Math.max(1, ((high - low) * height) / 2));
  }
}

/** Draw frames from left to right, low channels below, the louder the denser. */
export function drawMels(canvas, frames) {
  const { pen, width, height, ink } = begin(canvas);
  pen.fillStyle = ink;
  const count = frames[0]?.length ?? 0;
  for (let column = 0; column < width && count; column++) {
    const frame = frames[Math.floor((column * frames.length) / width)];
    for (let row = 0; row < height; row++) {
      const level = frame[Math.floor(((height - 1 - row) * count) / height)];
      pen.globalAlpha = Math.min(1, Math.max(0, (level - QUIET) / (LOUD - QUIET)));
      pen.fillRect(column, row, 1, 1);
    }
  }
  pen.globalAlpha = 1;
}

function begin(canvas) {
  const pen = canvas.getContext("2d");
  const { width, height } = canvas;
  pen.clearRect(0, 0, width, height);
  return { pen, width, height, ink: getComputedStyle(canvas).color };
}
