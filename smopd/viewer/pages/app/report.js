// The charts of report.html, whose numbers stand in the page itself.
const numbers = JSON.parse(document.getElementById("numbers").textContent);
for (const figure of document.querySelectorAll("[data-accuracies]")) {
  figure.append(armChart("Accuracy by view and stage, with 95% intervals", numbers.accuracies[figure.dataset.accuracies]));
}
document.getElementById("curves")?.append(curves([numbers.run]));
document.documentElement.dataset.ready = "1";
