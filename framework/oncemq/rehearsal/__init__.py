"""Rehearsals: what another configuration would make of recorded traffic, on a scratch database, for `oncemq rehearse`."""
