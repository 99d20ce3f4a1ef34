// Runs before the first paint, so that a remembered theme never flashes the other one.
(function () {
  try {
    var theme = localStorage.getItem("motet.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is blocked: the system's theme applies.
  }
})();
