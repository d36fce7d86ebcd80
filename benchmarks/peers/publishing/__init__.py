"""Publishers that are compared: each publishes so many orders to one queue and prints its rate as JSON."""
