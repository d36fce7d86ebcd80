"""How many messages a second a consumer takes."""
