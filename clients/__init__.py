"""The agents and libraries that people use, as they are published, driven through the gateway: `make clients`."""
