"""Commands that tell or check what an app's messages are."""
