// Search in a site that was opened as files: a browser starts no worker for a file, so an invisible frame runs its script.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<body></body>";
      this.ready = new Promise((resolve) => {
        this.frame.onload = () => {
          const page = this.frame.contentWindow;
          page.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
          const script = page.document.createElement("script");
          script.onload = () => resolve(page);
          script.src = new URL(url, location.href).href;
          page.document.body.append(script);
        };
      });
      document.body.append(this.frame);
    }

    async postMessage(data) {
      (await this.ready).dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
