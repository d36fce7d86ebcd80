"""Commands that show or change what runs now."""
