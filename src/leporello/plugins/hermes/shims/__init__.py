"""The modules that stand behind the names of Hermes Agent; the finder loads them under those names."""
