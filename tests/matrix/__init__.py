"""Every ordered pair of strategies: those that `check` refuses by their refusal, the others by what they did."""
