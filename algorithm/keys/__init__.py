"""Keys of a configuration that several packages read, as pydantic blocks."""
