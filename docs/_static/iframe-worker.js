/* Browsers start no workers from the file system, and the search of the site is one. There, run it in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      this.waiting = []
      inside.document.open()
      inside.document.write("<!doctype html><body></body>")
      inside.document.close()
      inside.postMessage = (data) => this.dispatchEvent(Object.assign(new Event("message"), { data }))
      this.deliver = (data) => inside.dispatchEvent(Object.assign(new inside.Event("message"), { data }))
      const script = inside.document.createElement("script")
      script.src = url
      script.onload = () => {
        this.waiting.forEach(this.deliver)
        this.waiting = null
      }
      inside.document.body.appendChild(script)
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.deliver(data)
    }
    terminate() {}
  }
}
