/** Let a person hear a text in their own voice or everybody's; the server makes the sound. */

import { factsOfVoice, showFacts } from "./facts.js";
import { logMel } from "./log_mel.js";
import { samplesOf, wavOf } from "./sound.js";
import { drawMels, drawWave } from "./sound_pictures.js";

const SHARED = "@shared";
const NOT_YOURS = "There is no voice of yours on this version; `sotto-serve person` adds one.";
const NOT_SHARED =
  "There is no voice of everybody's: more of this one is each person's own than who speaks.";

export class VoiceBox {
  #library = null;
  #voice = null;
  #asked = null;

  /** @param {HTMLElement} place with the form, the sound and its pictures */
  constructor(place) {
    this.place = place;
    this.at = (name) => place.querySelector(`[data-part=${name}]`);
    this.at("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#say();
    });
    this.at("audio").addEventListener("error", () => {
      this.#tell("This browser cannot play a sound of this sampling rate.", { failed: true });
    });
  }

  /** Speak for a person from now on; without a voice nothing is shown. */
  use(library, description) {
    this.#forget();
    [this.#library, this.#voice] = [library, description.voice];
    this.place.hidden = this.#voice === null;
    if (this.#voice === null) return;
    this.#offer(description.client, this.#voice);
    showFacts(this.at("facts"), factsOfVoice(description));
  }

  focus() {
    this.at("text").focus();
  }

  /** Forget the person, what was said and how it sounded. */
  leave() {
    this.use(null, { voice: null });
    this.at("text").value = "";
  }

  /** Offer the voices that the person may ask for, and say why another is missing. */
  #offer(client, { voices, personal }) {
    const named = (name) => (name === SHARED ? "Everybody's" : `${name}'s own`);
    this.at("voice").replaceChildren(...voices.map((name) => new Option(named(name), name)));
    const missing = personal === null ? [] : [client, SHARED].filter((name) => !voices.includes(name));
    this.at("choice").textContent = missing
      .map((name) => (name === SHARED ? NOT_SHARED : NOT_YOURS))
      .join(" ");
    for (const name of ["voice", "say"]) this.at(name).disabled = voices.length === 0;
  }

  #forget() {
    this.#asked?.abort();
    const audio = this.at("audio");
    if (audio.src) URL.revokeObjectURL(audio.src);
    audio.removeAttribute("src");
    this.at("sound").hidden = true;
    this.#tell("");
  }

  async #say() {
    this.#forget();
    const asked = (this.#asked = new AbortController());
    this.#tell("The voice speaks…");
    try {
      const began = performance.now();
      const pcm = await this.#pcm(asked.signal, () => {
        this.#tell(`First sound after ${seconds(performance.now() - began)}…`);
      });
      this.#show(pcm, performance.now() - began);
    } catch (error) {
      if (!asked.signal.aborted) this.#tell(error.message, { failed: true });
    }
  }

  #pcm(signal, onFirst) {
    let isFirst = true;
    const question = {
      model: this.#voice.version,
      voice: this.at("voice").value,
      input: this.at("text").value,
      response_format: "pcm",
      speed: Number(this.at("speed").value),
    };
    return this.#library.ask("v1/audio/speech", question, signal, () => {
      if (isFirst) onFirst();
      isFirst = false;
    });
  }

  #show(pcm, tookMs) {
    const { mel } = this.#voice;
    const samples = samplesOf(pcm);
    const length = seconds((1000 * samples.length) / mel.sample_rate_hz);
    this.at("audio").src = URL.createObjectURL(wavOf(pcm, mel.sample_rate_hz));
    this.at("sound").hidden = false;
    drawWave(this.at("wave"), samples);
    drawMels(this.at("mels"), logMel(samples, mel));
    this.#tell(`${length} of sound, made in ${seconds(tookMs)}.`);
  }

  #tell(text, { failed = false } = {}) {
    this.at("told").textContent = text;
    this.at("told").toggleAttribute("data-failed", failed);
  }
}

function seconds(milliseconds) {
  return `${(milliseconds / 1000).toFixed(1)} s`;
}
