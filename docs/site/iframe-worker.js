// Browsers start no workers from file://. There the search's worker runs in a frame instead, under the same interface.
// Material's worker looks for parent.IFrameWorker, and awaits what importScripts() returns.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = `<script>
        postMessage = (data) => frameElement.dispatchEvent(new MessageEvent("from-worker", { data }));
        importScripts = (...urls) => urls.reduce((before, each) => before.then(() => new Promise((done, failed) => {
          const script = document.createElement("script");
          Object.assign(script, { src: each, onload: done, onerror: failed });
          document.body.append(script);
        })), Promise.resolve());
      </script><script src="${url}"></script>`;
      this.frame.addEventListener("from-worker", ({ data }) => {
        const message = new MessageEvent("message", { data });
        this.onmessage?.(message);
        this.dispatchEvent(message);
      });
      this.loaded = new Promise((done) => this.frame.addEventListener("load", done));
      document.body.append(this.frame);
    }
    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
