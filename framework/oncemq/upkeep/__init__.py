"""Background work: purging, time-outs, reconciling."""
