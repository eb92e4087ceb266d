// Let search work where the site is opened from a disk: a browser starts no worker from there.
// Its script runs in a hidden frame of the page instead, with what a worker would find around it.
// (The builder would load such a script from another host if this one had no "iframe-worker" in its name.)
"use strict";

function loaded(page, url) {
  return new Promise((resolve, reject) => {
    const script = page.createElement("script");
    script.onload = resolve;
    script.onerror = () => reject(new Error(`${url} cannot be loaded`));
    script.src = url;
    page.body.append(script);
  });
}

class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    // Written at once, or a browser may put another empty page in its place.
    inside.document.open();
    inside.document.write("<!doctype html><body></body>");
    inside.document.close();
    inside.importScripts = async (...urls) => {
      for (const one of urls) await loaded(inside.document, one);
    };
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    this.ready = loaded(inside.document, url);
  }

  set onmessage(listener) {
    this.addEventListener("message", listener);
  }

  postMessage(data) {
    const tell = () =>
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    this.ready.then(tell);
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") {
  window.Worker = FrameWorker;
  // By this name the theme's search knows that importScripts has to be waited for.
  window.IFrameWorker = FrameWorker;
}
