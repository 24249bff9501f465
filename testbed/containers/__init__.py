"""Docker: finding the engine and the image of this code."""
