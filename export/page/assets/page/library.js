/** Fetch a person's keyboard, check what arrives, and keep it on this device if asked to. */

const KEPT = "sotto-kept";
const DESCRIPTION = "kept/keyboard.json";

export const PERSONAL_FILE = "personal.safetensors";

export class RefusedError extends Error {}

/** Fetch what one person's keyboard is, and read its files from where it came. */
export class Library {
  /**
   * @param {string} description address of what the keyboard is
   * @param {string} files address beneath which its versions' files lie
   * @param {string|null} token bearer token; only ever in memory
   */
  constructor(description, files, token) {
    this.description = description;
    this.files = files;
    this.token = token;
  }

  async describe() {
    return (await this.#fetch(this.description)).json();
  }

  async read(version, name, onBytes) {
    return bytesOf(await this.#fetch(`${this.files}/${version}/${name}`), onBytes);
  }

  /** Ask a question that is answered by bytes. */
  async ask(address, question, signal, onBytes) {
    const asked = { method: "POST", body: JSON.stringify(question), signal };
    return bytesOf(await this.#fetch(address, asked), onBytes);
  }

  async #fetch(address, asked = {}) {
    const headers = { "Content-Type": "application/json" };
    if (this.token !== null) headers.Authorization = `Bearer ${this.token}`;
    const answer = await fetch(address, { ...asked, headers });
    if (!answer.ok) throw new RefusedError(await reasonOf(answer));
    return answer;
  }
}

/** Hold the one keyboard that was kept on this device. */
export const kept = {
  async describe() {
    const answer = await caches.match(DESCRIPTION, { cacheName: KEPT });
    return answer ? answer.json() : null;
  },

  async read(version, name, onBytes) {
    const answer = await caches.match(`kept/${name}`, { cacheName: KEPT });
    if (!answer) throw new RefusedError(`${name} is not kept on this device`);
    return bytesOf(answer, onBytes);
  },

  /** Replace what is kept, the description last, so that half a keyboard is never found. */
  async replace(description, files) {
    await caches.delete(KEPT);
    const cache = await caches.open(KEPT);
    for (const [name, bytes] of Object.entries(files)) {
      await cache.put(`kept/${name}`, new Response(bytes));
    }
    await cache.put(DESCRIPTION, Response.json(description));
  },

  async remove() {
    await caches.delete(KEPT);
  },
};

/** Read every file of a version, the person's own too, each held against its digest. */
export async function readFiles(source, version, onBytes) {
  const described = { ...version.files };
  if (version.personal) described[PERSONAL_FILE] = version.personal;
  const files = {};
  for (const [name, { sha256 }] of Object.entries(described)) {
    files[name] = await source.read(version.version, name, onBytes);
    const found = hex(await crypto.subtle.digest("SHA-256", files[name]));
    if (found !== sha256) {
      throw new RefusedError(
        `${name} is not what its description says: damaged, or another by now? Fetch the keyboard again.`,
      );
    }
  }
  return files;
}

async function bytesOf(answer, onBytes) {
  const pieces = [];
  for (const reader = answer.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    onBytes(value.length);
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}

async function reasonOf(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `${answer.status} ${answer.statusText}`;
  }
}

function hex(buffer) {
  return Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
