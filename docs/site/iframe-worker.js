// Browsers start no workers from file://. There the search's worker runs in a frame instead, under the same interface.
// Material's worker looks for parent.IFrameWorker, and awaits what importScripts() returns.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script>
        onmessage = (event) => dispatchEvent(new MessageEvent("worker", event));
        postMessage = (data) => parent.dispatchEvent(new MessageEvent("frame-worker", { data }));
        addEventListener = ((add) => (type, ...rest) => add.call(window, type === "message" ? "worker" : type, ...rest))(addEventListener);
        importScripts = (...urls) => urls.reduce((before, each) => before.then(() => new Promise((done, failed) => {
          const script = document.createElement("script");
          Object.assign(script, { src: each, onload: done, onerror: failed });
          document.body.append(script);
        })), Promise.resolve());
      </script><script src="${url}"></script>`;
      this.loaded = new Promise((done) => frame.addEventListener("load", done));
      document.body.append(frame);
      this.frame = frame;
      addEventListener("frame-worker", (event) => {
        const message = new MessageEvent("message", { data: event.data });
        this.onmessage?.(message);
        this.dispatchEvent(message);
      });
    }
    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.postMessage(data, "*"));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
