// What the page does beside htmx: the slider shows where it stands, and the arrow keys step through the requests.
"use strict";

(function () {
  function slider() {
    return document.querySelector("#at");
  }

  function tell() {
    var range = slider();
    var output = document.querySelector("#where");
    if (range && output) output.textContent = "#" + range.value + " of " + range.max;
  }

  function step(by) {
    var range = slider();
    if (!range) return;
    var next = Math.min(Number(range.max), Math.max(Number(range.min), Number(range.value) + by));
    if (next === Number(range.value)) return;
    range.value = String(next);
    tell();
    range.dispatchEvent(new Event("change", { bubbles: true }));
  }

  document.addEventListener("input", function (event) {
    if (event.target === slider()) tell();
  });

  document.addEventListener("click", function (event) {
    var button = event.target.closest("[data-step]");
    if (button) step(Number(button.dataset.step));
  });

  document.addEventListener("keydown", function (event) {
    var tag = event.target.tagName;
    if (event.altKey || event.ctrlKey || event.metaKey || tag === "INPUT" || tag === "SELECT" || tag === "TEXTAREA") return;
    if (event.key === "ArrowLeft") step(-1);
    else if (event.key === "ArrowRight") step(1);
    else if (event.key === "/") {
      var search = document.querySelector("#q");
      if (search) {
        search.focus();
        event.preventDefault();
      }
    }
  });

  document.addEventListener("htmx:responseError", function (event) {
    var target = event.detail.target;
    if (target && target.classList.contains("body")) target.textContent = "This could not be loaded.";
  });

  document.addEventListener("change", function (event) {
    var form = event.target.form;
    if (form && form.hasAttribute("data-autosubmit")) form.requestSubmit();
  });
})();
