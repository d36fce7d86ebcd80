"""librocketmq in a process of its own: knows nothing of OnceMQ, starts quickly, and may crash without harm."""
