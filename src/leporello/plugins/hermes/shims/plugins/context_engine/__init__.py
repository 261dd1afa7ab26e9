"""Stands in for the engine plugins of Hermes Agent; the loaded engines are found below it."""
