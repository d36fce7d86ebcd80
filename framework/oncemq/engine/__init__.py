"""Engine: from a delivery to its settlement, through one transaction."""
