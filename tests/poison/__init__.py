"""One poisoned message among healthy ones: every way to fail, each ends as one dead letter and harms no neighbour."""
