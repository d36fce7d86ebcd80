"""Ground of the engine: values and decisions that each of its parts uses."""
