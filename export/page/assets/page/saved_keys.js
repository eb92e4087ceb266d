/** Count the keys pressed for a text, and how many its suggestions saved. */

export class SavedKeys {
  pressed = 0;

  press(count = 1) {
    this.pressed += count;
  }

  clear() {
    this.pressed = 0;
  }

  /** Say it in words, for a text of so many characters; taken-back characters count as pressed. */
  told(text) {
    const characters = Array.from(text).length;
    const saved = characters - this.pressed;
    const share = characters > 0 ? ` (${Math.round((100 * saved) / characters)} %)` : "";
    return `${characters} characters with ${this.pressed} keys: ${saved} saved${share}`;
  }
}
