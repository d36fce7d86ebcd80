"""Publishing: sends that are confirmed."""
