// The trace: a slider through the steps of all samples at once.

const times = embedded("times");
const slider = document.getElementById("step");
const button = document.getElementById("play");
let playing = null;

function show(step) {
  slider.value = String(step);
  document.getElementById("time").textContent = `t = ${times[step]}`;
  for (const picture of document.querySelectorAll("svg.walked")) {
    [...picture.querySelectorAll(".frame")].forEach((frame, number) => frame.classList.toggle("on", number === step));
  }
}
function stop() {
  clearInterval(playing);
  playing = null;
  button.textContent = "Play";
  button.setAttribute("aria-pressed", "false");
}
button.addEventListener("click", () => {
  if (playing !== null) return stop();
  if (Number(slider.value) === times.length - 1) show(0);
  button.textContent = "Stop";
  button.setAttribute("aria-pressed", "true");
  playing = setInterval(() => {
    const next = Number(slider.value) + 1;
    show(next);
    if (next === times.length - 1) stop();
  }, Math.max(80, 4000 / times.length));
});
slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
show(times.length - 1);
