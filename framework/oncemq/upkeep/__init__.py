"""Work in the background: purging, time-outs, reconciling."""
