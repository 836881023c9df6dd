# Filled by install rules of the layers; the package files are written here.
