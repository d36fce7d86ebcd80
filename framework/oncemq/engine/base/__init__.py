"""Foundation of the engine: values and decisions that all its parts use."""
