// A link that only unfolds a drawing swaps the drawing.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.within");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  htmx.ajax("GET", link.getAttribute("href"), { source: link, target: "#drawing", select: "#drawing", swap: "outerHTML" })
    .then(() => document.getElementById("drawing").focus({ preventScroll: true }));
});
