// A drawing that is larger than its frame shows first what it is about.
const centre = () => {
  const frame = document.querySelector(".picture"), main = frame?.querySelector("[font-weight]")?.closest("g");
  if (!main) return;
  const outer = frame.getBoundingClientRect(), box = main.getBoundingClientRect();
  frame.scrollBy(
    box.left - outer.left - Math.max((outer.width - box.width) / 2, 16),
    box.top + box.height / 2 - outer.top - outer.height / 2,
  );
};
centre();
// A link that only unfolds a drawing swaps the drawing.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.within");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  htmx.ajax("GET", link.getAttribute("href"), { source: link, target: "#drawing", select: "#drawing", swap: "outerHTML" })
    .then(() => {
      document.getElementById("drawing").focus({ preventScroll: true });
      centre();
    });
});
