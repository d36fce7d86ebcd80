"""What is published: built, looked at, and tried as a user would get it."""
