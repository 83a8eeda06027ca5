"""Unity builds and the Unity Editor as vector environments."""
