"""Pictures: decoded by Pillow, kept as bytes, and made numbers by native code."""
