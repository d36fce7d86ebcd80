// Shows the overview again every two seconds, unless a field of it is being filled in.
"use strict";
const live = document.getElementById("live");
let missed = 0;
async function refresh() {
  const busy = live.querySelector("details[open]") !== null;
  if (!document.hidden && !busy) {
    try {
      const answer = await fetch(live.dataset.address, { credentials: "same-origin" });
      if (answer.ok) {
        live.innerHTML = await answer.text();
        missed = 0;
      } else {
        missed += 1;
      }
    } catch {
      missed += 1;
    }
    live.classList.toggle("old", missed > 1);
  }
  setTimeout(refresh, 2000 * Math.min(1 + missed, 10));
}
setTimeout(refresh, 2000);
