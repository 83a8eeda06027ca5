"""A family that is no actor-critic: it shows that nothing outside of a family assumes one."""
