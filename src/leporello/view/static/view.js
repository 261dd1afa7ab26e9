// What the page does beside htmx: the slider shows where it stands, and the arrow keys step through the requests,
// with Shift from fold to fold.
"use strict";

(function () {
  function slider() {
    return document.querySelector("#at");
  }

  function tell() {
    var range = slider();
    var where = document.querySelector("#where");
    if (range && where) where.value = range.value;
  }

  function go(to) {
    var range = slider();
    if (!range) return;
    var there = to >= Number(range.min) && to <= Number(range.max) && to !== Number(range.value);
    if (there) range.value = String(to);
    tell();
    if (there) range.dispatchEvent(new Event("change", { bubbles: true }));
  }

  function step(by) {
    var range = slider();
    if (range) go(Number(range.value) + by);
  }

  function fold(by) {
    var range = slider();
    var knobs = range && range.closest("[data-folds]");
    if (!knobs) return;
    var at = Number(range.value);
    var folds = knobs.dataset.folds.split(" ").map(Number).filter(function (one) {
      return by < 0 ? one && one < at : one > at;
    });
    if (folds.length) go(by < 0 ? folds[folds.length - 1] : folds[0]);
  }

  document.addEventListener("input", function (event) {
    if (event.target === slider()) tell();
  });

  document.addEventListener("click", function (event) {
    var button = event.target.closest("[data-step], [data-fold]");
    if (!button) return;
    if (button.dataset.step) step(Number(button.dataset.step));
    else fold(Number(button.dataset.fold));
  });

  document.addEventListener("keydown", function (event) {
    var tag = event.target.tagName;
    if (event.altKey || event.ctrlKey || event.metaKey || tag === "INPUT" || tag === "SELECT" || tag === "TEXTAREA") return;
    var move = event.shiftKey ? fold : step;
    if (event.key === "ArrowLeft") move(-1);
    else if (event.key === "ArrowRight") move(1);
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
    if (event.target.id === "where") go(Number(event.target.value));
    var form = event.target.form;
    if (form && form.hasAttribute("data-autosubmit")) form.requestSubmit();
  });
})();
