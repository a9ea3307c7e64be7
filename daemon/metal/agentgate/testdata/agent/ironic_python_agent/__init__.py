"""What firstlight_writer asks of the agent, for a test without it."""
